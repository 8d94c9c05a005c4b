"""Whose turn it is, where the order of ready jobs was once wrong (queues 1, 3)."""

import pytest

from tests.engine.driving import config
from tests.engine.queue.driving import Queue
from topics.engine.commands import Ack, Extend, Nack, PutMode, PutTopic
from topics.engine.tickets import Stage
from topics.log.jobs.transitions import JobState


@pytest.mark.rule("Q3.1")
def test_priority_0_is_none():
    q = Queue()
    q.jobs(b"1", b"2", b"3", priority=[0, None, 0])
    assert q.seqs(3) == [1, 2, 3]


@pytest.mark.rule("Q1.8")
def test_a_delayed_job_has_waited_since_its_delay_was_over():
    q = Queue(starvation_ms=1000, starvation_share=100)
    q.jobs(b"late", delay_ms=5000)
    q.passes(4500)
    q.jobs(b"new", priority=9)
    q.passes(600)
    q.begin(q.replay())  # the order is made anew from what is there
    assert q.seqs(2) == [2, 1]


@pytest.mark.rule("Q1.8")
def test_a_job_is_starved_when_it_was_ready_for_longer_than_that():
    q = Queue(starvation_ms=1000, starvation_share=100)
    q.jobs(b"old")
    q.passes(1000)
    q.jobs(b"new", priority=9)
    assert q.seqs() == [2]
    q.nack(2, delay_ms=0)
    q.passes(1)
    assert q.seqs() == [1]


@pytest.mark.rule("Q1.8")
def test_of_those_that_starve_equally_the_lower_seq_is_first():
    q = Queue(starvation_ms=100, starvation_share=100)
    q.jobs(b"1", b"2")
    q.jobs(b"3", delay_ms=50)
    q.passes(50)
    q.jobs(b"4")
    q.passes(101)
    assert q.seqs(4) == [1, 2, 3, 4]


@pytest.mark.rule("Q1.8")
def test_a_claim_that_is_full_of_bytes_takes_no_turn_from_the_starved():
    q = Queue(starvation_ms=1000, starvation_share=10)
    q.jobs(*[b"old"] * 5)
    q.passes(1001)
    q.jobs(*[b"x" * 10] * 100, priority=9)
    handed_out = [seq for _ in range(20) for seq in q.seqs(10, bytes_max=10)]
    assert handed_out.index(1) == 9
    assert handed_out.index(2) == 19


@pytest.mark.rule("Q0.1")
@pytest.mark.parametrize("own", [True, False])
def test_a_job_whose_time_has_passed_is_not_handed_out(own):
    q = Queue(**({} if own else {"ttl_ms": 100}))
    q.jobs(b"1")
    q.passes(60)
    q.jobs(b"2", **({"ttl_ms": 40} if own else {}))
    q.jobs(b"3", delay_ms=10)
    q.clock.advance(41)  # nobody has looked since
    assert q.seqs(3) == ([1, 3] if own else [2, 3])


def test_peeking_changes_nothing():
    q = Queue(starvation_share=1)
    q.jobs(*[b"j"] * 5, priority=[None, 3, None, 3, None])
    wanted = [view.seq for view in q.peek(5)]
    assert wanted == [view.seq for view in q.peek(5)] == q.seqs(5) == [2, 4, 1, 3, 5]


def test_jobs_that_come_back_again_and_again_leave_nothing():
    q = Queue(starvation_ms=0, starvation_share=50)
    q.jobs(b"always ready", b"starved", priority=[9, 0])
    for _ in range(3000):
        seqs = q.seqs(2)
        q.nack(*seqs, delay_ms=0)
        q.clock.advance(1)
    order = q.engine.state.lanes_by_name["q"].queue.order
    assert (
        sum(map(len, (order._waits, *(heap for rank in order._ranks for heap in (rank.back, rank.late)))))
        < 12_000
    )


def test_whoever_rests_is_not_forgotten_with_deadlines_that_are_stale():
    q = Queue()
    q.jobs(b"1", b"2", b"3")
    q.jobs(b"4", delay_ms=60_000)
    q.claim(3)
    q.nack(2, delay_ms=60_000)
    for i in range(5000):
        q.do(Extend(topic="q", node=b"w", seqs=[1], lease_ms=1000 + i))
    assert q.topic("q").jobs.due.count < 4500
    q.passes(30_001)  # the deadlines of 1 and 3
    assert q.counts() == (2, 0, 2)
    q.passes(29_999)
    assert q.counts() == (4, 0, 0)


def test_what_came_back_is_not_collected_for_claimers_that_never_come():
    q = Queue()
    q.jobs(b"j")
    q.claim()
    for _ in range(20):
        q.jobs(*[b"j"] * 1000, delay_ms=1)
        q.passes(2)
        q.delete("q", before_seq=1 << 40)
    assert len(q.engine.state.lanes_by_name["q"].queue.jobs.returned or ()) < 20_000
    q.jobs(b"j")
    assert len(q.claim()) == 1


class Cohorts(Queue):
    def claims(self, *nodes):
        return [self.propose(self.claiming(1, node=node, wait_ms=None)) for node in nodes]


@pytest.mark.rule("Q3.2")
def test_the_first_of_a_cohort_changes_from_pass_to_pass():
    q = Cohorts(claim_jitter_ms=1)
    firsts = []
    for _ in range(4):
        tickets = q.claims(b"a", b"b")
        q.run()
        q.passes(1)  # nobody is served in this pass: it is nobody's turn
        q.jobs(b"j")
        firsts += [t.command.node for t in tickets if t.done]
        for ticket in tickets:
            q.engine.withdraw(ticket)
    assert firsts == [b"a", b"b", b"a", b"b"]


def test_waits_that_end_together_end_in_the_order_of_arrival():
    q = Queue()
    tickets = [q.propose(q.claiming(wait_ms=100)) for _ in range(20)]
    q.run()
    q.engine.take_effects()
    q.clock.advance(100)
    q.engine.tick()
    assert q.engine.take_effects().finished == tickets
    assert {t.stage for t in tickets} == {Stage.DONE}


@pytest.mark.rule("Q4.15")
def test_the_last_word_counts_of_a_pause_and_a_resume():
    q = Queue()
    q.jobs(b"1")
    tickets = [q.propose(q.pausing(paused)) for paused in (True, False)]
    q.run()
    assert [t.result().paused for t in tickets] == [True, False]
    assert q.seqs() == [1]
    q.agrees()


@pytest.mark.rule("Q4.15", "Q2.11")
@pytest.mark.parametrize("durability", ["ephemeral", "disk"])
def test_a_pause_survives_a_restart(durability):
    q = Queue(durability=durability)
    q.do(q.pausing(True))
    q.restart(machine_restarted=False)
    q.jobs(b"1")
    assert q.seqs() == []
    assert q.state("q").queue.paused


def test_another_rate_limit_begins_with_a_full_bucket():
    q = Queue(rate_limit={"count": 1, "per_ms": 1000})
    q.jobs(*[b"j"] * 9)
    assert len(q.seqs(9)) == 1
    limit = {"count": 4, "per_ms": 100_000}
    q.do(PutTopic(topic="q", config=config(type="queue", rate_limit=limit), mode=PutMode.REPLACE))
    assert len(q.seqs(9)) == 4
    q.agrees()


def test_a_time_as_an_ephemeral_queue_is_not_remembered():
    q = Queue(durability="ephemeral", rate_limit={"count": 2, "per_ms": 1000})
    q.jobs(b"1", b"2")
    q.ack(*q.seqs(2))
    limit = {"count": 2, "per_ms": 1000}
    q.do(PutTopic(topic="q", config=config(type="queue", rate_limit=limit), mode=PutMode.REPLACE))
    q.agrees()


@pytest.mark.rule("Q1.11")
def test_jobs_of_a_key_go_one_after_another_whatever_their_priority():
    q = Queue(max_in_flight_per_key=1)
    q.jobs(*range(6), key=[b"k", b"k", b"", b"l", b"k", b""], priority=[0, 9, 0, 0, 5, 0])
    assert q.seqs(9) == [1, 3, 4, 6]  # those without a key are free
    assert q.seqs(9) == []
    q.nack(1, delay_ms=500)
    assert q.seqs(9) == []  # its retry holds the others of its key back
    q.passes(500)
    for seq in (1, 2, 5):
        assert q.seqs(9) == [seq]
        q.ack(seq)


@pytest.mark.rule("Q1.11")
def test_what_its_producer_has_delayed_holds_nobody_of_its_key_back():
    q = Queue(max_in_flight_per_key=1)
    q.jobs(b"1", b"2", b"3", key=b"k", delay_ms=[1000, None, None])
    assert q.seqs(9) == [2]
    q.passes(1000)
    assert q.seqs(9) == []
    q.ack(2)
    assert q.seqs(9) == [1]


@pytest.mark.rule("Q1.11")
def test_of_a_key_as_many_are_leased_as_the_queue_says():
    q = Queue(max_in_flight_per_key=2)
    q.jobs(*range(5), key=b"k")
    assert q.seqs(9) == [1, 2]
    q.nack(1, delay_ms=500)
    assert q.seqs(9) == [3]  # with more than one, a retry holds nobody back
    q.passes(500)
    q.ack(2)
    assert q.seqs(9) == [1]


@pytest.mark.rule("Q1.10")
def test_where_a_lease_must_be_named_none_is_nobodys():
    q = Queue(require_lease_id=True)
    q.jobs(b"1", b"2")
    one, other = q.claim(2)
    assert q.ack(1).skipped == [1]
    assert q.nack(1, 2, leases=[None, other[1:3]]).skipped == [1]
    assert list(q.ack(1, leases=[one[1:3]]).seqs) == [1]


def test_a_peek_shows_ready_jobs_that_wait_for_others_of_their_key():
    q = Queue(max_in_flight_per_key=1, max_deliveries=1, dead_letter="dlq")
    keys = [b"a", b"a", b"", b"b", b"a", b"b"]
    q.jobs(*range(6), key=keys, priority=[0, 0, 0, 5, 0, 9])
    assert [view.seq for view in q.peek(9)] == [4, 1, 3, 2, 5, 6]
    assert [view.seq for view in q.peek(4)] == [4, 1, 3, 2]
    assert q.seqs(2) == [4, 1]
    assert [view.seq for view in q.peek(9)] == [3, 2, 5, 6]
    assert len(q.peek(9)) == q.counts()[0]
    q.ack(1, 4)
    assert [view.seq for view in q.peek(9)] == [6, 2, 3, 5]
    assert q.seqs(9) == [6, 2, 3]


def test_a_peek_of_jobs_that_nobody_may_have_yet_is_by_seq():
    q = Queue()
    q.jobs(*range(6), delay_ms=[None, 500, None, 500, 500, None])
    q.claim(3)
    q.ack(1)
    q.nack(3, delay_ms=100)  # its row is another one's
    assert [view.seq for view in q.peek(2, JobState.DELAYED)] == [2, 3]
    assert [view.seq for view in q.peek(9, JobState.DELAYED)] == [2, 3, 4, 5]
    assert [view.seq for view in q.peek(9, JobState.IN_FLIGHT)] == [6]


def test_what_was_delayed_and_is_due_before_anybody_asks_keeps_its_place():
    q = Queue(max_in_flight_per_key=1)
    q.jobs(*range(6), delay_ms=[100, None, 100, None, 100, 900], key=[b"", b"", b"k", b"k", b"", b""],
           priority=[0, 0, 0, 9, 5, 0])  # fmt: skip
    q.passes(101)
    assert q.seqs(9) == [5, 1, 2, 3]


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize("starved", [False, True])
def test_many_jobs_that_become_due_at_once_go_in_the_order_of_few(looks, starved):
    q = Queue(starvation_ms=0 if starved else 3_600_000, starvation_share=100 if starved else 1)
    count = 300
    delays = [1 + (seq * 7) % 5 for seq in range(1, count + 1)]
    priorities = [seq % 10 for seq in range(1, count + 1)]
    q.jobs(*range(count), delay_ms=delays, priority=priorities)
    q.jobs(*range(3), priority=[0, 9, 0])
    if looks:
        q.peek(1)  # there is an order, to which they come later
    q.passes(10)
    q.peek(1000)
    found = range(1, count + 4)
    delays += [0, 0, 0]
    priorities += [0, 9, 0]
    by_wait = sorted(found, key=lambda seq: (delays[seq - 1], seq))
    by_priority = sorted(found, key=lambda seq: (-priorities[seq - 1], seq))
    assert q.seqs(1000) == (by_wait if starved else by_priority)
    assert q.counts() == (0, count + 3, 0)
    q.agrees()


@pytest.mark.rule("Q1.11")
@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("say", [Ack, Nack, Extend])
def test_the_key_of_a_job_that_is_being_settled_has_no_room_though_the_lease_lapses(say, is_older):
    """It was free from then on, so the next job of the key was handed out, and then the one before it was leased."""
    q = Queue(max_in_flight_per_key=1, lease_ms=1000, leases_durable=True)
    q.jobs(b"1", b"2", key=b"k")
    assert q.seqs(2) == [1]
    if is_older:  # nobody has claimed since the start
        q.begin(q.replay())
    q.clock.advance(900)
    settling = q.propose(
        say(topic="q", node=b"w", seqs=(1,), **({"lease_ms": 1000} if say is Extend else {}))
    )
    q.clock.advance(200)
    claim = q.propose(q.claiming(2, node=b"other", wait_ms=None))
    assert claim.stage is Stage.WAITING
    q.run()
    assert list(settling.result().seqs) == [1]
    if say is Extend:
        assert claim.stage is Stage.WAITING
        assert list(q.ack(1).seqs) == [1]
    assert [job.seq for job in claim.result().jobs] == [1 if say is Nack else 2]
    q.agrees()
