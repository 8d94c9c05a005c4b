"""What watchers were told over the wire, held against the pages that the engine had decided.

The ledger checks a page at the instant it is decided. Here: a record that a watcher is told was in such a page, a
tombstone was that of one, and a seq that he is told nothing of was passed over by one that asked what he asks. So what
is lost, told twice or told wrongly between the pages and the wire, over rewinds and restarts, does not add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import msgspec

from topics.codec.log.frame import FrameView
from topics.log.floors import Reason
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.match import Match
from topics.simulation.oracle import PromiseBroken


class WireWatches:
    """Of one server's life; `begin` starts the next."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int, int], bytes] = {}
        self.gaps: set[tuple[str, int, str, int, int]] = set()
        self.passed: dict[tuple[str, int, frozenset[bytes], Match | None], set[int]] = {}

    def begin(self) -> None:
        self.records.clear()
        self.gaps.clear()
        self.passed.clear()

    def planned(self, query: DiffQuery, plan: DiffPlan, views: Sequence[FrameView]) -> None:
        """A page is decided."""
        start, gap = plan.from_seq, plan.gap
        if gap is not None:
            self.gaps.add((plan.topic, plan.epoch, gap.reason.value, gap.gap_from, gap.gap_to))
            if gap.reason is not Reason.RECREATED:  # which says that all of it is another topic
                start = gap.gap_to
        passed = self.passed.setdefault((plan.topic, plan.epoch, query.nodes, query.match), set())
        passed.update(range(start + 1, plan.next_from_seq + 1))
        for view in views:
            self.records[plan.topic, plan.epoch, view.seq] = view.data
            passed.discard(view.seq)


@attrs.frozen
class PagesOf:
    """The `Truth` of whoever asks this."""

    wire: WireWatches
    nodes: frozenset[bytes]
    match: Match | None

    def record(self, topic: str, epoch: int, seq: int, data: Any) -> None:
        planned = self.wire.records.get((topic, epoch, seq))
        if planned is None or msgspec.json.decode(planned) != data:
            raise PromiseBroken(
                f"seq {seq} of {topic} came as {data!r:.100}, and the page had {planned!r:.100}"
            )

    def lost(self, topic: str, tombstone: Mapping[str, Any]) -> None:
        reason = tombstone.get("cause", tombstone["reason"])
        gap = (topic, tombstone["epoch"], reason, tombstone["gap_from"], tombstone["gap_to"])
        if gap not in self.wire.gaps:
            raise PromiseBroken(f"a tombstone that no page had: {tombstone}")

    def silent(self, topic: str, epoch: int, first: int, last: int) -> None:
        passed = self.wire.passed.get((topic, epoch, self.nodes, self.match), set())
        for seq in range(first, last + 1):
            if seq not in passed:
                raise PromiseBroken(
                    f"a watcher was told nothing of seq {seq} of {topic}, in ({first - 1}, {last}] of epoch {epoch}"
                )
