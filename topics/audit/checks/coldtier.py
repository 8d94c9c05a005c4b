"""Cold segments under a check: which of them nobody could look at, and which are not where they should be (storage 6).

Whoever looks at a data directory answers for all of its records, those in the cold tier too. So one that nobody could
look at is an error, as one that is gone: nothing says that it is right. Whether it is *gone* says only the store's own
cold tier, which has the note of the data directory; of another place it is known only that the segment is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Row, SegmentRow, SegmentTask, Severity, Violation
from topics.codec.manifest import MANIFEST_FILE
from topics.host.cold.cold_messages import ADOPT, told_foreign
from topics.host.cold.ownership import (
    NOTE_FILE,
    Whose,
    is_copy,
    is_foreign,
    note_of,
    told_own,
    told_theirs,
    whose,
)
from topics.host.cold.segment_stores import OWNER_FILE, SegmentStore
from topics.kernel.ports import Disk
from topics.log.regions import SegmentId

HOW: Final = "name their place with --cold-dir or TOPICS_COLD_DIR"


def reach(
    disk: Disk, store: SegmentStore | None, unseen: str = HOW
) -> tuple[SegmentStore | None, str]:  # fmt: skip
    """The store if it answers, and is not another one's; else None, and why it cannot be looked at."""
    if store is None:
        return None, unseen
    try:
        theirs = store.read_owner()
    except OSError as error:
        return None, f"{store.where} fails ({error.strerror or error}): see that it can be reached, or {HOW}"
    if is_foreign(note_of(disk), theirs):
        return None, told_foreign(store.where)
    return store, unseen


def check_notes(disk: Disk, state: RecoveredDirectory) -> Iterator[Violation]:
    """The notes of whose the cold segments are. Without one of them nothing is lost, and nothing moves any more."""
    expected = sum(segment.cold for topic in state.topics.values() for segment in topic.segments)
    place = "the cold tier" if state.cold is None else state.cold.where
    ours = note_of(disk)
    is_backup = disk.size(MANIFEST_FILE) is not None  # one of an earlier version has none
    if not is_copy(ours) and (why := told_own(ours, place, 0 if is_backup else expected)):
        yield Violation("", NOTE_FILE, "cold", Severity.NOTE, None, None, why)
    if state.cold is not None and (why := told_theirs(state.cold.read_owner(), place, expected)):
        yield Violation("", OWNER_FILE, "cold", Severity.NOTE, None, None, why)


def check_cold(
    disk: Disk, state: RecoveredDirectory, rows: Sequence[Row], unseen: str = HOW
) -> Iterator[Violation]:
    """The segments that the state says are in the cold tier and whose data nobody has read. `unseen`: why, without a
    store. A row of the idx alone does not tell.
    """
    for row in rows:
        if isinstance(row, SegmentRow) and row.task.cold and not row.task.stale and row.task.size:
            if not row.size and (why := _why(disk, state.cold, row.task, unseen)):
                detail = f"seqs {row.task.first} to {row.task.last}: {why}"
                yield state.violation(
                    row.task.topic_id, row.task.file, "segment.record", row.task.first, 0, detail
                )


def _why(disk: Disk, store: SegmentStore | None, task: SegmentTask, unseen: str) -> str:
    if store is None:
        return f"they are in the cold tier and were not looked at: {unseen}"
    if store.exists(SegmentId(task.topic_id, task.first), "data"):
        return ""
    gone = f"their data is not in the cold tier {store.where}"
    found = whose(disk, store)
    if found is Whose.UNKNOWN:
        return f"{gone}: as this directory has no {NOTE_FILE}, another copy may have removed them; `{ADOPT}` first"
    if not found.complete:
        return f"{gone}, which is not that of this directory ({NOTE_FILE} and its OWNER differ): {HOW}"
    return gone
