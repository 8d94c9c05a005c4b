"""What is fired next, and when: one deadline a schedule, and one record on its way (queues 4).

A firing is an append like any other, with the id that says of which schedule and instant it is; folding it says that
the instant has been (`log.schedules`). So nothing here is promised: what is known besides is in an `Alarm`, and a start
makes that anew. The end of the append is the next look.

An instant that is looked at within `FIRING_LATE_MS` is on time. Of older ones, which a stopped process or a clock set
forward has missed, `catch_up` says which are fired. What is to be fired is fired: a topic that is full, or a disk, has
it tried again. What is passed over is told in the next record, first and last.
"""

from __future__ import annotations

from typing import Final

import msgspec

from topics.codec.log.schedules import Schedule, firing_id
from topics.engine.commands import Append
from topics.engine.deadlines.timers import FIRE
from topics.engine.schedules.alarm import Alarm
from topics.engine.schedules.instants import Instants
from topics.engine.state import EngineState
from topics.engine.tickets import Ticket
from topics.engine.writing.append import propose_append
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import CATCH_UP_MAX, FIRING_LATE_MS, FIRING_RETRY_MAX_MS, FIRING_RETRY_MS
from topics.log.schedules import StandingSchedule

_COUNTS: Final = {"last": 1, "all": CATCH_UP_MAX}


def arm_all(state: EngineState) -> None:
    """After recovery: whatever was missed, or is to come."""
    for topic in state.catalog.topics.values():
        for schedule_id in topic.schedules:
            arm(state, topic.topic_id, schedule_id)


def arm(state: EngineState, topic_id: int, schedule_id: int) -> None:
    """A schedule is there, or is another one now: it is looked at next, where schedules fire."""
    if not state.fires:
        return
    state.alarms[schedule_id] = Alarm(topic_id)
    state.by_time.set(FIRE, schedule_id, state.time.high_ms)


def disarm(state: EngineState, schedule_id: int) -> None:
    """It fires no more."""
    state.alarms.pop(schedule_id, None)
    state.by_time.drop(FIRE, schedule_id)
    state.by_timer.drop(FIRE, schedule_id)


def fire_if_due(state: EngineState, schedule_id: int, now_ms: int) -> None:
    """The time of a schedule has come, or its record has, or it is tried again."""
    alarm = state.alarms.get(schedule_id)
    if alarm is None or (alarm.ticket is not None and not alarm.ticket.done):
        return  # it has gone, and its last record comes to its end; or that record is on its way
    standing = state.catalog.topics[alarm.topic_id].schedules[schedule_id]
    alarm.ticket = None
    instants = Instants(state.calendar, standing.definition)
    if alarm.instant_ms is None or alarm.instant_ms <= standing.base_ms or _is_late(alarm, now_ms):
        try:
            _choose(alarm, standing, instants, now_ms)
        except Rejected:  # a zone that this machine does not know: it is asked for again at the next start
            alarm.instant_ms = None
            alarm.failures += 1
    if alarm.instant_ms is None:
        return
    if alarm.due_ms > now_ms:
        state.by_time.set(FIRE, schedule_id, alarm.due_ms)
    else:
        _fire(state, alarm, standing, now_ms)


def _is_late(alarm: Alarm, now_ms: int) -> bool:
    """Whether it was missed, and nobody has said yet that it is fired all the same."""
    assert alarm.instant_ms is not None
    return alarm.instant_ms > alarm.owed_ms and now_ms - alarm.due_ms > FIRING_LATE_MS


def _choose(alarm: Alarm, standing: StandingSchedule, instants: Instants, now_ms: int) -> None:
    """The next instant to be fired."""
    base_ms = standing.base_ms
    alarm.skipped, alarm.failures = None, 0
    alarm.instant_ms = first = instants.first(base_ms)
    if first is None:
        return
    alarm.due_ms = instants.due_ms(first)
    if not _is_late(alarm, now_ms):
        return
    count_max = _COUNTS.get(standing.definition.catch_up)
    if count_max is not None:
        missed = instants.due_newest(base_ms, now_ms, count_max)
        alarm.instant_ms, alarm.owed_ms = missed[0], missed[-1]
    else:
        alarm.instant_ms = _first_on_time(standing, instants, now_ms)
    if alarm.instant_ms is None:
        return
    alarm.due_ms = instants.due_ms(alarm.instant_ms)
    if alarm.instant_ms > first:
        alarm.skipped = (first, instants.newest(base_ms, alarm.instant_ms - 1, 1)[0])


def _first_on_time(standing: StandingSchedule, instants: Instants, now_ms: int) -> int | None:
    """The first instant that is not missed. Each is due before the next one, so of the late ones only the newest can be
    on time by its jitter.
    """
    since_ms = now_ms - FIRING_LATE_MS
    for instant_ms in instants.newest(standing.base_ms, since_ms, 1):
        if instants.due_ms(instant_ms) >= since_ms:
            return instant_ms
    return instants.first(max(standing.base_ms, since_ms))


def _fire(state: EngineState, alarm: Alarm, standing: StandingSchedule, now_ms: int) -> None:
    """Propose the record; what refuses it will pass."""
    assert alarm.instant_ms is not None
    definition = standing.definition
    lane = state.lanes[alarm.topic_id]
    alarm.owed_ms = max(alarm.owed_ms, alarm.instant_ms)
    records = record_of(definition, alarm.instant_ms, alarm.skipped)
    append = Append(topic=lane.name, records=records, create=False, moved=True)
    ticket = Ticket(append, sync=True, firing=definition.id)
    try:
        if lane.blocked:
            raise Rejected(Code.THROTTLED, f"topic {lane.name!r} is being changed")
        propose_append(state, lane, ticket, now_ms)
    except Rejected:
        rest_ms = min(FIRING_RETRY_MS << min(alarm.failures, 16), FIRING_RETRY_MAX_MS)
        alarm.failures += 1
        state.by_timer.set(FIRE, definition.id, state.time.timer_ms + rest_ms)
    else:
        alarm.failures, alarm.ticket = 0, ticket


def record_of(
    definition: Schedule, instant_ms: int = 0, skipped: tuple[int, int] | None = None
) -> RecordColumns:
    """What a schedule appends: its record, with what is said of the instant."""
    meta = msgspec.json.decode(definition.meta, type=dict[str, str]) if definition.meta else {}
    meta |= {"$schedule": definition.name, "$schedule_instant": str(instant_ms)}
    if skipped is not None:
        meta |= {"$schedule_skipped_from": str(skipped[0]), "$schedule_skipped_to": str(skipped[1])}

    def number(value: int) -> list[int | None] | None:
        return None if value < 0 else [value]

    def text(value: bytes) -> list[bytes] | None:
        return [value] if value else None

    return RecordColumns(
        [definition.data], meta=[msgspec.json.encode(meta)], dedup_id=[firing_id(definition.id, instant_ms)],
        tag=text(definition.tag), node=text(definition.node), key=text(definition.key),
        content_type=text(definition.content_type), ttl_ms=number(definition.ttl_ms),
        priority=number(definition.priority), delay_ms=number(definition.delay_ms),
    )  # fmt: skip
