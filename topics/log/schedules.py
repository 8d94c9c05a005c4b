"""The schedules of a topic: what shard 0's log says they are, and what the topic's own log says they have fired.

The two logs are folded in any order, so neither asks the other: an instant that was fired counts if the schedule is
there when its record is folded, and a definition, whose id is never used again, leaves it alone (I-09). What is
fired next is not told by the log, and no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topics.codec.log.schedules import Schedule, decode_schedule, encode_schedule, parse_firing
from topics.kernel.errors import Corrupt


class StandingSchedule(NamedTuple):
    """A schedule since `ts`, when it was last put. `fired_ms`: the latest instant that it has fired; 0: none yet."""

    definition: Schedule
    ts: int
    fired_ms: int

    @property
    def base_ms(self) -> int:
        """What comes next is later than this: what it was before it was put this way is nobody's."""
        return max(self.ts, self.fired_ms)


class Schedules(dict[int, StandingSchedule]):
    """Those of one topic, by id."""

    def put(self, definition: Schedule, ts: int) -> None:
        """What it is from now on, or that it ends."""
        before = self.get(definition.id)
        if definition.name:
            self[definition.id] = StandingSchedule(definition, ts, 0 if before is None else before.fired_ms)
        elif before is not None:
            del self[definition.id]

    def note(self, dedup_id: bytes) -> None:
        """A record has come that a schedule fired."""
        fired = parse_firing(dedup_id)
        if fired is not None and (standing := self.get(fired[0])) is not None:
            self[fired[0]] = standing._replace(fired_ms=max(standing.fired_ms, fired[1]))

    def named(self, name: str) -> StandingSchedule | None:
        return next((one for one in self.values() if one.definition.name == name), None)

    def image(self) -> list[tuple[bytes, int, int]]:
        return [
            (encode_schedule(definition), ts, fired) for _, (definition, ts, fired) in sorted(self.items())
        ]


def schedules_of(image: Iterable[tuple[bytes, int, int]]) -> Schedules:
    """Those of an image. Raises `Corrupt` if one is none."""
    standing = (StandingSchedule(decode_schedule(told), ts, fired) for told, ts, fired in image)
    return Schedules((one.definition.id, one) for one in standing)


def contradiction_of(image: Sequence[tuple[bytes, int, int]]) -> str | None:
    """What no image can say of schedules."""
    try:
        found = schedules_of(image)
    except Corrupt as malformed:
        return malformed.message
    if len(found) < len(image):
        return "the id of one is there twice"
    if len({one.definition.name for one in found.values()} | {""}) <= len(image):
        return "the name of one is there twice, or missing"
    return None
