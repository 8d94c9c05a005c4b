"""SCHEDULE frames: what a schedule is, from the frame's ts on, or that it is deleted (queues 4).

The frame is of the topic that the schedule fires into, and lies in the log of shard 0 as that topic's creation does. A
firing is no frame of its own: it is the append of a record whose dedup id, `firing_id`, names schedule and instant, so
that no crash can have the one without the other. Nobody else may use an id of that form (semantics 9).
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from topics.kernel.errors import Corrupt
from topics.kernel.limits import EVERY_MS_MIN, U64_MAX

FIRING_PREFIX: Final = b"sched:"
_FIRING: Final = re.compile(rb"sched:([1-9]\d{0,19}):(\d{1,20})")
CATCH_UPS: Final = ("last", "all", "none")


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule of the frame's topic. Without a `name`: the one with this `id` ends.

    `cron` in `timezone`, or every `every_ms` (0 with a cron). Of its record: `data` as it is stored, `meta` as JSON
    text; -1 for a number that it does not have.
    """

    id: int
    name: str = ""
    cron: str = ""
    every_ms: int = 0
    timezone: str = "UTC"
    jitter_ms: int = 0
    catch_up: str = "last"
    data: bytes = b""
    meta: bytes = b""
    tag: bytes = b""
    node: bytes = b""
    key: bytes = b""
    content_type: bytes = b""
    ttl_ms: int = -1
    priority: int = -1
    delay_ms: int = -1


def encode_schedule(schedule: Schedule) -> bytes:
    """The data region: JSON of every field, with bytes as base64."""
    return msgspec.json.encode(schedule)


def decode_schedule(data: bytes) -> Schedule:
    """The schedule of a data region.

    Raises:
        Corrupt: it is none that this version could have written.
    """
    try:
        schedule = msgspec.json.decode(data, type=Schedule)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the payload is malformed: {error}") from None
    if encode_schedule(schedule) != data:
        raise Corrupt("the payload is malformed: there is one way to write a schedule, and this is another")
    if (what := _contradiction(schedule)) is not None:
        raise Corrupt(f"the payload is malformed: {what}")
    return schedule


def _contradiction(schedule: Schedule) -> str | None:
    """What no schedule can say; None if it can be one."""
    if not 1 <= schedule.id <= U64_MAX:
        return f"id {schedule.id}"
    if not schedule.name:
        return None if schedule == Schedule(schedule.id) else "a deleted schedule says nothing but its id"
    if (schedule.cron != "") == (schedule.every_ms >= EVERY_MS_MIN) or not 0 <= schedule.every_ms <= U64_MAX:
        return f"one of cron and every_ms is needed, not {schedule.cron!r:.40} and {schedule.every_ms}"
    if schedule.catch_up not in CATCH_UPS or not 0 <= schedule.jitter_ms <= U64_MAX:
        return f"catch_up {schedule.catch_up!r:.40}, jitter_ms {schedule.jitter_ms}"
    if any(not -1 <= number <= U64_MAX for number in (schedule.ttl_ms, schedule.delay_ms)):
        return f"ttl_ms {schedule.ttl_ms}, delay_ms {schedule.delay_ms}"
    return None if -1 <= schedule.priority <= 9 else f"priority {schedule.priority}"


def firing_id(schedule_id: int, instant_ms: int) -> bytes:
    """The dedup id of the record that a schedule fires for an instant."""
    return b"%b%d:%d" % (FIRING_PREFIX, schedule_id, instant_ms)


def parse_firing(dedup_id: bytes) -> tuple[int, int] | None:
    """(schedule, instant) of a dedup id; None if it is none of a firing."""
    found = _FIRING.fullmatch(dedup_id)
    return None if found is None else (int(found[1]), int(found[2]))
