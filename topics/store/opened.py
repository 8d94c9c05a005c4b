"""What an open store is: how it runs, and the parts that a driver drives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import msgspec

from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import DEFAULT_CONFIG, Append, PutMode, PutTopic
from topics.engine.engine import Engine
from topics.engine.recovery.recover import CutReport, DamageReport
from topics.host.cold.cold_tier import ColdTier
from topics.host.cold.segment_stores import HotRules
from topics.host.segments.reading import ExtentReader
from topics.host.system.calendar import HostCalendar
from topics.host.wal.archive import ArchiveRules
from topics.kernel.checks import flag, whole_number
from topics.kernel.config import Durability
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

M = TypeVar("M")
_SYNCS: Final = (Durability.DISK.value, Durability.FSYNC.value)


@attrs.frozen(kw_only=True)
class StoreOptions:
    """How a store runs. `sync`: the class of a topic that is made without one, "disk" or "fsync". `shards`: None keeps
    what FORMAT says (1 at first). `archive`: None removes absorbed logs. `fire_schedules`: false for who only looks:
    what is due waits for the next one who opens it.
    """

    sync: str = Durability.DISK.value

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
    fire_schedules: bool = True

    def __attrs_post_init__(self) -> None:
        if self.sync not in _SYNCS:
            raise invalid("sync", f"must be one of {', '.join(_SYNCS)}, not {self.sync!r:.40}")
        if self.shards is not None and not 1 <= whole_number("shards", self.shards) <= WAL_SHARDS_MAX:
            raise invalid("shards", f"must be from 1 to {WAL_SHARDS_MAX}, not {self.shards}")
        whole_number("sync_interval_ms", self.sync_interval_ms)
        whole_number("min_free_bytes", self.min_free_bytes)
        whole_number("tail_cache_bytes", self.tail_cache_bytes)
        flag("fire_schedules", self.fire_schedules)


def options_of(options: StoreOptions | None, fields: Mapping[str, Any]) -> StoreOptions:
    """These options with some fields of their own.

    Raises:
        Rejected: invalid_request, naming the field.
    """
    unknown = fields.keys() - {field.name for field in attrs.fields(StoreOptions)}
    if unknown:
        known = ", ".join(sorted(field.name for field in attrs.fields(StoreOptions)))
        raise invalid(min(unknown), f"is no option of a store; known are {known}")
    return attrs.evolve(options or StoreOptions(), **fields)


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
    reader: ExtentReader
    cold: ColdTier
    checkpointer: Checkpointer | None = None
    sync: str = Durability.DISK.value
    warnings: Sequence[
        str
    ] = ()  # no damage: a snapshot that was not needed, no cold directory, no room to checkpoint

    @property
    def read_only(self) -> bool:
        return not self.writers

    def classed(self, command: M) -> M:
        """A write, or a topic's config: what it makes has the store's class, unless it says one itself."""
        if self.sync == Durability.DISK:
            return command
        match command:
            case Append(config=config) if config is DEFAULT_CONFIG:
                return msgspec.structs.replace(command, config=attrs.evolve(config, durability=_class(self)))
            case PutTopic(given=given, mode=mode) if "durability" not in given and mode is not PutMode.MERGE:
                return attrs.evolve(command, config=attrs.evolve(command.config, durability=_class(self)))
        return command


def _class(opened: Opened) -> Durability:
    return Durability(opened.sync)
