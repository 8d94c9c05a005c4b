"""Proposing everything but a write: change and delete a topic, delete records, let time pass, sync.

Changes of a topic are barriers: they wait until the topic's frames in flight are applied, and later commands of that
topic wait behind them, in order (architecture 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from topics.codec.log.control import (
    Carried,
    ConfigUpdate,
    Delete,
    EvictWatermark,
    Payload,
    TopicDelete,
    encode_control,
)
from topics.codec.log.leases import LeaseEvent
from topics.engine.apply import Catalog
from topics.engine.batch import Entry, sync_point
from topics.engine.commands import DEFAULT_CONFIG, DeleteRecords, DeleteTopic, PutMode, PutTopic, Retire, Sync
from topics.engine.lane import Lane
from topics.engine.moving.dead_letter import check_dead_letter, made_with
from topics.engine.replies import RecordsDeleted, Retired, TopicDeleted, TopicPut
from topics.engine.routers.following import tell_all_passed
from topics.engine.routers.late import lose_rest
from topics.engine.routers.settling import publish_first
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Ticket
from topics.engine.writing.admit import check_new_config
from topics.engine.writing.creating import propose_create, topic_put
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected, invalid
from topics.log import retention
from topics.log.reads.waiting import News
from topics.log.topic import Topic

E = TypeVar("E", bound=Entry)
_DELETION_BYTES: Final = len(encode_control(TopicDelete(), topic_id=1, ts=0))


def check_put(_: EngineState, lane: Lane | None, ticket: Ticket) -> None:
    """What a config asks for that no topic can have."""
    command = ticket.command
    assert isinstance(command, PutTopic)
    if command.config is not DEFAULT_CONFIG:
        check_new_config(command.topic, command.config, lane)


def put_absent(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Create the topic, unless the command only changes one."""
    command = ticket.command
    assert isinstance(command, PutTopic)
    if command.mode is PutMode.MERGE:
        raise no_topic(command.topic)
    propose_create(state, command.topic, command.config, ticket, now_ms)


def propose_put(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Change the config of a topic that stands, as the command's mode says; `CREATE` only compares."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, PutTopic)
    assert topic is not None
    assert not lane.blocked
    old = topic.config
    new = command.config if command.mode is PutMode.REPLACE else command.merged(old)
    if new.type is not old.type:
        raise Rejected(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {topic.name!r} is a {old.type.value}; a type never changes",
            topic=topic.name,
            reason="type",
            existing_type=old.type.value,
            requested_type=new.type.value,
        )
    if new != old and command.mode is PutMode.CREATE:
        raise _exists_otherwise(topic.name, old.echo(), new.echo())
    if new == old:
        state.finish(ticket, TopicPut(topic=topic.name, created=False, config=old))
        return
    if lane.in_flight:
        state.park(lane, ticket)
        return
    if state.routing is not None:  # whether it has a router, is known then
        state.ride(ticket, [state.routing])
        return
    crosses = (new.durability is Durability.EPHEMERAL) is not (old.durability is Durability.EPHEMERAL)
    if crosses and (topic.index.live_count or topic.schedules):
        raise Rejected(
            Code.TOPIC_NOT_EMPTY,
            f"topic {topic.name!r} has records or schedules: durability changes to or from ephemeral only while it "
            "has neither",
            topic=topic.name,
            reason="durability",
        )
    if crosses and (routers := state.catalog.routers.touching(topic.topic_id)):
        count, what = ("a router", "it") if len(routers) == 1 else (f"{len(routers)} routers", "them")
        raise Rejected(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {topic.name!r} has {count}, and a router's topics are kept: delete {what} first, or leave the topic"
            " as it is",
            topic=topic.name,
            reason="router_ephemeral",
        )
    state.check_writable(lane.shard, lane)
    if (new.dead_letter, new.durability) != (old.dead_letter, old.durability):
        check_dead_letter(state, topic.name, new)
    if (letters := made_with(state, new)) is not None:
        propose_create(state, *letters, None, now_ms)
    carried = _carry(topic) if crosses and old.durability is Durability.EPHEMERAL else None
    payloads: list[Payload] = [] if carried is not None else _time_first(topic, now_ms)
    payloads.append(ConfigUpdate(new.echo(), carried))
    tell_all_passed(state, lane)
    enqueue_barrier(state, _ConfigChange, lane, ticket, payloads, now_ms, shard=lane.shard)


class Barrier(Entry, eq=False, kw_only=True):
    """Synced control frames with the topic to themselves."""

    lane: Lane

    def release(self) -> None:
        self.lane.barrier = None


B = TypeVar("B", bound=Barrier)


class _ConfigChange(Barrier, eq=False, kw_only=True):
    """Another config. A class that keeps nothing has nothing durable; what leaves it is carried over, synced."""

    def settle(self) -> None:
        lane, topic = self.lane, self.lane.topic
        assert topic is not None
        if topic.config.durability is Durability.EPHEMERAL:
            lane.written_seq = lane.durable_seq = 0
        elif not lane.written_seq:  # it was ephemeral, or never had a record
            lane.written_seq = lane.durable_seq = topic.head_seq
        if lane.queue is not None:
            lane.queue.forget_order()

    def news(self) -> News:
        return News.FLOORS

    def reply(self) -> TopicPut:
        return topic_put(self.lane, created=False)


def _exists_otherwise(name: str, there: Mapping[str, Any], asked: Mapping[str, Any]) -> Rejected:
    """What tells a creation's config from that of the topic that stands, field by field."""
    differences = {
        field: {"there": value, "asked": asked[field]}
        for field, value in there.items()
        if value != asked[field] and field != "durable"
    }
    listed = "; ".join(
        f"{field}: {_shown(d['there'])} there, {_shown(d['asked'])} asked" for field, d in differences.items()
    )
    return Rejected(
        Code.TOPIC_EXISTS_INCOMPATIBLE,
        f"topic {name!r} is there with another config ({listed}), which was not changed: "
        "take it as it is (exist_ok), or change it (configure, PATCH)",
        topic=name,
        reason="config",
        differences=differences,
    )


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()


def propose_delete_topic(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Delete a topic that stands, once nothing of it is in flight."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, DeleteTopic)
    assert topic is not None
    assert not lane.blocked
    if lane.in_flight:
        state.park(lane, ticket)
        return
    count = topic.index.live_count
    if command.if_empty and count:
        raise Rejected(
            Code.TOPIC_NOT_EMPTY,
            f"topic {topic.name!r} has {count} record{'s' if count > 1 else ''}, and if_empty was asked",
            topic=topic.name,
            count=count,
        )
    state.check_writable(0, lane)
    routes = state.routes.leading_from(lane.topic_id)
    if not lose_rest(state, lane, ticket, now_ms, _DELETION_BYTES):
        return
    if not publish_first(state, lane, routes):
        state.park(lane, ticket)
        return
    now_ms = state.time.high_ms  # what was lost may be told later than it was
    if any(route.dest.shard for route in routes):
        now_ms = state.time.push(now_ms)  # later than the last copy, which lies in another log
    entry = enqueue_barrier(state, _TopicDeletion, lane, ticket, [TopicDelete()], now_ms, shard=0)
    entry.catalog = state.catalog


class _TopicDeletion(Barrier, eq=False, kw_only=True):
    """A topic that goes, with the routers that touch it."""

    catalog: Catalog | None = None
    routers: Sequence[tuple[str, str]] = ()

    def release(self) -> None:
        super().release()
        assert self.catalog is not None
        self.routers = self.catalog.unrouted

    def news(self) -> News:
        return News.GONE

    def reply(self) -> TopicDeleted:
        return TopicDeleted(topic=self.lane.name, deleted=True, routers=self.routers)


def delete_absent(state: EngineState, ticket: Ticket, _now_ms: int) -> None:
    """It is gone, as was asked."""
    assert isinstance(ticket.command, DeleteTopic)
    state.finish(ticket, TopicDeleted(topic=ticket.command.topic, deleted=False))


def check_delete_records(_: EngineState, _lane: Lane | None, ticket: Ticket) -> None:
    """A delete says of what."""
    command = ticket.command
    assert isinstance(command, DeleteRecords)
    if command.before_seq is None and command.match is None:
        raise invalid("before_seq", "give before_seq, match or both")


def propose_delete_records(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Delete by selector, of nothing above the head published now (semantics 5)."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, DeleteRecords)
    assert topic is not None
    assert not lane.blocked
    state.check_writable(lane.shard, lane)
    upto = topic.head_seq
    before_seq = None if command.before_seq is None else min(command.before_seq, upto + 1)
    given = None if command.match is None else msgspec.json.encode(command.match.wire())
    payloads = [*_time_first(topic, now_ms), Delete(before_seq, given, upto)]
    entry = in_class(state, _RecordDeletion, lane, ticket, payloads, now_ms)
    if topic.config.ttl_ms:
        tell_all_passed(state, lane)
    state.enqueue(lane.shard, entry)


class _RecordDeletion(Entry, eq=False, kw_only=True):
    """Records that go, so many of them."""

    lane: Lane

    def news(self) -> News:
        return News.FLOORS

    def reply(self) -> RecordsDeleted:
        topic = self.lane.topic
        assert topic is not None
        return RecordsDeleted(
            topic=topic.name,
            deleted=self.outcome,
            earliest_seq=topic.earliest_seq,
            head_seq=topic.head_seq,
            count=topic.index.live_count,
            bytes=topic.index.live_bytes,
        )


def propose_retire(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Log an EvictWatermark if time alone would move something; else answer at once."""
    assert isinstance(ticket.command, Retire)
    topic = lane.topic
    assert topic is not None
    if lane.retiring is not None:
        state.ride(ticket, [lane.retiring])
        return
    payloads = _time_first(topic, now_ms)
    if not payloads:
        state.finish(ticket, Retired())
        return
    state.check_writable(lane.shard, lane)
    entry = in_class(state, _Retirement, lane, ticket, payloads, now_ms)
    if topic.config.ttl_ms:
        tell_all_passed(state, lane)
    lane.retiring = ticket
    state.enqueue(lane.shard, entry)


class _Retirement(Entry, eq=False, kw_only=True):
    """Time passes."""

    lane: Lane

    def release(self) -> None:
        self.lane.retiring = None

    def news(self) -> News:
        return News.FLOORS

    def reply(self) -> Retired:
        return Retired()


def propose_sync(state: EngineState, ticket: Ticket) -> None:
    """An entry without frames: its batch syncs, and with it everything before it."""
    assert isinstance(ticket.command, Sync)
    shard = ticket.command.shard
    state.check_writable(shard)
    state.enqueue(shard, sync_point(ticket))


def _time_first(topic: Topic, now_ms: int) -> list[Payload]:
    """The EvictWatermark that goes before any frame but an append, if it would move anything (semantics 6)."""
    due_ms = retention.next_due_ms(topic)
    return [EvictWatermark()] if due_ms is not None and due_ms <= now_ms else []


def in_class(
    state: EngineState, kind: type[E], lane: Lane, ticket: Ticket, payloads: Sequence[Payload], now_ms: int, *,
    outlives_records: bool = False,
) -> E:  # fmt: skip
    """Control frames published as the topic's class is; in memory only for an ephemeral one, but for what is not of its
    records.
    """
    assert lane.topic is not None
    durability = lane.topic.config.durability
    ephemeral, staged = durability is Durability.EPHEMERAL, durability is Durability.FSYNC
    ephemeral = ephemeral and not outlives_records
    entry = kind.of(
        lane, payloads, now_ms, staged=staged, must_sync=staged or (ticket.sync and not ephemeral), ticket=ticket,
        memory=b"" if ephemeral else None,
    )  # fmt: skip
    if not ephemeral:
        state.check_space(lane.shard, entry.size, keep_reserve=False)
    return entry


def in_lease_class(
    state: EngineState, kind: type[E], lane: Lane, ticket: Ticket | None, events: Sequence[LeaseEvent], now_ms: int
) -> E:  # fmt: skip
    """Events of leases, in the class of those: not synced, unless the queue says `leases_durable` and syncs records.

    It is of published jobs that nobody else has a say in meanwhile, so it passes the topic's writes by.
    """
    assert lane.topic is not None
    config = lane.topic.config
    ephemeral = config.durability is Durability.EPHEMERAL
    staged = config.leases_durable and config.durability is Durability.FSYNC
    entry = kind.of(
        lane, events, now_ms, staged=staged, must_sync=staged, ticket=ticket, ordered=False,
        memory=b"" if ephemeral else None,
    )  # fmt: skip
    state.check_space(lane.shard, entry.size, keep_reserve=False)
    return entry


def enqueue_barrier(
    state: EngineState, kind: type[B], lane: Lane, ticket: Ticket, payloads: Sequence[Payload], now_ms: int, *,
    shard: int, keep_reserve: bool = False,
) -> B:  # fmt: skip
    """Synced control frames with the topic to themselves."""
    entry = kind.of(lane, payloads, now_ms, staged=True, must_sync=True, ticket=ticket)
    state.check_space(shard, entry.size, keep_reserve=keep_reserve)
    lane.barrier = ticket
    state.enqueue(shard, entry)
    return entry


def _carry(topic: Topic) -> Carried:
    """What an ephemeral topic's config change must log, because its records never were (semantics 3)."""
    floors = topic.floors
    assert topic.index.live_count == 0
    reasons = {reason.value: last_seq for reason, last_seq in sorted(floors.reasons.items())}
    return Carried(topic.head_seq, floors.evict_floor, floors.lost_ts, reasons, topic.last_write_ts)
