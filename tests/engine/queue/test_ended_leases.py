"""The ends of leases are told to who asks, once each, whatever ends them (queues 2)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.driving import config
from tests.engine.queue.driving import Queue
from topics.engine.commands import Extend, Purge, PutTopic, Release
from topics.log.jobs.transitions import JobState


class Told(Queue):
    """A queue of which somebody is told when leases end."""

    def __init__(self, **fields):
        super().__init__(**fields)
        self.jobs_given = []
        self.too_soon = []
        self.asks()

    def asks(self):
        self.do(self.claiming(told_end=True))
        self.told()

    @property
    def topic_id(self):
        return self.topic("q").topic_id

    def told(self):
        """By queue the jobs whose leases have ended since the last time, ascending."""
        ended = self.engine.take_effects().ended_leases
        if self.too_soon:  # none of them goes on after all
            ended.setdefault(self.topic_id, []).extend(self.too_soon)
            self.too_soon = []
        return {topic_id: sorted(seqs) for topic_id, seqs in ended.items()}

    def is_leased(self, job):
        return self.topic("q").jobs.is_leased(job.seq, (job.nonce, job.counter))

    def leased(self):
        """The leases that last, each by its job."""
        rows = self.topic("q").jobs.rows
        live = (row for row, state in enumerate(rows.state) if state == JobState.IN_FLIGHT)
        return {rows.seqs[row]: rows.counters[row] for row in live}

    def carry_out(self, kind, what):
        if kind == "put":
            self.jobs(*range(what))
        elif kind == "claim":
            self.jobs_given += self.claim(what)
        elif kind in ("ack", "nack"):
            getattr(self, kind)(*what)
        elif kind == "extend":
            self.do(Extend(topic="q", node=b"w", seqs=what, lease_ms=1500))
        elif kind == "release":
            meant = [job for job in self.jobs_given if job.seq in what]
            leases = [(job.nonce, job.counter) for job in meant]
            self.do(Release(topic="q", seqs=[job.seq for job in meant], leases=leases))
        elif kind == "extend late":  # its frame is written when the lease has run out, perhaps
            seqs, ms = what
            self.propose(Extend(topic="q", node=b"w", seqs=seqs, lease_ms=1500))
            self.clock.advance(ms)
            self.engine.tick()
            self.too_soon = self.engine.take_effects().ended_leases.get(self.topic_id, [])
            self.run()
        elif kind == "passes":
            self.passes(what)
        elif kind == "look":  # which lets time pass, too; the alarm that is due then tells
            self.clock.advance(what)
            self.state("q")
            self.passes(0)
        elif kind == "delete":
            self.delete("q", before_seq=what)
        elif kind == "purge":
            self.do(Purge(topic="q"))
        else:
            self.drop("q")
            self.put("q", type="queue", lease_ms=1000)


SEQS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["put", "claim"]), st.integers(1, 3)),
        st.tuples(st.sampled_from(["ack", "nack", "extend", "release"]), SEQS),
        st.tuples(st.just("extend late"), st.tuples(SEQS, st.integers(1, 1500))),
        st.tuples(st.sampled_from(["passes", "look"]), st.integers(1, 1500)),
        st.tuples(st.just("delete"), st.integers(1, 6)),
        st.tuples(st.sampled_from(["purge", "drop"]), st.just(0)),
    ),
    max_size=30,
)


@pytest.mark.rule("Q2.3", "Q2.8")
@given(steps=STEPS)
@settings(max_examples=150, deadline=None)
def test_each_end_of_a_lease_is_told_once(steps):
    q = Told(lease_ms=1000)
    for step in steps:
        before, topic_id = q.leased(), q.topic_id
        q.carry_out(*step)
        is_other, after = q.topic_id != topic_id, q.leased()

        ended = sorted(seq for seq, lease in before.items() if is_other or after.get(seq) != lease)
        assert q.told() == ({topic_id: ended} if ended else {}), step
        lasting = {job.seq: job.counter for job in q.jobs_given if q.is_leased(job)}
        assert lasting == after
        if is_other:
            q.asks()


@pytest.mark.rule("Q2.8")
def test_a_lease_that_runs_out_while_its_extension_is_written_has_not_ended():
    q = Told(lease_ms=1000)
    q.jobs(1, 2)
    q.claim(2)
    q.propose(Extend(topic="q", node=b"w", seqs=[1], lease_ms=1500))
    q.clock.advance(1100)
    q.engine.tick()

    assert q.told() == {q.topic_id: [2]}
    q.run()
    assert q.told() == {}
    assert list(q.leased()) == [1]
    q.passes(2000)
    assert q.told() == {q.topic_id: [1]}


@pytest.mark.rule("Q2.8")
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("extended_ms", "counts"), [(100, False), (1500, True)])
def test_how_long_a_lease_lasts_says_the_last_extension_of_it_that_is_on_its_way(
    several, extended_ms, counts
):
    q = Queue(lease_ms=1000)
    q.jobs(1, 2)
    q.claim(2)
    extending = q.propose(Extend(topic="q", node=b"w", seqs=[1], lease_ms=extended_ms))
    q.clock.advance(900 if not counts else 1100)
    acking = q.propose(q.acking(*([2, 1] if several else [1])))
    q.run()

    assert extending.result().seqs == [1]
    acked = [2] * (several and not counts) + [1] * counts
    assert list(acking.result().seqs) == acked
    assert [seq for seq in (1, 2) if not q.topic("q").index.is_live(seq)] == acked
    q.agrees()


@pytest.mark.rule("Q1.9")
def test_a_lease_that_runs_out_while_its_extension_is_written_still_has_its_place_in_flight():
    q = Queue(lease_ms=1000, max_in_flight=1)
    q.jobs(1, 2)
    q.claim()
    extending = q.propose(Extend(topic="q", node=b"w", seqs=[1], lease_ms=1500))
    q.clock.advance(1100)
    claiming = q.propose(q.claiming(wait_ms=5000))
    q.run()

    assert extending.result().seqs == [1]
    assert q.counts() == (1, 1, 0)
    q.ack(1)
    assert [job.seq for job in claiming.result().jobs] == [2]


def changed_to(**fields):
    return PutTopic(topic="q", config=config(type="queue", **fields))


@pytest.mark.rule("Q2.8")
@pytest.mark.parametrize(
    "command", [Extend(topic="q", node=b"w", seqs=[1], lease_ms=5000), changed_to(lease_ms=5000)]
)
def test_a_lease_that_runs_out_while_something_that_fails_is_written_has_ended(command):
    q = Told(lease_ms=1000)
    q.jobs(1)
    q.claim()
    q.propose(command)
    q.take()
    q.clock.advance(1100)
    q.engine.tick()
    assert q.told() == {}
    q.fail()
    assert q.told() == {q.topic_id: [1]}


def test_whoever_does_not_ask_is_told_nothing():
    q = Queue()
    q.jobs(1)
    q.claim()
    q.ack(1)
    assert q.engine.take_effects().ended_leases == {}


def test_a_lease_of_another_start_is_another_one():
    q = Told()
    q.jobs(1)
    (job,) = q.claim()
    assert q.is_leased(job)
    assert not q.is_leased(job._replace(nonce=job.nonce + 1))
