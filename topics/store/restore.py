"""A store out of a backup, and of the log behind it up to a moment or a seq (storage 7).

    the backup's files, but for the last WAL file of each shard that goes on
    the log behind it: file by file, cut at whole writes, zeros behind
    recovery: it finishes what was under way, and the result is a store
    RESTORED: how far each topic goes, for who asks later what became of what had been written behind that

It is all made under another name and renamed when it is a store. Nothing of the backup or of the log is changed.

CheckpointMarks behind the backup speak of segments that the backup does not have; the records they count are in
the log, which is copied. So they are made void, each by a mark of the same length that counts nothing and that
recovery passes over. Every other byte of the log stays as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs
import xxhash

from topics.codec.log.control import CheckpointMark, encode_control
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.log.writes import whole_writes
from topics.codec.manifest import FileEntry, Manifest
from topics.engine.recovery.judge import LogState
from topics.engine.recovery.recover import CutReport, DamageReport, Recovered, cut_report
from topics.host.backup.contents import PIECE_SIZE, copied_bytes, room_behind
from topics.host.backup.destination import Destination, make_parents, why_unwritable
from topics.host.backup.verifying import read_manifest, refuse_links
from topics.host.directory.layout import CURRENT_FILE, hint, read_format, shard_dir, wal_path
from topics.host.directory.readstate import read_state
from topics.host.directory.restored import RestoreNote, write_restored
from topics.host.system.clock import SystemClock
from topics.host.wal.cutting import Cut, Cuts, Goal, end_of, find_cuts, keeps_end, last_change
from topics.host.wal.logchain import Chain, ChainFile, Chains, chains_behind
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId
from topics.store.directory import ClaimedDirectory
from topics.store.opened import Opened

_VOID: Final = CheckpointMark(segment=U64_MAX, first=U64_MAX, last=U64_MAX - 1, size=0, sealed=True)
"""No topic has such a seq, so it never fits (`log.fold.takes`)."""

Tell = Callable[[int, int], None]


@attrs.frozen(kw_only=True)
class Restored:
    """A store that was made of a backup. `heads`: of each topic, before any `crash` range. `last_ts`: of what is kept,
    when the last record of the backup was written or the last change in the log behind it was made, 0 for never.
    `log_end_ts`: until when the log behind the backup tells, None if none was found. `cut`: whether anything of the log
    was left out for the goal. `damages`: what a start finds damaged. `cuts`: where the log, or the backup's own, ended
    in a write that no mark covers and that is not whole; `unclosed`: files of it that were archived and have lost their
    end since. `changed`: files that are not as the backup was written; what is damaged in them reads will tell.
    """

    manifest: Manifest
    heads: Mapping[str, int]
    last_ts: int
    log_end_ts: int | None
    cut: bool
    damages: Sequence[DamageReport]
    cuts: Sequence[CutReport]
    unclosed: Sequence[str] = ()
    changed: Sequence[str] = ()


def restore(
    base: Disk,
    dest: str | os.PathLike[str],
    *,
    logs: Sequence[Disk] = (),
    names: Sequence[str] = (),
    goal: Goal | None = None,
    tell: Tell | None = None,
) -> Restored:
    """Make the store. `logs`: directories with the log behind the backup, and `names`: what messages call them. `tell`:
    bytes done, and in all.

    Raises:
        Rejected: something is at `dest`, or the goal cannot be reached from this backup.
        CannotOpen: `dest` cannot be written.
        Corrupt: the backup is not whole, or the log behind it is damaged or has a hole before the goal.
        OSError: the backup or the log cannot be read.
    """
    manifest = read_manifest(base)
    refuse_links(base, manifest)
    chains = chains_behind(base, manifest, logs, names)
    goal = goal or Goal()
    cuts = find_cuts(chains, manifest, goal)
    target = Destination.claim(dest)
    try:
        target.check_room(manifest.size)
        changed = rebuild(base, manifest, chains, cuts, target.disk, tell=tell)
        restored = attrs.evolve(
            _recovered(target, manifest, chains, goal, cuts, logged=bool(logs)), changed=changed
        )
        target.finish()
    except OSError as error:
        target.discard()
        raise why_unwritable(dest, error) from error
    except BaseException:
        target.discard()
        raise
    return restored


def rebuild(
    base: Disk, manifest: Manifest, chains: Chains, cuts: Cuts, target: Disk, *, tell: Tell | None = None
) -> list[str]:
    """Write the files of the store into an empty directory, durably. It is not recovered yet.

    Returns the files that were not as the manifest says; they are copied all the same, for most of each is good.

    Raises:
        Corrupt: a file of the backup is shorter than its manifest says.
        OSError: a disk failed.
    """
    made: dict[str, None] = {"": None}
    kept = {key: _kept(chain, cuts.get(key)) for key, chain in chains.items()}
    replaced = {wal_path(link.found.file) for chain in kept.values() for link, _ in chain}
    done = 0
    changed: list[str] = []
    for file in manifest.files:
        if file.path not in replaced:
            make_parents(target, file.path, made)
            if _copy(base, target, file) != file.xxh3:
                changed.append(file.path)
        done += file.size
        if tell is not None:
            tell(done, manifest.size)
    for chain in kept.values():
        for link, stop in chain:
            _copy_log(link, stop, target, made, last=link is chain[-1][0])
        if chain:
            _write_hint(target, chain[-1][0].found.file)
    for directory in made:
        target.sync_dir(directory)
    return changed


def _kept(chain: Chain, cut: Cut | None) -> list[tuple[ChainFile, int | None]]:
    """The files of a shard that are kept, and where each is cut. Later files of which nothing is kept are left out."""
    if cut is None:
        return [(link, None) for link in chain.links]
    kept: list[tuple[ChainFile, int | None]] = [(link, None) for link in chain.links[: cut.index]]
    link = chain.links[cut.index]
    if cut.offset > HEADER_SIZE or not cut.index:  # a snapshot was taken in the first
        kept.append((link, cut.offset))
    return kept


def _copy(base: Disk, target: Disk, file: FileEntry) -> str:
    """Returns the checksum of what was copied."""
    path = file.path
    target.create(path, 0)
    pieces, at, digest = copied_bytes(base, path, file.size), 0, xxhash.xxh3_64()
    while True:
        try:
            piece = next(pieces, None)
        except OSError as error:  # so that an OSError is one of where it goes
            raise Corrupt(f"{path} of the backup cannot be read: {error.strerror or error}") from error
        if piece is None:
            break
        target.write(path, at, [piece])
        digest.update(piece)
        at += len(piece)
    target.sync_data(path)
    return f"{digest.intdigest():016x}"


def _copy_log(link: ChainFile, stop: int | None, target: Disk, made: dict[str, None], *, last: bool) -> None:
    """One WAL file up to where it is cut, or behind its last whole write; zeros behind."""
    buffer = bytearray(link.found.read())
    end = link.start
    for write in whole_writes(bytes(buffer[: link.stop]), link.start):
        if stop is not None and write.start >= stop:
            break
        for control in write.controls:
            if isinstance(control.payload, CheckpointMark):
                void = encode_control(
                    _VOID,
                    topic_id=control.topic_id,
                    ts=control.ts,
                    durable=control.durable,
                    write_frames=control.write_frames,
                )
                assert len(void) == control.length
                buffer[control.offset : control.offset + control.length] = void
        end = write.stop
    size = room_behind(end) if last else max(len(buffer), end)
    path = wal_path(link.found.file)
    make_parents(target, path, made)
    target.create(path, size)
    for at in range(0, end, PIECE_SIZE):
        target.write(path, at, [bytes(buffer[at : min(at + PIECE_SIZE, end)])])
    target.sync_data(path)


def _write_hint(target: Disk, file: WalFileId) -> None:
    path = f"{shard_dir(file.generation, file.shard)}/{CURRENT_FILE}"
    target.create(path, 0)
    target.write(path, 0, [hint(file)])
    target.sync_data(path)


def _recovered(
    target: Destination, manifest: Manifest, chains: Chains, goal: Goal, cuts: Cuts, *, logged: bool
) -> Restored:
    """Open what was made, which completes it, and close it again. `logged`: there is a log behind the backup."""
    form = read_format(target.disk, str(target.path))
    if form is None:
        raise Corrupt("the backup has no FORMAT")
    found = read_state(target.disk, form, same_boot=False).recovered
    heads = {topic.name: topic.head_seq for topic in found.catalog.topics.values()}
    last_written = max((topic.last_write_ts for topic in found.catalog.topics.values()), default=0)
    whole = [chain for key, chain in sorted(chains.items()) if keeps_end(key, cuts)]
    verdicts = [chain.verdict for chain in whole if chain.verdict is not None]
    torn = [cut_report(found.catalog, one) for one in verdicts if one.state is LogState.TORN]
    unclosed = [chain.unclosed for chain in whole if chain.unclosed]
    # What the goal left out was never lost, and neither is what came behind a backup. A log that is kept to its end is
    # another thing: its machine may have lost what was not synced, and nobody has told yet.
    may_lack = bool(torn or unclosed or (logged and not cuts))
    last_ts = max(last_written, last_change(chains, cuts))
    log_end_ts = end_of(chains) if any(chain.links for chain in chains.values()) else None
    reached = (goal.until_ms or last_ts) if cuts else log_end_ts
    as_of = max(manifest.ts, reached or 0)
    note_restore(target.disk, found, ts=SystemClock().now_ms(), as_of=as_of)
    directory = ClaimedDirectory.claim(target.partial, create=False)
    try:
        opened = directory.recover(machine_restarted=may_lack)
        _shut_down(opened)
    finally:
        directory.release()
    return Restored(
        manifest=manifest,
        heads=dict(sorted(heads.items())),
        last_ts=last_ts,
        log_end_ts=log_end_ts,
        cut=bool(cuts),
        damages=opened.damages,
        cuts=[*(one for one in torn if one is not None), *opened.cuts],
        unclosed=unclosed,
    )


def note_restore(disk: Disk, found: Recovered, *, ts: int, as_of: int) -> None:
    """Leave in the directory how far it went (`host.directory.restored`). Raises OSError."""
    heads = {topic.topic_id: topic.head_seq for topic in found.catalog.topics.values()}
    write_restored(disk, RestoreNote.of(ts=ts, as_of=as_of, heads=heads))


def _shut_down(opened: Opened) -> None:
    """Everything is written, synced and marked, so that its next start is a clean one."""
    opened.engine.log_exact_heads()
    for writer in opened.writers:
        writer.close()
        if writer.failed is not None:
            raise writer.failed
