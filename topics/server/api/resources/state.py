"""A server as its handlers see it: its options, what it counts, and the runtime once the log is recovered."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, TypeVar

import attrs
import trio

from topics.embed.aio.runtime import Runtime
from topics.embed.aio.wheel import Wheel
from topics.host.system.entropy import SystemEntropy
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import KIB, WHY_LOG_BYTES_MAX, Limits
from topics.kernel.ports import Entropy
from topics.server.api.bodies.known import KnownLabels
from topics.server.api.memory import MemoryAccount
from topics.server.api.origins import Origins
from topics.server.api.reports import RequestReports
from topics.server.api.slots import ConcurrencyLimit
from topics.server.api.watching.sessions import WatchSessions
from topics.server.auth.keys import Key, Keys
from topics.server.runtime.figures import Traffic
from topics.server.runtime.latency import RouteLatency
from topics.server.runtime.log import log
from topics.server.runtime.metrics import METRIC_TOPICS_MAX, Metrics
from topics.server.runtime.tracing import Tracing

DECODED_INLINE_BYTES_MAX: Final = 512 * KIB
DECODED_AT_ONCE: Final = 2  # large bodies: threads take turns, and each copies its payloads
T = TypeVar("T")


@attrs.frozen(kw_only=True)
class SiteOptions:
    """What the handlers need to know of the settings."""

    limits: Limits = attrs.field(factory=Limits)
    auto_create: bool = True
    origins: Origins = attrs.field(factory=Origins)
    version: str = ""
    held_bytes_max: int = 256 << 20
    unsent_bytes_max: int = 256 << 20
    bytes_per_s: int = 1024
    backup_bytes_per_s: int = 64 * 1024
    head_bytes_max: int = 32 * 1024
    head_fields_max: int = 100
    metric_topics_max: int = METRIC_TOPICS_MAX
    probe_auth: bool = False
    watch_sessions_max: int = 10_000
    streams_max: int = 10_000
    access_log: bool = False
    slow_request_s: float = 0.0
    tracing: Tracing | None = None
    why_log_bytes_max: int = WHY_LOG_BYTES_MAX
    entropy: Entropy = attrs.field(factory=SystemEntropy)


class ServerState:
    """`describe`: the API as an OpenAPI document."""

    def __init__(self, options: SiteOptions, describe: Callable[[], bytes], keys: Keys) -> None:
        self.options = options
        self.keys = keys
        self.describe = describe
        self.started = time.monotonic()
        self.progress = 0.0  # of recovery, 0 to 1
        self.draining = False
        self.counts: Counter[tuple[str, int]] = Counter()  # answers by (route name, status)
        self.latencies: defaultdict[str, RouteLatency] = defaultdict(RouteLatency)  # by route name
        self.reports = RequestReports(
            options.entropy, every=options.access_log, slow_s=options.slow_request_s, tracing=options.tracing
        )
        self.wheel = Wheel()  # of connections; whoever listens runs it
        self.bugs = 0
        self.unsent_dropped = 0  # answers that could neither be sent at once nor kept
        self.slow_consumers = 0  # watches that were cut off
        self.metrics = Metrics(version=options.version, topics_max=options.metric_topics_max)
        self.requests = MemoryAccount("requests_held_bytes", "requests", options.held_bytes_max)
        self.answers = MemoryAccount("unsent_answer_bytes", "answers", options.unsent_bytes_max)
        self.streams = ConcurrencyLimit(
            "streams", "streams of events and WebSockets", options.streams_max, variable="TOPICS_MAX_STREAMS"
        )
        self.watch_sessions = ConcurrencyLimit(
            "watch_sessions", "watches", options.watch_sessions_max, variable="TOPICS_MAX_WATCH_SESSIONS"
        )
        self._runtime: Runtime | None = None
        self._watches: WatchSessions | None = None
        self.labels = KnownLabels()
        self.decoding = trio.CapacityLimiter(DECODED_AT_ONCE)
        self.looking_back = trio.CapacityLimiter(1)  # at the log: `resources.why`

    async def decoded(self, size: int, decode: Callable[[], T]) -> T:
        """So many bytes decoded by a pure function: in a thread if they are many, so that others are served meanwhile.

        What a large body becomes takes about its size; that is held too while both are there.

        Raises:
            Rejected: throttled, or what `decode` raises, without the frames that hold what was decoded so far.
        """
        if size <= DECODED_INLINE_BYTES_MAX:
            return decode()
        async with self.decoding:
            self.requests.hold(size)
            try:
                return await trio.to_thread.run_sync(decode)
            except Rejected as refused:
                refused.__context__ = None
                raise refused.with_traceback(None) from None
            finally:
                self.requests.release(size)

    # Streams of events, and WebSockets.

    def begin_stream(self, key: Key) -> None:
        """One of the server's, and of its key's. Pair with `end_stream`. Raises `Rejected(throttled)`."""
        self.streams.take()
        try:
            key.begin_stream()
        except Rejected:
            self.streams.give()
            raise

    def end_stream(self, key: Key) -> None:
        key.end_stream()
        self.streams.give()

    # Phases.

    def begin(self, runtime: Runtime) -> None:
        """The log is recovered: requests are served from here on."""
        assert self._runtime is None
        self.progress = 1.0
        self._runtime = runtime
        self._watches = WatchSessions(self.options.entropy, runtime.wheel, self.watch_sessions)

    def told_slow(self, topics: int) -> None:
        """A watch of so many topics was cut off, for its client took nothing."""
        self.slow_consumers += 1
        log.warning("watch.slow_consumer", topics=topics)

    def watches(self) -> WatchSessions:
        """Raises `Rejected(not_ready)` while the log is being recovered."""
        self.ready_runtime()
        assert self._watches is not None
        return self._watches

    def ready_runtime(self) -> Runtime:
        if self._runtime is None:
            raise Rejected(
                Code.NOT_READY, "the log is being recovered; retry", replay_progress=round(self.progress, 3)
            )
        return self._runtime

    @property
    def runtime(self) -> Runtime | None:
        """None while the log is being recovered."""
        return self._runtime

    @property
    def uptime_s(self) -> float:
        return time.monotonic() - self.started

    @property
    def is_ready(self) -> bool:
        return self._runtime is not None and not self.draining

    @property
    def unsent_bytes(self) -> int:
        """Of answers, in memory: those being read, and those that their peers have not taken."""
        return self.answers.size

    @property
    def held_bytes(self) -> int:
        """Of requests, in memory."""
        return self.requests.size

    def traffic(self) -> Traffic:
        """What is counted here, as it is now."""
        return Traffic(
            ready=self.is_ready,
            progress=self.progress,
            uptime_s=self.uptime_s,
            answers=dict(self.counts),
            latencies={route: (tuple(one.counts), one.seconds) for route, one in self.latencies.items()},
            slow_requests=self.reports.slow,
            bugs=self.bugs,
            held_bytes=self.held_bytes,
            unsent_bytes=self.unsent_bytes,
            unsent_dropped=self.unsent_dropped,
            streams=self.streams.taken,
            watch_sessions=self.watch_sessions.taken,
            slow_consumers=self.slow_consumers,
        )
