"""Faults planted in a data directory, one of each kind that a check is there for, those across files too (spark 4).

    sample = build()
    planted = plant(files, "segment.record: a flipped bit", seed=1)     # `files` is changed in place

`plant` says what a check must find: which check, in which file, of which topic and seq. `also` names what else follows
from the fault, for one wrong byte may be seen from several sides; anything beyond that is a false alarm. Who plants and
who looks share nothing but the directory, so both fsck and Spark are held against the same faults.
"""

from __future__ import annotations

import random
from typing import Final

import attrs

from topics.testing.planting import files as of_files
from topics.testing.planting import journals, logs, segments
from topics.testing.planting.ground import Ground, Kind, Planted
from topics.testing.sample_store import Files

__all__ = ["KINDS", "Planted", "plant"]

KINDS: Final[dict[str, Kind]] = {**segments.KINDS, **logs.KINDS, **of_files.KINDS, **journals.KINDS}


def plant(files: Files, kind: str, seed: int = 0) -> Planted:
    """Plant one fault in the files of a sample. Equal arguments plant the same fault."""
    ground = Ground(files, random.Random(f"{kind} {seed}"))
    return attrs.evolve(KINDS[kind](ground), kind=kind)
