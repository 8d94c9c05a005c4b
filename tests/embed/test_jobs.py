"""A queue in a process: claimed, done, given back, waited for, and what ends a wait (queues 4, 7)."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embed.conftest import OpenSim
from tests.support.embedded import wait_until
from topics.calls.queues.checks import claim_command
from topics.log.jobs.transitions import JobState
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk

LONG_MS = 30_000


@pytest.fixture
def queue(store: topics.Store) -> topics.Queue:
    store.create("jobs", type="queue", lease_ms=1000)
    return store.queue("jobs", node="w")


def seqs(jobs: list[topics.Job]) -> list[int]:
    return [job.seq for job in jobs]


def counts(queue: topics.Queue) -> tuple[int, int, int]:
    found = queue.state().queue
    assert found is not None
    return found.ready, found.in_flight, found.delayed


class Waiting:
    """A call in a thread that waits for jobs."""

    def __init__(self, store: topics.Store, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert wait_until(lambda: bool(store._local._waiting))

    def _run(self) -> None:
        try:
            self.result = self._call()
        except topics.TopicsError as error:
            self.result = error

    def end(self) -> Any:
        self._thread.join(20)
        assert not self._thread.is_alive()
        return self.result


@pytest.mark.rule("Q7.6", "Q4.10", "Q4.13")
def test_a_job_is_a_record_with_a_lease(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put({"a": [1]}, tag="t", node="p", key="k", meta={"m": "v"}, priority=3)
    queue.put(b"\x00raw", content_type="image/png")
    first, second = queue.claim(9)
    assert (first.data, first.tag, first.node, first.key, first.meta) == (
        {"a": [1]},
        "t",
        "p",
        "k",
        {"m": "v"},
    )
    assert (first.priority, first.deliveries, first.deadline) == (3, 1, clock.now_ms() + 1000)
    assert (second.data, second.content_type, second.priority) == (b"\x00raw", "image/png", 0)

    assert first.nack("broken", delay_ms=500) is True
    assert second.extend(5000) is True
    assert second.deadline == clock.now_ms() + 5000
    (rests,), (held,) = queue.peek("delayed"), queue.peek("in_flight")
    assert (rests.seq, rests.state, rests.reason, rests.ready_at) == (
        1,
        "delayed",
        "broken",
        clock.now_ms() + 500,
    )
    assert (held.seq, held.worker, held.deadline, held.raw) == (2, "w", second.deadline, b"\x00raw")

    assert second.ack() is True
    assert second.ack() is False
    assert counts(queue) == (0, 0, 1)
    clock.advance(500)
    (again,) = queue.claim()
    assert (again.seq, again.deliveries, again.lease_id != first.lease_id) == (1, 2, True)
    assert queue.read().records[0].seq == 1


@pytest.mark.rule("Q4.7", "Q4.8")
def test_a_job_counts_for_the_very_lease_it_was_claimed_with(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put_many([{"data": i} for i in range(3)])
    lapsed = queue.claim(3)
    clock.advance(1001)
    jobs = queue.claim(3)
    assert seqs(jobs) == [1, 2, 3]

    assert queue.ack(lapsed).skipped == [1, 2, 3]
    told = queue.ack([jobs[0], 2, 2, 77])
    assert (list(told.seqs), told.skipped, told.ready, told.in_flight) == ([1, 2], [2, 77], 0, 1)
    assert queue.ack([3], lease_ids=[lapsed[2].lease_id]).skipped == [3]
    assert queue.store.queue("jobs", node="other").ack([3]).skipped == [3]
    assert list(queue.nack(3, lease_ids=[jobs[2].lease_id], reason="", delay_ms=0).seqs) == [3]


@pytest.mark.rule("Q4.9", "Q4.8", "Q4.1")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: q.ack([]), "seqs: must name at least one job"),
        (lambda q: q.ack(range(1001)), "seqs: 1001 jobs are more than the limit of 1000 a call; split them"),
        (lambda q: q.ack("7"), "seqs: must be a list, not a string"),
        (lambda q: q.ack([1, True]), r"seqs\[1\]: must be a whole number, not a boolean"),
        (lambda q: q.ack([1, -1]), r"seqs\[1\]: must not be negative"),
        (lambda q: q.ack([1], lease_ids=[]), "lease_ids: must have one for each of the 1 seqs, not 0"),
        (lambda q: q.ack([1], lease_ids=["lease_A"]), r"lease_ids\[0\]: 'lease_A' is no lease id"),
        (lambda q: q.ack([1], lease_ids=["lease_" + "0" * 16 + "0"]), r"lease_ids\[0\]"),
        (lambda q: q.nack([1], reason="x" * 1025), "reason: 1025 bytes are more than the limit of 1024"),
        (lambda q: q.nack([1], delay_ms=-1), "delay_ms: must not be negative"),
        (lambda q: q.extend([1], "5"), "lease_ms: must be a whole number"),
        (lambda q: q.claim(1.5), "max: must be a whole number, not a decimal number"),
        (lambda q: q.claim(wait_ms=True), "wait_ms: must be a whole number, not a boolean"),
        (lambda q: q.peek("done"), "state: must be one of ready, in_flight, delayed, not 'done'"),
        (lambda q: q.get(timeout=-1), "timeout: must be a number of seconds"),
        (lambda q: q.get(ack="later"), "ack: must be"),
        (lambda q: q.store.queue("jobs", node=""), "node: must not be empty"),
        (lambda q: q.store.queue("jobs", node="n" * 129), "node: 129 bytes are more than the limit of 128"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_name(queue: topics.Queue, call: Any, message: str) -> None:
    with pytest.raises(topics.Rejected, match=message) as refused:
        call(queue)
    assert refused.value.code == ("batch_too_large" if "1001 jobs" in message else "invalid_request")


@pytest.mark.rule("Q1.1", "Q4.1")
def test_numbers_out_of_range_are_clamped(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put_many([{"data": i} for i in range(2)])
    now = clock.now_ms()
    (first,) = queue.claim(0, lease_ms=1)
    (second,) = queue.claim(10**9, lease_ms=10**12)
    assert (first.deadline - now, second.deadline - now) == (100, 86_400_000)
    assert first.extend(10**12)
    assert first.deadline - now == 86_400_000
    limits = queue.store._opened.engine.limits
    command = claim_command("jobs", "w", limits, most=10**9, wait_ms=10**9, bytes_max=10**12)
    assert (command.count_max, command.wait_ms, command.bytes_max) == (1000, 30_000, limits.page_bytes)
    plain = claim_command("jobs", "w", limits)
    assert (plain.count_max, plain.wait_ms, plain.lease_ms) == (1, 0, None)


@pytest.mark.rule("Q4.9")
def test_a_call_takes_a_thousand_jobs_and_says_so_of_one_more(queue: topics.Queue) -> None:
    assert len(queue.ack(range(1000)).skipped) == 1000
    assert len(queue.ack(iter(range(1000))).skipped) == 1000
    with pytest.raises(topics.Rejected, match="more than the limit of 1000 a call"):
        queue.ack(iter(range(1001)))
    with pytest.raises(topics.Rejected, match="more than the limit of 1000 a call"):
        queue.redrive(range(1001), source="letters")


@pytest.mark.rule("S9.3")
def test_a_priority_is_0_to_9(queue: topics.Queue) -> None:
    queue.put_many([{"data": priority, "priority": priority} for priority in (0, 9, 10**9)])
    assert [job.priority for job in queue.claim(9)] == [9, 9, 0]
    for wrong in (-1, 1.5, "5", True):
        with pytest.raises(topics.Rejected, match="priority"):
            queue.put(1, priority=wrong)


@pytest.mark.rule("S9.5")
def test_a_delayed_job_is_not_claimable_before_its_time(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put("later", delay_ms=500)
    clock.advance(499)
    assert (queue.claim(), counts(queue)) == ([], (0, 0, 1))
    clock.advance(1)
    assert [job.data for job in queue.claim()] == ["later"]


@pytest.mark.rule("Q0.1")
def test_a_queue_is_a_topic(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put_many([{"data": i, "tag": f"t{i % 2}"} for i in range(1, 7)])
    page = queue.read(match="t1", account=True)
    assert [record.seq for record in page.records] == [1, 3, 5]
    (leased,) = queue.claim()
    queue.configure(cap_records=4)
    page = queue.read()
    assert page.tombstone is not None
    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason) == (1, 2, "cap")
    assert not leased.ack()  # a cap takes leased ones, too
    assert queue.delete(match="t0").deleted == 2
    assert [record.seq for record in queue.read(from_seq=2).records] == [3, 5]
    assert counts(queue) == (2, 0, 0)
    queue.configure(cap_records=0, ttl_ms=100)
    clock.advance(101)
    page = queue.read(from_seq=4)
    assert page.tombstone is not None
    assert (page.tombstone.reason, queue.claim(9), counts(queue)) == ("ttl", [], (0, 0, 0))


@pytest.mark.rule("Q0.2")
def test_only_a_queue_has_jobs(store: topics.Store) -> None:
    store.create("log").put(1)
    calls: list[Callable[[topics.Queue], object]] = [
        lambda q: q.claim(), lambda q: q.ack([1]), lambda q: q.nack([1]), lambda q: q.extend([1], 1000),
        lambda q: q.peek(), lambda q: q.pause(), lambda q: q.resume(), lambda q: q.purge(),
    ]  # fmt: skip
    for name, code in (("log", "not_a_queue"), ("absent", "topic_not_found")):
        for call in calls:
            with pytest.raises(topics.Rejected) as refused:
                call(store.queue(name))
            assert refused.value.code == code


def test_a_put_to_a_queue_that_is_not_there_makes_no_log_of_that_name(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.queue("jobs").put(1)
    assert list(store.list()) == []


@pytest.mark.rule("Q3.5")
def test_a_job_whose_bytes_are_damaged_is_given_up_and_does_not_fail_the_rest(
    store: topics.Store, disk: SimDisk
) -> None:
    store.create("jobs", type="queue", dead_letter="letters")
    queue = store.queue("jobs")
    queue.put_many([{"data": "x" * 9} for _ in range(3)])
    index = store._opened.engine.catalog.find("jobs").index
    disk.flip("wal/gen-0/shard-00/wal-00000000000000000001.log", (index.offsets[1] + 45) * 8)

    assert seqs(queue.claim(3)) == [1, 3]
    with store._local.lock:
        store._keeper.keep_once()
    found = store._opened.engine.peek("jobs", JobState.IN_FLIGHT, 9)
    assert [job.state for job in found] == [JobState.IN_FLIGHT, JobState.MOVING, JobState.IN_FLIGHT]


@pytest.mark.rule("Q4.15", "Q4.16")
def test_a_queue_is_paused_and_purged(queue: topics.Queue) -> None:
    queue.put_many([{"data": 1}, {"data": 2}, {"data": 3, "delay_ms": 9999}])
    (mine,) = queue.claim()
    queue.pause()
    queue.pause()
    assert queue.claim(9) == []
    assert queue.purge() == 2
    queue.resume()
    assert counts(queue) == (0, 1, 0)
    assert mine.ack()


@pytest.mark.rule("Q7.5", "Q7.8")
def test_the_comforts_of_a_queue(queue: topics.Queue, clock: ManualClock) -> None:
    queue.put_many([{"data": i} for i in range(6)])
    assert [job.data for job in queue.get_many(2)] == [0, 1]
    first = queue.get(lease_ms=5000)
    assert first is not None
    assert first.deadline == clock.now_ms() + 5000
    gone = queue.get(ack="on_get")
    assert gone is not None
    assert not gone.ack()
    one, other = islice(queue, 2)
    assert (one.data, other.data) == (4, 5)
    assert (queue.get(timeout=0), queue.get_many(9, timeout=0)) == (None, [])


@pytest.mark.parametrize("durability", ["fsync", "disk", "ephemeral"])
def test_who_waits_has_the_job_that_comes(store: topics.Store, durability: str) -> None:
    store.create("jobs", type="queue", durability=durability)
    queue = store.queue("jobs")
    waiting = Waiting(store, lambda: queue.claim(wait_ms=LONG_MS))
    queue.put("x")
    assert [job.data for job in waiting.end()] == ["x"]
    assert store._local._waiting == set()


def test_a_wait_that_is_over_gives_none(queue: topics.Queue, store: topics.Store, clock: ManualClock) -> None:
    waiting = Waiting(store, lambda: queue.claim(wait_ms=500))
    clock.advance(500)
    with store._local.lock:
        store._keeper.keep_once()
    assert waiting.end() == []


def test_the_end_of_the_store_or_of_the_queue_ends_a_wait(open_sim: OpenSim) -> None:
    store = open_sim()
    store.create("jobs", type="queue")
    waiting = Waiting(store, lambda: store.queue("jobs").get())
    store.delete("jobs")
    assert waiting.end().code == "topic_not_found"
    store.create("jobs", type="queue")
    waiting = Waiting(store, lambda: store.queue("jobs").get())
    store.close()
    assert waiting.end().code == "shutting_down"


@contextlib.contextmanager
def signalled_while_it_waits(store: topics.Store, number: int) -> Iterator[None]:
    """The signal comes while this thread waits for jobs. One that comes right before a lock is waited for is handled
    when the next one is, so others follow, which do nothing.
    """
    main, over = threading.get_ident(), threading.Event()

    def send() -> None:
        assert wait_until(lambda: bool(store._local._waiting))
        signal.pthread_kill(main, number)
        while not over.wait(0.1):
            signal.pthread_kill(main, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR2, before)


def test_an_interrupt_ends_the_wait_and_nothing_else(queue: topics.Queue, store: topics.Store) -> None:
    with pytest.raises(KeyboardInterrupt), signalled_while_it_waits(store, signal.SIGINT):
        queue.claim(wait_ms=LONG_MS)
    queue.put("x")
    assert counts(queue) == (1, 0, 0)
    assert [job.data for job in queue.claim()] == ["x"]


def test_a_signal_handler_may_use_the_store_while_a_claim_waits(
    queue: topics.Queue, store: topics.Store
) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: queue.put("from the handler"))
    try:
        with signalled_while_it_waits(store, signal.SIGUSR1):
            assert [job.data for job in queue.claim(wait_ms=LONG_MS)] == ["from the handler"]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.rule("Q4.3", "Q2.7")
def test_no_lease_is_issued_twice_over_a_restart(tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        with topics.open(tmp_path) as store:
            store.create("jobs", type="queue", exist_ok=True)
            queue = store.queue("jobs")
            queue.put(1)
            (job,) = queue.claim()
            ids.append(job.lease_id)
    first, second = ids
    assert first.startswith("lease_")
    assert first[6:22] != second[6:22]


@pytest.mark.rule("Q4.14", "Q4.10", "Q7.7")
def test_dead_letters_are_put_back_as_fresh_jobs(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        store.create("jobs", type="queue", max_deliveries=1, dead_letter="letters")
        queue = store.queue("jobs")
        queue.put("poison", priority=4, meta={"m": "v"})
        (job,) = queue.claim()
        assert job.nack("cannot")
        letters = store.topic("letters")
        letter = next(item for item in letters.follow() if isinstance(item, topics.Record))
        assert (letter.data, letter.meta["$dead_letter_reason"]) == ("poison", "cannot")

        told = queue.redrive()
        assert (told.topic, told.source, list(told.seqs)) == ("jobs", "letters", [letter.seq])
        again = queue.get(timeout=20)
        assert again is not None
        assert (again.data, again.deliveries, again.priority, again.meta["m"]) == ("poison", 1, 4, "v")
        assert again.meta["$dead_letter_src_seq"] == "1"
        assert again.ack()
        store.create("plain", type="queue")
        with pytest.raises(topics.Rejected, match="has no dead_letter of its own"):
            store.queue("plain").redrive()


def test_a_claim_is_bounded_by_what_its_jobs_are_unfolded(store: topics.Store) -> None:
    store.create("q", type="queue", compression="gzip")
    queue = store.queue("q", node="w")
    for priority in (0, 0, 0, 9):
        queue.put("0" * 4000, priority=priority)
    peeked = queue.peek()
    assert seqs(queue.claim(9, max_bytes=9000)) == [4, 1]
    assert [(job.seq, job.deliveries) for job in queue.peek()] == [(2, 0), (3, 0)]
    assert seqs(queue.claim(9, max_bytes=1)) == [2]
    assert [job.seq for job in peeked] == [4, 1, 2, 3]
