"""What is said of jobs while something that was said of them before is on its way to the disk (queues 4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.queue.driving import Queue
from topics.engine.commands import Ack, Extend, Nack, Release
from topics.log.jobs.transitions import JobState

ACK = Ack(topic="q", node=b"w", seqs=[1])
NACK = Nack(topic="q", node=b"w", seqs=[1], delay_ms=0)
EXTEND = Extend(topic="q", node=b"w", seqs=[1], lease_ms=5000)


def counted(ticket):
    return list(ticket.result().seqs), list(ticket.result().skipped)


@pytest.mark.rule("Q4.7")
@pytest.mark.parametrize("last", [ACK, NACK, EXTEND])
@pytest.mark.parametrize("durable", [False, True])
def test_an_extend_on_its_way_keeps_no_later_word_from_counting(durable, last):
    q = Queue(durability="fsync", leases_durable=durable)
    q.jobs(b"1")
    q.claim()
    tickets = [q.propose(EXTEND), q.propose(EXTEND), q.propose(last)]
    q.run()
    assert [counted(ticket) for ticket in tickets] == [([1], [])] * 3
    assert q.counts() == {ACK: (0, 0, 0), NACK: (1, 0, 0), EXTEND: (0, 1, 0)}[last]
    q.agrees()


@pytest.mark.parametrize("first", [ACK, NACK])
def test_what_ends_the_lease_is_the_last_word(first):
    q = Queue(durability="fsync")
    q.jobs(b"1")
    q.claim()
    tickets = [q.propose(first), q.propose(EXTEND), q.propose(NACK), q.propose(ACK)]
    q.run()
    assert [counted(ticket) for ticket in tickets] == [([1], []), *[([], [1])] * 3]
    q.agrees()


@pytest.mark.parametrize("said", [[EXTEND], [EXTEND, EXTEND], [NACK], [EXTEND, NACK]])
@pytest.mark.parametrize("key", [b"", b"k"])
def test_a_lease_that_lapses_while_it_is_settled_is_nobody_elses(key, said):
    q = Queue(lease_ms=1000, max_in_flight_per_key=1)
    q.jobs(b"1", key=[key])
    q.claim()
    for command in said:
        q.propose(command)
    q.clock.advance(1001)
    claimed = q.propose(q.claiming(5, node=b"other"))
    q.run()
    assert claimed.result().jobs == ()
    assert q.seqs(5, node=b"other") == ([1] if NACK in said else [])


@pytest.mark.rule("Q1.9")
@pytest.mark.parametrize("rest_ms", [0, 1000])
@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("said", [EXTEND, NACK])
def test_nor_is_its_keys_place(said, cap, rest_ms):
    backoff = {"base_ms": rest_ms, "factor": 1, "max_ms": rest_ms}
    q = Queue(lease_ms=1000, max_in_flight_per_key=cap, retry_backoff=backoff)
    q.jobs(*[b"1"] * (cap + 1), key=[b"k"] * (cap + 1))
    others = q.seqs(cap)[1:]
    q.do(Extend(topic="q", node=b"w", seqs=others or [9], lease_ms=9000))
    q.propose(said)
    q.clock.advance(1001)
    claimed = q.propose(q.claiming(5))
    waiting = q.propose(q.claiming(5, wait_ms=None))
    q.run()
    assert claimed.result().jobs == ()
    assert (waiting.done and [job.seq for job in waiting.result().jobs]) == ([1] if said is NACK else False)


def never_sent(*jobs):
    leases = [(job.nonce, job.counter) for job in jobs]
    return Release(topic="q", seqs=[job.seq for job in jobs], leases=leases, was_sent=False)


@pytest.mark.rule("Q2.2")
def test_what_nobody_was_given_is_as_before():
    q = Queue(
        lease_ms=1000,
        max_deliveries=2,
        dead_letter="dlq",
        retry_backoff={"base_ms": 500, "factor": 1, "max_ms": 500},
    )
    q.jobs(b"1", b"2", b"3")
    q.claim(2)
    q.nack(1, delay_ms=0, reason=b"no paper")
    q.passes(1600)  # the lease of the second ends, and its rest
    for _ in range(5):
        jobs = q.claim(3)
        assert [(job.seq, job.deliveries) for job in jobs] == [(1, 2), (2, 2), (3, 1)]
        told = q.do(never_sent(*jobs))
        assert (list(told.seqs), told.ready, told.in_flight) == ([1, 2, 3], 3, 0)
    views = [(view.seq, view.deliveries, view.reason) for view in q.peek(3)]
    assert views == [(1, 1, b"no paper"), (2, 1, b"expired"), (3, 0, b"")]
    q.agrees()
    q.begin(q.replay())
    q.engine.resume(machine_restarted=False)
    q.run()
    assert [(view.seq, view.deliveries, view.reason) for view in q.peek(3)] == views
    assert q.topic("q").jobs.rows.count == 2  # the third is as if it had just come


def test_what_somebody_was_given_has_been_delivered():
    q = Queue()
    q.jobs(b"1")
    (job,) = q.claim()
    q.do(Release(topic="q", seqs=[1], leases=[(job.nonce, job.counter)]))
    (view,) = q.peek(1)
    assert (view.deliveries, view.reason) == (1, b"disconnect")


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("rest_ms", [0, 5000])
def test_a_lease_that_lapses_while_it_is_taken_back_leaves_its_key_alone(cap, rest_ms):
    backoff = {"base_ms": rest_ms, "factor": 1, "max_ms": rest_ms}
    q = Queue(lease_ms=1000, max_in_flight_per_key=cap, retry_backoff=backoff)
    q.jobs(*[b"1"] * 3, key=[b"k"] * 3)
    jobs = q.claim(3)
    q.propose(never_sent(*jobs))
    q.clock.advance(1001)
    assert q.counts() == ((3, 0, 0) if not rest_ms else (3 - cap, 0, cap))
    q.run()
    assert (q.counts(), q.topic("q").jobs.key_rests) == ((3, 0, 0), {})
    assert q.seqs(3) == [1, 2, 3][:cap]
    q.agrees()


def test_what_lapsed_and_was_claimed_again_still_says_why_it_failed():
    q = Queue(lease_ms=1000)
    q.jobs(b"1")
    q.claim()
    q.passes(1001)
    q.claim()
    (view,) = q.peek(1, JobState.IN_FLIGHT)
    assert view.reason == b"expired"


meant = st.sampled_from(["its own", "another", "of another start", "none"])


@pytest.mark.rule("Q4.7", "Q4.8")
@given(
    st.lists(st.tuples(st.integers(1, 9), meant), min_size=2, max_size=9, unique_by=lambda of: of[0]),
    st.booleans(),
)
def test_jobs_settled_one_by_one_count_as_those_settled_together(said, fenced):
    apart, together = Queue(require_lease_id=fenced), Queue(require_lease_id=fenced)
    found = []
    for q in (apart, together):
        q.jobs(*[b"%d" % number for number in range(8)])
        held = {job.seq: job for job in [*q.claim(4), *q.claim(2, node=b"v")]}
        seqs, leases = [seq for seq, _ in said], []
        for seq, which in said:
            lease = (held[seq].nonce, held[seq].counter) if seq in held else (1, 1)
            leases.append(
                {
                    "its own": lease,
                    "another": (lease[0], lease[1] + 9),
                    "of another start": (lease[0] + 1, lease[1]),
                }.get(which)
            )
        if q is together:
            acks = [Ack(topic="q", node=b"w", seqs=seqs, leases=leases)]
        else:
            acks = [
                Ack(topic="q", node=b"w", seqs=[seq], leases=[lease])
                for seq, lease in zip(seqs, leases, strict=True)
            ]
        told = [q.do(ack) for ack in acks]
        found.append(
            ([seq for one in told for seq in one.seqs], [seq for one in told for seq in one.skipped])
        )
    assert found[0] == found[1]
    assert apart.counts() == together.counts()
