"""Removing what neither of the two kept snapshots needs: logs, segments, and what a crash has left (storage 5).

A start may begin with either of them, so what one of them needs stays. Nothing goes before there are two.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from topics.engine.image import LogPlace
from topics.engine.recovery.recover import ShardKey
from topics.host.checkpoint.pins import Pins
from topics.host.checkpoint.reclaim import Reclaimer
from topics.host.checkpoint.snapshots import KEPT_MAX, Kept
from topics.host.directory.layout import (
    CURRENT_FILE,
    NEXT_FILE,
    SEGMENT_NAME,
    TOPIC_NAME,
    find_shards,
    find_wal_files,
    shard_dir,
    topic_dir,
    wal_path,
)
from topics.host.system.medium import Unreadable
from topics.host.wal.archive import Archive, ArchiveFull
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId

_TOPIC: Final = re.compile(TOPIC_NAME, re.ASCII)
_SEGMENT: Final = re.compile(rf"{SEGMENT_NAME}(?P<temporary>\.tmp)?", re.ASCII)


class Removal:
    """That of one store. Since the start: `segments`, the `bytes` of their data, and the `log_bytes` of log files."""

    def __init__(self, disk: Disk, pins: Pins, reclaimer: Reclaimer, archive: Archive | None) -> None:
        self.segments = 0
        self.bytes = 0
        self.log_bytes = 0
        self._disk = disk
        self._pins = pins
        self._reclaimer = reclaimer
        self._archive = archive

    def run(self, kept: Sequence[Kept], now_ms: int) -> None:
        """Remove it. Every call blocks.

        Raises:
            OSError: the disk failed. Of log files that cannot be archived it is raised when all else is done.
        """
        if len(kept) < KEPT_MAX:
            return
        failed = self._drop_wal_files(kept)
        self._drop_segments(kept)
        if self._archive is not None:
            self._archive.trim(now_ms)  # which makes room there
        if failed is not None:
            raise failed

    def _drop_wal_files(self, kept: Sequence[Kept]) -> OSError | None:
        """Returns why some are still there: what cannot be archived holds up nothing but its own shard."""
        failed: OSError | None = None
        for key in find_shards(self._disk):
            places = [_place_of(one, key) for one in kept]
            if None in places:
                continue  # a shard that one of them does not know
            needed = min(place.needed for place in places if place is not None)
            needed = min(needed, self._pins.first_frame(key))
            files = find_wal_files(self._disk, *key)
            gone = [file for file in files if file.first_frame < needed]
            sizes = {file: self._disk.size(wal_path(file)) or 0 for file in gone}
            try:
                if self._archive is not None:
                    self._archive.take(gone)
            except (ArchiveFull, Unreadable) as error:
                failed = failed or error
                there = set(find_wal_files(self._disk, *key))  # some may have gone before
                self.log_bytes += sum(size for file, size in sizes.items() if file not in there)
                continue
            self.log_bytes += sum(sizes.values())
            for file in gone:
                self._disk.unlink(wal_path(file))
            if len(gone) == len(files):
                for name in (CURRENT_FILE, NEXT_FILE):
                    self._disk.unlink(f"{shard_dir(*key)}/{name}")
            if gone:
                self._disk.sync_dir(shard_dir(*key))
        return failed

    def _drop_segments(self, kept: Sequence[Kept]) -> None:
        """Files of segments that neither snapshot counts, what a crash left of a rewrite, and topics without a file."""
        needed = frozenset.union(*(one.segments for one in kept))
        self._reclaimer.forget(needed)
        emptied = False
        for name in self._disk.names("topics"):
            if _TOPIC.fullmatch(name) is None:
                continue
            directory = topic_dir(int(name, 16))
            files = self._disk.names(directory)
            gone = [file for file in files if self._is_gone(int(name, 16), file, needed)]
            for file in gone:
                size = self._disk.size(f"{directory}/{file}") if file.endswith(".data") else 0
                self._disk.unlink(f"{directory}/{file}")
                self.bytes += size or 0
                self.segments += file.endswith(".idx")  # of a cold one, too
            if len(gone) == len(files):
                self._disk.remove_dir(directory)
                emptied = True
            elif gone:
                self._disk.sync_dir(directory)
        if emptied:
            self._disk.sync_dir("topics")

    def _is_gone(self, topic_id: int, file: str, needed: frozenset[SegmentId]) -> bool:
        match = _SEGMENT.fullmatch(file)
        if match is None:
            return False
        segment = SegmentId(topic_id, int(match["first_seq"]))
        return bool(match["temporary"]) or (segment not in needed and not self._pins.holds(segment))


def frees_segments(kept: Sequence[Kept]) -> bool:
    """Whether another snapshot would let segments go although nothing was written: it waits for two to agree."""
    return len(kept) == KEPT_MAX and not kept[1].segments <= kept[0].segments


def frees_logs(kept: Sequence[Kept]) -> bool:
    """Whether another snapshot, or the one behind it, would let files of the log go although nothing was written."""
    if len(kept) < KEPT_MAX:
        return True
    before = {(one.generation, one.shard): one.needed for one in kept[1].places}
    return any(one.needed > before.get((one.generation, one.shard), U64_MAX) for one in kept[0].places)


def _place_of(kept: Kept, key: ShardKey) -> LogPlace | None:
    for place in kept.places:
        if (place.generation, place.shard) == key:
            return place
    return None
