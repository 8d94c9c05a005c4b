"""The files of log and archive that are there, as far as they are looked at: judged as a start does, newest first.

Of a file only what is wanted is kept in memory, so the archive may be as long as it likes. What a budget leaves out is
counted. A hole in the archive ends what a fold can go through: files before it are told of, frame by frame.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from topics.audit.checks.archived import archive_tasks
from topics.audit.recovery import wal_tasks
from topics.codec.log.control import CommitMark, Control, TopicCreate, TopicDelete
from topics.engine.recovery.judge import FileLook, Item, Verdict, examine_log_file, judge
from topics.engine.recovery.recover import ShardKey
from topics.host.directory.size_limits import log_bytes, read_log
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

FIRST_FRAME: Final = 1  # of a shard's log


@attrs.define
class Budget:
    """How much of the log may be read, None: all of it, and until when. It counts."""

    bytes_max: int | None = None
    is_over: Callable[[], bool] = lambda: False
    bytes_read: int = 0
    bytes_left: int = 0

    def takes(self, size: int) -> bool:
        """Whether so much more may be read. Once it says no, it goes on saying no: there shall be no holes."""
        fits = self.bytes_max is None or self.bytes_read + size <= self.bytes_max
        if self.bytes_left or not fits or self.is_over():
            self.bytes_left += size
            return False
        self.bytes_read += size
        return True


class At(NamedTuple):
    """An item and where it lies."""

    item: Item
    path: str
    file: WalFileId


@attrs.frozen(eq=False)
class ShardLog:
    """One shard's. `verdict`: of the files that follow each other up to the end; `older`: items from before a hole.
    `first_frame`: the number with which the verdict's files begin.
    """

    verdict: Verdict
    first_frame: int
    older: Sequence[At]


@attrs.frozen(eq=False)
class KeptLog:
    shards: Mapping[ShardKey, ShardLog]
    paths: Mapping[WalFileId, str]
    syncs: Mapping[WalFileId, array[int]]  # (file, offset, ts) of each mark, flat

    def walk(self) -> Iterator[tuple[At, bool]]:
        """What is wanted, in the order of recovery; whether it is of the files that a fold goes through."""
        for key in sorted(self.shards):
            shard = self.shards[key]
            yield from ((at, False) for at in shard.older)
            yield from ((At(item, self.paths[file], file), True) for item, file in shard.verdict.items())

    def creations(self) -> list[tuple[Control, TopicCreate]]:
        """Of topics, in that order."""
        found = []
        for at, _ in self.walk():
            if isinstance(at.item, Control) and isinstance(at.item.payload, TopicCreate):
                found.append((at.item, at.item.payload))
        return found

    def deleted_ts(self, topic_id: int) -> int | None:
        """When the topic was deleted, if a frame says so."""
        items = (at.item for at, _ in self.walk() if at.item.topic_id == topic_id)
        ends = (
            item.ts for item in items if isinstance(item, Control) and isinstance(item.payload, TopicDelete)
        )
        return next(ends, None)

    def synced(self, file: WalFileId, end: int) -> tuple[int, WalFileId] | None:
        """When a mark of the log first said that the disk has a file up to `end`, and the file of that mark."""
        for other in sorted(self.syncs):
            if other[:2] != file[:2] or other.first_frame < file.first_frame:
                continue
            marks = self.syncs[other]
            for i in range(0, len(marks), 3):
                if (marks[i], marks[i + 1]) >= (file.first_frame, end):
                    return marks[i + 2], other
        return None


def read_kept(disk: Disk, wanted: Callable[[Item], bool], budget: Budget) -> KeptLog:
    """The log, newest files first, as far as the budget goes.

    Raises:
        OSError: the disk failed, or a file went away meanwhile.
    """
    places = _places(disk)
    looks: dict[WalFileId, FileLook] = {}
    syncs: dict[WalFileId, array[int]] = {}
    for file in sorted(places, key=lambda file: (file.generation, file.first_frame), reverse=True):
        path, size, _ = places[file]
        buffer = read_log(disk, path) if budget.takes(size) else None
        if buffer is None:
            continue
        seen = examine_log_file(file, buffer, size=size)
        syncs[file] = _marks(seen)
        looks[file] = _thin(seen, wanted)
    paths = {file: places[file][0] for file in looks}
    by_shard: dict[ShardKey, list[FileLook]] = {}
    for file in sorted(looks):
        by_shard.setdefault(file[:2], []).append(looks[file])
    archived = {file for file, (_, _, is_archived) in places.items() if is_archived}
    return KeptLog({key: _shard(seen, paths, archived) for key, seen in by_shard.items()}, paths, syncs)


def _places(disk: Disk) -> dict[WalFileId, tuple[str, int, bool]]:
    """(path, bytes, archived) of each file; of one in both places the longer copy, as `queue_logs` has it."""
    found: dict[WalFileId, tuple[str, int, bool]] = {}
    # The archive behind the log: what goes there meanwhile is in one of the two lists.
    for task in (*wal_tasks(disk), *archive_tasks(disk)):
        file = WalFileId(task.generation, task.shard, task.first_frame)
        size = log_bytes(disk, task.file)
        if file not in found or size > found[file][1]:
            found[file] = (task.file, size, task.archived)
    return found


def _thin(seen: FileLook, wanted: Callable[[Item], bool]) -> FileLook:
    """What `judge` asks of a file, with the wanted items alone."""
    covered: dict[int, int] = {}
    for number, offset in seen.marks:
        covered[number] = max(covered.get(number, 0), offset)
    return attrs.evolve(
        seen, items=[item for item in seen.items if wanted(item)], marks=list(covered.items())
    )


def _marks(seen: FileLook) -> array[int]:
    found = array("Q")
    for item in seen.items:
        if isinstance(item, Control) and isinstance(mark := item.payload, CommitMark):
            if mark.file_id == seen.file_id:
                found.extend((mark.covered_file, mark.covered_offset, item.ts))
    return found


def _shard(looks: Sequence[FileLook], paths: Mapping[WalFileId, str], archived: set[WalFileId]) -> ShardLog:
    """Files of which the archive lacks the next one lie before a hole."""
    start = 0
    for i in range(1, len(looks)):
        before = looks[i - 1]
        goes_on = before.file.first_frame + before.frames == looks[i].file.first_frame
        if before.file in archived and before.clean and not goes_on:
            start = i
    older = [At(item, paths[seen.file], seen.file) for seen in looks[:start] for item in seen.items]
    kept = looks[start:]
    verdict = judge(kept, same_boot=False, since=kept[0].file if kept[0].begun else None)
    return ShardLog(verdict, kept[0].file.first_frame, older)
