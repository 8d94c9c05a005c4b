"""What a job waits for: each rule that keeps it from being handed out now (queues 3), in the order in which they bind.

The rules are those of `engine.queue`; what only a server knows, who asks for jobs now, is not told of here.
"""

from __future__ import annotations

from array import array
from operator import and_
from typing import Final

from topics.codec.why import Wait
from topics.log.index import IS_LIVE
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic

_PRIORITY_BYTE: Final = 7 if array("Q", (1,)).tobytes()[0] else 0  # of `pack_job`
_PRIORITY_OF: Final = bytes(max(high - 1, 0) for high in range(256))  # absent is 0


def waits_of(topic: Topic, seq: int, now_ms: int) -> list[Wait]:
    """Of a live job, as of the last `Jobs.advance`."""
    jobs = topic.jobs
    assert jobs is not None
    row = jobs.row(seq)
    match jobs.state(seq):
        case JobState.MOVING:
            return [Wait(on="move")]
        case JobState.IN_FLIGHT:
            return [Wait(on="lease", until=jobs.rows.until[row])]
        case JobState.DELAYED:
            on = "retry" if jobs.rows.deliveries[row] else "delay"
            found = [Wait(on=on, until=jobs.waiting_since(seq))]
        case _:
            found = []
    if jobs.paused:
        found.append(Wait(on="paused"))
    found += _bounds(topic, jobs, seq, now_ms)
    if jobs.state(seq) is JobState.READY and (ahead := _ahead(topic, jobs, seq)):
        found.append(Wait(on="turn", ahead=ahead))
    return found or [Wait(on="worker")]


def _bounds(topic: Topic, jobs: Jobs, seq: int, now_ms: int) -> list[Wait]:
    config, index, found = topic.config, topic.index, []
    key = 0 if index.key_ids is None else index.key_ids[index.position(seq)]
    if config.max_in_flight_per_key and key:
        taken = jobs.key_leases.get(key, 0)
        if config.max_in_flight_per_key == 1:
            rests = jobs.state(seq) is JobState.DELAYED and jobs.rows.deliveries[jobs.row(seq)] > 0
            taken += jobs.key_rests.get(key, 0) - rests  # it does not wait for itself
        if taken >= config.max_in_flight_per_key:
            found.append(Wait(on="key", key=index.keys.name(key).decode("utf-8", "backslashreplace")))
    if config.max_in_flight and jobs.counts[JobState.IN_FLIGHT] >= config.max_in_flight:
        found.append(Wait(on="max_in_flight"))
    limit = config.rate_limit
    if limit is not None and (tokens := jobs.bucket.at(now_ms, limit)) < limit.per_ms:
        found.append(Wait(on="rate_limit", until=now_ms + -(-(limit.per_ms - tokens) // limit.count)))
    return found


def _ahead(topic: Topic, jobs: Jobs, seq: int) -> int:
    """How many ready jobs come first: of a higher priority, or of the same and handed out before or of a lower seq.

    By columns: there may be a million.
    """
    index, rows = topic.index, jobs.rows
    own, at = jobs.priority(seq), index.position(seq) - index.start
    ready = bytearray(index.flags[index.start : index.stop].translate(IS_LIVE))
    back = bytearray(len(ready))
    for row, other in enumerate(rows.seqs):
        if other and rows.state[row] != JobState.READY:
            ready[index.position(other) - index.start] = 0
        elif other and rows.deliveries[row]:
            back[index.position(other) - index.start] = 1
    priorities = bytes(len(ready))
    if index.jobs is not None:
        priorities = index.jobs[index.start : index.stop].tobytes()[_PRIORITY_BYTE::8].translate(_PRIORITY_OF)
    higher = priorities.translate(bytes(value > own for value in range(256)))
    same = bytearray(map(and_, ready, priorities.translate(bytes(value == own for value in range(256)))))
    ahead: int = sum(map(and_, ready, higher))
    if back[at]:
        ahead += sum(map(and_, same[:at], back[:at]))
    else:
        ahead += sum(same[:at]) + sum(map(and_, same[at:], back[at:]))
    return ahead
