"""Metrics: what the server counts, as Prometheus text or as JSON (http-api 11).

Theory. Nobody writes to a metric on a hot path. Each owner keeps its own plain numbers (a shard its `WalMeter`, the
site its answers, a topic its index), and they are read when somebody asks. Only the two histograms are fed as things
happen: one observation a sync, and one an answer that was waited for.

A scrape has two halves. `take` copies the numbers on the loop, in slices, because only there they hold still; `text`
and `json` make the page, milliseconds of Python for a thousand topics, and are called in a thread. The registry is the
server's own: nothing here is global to the process.

Series a topic are bounded: above the bound, the topics created last are counted in the totals only.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import msgspec
import trio
from prometheus_client import CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from topics.host.damages import known_damages
from topics.log.topic import Topic
from topics.server.runtime.tiers import TierFigures, tier_families
from topics.store.writer import WalMeter

if TYPE_CHECKING:
    from topics.server.runtime.runtime import Runtime

METRIC_TOPICS_MAX: Final = 1000
TEXT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
SYNC_BUCKETS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
)  # fmt: skip
DELIVERY_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REFUSED: Final = "(refused)"  # the route of heads that were refused before a handler was asked

TopicRow = tuple[str, int, int, int, int, int, int]
_TOPIC_GAUGES: Final = (
    ("topics_topic_records", "Live records of the topic"),
    ("topics_topic_bytes", "Stored bytes of data and meta of the topic's live records"),
    ("topics_topic_head_seq", "The topic's last published seq"),
    ("topics_topic_durable_seq", "The highest seq of the topic that a power cut now would leave"),
    ("topics_topic_earliest_seq", "The topic's first live record, or one above its head"),
    ("topics_topic_evict_floor", "1 + the highest seq that the topic lost to its caps or its TTL"),
)
_encode: Final = msgspec.json.Encoder().encode


class Traffic(Protocol):
    """What the site counts; `site.Site` is one."""

    @property
    def counts(self) -> Mapping[tuple[str, int], int]:
        """Answers by route and status; the route is `""` for a head that was refused."""
        ...

    @property
    def bugs(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...

    @property
    def unsent_bytes(self) -> int: ...

    @property
    def unsent_dropped(self) -> int: ...

    @property
    def progress(self) -> float: ...

    @property
    def is_ready(self) -> bool: ...

    @property
    def uptime_s(self) -> float: ...


class PortCounts(Protocol):
    """Connections since the start."""

    accepted: int
    refused: int
    handshakes_failed: int
    bugs: int
    forced: int


class Port(Protocol):
    """What the listener counts; `listener.Listener` is one."""

    @property
    def connections(self) -> int:
        """Open now."""
        ...

    @property
    def counts(self) -> PortCounts: ...


_PORT_COUNTERS: Final = (
    ("topics_connections_accepted", "Connections since the start", "accepted"),
    ("topics_connections_refused", "Connections let go because there were too many", "refused"),
    ("topics_tls_handshakes_failed", "Connections that failed their TLS handshake", "handshakes_failed"),
    ("topics_connection_bugs", "Connections ended by an exception that nobody expected", "bugs"),
    ("topics_connections_forced", "Connections that a drain closed by force", "forced"),
)


@attrs.frozen(kw_only=True)
class ShardFigures:
    shard: int
    counts: WalMeter
    read_only: bool
    disk_low: bool


@attrs.frozen(kw_only=True)
class Snapshot:
    """The numbers of one scrape. `topics`: a name and a figure for each of `_TOPIC_GAUGES`, up to the bound."""

    ready: bool
    progress: float
    uptime_s: float
    answers: Mapping[tuple[str, int], int]
    bugs: int
    held_bytes: int
    unsent_bytes: int
    unsent_dropped: int
    connections: int = 0
    port_counts: Mapping[str, int] = attrs.field(factory=dict)
    in_flight: int = 0
    waiting_readers: int = 0
    tombstones: Mapping[str, int] = attrs.field(factory=dict)
    shards: Sequence[ShardFigures] = ()
    checkpoints: int = 0
    checkpoints_failed: bool = False
    damages: int = 0
    tiers: TierFigures = attrs.field(factory=TierFigures)
    rewritten_bytes: int = 0
    freed_bytes: int = 0
    topics: Sequence[TopicRow] = ()
    topic_count: int = 0
    record_count: int = 0
    record_bytes: int = 0


class Metrics:
    """One server's metrics. `topics_max`: how many topics get series of their own. `port`: None if nobody listens."""

    def __init__(self, *, version: str, topics_max: int = METRIC_TOPICS_MAX) -> None:
        self.port: Port | None = None
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
            "From the ts (whole ms) of a topic's last write to the answer of a long poll that waited for it",
            registry=self._registry,
            buckets=DELIVERY_BUCKETS_S,
        )

    def observe_sync(self, seconds: float) -> None:
        self._syncs.observe(seconds)

    def observe_delivery(self, seconds: float) -> None:
        """Of an answer that was waited for. A clock that stepped back counts as 0."""
        self._deliveries.observe(max(seconds, 0.0))

    async def take(self, traffic: Traffic, runtime: Runtime | None) -> Snapshot:
        """The numbers as they are now. `runtime`: None while the log is being recovered."""
        shown = Snapshot(
            ready=traffic.is_ready,
            progress=traffic.progress,
            uptime_s=traffic.uptime_s,
            answers=dict(traffic.counts),
            bugs=traffic.bugs,
            held_bytes=traffic.held_bytes,
            unsent_bytes=traffic.unsent_bytes,
            unsent_dropped=traffic.unsent_dropped,
        )
        if self.port is not None:
            counts = {field: getattr(self.port.counts, field) for _, _, field in _PORT_COUNTERS}
            shown = attrs.evolve(shown, connections=self.port.connections, port_counts=counts)
        if runtime is None:
            return shown
        shown = attrs.evolve(
            shown,
            in_flight=runtime.in_flight,
            waiting_readers=runtime.hub.readers,
            tombstones=dict(runtime.tombstones),
            shards=_shard_figures(runtime),
            tiers=TierFigures.of(runtime.opened),
            damages=len(known_damages(runtime.opened)),
        )
        if (compactor := runtime.compactor) is not None:
            shown = attrs.evolve(
                shown,
                checkpoints=compactor.rounds,
                checkpoints_failed=compactor.failures > 0,
                rewritten_bytes=compactor.reclaimer.rewritten_bytes,
                freed_bytes=compactor.reclaimer.freed_bytes,
            )
        return await self._take_topics(shown, runtime.engine.topic_figures())

    def text(self, taken: Snapshot) -> bytes:
        """The page for Prometheus, of TEXT_TYPE."""
        return generate_latest(_Page(self._families(taken)))

    def json(self, taken: Snapshot) -> bytes:
        """`[{name, type, help, samples: [{name, labels, value}]}]`: the same families, names and values."""
        return _encode([_family_fields(family) for family in self._families(taken)])

    async def _take_topics(self, shown: Snapshot, figures: Iterator[tuple[Topic, int]]) -> Snapshot:
        rows: list[TopicRow] = []
        count = records = size = 0
        for topic, durable_seq in figures:
            index = topic.index
            count += 1
            records += index.live_count
            size += index.live_bytes
            if count <= self._topics_max:
                rows.append(_topic_row(topic, durable_seq))
            if shown.tiers.add(topic):
                await trio.lowlevel.checkpoint()
        return attrs.evolve(shown, topics=rows, topic_count=count, record_count=records, record_bytes=size)

    def _families(self, taken: Snapshot) -> Iterator[Metric]:
        build = {"version": self._version, "python": platform.python_version()}
        yield InfoMetricFamily("topics_build", "The version of this server", value=build)
        yield _gauge("topics_uptime_seconds", "Since the start of the process", taken.uptime_s)
        yield _gauge("topics_ready", "1 if requests are served", taken.ready)
        yield _gauge(
            "topics_replay_progress_ratio", "How far the recovery of the log is, 0 to 1", taken.progress
        )
        yield from _traffic_families(taken)
        yield from _wal_families(taken.shards)
        failed = taken.checkpoints_failed
        yield _gauge("topics_checkpoints_failed", "1 if the last one failed: see the log", failed)
        yield _gauge("topics_damages", "Damages found by the start and since: see ready", taken.damages)
        for name, what, value in (
            ("checkpoints", "Checkpoints since the start", taken.checkpoints),
            ("segment_rewritten_bytes", "Written anew as half of a segment was dead", taken.rewritten_bytes),
            ("segment_freed_bytes", "By which segments got smaller by that", taken.freed_bytes),
        ):
            yield CounterMetricFamily(f"topics_{name}", what, value=value)
        yield _counters(
            "topics_tombstones",
            "Reads that were answered with a tombstone, by its reason",
            ("reason",),
            {(reason,): count for reason, count in taken.tombstones.items()},
        )
        yield from tier_families(taken.tiers)
        yield from self._topic_families(taken)
        for family in self._registry.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family

    def _topic_families(self, taken: Snapshot) -> Iterator[Metric]:
        yield _gauge("topics_topics", "Topics", taken.topic_count)
        yield _gauge("topics_records", "Live records of all topics", taken.record_count)
        yield _gauge(
            "topics_record_bytes", "Stored bytes of data and meta of all live records", taken.record_bytes
        )
        bound = f"; series of their own have the {self._topics_max} topics created first"
        for column, (name, what) in enumerate(_TOPIC_GAUGES, 1):
            family = GaugeMetricFamily(name, what + bound, labels=("topic",))
            for row in taken.topics:
                family.add_metric((row[0],), float(row[column]))
            yield family


def _shard_figures(runtime: Runtime) -> Sequence[ShardFigures]:
    """Of every shard that is written to, and of every one that is not because its log is damaged."""
    read_only = set(runtime.engine.read_only_shards)
    figures = {
        task.writer.shard: ShardFigures(
            shard=task.writer.shard,
            counts=attrs.evolve(task.meter),
            read_only=task.writer.shard in read_only,
            disk_low=task.writer.disk_low,
        )
        for task in runtime.shards
    }
    for shard in read_only - figures.keys():
        figures[shard] = ShardFigures(shard=shard, counts=WalMeter(), read_only=True, disk_low=False)
    return [figures[shard] for shard in sorted(figures)]


def _topic_row(topic: Topic, durable_seq: int) -> TopicRow:
    index = topic.index
    return (
        topic.name,
        index.live_count,
        index.live_bytes,
        index.head_seq,
        durable_seq,
        index.base_seq,
        topic.evict_floor,
    )


class _Page(Collector):
    """What `generate_latest` takes for a registry."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _traffic_families(taken: Snapshot) -> Iterator[Metric]:
    yield _counters(
        "topics_requests",
        f"Answers by route and status; {_REFUSED} are those whose head was refused before a handler was asked",
        ("route", "status"),
        {(route or _REFUSED, str(status)): count for (route, status), count in taken.answers.items()},
    )
    yield _counters("topics_request_bugs", "Exceptions that no handler expected", (), {(): taken.bugs})
    yield _gauge("topics_request_held_bytes", "Bytes of request bodies held in memory", taken.held_bytes)
    yield _gauge("topics_unsent_bytes", "Bytes of answers held in memory", taken.unsent_bytes)
    yield _counters(
        "topics_unsent_dropped",
        "Answers dropped because their peers did not take them and no memory was left to keep them",
        (),
        {(): taken.unsent_dropped},
    )
    yield _gauge("topics_connections", "Open connections", taken.connections)
    for name, what, field in _PORT_COUNTERS:
        yield _counters(name, what, (), {(): taken.port_counts.get(field, 0)})
    yield _gauge("topics_commands_in_flight", "Commands proposed and not yet answered", taken.in_flight)
    yield _gauge("topics_waiting_readers", "Long polls that wait for news", taken.waiting_readers)


def _wal_families(shards: Sequence[ShardFigures]) -> Iterator[Metric]:
    for name, what, field in (
        ("topics_wal_written_bytes", "Bytes of frames written to the log", "bytes"),
        ("topics_wal_frames", "Frames written to the log", "frames"),
        ("topics_wal_batches", "Batches written to the log, one system call each", "batches"),
        ("topics_wal_syncs", "Batches that were synced", "syncs"),
    ):
        counted: dict[tuple[str, ...], int] = {
            (str(figures.shard),): getattr(figures.counts, field) for figures in shards
        }
        yield _counters(name, what, ("shard",), counted)
    for name, what, field in (
        (
            "topics_wal_shard_read_only",
            "1 if a write or sync of the shard failed, which a restart recovers, or its log is damaged",
            "read_only",
        ),
        ("topics_wal_shard_disk_low", "1 if the shard refuses appends for want of space", "disk_low"),
    ):
        family = GaugeMetricFamily(name, what, labels=("shard",))
        for figures in shards:
            family.add_metric((str(figures.shard),), float(getattr(figures, field)))
        yield family


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(name, what, value=float(value))


def _counters(name: str, what: str, labels: Sequence[str], counts: Mapping[tuple[str, ...], int]) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for values, count in sorted(counts.items()):
        family.add_metric(values, float(count))
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
