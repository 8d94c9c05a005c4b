"""A job that fails too often goes to the dead letters, without anybody asking for it (queues 3)."""

import msgspec
import pytest

from tests.engine.driving import config
from tests.engine.moving.driving import Mover
from tests.engine.queue.driving import Queue
from topics.engine.commands import GiveUp, Purge
from topics.log.jobs.transitions import JobState


class FailingQueue(Queue, Mover):
    """Jobs are delivered twice at most."""

    def __init__(self, **fields):
        super().__init__(max_deliveries=2, dead_letter="dlq", **fields)

    def letters(self):
        self.move()
        return [(record.data, msgspec.json.decode(record.meta)) for record in self.read("dlq")[1]]


@pytest.mark.rule("Q2.2", "Q3.6", "Q3.11")
def test_the_last_nack_moves_the_job_with_its_reason():
    q = FailingQueue()
    q.jobs(b"1", b"2")
    q.claim()
    q.nack(1, delay_ms=0)
    q.claim()
    told = q.nack(1, reason=b"no such file", delay_ms=0)
    assert (told.ready, told.in_flight) == (1, 1)
    assert q.counts() == (1, 1, 0)  # it moves, which counts as in flight
    assert q.seqs(5) == [2]
    assert q.nack(2, delay_ms=0).in_flight == 1
    assert q.seqs(5) == [2]

    ((data, meta),) = q.letters()
    assert data == b"1"
    assert meta["$dead_letter_reason"] == "no such file"
    assert meta["$dead_letter_deliveries"] == "2"
    assert q.counts() == (0, 1, 0)
    assert q.state("q").queue.dead_lettered == 1
    q.agrees()


@pytest.mark.rule("Q3.11")
def test_a_last_lease_that_runs_out_does_so_too():
    q = FailingQueue(lease_ms=1000)
    q.jobs(b"1")
    q.claim()
    q.passes(1001)
    q.claim()
    q.passes(1001)
    ((_, meta),) = q.letters()
    assert meta["$dead_letter_reason"] == "expired"
    q.agrees()


def test_a_last_lease_that_a_restart_ended_does_so_too():
    q = FailingQueue()
    q.jobs(b"1", b"2")
    q.claim()
    q.nack(1, delay_ms=0)
    q.claim()
    q.begin(q.replay())
    q.engine.resume(machine_restarted=False)
    q.run()
    ((data, meta),) = q.letters()
    assert (data, meta["$dead_letter_reason"]) == (b"1", "restart")
    assert q.seqs(5) == [2]


@pytest.mark.rule("Q2.2", "Q4.16")
def test_a_purge_leaves_what_moves():
    q = FailingQueue()
    q.jobs(b"1", b"2")
    for _ in range(2):
        q.claim()
        q.nack(1, delay_ms=0)
    assert q.do(Purge(topic="q")).purged == 1
    assert q.counts() == (0, 1, 0)
    assert [data for data, _ in q.letters()] == [b"1"]
    q.agrees()


@pytest.mark.rule("Q1.3")
def test_no_maximum_is_none():
    q = Queue(dead_letter="dlq")
    q.jobs(b"1")
    for deliveries in range(1, 5):
        (job,) = q.claim()
        assert job.deliveries == deliveries
        q.nack(1, delay_ms=0)


@pytest.mark.rule("Q1.3")
@pytest.mark.parametrize("delay_ms", [None, 60_000])
def test_the_last_nack_waits_for_nothing(delay_ms):
    backoff = {"base_ms": 60_000, "factor": 1, "max_ms": 60_000}
    q = FailingQueue(retry_backoff=backoff, max_in_flight_per_key=1)
    q.put(
        "q", type="queue", max_deliveries=1, dead_letter="dlq", retry_backoff=backoff, max_in_flight_per_key=1
    )
    q.jobs(b"1", b"2", key=[b"k", b"k"])
    q.claim()
    q.nack(1, reason=b"no", delay_ms=delay_ms)
    assert q.seqs(5) == [2]  # nothing of its key waits for it
    assert [data for data, _ in q.letters()] == [b"1"]
    q.agrees()


@pytest.mark.rule("Q3.11")
def test_where_there_is_no_room_to_say_that_it_moves_it_is_said_later():
    q = FailingQueue()
    q.jobs(b"1")
    q.claim()
    q.nack(1, delay_ms=0)
    q.claim()
    q.passes(5000)  # its head rests
    q.engine.space(0, 1000)
    q.nack(1, delay_ms=0)
    q.passes(999)
    q.engine.space(0, 1 << 30)
    assert q.peek(9, JobState.IN_FLIGHT) == []
    q.passes(1)
    assert [view.state for view in q.peek(9, JobState.IN_FLIGHT)] == [JobState.MOVING]


def test_nor_does_the_end_of_the_last_lease():
    backoff = {"base_ms": 60_000, "factor": 1, "max_ms": 60_000}
    q = FailingQueue(lease_ms=1000, retry_backoff=backoff)
    q.jobs(b"1")
    q.claim()
    q.passes(1001)
    assert q.counts() == (0, 0, 1)
    q.passes(66_001)
    assert q.seqs() == [1]
    q.passes(1001)
    assert q.counts() == (0, 1, 0)
    assert [data for data, _ in q.letters()] == [b"1"]
    q.agrees()


def test_a_job_without_dead_letters_rests_behind_its_last_delivery_too():
    q = Queue(
        max_deliveries=1, lease_ms=1000, retry_backoff={"base_ms": 60_000, "factor": 1, "max_ms": 60_000}
    )
    q.jobs(b"1", b"2")
    q.claim(2)
    q.nack(1)
    q.passes(1001)
    assert q.counts() == (0, 0, 2)


def test_a_job_without_dead_letters_is_delivered_for_ever():
    q = Queue(max_deliveries=1)
    q.jobs(b"1")
    for deliveries in range(1, 5):
        (job,) = q.claim()
        assert job.deliveries == deliveries
        q.nack(1, delay_ms=0)


def test_a_queue_that_names_itself_as_an_earlier_build_let_it_delivers_for_ever():
    q = Queue()
    q.topic("q").config = config(type="queue", max_deliveries=1, dead_letter="q")
    q.jobs(b"1")
    for deliveries in range(1, 5):
        (job,) = q.claim()
        assert job.deliveries == deliveries
        q.nack(1, delay_ms=0)
    (job,) = q.claim()
    given_up = GiveUp(topic="q", seqs=[1], leases=[(job.nonce, job.counter)])
    assert q.do(given_up).skipped == [1]  # nobody takes it, though it cannot be read
    q.put("q", type="queue", max_deliveries=1, dead_letter="q", ttl_ms=10)
    assert q.state("q").config.ttl_ms == 10


def test_another_maximum_counts_from_then_on():
    q = FailingQueue()
    q.jobs(b"1")
    q.claim()
    q.put("q", type="queue", max_deliveries=1, dead_letter="dlq")
    q.nack(1, delay_ms=0)
    assert [data for data, _ in q.letters()] == [b"1"]


def test_a_job_that_leaves_its_queue_with_its_last_nack_is_not_counted():
    durable = {"durability": "fsync", "leases_durable": True}
    q = FailingQueue(**durable)
    q.put("q", type="queue", cap_records=2, max_deliveries=1, dead_letter="dlq", **durable)
    q.jobs(b"1", b"2")
    q.claim(2)
    nack = q.propose(q.nacking(1, 2))
    q.propose(q.appending(b"3", topic="q"))  # which takes the first
    q.run()
    told = nack.result()
    assert (told.ready, told.in_flight) == (1, 1)
