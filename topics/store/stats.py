"""What a store holds, in numbers, as of now: for whoever runs it in his own process and scrapes no server."""

from __future__ import annotations

import attrs

from topics.engine.engine import Engine


@attrs.frozen(kw_only=True)
class StoreStats:
    """Of all topics together; internal ones are left out.

    `records`, `bytes`: that are live. `ready`, `in_flight`, `delayed`: jobs of all queues; `dead_lettered`: since each
    queue's epoch began. `segments`, `segment_bytes`: files that checkpoints have made, the cold ones too. `time_ms`:
    the store's time, which is the clock's, or that of the last record if the clock is behind it.
    """

    topics: int
    records: int
    bytes: int
    ready: int
    in_flight: int
    delayed: int
    dead_lettered: int
    segments: int
    segment_bytes: int
    time_ms: int


def stats_of(engine: Engine) -> StoreStats:
    """A look at each topic: what it takes grows with their number, not with their records."""
    states = [engine.topic_state(name) for name in engine.names()]
    queues = [state.queue for state in states if state.queue is not None]
    topics = [topic for state in states if (topic := engine.catalog.find(state.topic)) is not None]
    sizes = [segment.size for topic in topics for segment in topic.segments]
    return StoreStats(
        topics=len(states),
        records=sum(state.count for state in states),
        bytes=sum(state.bytes for state in states),
        ready=sum(queue.ready for queue in queues),
        in_flight=sum(queue.in_flight for queue in queues),
        delayed=sum(queue.delayed for queue in queues),
        dead_lettered=sum(queue.dead_lettered for queue in queues),
        segments=len(sizes),
        segment_bytes=sum(sizes),
        time_ms=engine.now_ms(),
    )
