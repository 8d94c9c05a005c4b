"""A data directory, or a backup, as a place to read from: no server, no lock, and nothing in it is changed.

The state is what a start would recover (`host.directory.readstate`), so a torn tail of the log that is being written is
left out and told, and a deleted record is deleted. While a server owns the directory files come and go: a read that
meets that is begun again. What only the owner's next sync makes durable is not shown for a topic of class `fsync`: its
seqs could be given to other records after a power cut.

Files behind an fsspec URL as the Disk port, reading only: a backup in an object store is read where it lies.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from topics.audit.columnar.frame_heads import Longs
from topics.codec.log.control import TopicDelete
from topics.codec.log.run import Run
from topics.engine.recovery.judge import Verdict
from topics.engine.recovery.recover import ShardKey
from topics.host.cold.fsspec_files import FsspecFiles, open_files, without_secrets
from topics.host.cold.fsspec_store import is_url, open_fsspec
from topics.host.cold.segment_stores import LocalSegmentStore, SegmentStore
from topics.host.directory.layout import FORMAT_FILE, read_format
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, OwnerRecord
from topics.host.directory.readstate import ReadState, read_state
from topics.host.system.boot import machine_boot_id
from topics.host.system.readonly import ReadOnlyDisk, Unchanging, WithCold
from topics.kernel.config import Durability
from topics.kernel.errors import CannotOpen, Corrupt, Unusable, invalid
from topics.kernel.ids import is_internal
from topics.kernel.ports import Disk
from topics.log.floors import Reason
from topics.log.regions import SegmentId, WalFileId
from topics.log.topic import Topic
from topics.spark.fetch import PieceFetcher
from topics.spark.place import (
    DELETED,
    RECREATED,
    WENT_BACK,
    Loss,
    ReadBounds,
    ReadForm,
    SeqRange,
    TopicOffsets,
    TopicPart,
)
from topics.spark.spans import FilePiece, SlotColumns, pieces_of, slots_of, take


class FsspecDisk(Unchanging):
    """`kernel.ports.Disk` over files below a URL."""

    def __init__(self, files: FsspecFiles) -> None:
        self._files = files
        self._format: dict[tuple[int, int], bytes] = {}

    def read(self, path: str, offset: int, size: int) -> bytes:
        """FORMAT is kept until its size is asked for: each segment asks it whose it is, and a read is a request."""
        if path != FORMAT_FILE:
            return self._files.read(path, offset, size)
        if (offset, size) not in self._format:
            self._format[offset, size] = self._files.read(path, offset, size)
        return self._format[offset, size]

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:  # noqa: ARG002 -- the port's signature
        """Nothing is known to be at hand."""
        return None

    def names(self, path: str) -> list[str]:
        return self._files.names(path)

    def size(self, path: str) -> int | None:
        if path == FORMAT_FILE:
            self._format.clear()
        return self._files.size(path)

    def links(self, path: str) -> int:
        return 0 if self.size(path) is None else 1

    def free_bytes(self, path: str = "") -> int:  # noqa: ARG002 -- the port's signature
        return 0


LOOKS_MAX: Final = 5  # at a directory that changes while it is looked at
GONE_MAX: Final = 40  # times that a look begins again, for a file has gone away
FOLDER: Final = "file://"  # a URL of what any disk has
FILE_BYTES: Final = 1 << 40  # more than a file has
_log: Final = logging.getLogger("topics.spark")


def open_disk(path: str) -> Disk:
    """The files below a path or an fsspec URL, reading only."""
    folder = path.removeprefix(FOLDER)
    return FsspecDisk(open_files(path, "path")) if is_url(folder) else ReadOnlyDisk(folder)


@attrs.frozen(kw_only=True)
class DirectoryPlace:
    """`internal`: ended records, too, and the topics that belong to the store itself. `cold`: where sealed segments are
    that the directory has given away.
    """

    path: str
    internal: bool
    cold: str | None = None

    def look(self) -> DirectoryView:
        """Raises `CannotOpen` if there is no data directory, `Corrupt` if it is damaged."""
        disk = open_disk(self.path)
        where = _told(self.path)
        state = _read(disk, where, None if self.cold is None else open_cold(self.cold))
        for cut in state.recovered.cuts:
            _log.warning("%s: %s", where, str(cut).replace(" cut ", " left out "))
        for damage in state.recovered.damages:
            _log.warning("%s: damaged: %s", where, damage)
        return DirectoryView(state, self._with_cold(disk), internal=self.internal, owned=_is_owned(disk))

    def read(self, parts: Sequence[TopicPart], how: ReadForm) -> Iterator[pa.RecordBatch]:
        """As `Place` says."""
        pieces = [part for part in parts if isinstance(part, FilePiece)]
        assert len(pieces) == len(parts), "parts of another place"
        disk = self._with_cold(open_disk(self.path))
        return PieceFetcher(disk=disk, look=self.look, how=how).batches(pieces)

    def _with_cold(self, disk: Disk) -> Disk:
        return disk if self.cold is None else WithCold(disk, open_cold(self.cold))


class DirectoryView:
    """The state of a directory, and the time at which own expiry is decided. `disk`: the files that tasks will find.
    `owned`: a process writes to it.
    """

    def __init__(self, state: ReadState, disk: Disk, *, internal: bool, owned: bool) -> None:
        self._disk = disk
        self._topics = {
            topic.name: topic
            for topic in state.recovered.catalog.topics.values()
            if internal or not is_internal(topic.name)
        }
        self._internal = internal
        self._now_ms = int(time.time() * 1000)
        self._synced = _synced(state.verdicts) if owned else None
        self._deletes = owned and _deletes_unsynced(state.verdicts, self._synced or {})
        self._damages = state.recovered.damages

    def close(self) -> None:
        """Nothing is held."""

    def topics(self) -> Mapping[str, TopicOffsets]:
        return {
            name: TopicOffsets(
                name=name,
                epoch=topic.epoch,
                earliest=topic.earliest_seq,
                stop=self._stop(topic),
                end=topic.head_seq + 1,
            )
            for name, topic in self._topics.items()
        }

    def may_undelete(self) -> bool:
        return self._deletes

    def refuse_damage(self, topics: Mapping[str, TopicOffsets]) -> None:
        for damage in self._damages:
            if isinstance(damage.file, SegmentId):
                continue  # told when its records are read
            if damage.topic is None or damage.topic in topics:
                how = "run topics fsck; to read what is intact, set failOnDataLoss to false"
                raise Corrupt(f"the log is damaged: {damage}; {how}", topic=damage.topic)

    def seq_at(self, topic: str, ts_ms: int) -> int:
        found = self._topics[topic]
        index, floors = found.index, found.floors
        at = index.position_of_ts(ts_ms)
        if at > index.start:
            seq = index.seq_at(at - 1) + 1
        elif floors.evict_floor > 1 and ts_ms <= floors.lost_ts:
            seq = 1
        else:
            seq = index.seq_at(at)
        return min(seq, self._stop(found))

    def losses(self, wanted: SeqRange) -> list[Loss]:
        topic = self._topics[wanted.topic]
        found = []
        behind = min(topic.evict_floor, wanted.stop)
        if wanted.start < behind:
            reason = topic.floors.reason_above(wanted.start - 1, [])
            found.append(Loss(topic.name, wanted.start, behind - 1, reason.value))
        for lost in topic.index.lost:
            first, last = max(lost.first, wanted.start), min(lost.last, wanted.stop - 1)
            if first <= last:
                found.append(Loss(topic.name, first, last, Reason(lost.reason).value))
        return found

    def stop_within(self, wanted: SeqRange, bytes_max: int) -> int:
        slots = self._slots(wanted)
        sums = slots.lengths.cumsum()
        fitting = int(sums.searchsorted(bytes_max, side="right"))
        return wanted.stop if fitting >= len(slots) else int(slots.seqs[max(fitting, 1) - 1]) + 1

    def size(self, wanted: SeqRange) -> int:
        return int(self._slots(wanted).lengths.sum())

    def parts(self, wanted: SeqRange, bounds: ReadBounds, *, target_bytes: int) -> Sequence[FilePiece]:
        slots = self._slots(
            attrs.evolve(
                wanted, start=max(wanted.start, bounds.seq_start), stop=min(wanted.stop, bounds.seq_stop)
            )
        )
        if bounds.ts_ms_min or bounds.ts_ms_max is not None:
            kept = slots.ts >= bounds.ts_ms_min
            slots = take(slots, kept if bounds.ts_ms_max is None else kept & (slots.ts <= bounds.ts_ms_max))
        topic = self._topics[wanted.topic]
        return self._pieces(topic, slots, target_bytes)

    def again(self, topic: str, topic_id: int, seqs: Longs) -> tuple[Sequence[FilePiece], Sequence[Loss]]:
        """As `fetch.Planner` says."""
        found, first, last = self._topics.get(topic), int(seqs[0]), int(seqs[-1])
        if found is None or found.topic_id != topic_id:
            return [], [Loss(topic, first, last, DELETED if found is None else RECREATED)]
        wanted = SeqRange(topic, found.epoch, first, last + 1)
        losses = self.losses(wanted)
        if found.head_seq < last:
            losses.append(Loss(topic, max(first, found.head_seq + 1), last, WENT_BACK))
        slots = self._slots(wanted)
        slots = take(slots, np.isin(slots.seqs, seqs))
        return self._pieces(found, slots, FILE_BYTES), losses

    def _pieces(self, topic: Topic, slots: SlotColumns, target_bytes: int) -> list[FilePiece]:
        """Raises `Rejected` if one is in the cold tier, and nobody has said where that is."""
        pieces = list(pieces_of(topic, slots, target_bytes=target_bytes))
        for path in {piece.path: None for piece in pieces if piece.cold}:
            if self._disk.size(path) is None:
                raise invalid(
                    "coldPath", f"{path} is in the cold tier: name its folder or URL with this option"
                )
        return pieces

    def _slots(self, wanted: SeqRange) -> SlotColumns:
        topic = self._topics[wanted.topic]
        start, stop = wanted.start, max(wanted.start, wanted.stop)
        slots = slots_of(topic, start, stop, now_ms=self._now_ms, ended=self._internal)
        return take(slots, (slots.states == 0) | (slots.lengths > 0))

    def _stop(self, topic: Topic) -> int:
        """Behind the last seq that may be shown."""
        stop = topic.head_seq + 1
        if self._synced is None or topic.config.durability is not Durability.FSYNC:
            return stop
        for first, behind, source in reversed(topic.regions.spans(stop)):
            if not isinstance(source, WalFileId):
                break
            synced = self._synced.get(source, 0)
            index = topic.index
            start, end = index.position(max(first, index.base_seq)), index.position(behind)
            while end > start and index.offsets[end - 1] >= synced:
                end -= 1
            if end > start:
                return index.seq_at(end - 1) + 1
            stop = first
        return max(stop, topic.earliest_seq)


def _told(path: str) -> str:
    """A path or a URL as it may be told."""
    return without_secrets(path) if is_url(path) else path


def open_cold(where: str) -> SegmentStore:
    """The cold tier of a directory, reading only: unlike `host.cold.place`, it makes no folder."""
    folder = where.removeprefix(FOLDER)
    return open_fsspec(where) if is_url(folder) else LocalSegmentStore(ReadOnlyDisk(folder), folder)


def _read(disk: Disk, where: str, cold: SegmentStore | None) -> ReadState:
    """The state, once two looks agree on what is damaged, or nothing is."""
    told: list[str] | None = None
    for left in reversed(range(LOOKS_MAX)):
        try:
            state = _read_once(disk, where, cold)
        except Corrupt:
            if not left:
                raise
            continue
        damages = [str(damage) for damage in state.recovered.damages]
        if not damages or damages == told:
            return state
        told = damages
    raise Corrupt(f"{where} changed each of {LOOKS_MAX} times it was looked at; try again", path=where)


def _read_once(disk: Disk, where: str, cold: SegmentStore | None) -> ReadState:
    """The state; begun again if a file goes away meanwhile, for then its owner has absorbed or replaced it. That may
    happen many times: an owner that takes many checkpoints a second is faster than a reader whose machine is busy.
    """
    for left in reversed(range(GONE_MAX)):
        form = read_format(disk, where)
        if form is None:
            raise CannotOpen(
                Unusable.MISSING, f"{where} is no topics directory: there is no FORMAT in it", path=where
            )
        try:
            # As after a restart of the machine: a write that is under way then looks like a torn tail.
            return read_state(disk, form, same_boot=False, cold=cold)
        except FileNotFoundError:
            if not left:
                raise
    raise AssertionError("the last time returns or raises")


def _synced(verdicts: Mapping[ShardKey, Verdict]) -> dict[WalFileId, int]:
    """Up to which offset each file of the log is known to be synced: what later files and marks say."""
    synced: dict[WalFileId, int] = {}
    for (generation, shard), verdict in verdicts.items():
        for seen in verdict.looks[:-1]:
            synced[seen.file] = seen.size
        for seen in verdict.looks:
            for number, offset in seen.marks:
                file = WalFileId(generation, shard, number)
                synced[file] = max(synced.get(file, 0), offset)
    return synced


def _deletes_unsynced(verdicts: Mapping[ShardKey, Verdict], synced: Mapping[WalFileId, int]) -> bool:
    """Whether a topic was deleted by a frame that is not known to be synced; only a shard's last file has such."""
    for verdict in verdicts.values():
        for seen in verdict.looks[-1:]:
            for item in reversed(seen.items):
                if item.offset < synced.get(seen.file, 0):
                    break
                if not isinstance(item, Run) and isinstance(item.payload, TopicDelete):
                    return True
    return False


def _is_owned(disk: Disk) -> bool:
    """Whether a process may be writing to the directory: the one that LOCK names lives, or nobody here can tell, for it
    is on another machine, or the machine has restarted since.

    To be careful is harmless: what no mark covers, after a crash the last 50 ms, is shown once the directory has been
    started again. It is harmful to miss an owner, and one is missed: in another pid namespace of this machine.
    """
    try:
        owner = OwnerRecord.decode(disk.read(LOCK_NAME, 0, RECORD_SIZE))
    except OSError:
        return False  # a backup has no LOCK
    if owner is None or owner.pid <= 0:
        return False
    if not isinstance(disk, ReadOnlyDisk) or owner.boot_id is None or owner.boot_id != machine_boot_id():
        return True
    try:
        os.kill(owner.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
