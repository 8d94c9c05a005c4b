"""What only the log has, in front of the place where a snapshot has it (storage 4).

A start replays nothing of that, for the snapshot knows it. But records that are in no segment yet are nowhere else, and
they were synced before the snapshot was kept: one that is not whole is damage in the log, as behind that place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from topics.codec.segments.segment import append_frames
from topics.engine.apply import Catalog
from topics.engine.image import LogPlace
from topics.engine.recovery.recover import DamageReport, ShardKey
from topics.host.directory.layout import wal_path
from topics.host.directory.size_limits import read_log
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.index import LIVE
from topics.log.regions import WalFileId
from topics.log.topic import Topic

TOGETHER: Final = 2000  # slots whose frames are verified in one call


def unabsorbed_damages(
    disk: Disk, catalog: Catalog, places: Mapping[ShardKey, LogPlace]
) -> list[DamageReport]:
    """The live records that are not whole there, those that follow one another in one report. Reads each file once.

    Raises:
        OSError: the disk failed.
    """
    spans: dict[WalFileId, list[tuple[Topic, int, int]]] = {}
    for _, topic in sorted(catalog.topics.items()):
        for file, start, stop in _spans(topic, places):
            spans.setdefault(file, []).append((topic, start, stop))
    found: list[DamageReport] = []
    for file, held in sorted(spans.items()):
        buffer = _content(disk, file)
        for topic, start, stop in held:
            found += _reports(topic, file, list(_damaged(buffer, topic, start, stop)))
    return found


def _spans(topic: Topic, places: Mapping[ShardKey, LogPlace]) -> Iterator[tuple[WalFileId, int, int]]:
    """Each file, and the positions [start, stop) of the slots that lie in what a snapshot has of it."""
    index = topic.index
    for first, behind, source in topic.regions.spans(topic.head_seq + 1):
        place = places.get(source[:2]) if isinstance(source, WalFileId) else None
        if place is None or not isinstance(source, WalFileId):
            continue
        start, stop = index.position(first), index.position(behind)
        if place.file and source.first_frame >= place.file:  # 0: of a log that has ended, all is in front
            before = place.offset if source.first_frame == place.file else 0
            stop = bisect_left(index.offsets, before, start, stop)
        if start < stop:
            yield source, start, stop


def _content(disk: Disk, file: WalFileId) -> bytes:
    """Empty if the file is gone."""
    path = wal_path(file)
    try:
        return read_log(disk, path)
    except FileNotFoundError:
        return b""


def _damaged(buffer: bytes, topic: Topic, start: int, stop: int) -> Iterator[int]:
    """The positions, among these, of live slots whose record is not whole in the file's bytes."""
    for begin in range(start, stop, TOGETHER):
        end = min(begin + TOGETHER, stop)
        if not _are_whole(buffer, topic, begin, end):
            for at in range(begin, end):
                if topic.index.flags[at] & LIVE and not _are_whole(buffer, topic, at, at + 1):
                    yield at


def _are_whole(buffer: bytes, topic: Topic, start: int, stop: int) -> bool:
    """Whether the records of all slots [start, stop) are there."""
    index = topic.index
    try:
        append_frames(
            buffer,
            index.offsets[start:stop],
            index.lengths[start:stop],
            topic_id=topic.topic_id,
            seqs=index.seqs(start, stop),
            dead=bytes(stop - start),
        )
    except Corrupt:
        return False
    return True


def _reports(topic: Topic, file: WalFileId, damaged: list[int]) -> Iterator[DamageReport]:
    seqs = [topic.index.seq_at(at) for at in damaged]
    for _, found in groupby(range(len(seqs)), key=lambda i: seqs[i] - i):
        run = list(found)
        yield DamageReport(
            file=file,
            offset=topic.index.offsets[damaged[run[0]]],
            why="what a snapshot left to the log is not whole there, and no segment has it",
            topic=topic.name,
            first_seq=seqs[run[0]],
            last_seq=seqs[run[-1]],
        )
