"""What a worker of the command line does with jobs and leases, whatever it is that does them."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from tests.support.embedded import wait_until
from topics.cli.work.shift import JobOutcome, Shift, WorkRules


class Hand:
    """A task that ends when it is told to, or stopped."""

    def __init__(self, job: topics.Job) -> None:
        self.job = job
        self.stops: list[bool] = []
        self._ended = threading.Event()
        self._reason: str | None = None

    def end(self, reason: str | None = None) -> None:
        self._reason = reason
        self._ended.set()

    def wait(self) -> str | None:
        assert self._ended.wait(20)
        return self._reason

    def stop(self, *, kill: bool = False) -> None:
        self.stops.append(kill)
        self.end("stopped")


class Running:
    """A shift in a thread, until its queue is empty."""

    def __init__(
        self, queue: topics.Queue, *, start: Callable[[Any], Any] | None = None, **rules: Any
    ) -> None:
        self._hands: list[Hand] = []
        self.ended: list[JobOutcome] = []
        given: dict[str, Any] = {"concurrency": 8, "lease_ms": 60_000, "grace_s": 0, "backs_off": False}
        self.shift = Shift(
            queue, start or self._start, WorkRules(**{**given, "until_empty": True, **rules}),
            tell=self.ended.append, say=lambda line: None,
        )  # fmt: skip
        self.thread = threading.Thread(target=self.shift.run, daemon=True)
        self.thread.start()

    def _start(self, job: topics.Job) -> Hand:
        hand = Hand(job)
        self._hands.append(hand)
        return hand

    @property
    def hands(self) -> list[Hand]:
        """By job: threads begin them in any order."""
        return sorted(self._hands, key=lambda hand: hand.job.seq)

    def hand(self, seq: int) -> Hand:
        """That of this job, as soon as there is one."""
        assert wait_until(lambda: any(hand.job.seq == seq for hand in self.hands))
        return next(hand for hand in self.hands if hand.job.seq == seq)

    def end(self) -> list[JobOutcome]:
        self.thread.join(20)
        assert not self.thread.is_alive()
        return self.ended


@pytest.fixture
def queue(tmp_path: pathlib.Path) -> Iterator[topics.Queue]:
    with topics.open(tmp_path / "d") as store:
        store.create("jobs", type="queue")
        yield store.queue("jobs", node="w")


@pytest.mark.rule("O2.9")
def test_so_many_at_a_time_and_each_is_settled_as_it_ended(queue: topics.Queue) -> None:
    queue.put_many([{"data": i} for i in range(5)])
    running = Running(queue, concurrency=2)
    assert wait_until(lambda: len(running.hands) == 2)
    assert (len(queue.peek("in_flight")), len(queue.peek())) == (2, 3)

    running.hands[1].end("no luck")
    assert wait_until(lambda: len(running.hands) == 3)
    assert len(queue.peek("in_flight")) == 2
    for seq in (1, 3, 4, 5):
        running.hand(seq).end()

    states = [
        (one.job.seq, one.state, one.reason) for one in sorted(running.end(), key=lambda one: one.job.seq)
    ]
    assert states == [
        (1, "acked", None), (2, "nacked", "no luck"), (3, "acked", None), (4, "acked", None), (5, "acked", None),
    ]  # fmt: skip
    (rests,) = queue.peek("delayed")
    assert (rests.seq, rests.reason, rests.deliveries) == (2, "no luck", 1)


def test_the_lease_is_extended_as_long_as_the_task_takes(queue: topics.Queue) -> None:
    queue.put(1)
    running = Running(queue, lease_ms=300)
    assert wait_until(lambda: len(running.hands) == 1)
    first = running.hands[0].job.deadline

    assert wait_until(lambda: queue.peek("in_flight")[0].deadline > first + 300)
    assert queue.peek("in_flight")[0].deliveries == 1
    running.hands[0].end()
    (ended,) = running.end()
    assert (ended.state, running.hands[0].stops) == ("acked", [])


def test_a_lease_that_is_lost_stops_its_task_and_settles_nothing(queue: topics.Queue) -> None:
    queue.put(1)
    queue.put(2)
    running = Running(queue, lease_ms=300)
    assert wait_until(lambda: len(running.hands) == 2)
    lost, kept = running.hands

    assert list(queue.nack([lost.job.seq], delay_ms=3_600_000, reason="by hand").seqs) == [1]
    assert wait_until(lambda: lost.stops == [False])
    assert wait_until(lambda: len(running.ended) == 1)
    kept.end()
    assert [(one.job.seq, one.state) for one in running.end()] == [(1, "lost"), (2, "acked")]
    assert running.ended[0].reason == "its lease had ended"
    assert (kept.stops, queue.peek("delayed")[0].reason) == ([], "by hand")


def test_what_was_done_after_its_lease_is_told(queue: topics.Queue) -> None:
    queue.put(1)
    running = Running(queue)
    assert wait_until(lambda: len(running.hands) == 1)
    queue.nack([1], delay_ms=3_600_000)
    running.hands[0].end()

    (ended,) = running.end()
    assert (ended.state, "its lease had ended" in str(ended.reason)) == ("lost", True)


@pytest.mark.parametrize(("backs_off", "longest_ms"), [(False, 4000), (True, 0)])
def test_a_job_that_fails_waits_longer_each_time_unless_the_queue_says(
    queue: topics.Queue, backs_off: bool, longest_ms: int
) -> None:
    queue.put(1)
    for _ in range(2):
        queue.nack(queue.claim())
    running = Running(queue, backs_off=backs_off, concurrency=1)
    assert wait_until(lambda: len(running.hands) == 1)
    running.hands[0].end("no")
    if backs_off:  # handed out again at once
        assert wait_until(lambda: len(running.hands) == 2)
        running.hands[1].end()
    running.end()

    waits = [job.ready_at - job.ts for job in queue.peek("delayed")]
    assert max(waits, default=0) >= longest_ms
    assert len(waits) == (not backs_off)


def test_a_task_that_cannot_be_started_has_failed(queue: topics.Queue) -> None:
    def start(job: topics.Job) -> Hand:
        raise FileNotFoundError(2, "No such file", "nowhere")

    queue.put(1)
    (ended,) = Running(queue, start=start).end()
    assert (ended.state, "cannot be started" in str(ended.reason)) == ("nacked", True)


def test_a_queue_that_goes_away_ends_the_worker(queue: topics.Queue) -> None:
    queue.put(1)
    said: list[BaseException] = []
    shift = Shift(
        queue, Hand,
        WorkRules(concurrency=2, lease_ms=1000, grace_s=0, backs_off=True, until_empty=False),
        tell=lambda ended: None, say=lambda line: None,
    )  # fmt: skip

    def run() -> None:
        try:
            shift.run()
        except topics.Rejected as error:
            said.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert wait_until(lambda: len(queue.peek("in_flight")) == 1)
    queue.store.delete("jobs")
    thread.join(20)
    assert [error.code for error in said] == ["topic_not_found"]
