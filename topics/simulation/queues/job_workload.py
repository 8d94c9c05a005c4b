"""What simulated workers ask of queues, beside all that clients ask for: they claim, wait, settle, answer late.

A worker remembers each lease that it was given for long, also behind a restart, so much of what it says is stale.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Final

from topics.engine.commands import (
    Ack,
    Append,
    Claim,
    Command,
    DeleteTopic,
    Extend,
    Nack,
    Pause,
    Purge,
    PutTopic,
    Redrive,
    Release,
)
from topics.engine.replies import JobsClaimed, JobsSettled, Redriven
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability, RateLimit, RetryBackoff, TopicConfig, TopicType
from topics.kernel.ids import Lease
from topics.simulation.workload import NAMES, Workload

LETTERS: Final = {"jobs": "letters", "tasks": "jobs", "sparks": "ashes"}  # of each queue
_WORKERS: Final = (b"w1", b"w2", b"w3")
_LEASES_KEPT: Final = 12
_LEASE_MS: Final = 500
_SHARE: Final = 0.5
_BACKOFF: Final = RetryBackoff(base_ms=10, factor=3.0, max_ms=400)
_RATE: Final = RateLimit(count=4, per_ms=100)
_KINDS: Final = {
    "put": 4, "append": 25, "claim": 35, "ack": 25, "nack": 8, "extend": 6, "release": 4, "pause": 3, "purge": 0.6,
    "drop": 0.6, "redrive": 2,
}  # fmt: skip


class JobWorkload(Workload):
    """Half of what is asked for is of jobs."""

    names = (*NAMES, *dict.fromkeys((*LETTERS, *LETTERS.values())))
    keeps_logs = True

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.counts: Counter[str] = Counter()
        self._leases: dict[tuple[str, bytes], list[tuple[int, Lease]]] = {}

    def command(self, heads: dict[str, int]) -> Command:
        if self._random.random() >= _SHARE:
            return super().command(heads)
        return self.of_queues(heads)

    def of_queues(self, heads: dict[str, int]) -> Command:
        """A wish of a worker, of a producer, or of whoever looks after the queue."""
        name = self._random.choice(list(LETTERS))
        return self._of_queue(name) if name in heads else self._put_queue(name)

    def answered(self, ticket: Ticket) -> None:
        command, reply = ticket.command, ticket.result()
        if isinstance(command, Claim) and isinstance(reply, JobsClaimed):
            for job in reply.jobs:
                self.leased(command.topic, command.node, job.seq, (job.nonce, job.counter))
        if isinstance(reply, JobsSettled):
            self.counts[type(command).__name__] += len(reply.seqs)
            self.counts["skipped"] += len(reply.skipped)
        if isinstance(reply, Redriven):
            self.counts["redriven"] += len(reply.seqs)

    def leased(self, topic: str, node: bytes, seq: int, lease: Lease) -> None:
        """A worker was told of a lease."""
        had = self._leases.setdefault((topic, node), [])
        had.append((seq, lease))
        del had[:-_LEASES_KEPT]
        self.counts["claimed"] += 1

    def claim(self, name: str) -> Claim:
        rng = self._random
        return Claim(
            topic=name,
            node=rng.choice(_WORKERS),
            count_max=rng.choice((1, 2, 5)),
            lease_ms=rng.choice((None, 100, 2500)),
            wait_ms=rng.choice((0, 0, 20, 1500)),
        )

    def _of_queue(self, name: str) -> Command:
        rng = self._random
        kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
        match kind:
            case "put":
                return self._put_queue(name)
            case "append":
                return self._jobs(name)
            case "claim":
                return self.claim(name)
            case "pause":
                return Pause(topic=name, paused=rng.random() < 0.3)
            case "purge":
                return Purge(topic=name)
            case "drop":
                return DeleteTopic(topic=rng.choice((name, LETTERS[name])))
            case "redrive":
                return Redrive(topic=LETTERS[name], queue=name, count_max=rng.choice((1, 3, 1000)))
            case _:
                return self._settlement(kind, name)

    def _settlement(self, kind: str, name: str) -> Command:
        rng = self._random
        name, node = rng.choice(list(self._leases) or [(name, _WORKERS[0])])
        had = self._leases.get((name, node), [])
        said = dict(rng.sample(had, min(len(had), rng.choice((1, 1, 3)))))
        seqs, leases = list(said), list(said.values())
        if kind == "ack":
            return Ack(topic=name, node=node, seqs=seqs, leases=leases)
        if kind == "nack":
            delay_ms = rng.choice((None, 0, 15, 2000))
            return Nack(topic=name, node=node, seqs=seqs, leases=leases, delay_ms=delay_ms, reason=b"no")
        if kind == "extend":
            return Extend(topic=name, node=node, seqs=seqs, leases=leases, lease_ms=rng.choice((100, 3000)))
        return Release(topic=name, seqs=seqs, leases=leases)

    def _put_queue(self, name: str) -> PutTopic:
        """How long leases last never changes, so that a lease tells when it began."""
        rng = self._random
        durabilities = {
            "jobs": (Durability.MEMORY,),
            "tasks": (Durability.DISK, Durability.FSYNC),
            "sparks": (Durability.EPHEMERAL,),
        }
        config = TopicConfig(
            type=TopicType.QUEUE,
            durability=rng.choice(durabilities[name]),
            leases_durable=name == "tasks" and rng.random() < 0.7,
            lease_ms=_LEASE_MS,
            claim_jitter_ms=rng.choice((0, 0, 15, 300)),
            max_in_flight_per_key=rng.choice((0, 1)),
            max_in_flight=rng.choice((0, 0, 3)),
            max_deliveries=rng.choice((0, 1, 3)),
            dead_letter=rng.choice((None, LETTERS[name])),
            retry_backoff=rng.choice((None, None, _BACKOFF)),
            rate_limit=rng.choice((None, None, None, _RATE)),
        )
        return PutTopic(topic=name, config=config)

    def _jobs(self, name: str) -> Append:
        rng = self._random
        count = rng.choice((1, 1, 2, 5))
        fresh = self._records(count)
        records = RecordColumns(
            fresh.data,
            key=self._column((b"", b"k1", b"k2"), count, 0.4),
            priority=self._column((None, 1, 9), count, 0.4),
            delay_ms=self._column((None, 10, 1500), count, 0.3),
        )
        return Append(topic=name, records=records, create=False)
