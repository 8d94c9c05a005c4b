"""What of the log is gone without a word of whose it was: where, and how many frames at most (storage 4).

Recovery names the seqs that an intact item behind them shows to be missing. Of what was last in the log it cannot: a
topic's newest records may be gone with a file, and the next write would be given their seqs. So a repair moves the head
of each topic that could have had records there by as many as could have been. An upper bound, from

    the numbers     a file is named by its first frame, so the next one's name, or CURRENT, says how many there were
    the bytes       of what is damaged in the last file; no frame is smaller than FRAME_OVERHEAD
    neither         of a log that is gone as a whole: LOG_MAX bytes

A topic with an intact record behind a hole lost nothing in it that recovery has not told: its seqs follow one another.
A damaged stretch that is one frame, whose head names a record that is missing, is that record; or, if the damage is in
the head's topic, another topic's next one of that seq.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final

import attrs

from topics.audit.recovery import RecoveredDirectory
from topics.codec.log.frame import Run
from topics.codec.log.layout import FRAME_LEN_SIZE, FRAME_OVERHEAD
from topics.codec.log.walheader import FILE_ID_SIZE, HEADER_SIZE, WalHeader, decode_header
from topics.codec.primitives import U32
from topics.engine.recovery.judge import FileLook, Item, Verdict, examine_log_file
from topics.engine.recovery.judge import LogState as End
from topics.engine.recovery.recover import DamageReport, ShardKey
from topics.host.directory.layout import find_shards, read_hint, shard_dir, wal_path
from topics.host.directory.size_limits import read_log
from topics.kernel.config import Durability
from topics.kernel.errors import Corrupt
from topics.kernel.ids import shard_of
from topics.kernel.limits import CEILING_STEP_MAX, WAL_FILE_GROWTH, WAL_FILE_MAX
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId
from topics.log.topic import Topic

LOG_MAX: Final = 1 << 36  # bytes of one shard's log behind its newest snapshot, of which nothing is left
# How many seqs a frame can have used up. A record uses one. A ceiling may be jumped to after a restart: it is above the
# head by at most three times what the run before it has written, or by two first steps. Of an ephemeral topic only the
# ceilings are in the log, each up to a step and one write above the one before.
_SEQS: Final = {
    Durability.FSYNC: 1,
    Durability.DISK: 256,
    Durability.MEMORY: 256,
    Durability.EPHEMERAL: 2 * CEILING_STEP_MAX,
}


@attrs.frozen
class Hole:
    """Up to `frames` frames are missing in a file of the log, in front of `offset` or from there on. `seq`: it is one
    record of this seq, as its head says, and so of a topic that lacks this one. Other frames than records are none.
    """

    file: WalFileId
    offset: int
    frames: int
    seq: int = 0

    @property
    def path(self) -> str:
        return wal_path(self.file)


def find_holes(disk: Disk, state: RecoveredDirectory) -> list[Hole]:
    """Every hole of a log that is damaged, in the order of the log.

    Raises:
        OSError: the disk failed.
    """
    verdicts, damages = state.read.verdicts, [one for one in state.read.recovered.damages if one.in_log]
    largest = _largest_file(disk)
    holes: list[Hole] = []
    for key, verdict in sorted(verdicts.items()):
        if verdict.state is End.CORRUPT:
            holes += _Log(disk, state, key, verdict, largest).holes()
    for damage in damages:
        file = damage.file
        assert isinstance(file, WalFileId)
        if damage.topic is None and (file[:2] not in verdicts or not _begun(verdicts[file[:2]])):
            if all(hole.file[:2] != file[:2] for hole in holes):
                holes.append(Hole(file, 0, LOG_MAX // FRAME_OVERHEAD))
    return holes


def seqs_missing(state: RecoveredDirectory, holes: Sequence[Hole]) -> dict[int, int]:
    """By topic id how many seqs behind its head may have been given out, as far as these holes go; none left out."""
    last = _last_records(state)
    found: dict[int, int] = {}
    for topic_id, topic in sorted(state.topics.items()):
        frames = sum(hole.frames for hole in holes if _may_hold(state, hole, topic, last.get(topic_id)))
        if frames:
            found[topic_id] = frames * _SEQS[topic.config.durability]
    return found


def topics_in_doubt(state: RecoveredDirectory, holes: Sequence[Hole]) -> list[str]:
    """The topics of which a delete or a change of settings may have been there; what was deleted may be back."""
    return [
        topic.name
        for _, topic in sorted(state.topics.items())
        if any(not hole.seq and _is_of_shard(state, hole, topic) for hole in holes)
    ]


def _may_hold(
    state: RecoveredDirectory, hole: Hole, topic: Topic, last: tuple[WalFileId, int] | None
) -> bool:
    """Whether newest records of a topic may have been there. `last`: where its last intact one begins."""
    if not _is_of_shard(state, hole, topic) or (hole.seq and topic.head_seq + 1 != hole.seq):
        return False
    key = hole.file[:2]
    return last is None or last[0].generation < key[0] or (
        last[0][:2] == key and (last[0].first_frame, last[1]) < (hole.file.first_frame, hole.offset)
    )  # fmt: skip


def _is_of_shard(state: RecoveredDirectory, hole: Hole, topic: Topic) -> bool:
    """Whether the topic's frames go to that log. How many shards an earlier generation had is not known for sure."""
    generation, shard, _ = hole.file
    known = generation == state.form.generation and state.wrong is None
    return not known or shard_of(topic.topic_id, state.form.shards) == shard


def _last_records(state: RecoveredDirectory) -> dict[int, tuple[WalFileId, int]]:
    """Where the last intact run of each topic begins."""
    return {
        item.topic_id: (file, item.offset)
        for _, verdict in sorted(state.read.verdicts.items())
        for item, file in verdict.items()
        if isinstance(item, Run)
    }


class _Log:
    """A shard's log that is damaged. `named`: the file that CURRENT says is there, if it is not."""

    def __init__(
        self, disk: Disk, state: RecoveredDirectory, key: ShardKey, verdict: Verdict, largest: int
    ) -> None:
        self._disk = disk
        self._key = key
        self._looks = [seen for seen in verdict.looks if seen not in verdict.drop]
        self._covered: dict[int, int] = {}
        for number, offset in (mark for seen in self._looks for mark in seen.marks):
            self._covered[number] = max(offset, self._covered.get(number, 0))
        self._room = max(WAL_FILE_MAX, WAL_FILE_GROWTH * largest)
        place = state.read.restored.places.get(key)
        self._reached = place.next_frame if place is not None and place.file else 1
        named = read_hint(disk, *key)
        there = named is not None and any(seen.file.first_frame >= named.first_frame for seen in self._looks)
        self._named = None if there or named is None or named.first_frame < self._reached else named
        self._told = {
            (damage.file, damage.offset): damage.first_seq
            for damage in state.read.recovered.damages
            if damage.first_seq is not None
            and damage.first_seq == damage.last_seq
            and _is_lost(state, damage)
        }

    def holes(self) -> Iterator[Hole]:
        reached = self._reached
        for seen, later in zip_longest(self._looks, self._looks[1:]):
            begin = max(seen.file.first_frame, reached)
            if begin > reached:
                yield Hole(seen.file, 0, begin - reached)
            told = self._told_alone(seen)
            yield from (Hole(seen.file, at, 1, seq) for at, seq in told.items())
            kept = _frames(seen.items) + _frames(seen.beyond) + len(told)
            behind = self._named if later is None else later.file
            if behind is None:
                yield from self._holes_in_last(seen)
            elif behind.first_frame > begin + kept:
                yield Hole(behind, 0, behind.first_frame - begin - kept)
            reached = begin + kept if behind is None else behind.first_frame
        if self._named is not None:
            before = self._named.first_frame - reached
            yield Hole(
                self._named, 0, before + 2 * self._frames_in(self._room)
            )  # it may lag behind by a file
        elif not self._looks:
            yield Hole(WalFileId(*self._key, 1), 0, LOG_MAX // FRAME_OVERHEAD)

    def _holes_in_last(self, seen: FileLook) -> Iterator[Hole]:
        """No later file says how many frames there were: the bytes bound them."""
        told, room = self._told_alone(seen), max(self._room, seen.size)
        if seen.header_defect:
            inside = self._behind_header(seen)
            if inside is None:
                yield Hole(seen.file, seen.size, self._frames_in(room))
                return
            seen = inside
        for at, size, _ in seen.broken:
            if at in told:
                continue
            if at + size >= seen.stop:
                yield Hole(seen.file, at, self._frames_in(room - at))
            else:
                yield Hole(seen.file, at, 1 if self._is_one_frame(seen, at, size) else self._frames_in(size))
        end = max(seen.stopped_at, seen.stop)
        if not seen.broken and self._covered.get(seen.file.first_frame, 0) > end:
            yield Hole(seen.file, end, self._frames_in(room - end))  # zeros where a mark says there was data

    def _behind_header(self, seen: FileLook) -> FileLook | None:
        """What a file holds whose header is damaged, and nothing else may be; None if there is nothing."""
        data = read_log(self._disk, wal_path(seen.file))
        with suppress(Corrupt):
            decode_header(data)
            return None  # it is that of another file
        if seen.stop <= HEADER_SIZE:
            return None
        generation, shard, first_frame = seen.file
        header = WalHeader(
            generation=generation, shard=shard, first_frame=first_frame, file_id=bytes(FILE_ID_SIZE)
        )
        return examine_log_file(seen.file, header.encode() + data[HEADER_SIZE:])

    def _told_alone(self, seen: FileLook) -> dict[int, int]:
        """Where one record is damaged, and its seq, which recovery has told."""
        return {
            at: self._told[seen.file, at]
            for at, size, _ in seen.broken
            if (seen.file, at) in self._told and self._is_one_frame(seen, at, size)
        }

    def _is_one_frame(self, seen: FileLook, at: int, size: int) -> bool:
        """Whether the length in its head is that of all that is damaged. Behind the last byte that is not zero it may
        go on: a checksum ends in anything.
        """
        head = self._disk.read(wal_path(seen.file), at, FRAME_LEN_SIZE)
        length = U32.unpack(head)[0] + FRAME_LEN_SIZE if len(head) == FRAME_LEN_SIZE else 0
        return length == size or (at + size == seen.stop and size < length < size + FRAME_LEN_SIZE)

    def _frames_in(self, size: int) -> int:
        return max(1, size // FRAME_OVERHEAD)


def _is_lost(state: RecoveredDirectory, damage: DamageReport) -> bool:
    """Whether the record that a damaged head names is one that its topic lacks."""
    topic = None if damage.topic is None else state.read.recovered.catalog.find(damage.topic)
    return topic is not None and topic.index.lost.at(damage.first_seq or 0) is not None


def _begun(verdict: Verdict) -> bool:
    return any(seen.begun for seen in verdict.looks)


def _frames(items: Sequence[Item]) -> int:
    return sum(len(item) if isinstance(item, Run) else 1 for item in items)


def _largest_file(disk: Disk) -> int:
    """Bytes of the largest file of the log."""
    return max(
        (
            disk.size(f"{shard_dir(*key)}/{name}") or 0
            for key in find_shards(disk)
            for name in disk.names(shard_dir(*key))
        ),
        default=0,
    )
