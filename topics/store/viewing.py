"""A data directory as it is, to be read only: a backup, one on a read-only mount, one whose log is damaged.

Nothing is owned, made or changed, and nobody who writes is imported. Who opens it to write is `store.opening`.
"""

from __future__ import annotations

import os
from pathlib import Path

from topics.engine.engine import Engine
from topics.engine.recovery.recover import Recovered
from topics.host.cold.cold_tier import ColdTier
from topics.host.cold.ownership import note_of
from topics.host.cold.place import open_cold
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.layout import Format, read_format
from topics.host.directory.owner import check_unowned, same_boot_at
from topics.host.directory.readstate import ReadState, read_state
from topics.host.segments.reading import ExtentReader
from topics.host.system.clock import SystemClock
from topics.host.system.readonly import ReadOnlyDisk
from topics.host.system.refusals import FULL, refusal_line
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.ports import Clock, Disk
from topics.store.opened import Opened, StoreOptions


def view(
    path: str | os.PathLike[str], *, clock: Clock | None = None, options: StoreOptions | None = None
) -> tuple[Opened, Disk]:
    """A directory as it is, read without owning it: a backup, one on a read-only mount. Nothing in it is changed.

    Raises:
        CannotOpen: in use, foreign, newer, missing, unreadable; the message says what to do.
    """
    root = Path(path)
    check_there(root)
    check_unowned(root)
    disk = ReadOnlyDisk(root)
    try:
        opened = view_store(
            disk, clock or SystemClock(), where=str(root), same_boot=same_boot_at(root), options=options
        )
    except OSError as error:
        raise cannot_open(root, error) from error
    return opened, disk


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
        return read_only_view(disk, clock, form, read, options, cold, where=where)
    except BaseException:
        if cold is not None:
            cold.close()
        raise


def read_only_view(
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
    engine = engine_of(clock, form, recovered, options)
    why, how = f"{where} was opened for reading only", "open it without read_only to write"
    if recovered.newer is not None:
        why, how = f"{where} was written by a newer topics: {recovered.newer}", "use the topics that wrote it"
    elif recovered.read_only:
        why = (
            f"the log of {where} is damaged: {next(damage for damage in recovered.damages if damage.in_log)}"
        )
        how = "repair it (topics fsck --repair), or restore a backup"
    engine.make_read_only(why, how=how, durable_known=not recovered.read_only)
    tier = tier_of(engine, disk, cold)
    return Opened(
        engine=engine,
        writers=[],
        generation=form.generation,
        damages=recovered.damages,
        cuts=recovered.cuts,
        reader=ExtentReader(disk, cold=tier),
        cold=tier,
        warnings=read.restored.wrong,
    )


def engine_of(
    clock: Clock, form: Format, recovered: Recovered, options: StoreOptions, *, lease_nonce: int = 0
) -> Engine:
    return Engine(
        clock,
        shards=form.shards,
        catalog=recovered.catalog,
        limits=options.limits,
        sync_interval_ms=options.sync_interval_ms,
        checking=options.checking,
        rules=options.segments,
        lease_nonce=lease_nonce,
        calendar=options.calendar,
        fires=options.fire_schedules,
    )


def tier_of(engine: Engine, disk: Disk, cold: SegmentStore | None) -> ColdTier:
    return ColdTier(engine.catalog, cold, owner=None if cold is None else note_of(disk), disk=disk)


def check_there(root: Path) -> None:
    """Raises CannotOpen if nothing is there, or no directory."""
    try:
        is_there = root.exists()
    except OSError as error:
        raise cannot_open(root, error) from error
    if not is_there:
        raise CannotOpen(
            Unusable.MISSING, f"{root} does not exist; nothing has been stored there yet", path=str(root)
        )
    check_folder(root)


def check_folder(root: Path) -> None:
    """Raises CannotOpen if it is something else."""
    if not root.is_dir():
        raise CannotOpen(Unusable.NOT_A_DIRECTORY, f"{root} is not a directory", path=str(root))


def cannot_open(root: Path, error: OSError) -> CannotOpen:
    """What the system refused, in words."""
    reason = Unusable.NO_SPACE if error.errno in FULL else Unusable.UNWRITABLE
    return CannotOpen(reason, refusal_line(error, root), path=str(root))
