"""Jobs are handed out, given back and done: the engine with its log in memory (queues 2 to 4)."""

from array import array

import pytest

from tests.engine.driving import T0, config
from tests.engine.queue.driving import Queue
from topics.codec.log.leases import (
    Acked,
    Claimed,
    DeadLettered,
    Extended,
    Paused,
    Purged,
    Released,
    ReleasedAll,
    Resumed,
)
from topics.engine.commands import Ack, Claim, Extend, GiveUp, Nack, Pause, Purge, PutMode, PutTopic, Release
from topics.engine.tickets import Stage
from topics.kernel.errors import Code, Rejected
from topics.log.jobs.transitions import JobState


def test_a_job_is_leased_once_and_gone_when_it_is_done():
    q = Queue()
    q.jobs(b"1", b"2", b"3")

    (first,) = q.claim()
    assert (first.seq, first.deliveries, first.deadline) == (1, 1, T0 + 30_000)
    assert q.seqs(5) == [2, 3]
    assert q.seqs(5) == []
    assert q.counts() == (0, 3, 0)

    told = q.ack(1, 3, 9)
    assert (list(told.seqs), list(told.skipped), told.in_flight) == ([1, 3], [9], 1)
    assert q.datas("q") == [b"2"]
    assert q.ack(1).skipped == [1]
    q.agrees()


def test_a_log_has_no_jobs():
    q = Queue()
    q.put("log")
    with pytest.raises(Rejected) as refused:
        q.do(Claim(topic="log", node=b"w"))
    assert refused.value.code is Code.NOT_A_QUEUE
    with pytest.raises(Rejected) as refused:
        q.do(Claim(topic="nobody", node=b"w"))
    assert refused.value.code is Code.TOPIC_NOT_FOUND


@pytest.mark.rule("Q2.6", "Q4.7")
def test_a_lease_that_runs_out_makes_the_job_another_ones_first():
    q = Queue(lease_ms=1000)
    q.jobs(b"1", b"2", b"3")
    (mine,) = q.claim(node=b"old")
    q.passes(1000)
    assert q.counts() == (2, 1, 0)  # live at its deadline
    q.passes(1)
    assert q.counts() == (3, 0, 0)
    (again,) = q.claim(node=b"new")
    assert (again.seq, again.deliveries) == (1, 2)  # reclaimed before fresh
    assert q.ack(1, node=b"old").skipped == [1]
    assert q.ack(1, node=b"new", leases=[(mine.nonce, mine.counter)]).skipped == [1]
    assert q.ack(1, node=b"new", leases=[(again.nonce, again.counter)]).skipped == []
    q.agrees()


def test_an_extended_lease_lasts_from_then_on():
    q = Queue(lease_ms=1000)
    q.jobs(b"1")
    q.claim()
    q.passes(900)
    told = q.do(Extend(topic="q", node=b"w", seqs=[1, 2], lease_ms=5000))
    assert (list(told.seqs), told.deadline, told.skipped) == ([1], T0 + 5900, [2])
    q.passes(4900)
    assert q.counts() == (0, 1, 0)
    q.passes(101)
    assert q.counts() == (1, 0, 0)
    q.agrees()


@pytest.mark.rule("Q1.5")
def test_a_job_given_back_rests_as_the_worker_or_the_queue_says():
    q = Queue(retry_backoff={"base_ms": 1000, "factor": 2, "max_ms": 3000})
    q.jobs(b"1", b"2")
    q.claim(2)
    q.nack(1, delay_ms=50, reason=b"no")
    q.nack(2)
    assert q.counts() == (0, 0, 2)
    q.passes(50)
    assert q.seqs(2) == [1]
    q.passes(1100)  # within ten per cent of 1000
    assert q.seqs(2) == [2]
    q.nack(2)
    q.passes(1700)
    assert q.counts()[2] == 1
    q.passes(600)
    assert q.seqs(2) == [2]
    q.agrees()


def test_the_counts_of_a_settlement_are_as_of_now():
    q = Queue(lease_ms=1000)
    q.jobs(b"1", b"2")
    q.claim(2)
    q.clock.advance(5)
    told = q.nack(1)
    assert (told.ready, told.in_flight) == (1, 1)
    q.clock.advance(1000)
    told = q.ack(2)
    assert (told.ready, told.in_flight, told.skipped) == (2, 0, [2])


@pytest.mark.rule("Q3.1")
def test_order_is_priority_then_reclaimed_then_seq():
    q = Queue(starvation_share=1)
    q.jobs(b"1", b"2", b"3", b"4", priority=[None, 5, 5, 0])
    q.jobs(b"5", delay_ms=100)
    assert q.seqs(1) == [2]
    q.nack(2, delay_ms=0)
    q.passes(100)
    assert q.seqs(1) == [2]
    assert q.seqs(9) == [3, 1, 4, 5]
    q.agrees()


@pytest.mark.rule("Q1.8")
def test_the_starved_have_their_share():
    q = Queue(starvation_ms=1000, starvation_share=50)
    q.jobs(*[b"old"] * 4)
    q.passes(1001)
    q.jobs(*[b"new"] * 6, priority=9)
    assert q.seqs(8) == [5, 1, 6, 2, 7, 3, 8, 4]


def test_a_claim_waits_until_a_job_comes_and_can_be_withdrawn():
    q = Queue()
    first = q.propose(q.claiming(wait_ms=None))
    gone = q.propose(q.claiming(wait_ms=None))
    third = q.propose(q.claiming(wait_ms=5000, node=b"x"))
    q.run()
    assert [t.stage for t in (first, gone, third)] == [Stage.WAITING] * 3
    assert q.engine.withdraw(gone)
    q.jobs(b"1", b"2")
    assert first.result().jobs[0].seq == 1
    assert third.result().jobs[0].seq == 2
    late = q.propose(q.claiming(wait_ms=5000))
    q.run()
    q.passes(4999)
    assert late.stage is Stage.WAITING
    q.passes(1)
    assert late.result().jobs == ()
    q.agrees()


def test_waiting_claims_cost_no_deadline_of_their_own():
    q = Queue()
    for _ in range(50):
        q.propose(q.claiming(wait_ms=None))
    q.run()
    q.passes(3000)  # its head rests
    assert q.engine.next_deadline_ms() is None


@pytest.mark.rule("Q1.2", "Q3.2", "Q3.4")
def test_a_cohort_is_dealt_one_a_round():
    q = Queue(claim_jitter_ms=10)
    q.jobs(*[b"j"] * 5)
    tickets = [q.propose(q.claiming(3, node=node)) for node in (b"a", b"b")]
    q.run()
    q.passes(9)
    assert [t.stage for t in tickets] == [Stage.WAITING] * 2
    q.passes(1)
    assert [[job.seq for job in t.result().jobs] for t in tickets] == [[1, 3, 5], [2, 4]]
    assert {job.deadline for t in tickets for job in t.result().jobs} == {T0 + 10 + 30_000}  # from the pass
    assert len(list(q.events())) == 1  # one frame a pass
    q.agrees()


@pytest.mark.parametrize("later_ms", [0, 1000])
def test_a_cohort_that_was_withdrawn_has_no_part_in_the_next_one(later_ms):
    q = Queue(claim_jitter_ms=10)
    q.engine.withdraw(q.propose(q.claiming(wait_ms=None)))
    q.passes(later_ms)
    q.clock.advance(5)
    tickets = [q.propose(q.claiming(2, node=node)) for node in (b"a", b"b")]
    q.jobs(b"1", b"2")
    q.passes(9)
    assert [t.stage for t in tickets] == [Stage.WAITING] * 2
    q.passes(1)
    assert [len(t.result().jobs) for t in tickets] == [1, 1]


@pytest.mark.rule("Q1.2", "Q3.4")
def test_a_queue_that_gathers_cohorts_no_more_serves_the_last_one_at_once():
    q = Queue(claim_jitter_ms=10)
    q.jobs(*[b"j"] * 3)
    tickets = [q.propose(q.claiming(2, node=node)) for node in (b"a", b"b")]
    q.do(PutTopic(topic="q", config=config(type="queue"), mode=PutMode.REPLACE))
    assert [[job.seq for job in t.result().jobs] for t in tickets] == [[1, 2], [3]]
    q.agrees()


def test_a_claim_that_has_its_jobs_is_not_withdrawn():
    q = Queue(claim_jitter_ms=10)
    q.jobs(*[b"j"] * 2)
    tickets = [q.propose(q.claiming(node=node)) for node in (b"a", b"b")]
    q.clock.advance(10)
    q.engine.tick()
    assert [q.engine.withdraw(ticket) for ticket in tickets] == [False, False]
    q.run()
    assert [[job.seq for job in t.result().jobs] for t in tickets] == [[1], [2]]


@pytest.mark.rule("Q1.9")
def test_max_in_flight_bounds_the_queue():
    q = Queue(max_in_flight=2)
    q.jobs(*[b"j"] * 4)
    assert q.seqs(9) == [1, 2]
    waits = q.propose(q.claiming(9, wait_ms=None))
    q.run()
    assert waits.stage is Stage.WAITING
    q.ack(1)
    assert [job.seq for job in waits.result().jobs] == [3]


@pytest.mark.rule("Q1.9", "Q1.12")
@pytest.mark.parametrize("bound", [{"max_in_flight": 3}, {"rate_limit": {"count": 3, "per_ms": 60_000}}])
def test_what_is_on_its_way_counts_for_the_bounds(bound):
    q = Queue(**bound)
    q.jobs(*[b"j"] * 9)
    tickets = [q.propose(q.claiming(2, wait_ms=None)) for _ in range(3)]  # no frame is written yet
    assert [ticket.stage for ticket in tickets] == [Stage.PENDING, Stage.PENDING, Stage.WAITING]
    q.run()
    assert [[job.seq for job in ticket.result().jobs] for ticket in tickets[:2]] == [[1, 2], [3]]
    assert tickets[2].stage is Stage.WAITING
    q.agrees()


@pytest.mark.rule("Q1.12")
def test_the_rate_limit_is_a_bucket_that_fills_with_time():
    q = Queue(rate_limit={"count": 2, "per_ms": 1000})
    q.jobs(*[b"j"] * 6)
    assert q.seqs(9) == [1, 2]
    waits = q.propose(q.claiming(9, wait_ms=None))
    q.run()
    q.passes(499)
    assert waits.stage is Stage.WAITING
    q.passes(1)
    assert [job.seq for job in waits.result().jobs] == [3]
    q.agrees()


def test_a_paused_queue_leases_nothing_and_takes_acks():
    q = Queue()
    q.jobs(b"1", b"2")
    assert q.seqs() == [1]
    q.do(Pause(topic="q", paused=True))
    told = q.do(q.claiming())
    assert (told.jobs, told.ready) == ((), 1)
    assert list(q.ack(1).seqs) == [1]
    waits = q.propose(q.claiming(wait_ms=None))
    q.run()
    q.do(Pause(topic="q", paused=False))
    assert waits.result().jobs[0].seq == 2
    q.agrees()


@pytest.mark.rule("Q4.15")
def test_a_wait_in_a_paused_queue_ends_also_while_a_cohort_gathers():
    q = Queue(claim_jitter_ms=100)
    q.do(Pause(topic="q", paused=True))
    ticket = q.propose(q.claiming(wait_ms=50))
    q.passes(50)
    assert ticket.result().jobs == ()


@pytest.mark.rule("Q4.16")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_purge_is_answered_when_a_power_cut_brings_nothing_back(durability):
    q = Queue(durability=durability)
    q.jobs(b"1")
    ticket = q.propose(Purge(topic="q"))
    q.take()
    q.write()
    assert not ticket.done
    q.run()
    assert ticket.result().purged == 1


@pytest.mark.rule("Q2.3")
def test_a_job_that_leaves_while_its_claim_is_synced_is_not_handed_out():
    q = Queue(durability="fsync", leases_durable=True, cap_records=2)
    q.jobs(b"1", b"2")
    claim = q.propose(q.claiming(9))
    q.propose(q.appending(b"3", topic="q"))  # which takes the first
    q.run()
    assert [(job.seq, job.deliveries) for job in claim.result().jobs] == [(2, 1)]
    assert q.seqs(9) == [3]


def test_a_purge_deletes_what_is_nobodys():
    q = Queue()
    q.jobs(b"1", b"2", b"3")
    q.jobs(b"4", delay_ms=1000)
    q.claim()
    assert q.do(Purge(topic="q")).purged == 3
    assert q.counts() == (0, 1, 0)
    assert list(q.ack(1).seqs) == [1]
    q.agrees()


@pytest.mark.rule("Q1.1")
def test_a_lease_is_as_long_as_the_queue_says_and_30_s_if_it_says_nothing():
    for fields, lease_ms in (({}, 30_000), ({"lease_ms": 700}, 700)):
        q = Queue(**fields)
        q.jobs(b"1", b"2")
        assert [job.deadline for job in q.claim(2)] == [T0 + lease_ms] * 2


def test_what_a_connection_had_is_ready_when_it_has_gone():
    q = Queue()
    q.jobs(b"1", b"2")
    (mine, other) = q.claim(2)
    told = q.do(Release(topic="q", seqs=[mine.seq, other.seq], leases=[mine[1:3], (other.nonce, 99)]))
    assert (list(told.seqs), list(told.skipped)) == ([1], [2])
    assert q.counts() == (1, 1, 0)
    q.agrees()


def test_jobs_that_cannot_be_read_go_to_the_dead_letters():
    q = Queue(dead_letter="letters")
    q.jobs(b"1", b"2", b"3")
    mine, other, _ = q.claim(3)
    told = q.do(GiveUp(topic="q", seqs=[1, 2], leases=[mine[1:3], (other.nonce, 99)]))
    assert (list(told.seqs), list(told.skipped)) == ([1], [2])
    assert q.events()[-1] == DeadLettered(b"letters", b"corrupt", array("Q", [1]))
    assert [job.state for job in q.engine.peek("q", JobState.IN_FLIGHT, 9)] == [
        JobState.MOVING, JobState.IN_FLIGHT, JobState.IN_FLIGHT,
    ]  # fmt: skip
    assert q.ack(1).skipped == [1]
    q.agrees()

    without = Queue()
    without.jobs(b"1")
    (mine,) = without.claim()
    assert without.do(GiveUp(topic="q", seqs=[1], leases=[mine[1:3]])).skipped == [1]
    assert without.counts() == (0, 1, 0)


@pytest.mark.rule("Q1.6")
def test_a_restart_ends_every_lease_and_keeps_the_counts():
    q = Queue()
    q.jobs(b"1", b"2")
    q.claim()
    catalog = q.replay()
    q.begin(catalog)
    q.engine.resume(machine_restarted=False)
    q.run()
    assert q.counts() == (2, 0, 0)
    (again,) = q.claim()
    assert (again.seq, again.deliveries) == (1, 2)
    q.agrees()


@pytest.mark.rule("Q1.6", "Q2.6")
def test_a_restart_in_the_last_millisecond_of_a_lease_ends_it():
    q = Queue(lease_ms=1000, retry_backoff={"base_ms": 500, "factor": 1, "max_ms": 500})
    q.jobs(b"1")
    q.claim()
    q.clock.advance(1000)
    q.restart(machine_restarted=False)
    q.run()
    assert q.counts() == (1, 0, 0)  # ended by the restart, behind which nothing rests
    assert q.events()[-1] == ReleasedAll(b"restart")
    q.agrees()


@pytest.mark.rule("Q1.6")
def test_a_lease_that_was_over_before_the_restart_is_not_ended_by_it():
    q = Queue(lease_ms=1000, retry_backoff={"base_ms": 500, "factor": 1, "max_ms": 500})
    q.jobs(b"1")
    q.claim()
    q.clock.advance(1001)
    q.restart(machine_restarted=False)
    q.run()
    assert q.counts() == (0, 0, 1)  # the rest behind its deadline
    assert not any(isinstance(event, ReleasedAll) for event in q.events())


@pytest.mark.rule("Q1.7")
def test_a_restart_leaves_durable_leases_alone():
    q = Queue(leases_durable=True)
    q.jobs(b"1")
    (mine,) = q.claim()
    q.begin(q.replay())
    q.engine.resume(machine_restarted=False)
    assert q.counts() == (0, 1, 0)
    assert list(q.ack(1, leases=[mine[1:3]]).seqs) == [1]


@pytest.mark.rule("Q2.3")
@pytest.mark.parametrize("say", [Ack, Nack, Extend])
@pytest.mark.parametrize("how", ["delete", "cap", "ttl", "own ttl"])
def test_a_job_that_leaves_ends_its_lease_and_what_is_said_of_it_is_skipped(how, say):
    q = Queue(max_in_flight=2, max_in_flight_per_key=1)
    q.jobs(b"1", key=b"k", **({"ttl_ms": 99} if how == "own ttl" else {}))
    q.passes(1)
    q.jobs(b"2", b"3", key=[b"", b"k"])
    assert q.seqs(3) == [1, 2]
    if how == "delete":
        q.delete("q", before_seq=2)
    elif how != "own ttl":
        config = {"cap_records": 2} if how == "cap" else {"ttl_ms": 99}
        q.put("q", type="queue", max_in_flight=2, max_in_flight_per_key=1, **config)
    q.passes(99)
    assert q.counts() == (1, 1, 0)
    told = q.do(say(topic="q", node=b"w", seqs=[1, 2], **({"lease_ms": 9000} if say is Extend else {})))
    assert (list(told.seqs), told.skipped) == ([2], [1])
    assert 3 in q.seqs(3)  # there is room in the queue, and of its key
    q.agrees()


def test_jobs_of_an_ephemeral_queue_are_handed_out_too():
    q = Queue(durability="ephemeral")
    q.jobs(b"1", b"2")
    assert q.seqs(2) == [1, 2]
    assert list(q.ack(1).seqs) == [1]
    assert q.counts() == (0, 1, 0)
    q.jobs(b"3")
    assert q.do(Purge(topic="q")).purged == 1
    assert q.counts() == (0, 1, 0)
    assert q.events() == []


@pytest.mark.rule("Q4.11")
def test_a_job_that_is_being_settled_is_nobody_elses_though_its_lease_lapses():
    q = Queue(lease_ms=1000)
    q.jobs(b"1", b"2")
    q.claim(2)
    acked, given_back = q.propose(q.acking(1)), q.propose(q.nacking(2, delay_ms=0))
    q.clock.advance(2000)
    waits = q.propose(q.claiming(2, wait_ms=None))
    assert q.state("q").queue.ready == 2  # their leases are over
    assert q.peek(9) == []
    q.run()
    assert [list(ticket.result().seqs) for ticket in (acked, given_back)] == [[1], [2]]
    assert [job.seq for job in waits.result().jobs] == [2]
    q.agrees()


@pytest.mark.rule("Q4.21")
def test_a_full_disk_takes_acks_and_nacks_and_gives_no_leases():
    q = Queue()
    q.jobs(*[b"j"] * 4)
    q.claim(3)
    q.engine.space(0, q.engine.limits.wal_reserve)
    waits = q.propose(q.claiming(wait_ms=None))
    assert waits.error.code is Code.DISK_LOW
    assert list(q.ack(1).seqs) == [1]
    assert list(q.nack(2, delay_ms=0).seqs) == [2]
    assert list(q.do(Extend(topic="q", node=b"w", seqs=[3], lease_ms=9000)).seqs) == [3]
    assert q.counts() == (2, 1, 0)
    assert q.do(Purge(topic="q")).purged == 2


@pytest.mark.rule("Q1.13")
@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_a_claim_is_answered_when_its_frame_is_written_or_synced(durability, leases_durable):
    q = Queue(durability=durability, leases_durable=leases_durable)
    q.jobs(b"1")
    ticket = q.propose(q.claiming())
    q.take()
    assert not ticket.done
    q.write()
    assert ticket.done is not (leases_durable and durability == "fsync")
    q.run()
    assert ticket.result().jobs[0].seq == 1


@pytest.mark.rule("Q1.5", "Q4.5")
def test_a_delay_of_nothing_is_a_delay():
    q = Queue(retry_backoff={"base_ms": 1000, "factor": 2, "max_ms": 3000})
    q.jobs(b"1", b"2")
    q.claim(2)
    q.nack(1, delay_ms=0)
    q.nack(2)
    assert q.counts() == (1, 0, 1)


@pytest.mark.rule("Q4.11")
def test_what_is_being_settled_is_settled_once():
    q = Queue()
    q.jobs(b"1", b"2")
    q.claim(2)
    commands = q.acking(1), q.nacking(1, 2), q.acking(2)
    tickets = [q.propose(command) for command in commands]
    q.run()
    told = [(list(ticket.result().seqs), list(ticket.result().skipped)) for ticket in tickets]
    assert told == [([1], []), ([2], [1]), ([], [2])]
    assert q.counts() == (1, 0, 0)
    q.agrees()


@pytest.mark.rule("Q2.5", "Q1.6", "Q1.7")
@pytest.mark.parametrize("leases_durable", [False, True])
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
def test_an_ack_is_as_durable_as_the_topic(durability, leases_durable):
    q = Queue(durability=durability, leases_durable=leases_durable)
    q.jobs(b"1", b"2", b"3")
    q.claim(3)
    extending = Extend(topic="q", node=b"w", seqs=[3], lease_ms=5000)
    acked, *others = [q.propose(command) for command in (q.acking(1), q.nacking(2), extending)]
    q.take()
    q.write()
    assert acked.done is (durability != "fsync")
    assert {ticket.done for ticket in others} == {not (durability == "fsync" and leases_durable)}
    q.run()
    assert [list(ticket.result().seqs) for ticket in (acked, *others)] == [[1], [2], [3]]


@pytest.mark.rule("Q2.8")
def test_time_is_let_pass_by_a_wake_up_though_nobody_waits():
    q = Queue(lease_ms=1000)
    q.jobs(b"1", b"2")
    q.jobs(b"3", delay_ms=300)
    q.claim()
    counts = q.topic("q").jobs.counts
    for due_ms, before, after in ((300, [0, 1, 1, 0], [0, 0, 1, 0]), (1001, [0, 0, 1, 0], [1, 0, 0, 0])):
        q.clock.set(T0 + due_ms - 1)
        q.engine.tick()
        assert (counts, q.engine.next_deadline_ms()) == (before, T0 + due_ms)
        q.clock.advance(1)
        q.engine.tick()
        assert counts == after


@pytest.mark.rule("Q2.8", "Q4.13")
def test_a_peek_is_as_of_now_and_leases_nothing():
    q = Queue(lease_ms=1000)
    q.jobs(b"1", b"2")
    q.jobs(b"3", delay_ms=500)
    q.claim()
    states = (JobState.READY, JobState.IN_FLIGHT, JobState.DELAYED)
    for _ in range(2):
        assert [[view.seq for view in q.peek(9, state)] for state in states] == [[2], [1], [3]]
    q.clock.advance(1001)  # nobody has looked since
    for state, seqs in zip(reversed(states), ([], [], [1, 2, 3]), strict=True):
        assert [view.seq for view in q.peek(9, state)] == seqs
    assert q.events() == q.events()[:1]


@pytest.mark.rule("Q4.10")
def test_the_reason_is_that_of_the_last_delivery():
    q = Queue(lease_ms=1000)
    q.jobs(b"1")
    reasons = []
    for ends in ("said", "expired", "said nothing"):
        q.claim()
        if ends == "expired":
            q.passes(1001)
        else:
            q.nack(1, delay_ms=0, reason=b"no" if ends == "said" else b"")
        reasons += [view.reason for view in q.peek(9)]
    assert reasons == [b"no", b"expired", b""]
    q.agrees()


@pytest.mark.rule("Q2.13")
def test_the_rest_behind_a_lease_counts_from_its_deadline_whenever_somebody_looks():
    q = Queue(lease_ms=1000, retry_backoff={"base_ms": 500, "factor": 1, "max_ms": 500})
    q.jobs(b"1")
    q.claim()
    q.clock.set(T0 + 1450 - 1)  # within ten per cent of 500
    assert q.counts() == (0, 0, 1)
    q.clock.set(T0 + 1550)
    assert q.counts() == (1, 0, 0)
    q.claim()
    q.clock.set(T0 + 1550 + 1551)  # nobody has looked for as long as both
    assert q.seqs() == [1]


@pytest.mark.rule("Q2.10", "Q2.5")
def test_a_pass_and_a_settlement_are_a_frame_each_of_the_queue():
    q = Queue(claim_jitter_ms=10)
    q.jobs(*[b"j"] * 6)
    before = len(q.items())
    for node in (b"a", b"b"):
        q.propose(q.claiming(3, node=node))
    q.passes(10)
    q.nack(1, 3, node=b"a", delay_ms=0)
    q.do(Extend(topic="q", node=b"b", seqs=[2, 4], lease_ms=5000))
    q.ack(2, 4, 6, node=b"b")
    q.do(Purge(topic="q"))
    q.do(q.pausing(True))
    q.do(q.pausing(False))
    said = q.items()[before:]  # and nothing beside it: an ack is the delete
    assert [type(item.payload) for item in said] == [
        Claimed, Released, Extended, Acked, Purged, Paused, Resumed,
    ]  # fmt: skip
    assert {item.topic_id for item in said} == {q.topic("q").topic_id}
    assert q.counts() == (0, 1, 0)


@pytest.mark.rule("Q3.10")
def test_a_worker_gets_what_its_own_node_has_put():
    q = Queue()
    q.jobs(b"1", b"2", node=[b"w", b"other"])
    assert q.seqs(9) == [1, 2]


@pytest.mark.rule("T3.35")
def test_a_failed_shard_refuses_claims_and_those_that_wait():
    q = Queue()
    waits = q.propose(q.claiming(wait_ms=None))
    q.run()
    q.propose(q.appending(b"1", topic="q"))
    q.take()
    q.fail()
    assert waits.error is not None
    for command in (
        q.claiming(),
        q.acking(1),
        q.nacking(1),
        Extend(topic="q", node=b"w", seqs=[1], lease_ms=100),
        Release(topic="q", seqs=[1], leases=[(1, 1)]),
        Purge(topic="q"),
        Pause(topic="q", paused=True),
    ):
        with pytest.raises(Rejected) as refused:
            q.propose(command)
        assert refused.value.code is Code.STORAGE_READ_ONLY
