"""What workers were told of leases, by the oracle, over crashes that take some of it."""

from __future__ import annotations

import pytest

from topics.engine.commands import Ack, Claim, Extend
from topics.engine.replies import JobsClaimed, JobsSettled, LeasedJob
from topics.kernel.config import TopicConfig, TopicType
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.job_claims import JobClaims

NOW, LEASE = 1_700_000_000_000, (7, 1)
CONFIG = TopicConfig(type=TopicType.QUEUE, lease_ms=1000)
WORKER = {"topic": "q", "node": b"w", "seqs": [1], "leases": [LEASE]}


def settled(command: Ack | Extend, *, deadline: int | None = None) -> JobsSettled:
    return JobsSettled(topic="q", seqs=command.seqs, skipped=(), ready=0, in_flight=0, deadline=deadline)


def test_an_ack_that_a_crash_took_leaves_the_lease_as_it_was_before_also_one_that_may_have_ended():
    claims = JobClaims()
    job = LeasedJob(1, *LEASE, NOW + 1000, 1, 0)
    claims.claimed(
        Claim(topic="q", node=b"w"), JobsClaimed(topic="q", topic_id=3, jobs=[job], ready=0), CONFIG, (0, 1)
    )
    claims.asking(Extend(lease_ms=1000, **WORKER))  # a crash leaves it unanswered: the lease is live, perhaps
    claims.void(0, kept=1)
    claims.restarted(leases_end=False, head_seq=1, acked={1})
    taken = Ack(**WORKER)
    claims.asking(taken)
    claims.settled(taken, settled(taken), NOW, (0, 1))
    claims.void(0, kept=0)
    claims.restarted(leases_end=False, head_seq=1, acked={1})

    again = Ack(**WORKER)
    claims.asking(again)
    claims.settled(again, settled(again), NOW, (0, 1))
    with pytest.raises(PromiseBroken, match="whose last lease is None"):
        claims.settled(again, settled(again), NOW, (0, 2))
