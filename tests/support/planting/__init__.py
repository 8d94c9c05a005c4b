"""Faults planted in a data directory, one of each kind that a check is there for, those across files too (spark 4).

    sample = build()
    planted = plant(files, "segment.record: a flipped bit", seed=1)     # `files` is changed in place

`plant` says what a check must find: which check, in which file, of which topic and seq. `also` names what else follows
from the fault, for one wrong byte may be seen from several sides; anything beyond that is a false alarm. Who plants and
who looks share nothing but the directory, so both fsck and Spark are held against the same faults.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import attrs

from tests.support.planting import consumers, journals, logs, queues, routers, schedules, segments
from tests.support.planting import files as of_files
from tests.support.planting.ground import Ground, Kind, Planted, Survey
from tests.support.sample_store import Files

__all__ = ["KINDS", "TOGETHER", "Planted", "Survey", "plant", "plant_together"]

KINDS: Final[dict[str, Kind]] = {
    **segments.KINDS,
    **logs.KINDS,
    **of_files.KINDS,
    **journals.KINDS,
    **queues.KINDS,
    **consumers.KINDS,
    **schedules.KINDS,
    **routers.KINDS,
}

_APART: Final = (
    (
        "segment.col: a flipped bit", "segment.col: it lies", "wal.tail: a torn write", "wal.tail: the last mark",
        "snapshot: a flipped bit", "leftover: a segment of nobody", "acknowledged: with other data",
        "kv.journal: of another database", "weaver.journal: a broken link",
    ),
    (
        "snapshot.agree: it forgets a delete", "snapshot.agree: it forgets an eviction", "wal.tail: half of a write",
        "segment.marks: a deleted record is not flagged", "segment.floor: an evicted segment is there",
        "weaver.journal: out of order",
    ),
    ("wal.damage: a file is gone", "wal.damage: a header"),
    ("wal.damage: half of a write",),
    ("newer: a frame of a type that nobody knows",),
    (
        "queue.leases: of two", "queue.leases: an ack by another", "queue.leases: given twice",
        "queue.dead_letters: never sent",
    ),
    (
        "queue.leases: of a job that is done", "queue.leases: a nack of an older one",
        "queue.dead_letters: arrived as another",
    ),
    (
        "queue.leases: a late ack", "queue.deliveries: too many", "queue.order: a key out of order",
        "consumers: a commit that goes back", "schedules: an instant twice", "routers: into a topic that is gone",
    ),
)  # fmt: skip
# All kinds, in groups that can be found beside each other: one that damages a snapshot hides what depends on it.
TOGETHER: Final = (tuple(kind for kind in KINDS if all(kind not in group for group in _APART)), *_APART)


def plant(files: Files, kind: str, seed: int = 0, survey: Survey | None = None) -> Planted:
    """Plant one fault in the files of a sample. Equal arguments plant the same fault. `survey`: as for
    `plant_together`.
    """
    ground = Ground(files, random.Random(f"{kind} {seed}"), survey)
    return attrs.evolve(KINDS[kind](ground), kind=kind)


def plant_together(
    files: Files, kinds: Sequence[str], seed: int = 0, survey: Survey | None = None
) -> list[Planted]:
    """Plant a fault of each of these kinds, as far from each other as segments and records are. Those of a group of
    `TOGETHER` can be found beside each other. `survey`: of the files, if there is one already.
    """
    ground = Ground(files, random.Random(f"{seed}"), survey)
    return [attrs.evolve(KINDS[kind](ground), kind=kind) for kind in kinds]
