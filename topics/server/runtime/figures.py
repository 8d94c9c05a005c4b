"""What a server has counted, copied on the loop, where alone it holds still (http-api 11).

Nobody writes to a metric on a hot path: each owner keeps its own plain numbers (a shard its `WalMeter`, the site its
answers, a topic its index), and they are read when somebody asks, in slices. How they are shown is `metrics`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import trio

from topics.engine.queue.control import QueueFigures
from topics.engine.replies import QueueState
from topics.log.topic import Topic
from topics.sched.bands import BANDS
from topics.store.damages import known_damages
from topics.store.writer import WalMeter

if TYPE_CHECKING:
    from topics.embed.aio.runtime import Runtime
    from topics.store.opened import Opened

SLICE: Final = 500  # topics and segments looked at between two checkpoints: well below a millisecond

TopicRow = tuple[str, int, int, int, int, int, int]
QueueRow = tuple[str, int, int, int, int, int, float | None]
QueueCounts = tuple[str, int, int, int, int, int]
ConsumerRow = tuple[str, str, int]
RouterRow = tuple[str, int, int]


@attrs.frozen(kw_only=True)
class Traffic:
    """What the site has counted. `answers`: by route and status; the route is `""` for a head that was refused.

    `latencies`: by route, requests in each of `latency.BUCKETS_S` and above, and how long they took together.
    """

    ready: bool
    progress: float
    uptime_s: float
    answers: Mapping[tuple[str, int], int]
    latencies: Mapping[str, tuple[Sequence[int], float]]
    slow_requests: int
    bugs: int
    held_bytes: int
    unsent_bytes: int
    unsent_dropped: int
    streams: int
    watch_sessions: int
    slow_consumers: int


@attrs.define
class PortCounts:
    """Connections since the start, and those that are `open` now."""

    open: int = 0
    accepted: int = 0
    refused: int = 0
    handshakes_failed: int = 0
    bugs: int = 0
    forced: int = 0


@attrs.frozen(kw_only=True)
class ShardFigures:
    shard: int
    counts: WalMeter
    read_only: bool
    disk_low: bool
    free_bytes: int


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
        self._looked += 1 + len(topic.segments) + 2 * (topic.jobs is not None)
        if self._looked < SLICE:
            return False
        self._looked = 0
        return True


@attrs.frozen(kw_only=True)
class MetricsSnapshot:
    """The numbers of one scrape. `topics`, and `queues` among them: a name, then its figures, up to the bound; of these
    `queue_counts`, too: what was done since the start. `consumers`: topic, name and lag, as many as topics at most;
    `routers`: name, lag and copies, likewise.
    """

    traffic: Traffic
    port: PortCounts
    in_flight: int = 0
    waiting_readers: int = 0
    pressure: float = 0.0
    ready_by_band: Sequence[int] = (0,) * BANDS
    held_topics: int = 0
    dead_letter_blocked: int = 0
    schedules: int = 0
    schedules_blocked: int = 0
    router_count: int = 0
    tombstones: Mapping[str, int] = attrs.field(factory=dict)
    shards: Sequence[ShardFigures] = ()
    checkpoints: int = 0
    checkpoints_failed: bool = False
    log_bytes: int | None = None
    damages: int = 0
    tiers: TierFigures = attrs.field(factory=TierFigures)
    rewritten_bytes: int = 0
    freed_bytes: int = 0
    topics: Sequence[TopicRow] = ()
    queues: Sequence[QueueRow] = ()
    queue_counts: Sequence[QueueCounts] = ()
    consumers: Sequence[ConsumerRow] = ()
    routers: Sequence[RouterRow] = ()
    topic_count: int = 0
    record_count: int = 0
    record_bytes: int = 0


async def take_figures(
    traffic: Traffic,
    port: PortCounts,
    runtime: Runtime | None,
    *,
    topics_max: int,
    sees: Callable[[str], bool],
) -> MetricsSnapshot:
    """The numbers as they are now. `runtime`: None while the log is being recovered. `sees`: which topics count."""
    shown = MetricsSnapshot(traffic=traffic, port=attrs.evolve(port))
    if runtime is None:
        return shown
    shown = attrs.evolve(
        shown,
        in_flight=runtime.in_flight,
        waiting_readers=runtime.hub.readers,
        pressure=runtime.hub.governor.pressure,
        ready_by_band=runtime.hub.ready.by_band,
        held_topics=runtime.hub.ready.held,
        dead_letter_blocked=runtime.engine.moves.blocked,
        schedules=runtime.engine.schedules.count(sees),
        schedules_blocked=runtime.engine.schedules.blocked,
        router_count=runtime.engine.routers.count(sees),
        routers=_router_rows(runtime, topics_max, sees),
        tombstones=dict(runtime.pages.tombstones),
        shards=_shard_figures(runtime),
        tiers=TierFigures.of(runtime.opened),
        damages=len(known_damages(runtime.opened)),
    )
    if (compactor := runtime.compactor) is not None:
        shown = attrs.evolve(
            shown,
            log_bytes=compactor.log_bytes,
            checkpoints=compactor.rounds,
            checkpoints_failed=compactor.failures > 0,
            rewritten_bytes=compactor.reclaimer.rewritten_bytes,
            freed_bytes=compactor.reclaimer.freed_bytes,
        )
    return await with_topics(shown, runtime.engine.topic_figures(topics_max, sees), topics_max, sees)


async def with_topics(
    shown: MetricsSnapshot,
    figures: Iterator[tuple[Topic, int, QueueFigures | None]],
    topics_max: int,
    sees: Callable[[str], bool],
) -> MetricsSnapshot:
    rows: list[TopicRow] = []
    queues: list[QueueRow] = []
    counts: list[QueueCounts] = []
    consumers: list[ConsumerRow] = []
    count = records = size = 0
    for topic, durable_seq, queue in figures:
        if shown.tiers.add(topic):
            await trio.lowlevel.checkpoint()
        if not sees(topic.name):
            continue
        index = topic.index
        count += 1
        records += index.live_count
        size += index.live_bytes
        if count <= topics_max:
            rows.append(_topic_row(topic, durable_seq))
            if len(topic.consumers) and len(consumers) < topics_max:
                room = topics_max - len(consumers)
                found = topic.consumers.sorted()[:room]
                consumers += [(topic.name, name, index.head_seq - at.seq) for name, at in found]
            if queue is not None:
                queues.append(_queue_row(topic, queue.state))
                counts.append((topic.name, *queue[1:]))
    shown = attrs.evolve(shown, topics=rows, queues=queues, queue_counts=counts, consumers=consumers)
    return attrs.evolve(shown, topic_count=count, record_count=records, record_bytes=size)


def _router_rows(runtime: Runtime, count_max: int, sees: Callable[[str], bool]) -> Sequence[RouterRow]:
    desk = runtime.engine.routers
    states = (desk.state(name) for name in desk.names(count_max=count_max, sees=sees))
    return [(one.definition.name, one.lag, one.forwarded_total) for one in states]


def _shard_figures(runtime: Runtime) -> Sequence[ShardFigures]:
    """Of every shard that is written to, and of every one of a store that is not."""
    read_only = set(runtime.engine.read_only_shards)
    figures = {
        task.writer.shard: ShardFigures(
            shard=task.writer.shard,
            counts=attrs.evolve(task.meter),
            read_only=task.writer.shard in read_only,
            disk_low=task.writer.disk_low,
            free_bytes=task.writer.free_bytes,
        )
        for task in runtime.shards
    }
    for shard in read_only - figures.keys():
        figures[shard] = ShardFigures(
            shard=shard, counts=WalMeter(), read_only=True, disk_low=False, free_bytes=0
        )
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


def _queue_row(topic: Topic, queue: QueueState) -> QueueRow:
    index = topic.index
    oldest_s = index.ts[index.position(index.base_seq)] / 1000 if index.live_count else None
    return (
        topic.name,
        queue.ready,
        queue.in_flight,
        queue.delayed,
        queue.dead_lettered,
        int(queue.paused),
        oldest_s,
    )
