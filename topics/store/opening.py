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
from typing import Final

from topics.engine.engine import Engine
from topics.engine.recovery.judge import LogState, Verdict
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.snapshots import META_DIR
from topics.host.cold.cold_disk import ColdBehind
from topics.host.cold.place import open_cold
from topics.host.cold.relocation import Relocation
from topics.host.cold.segment_stores import SegmentStore
from topics.host.directory.generations import begun_logs, choose_generation, open_shard_writer
from topics.host.directory.layout import (
    FORMAT_VERSION,
    NEXT_FILE,
    Format,
    find_shards,
    read_format,
    read_hint,
    shard_dir,
    wal_path,
    write_format,
    write_hint,
)
from topics.host.directory.loading import mend
from topics.host.directory.raising import new_format, raise_store
from topics.host.directory.readstate import ReadState, read_state, tell_nobody
from topics.host.segments.reading import ExtentReader
from topics.host.wal.archive import Archive
from topics.host.wal.walfile import WalFile
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.kernel.ports import Clock, Disk, Entropy
from topics.store.inline import checkpoint_alone
from topics.store.opened import Opened, StoreOptions
from topics.store.viewing import engine_of, read_only_view, tier_of
from topics.store.writer import ShardWriter

_NONCE_BYTES: Final = 8


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
        CannotOpen: foreign or newer directory; or one of an older version, and the disk is full.
        Rejected: the cold directory cannot be used.
        OSError: the disk failed while reading or repairing; nothing acknowledged is lost by trying again.
    """
    options = options or StoreOptions()
    form = read_format(disk, where)
    if form is None:
        form = new_format(entropy, options.shards or 1)
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
    if read.recovered.read_only:
        tell(1.0)
        return read_only_view(disk, clock, form, read, options, cold, where=where)
    if form.format < FORMAT_VERSION or form.raising:
        form = raise_store(disk, form, entropy, where)
        read = read_state(disk, form, same_boot=not machine_restarted, cold=cold)
    restored, verdicts, recovered = read.restored, read.verdicts, read.recovered
    _make_durable(disk, read, forget_boot)
    mend(ColdBehind(disk, cold), recovered.catalog, read.settled.unfit, restored.labelled)
    before = form
    form = choose_generation(disk, form, verdicts, options.shards, clock, entropy, restored.places)
    for generation, shard in find_shards(disk):  # those that a snapshot has absorbed, too
        if generation != form.generation:
            disk.unlink(f"{shard_dir(generation, shard)}/{NEXT_FILE}")  # nothing will be written there again
    wals = [
        open_shard_writer(disk, entropy, form.generation, shard, verdicts, options.limits)
        for shard in range(form.shards)
    ]
    lease_nonce = int.from_bytes(entropy.token(_NONCE_BYTES), "big")  # no lease is issued twice (queues 2)
    engine = engine_of(clock, form, recovered, options, lease_nonce=lease_nonce)
    writers = [_writer(engine, wal, disk, options, form.shards, where, forget_boot) for wal in wals]
    _resume_writing(engine, writers, machine_restarted=machine_restarted)
    confirm(begun_logs(disk, form, restored.places))
    tier = tier_of(engine, disk, cold)
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
        reader=ExtentReader(disk, {(form.generation, writer.shard): writer.tail for writer in writers}, tier),
        warnings=[*restored.wrong, *tier.missing(), *_told(refused)],
        sync=options.sync,
    )


def _told(refused: str) -> list[str]:
    return [f"no checkpoint behind the change of shards: {refused}"] if refused else []


def _make_durable(disk: Disk, read: ReadState, forget_boot: Callable[[], None] | None) -> None:
    """What the process before has written and not synced, and of the log what is kept."""
    try:
        if read.restored.kept:  # a process that died behind a rename left a snapshot that no sync had covered
            disk.sync_dir(META_DIR)
        for verdict in read.verdicts.values():
            _repair_tail(disk, verdict)
    except OSError:
        if forget_boot is not None:  # it may be gone now
            with suppress(OSError):
                forget_boot()
        raise


def _repair_tail(disk: Disk, verdict: Verdict) -> None:
    """Make kept bytes and names durable before any mark may cover them, and the un-synced tail zeros again. Whatever a
    crash leaves of that is a torn tail again.
    """
    if verdict.tail is not None:  # a process that died in a rotation left a name that no sync had covered
        disk.sync_dir(wal_path(verdict.tail.file).rsplit("/", 1)[0])
    for file, start, stop in verdict.rewrite():
        path = wal_path(file)
        for at in range(start, stop, ZERO_FILL_CHUNK):
            kept = disk.read(path, at, min(ZERO_FILL_CHUNK, stop - at))
            disk.write(path, at, [kept])
        disk.sync_data(path)
    if verdict.drop and verdict.tail is not None and read_hint(disk, *verdict.tail.file[:2]) is not None:
        write_hint(disk, verdict.tail.file)  # first: a hint must not name a file that is cut away
    # From the back, so that whatever a crash leaves of it is a torn tail again, in files that follow each other.
    for dropped in reversed(verdict.drop):
        path = wal_path(dropped.file)
        disk.unlink(path)
        disk.sync_dir(path.rsplit("/", 1)[0])
    tail = verdict.tail
    if tail is not None and verdict.state is LogState.TORN:
        path = wal_path(tail.file)
        for at in reversed(range(tail.end, tail.stop, ZERO_FILL_CHUNK)):
            disk.write(path, at, [bytes(min(ZERO_FILL_CHUNK, tail.stop - at))])
        disk.sync_data(path)


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
