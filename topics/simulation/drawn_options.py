"""How the store of one run is set up: drawn at its start, small, so that files and segments end often."""

from __future__ import annotations

import random
from typing import Final

from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules
from topics.host.wal.archive import ArchiveRules
from topics.kernel.limits import Limits
from topics.simulation.machine import RunEnd
from topics.store.opened import StoreOptions
from topics.testing.faults import FaultKind

_SIZES: Final = ((4096, 16_384, 512), (8192, 65_536, 1024), (16_384, 32_768, 2048))
_MIN_FREE: Final = 4096
FAULTS: Final = (
    ("sync_data", FaultKind.EIO), ("sync_data", FaultKind.DROPS_PAGES), ("write", FaultKind.EIO),
    ("write", FaultKind.SHORT), ("write", FaultKind.ENOSPC), ("write", FaultKind.DROPS_PAGES),
    ("create", FaultKind.ENOSPC), ("extend", FaultKind.SHORT), ("read", FaultKind.EIO),
)  # fmt: skip

_STEPS: Final = {
    "propose": 30, "write": 50, "read": 12, "time": 10, "tick": 4, "mark": 3, "reserve": 6, "fault": 0.5, "space": 0.6,
    "quiet": 4, "checkpoint": 12,
}  # fmt: skip


def draw_options(rng: random.Random, *, keeps_logs: bool = False) -> StoreOptions:
    """WAL files, shards, syncs, segments and checkpoints. `keeps_logs`: absorbed logs are archived."""
    first, largest, reserve = rng.choice(_SIZES)
    return StoreOptions(
        shards=rng.choice((None, 1, 2, 3)),
        min_free_bytes=_MIN_FREE,
        limits=Limits(wal_file_first=first, wal_file_max=largest, wal_reserve=reserve),
        checking=True,
        sync_interval_ms=rng.choice((20, 1000)),
        segments=SegmentRules(
            records_max=rng.choice((5, 40)), bytes_max=rng.choice((2000, 65_536)), age_ms=60_000
        ),
        checkpoint_wal_bytes=rng.choice((1000, 20_000)),
        archive=ArchiveRules() if keeps_logs else None,
        hot=HotRules(retain_segments=rng.choice((0, 1, 4))),
    )


def draw_time(rng: random.Random) -> int:
    """How many milliseconds the clock goes on, or back."""
    kind = rng.choices(("little", "second", "minutes", "back"), (80, 12, 3, 5))[0]
    return {
        "little": rng.randrange(30),
        "second": rng.randrange(800, 3000),
        "minutes": rng.randrange(60_000, 200_000),
        "back": -rng.randrange(10_000),
    }[kind]


def draw_end(rng: random.Random, *, may_lose_pages: bool) -> RunEnd:
    """How a process ends. `may_lose_pages`: a write or sync of it had failed."""
    end = rng.choices((RunEnd.POWER, RunEnd.MOUNT, RunEnd.PROCESS), (55, 10, 35))[0]
    return rng.choice((end, RunEnd.PAGES)) if end is RunEnd.PROCESS and may_lose_pages else end


def draw_step(rng: random.Random) -> str:
    """What the world does next."""
    return rng.choices(list(_STEPS), list(_STEPS.values()))[0]
