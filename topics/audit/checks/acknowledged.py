"""Nothing that a client was told is stored may be missing (semantics 2, spark 4).

The client's own log of acknowledgements (`acks`) is the witness. What was deleted, has expired or was evicted since is
accounted for by the topic's floors and not missing; what is lost is. Of a line without an epoch nobody knows which
topic of that name it means, so what contradicts a topic in a later epoch is undecidable.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from typing import Final

import attrs

from topics.audit.checks.acks import ANY_EPOCH, NO_DIGEST, Acks
from topics.audit.checks.records import name_ranges, out_of_reach, read_intact, why_out_of_reach
from topics.audit.columnar.sorting import sort_columns
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Ranges, Severity, Violation
from topics.codec.primitives import checksum
from topics.kernel.ports import Disk
from topics.log.topic import Topic

TOGETHER: Final = 65_536  # acknowledgements that are looked at in one go
LISTED_MAX: Final = 1000  # violations of one topic; one more row says how many there are
READ_TOGETHER: Final = 256  # seqs that are no further apart are read in one go


def check_acknowledged(disk: Disk, state: RecoveredDirectory, acks: Acks) -> Iterator[Violation]:
    """What was acknowledged and is missing, or is another record now. `disk` reads the cold tier, too, if the state has
    one.
    """
    catalog = state.read.recovered.catalog
    for (name, epoch), columns in sorted(acks.by_topic.items()):
        topic, seqs = catalog.find(name), columns[0]
        if topic is not None and epoch in (ANY_EPOCH, topic.epoch):
            told = _ToldTopic(disk, state, topic, acks.file, *sort_columns(*columns))
            found = told.violations()
            if epoch == ANY_EPOCH and topic.epoch > 1:
                found = map(_perhaps_before, found)
            yield from _some_of(found, name, acks.file)
        elif name not in catalog.epochs:
            yield _missing(
                name, acks.file, min(seqs), f"{len(seqs)} records, and there never was such a topic"
            )
        elif epoch > catalog.epochs[name]:
            last = catalog.epochs[name]
            detail = f"{len(seqs)} records of epoch {epoch}, and the topic has come to epoch {last} only"
            yield _missing(name, acks.file, min(seqs), detail)


def _perhaps_before(found: Violation) -> Violation:
    """Of a topic that was made anew, by a log that does not say which of the two it means."""
    detail = f"{found.detail}; or of the topic of that name that was deleted, for the line has no epoch"
    return attrs.evolve(found, severity=Severity.UNDECIDABLE, detail=detail)


def _some_of(found: Iterator[Violation], topic: str, file: str) -> Iterator[Violation]:
    """The first of them, and how many more there are."""
    yield from islice(found, LISTED_MAX)
    more = sum(1 for _ in found)
    if more:
        detail = f"{more} more that were acknowledged"
        yield Violation(topic, file, "acknowledged", Severity.ERROR, None, None, detail)


class _ToldTopic:
    """What clients were told of a topic: its seqs, strictly ascending, and the digest of each."""

    def __init__(
        self,
        disk: Disk,
        state: RecoveredDirectory,
        topic: Topic,
        file: str,
        seqs: array[int],
        digests: array[int],
    ) -> None:
        self.disk = disk
        self.topic = topic
        self.file = file
        self.seqs = seqs
        self.digests = digests
        self.cold = state.cold
        self.away = out_of_reach(topic, state.cold)

    def violations(self) -> Iterator[Violation]:
        yield from self._lost()
        yield from self._above()
        yield from self._undecided()
        for start in range(0, len(self.seqs), TOGETHER):
            yield from self._with_other_data(self._readable(start, start + TOGETHER))

    def _lost(self) -> Iterator[Violation]:
        for lost in self.topic.index.lost:
            start, stop = self._places(lost.first, lost.last)
            for seq in self.seqs[start:stop]:
                yield self._missing(seq, f"it was acknowledged, and is lost ({lost.reason})")

    def _above(self) -> Iterator[Violation]:
        head = self.topic.head_seq
        for at in range(bisect_right(self.seqs, head), len(self.seqs)):
            yield self._missing(self.seqs[at], f"it was acknowledged, and head_seq is {head}")

    def _undecided(self) -> Iterator[Violation]:
        """One row for all that nobody could compare."""
        count = first = last = 0
        for span in self.away:
            for seq in self._comparable(*self._places(*span)):
                first, last, count = first or seq, seq, count + 1
        if count:
            many = count > 1
            detail = f"{count} acknowledged record{'s' * many}, {name_ranges(((first, last),))}, "
            detail += f"{'are' if many else 'is'} in the cold tier, and nobody has compared their data: "
            detail += why_out_of_reach(self.cold)
            severity = Severity.UNDECIDABLE
            yield Violation(self.topic.name, self.file, "acknowledged", severity, first, None, detail)

    def _readable(self, start: int, stop: int) -> list[int]:
        """The seqs at these places that can be compared."""
        return [seq for seq in self._comparable(start, stop) if not _is_in(self.away, seq)]

    def _comparable(self, start: int, stop: int) -> Iterator[int]:
        is_live = self.topic.index.is_live
        for at in range(start, min(stop, len(self.seqs))):
            if self.digests[at] != NO_DIGEST and is_live(self.seqs[at]):
                yield self.seqs[at]

    def _with_other_data(self, seqs: list[int]) -> Iterator[Violation]:
        """Neighbours are read together, unless some that cannot be read lie between them."""

        def together(one: tuple[int, int]) -> tuple[int, int]:
            return (one[1] - one[0]) // READ_TOGETHER, bisect_right(self.away, one[1], key=itemgetter(0))

        for _, group in groupby(enumerate(seqs), key=together):
            yield from self._compare(array("Q", map(itemgetter(1), group)))

    def _compare(self, seqs: array[int]) -> Iterator[Violation]:
        damages: list[tuple[int, int, str]] = []

        def told(first: int, last: int, why: str) -> None:
            damages.append((first, last, why))

        for view in read_intact(self.disk, self.topic, seqs[0] - 1, seqs[-1], told):
            digest = self._digest_of(view.seq)
            if digest not in (NO_DIGEST, checksum(view.data)):
                yield self._missing(view.seq, "it was acknowledged with other data")
        for first, last, why in damages:
            for seq in seqs[bisect_left(seqs, first) : bisect_right(seqs, last)]:
                yield self._missing(seq, f"it was acknowledged, and cannot be read: {why}")

    def _digest_of(self, seq: int) -> int:
        at = bisect_left(self.seqs, seq)
        return self.digests[at] if at < len(self.seqs) and self.seqs[at] == seq else NO_DIGEST

    def _places(self, first: int, last: int) -> tuple[int, int]:
        return bisect_left(self.seqs, first), bisect_right(self.seqs, last)

    def _missing(self, seq: int, detail: str) -> Violation:
        return _missing(self.topic.name, self.file, seq, detail)


def _is_in(ranges: Ranges, seq: int) -> bool:
    at = bisect_right(ranges, seq, key=itemgetter(0)) - 1
    return at >= 0 and seq <= ranges[at][1]


def _missing(topic: str, file: str, seq: int, detail: str) -> Violation:
    return Violation(topic, file, "acknowledged", Severity.ERROR, seq, None, detail)
