"""What lies side by side in a batch is folded together, and nobody can tell but by the work."""

import pytest

from tests.engine.driving import T0, Driver
from tests.engine.queue.driving import Queue
from topics.codec.log.frame import Run
from topics.engine.verify import digest


@pytest.fixture
def driver():
    return Driver()


def runs(driver):
    return [(len(item), item.ts) for item in driver.items() if isinstance(item, Run)]


@pytest.mark.parametrize("durability", ["disk", "fsync", "ephemeral"])
def test_writes_that_came_together_are_answered_each_and_read_back(driver, durability):
    driver.put(durability=durability)
    tickets = [driver.propose(driver.appending(*range(count))) for count in (1, 3, 2)]
    driver.run()

    assert [(t.reply.first_seq, t.reply.last_seq, list(t.reply.seqs)) for t in tickets] == [
        (1, 1, [1]), (2, 4, [2, 3, 4]), (5, 6, [5, 6]),
    ]  # fmt: skip
    assert driver.datas() == [b"0", b"0", b"1", b"2", b"0", b"1"]
    assert driver.topic().index.live_bytes == 6
    assert driver.state().durable_seq == {"disk": 0, "fsync": 6, "ephemeral": 0}[durability]


@pytest.mark.rule("T3.10")
def test_they_lie_where_they_were_written_though_a_raise_is_among_them(driver):
    """A raised ceiling is staged: it is folded behind the writes around it, and its bytes are between theirs."""
    driver.put(durability="disk")
    among = 0
    for _ in range(200):
        for _ in range(5):
            driver.propose(driver.appending(1, 2))
        staged = [entry.staged for entry in driver.take().entries]
        among += any(staged) and not staged[0] and not staged[-1]
        driver.run()

    assert among
    assert driver.datas() == [b"1", b"2"] * 1000
    assert digest(driver.replay()) == digest(driver.engine.catalog)


def test_a_write_of_another_ms_or_with_labels_stays_by_itself(driver):
    driver.put(durability="disk")
    driver.propose(driver.appending(1))
    driver.clock.advance(1)
    driver.propose(driver.appending(2))
    driver.propose(driver.appending(3, tag=b"a"))
    driver.propose(driver.appending(4))
    driver.propose(driver.appending(5, idempotency_key=b"k"))
    driver.propose(driver.appending(6))
    driver.run()

    assert list(driver.topic().index.ts) == [T0, *[T0 + 1] * 5]
    assert driver.datas() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert driver.append(9, idempotency_key=b"k").first_seq == 5
    assert digest(driver.replay()) == digest(driver.engine.catalog)


def test_acks_of_several_workers_have_a_frame_each_and_count_together():
    queue = Queue()
    queue.jobs(*range(5))
    for node in (b"a", b"b", b"c"):
        assert queue.claim(node=node)
    queue.clock.advance(1)
    acks = [queue.propose(queue.acking(seq, node=node)) for seq, node in ((3, b"c"), (1, b"a"))]
    queue.clock.advance(1)
    acks.append(queue.propose(queue.acking(2, 9, node=b"b")))
    queue.run()

    assert [(list(t.reply.seqs), list(t.reply.skipped)) for t in acks] == [([3], []), ([1], []), ([2], [9])]
    assert {(t.reply.ready, t.reply.in_flight) for t in acks} == {(2, 0)}
    assert [(event.node, list(event.seqs)) for event in queue.events()[-3:]] == [
        (b"c", [3]), (b"a", [1]), (b"b", [2]),
    ]  # fmt: skip
    queue.agrees()


def test_a_failed_batch_tells_each_of_them():
    queue = Queue()
    queue.jobs(*range(2))
    queue.claim(2)
    tickets = [queue.propose(queue.acking(seq)) for seq in (1, 2)]
    tickets += [queue.propose(queue.appending(1, topic="q")) for _ in range(2)]
    queue.take()
    error = queue.fail()

    assert [ticket.error for ticket in tickets] == [error] * 4
    assert queue.topic("q").index.live_count == 2
