"""Durable consumers: put one, commit how far it has read, delete it, and look at them (http-api 7).

Putting and deleting are barriers, so that they know the exact head, whether the consumer is there and how many there
are. A commit is not: of one consumer the log has ascending commits, for the lane knows which one is on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.engine.apply import CatalogView
from topics.engine.batch import Entry
from topics.engine.commands import CommitConsumer, DeleteConsumer, PutConsumer
from topics.engine.lane import Lane
from topics.engine.replies import ConsumerCommitted, ConsumerDeleted, ConsumerPut, ConsumerState
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Ticket
from topics.engine.writing.change import Barrier, in_class
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_consumer_name
from topics.kernel.limits import CONSUMERS_PER_TOPIC_MAX
from topics.log.reads import tombstone
from topics.log.topic import Topic


def check_consumer(_: EngineState, _lane: Lane | None, ticket: Ticket) -> None:
    """What no consumer can be asked."""
    command = ticket.command
    assert isinstance(command, PutConsumer | CommitConsumer | DeleteConsumer)
    check_consumer_name(command.consumer)
    if isinstance(command, PutConsumer):
        given = [name for name in ("from_seq", "from_ts") if getattr(command, name) is not None]
        given += ["tail"] if command.tail else []
        if len(given) > 1:
            raise invalid(given[1], f"give one of from_seq, from_ts and tail, not also {given[0]}")


def propose_put_consumer(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Create a consumer or move it. Without a start it is created at the beginning, and one that is there stays."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, PutConsumer)
    assert topic is not None
    if command.epoch is not None and command.epoch != topic.epoch:
        raise invalid("epoch", f"topic {topic.name!r} is of epoch {topic.epoch}: its seqs are other ones")
    if lane.in_flight:
        state.park(lane, ticket)
        return
    before = topic.consumers.get(command.consumer)
    seq = _start_of(topic, command)
    if before is not None and (seq is None or seq == before.seq):
        state.finish(ticket, ConsumerPut(created=False, **_fields(topic, command.consumer)))
        return
    if before is None and len(topic.consumers) >= CONSUMERS_PER_TOPIC_MAX:
        raise Rejected(
            Code.THROTTLED,
            f"topic {topic.name!r} has its {CONSUMERS_PER_TOPIC_MAX} consumers: delete one that nobody uses",
            limit="consumers",
            max=CONSUMERS_PER_TOPIC_MAX,
        )
    state.check_writable(lane.shard, lane)
    commit = ConsumerCommit(ConsumerChange.SET, command.consumer, seq or 0)
    entry = in_class(state, _ConsumerPut, lane, ticket, [commit], now_ms)
    entry.consumer, entry.was_there = command.consumer, before is not None
    lane.barrier = ticket
    state.enqueue(lane.shard, entry)


def _start_of(topic: Topic, command: PutConsumer) -> int | None:
    """The last seq that counts as read; None if nothing was said."""
    if command.tail:
        return topic.head_seq
    if command.from_ts is not None:
        return tombstone.resolve_ts(topic.index, topic.floors, command.from_ts)
    if command.from_seq is not None and command.from_seq > topic.head_seq:
        raise _beyond("from_seq", command.from_seq, topic)
    return command.from_seq


class _ConsumerPut(Barrier, eq=False, kw_only=True):
    """A consumer that comes to stand somewhere."""

    consumer: str = ""
    was_there: bool = False

    def reply(self) -> ConsumerPut:
        assert self.lane.topic is not None
        return ConsumerPut(created=not self.was_there, **_fields(self.lane.topic, self.consumer))


def propose_commit_consumer(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Forward only: what is not beyond where it stands, or is going, changes nothing."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, CommitConsumer)
    assert topic is not None
    _check_epoch(topic, command.consumer, command.epoch)
    at = topic.consumers.get(command.consumer)
    if at is None:
        raise no_consumer(topic, command.consumer)
    if command.seq > topic.head_seq:
        raise _beyond("seq", command.seq, topic)
    going = lane.commits.get(command.consumer)
    stands = at.seq if going is None else going[0]
    if command.seq <= stands or command.expected not in (None, stands):
        if going is not None:  # the answer is of what stands then
            state.ride(ticket, [going[1]])
            return
        state.finish(ticket, ConsumerCommitted(moved=False, **_fields(topic, command.consumer)))
        return
    state.check_writable(lane.shard, lane)
    commit = ConsumerCommit(ConsumerChange.COMMIT, command.consumer, command.seq)
    entry = in_class(state, _Commit, lane, ticket, [commit], now_ms)
    entry.consumer = command.consumer
    lane.commits[command.consumer] = (command.seq, ticket)
    state.enqueue(lane.shard, entry)


class _Commit(Entry, eq=False, kw_only=True):
    """A consumer that goes forward."""

    lane: Lane
    consumer: str = ""

    def release(self) -> None:
        going = self.lane.commits.get(self.consumer)
        if going is not None and going[1] is self.ticket:
            del self.lane.commits[self.consumer]

    def reply(self) -> ConsumerCommitted:
        assert self.lane.topic is not None
        return ConsumerCommitted(moved=True, **_fields(self.lane.topic, self.consumer))


def propose_delete_consumer(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Delete a consumer, if it is there."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, DeleteConsumer)
    assert topic is not None
    if lane.in_flight:
        state.park(lane, ticket)
        return
    if topic.consumers.get(command.consumer) is None:
        gone = ConsumerDeleted(topic=topic.name, consumer=command.consumer, deleted=False)
        state.finish(ticket, gone)
        return
    state.check_writable(lane.shard, lane)
    commit = ConsumerCommit(ConsumerChange.DELETE, command.consumer)
    entry = in_class(state, _ConsumerDeletion, lane, ticket, [commit], now_ms)
    entry.consumer = command.consumer
    lane.barrier = ticket
    state.enqueue(lane.shard, entry)


class _ConsumerDeletion(Barrier, eq=False, kw_only=True):
    """A consumer that goes."""

    consumer: str = ""

    def reply(self) -> ConsumerDeleted:
        return ConsumerDeleted(topic=self.lane.name, consumer=self.consumer, deleted=True)


def consumer_state(
    catalog: CatalogView, topic: str, consumer: str, epoch: int | None = None
) -> ConsumerState:
    """Where a consumer stands, as published. Raises `Rejected`: topic_not_found; consumer_not_found, also of a topic
    that is not of this epoch.
    """
    found = _found(catalog, topic)
    _check_epoch(found, consumer, epoch)
    return _state_of(found, consumer)


def consumer_states(
    catalog: CatalogView, topic: str, after: str = "", count_max: int | None = None
) -> Sequence[ConsumerState]:
    """The first consumers of a topic whose names come after `after`, ascending by name, as published.

    Raises:
        Rejected: topic_not_found.
    """
    found = _found(catalog, topic)
    names = [name for name, _ in found.consumers.sorted() if name > after]
    return [_state_of(found, name) for name in names[:count_max]]


def _found(catalog: CatalogView, name: str) -> Topic:
    topic = catalog.find(name)
    if topic is None:
        raise no_topic(name)
    return topic


def _state_of(topic: Topic, name: str) -> ConsumerState:
    return ConsumerState(**_fields(topic, name))


def _fields(topic: Topic, name: str) -> dict[str, Any]:
    at = topic.consumers.get(name)
    if at is None:
        raise no_consumer(topic, name)
    return {
        "consumer": name, "topic": topic.name, "epoch": topic.epoch, "from_seq": at.seq,
        "lag": topic.head_seq - at.seq, "updated_ts": at.ts,
    }  # fmt: skip


def _check_epoch(topic: Topic, consumer: str, epoch: int | None) -> None:
    """A position is of one instance of its topic: another one has no such consumer."""
    if epoch is not None and epoch != topic.epoch:
        raise Rejected(
            Code.CONSUMER_NOT_FOUND,
            f"topic {topic.name!r} is of epoch {topic.epoch}: consumer {consumer!r:.80} of epoch {epoch} is gone",
            topic=topic.name,
            consumer=consumer,
            epoch=topic.epoch,
        )


def no_consumer(topic: Topic, name: str) -> Rejected:
    return Rejected(
        Code.CONSUMER_NOT_FOUND,
        f"topic {topic.name!r} has no consumer {name!r:.80}: put it first",
        topic=topic.name,
        consumer=name,
    )


def _beyond(field: str, seq: int, topic: Topic) -> Rejected:
    return invalid(
        field,
        f"{seq} is beyond the head of topic {topic.name!r}, which is {topic.head_seq}: nobody has read that",
        head_seq=topic.head_seq,
    )
