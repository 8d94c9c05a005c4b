"""Which way a command goes: to the topic that stands, behind what it must wait for, or to a name that is not there.

A kind of command is a row: of a topic with the moves it has, or of a router or a shard with the one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from topics.engine.batch import Entry
from topics.engine.checkpoint import propose_checkpointed
from topics.engine.commands import (
    Ack,
    Append,
    BringOver,
    Checkpointed,
    Claim,
    CommitConsumer,
    DeleteConsumer,
    DeleteRecords,
    DeleteRouter,
    DeleteSchedule,
    DeleteTopic,
    Extend,
    GiveUp,
    Nack,
    Pause,
    Purge,
    PutConsumer,
    PutRouter,
    PutSchedule,
    PutTopic,
    Redrive,
    Release,
    Retire,
    Sync,
    WaitForCopies,
)
from topics.engine.consumers import (
    check_consumer,
    propose_commit_consumer,
    propose_delete_consumer,
    propose_put_consumer,
)
from topics.engine.lane import Lane
from topics.engine.moving.redrive import check_redrive, propose_redrive
from topics.engine.queue.claim import propose_claim
from topics.engine.queue.control import propose_pause, propose_purge
from topics.engine.queue.settle import (
    propose_ack,
    propose_extend,
    propose_give_up,
    propose_nack,
    propose_release,
)
from topics.engine.routers.catching_up import propose_catch_up
from topics.engine.routers.definitions import propose_delete_router, propose_put_router
from topics.engine.routers.late import propose_bring_over
from topics.engine.schedules.definitions import (
    check_put_schedule,
    delete_absent_schedule,
    propose_delete_schedule,
    propose_put_schedule,
)
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Stage, Ticket
from topics.engine.writing.append import append_absent, check_append, propose_append
from topics.engine.writing.change import (
    check_delete_records,
    check_put,
    delete_absent,
    propose_delete_records,
    propose_delete_topic,
    propose_put,
    propose_retire,
    propose_sync,
    put_absent,
)
from topics.kernel.errors import Rejected
from topics.kernel.ids import check_any_topic_name


class Handler(msgspec.Struct, frozen=True):
    """The moves of a command of a topic.

    `propose`: on a topic that stands and in whose way nothing is. `absent`: on a name that is not there, which is
    refused without it. `check`: before either, and before it waits for its turn.
    """

    propose: Callable[[EngineState, Lane, Ticket, int], None]
    absent: Callable[[EngineState, Ticket, int], None] | None = None
    check: Callable[[EngineState, Lane | None, Ticket], None] | None = None


_OF_TOPICS: Final[Mapping[type, Handler]] = {
    Append: Handler(propose_append, append_absent, check_append),
    PutTopic: Handler(propose_put, put_absent, check_put),
    DeleteTopic: Handler(propose_delete_topic, delete_absent),
    DeleteRecords: Handler(propose_delete_records, check=check_delete_records),
    Retire: Handler(propose_retire),
    Claim: Handler(propose_claim),
    Ack: Handler(propose_ack),
    Nack: Handler(propose_nack),
    Extend: Handler(propose_extend),
    Release: Handler(propose_release),
    GiveUp: Handler(propose_give_up),
    Pause: Handler(propose_pause),
    Purge: Handler(propose_purge),
    Redrive: Handler(propose_redrive, check=check_redrive),
    BringOver: Handler(propose_bring_over),
    PutConsumer: Handler(propose_put_consumer, check=check_consumer),
    CommitConsumer: Handler(propose_commit_consumer, check=check_consumer),
    DeleteConsumer: Handler(propose_delete_consumer, check=check_consumer),
    PutSchedule: Handler(propose_put_schedule, check=check_put_schedule),
    DeleteSchedule: Handler(propose_delete_schedule, delete_absent_schedule),
}
_OF_ROUTERS: Final[Mapping[type, Callable[[EngineState, Ticket, int], None]]] = {
    PutRouter: propose_put_router,
    DeleteRouter: propose_delete_router,
    WaitForCopies: propose_catch_up,
}
_OF_SHARDS: Final[Mapping[type, Callable[[EngineState, Ticket], None]]] = {
    Sync: propose_sync,
    Checkpointed: propose_checkpointed,
}


def propose(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Check a ticket's command and assign what it needs, or park it.

    Raises:
        Rejected: nothing was assigned or written.
    """
    command = ticket.command
    handler = _OF_TOPICS.get(type(command))
    if handler is None:
        _propose_other(state, ticket, now_ms)
        return
    name: str = command.topic  # type: ignore[union-attr]  # what is of a topic says of which
    lane = state.lanes_by_name.get(name) if type(name) is str else None
    if lane is None:
        check_any_topic_name(name)  # a name that stands has been checked
    if handler.check is not None:
        handler.check(state, lane, ticket)
    if lane is None:
        if handler.absent is None:
            raise no_topic(name)
        handler.absent(state, ticket, now_ms)
    elif lane.blocked:
        state.park(lane, ticket)
    else:
        handler.propose(state, lane, ticket, now_ms)


def _propose_other(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Of a router, or of a shard."""
    command = ticket.command
    if isinstance(command, (Sync, Checkpointed)):
        _OF_SHARDS[type(command)](state, ticket)
    else:
        _OF_ROUTERS[type(command)](state, ticket, now_ms)


def propose_woken(state: EngineState) -> None:
    """Those that waited are answered, or proposed as things are now."""
    assert state.ready
    woken, state.ready = sorted(state.ready, key=_goes_last), []
    now_ms = state.time.high_ms
    for ticket, answer in woken:
        ticket.move(Stage.NEW)
        try:
            if answer is not None:
                state.answer(answer)
            else:
                propose(state, ticket, now_ms)
        except Rejected as refused:
            state.fail(ticket, refused)


def _goes_last(woken: tuple[Ticket, Entry | None]) -> bool:
    """Answers are of what has been applied: a deletion that was woken with one waits for the sync it asks for."""
    return woken[1] is None
