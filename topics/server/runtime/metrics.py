"""Metrics: what the server counts, as Prometheus text or as JSON (http-api 11).

A scrape has two halves: `figures` copies the numbers on the loop; `text` and `json` make the page, milliseconds of
Python for a thousand topics, and are called in a thread. Only the histograms are fed as things happen: one observation
a sync, one an answer that was waited for, one a topic whose watchers were not told at once. The registry is the
server's own, not the process's.

Series a topic are bounded: above the bound, the topics created last are counted in the totals only.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from topics.sched.bands import NAMES
from topics.server.runtime.figures import MetricsSnapshot, PortCounts, Traffic, take_figures
from topics.server.runtime.latency import BUCKETS_S

if TYPE_CHECKING:
    from topics.embed.aio.runtime import Runtime

METRIC_TOPICS_MAX: Final = 1000
TEXT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
SYNC_BUCKETS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
DELIVERY_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
TURN_BUCKETS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_REFUSED: Final = "(refused)"  # the route of heads that were refused before a handler was asked

# Family, what it is, and where its number stands.
_GAUGES: Final = (
    ("uptime_seconds", "Since the start of the process", "traffic.uptime_s"),
    ("ready", "1 if requests are served", "traffic.ready"),
    ("replay_progress_ratio", "How far the recovery of the log is, 0 to 1", "traffic.progress"),
    ("request_held_bytes", "Bytes of request bodies held in memory", "traffic.held_bytes"),
    ("unsent_bytes", "Bytes of answers held in memory", "traffic.unsent_bytes"),
    ("connections", "Open connections", "port.open"),
    ("commands_in_flight", "Commands proposed and not yet answered", "in_flight"),
    ("waiting_readers", "Long polls that wait for news", "waiting_readers"),
    ("pressure", "How overloaded the server is, 0 to 1: at 0 all watchers are told at once", "pressure"),
    ("held_topics", "Topics below priority 0 whose watchers are not told while pressure is high", "held_topics"),
    ("streams", "Streams of events and WebSockets that are open", "traffic.streams"),
    ("watch_sessions", "Watches that have a stream or may get one", "traffic.watch_sessions"),
    ("dead_letter_blocked", "Records that could not go to another topic yet: it is full, or the disk is",
     "dead_letter_blocked"),
    ("schedules", "Schedules", "schedules"),
    ("schedules_blocked", "Schedules that cannot fire: topic or disk is full (tried again), or zone unknown",
     "schedules_blocked"),
    ("routers", "Routers", "router_count"),
    ("checkpoints_failed", "1 if the last one failed: see the log", "checkpoints_failed"),
    ("damages", "Damages found by the start and since: see ready", "damages"),
    ("cold_store_failing",
     "1 if the cold store failed when it was last asked to keep or drop a segment", "tiers.failing"),
    ("topics", "Topics", "topic_count"),
    ("records", "Live records of all topics", "record_count"),
    ("record_bytes", "Stored bytes of data and meta of all live records", "record_bytes"),
)  # fmt: skip
_COUNTERS: Final = (
    ("request_bugs", "Exceptions that no handler expected", "traffic.bugs"),
    ("slow_requests", "Requests that took slow_request_ms or longer: see the log", "traffic.slow_requests"),
    ("connections_accepted", "Connections since the start", "port.accepted"),
    ("connections_refused", "Connections let go because there were too many", "port.refused"),
    ("tls_handshakes_failed", "Connections that failed their TLS handshake", "port.handshakes_failed"),
    ("connection_bugs", "Connections ended by an exception that nobody expected", "port.bugs"),
    ("connections_forced", "Connections that a drain closed by force", "port.forced"),
    ("unsent_dropped",
     "Answers dropped because their peers did not take them and no memory was left to keep them",
     "traffic.unsent_dropped"),
    ("slow_consumers", "Watches cut off because their client took nothing", "traffic.slow_consumers"),
    ("checkpoints", "Checkpoints since the start", "checkpoints"),
    ("segment_rewritten_bytes", "Written anew as half of a segment was dead", "rewritten_bytes"),
    ("segment_freed_bytes", "By which segments got smaller by that", "freed_bytes"),
    ("cold_reads", "Reads of cold segments", "tiers.reads"),
    ("cold_read_bytes", "Bytes read from cold segments", "tiers.read_bytes"),
    ("cold_read_seconds", "How long reads of cold segments took, together", "tiers.read_seconds"),
    ("cold_reads_failed", "Reads that the cold store failed", "tiers.reads_failed"),
    ("cold_reads_refused", "Reads refused because too many waited", "tiers.reads_refused"),
    ("relocated_segments", "Segments moved to the cold tier", "tiers.relocated"),
    ("relocated_bytes", "Bytes of data moved to the cold tier", "tiers.relocated_bytes"),
    ("returned_segments", "Segments brought back to be rewritten", "tiers.returned"),
)  # fmt: skip
_TIER_GAUGES: Final = (
    ("segments", "Segments by tier", "segments"),
    ("segment_bytes", "Bytes of segments' data by tier", "bytes"),
)
_SHARD_COUNTERS: Final = (
    ("wal_written_bytes", "Bytes of frames written to the log", "counts.bytes"),
    ("wal_frames", "Frames written to the log", "counts.frames"),
    ("wal_batches", "Batches written to the log, one system call each", "counts.batches"),
    ("wal_syncs", "Batches that were synced", "counts.syncs"),
)
_SHARD_GAUGES: Final = (
    ("wal_shard_read_only",
     "1 if it is not written: a write or sync failed, which a restart recovers, or the log is damaged or newer",
     "read_only"),
    ("wal_shard_disk_low", "1 if the shard refuses appends for want of space", "disk_low"),
    ("wal_shard_free_bytes",
     "Free where the log or the segments lie, whichever is less, when the shard last made a file; 0: not written",
     "free_bytes"),
)  # fmt: skip
_TOPIC_GAUGES: Final = (
    ("topic_records", "Live records of the topic"),
    ("topic_bytes", "Stored bytes of data and meta of the topic's live records"),
    ("topic_head_seq", "The topic's last published seq"),
    ("topic_durable_seq", "The highest seq of the topic that a power cut now would leave"),
    ("topic_earliest_seq", "The topic's first live record, or one above its head"),
    ("topic_evict_floor", "1 + the highest seq that the topic lost to its caps or its TTL"),
)
_QUEUE_GAUGES: Final = (
    ("queue_ready", "Jobs of the queue that nobody has and anybody may get"),
    ("queue_in_flight", "Jobs of the queue that are leased, or on their way to its dead letters"),
    ("queue_delayed", "Jobs of the queue that wait for their time, or to be tried again"),
    ("queue_dead_lettered", "Jobs that the queue gave up, since it was created"),
    ("queue_paused", "1 if the queue hands out nothing"),
    ("queue_oldest_job_timestamp_seconds",
     "When the oldest job of the queue that is not done was put, in seconds since 1970; none if it has no jobs"),
)  # fmt: skip
_QUEUE_COUNTERS: Final = (
    ("queue_claims", "Claims that the queue has answered, with jobs or without"),
    ("queue_claimed_jobs", "Jobs that the queue has leased to somebody"),
    ("queue_acked_jobs", "Jobs of the queue that were done"),
    ("queue_nacked_jobs", "Jobs of the queue that were given back, to be tried again or given up"),
    ("queue_expired_leases", "Leases of the queue that ran out"),
)
_encode: Final = msgspec.json.Encoder().encode
_Values = Mapping[Any, float]  # by the values of the labels, in their order


class Metrics:
    """One server's metrics. `topics_max`: how many topics get series of their own. `port`: the listener's counts."""

    def __init__(self, *, version: str, topics_max: int = METRIC_TOPICS_MAX) -> None:
        self.port = PortCounts()
        self._version = version
        self._topics_max = topics_max
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._syncs = Histogram(
            "topics_fsync_duration_seconds",
            "How long the fdatasync of a batch took",
            registry=self._registry,
            buckets=SYNC_BUCKETS_S,
        )
        self._deliveries = Histogram(
            "topics_delivery_latency_seconds",
            "From the ts (whole ms) of a topic's last write until what is sent of it was made for who waited: each long"
            " poll, and the first of the watchers who share a page",
            registry=self._registry,
            buckets=DELIVERY_BUCKETS_S,
        )
        self._turns = Histogram(
            "topics_scheduling_latency_seconds",
            "How long a topic whose watchers could not be told at once waited for its turn, coalescing apart",
            registry=self._registry,
            buckets=TURN_BUCKETS_S,
        )

    def observe_sync(self, seconds: float) -> None:
        self._syncs.observe(seconds)

    def observe_delivery(self, seconds: float) -> None:
        """Of an answer that was waited for. A clock that stepped back counts as 0."""
        self._deliveries.observe(max(seconds, 0.0))

    def observe_turn(self, seconds: float) -> None:
        """Of a topic whose watchers were not told at once."""
        self._turns.observe(seconds)

    async def take(
        self, traffic: Traffic, runtime: Runtime | None, sees: Callable[[str], bool] = bool
    ) -> MetricsSnapshot:
        """The numbers as they are now. `runtime`: None while the log is being recovered. `sees`: which topics count."""
        return await take_figures(traffic, self.port, runtime, topics_max=self._topics_max, sees=sees)

    def text(self, taken: MetricsSnapshot) -> bytes:
        """The page for Prometheus, of TEXT_TYPE."""
        return generate_latest(_ScrapedPage(self._families(taken)))

    def json(self, taken: MetricsSnapshot) -> bytes:
        """`[{name, type, help, samples: [{name, labels, value}]}]`: the same families, names and values."""
        return _encode([_family_fields(family) for family in self._families(taken)])

    def _families(self, taken: MetricsSnapshot) -> Iterator[Metric]:
        build = {"version": self._version, "python": platform.python_version()}
        yield InfoMetricFamily("topics_build", "The version of this server", value=build)
        for name, what, place in _GAUGES:
            yield _gauges(name, what, (), {(): _at(taken, place)})
        for name, what, place in _COUNTERS:
            yield _counters(name, what, (), {(): _at(taken, place)})
        yield _counters(
            "requests",
            f"Answers by route and status; {_REFUSED} are those whose head was refused before a handler was asked",
            ("route", "status"),
            {
                (route or _REFUSED, str(status)): count
                for (route, status), count in taken.traffic.answers.items()
            },
        )
        yield _latencies(taken.traffic.latencies)
        yield _counters(
            "tombstones",
            "Reads that were answered with a tombstone, by its reason",
            ("reason",),
            {(reason,): count for reason, count in taken.tombstones.items()},
        )
        yield _gauges(
            "ready_topics",
            "Topics whose watchers are still to be told, by band of effective priority: its lower bound",
            ("band",),
            {(name,): count for name, count in zip(NAMES, taken.ready_by_band, strict=True)},
        )
        yield _gauges(
            "wal_size_bytes",
            "Bytes of the log's files, with the room reserved ahead; none while the store is not written",
            (), {} if taken.log_bytes is None else {(): taken.log_bytes},
        )  # fmt: skip
        for name, what, field in _TIER_GAUGES:
            by_tier = {(tier,): _at(taken.tiers, f"{tier}_{field}") for tier in ("hot", "cold")}
            yield _gauges(name, what, ("tier",), by_tier)
        make: Callable[..., Metric]
        for rows, make in ((_SHARD_COUNTERS, _counters), (_SHARD_GAUGES, _gauges)):
            for name, what, place in rows:
                by_shard = {(str(shard.shard),): _at(shard, place) for shard in taken.shards}
                yield make(name, what, ("shard",), by_shard)
        bound = f"; series of their own have the {self._topics_max} topics created first"
        for of_topic, rows_of, make in (
            (_TOPIC_GAUGES, taken.topics, _gauges), (_QUEUE_GAUGES, taken.queues, _gauges),
            (_QUEUE_COUNTERS, taken.queue_counts, _counters),
        ):  # fmt: skip
            for column, (name, what) in enumerate(of_topic, 1):
                values: _Values = {(row[0],): row[column] for row in rows_of if row[column] is not None}  # type: ignore[misc]  # a name is in the first column alone
                yield make(name, what + bound, ("topic",), values)
        yield _gauges(
            "consumer_lag",
            f"Seqs of the topic that the consumer has not read yet{bound}, and the first {self._topics_max} consumers"
            " of these",
            ("topic", "consumer"),
            {(topic, consumer): lag for topic, consumer, lag in taken.consumers},
        )
        first = f"; of the first {self._topics_max} routers, by name"
        yield _gauges(
            "router_lag", f"Seqs of the router's source that it has not dealt with yet{first}", ("router",),
            {(router,): lag for router, lag, _ in taken.routers},
        )  # fmt: skip
        yield _counters(
            "router_forwarded", f"Copies that the router has made, since it was{first}", ("router",),
            {(router,): total for router, _, total in taken.routers},
        )  # fmt: skip
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class _ScrapedPage(Collector):
    """What `generate_latest` takes for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _at(figures: Any, place: str) -> float:
    for name in place.split("."):
        figures = getattr(figures, name)
    return float(figures)


def _gauges(name: str, what: str, labels: Sequence[str], values: _Values) -> Metric:
    return _filled(GaugeMetricFamily(f"topics_{name}", what, labels=labels), values)


def _counters(name: str, what: str, labels: Sequence[str], values: _Values) -> Metric:
    return _filled(CounterMetricFamily(f"topics_{name}", what, labels=labels), dict(sorted(values.items())))


def _latencies(found: Mapping[str, tuple[Sequence[int], float]]) -> Metric:
    family = HistogramMetricFamily(
        "topics_request_duration_seconds",
        "From when the whole request was there until its answer was made, less what it waited for news or jobs"
        " because it asked to",
        labels=("route",),
    )
    bounds = [str(bound) for bound in BUCKETS_S] + ["+Inf"]
    for route, (counts, seconds) in sorted(found.items()):
        family.add_metric(
            (route,), buckets=list(zip(bounds, accumulate(counts), strict=True)), sum_value=seconds
        )
    return family


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    for labels, value in values.items():
        family.add_metric(labels, float(value))
    return family


def _family_fields(family: Metric) -> dict[str, object]:
    return {
        "name": family.name,
        "type": family.type,
        "help": family.documentation,
        "samples": [
            {"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in family.samples
        ],
    }
