"""Opening a data directory: read, judge, recover, repair the tail, go on (storage 4). One procedure for every driver.

Nothing is changed before the newest snapshot, the segments that it counts and all of the log behind it have been read
and judged; without a snapshot, all of the log there is. A damaged log is opened read-only, and not a byte
of it is touched. Otherwise, in this order: kept bytes that no mark covers are written again and synced, un-synced
tails are zeroed and synced, the restart's LossRanges are logged and synced, and only then does the caller's `confirm`
let the new boot id, and that the logs have begun, into LOCK.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import attrs

from topics.engine.checkpoint import SegmentRules
from topics.engine.engine import Engine
from topics.engine.recover import CutReport, DamageReport, Recovered
from topics.host.archive import Archive, ArchiveRules
from topics.host.checkpointer import Checkpointer
from topics.host.cold import ColdTier
from topics.host.colddisk import ColdBehind
from topics.host.coldowner import note_of
from topics.host.coldplace import open_cold
from topics.host.generations import begun_logs, choose_generation, go_on
from topics.host.layout import (
    Format,
    find_shards,
    read_format,
    write_format,
)
from topics.host.loading import mend
from topics.host.reading import Reader
from topics.host.readstate import ReadState, read_state, tell_nobody
from topics.host.relocation import HotRules, Relocation
from topics.host.snapshots import META_DIR
from topics.host.tailend import repair_tail
from topics.host.tiers import SegmentStore
from topics.host.walfile import NEXT_FILE, WalFile, shard_dir
from topics.kernel.checks import whole_number
from topics.kernel.errors import CannotOpen, Unusable, invalid
from topics.kernel.limits import (
    CHECKPOINT_INTERVAL_MS,
    CHECKPOINT_WAL_BYTES,
    MIB,
    SYNC_INTERVAL_MS,
    TAIL_CACHE_BYTES,
    WAL_SHARDS_MAX,
    Limits,
)
from topics.kernel.ports import Clock, Disk, Entropy
from topics.store.inline import checkpoint_alone
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


def open_store(
    disk: Disk,
    clock: Clock,
    entropy: Entropy,
    *,
    where: str,
    machine_restarted: bool,
    confirm: Callable[[Sequence[Format]], None],
    forget_boot: Callable[[], None] | None = None,
    options: StoreOptions | None = None,
    progress: Callable[[float], None] | None = None,
    cold: SegmentStore | None = None,
) -> Opened:
    """Recover the directory and make its engine. `where`: its name in messages. `cold`: in place of `cold_dir`.
    `confirm` and `forget_boot` write LOCK: see `DirectoryLock`; no `forget_boot` where nothing outlives the process.

    `progress` is told, by this thread, how far that is: up to a half by bytes read and judged, then by frames folded,
    1 when the store is ready. It never falls.

    Raises:
        CannotOpen: foreign or newer directory.
        Rejected: the cold directory cannot be used.
        OSError: the disk failed while reading or repairing; nothing acknowledged is lost by trying again.
    """
    options = options or StoreOptions()
    form = read_format(disk, where)
    if form is None:
        form = Format(options.shards or 1, 0)
        write_format(disk, form)
    own = None if options.cold_dir is None else open_cold(options.cold_dir)
    try:
        return _open_with(
            disk,
            clock,
            entropy,
            where=where,
            form=form,
            machine_restarted=machine_restarted,
            confirm=confirm,
            forget_boot=forget_boot,
            options=options,
            tell=progress or tell_nobody,
            cold=own or cold,
        )
    except BaseException:
        if own is not None:
            own.close()
        raise


def _open_with(
    disk: Disk,
    clock: Clock,
    entropy: Entropy,
    *,
    where: str,
    form: Format,
    machine_restarted: bool,
    confirm: Callable[[Sequence[Format]], None],
    forget_boot: Callable[[], None] | None,
    options: StoreOptions,
    tell: Callable[[float], None],
    cold: SegmentStore | None,
) -> Opened:
    """`open_store`, with the cold tier open."""
    read = read_state(disk, form, same_boot=not machine_restarted, progress=tell, cold=cold)
    restored, verdicts, recovered = read.restored, read.verdicts, read.recovered
    if recovered.read_only:
        tell(1.0)
        return _unwritable(disk, clock, form, read, options, cold, where=where)
    _make_durable(disk, read, forget_boot)
    mend(ColdBehind(disk, cold), recovered.catalog, read.settled.unfit, restored.labelled)
    before = form
    form = choose_generation(disk, form, verdicts, options.shards, clock, entropy, restored.places)
    for generation, shard in find_shards(disk):  # those that a snapshot has absorbed, too
        if generation != form.generation:
            disk.unlink(f"{shard_dir(generation, shard)}/{NEXT_FILE}")  # nothing will be written there again
    wals = [
        go_on(disk, entropy, form.generation, shard, verdicts, options.limits) for shard in range(form.shards)
    ]
    engine = _engine(clock, form, recovered, options)
    writers = [_writer(engine, wal, disk, options, form.shards, where, forget_boot) for wal in wals]
    _resume_writing(engine, writers, machine_restarted=machine_restarted)
    confirm(begun_logs(disk, form, restored.places))
    tier = _cold_tier(engine, disk, cold)
    checkpointer = Checkpointer(
        engine,
        writers,
        disk,
        kept=restored.kept,
        number=restored.number,
        wal_bytes=options.checkpoint_wal_bytes,
        interval_ms=options.checkpoint_interval_ms,
        min_free_bytes=options.min_free_bytes,
        archive=None if options.archive is None else Archive(disk, options.archive),
        relocation=Relocation(tier, entropy, options.hot, options.min_free_bytes),
    )
    # A changed shard count leaves logs that only a replay of all of them in their order reads (storage 4).
    refused = checkpoint_alone(checkpointer, writers) if form != before else ""
    tell(1.0)
    return Opened(
        engine=engine,
        writers=writers,
        cold=tier,
        checkpointer=checkpointer,
        generation=form.generation,
        damages=recovered.damages,
        cuts=recovered.cuts,
        reader=Reader(disk, {(form.generation, writer.shard): writer.tail for writer in writers}, tier),
        warnings=[*restored.wrong, *tier.missing(), *_told(refused)],
    )


def view_store(
    disk: Disk, clock: Clock, *, where: str, same_boot: bool, options: StoreOptions | None = None
) -> Opened:
    """What a start would make of the directory, to be read only; nothing on the disk is changed.

    Raises:
        CannotOpen: foreign or newer directory, or nothing was ever stored there.
        Rejected: the cold directory cannot be used.
        OSError: the disk failed.
    """
    options = options or StoreOptions()
    form = read_format(disk, where)
    if form is None:
        raise CannotOpen(
            Unusable.MISSING, f"{where} holds no data directory of topics: it has no FORMAT", path=where
        )
    cold = None if options.cold_dir is None else open_cold(options.cold_dir)
    try:
        read = read_state(disk, form, same_boot=same_boot, cold=cold)
        return _unwritable(disk, clock, form, read, options, cold, where=where)
    except BaseException:
        if cold is not None:
            cold.close()
        raise


def _told(refused: str) -> list[str]:
    return [f"no checkpoint behind the change of shards: {refused}"] if refused else []


def _make_durable(disk: Disk, read: ReadState, forget_boot: Callable[[], None] | None) -> None:
    """What the process before has written and not synced, and of the log what is kept."""
    try:
        if read.restored.kept:  # a process that died behind a rename left a snapshot that no sync had covered
            disk.sync_dir(META_DIR)
        for verdict in read.verdicts.values():
            repair_tail(disk, verdict)
    except OSError:
        if forget_boot is not None:  # it may be gone now
            with suppress(OSError):
                forget_boot()
        raise


def _writer(
    engine: Engine,
    wal: WalFile,
    disk: Disk,
    options: StoreOptions,
    shards: int,
    where: str,
    forget_boot: Callable[[], None] | None,
) -> ShardWriter:
    return ShardWriter(
        engine,
        wal,
        disk,
        where=where,
        min_free_bytes=options.min_free_bytes,
        tail_bytes=options.tail_cache_bytes // shards,
        forget_boot=forget_boot,
    )


def _resume_writing(engine: Engine, writers: Sequence[ShardWriter], *, machine_restarted: bool) -> None:
    for writer in writers:
        writer.keep_reserve()
    engine.resume(machine_restarted=machine_restarted)
    for writer in writers:
        writer.drain()
        if writer.failed is not None:
            raise writer.failed


def _engine(clock: Clock, form: Format, recovered: Recovered, options: StoreOptions) -> Engine:
    return Engine(
        clock,
        shards=form.shards,
        catalog=recovered.catalog,
        limits=options.limits,
        sync_interval_ms=options.sync_interval_ms,
        checking=options.checking,
        rules=options.segments,
    )


def _unwritable(
    disk: Disk,
    clock: Clock,
    form: Format,
    read: ReadState,
    options: StoreOptions,
    cold: SegmentStore | None,
    *,
    where: str,
) -> Opened:
    """What can be read of a directory that is not written: its log is damaged, or nobody asked to write."""
    recovered = read.recovered
    engine = _engine(clock, form, recovered, options)
    why, how = f"{where} was opened for reading only", "open it without read_only to write"
    if recovered.read_only:
        why = (
            f"the log of {where} is damaged: {next(damage for damage in recovered.damages if damage.in_log)}"
        )
        how = "repair it (topics fsck --repair), or restore a backup"
    engine.make_read_only(why, how=how)
    if recovered.read_only:
        for lane in engine.state.lanes.values():
            lane.durable_seq = 0  # nothing was written and synced again, and what is missing was durable too
    tier = _cold_tier(engine, disk, cold)
    return Opened(
        engine=engine,
        writers=[],
        generation=form.generation,
        damages=recovered.damages,
        cuts=recovered.cuts,
        reader=Reader(disk, cold=tier),
        cold=tier,
        warnings=read.restored.wrong,
    )


def _cold_tier(engine: Engine, disk: Disk, cold: SegmentStore | None) -> ColdTier:
    return ColdTier(engine.state.catalog, cold, owner=None if cold is None else note_of(disk), disk=disk)
