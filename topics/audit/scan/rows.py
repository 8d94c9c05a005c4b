"""What a scan says of a file, and what a check says of what is wrong: plain values that cross processes.

A row is small beside its file: a few numbers, ranges, and for records that lie in the log, too, a checksum each. What
one file shows to be wrong is in its row already, as flaws; what only several files show is found by `checks`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from topics.host.directory.layout import segment_path
from topics.host.segments.segment_seals import OF_FORMAT_1, Seal

FLAWS_MAX: Final = 1000  # of one check, that a row lists of one file; one more says how many others there are
Ranges = tuple[tuple[int, int], ...]  # of seqs, both ends included


class Severity(StrEnum):
    """How bad it is.

    ERROR: bytes that were promised are wrong or gone, or files contradict each other. UNDECIDABLE: damage and a write
    that was cut off cannot be told apart. NOTE: worth knowing and of no harm, as what a crash left behind.
    """

    ERROR = "error"
    UNDECIDABLE = "undecidable"
    NOTE = "note"

    def __str__(self) -> str:
        return self.value


@attrs.frozen
class Violation:
    """One row of the report. `topic`: its name, `#<id>` if it has none, "" if it is nobody's. `offset`: in `file`."""

    topic: str
    file: str
    check: str
    severity: Severity
    seq: int | None
    offset: int | None
    detail: str

    @property
    def key(self) -> tuple[str, str, int, int]:
        """What makes two the same, whatever else they say."""
        return (
            self.file,
            self.check,
            -1 if self.seq is None else self.seq,
            -1 if self.offset is None else self.offset,
        )


@attrs.frozen
class Flaw:
    """What a scan of one file found to be wrong by itself."""

    check: str
    seq: int | None
    offset: int | None
    detail: str
    severity: Severity = Severity.ERROR


@attrs.frozen(kw_only=True)
class SegmentTask:
    """A segment to be scanned, as the state or a kept snapshot counts it: seqs [first, last] in `size` bytes of data.

    `compare_from`: the records from here on lie in the log, too, so the row gets a checksum of each. `cold`: its data
    is in the other tier. `stale`: only an older snapshot counts it, so it may have been rewritten since: how far it
    goes says its idx. `seal`: of the files beside the data.
    """

    topic_id: int
    first: int
    last: int
    size: int
    sealed: bool
    cold: bool = False
    stale: bool = False
    compare_from: int | None = None
    seal: Seal = OF_FORMAT_1

    @property
    def file(self) -> str:
        return self.part("data")

    def part(self, suffix: str) -> str:
        return segment_path(self.topic_id, self.first, suffix)


@attrs.frozen(kw_only=True)
class SegmentRow:
    """What a segment holds.

    `damaged`, `missing`: seqs without an intact record, with and without damaged bytes that could be it. `deleted`:
    those whose delete byte or idx flag says so; `expired`: those whose idx flag does. `prints`: the frames' checksums,
    u64 little-endian, of the seqs [print_first, print_first + count); zero where there is no record.
    """

    task: SegmentTask
    records: int
    size: int
    ts_first: int
    ts_last: int
    damaged: Ranges
    missing: Ranges
    deleted: Ranges
    expired: Ranges
    print_first: int
    prints: bytes
    flaws: tuple[Flaw, ...]


@attrs.frozen(kw_only=True)
class WalTask:
    """A file of the log to be scanned. `archived`: it is kept for restores, so nobody asks for its records."""

    generation: int
    shard: int
    first_frame: int
    file: str
    archived: bool = False


@attrs.frozen
class WalSpan:
    """Records of a topic, seqs from `first` on, that lie in a WAL file from `offset` on. `prints`: as of a segment."""

    topic_id: int
    first: int
    offset: int
    prints: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.prints) // 8 - 1


@attrs.frozen(kw_only=True)
class WalRow:
    """What a WAL file holds: what `engine.recovery.judge` needs to know of it, and its records in the order of the log.

    `broken`: (offset, size, claimed topic id and seq, 0 and 0 if nothing plausible) of damaged bytes. `unknown`: offset
    and type of frames that this version does not know.
    """

    task: WalTask
    size: int
    header_defect: str
    blank: bool
    frames: int
    beyond: int
    end: int
    stopped_at: int
    clean: bool
    defect: str
    stop: int
    followed: bool
    marks: tuple[tuple[int, int], ...]
    broken: tuple[tuple[int, int, int, int], ...]
    unknown: tuple[tuple[int, int], ...]
    spans: tuple[WalSpan, ...]


Task = SegmentTask | WalTask
Row = SegmentRow | WalRow
