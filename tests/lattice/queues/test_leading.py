"""One writer a queue: leases, what happens when there are two after all, and consumers that are told of gaps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_queues import shown, state
from topics.codec.cell import CellMap
from topics.kernel.errors import Rejected, WrongState
from topics.lattice.queues.consumer import Consumer, Delivery, OffsetGap
from topics.lattice.queues.divergence import Divergence, find_divergence
from topics.lattice.queues.editor import DIVERGENCES_MAX, Editor
from topics.lattice.queues.entries import Entries
from topics.lattice.queues.fence import Lease, NotLeader
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.queue_state import LatticeQueueState
from topics.lattice.queues.record import QueueRecord
from topics.testing.clock import ManualClock

NOW = 1_700_000_000_000


def pair():
    """Two nodes with a copy each, and their clocks."""
    clocks = ManualClock(NOW), ManualClock(NOW)
    return *(LatticeQueue(clock=clock, topic="t", partition=3) for clock in clocks), *clocks


# --- fencing


@pytest.mark.rule("R2.4.2", "R11.10")
def test_only_the_holder_of_the_lease_may_offer():
    """Once a queue is led, an offer by anybody else is `NotLeader` and appends nothing."""
    leader, other, _, _ = pair()
    lease = leader.acquire("n1", ttl_ms=1000)
    leader.offer("a")
    other.merge(leader.state)

    assert Lease(1, "n1", NOW + 1000) == lease == other.state.lease
    before = other.state
    with pytest.raises(NotLeader, match="offer: epoch 1 is led by n1; acquire the lease first"):
        other.offer("b")
    with pytest.raises(NotLeader, match="holder: n1 leads until"):
        other.acquire("n2", ttl_ms=1000)
    assert before is other.state
    assert leader.offer("c") == 1


@pytest.mark.rule("R2.4.2")
def test_a_queue_that_nobody_ever_led_is_open():
    """As in the seed: without a lease everybody may offer, truncate and set metadata; only offers are fenced."""
    queue, other, _, _ = pair()
    queue.offer("a")
    queue.acquire("n1", ttl_ms=10)
    other.merge(queue.state)

    assert other.truncate(1) == 1
    other.set_meta("k", 1)
    assert other.get_meta("k") == 1


@pytest.mark.rule("R2.4.2", "R11.10")
def test_a_lease_ends_and_the_next_leader_has_the_next_epoch():
    """At its end the lease is over, for its holder too; the next has a higher epoch, and the old one is refused."""
    old, new, old_clock, new_clock = pair()
    old.acquire("n1", ttl_ms=1000)
    old.offer("a")
    new.merge(old.state)
    old_clock.advance(1000)
    new_clock.advance(1000)

    with pytest.raises(NotLeader, match="whose lease ended"):
        old.offer("late")
    assert Lease(2, "n2", NOW + 2000) == new.acquire("n2", ttl_ms=1000)
    assert new.offer("b") == 1
    old.merge(new.state)
    with pytest.raises(NotLeader, match="epoch 2 is led by n2"):
        old.offer("later")
    assert list(old.range(0, 9)) == ["a", "b"]


@pytest.mark.rule("R2.4.2")
def test_a_holder_extends_its_lease_within_the_epoch():
    """Acquiring again while it is live moves the end only, never back; after the end it takes the next epoch."""
    queue, _, clock, _ = pair()
    queue.acquire("n1", ttl_ms=1000)
    clock.advance(400)

    assert Lease(1, "n1", NOW + 1400) == queue.acquire("n1", ttl_ms=1000)
    assert Lease(1, "n1", NOW + 1400) == queue.acquire("n1", ttl_ms=5)
    clock.advance(1000)
    assert Lease(2, "n1", NOW + 2400) == queue.acquire("n1", ttl_ms=1000)
    assert queue.offer("a") == 0


@pytest.mark.rule("R2.4.2")
def test_two_nodes_that_take_one_epoch_agree_on_one_holder():
    """Without a broker both may acquire; after the merge the same one holds it on both sides."""
    one, two, _, _ = pair()
    one.acquire("n1", ttl_ms=1000)
    two.acquire("n2", ttl_ms=900)
    one.merge(two.state)
    two.merge(one.state)

    assert Lease(1, "n2", NOW + 900) == one.state.lease == two.state.lease
    with pytest.raises(NotLeader):
        one.offer("a")
    assert two.offer("b") == 0


@pytest.mark.rule("R2.4.2")
def test_a_fork_of_an_old_leader_may_not_bring_its_records():
    """A sync that brings records is an append where it arrives: fenced, and the records stay on the fork."""
    queue, _, clock, _ = pair()
    queue.acquire("n1", ttl_ms=1000)
    fork, idle = queue.fork(), queue.fork()
    fork.offer("a")
    idle.set_meta("k", 1)
    idle.truncate(7)
    clock.advance(1000)
    queue.acquire("n2", ttl_ms=1000)

    with pytest.raises(NotLeader, match="sync: epoch 2 is led by n2 by now"):
        fork.sync()
    assert (queue.size(), fork.size()) == (0, 1)
    idle.sync()  # it moved the end, but brings no record
    assert queue.end_offset() == 7
    assert queue.get_meta("k") == 1


@pytest.mark.rule("R2.4.2")
def test_an_old_epoch_of_the_same_holder_is_refused():
    """A node restarted under its name and took the next epoch: what runs on of the old process may not offer."""
    old, new, _, new_clock = pair()
    old.acquire("n1", ttl_ms=1000)
    new_clock.advance(1000)
    new.merge(old.state)
    new.acquire("n1", ttl_ms=1000)
    old.merge(new.state)

    with pytest.raises(NotLeader, match="epoch 2 is led by n1"):
        old.offer("a")
    assert new.offer("b") == 0


def test_a_fork_under_the_lease_comes_back():
    """The leader's own forks offer and sync under its lease, also after it was extended."""
    queue, _, clock, _ = pair()
    queue.acquire("n1", ttl_ms=1000)
    fork = queue.fork()
    fork.offer("a")
    clock.advance(1)
    queue.acquire("n1", ttl_ms=2000)
    fork.sync()

    assert queue.size() == 1


def test_a_holder_has_a_name():
    """An empty, overlong or wrong name is refused, naming the field."""
    queue, _, _, _ = pair()

    for wrong in ("", "x" * 257, 7):
        with pytest.raises(Rejected, match="holder: "):
            queue.acquire(wrong, ttl_ms=1)
    for wrong in (0, -1, True, 1.5, 24 * 3600 * 1000 + 1):
        with pytest.raises(Rejected, match="ttl_ms: must be a whole number from 1"):
            queue.acquire("n1", ttl_ms=wrong)
    assert Lease() == queue.state.lease


def test_the_last_epoch_cannot_be_followed():
    """A hostile peer may send the highest epoch there is: nobody leads after it, and the state can still be written."""
    queue, _, _, _ = pair()
    queue.merge(state(0, "a", lease=Lease(2**63 - 1, "x", 0)))

    with pytest.raises(WrongState, match="is the last epoch there is"):
        queue.acquire("n1", ttl_ms=1)
    assert len(queue.state.to_cell()) == 6


# --- two writers after all


@pytest.mark.rule("R2.4.1")
def test_a_shorter_concurrent_fork_is_lost_and_told():
    """f1 +3 and f2 +1 from one base: f1's records stay, f2's vanish, and the divergence says where."""
    queue, _, _, _ = pair()
    queue.offer("base")
    f1, f2 = queue.fork(), queue.fork()
    for value in "abc":
        f1.offer(value)
    f2.offer("x")
    lost = f2.peek_entry(1).digest
    f1.sync()
    f2.sync()

    assert list(queue.range(0, 9)) == ["base", "a", "b", "c"]
    assert [Divergence("t", 3, 1, (lost, queue.peek_entry(1).digest))] == queue.take_divergences()
    assert queue.take_divergences() == []


@pytest.mark.rule("R2.4.1", "R8.1")
def test_at_equal_length_one_record_replaces_the_other_on_every_replica():
    """By the text the later sync replaces what readers saw, each side its own; by the join both sides keep the same."""
    one, two, _, _ = pair()
    one.offer("left")
    two.offer("right")
    literal = one.state.merge_cad(two.state), two.state.merge_cad(one.state)
    left, right = one.state, two.state
    one.merge(right)
    two.merge(left)

    assert tuple(shown(each)[1] for each in literal) == (["left"], ["right"])
    assert one.state == two.state
    digests = left.entries.at(0).digest, right.entries.at(0).digest
    assert [Divergence("t", 3, 0, digests)] == one.take_divergences()
    assert [Divergence("t", 3, 0, digests[::-1])] == two.take_divergences()


@pytest.mark.rule("R2.4.1", "R11.10")
def test_only_the_overlap_is_compared():
    """Records that only one side has are no divergence; the first that differs is told, behind the higher start."""
    own, other = state(0, "abcdef"), state(3, "dxf+")

    assert Divergence("", 0, 4, (own.entries.at(4).digest, other.entries.at(4).digest)) == find_divergence(
        own, other
    )
    assert find_divergence(own, state(5, "f+")) is None
    assert find_divergence(own, state(6, "+")) is None
    assert find_divergence(own, state(9, "+")) is None


@pytest.mark.rule("R2.4.1")
@pytest.mark.parametrize(
    "cells",
    [
        ("k", 1, 0, None),
        (None, True, 0, None),
        (None, 1.0, 0, None),
        (None, 1, 5, None),
        (None, 1, 0, CellMap()),
    ],
    ids=["key", "bool", "float", "timestamp", "headers"],
)
def test_records_differ_in_any_part(cells):
    """Not the value only: another key, stamp or headers is another record, and 1, 1.0 and True are three values."""
    own = state(0, [1])
    other = LatticeQueueState(entries=Entries.empty().extend([QueueRecord(cells)]))

    assert find_divergence(own, other).first_offset == 0
    assert own.join(other) == other.join(own)


def test_untold_divergences_are_bounded():
    """The newest are kept and all are counted."""
    editor = Editor()
    editor.tell(Divergence("t", 0, n, (b"", b"")) for n in range(DIVERGENCES_MAX + 3))

    assert editor.divergences_seen == DIVERGENCES_MAX + 3
    assert editor.take_divergences()[0].first_offset == 3


# --- consumers


@pytest.mark.rule("R2.2.8", "R11.9")
def test_consumers_read_at_their_own_pace():
    """Reading removes nothing; each consumer has its offset, which it stores itself and starts from again."""
    queue = LatticeQueue()
    for value in "abc":
        queue.offer(value)
    fast, slow = Consumer(), Consumer(1)

    assert [item.value for item in fast.poll(queue.state)] == ["a", "b", "c"]
    assert [Delivery(1, queue.peek_entry(1))] == slow.poll(queue.state, limit=1)
    assert (fast.offset, slow.offset, queue.size()) == (3, 2, 3)
    assert fast.poll(queue.state) == []
    queue.offer("d")
    assert [item.value for item in Consumer(slow.offset).poll(queue.state)] == ["c", "d"]
    slow.seek(0)
    assert len(slow.poll(queue.state)) == 4


@pytest.mark.rule("R2.3.5", "R9.14", "R11.9")
def test_a_consumer_below_the_start_is_told_of_the_gap():
    """`{gap_from, gap_to}` in the place of what is gone, once; then it goes on at the start."""
    consumer = Consumer(2)

    assert [OffsetGap(2, 4), "f"] == told(consumer.poll(state(5, "f")))
    assert consumer.offset == 6
    assert consumer.poll(state(5, "f")) == []
    assert [OffsetGap(6, 9)] == consumer.poll(state(10, ""))
    assert consumer.offset == 10


def told(items):
    return [item if isinstance(item, OffsetGap) else item.value for item in items]


@pytest.mark.rule("R2.3.4", "R2.3.5")
def test_a_laggard_s_jump_is_a_gap_for_its_consumers():
    """A replica that jumps over offsets never delivers them, and says so."""
    queue, consumer = LatticeQueue(), Consumer()
    for value in "ab":
        queue.offer(value)
    consumer.poll(queue.state, limit=1)
    queue.merge(state(7, "hi"))

    assert [OffsetGap(1, 6), "h", "i"] == told(consumer.poll(queue.state))


@pytest.mark.rule("R2.3.5")
def test_what_a_consumer_truncated_itself_is_silent():
    """Its own truncation is passed over without a word; what others truncated above that is told."""
    queue, consumer = state(0, "abcdef"), Consumer()
    consumer.poll(queue, limit=3)
    queue = consumer.truncate(queue, 0)
    consumer.seek(0)

    assert shown(queue) == (3, ["d", "e", "f"])
    assert told(consumer.poll(queue, limit=1)) == ["d"]
    consumer.seek(1)
    assert [OffsetGap(3, 4), "f"] == told(consumer.poll(queue.truncate(5, 0)[0]))
    assert Consumer(6, truncated_below=9).offset == 6


@pytest.mark.rule("R9.14")
@given(
    data=st.data(),
    start=st.integers(0, 80),
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 70)), max_size=5),
    limit=st.integers(1, 70),
)
def test_every_offset_is_delivered_or_in_a_gap(data, start, cuts, limit):
    """P14: gaps and deliveries together cover each offset from where it began exactly once, in order."""
    queue, consumer, covered, stop = state(0, ()), Consumer(start), [], 0
    for grow, cut in cuts:
        queue = queue.join(state(queue.start, [*shown(queue)[1], *range(stop, stop + grow)]))
        queue, _ = queue.truncate(cut, 0)
        stop = queue.stop
        for item in consumer.poll(queue, limit):
            if isinstance(item, OffsetGap):
                assert item.gap_to == queue.start - 1
                covered += range(item.gap_from, item.gap_to + 1)
            else:
                assert item.record is queue.entries.at(item.offset)
                covered.append(item.offset)

    assert list(range(start, consumer.offset)) == covered


def test_a_consumer_ahead_of_its_replica_waits():
    """Offsets the replica has not got yet are neither a gap nor an error."""
    consumer = Consumer(9)

    assert consumer.poll(state(0, "abc")) == []
    assert consumer.offset == 9
    for wrong in (0, 10_001):
        with pytest.raises(Rejected, match="limit: must be from 1 to 10000"):
            consumer.poll(state(0, "abc"), limit=wrong)
    with pytest.raises(Rejected, match="offset: must not be negative"):
        Consumer(-1)
