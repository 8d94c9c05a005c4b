"""What is said of jobs while something that was said of them before is on its way to the disk (queues 4)."""

import pytest

from tests.engine.queue.driving import Queue
from topics.engine.commands import Ack, Extend, Nack

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
