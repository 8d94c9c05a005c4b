"""What the tiers of a store hold and what the cold one costs, as metrics (storage 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from topics.log.topic import Topic

if TYPE_CHECKING:
    from topics.store.opened import Opened

SLICE: Final = 500  # topics and segments looked at between two checkpoints: well below a millisecond


@attrs.define
class TierFigures:
    """Segments and their bytes by tier, and what happened since the start. `failing`: the cold store is, now."""

    hot_segments: int = 0
    hot_bytes: int = 0
    cold_segments: int = 0
    cold_bytes: int = 0
    reads: int = 0
    read_bytes: int = 0
    read_seconds: float = 0.0
    reads_failed: int = 0
    reads_refused: int = 0
    relocated: int = 0
    relocated_bytes: int = 0
    returned: int = 0
    failing: bool = False
    _looked: int = 0

    @staticmethod
    def of(opened: Opened) -> TierFigures:
        """What is counted, but for the segments."""
        counts = opened.cold.counts
        figures = TierFigures(
            reads=counts.reads,
            read_bytes=counts.bytes,
            read_seconds=counts.seconds,
            reads_failed=counts.failed,
            reads_refused=counts.refused,
        )
        relocator = None if opened.checkpointer is None else opened.checkpointer.relocator
        if relocator is not None:
            figures.relocated = relocator.counts.to_cold
            figures.relocated_bytes = relocator.counts.to_cold_bytes
            figures.returned = relocator.counts.to_hot
            figures.failing = relocator.failed is not None
        return figures

    def add(self, topic: Topic) -> bool:
        """Count the segments of one topic; true now and then, when a slice of looking at them is over."""
        for segment in topic.segments:
            if segment.cold:
                self.cold_segments += 1
                self.cold_bytes += segment.size
            else:
                self.hot_segments += 1
                self.hot_bytes += segment.size
        self._looked += 1 + len(topic.segments)
        if self._looked < SLICE:
            return False
        self._looked = 0
        return True


def tier_families(figures: TierFigures) -> Iterator[Metric]:
    """The families of one scrape."""
    for name, what, hot, cold in (
        ("topics_segments", "Segments by tier", figures.hot_segments, figures.cold_segments),
        ("topics_segment_bytes", "Bytes of segments' data by tier", figures.hot_bytes, figures.cold_bytes),
    ):
        family = GaugeMetricFamily(name, what, labels=("tier",))
        family.add_metric(("hot",), float(hot))
        family.add_metric(("cold",), float(cold))
        yield family
    for name, what, value in (
        ("topics_cold_reads", "Reads of cold segments", figures.reads),
        ("topics_cold_read_bytes", "Bytes read from cold segments", figures.read_bytes),
        ("topics_cold_read_seconds", "How long reads of cold segments took, together", figures.read_seconds),
        ("topics_cold_reads_failed", "Reads that the cold store failed", figures.reads_failed),
        ("topics_cold_reads_refused", "Reads refused because too many waited", figures.reads_refused),
        ("topics_relocated_segments", "Segments moved to the cold tier", figures.relocated),
        ("topics_relocated_bytes", "Bytes of data moved to the cold tier", figures.relocated_bytes),
        ("topics_returned_segments", "Segments brought back to be rewritten", figures.returned),
    ):
        yield CounterMetricFamily(name, what, value=value)
    yield GaugeMetricFamily(
        "topics_cold_store_failing",
        "1 if the cold store failed when it was last asked to keep or drop a segment",
        value=float(figures.failing),
    )
