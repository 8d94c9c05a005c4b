"""Faults of schedules: whole records that no schedule fires."""

from __future__ import annotations

from typing import Final

from tests.support.planting.ground import Ground, Kind, Planted
from tests.support.sample_store import CLICKS


def fired_again(ground: Ground) -> Planted:
    """A record of an instant that was fired before."""
    fired = [
        (path, run, run.dedup)
        for path, run in ground.runs
        if run.topic_id == ground.topic_id(CLICKS) and run.dedup is not None
    ]
    path, run, ((_, first), (i, second), *_) = fired[-1]
    offset, length = run.offset + sum(run.lengths[:i]), run.lengths[i]
    at = ground.files[path].index(second, offset, offset + length)
    ground.reseal(path, offset, length, at - offset, first)
    return Planted(kind="", file=path, check="schedules", topic=CLICKS, seq=run.seq_start + i)


KINDS: Final[dict[str, Kind]] = {"schedules: an instant twice": fired_again}
