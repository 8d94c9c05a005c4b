"""What an image keeps of jobs: a start from it goes on as one from the log does (queues 2, I-20)."""

import msgspec
import pytest

from tests.engine.driving import T0
from tests.engine.moving.driving import Mover
from tests.engine.queue.driving import Queue
from topics.engine.verify import digest
from topics.log.image import TopicImage, take_image, topic_of
from topics.log.jobs.transitions import JobState


class Kept(Queue, Mover):
    """A queue whose jobs may be kept as an image, and started from it."""

    def image(self):
        """The state of an image, which is that of the log."""
        catalog = self.replay()
        for name in self.engine.names():
            body = msgspec.msgpack.encode(take_image(self.topic(name)))
            topic = topic_of(msgspec.msgpack.decode(body, type=TopicImage), [])
            catalog.remove(catalog.topics[topic.topic_id])
            catalog.add(topic)
        assert digest(catalog) == digest(self.engine.catalog) == digest(self.replay())
        return catalog

    def goes_on(self, *, from_image):
        self.begin(self.image() if from_image else self.replay())
        self.engine.resume(machine_restarted=False)
        self.run()


start = pytest.mark.parametrize("from_image", [True, False], ids=["image", "log"])


@pytest.mark.rule("Q2.12", "S9.3", "S9.5", "T2.13")
@start
def test_priorities_and_delays_are_of_the_record(from_image):
    q = Kept()
    q.jobs(b"1", b"2", b"3", priority=[0, 9, 5], delay_ms=[None, 1000, None])
    q.goes_on(from_image=from_image)
    assert q.counts() == (2, 0, 1)
    assert [(job.seq, job.priority) for job in q.claim(9)] == [(3, 5), (1, 0)]
    q.clock.set(T0 + 999)
    assert q.seqs() == []
    q.clock.set(T0 + 1000)
    assert [(job.seq, job.priority) for job in q.claim()] == [(2, 9)]


@pytest.mark.rule("Q1.6", "Q4.10", "T5.23")
@pytest.mark.parametrize("leases_durable", [False, True])
@start
def test_deliveries_delays_and_reasons_are_kept_whatever_becomes_of_leases(from_image, leases_durable):
    q = Kept(leases_durable=leases_durable)
    q.jobs(b"1", b"2", b"3")
    q.claim(3)
    q.nack(2, delay_ms=500, reason=b"no")
    q.nack(3, delay_ms=0, reason=b"nor this")
    q.goes_on(from_image=from_image)
    held = [view.seq for view in q.peek(9, JobState.IN_FLIGHT)]
    ready = [(view.seq, view.deliveries, view.reason) for view in q.peek(9)]
    (rests,) = q.peek(9, JobState.DELAYED)
    assert (rests.seq, rests.deliveries, rests.reason, rests.ready_at) == (2, 1, b"no", T0 + 500)
    assert held == ([1] if leases_durable else [])
    assert ready == [*([] if leases_durable else [(1, 1, b"restart")]), (3, 1, b"nor this")]


@pytest.mark.rule("Q2.11", "Q1.12")
@start
def test_a_pause_and_the_bucket_are_kept(from_image):
    q = Kept(rate_limit={"count": 2, "per_ms": 1000})
    q.jobs(*[b"j"] * 9)
    assert len(q.seqs(9)) == 2
    q.do(q.pausing(True))
    q.goes_on(from_image=from_image)
    assert q.state("q").queue.paused
    q.do(q.pausing(False))
    assert q.seqs(9) == []  # no burst
    q.clock.advance(500)
    assert len(q.seqs(9)) == 1


@pytest.mark.rule("Q5.2", "Q3.8", "Q2.2")
@start
def test_what_moves_goes_on_moving_and_is_counted_once(from_image):
    q = Kept(max_deliveries=1, dead_letter="dlq")
    q.jobs(b"1", b"2", b"3")
    q.claim(2)
    q.nack(1, delay_ms=0)
    assert q.state("q").queue.dead_lettered == 1
    q.goes_on(from_image=from_image)  # which is the end of 2's only delivery
    assert [view.state for view in q.peek(9, JobState.IN_FLIGHT)] == [JobState.MOVING] * 2
    assert q.seqs(9) == [3]
    q.ack(3)
    q.move()
    assert q.datas("dlq") == [b"1", b"2"]
    q.goes_on(from_image=from_image)
    assert q.state("q").queue.dead_lettered == 2
    q.drop("q")
    q.put("q", type="queue")
    assert q.state("q").queue.dead_lettered == 0  # another epoch
