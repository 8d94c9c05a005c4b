"""What happens to jobs together leaves what the same leaves that happens to one after another."""

from array import array
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.log.frame import Run
from topics.codec.log.leases import Claimed, Extended, Grant, Released
from topics.kernel.config import RetryBackoff, TopicConfig, TopicType
from topics.log.index import Index
from topics.log.jobs.checks import check_jobs
from topics.log.jobs.jobs import Jobs
from topics.log.past import DeathCause

NOW, COUNT = 1000, 12
seqs = st.lists(st.integers(1, COUNT), min_size=1, max_size=COUNT, unique=True)
side_by_side = st.tuples(st.integers(1, COUNT), st.integers(1, COUNT)).map(
    lambda ends: list(range(min(ends), max(ends) + 1))
)
steps = st.lists(
    st.tuples(
        st.sampled_from(["claimed", "claimed", "extended", "released", "moving", "killed", "passed"]),
        seqs | side_by_side,
        st.integers(0, 3000),
    ),
    max_size=12,
)
configs = st.builds(
    TopicConfig,
    type=st.just(TopicType.QUEUE),
    retry_backoff=st.none() | st.just(RetryBackoff(base_ms=500, factor=2.0, max_ms=5000)),
)


def queue(*, keyed):
    index = Index(of_queue=True)
    jobs = Jobs(index)
    run = Run(
        topic_id=1, ts=NOW, seq_start=1, offset=0, lengths=array("I", [50]) * COUNT, sizes=array("I", [5]) * COUNT
    )  # fmt: skip
    if keyed:
        run.keys = [b"one", b"other", b""] * (COUNT // 3)
    index.extend(run)
    jobs.freed, jobs.ended, jobs.returned = [], [], []
    return jobs


def event(kind, some, after, first_lease, leases):
    """As the log has it."""
    numbers = array("Q", some)
    of_each = array("Q", [leases.get(seq, 0) for seq in some])
    if kind == "claimed":
        half = (len(some) + 1) // 2
        grants = (Grant(b"w", NOW + after, half), Grant(b"v", NOW + after + 1, len(some) - half))
        return Claimed(7, first_lease, tuple(grant for grant in grants if grant.jobs), numbers)
    if kind == "extended":
        return Extended(b"w", NOW + after, numbers, of_each)
    return Released(
        b"w", b"why" if after % 2 else b"", numbers, of_each, array("Q", [NOW + after]) * len(some)
    )


def ones(said):
    """The same event, of one job after another."""
    if isinstance(said, Claimed):
        nodes = [(grant.node, grant.deadline) for grant in said.grants for _ in range(grant.jobs)]
        for at, (seq, (node, deadline)) in enumerate(zip(said.seqs, nodes, strict=True)):
            yield Claimed(said.nonce, said.first_lease + at, (Grant(node, deadline, 1),), array("Q", [seq]))
    elif isinstance(said, Extended):
        for seq, lease in zip(said.seqs, said.leases, strict=True):
            yield Extended(said.node, said.deadline, array("Q", [seq]), array("Q", [lease]))
    else:
        for seq, lease, at in zip(said.seqs, said.leases, said.ready_at, strict=True):
            yield Released(said.node, said.reason, array("Q", [seq]), array("Q", [lease]), array("Q", [at]))


def fold(jobs, said, config, deliveries_max):
    match said:
        case Claimed():
            jobs.claimed(said, NOW, config, deliveries_max=deliveries_max)
        case Extended():
            jobs.extended(said)
        case Released():
            jobs.released(said)


def known(jobs):
    index = jobs.index
    return (
        list(jobs.image().rows),
        jobs.counts,
        jobs.key_leases,
        jobs.key_rests,
        [jobs.state(seq) for seq in range(1, COUNT + 1) if index.is_live(seq)],
        *(sorted(told) for told in (jobs.freed, jobs.ended, jobs.returned)),
    )


@pytest.mark.rule("Q2.1")
@given(steps, configs, st.sampled_from([0, 2]), st.booleans())
def test_jobs_together_are_as_one_after_another(steps, config, deliveries_max, keyed):
    together = queue(keyed=keyed)
    apart = deepcopy(together)
    apart.index.on_killed = apart._gone  # a copy of a method is bound to what it was
    first_lease, leases = 1, {}
    for kind, some, after in steps:
        if kind == "killed":
            together.index.kill_seqs(sorted(some), DeathCause.DELETED)
            for seq in some:
                apart.index.kill_seqs([seq], DeathCause.DELETED)
        elif kind == "moving":
            together.moving(some)
            for seq in some:
                apart.moving([seq])
        elif kind == "passed":
            together.advance(NOW + after)
            apart.advance(NOW + after)
        else:
            said = event(kind, some, after, first_lease, leases)
            fold(together, said, config, deliveries_max)
            for one in ones(said):
                fold(apart, one, config, deliveries_max)
            if kind == "claimed":
                leases |= {seq: first_lease + at for at, seq in enumerate(some)}
                first_lease += len(some)
        assert known(together) == known(apart)
        check_jobs(together, together.index)
        check_jobs(apart, apart.index)
