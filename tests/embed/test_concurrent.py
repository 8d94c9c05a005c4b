"""Many threads and one replicated topic: back-pressure, flush, close, and nothing lost in silence.

No test waits for time: conditions tell when somebody waits, and a worker is held back by the guard of the topic's root.
"""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.crypto.keys import KeyPair
from topics.embed.concurrent import THREADS_MAX, ConcurrentTopic, WriterOptions, WriterStats
from topics.kernel.errors import Code, Rejected, TopicsError, WrongState
from topics.lattice.owners.authority import Authority
from topics.lattice.queues.editor import Editor
from topics.lattice.queues.fence import NotLeader
from topics.lattice.queues.lattice_topic import LatticeTopic
from topics.lattice.queues.lattice_topics import LatticeTopics, owned_topics, topics_of
from topics.lattice.queues.routing import Rerouted
from topics.lattice.queues.topic_map import TOPIC
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock

NOW = 1_700_000_000_000


class Watched(threading.Condition):
    """A condition that tells whoever asks that a thread waits on it; its waits end by events only."""

    def __init__(self):
        super().__init__()
        self.timeouts = []
        self.waits = threading.Semaphore(0)
        self.entering = None

    def __enter__(self):
        if self.entering is not None:
            self.entering()
        return super().__enter__()

    def wait(self, timeout=None):
        self.timeouts.append(timeout)
        self.waits.release()
        return super().wait()


class Bench:
    """A topic whose root has a lock as guard: who holds it holds the workers back."""

    def __init__(self, partitions=2, **options):
        self.inboxes = []
        self.guard = threading.Lock()
        self.clock = ManualClock(NOW)
        self.topic = LatticeTopic("t", Root(TOPIC, guard=self.guard), editor=Editor(self.clock))
        self.times = [0.0]
        self.writer = ConcurrentTopic(
            self.topic,
            partitions=partitions,
            options=WriterOptions(**options),
            condition=self.watched,
            monotonic=lambda: self.times.pop(0) if len(self.times) > 1 else self.times[0],
        )

    def watched(self):
        self.inboxes.append(Watched())
        return self.inboxes[-1]

    def values(self, partition=0):
        return list(self.topic.partition(partition).range(0, 10_000))


class Meanwhile:
    """A guard; whoever takes it finds that somebody was there just before: the works, one each time."""

    def __init__(self):
        self.works = []

    def __enter__(self):
        if self.works:
            self.works.pop(0)()

    def __exit__(self, *exception):
        return None


def threads(count, work):
    """Run work(0) … work(count - 1), each in a thread, to their ends; raises what one of them raised."""
    failures = []

    def run(n):
        try:
            work(n)
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)

    started = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    for failure in failures:
        raise failure


@pytest.mark.rule("R2.6.4", "R2.6.5", "R9.16", "R10.1", "R11.13")
def test_q21_keyed_records_are_visible_after_flush():
    """Q21: 100 keyed records over 4 partitions make 100; 10 of one key lie in one partition, in order."""
    bench = Bench(partitions=4)
    with bench.writer as writer:
        for n in range(100):
            writer.offer(f"key-{n}", n)
        writer.flush()

        assert bench.topic.size() == 100
        before = {index: bench.topic.partition(index).end_offset() for index in range(4)}
        (index,) = {writer.offer("one", n) for n in range(10)}
        writer.flush()

        assert bench.topic.size() == 110
        assert list(bench.topic.partition(index).range(before[index], 999)) == list(range(10))
        assert index == bench.topic.partition_of("one")


@pytest.mark.rule("R2.6.4", "R10.1")
def test_q22_partitions_can_be_named():
    """Q22: direct partitions 0, 0 and 2 have sizes 2, 0 and 1; key and headers are optional there."""
    bench = Bench(partitions=3)
    with bench.writer as writer:
        writer.offer_to(0, "a")
        writer.offer_to(0, "b", key="k")
        writer.offer_to(2, "c", headers={"h": 1})
        writer.flush()

    assert [bench.topic.partition(index).size() for index in range(3)] == [2, 0, 1]
    assert bench.topic.partition(0).peek_entry(1).key == "k"
    assert bench.topic.partition(2).peek_entry(0).headers == {"h": 1}


@pytest.mark.rule("R2.6.4", "R9.15", "R9.16", "R10.1", "R11.13")
def test_q23_concurrent_producers_lose_nothing():
    """Q23: 4 × 1000 records from 4 threads are 4000, each once, each key's in the order of its thread."""
    bench = Bench(partitions=4, inbox_records=50)
    with bench.writer as writer:
        threads(4, lambda n: [writer.offer(f"key-{n}", (n, i)) for i in range(1000)])
        writer.flush()

        assert bench.topic.size() == 4000
        found = [value for index in range(4) for value in bench.values(index)]
        for n in range(4):
            assert [i for producer, i in found if producer == n] == list(range(1000))
        assert writer.stats().total_records == 4000


@pytest.mark.rule("R2.6.6", "R10.1", "R11.13")
def test_q24_close_without_flush_keeps_everything():
    """Q24: 50 offered, closed, 50 there; the workers have ended."""
    bench = Bench()
    bench.writer.start()
    for n in range(50):
        bench.writer.offer(n, n)
    bench.writer.close()

    assert bench.topic.size() == 50
    assert [worker.thread.is_alive() for worker in bench.writer._workers] == [False, False]
    assert bench.writer.undelivered() == [[], []]


@settings(max_examples=15)
@given(
    offers=st.lists(st.lists(st.integers(0, 3), max_size=40), min_size=1, max_size=3),
    inbox=st.integers(1, 5),
    batch=st.integers(1, 5),
)
@pytest.mark.rule("R9.16")
def test_any_producers_any_bounds(offers, inbox, batch):
    """P16: whatever the bounds, after flush everything is visible, each producer's order kept in each partition."""
    bench = Bench(partitions=4, inbox_records=inbox, batch_records=batch)
    with bench.writer as writer:

        def produce(n):
            for i, partition in enumerate(offers[n]):
                writer.offer_to(partition, (n, i))
            writer.flush()
            for partition in range(4):
                seen = [i for producer, i in bench.values(partition) if producer == n]
                assert seen == [i for i, index in enumerate(offers[n]) if index == partition]

        threads(len(offers), produce)
    assert bench.topic.size() == sum(map(len, offers))


@pytest.mark.rule("R2.6.4", "R11.13")
def test_a_batch_is_bounded_and_costs_one_sync():
    """Seven rows in batches of three: three batches and syncs; a mark ends a batch, and is reached with it."""
    bench = Bench(partitions=1, batch_records=3)
    worker, inbox = bench.writer._workers[0], bench.writer._inboxes[0]
    inbox.open()
    for n in range(7):
        inbox.put((None, n, None))
    fork = bench.topic.fork()
    sizes = []
    for _ in range(3):
        worker.work_once(fork)
        sizes.append(bench.topic.size())

    assert sizes == [3, 6, 7]
    assert (worker.syncs, worker.records, inbox.depth) == (3, 7, 0)
    inbox.put((None, 7, None))
    early = inbox.mark()
    inbox.put((None, 8, None))
    late = inbox.mark()
    worker.work_once(fork)
    assert (early.is_set(), late.is_set(), bench.topic.size()) == (True, False, 8)
    worker.work_once(fork)
    assert (late.is_set(), bench.topic.size()) == (True, 9)
    inbox.close()
    assert worker.work_once(fork) is False


@pytest.mark.rule("R2.6.4")
def test_the_bounds_are_those_of_the_page():
    """Inbox 4096, batch 1000, poll 100 ms, join 5 s."""
    assert WriterOptions() == WriterOptions(
        inbox_records=4096, batch_records=1000, poll_ms=100, join_timeout_ms=5000
    )
    for wrong in (0, -1, True, 1.5, "4096"):
        with pytest.raises(Rejected, match="inbox_records: must be a whole number above 0"):
            WriterOptions(inbox_records=wrong)
    with pytest.raises(Rejected, match="batch_records: at most 10000"):
        WriterOptions(batch_records=10_001)


@pytest.mark.rule("R2.6.4")
def test_a_worker_without_work_polls():
    """It waits for news, and looks by itself every 100 ms."""
    bench = Bench(partitions=1)
    bench.writer.start()
    bench.inboxes[0].waits.acquire()
    bench.writer.close()

    assert set(bench.inboxes[0].timeouts) == {0.1}


@pytest.mark.rule("R2.6.4", "R11.13")
def test_an_offer_waits_while_the_inbox_is_full():
    """Two fit; the third waits until the worker has taken a batch, and is not lost."""
    bench = Bench(partitions=1, inbox_records=2)
    worker, inbox = bench.writer._workers[0], bench.writer._inboxes[0]
    inbox.open()
    bench.writer.offer_to(0, "a")
    bench.writer.offer_to(0, "b")
    producer = threading.Thread(target=bench.writer.offer_to, args=(0, "c"))
    producer.start()
    bench.inboxes[0].waits.acquire()  # the producer waits

    assert (inbox.depth, producer.is_alive()) == (2, True)
    fork = bench.topic.fork()
    worker.work_once(fork)
    producer.join()
    assert inbox.depth == 1
    worker.work_once(fork)
    assert bench.values() == ["a", "b", "c"]


@pytest.mark.rule("R2.6.6")
def test_an_offer_that_waits_is_refused_when_the_writer_closes():
    """Who waited for room is told that its record was not taken."""
    bench = Bench(partitions=1, inbox_records=1)
    bench.writer._inboxes[0].open()
    bench.writer.offer_to(0, "a")
    refused = []

    def offer():
        try:
            bench.writer.offer_to(0, "b")
        except WrongState as error:
            refused.append(error.message)

    producer = threading.Thread(target=offer)
    producer.start()
    bench.inboxes[0].waits.acquire()
    bench.writer._inboxes[0].close()
    producer.join()

    assert refused == ["offer: the writer is closed; make another one for the topic"]
    assert bench.writer.undelivered() == [[(None, "a", None)]]


@pytest.mark.rule("R2.6.5")
def test_an_empty_flush_is_fine():
    """Nothing was offered: flush returns; again; and after records, too."""
    bench = Bench()
    with bench.writer as writer:
        writer.flush()
        writer.flush()
        writer.offer("k", "v")
        writer.flush()
        writer.flush()

    assert bench.topic.size() == 1


@pytest.mark.rule("R2.6.6", "R11.13")
def test_calls_before_start_and_after_close_are_errors():
    """No call hangs or is lost: each names the state and what to do."""
    bench = Bench()
    writer = bench.writer
    for call in (lambda: writer.offer("k", "v"), lambda: writer.offer_to(0, "v"), writer.flush):
        with pytest.raises(WrongState, match="not started yet; start it first"):
            call()
    writer.start()
    with pytest.raises(WrongState, match="start: the writer is open"):
        writer.start()
    writer.close()
    for call in (lambda: writer.offer("k", "v"), lambda: writer.offer_to(0, "v"), writer.flush, writer.start):
        with pytest.raises(WrongState, match="closed; make another one"):
            call()
    writer.close()
    assert bench.topic.size() == 0


def test_a_writer_that_never_started_closes():
    """Close before start is fine and final."""
    bench = Bench()
    bench.writer.close()

    with pytest.raises(WrongState):
        bench.writer.start()


def test_bad_offers_are_refused_where_they_are_made():
    """A bad value, key or partition never reaches a worker, and stops none."""
    bench = Bench()
    with bench.writer as writer:
        for call in (
            lambda: writer.offer("k", None),
            lambda: writer.offer(None, "v"),
            lambda: writer.offer("k", {1, 2}),
            lambda: writer.offer_to(2, "v"),
            lambda: writer.offer_to(-1, "v"),
            lambda: writer.offer_to(True, "v"),
            lambda: writer.offer_to(0.0, "v"),
            lambda: ConcurrentTopic(bench.topic, partitions=0),
            lambda: ConcurrentTopic(bench.topic, partitions="3"),
        ):
            with pytest.raises(Rejected) as refused:
                call()
            assert refused.value.code is Code.INVALID_REQUEST
        writer.offer("k", "v")
        writer.flush()

    assert bench.topic.size() == 1


@pytest.mark.rule("R2.6.3", "R2.6.4")
def test_making_a_writer_sets_the_number_of_partitions():
    """The topic gets the number; where that moves keys, the writer says so."""
    bench = Bench(partitions=2)

    assert (bench.topic.num_partitions(), bench.writer.rerouted) == (2, None)
    assert ConcurrentTopic(bench.topic, partitions=3).rerouted == Rerouted(2, 3)
    with pytest.raises(Rejected, match="partitions: at most 256"):
        ConcurrentTopic(bench.topic, partitions=THREADS_MAX + 1)


@pytest.mark.rule("R2.6.7", "R11.13")
def test_stats_count_what_was_done_and_what_waits():
    """totalRecords, totalSyncs, queueDepth(p), numPartitions."""
    bench = Bench(partitions=2, batch_records=2)
    for inbox in bench.writer._inboxes:
        inbox.open()
    for n in range(5):
        bench.writer.offer_to(1, n)
    fork = bench.topic.fork()
    bench.writer._workers[1].work_once(fork)

    assert bench.writer.stats() == WriterStats(total_records=2, total_syncs=1, queue_depths=(0, 3))
    assert bench.writer.stats().num_partitions == 2


@pytest.mark.rule("R2.4.2", "R2.6.6")
def test_a_worker_that_is_not_leader_stops_and_tells():
    """Somebody else leads the partition: flush, offers and close raise, and the records are given back in order."""
    bench = Bench(partitions=1)
    other = LatticeTopic("t", clock=bench.clock)
    other.partition(0).acquire("n2", ttl_ms=1000)
    bench.topic.merge(other.state)
    bench.writer._inboxes[0].open()  # both are there before the worker looks
    bench.writer.offer_to(0, "a")
    bench.writer.offer_to(0, "b", key="k")
    bench.writer.start()

    with pytest.raises(NotLeader, match="led by n2"):
        bench.writer.flush()
    with pytest.raises(NotLeader):
        bench.writer.offer_to(0, "c")
    with pytest.raises(NotLeader):
        bench.writer.flush()
    with pytest.raises(NotLeader):
        bench.writer.close()
    assert bench.writer.undelivered() == [[(None, "a", None), ("k", "b", None)]]
    assert bench.topic.size() == 0


def test_a_lease_lost_between_offer_and_sync_stops_the_worker():
    """The fork took the batch, the topic got another leader: nothing arrives, and the rows are given back."""
    guard, clock = Meanwhile(), ManualClock(NOW)
    topic = LatticeTopic("t", Root(TOPIC, guard=guard), editor=Editor(clock))
    writer = ConcurrentTopic(topic, partitions=1)
    worker, inbox = writer._workers[0], writer._inboxes[0]
    inbox.open()
    fork = topic.fork()
    inbox.put((None, "a", None))
    inbox.put((None, "b", None))
    mark = inbox.mark()
    other = LatticeTopic("t", clock=clock)
    other.partition(0).acquire("n2", ttl_ms=1000)
    guard.works = [lambda: None, lambda: topic.merge(other.state)]  # the fork is brought up to date; it syncs

    assert worker.work_once(fork) is False
    assert mark.is_set()
    assert inbox.left() == [(None, "a", None), (None, "b", None)]
    assert topic.size() == 0
    with pytest.raises(NotLeader, match="sync: epoch 1 is led by n2"):
        writer.offer_to(0, "c")


@pytest.mark.rule("R2.4.2", "R2.6.4")
def test_a_writer_knows_of_a_lease_that_was_taken_or_renewed_after_it_started():
    """A worker that was idle meanwhile offers under the lease of now, not under what its fork was made with."""
    bench = Bench(partitions=1)
    with bench.writer as writer:
        bench.inboxes[0].waits.acquire()  # the worker has its fork, and waits
        bench.topic.partition(0).acquire("n1", ttl_ms=1000)
        writer.offer_to(0, "a")
        writer.flush()
        bench.clock.advance(900)
        bench.topic.partition(0).acquire("n1", ttl_ms=1000)
        bench.clock.advance(900)
        writer.offer_to(0, "b")
        writer.flush()

    assert bench.values() == ["a", "b"]


@pytest.mark.rule("R9.16")
def test_what_others_offered_while_the_worker_was_idle_keeps_its_place():
    """Somebody offers to the partition itself: the worker's next batch comes behind, and nothing diverges."""
    bench = Bench(partitions=1)
    with bench.writer as writer:
        bench.inboxes[0].waits.acquire()
        bench.topic.partition(0).offer("theirs")
        writer.offer_to(0, "ours")
        writer.flush()

    assert bench.values() == ["theirs", "ours"]
    assert bench.topic.take_divergences() == []


def test_an_error_told_a_thousand_times_is_no_larger():
    """Who goes on offering to a worker that has stopped gets its error each time, and nothing piles up in it."""
    bench = Bench(partitions=1)
    bench.topic.partition(0).acquire("n2", ttl_ms=1)
    bench.clock.advance(1)
    bench.writer._inboxes[0].open()
    bench.writer.offer_to(0, "a")
    bench.writer._workers[0].work_once(bench.topic.fork())

    depths = []
    for _ in range(10):
        with pytest.raises(NotLeader) as refused:
            bench.writer.offer_to(0, "b")
        depths.append(len(refused.traceback))
    assert len(set(depths)) == 1


def test_a_writer_whose_workers_cannot_all_be_started_is_closed():
    """Those that run end, start raises, offers are refused instead of waiting for nobody, and close is fine."""
    bench = Bench(partitions=3)
    last = bench.writer._workers[1].thread
    last.start()  # so that it cannot be started again
    with pytest.raises(RuntimeError):
        bench.writer.start()

    for partition in range(3):
        with pytest.raises(WrongState, match="closed"):
            bench.writer.offer_to(partition, "v")
    bench.writer.close()
    assert not last.is_alive()


@pytest.mark.rule("R2.6.6")
def test_a_close_during_the_start_leaves_no_worker_behind():
    """It waits until all are started, and then stops them all."""
    bench = Bench(partitions=3)
    starting, go_on = threading.Event(), threading.Event()
    bench.inboxes[0].entering = lambda: (starting.set(), go_on.wait())
    starter = threading.Thread(target=bench.writer.start)
    starter.start()
    starting.wait()
    closer = threading.Thread(target=bench.writer.close)
    closer.start()
    go_on.set()
    starter.join()
    closer.join()

    assert not any(worker.thread.is_alive() for worker in bench.writer._workers)
    with pytest.raises(WrongState, match="closed"):
        bench.writer.offer_to(0, "v")


def test_who_flushes_behind_a_failed_batch_is_not_left_waiting():
    """A mark that the worker had not come to is reached when the worker ends, and flush raises why."""
    bench = Bench(partitions=1, batch_records=1)
    worker, inbox = bench.writer._workers[0], bench.writer._inboxes[0]
    inbox.open()
    bench.writer.offer_to(0, "a")
    bench.writer.offer_to(0, "b")
    mark = inbox.mark()
    bench.topic.partition(0).acquire("n2", ttl_ms=1)
    bench.clock.advance(1)

    assert worker.work_once(bench.topic.fork()) is False
    assert mark.is_set()
    assert inbox.left() == [(None, "a", None), (None, "b", None)]


@pytest.mark.rule("R2.6.4")
def test_workers_come_to_the_topic_one_after_another():
    """The root's guard is entered under the writer's own lock, so a topic without a guard has one writer at a time."""

    class Seeing:
        seen: list[bool] | None = None

        def __enter__(self):
            if self.seen is not None:
                self.seen.append(writer._primary.locked())

        def __exit__(self, *exception):
            return None

    guard = Seeing()
    topic = LatticeTopic("t", Root(TOPIC, guard=guard))
    writer = ConcurrentTopic(topic, partitions=3)
    guard.seen = []
    with writer:
        for n in range(9):
            writer.offer_to(n % 3, n)
        writer.flush()

    assert topic.size() == 9
    assert len(guard.seen) >= 3
    assert all(guard.seen)


class Broken:
    """A guard with a bug in it, once the topic is made."""

    armed = False

    def __enter__(self):
        if self.armed:
            raise ZeroDivisionError("planted")

    def __exit__(self, *exception):
        return None


def test_a_bug_in_a_worker_hangs_nobody():
    """Whatever it is, it ends that worker, is raised there, and is told to who flushes, offers and closes."""
    guard = Broken()
    topic = LatticeTopic("t", Root(TOPIC, guard=guard))
    writer = ConcurrentTopic(topic, partitions=1)
    worker, inbox = writer._workers[0], writer._inboxes[0]
    inbox.open()
    fork = topic.fork()
    writer.offer_to(0, "a")
    mark = inbox.mark()
    guard.armed = True

    with pytest.raises(ZeroDivisionError):
        worker.work_once(fork)
    assert mark.is_set()
    with pytest.raises(TopicsError, match="writer of partition 0: ZeroDivisionError"):
        writer.offer_to(0, "b")
    assert inbox.mark().is_set()
    assert writer.undelivered() == [[(None, "a", None)]]


@pytest.mark.rule("R2.6.6")
def test_close_waits_so_long_and_can_be_called_again():
    """The topic is busy for longer than the join timeout: close says so, and nothing is lost; later it succeeds."""
    bench = Bench(partitions=1)
    bench.writer.start()
    with bench.guard:
        bench.writer.offer_to(0, "a")
        bench.times[:] = [0.0, 5.0, 5.0]
        with pytest.raises(Rejected, match="close: 1 workers of topic t were still appending") as refused:
            bench.writer.close()
    assert refused.value.code is Code.NOT_READY
    bench.times[:] = [5.0]
    bench.writer.close()

    assert bench.values() == ["a"]


@pytest.mark.rule("R2.6.4", "R1.4.5", "R11.14")
def test_a_writer_signs_once_a_batch():
    """Inside an owner's signed slot a batch is one sync and one signature."""
    clock, key = ManualClock(NOW), KeyPair.from_seed(b"k" * 32)
    lattice = owned_topics(Authority(clock), key)
    slots = Root(lattice, guard=threading.Lock())
    topic = topics_of(slots, lattice, key.public, editor=Editor(clock)).topic("t")
    writer = ConcurrentTopic(topic, partitions=1, options=WriterOptions(batch_records=10))
    before = slots.get()[key.public].envelopes[0].seq
    worker, inbox = writer._workers[0], writer._inboxes[0]
    inbox.open()
    for n in range(25):
        writer.offer_to(0, n)
    fork = topic.fork()
    for _ in range(3):
        worker.work_once(fork)

    assert slots.get()[key.public].envelopes[0].seq == before + 3
    assert list(topic.partition(0).range(0, 99)) == list(range(25))


@pytest.mark.rule("R2.6.4")
def test_others_may_write_to_the_topic_meanwhile():
    """With a guard at the root, metadata, truncation and other topics' writes meet the workers' syncs unharmed."""
    root = Root(LatticeTopics()._lattice, guard=threading.Lock())
    mq = LatticeTopics(root, clock=ManualClock(NOW))
    with ConcurrentTopic(mq.topic("t"), partitions=2, options=WriterOptions(batch_records=7)) as writer:
        for i in range(
            100
        ):  # a truncation beyond the end would move the end, and it may be ahead of the offers
            writer.offer_to(0, i)
        writer.flush()

        def work(n):
            if n < 2:
                for i in range(300):
                    writer.offer_to(n, i)
            else:
                for i in range(100):
                    mq.topic("u").partition(0).offer(i)
                    mq.topic("t").set_meta("seen", i)
                    mq.topic("t").partition(0).truncate(i)

        threads(3, work)
        writer.flush()

        assert [mq.topic("t").partition(n).end_offset() for n in range(2)] == [400, 300]
        assert mq.topic("t").partition(0).start_offset() == 99
        assert (mq.topic("t").get_meta("seen"), mq.topic("u").size()) == (99, 100)
        assert mq.take_divergences() == []
