"""How the store of one run is set up: drawn at its start, small, so that files and segments end often."""

from __future__ import annotations

import random
from typing import Final

from topics.engine.checkpoint import SegmentRules
from topics.host.opening import StoreOptions
from topics.kernel.limits import Limits

_SIZES: Final = ((4096, 16_384, 512), (8192, 65_536, 1024), (16_384, 32_768, 2048))
_MIN_FREE: Final = 4096


def draw_options(rng: random.Random) -> StoreOptions:
    """WAL files, shards, syncs, segments and checkpoints."""
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
    )
