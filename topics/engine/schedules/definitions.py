"""Putting a schedule and deleting it: frames on shard 0, synced, with the topic to themselves (queues 4, storage 3).

So no record of a schedule is on its way while it changes: what was fired before is known, and behind an answered
deletion nothing comes. The frame is of the topic, and a topic's end is one of all its schedules.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from topics.codec.log.schedules import CATCH_UPS, Schedule
from topics.engine.commands import DeleteSchedule, PutSchedule
from topics.engine.lane import Lane
from topics.engine.replies import ScheduleDeleted, SchedulePut
from topics.engine.schedules.firing import arm, disarm, record_of
from topics.engine.schedules.instants import Instants
from topics.engine.schedules.looking import schedule_state
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.admit import check_topic_limits
from topics.engine.writing.change import Barrier, enqueue_barrier
from topics.kernel.checks import clamped
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_schedule_name
from topics.kernel.limits import CRON_CHARS_MAX, EVERY_MS_MIN, JITTER_MS_MAX, TIMEZONE_CHARS_MAX, TTL_MS_MAX


def definition_of(
    name: object, *, cron: object, every_ms: object, timezone: object, jitter_ms: object, catch_up: object,
    record: RecordColumns,
) -> Schedule:  # fmt: skip
    """What was asked for, as it goes into the log. `record`: the one that it appends, checked.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    assert len(record) == 1
    if (cron is None) == (every_ms is None):
        raise invalid("cron", "give either cron or every_ms")
    if cron is not None and (not isinstance(cron, str) or not 0 < len(cron) <= CRON_CHARS_MAX):
        raise invalid(
            "cron",
            f"must be a string of five fields, or a word as @daily, at most {CRON_CHARS_MAX} characters",
        )
    if not isinstance(timezone, str) or not 0 < len(timezone) <= TIMEZONE_CHARS_MAX:
        raise invalid("timezone", "must be a name of the IANA list, as Europe/Berlin")
    if cron is None and timezone != "UTC":
        raise invalid("timezone", "only a cron has one; every_ms counts since 1970 in UTC")
    if catch_up not in CATCH_UPS:
        raise invalid("catch_up", f"must be one of {', '.join(CATCH_UPS)}, not {catch_up!r:.40}")
    if record.dedup_id is not None:
        raise invalid("record.dedup_id", "a schedule gives its records ids of its own")
    assert isinstance(catch_up, str)

    def text(column: Sequence[bytes] | None) -> bytes:
        return b"" if column is None else bytes(column[0])

    def number(column: Sequence[int | None] | None) -> int:
        return -1 if column is None or column[0] is None else column[0]

    return Schedule(
        id=0, name=check_schedule_name(name), cron="" if cron is None else " ".join(cron.split()),
        every_ms=0 if every_ms is None else clamped("every_ms", every_ms, low=EVERY_MS_MIN, high=TTL_MS_MAX),
        timezone=timezone, jitter_ms=clamped("jitter_ms", jitter_ms, low=0, high=JITTER_MS_MAX), catch_up=catch_up,
        data=bytes(record.data[0]), meta=text(record.meta), tag=text(record.tag), node=text(record.node),
        key=text(record.key), content_type=text(record.content_type), ttl_ms=number(record.ttl_ms),
        priority=number(record.priority), delay_ms=number(record.delay_ms),
    )  # fmt: skip


def check_put_schedule(state: EngineState, _lane: Lane | None, ticket: Ticket) -> None:
    """What no topic can have: a schedule without an instant."""
    assert isinstance(ticket.command, PutSchedule)
    definition = ticket.command.schedule
    if Instants(state.calendar, definition).first(0) is None:
        raise invalid("cron", f"{definition.cron!r} never comes")


def propose_put_schedule(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Put a schedule into a topic that stands, once nothing of that is in flight."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, PutSchedule)
    assert topic is not None
    name = command.schedule.name
    if (first := state.putting.get(name)) is not None:  # of another topic: what comes of that is known then
        state.ride(ticket, [first])
        return
    topic_id, schedule_id = state.catalog.schedules.get(name, (lane.topic_id, 0))
    if topic_id != lane.topic_id:
        raise _elsewhere(name, state.catalog.topics[topic_id].name)
    before = topic.schedules.get(schedule_id)
    definition = msgspec.structs.replace(command.schedule, id=schedule_id)
    if before is not None and before.definition == definition:
        state.finish(ticket, SchedulePut(created=False, schedule=schedule_state(state, name)))
        return
    if lane.in_flight:
        state.park(lane, ticket)
        return
    if topic.config.durability is Durability.EPHEMERAL:
        raise invalid(
            "topic", f"{topic.name!r} is ephemeral: what it has fired would be forgotten, and fired again"
        )
    check_topic_limits(topic, record_of(definition), state.limits)
    limit = state.limits.schedules
    if before is None and limit and len(state.catalog.schedules) + len(state.putting) >= limit:
        raise Rejected(Code.THROTTLED, f"the store has its {limit} schedules", limit="schedules", max=limit)
    state.check_writable(0, lane)
    if before is None:
        definition = msgspec.structs.replace(definition, id=state.next_topic_id)
    entry = enqueue_barrier(
        state, _PutScheduleEntry, lane, ticket, [definition], now_ms, shard=0, keep_reserve=True
    )
    state.next_topic_id = max(state.next_topic_id, definition.id + 1)
    state.putting[name] = ticket
    entry.state, entry.definition, entry.created = state, definition, before is None


def propose_delete_schedule(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Delete one of a topic that stands, once nothing of that is in flight."""
    command, topic = ticket.command, lane.topic
    assert isinstance(command, DeleteSchedule)
    assert topic is not None
    standing = topic.schedules.named(command.schedule)
    if standing is None:
        state.finish(ticket, ScheduleDeleted(schedule=command.schedule, deleted=False))
        return
    if lane.in_flight:
        state.park(lane, ticket)
        return
    state.check_writable(0, lane)
    ended = Schedule(standing.definition.id)
    entry = enqueue_barrier(state, _DeleteScheduleEntry, lane, ticket, [ended], now_ms, shard=0)
    entry.state, entry.definition = state, standing.definition


def delete_absent_schedule(state: EngineState, ticket: Ticket, _now_ms: int) -> None:
    """It is gone, as was asked: its topic is."""
    assert isinstance(ticket.command, DeleteSchedule)
    state.finish(ticket, ScheduleDeleted(schedule=ticket.command.schedule, deleted=False))


class _ScheduleEntry(Barrier, eq=False, kw_only=True):
    """A schedule that is another one behind it."""

    state: EngineState | None = None
    definition: Schedule | None = None

    def parts(self) -> tuple[EngineState, Schedule]:
        assert self.state is not None
        assert self.definition is not None
        return self.state, self.definition


class _PutScheduleEntry(_ScheduleEntry, eq=False, kw_only=True):
    """A schedule that comes to stand, or changes."""

    created: bool = False

    def release(self) -> None:
        super().release()
        state, definition = self.parts()
        del state.putting[definition.name]

    def settle(self) -> None:
        state, definition = self.parts()
        arm(state, self.lane.topic_id, definition.id)

    def reply(self) -> SchedulePut:
        state, definition = self.parts()
        return SchedulePut(created=self.created, schedule=schedule_state(state, definition.name))


class _DeleteScheduleEntry(_ScheduleEntry, eq=False, kw_only=True):
    """A schedule that goes."""

    def settle(self) -> None:
        state, definition = self.parts()
        disarm(state, definition.id)

    def reply(self) -> ScheduleDeleted:
        _, definition = self.parts()
        return ScheduleDeleted(schedule=definition.name, deleted=True)


def _elsewhere(name: str, topic: str) -> Rejected:
    return Rejected(
        Code.TOPIC_EXISTS_INCOMPATIBLE,
        f"schedule {name!r} fires into topic {topic!r}, and a schedule keeps its topic: delete it first",
        schedule=name,
        topic=topic,
        reason="schedule_repoint",
    )
