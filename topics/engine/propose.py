"""Which way a command goes: to the topic that stands, behind what it must wait for, or to a name that is not there."""

from __future__ import annotations

from topics.engine.admit import check_creation, check_limits, check_new_config
from topics.engine.append import propose_append
from topics.engine.change import (
    propose_create,
    propose_delete_records,
    propose_delete_topic,
    propose_put,
    propose_retire,
    propose_sync,
)
from topics.engine.checkpoint import propose_checkpointed
from topics.engine.commands import (
    DEFAULT_CONFIG,
    Append,
    Checkpointed,
    DeleteRecords,
    DeleteTopic,
    PutMode,
    PutTopic,
    Retire,
    Sync,
)
from topics.engine.lane import Lane
from topics.engine.replies import TopicDeleted
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_any_topic_name


def propose(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Check a ticket's command and assign what it needs, or park it.

    Raises:
        Rejected: nothing was assigned or written.
    """
    command = ticket.command
    if isinstance(command, Sync):
        propose_sync(state, ticket)
        return
    if isinstance(command, Checkpointed):
        propose_checkpointed(state, ticket)
        return
    name = command.topic
    lane = state.lanes_by_name.get(name) if type(name) is str else None
    if lane is None:
        check_any_topic_name(name)  # a name that stands has been checked
    if isinstance(command, Append):
        check_limits(command.records, state.limits)
    if isinstance(command, (Append, PutTopic)) and command.config is not DEFAULT_CONFIG:
        present = None if lane is None or lane.topic is None else lane.topic.config
        check_new_config(name, command.config, present)
    if isinstance(command, DeleteRecords) and command.before_seq is None and command.match is None:
        raise invalid("before_seq", "give before_seq, match or both")
    if lane is None:
        _propose_on_absent(state, ticket, now_ms)
    elif lane.blocked:
        state.park(lane, ticket)
    elif isinstance(command, Append):
        propose_append(state, lane, ticket, now_ms)
    else:
        _propose_change(state, lane, ticket, now_ms)


def _propose_change(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    match ticket.command:
        case PutTopic():
            propose_put(state, lane, ticket, now_ms)
        case DeleteTopic():
            propose_delete_topic(state, lane, ticket, now_ms)
        case DeleteRecords():
            propose_delete_records(state, lane, ticket, now_ms)
        case Retire():
            propose_retire(state, lane, ticket, now_ms)


def _propose_on_absent(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    command = ticket.command
    match command:
        case PutTopic(topic=name, mode=PutMode.MERGE):
            raise Rejected(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist", topic=name)
        case PutTopic(topic=name, config=config):
            propose_create(state, name, config, ticket, now_ms)
        case DeleteTopic(topic=name):
            state.finish(ticket, TopicDeleted(topic=name, deleted=False))
        case Append(topic=name, create=True, expected_head=None | 0, config=config):
            check_creation(command, state.limits)
            lane = propose_create(state, name, config, None, now_ms)
            ticket.created = True
            state.park(lane, ticket)
        case Append(topic=name, create=True):
            raise Rejected(
                Code.SEQ_MISMATCH, f"topic {name!r} does not exist, so its head is 0", topic=name, head_seq=0
            )
        case Append(topic=name) | DeleteRecords(topic=name) | Retire(topic=name):
            raise Rejected(Code.TOPIC_NOT_FOUND, f"topic {name!r} does not exist", topic=name)
