"""What an open store is: how it runs, and the parts that a driver drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from topics.engine.checkpoint import SegmentRules
from topics.engine.engine import Engine
from topics.engine.recovery.recover import CutReport, DamageReport
from topics.host.cold.cold_tier import ColdTier
from topics.host.cold.segment_stores import HotRules
from topics.host.segments.reading import Reader
from topics.host.system.calendar import HostCalendar
from topics.host.wal.archive import ArchiveRules
from topics.kernel.checks import whole_number
from topics.kernel.errors import invalid
from topics.kernel.limits import (
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_WAL_BYTES,
    MIB,
    SYNC_INTERVAL_MS,
    TAIL_CACHE_BYTES,
    WAL_SHARDS_MAX,
    Limits,
)
from topics.kernel.ports import Calendar

if TYPE_CHECKING:
    from topics.host.checkpoint.checkpointer import Checkpointer
    from topics.store.writer import ShardWriter


@attrs.frozen(kw_only=True)
class StoreOptions:
    """How a store runs. `shards`: None keeps what FORMAT says (1 at first). `archive`: None removes absorbed logs."""

    shards: int | None = None
    sync_interval_ms: int = SYNC_INTERVAL_MS
    min_free_bytes: int = 100 * MIB
    limits: Limits = attrs.field(factory=Limits)
    checking: bool = False
    segments: SegmentRules = attrs.field(factory=SegmentRules)
    checkpoint_wal_bytes: int = CHECKPOINT_WAL_BYTES
    checkpoint_interval_ms: int = CHECKPOINT_INTERVAL_MS
    tail_cache_bytes: int = TAIL_CACHE_BYTES
    archive: ArchiveRules | None = None
    cold_dir: str | None = None  # a folder or a URL for older segments
    hot: HotRules = attrs.field(factory=HotRules)
    calendar: Calendar = attrs.field(factory=HostCalendar)

    def __attrs_post_init__(self) -> None:
        if self.shards is not None and not 1 <= whole_number("shards", self.shards) <= WAL_SHARDS_MAX:
            raise invalid("shards", f"must be from 1 to {WAL_SHARDS_MAX}, not {self.shards}")
        whole_number("sync_interval_ms", self.sync_interval_ms)
        whole_number("min_free_bytes", self.min_free_bytes)
        whole_number("tail_cache_bytes", self.tail_cache_bytes)


@attrs.frozen(kw_only=True)
class Opened:
    """A recovered store ready to be driven. One whose log is damaged has no writers: `damages` says what is wrong; nor
    has one that was opened for reading only.
    Damage in segments is among them too, and stands in nobody's way but that of who reads the records it took.
    """

    engine: Engine
    writers: Sequence[ShardWriter]
    generation: int
    damages: Sequence[DamageReport]
    cuts: Sequence[CutReport]
    reader: Reader
    cold: ColdTier
    checkpointer: Checkpointer | None = None
    warnings: Sequence[
        str
    ] = ()  # no damage: a snapshot that was not needed, no cold directory, no room to checkpoint

    @property
    def read_only(self) -> bool:
        return not self.writers
