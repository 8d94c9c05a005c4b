"""What reclaiming owes: a flag for each record that was deleted or has expired, and nothing wholly below the floor.

Flags are written at the end of a round, behind its snapshot, and segments are removed behind that (decision 24). No
frame says that a round came to its end. So of a flag that is not there, and of a segment that should have gone, nobody
can say whether a crash broke the round off, or the last snapshots were those of clean ends, which flag nothing, or it
was lost: that is undecidable, and told. What the older of the two kept snapshots does not know as ended is not owed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Final

from topics.audit.recovery import RecoveredDirectory, current
from topics.audit.scan.rows import SegmentRow, Severity, Violation
from topics.host.checkpoint.snapshots import KEPT_MAX
from topics.log.image import TopicImage
from topics.log.topic import Topic

_DEAD, _TOLD = 1, 2  # of a seq: it has ended; and its files say so, or it has no bytes that could
_OWED: Final = bytes(value == _DEAD for value in range(256))


def check_endings(state: RecoveredDirectory, rows: Sequence[SegmentRow]) -> Iterator[Violation]:
    """A row for each segment with records that ended before the older snapshot and are not marked so in its files."""
    kept = dict.fromkeys(one.number for one in state.read.restored.kept)
    images = [snapshot.state.topics for number, snapshot in state.snapshots if number in kept]
    if len(images) < KEPT_MAX:
        return
    older = {image.topic_id: image for image in images[-1]}
    for topic, own in current(state, rows):
        image = older.get(topic.topic_id)
        if image is not None and image.dead:
            yield from _check_topic(topic, image, own)


def _check_topic(topic: Topic, image: TopicImage, rows: Sequence[SegmentRow]) -> Iterator[Violation]:
    counted = dict.fromkeys(map(attrgetter("first"), image.segments))
    for row in rows:
        task = row.task
        if task.cold or task.first not in counted:
            continue
        seqs = _not_marked(image, topic.index.base_seq, row)
        if seqs:
            many = "seq" if len(seqs) == 1 else f"{len(seqs)} seqs from"
            detail = (
                f"{many} {seqs[0]} ended before the older snapshot, and neither data nor idx say so: a round "
            )
            detail += (
                "that was broken off, or flags that are lost; the next checkpoint behind a start sets them"
            )
            yield Violation(
                topic.name, task.file, "segment.marks", Severity.UNDECIDABLE, seqs[0], None, detail
            )


def _not_marked(image: TopicImage, base: int, row: SegmentRow) -> list[int]:
    first, last = max(row.task.first, base), row.task.last
    at = bisect_left(image.dead, first, key=itemgetter(1))
    dead = []
    while at < len(image.dead) and image.dead[at][0] <= last:
        dead.append(image.dead[at][:2])
        at += 1
    if not dead or first > last:
        return []
    marks = bytearray(last + 1 - first)
    _mark(marks, dead, first, _DEAD)
    for told in (row.deleted, row.expired, row.missing, row.damaged):
        _mark(marks, told, first, _TOLD)
    return list(compress(range(first, last + 1), marks.translate(_OWED)))


def _mark(marks: bytearray, ranges: Sequence[tuple[int, int]], first: int, value: int) -> None:
    """What a range holds gets this value, whatever it had before."""
    for start, end in ranges:
        a, b = max(start - first, 0), min(end + 1 - first, len(marks))
        if a < b:
            marks[a:b] = bytes((value,)) * (b - a)
