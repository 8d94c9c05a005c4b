"""How queues join: the laws on any states, the counterexamples of the page with their repairs, and the wire form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_queues import canon, honest, hostile, leases, record, shown, state
from topics.codec.cell import CellMap, decode_cell, encode_cell
from topics.lattice.queues.fence import Lease
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.metadata import Metadata
from topics.lattice.queues.queue_state import QUEUES, ZERO, LatticeQueueState, is_queue, queue_from_cell
from topics.lattice.values.laws import (
    check_commutes,
    check_deliveries,
    check_garbage,
    check_laws,
    check_mutator,
)
from topics.testing.clock import ManualClock


def same(a, b):
    return encode_cell(a.to_cell()) == encode_cell(b.to_cell())


# --- the laws


@pytest.mark.rule("R1.1.1", "R9.1", "R9.2", "R9.3", "R9.4")
@pytest.mark.invariant("I-14")
@given(a=hostile, b=hostile, c=hostile)
def test_any_three_states_join_by_the_laws(a, b, c):
    """P1 to P4 on states that no single leader could have written."""
    check_laws(QUEUES, a, b, c, same=same)


@pytest.mark.rule("R1.1.1", "R9.6")
@given(data=st.data(), states=st.lists(hostile, min_size=2, max_size=5))
def test_any_delivery_ends_in_the_same_bytes(data, states):
    """P6: any order, with repetitions."""
    orders = [states, *(data.draw(st.permutations(states + states[:2])) for _ in range(3))]
    check_deliveries(QUEUES, orders, same=same)


@pytest.mark.rule("R2.3.2", "R9.9", "R9.10", "R9.11", "R9.13")
@given(a=honest(), b=honest())
def test_honest_states_join_as_intervals(a, b):
    """P9, P10, P11, P13: (max start, max end), each offset with the record the log has there, nil outside."""
    joined = a.join(b)

    assert (max(a.start, b.start), max(a.stop, b.stop)) == (joined.start, joined.stop)
    assert joined.stop - joined.start == len(joined.entries)
    assert list(range(joined.start, joined.stop)) == shown(joined)[1]
    assert joined.entries.at(joined.start - 1) is joined.entries.at(joined.stop) is None
    assert same(joined, a.merge_cad(b))


@pytest.mark.rule("R9.12")
@given(a=hostile, b=hostile, at=st.integers(0, 14))
def test_truncation_commutes_with_the_join(a, b, at):
    """P12: truncate one side, the other, or the result: one state (but for its stamp)."""
    late = max(a.timestamp, b.timestamp)
    after = a.join(b).truncate(at, late)[0]
    before = a.truncate(at, late)[0].join(b)

    assert shown(after) == shown(before) == shown(a.join(b.truncate(at, late)[0]))


@pytest.mark.rule("R1.1.1", "R9.5", "R9.8")
@given(before=hostile, now_ms=st.integers(0, 5), at=st.integers(-1, 14), holder=st.sampled_from("ab"))
def test_every_edit_moves_up(before, now_ms, at, holder):
    """P5, P8: appending, truncating, metadata and leading, whatever the clock says; start and end never fall."""
    stamp = before.stamp(now_ms)
    edits = [
        before.append([record("x", timestamp=stamp)], stamp),
        before.truncate(at, now_ms)[0],
        before.put_meta("a", None, now_ms),
    ]
    if not before.lease.is_live(now_ms):
        edits.append(before.acquire(holder, ttl_ms=2, now_ms=now_ms))
    for after in edits:
        check_mutator(QUEUES, before, after, same=same)
        assert after.start >= before.start
        assert after.stop >= before.stop


@given(a=leases, b=leases, c=leases)
def test_leases_join_by_the_laws(a, b, c):
    """The highest epoch stays; one epoch taken twice has one holder everywhere."""
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) is a
    assert max(a.epoch, b.epoch) == a.join(b).epoch


# --- counterexample 1: ties


@pytest.mark.rule("R8.1", "R1.1.3", "R7.1")
def test_counterexample_1_own_wins_does_not_commute():
    """8.1: by the text (3,[b,c]) and (3,[c,c]) each keep their own; the join decides by the last difference."""
    a, b = state(3, "bc"), state(3, "cc")

    assert shown(a.merge_cad(b)) == (3, ["b", "c"])
    assert shown(b.merge_cad(a)) == (3, ["c", "c"])
    assert a.join(b) is b.join(a)


def lexicographic(own, other):
    """The naive repair: of two slices the longer, and of two equally long ones the larger."""
    start = max(own[0], other[0])
    slices = [side[1][max(start - side[0], 0) :] for side in (own, other)]
    return start, max(slices, key=lambda values: (len(values), values))


@pytest.mark.rule("R8.1")
def test_counterexample_1_the_larger_vector_does_not_associate():
    """8.1: truncation removes the prefix that decided. From the last record backwards it cannot."""
    a, b, c = (3, list("c")), (2, list("abba")), (2, list("bbab"))

    assert (3, list("bba")) == lexicographic(lexicographic(a, b), c)
    assert (3, list("bab")) == lexicographic(a, lexicographic(b, c))

    x, y, z = state(3, "c"), state(2, "abba"), state(2, "bbab")
    check_laws(QUEUES, x, y, z, same=same)
    assert (x.join(y)).join(z) == x.join(y.join(z))


@pytest.mark.rule("R2.4.1", "R8.1")
def test_the_longer_end_wins_whatever_the_length():
    """At one end the records decide, not how many there are; a shorter end always gives way."""
    assert shown(state(0, "abc").join(state(2, "xy"))) == (2, ["x", "y"])
    tie = state(0, "abc").join(state(2, "c"))
    assert shown(tie) == (2, ["c"])


# --- counterexample 2: metadata


@pytest.mark.rule("R8.2", "R1.1.3")
def test_counterexample_2_own_metadata_wins_on_both_sides():
    """8.2: by the text {k:1} and {k:2} stay apart for ever; by stamp and value they agree."""
    a, b = state(0, "", meta={"k": 1}), state(0, "", meta={"k": 2})

    assert [a.merge_cad(b).metadata.get("k"), b.merge_cad(a).metadata.get("k")] == [1, 2]
    assert 2 == a.join(b).metadata.get("k") == b.join(a).metadata.get("k")


def by_state_time(own, other):
    """The naive repair: of two values the one of the state with the later timestamp."""
    late, early = (own, other) if own[1] >= other[1] else (other, own)
    return {**early[0], **late[0]}, late[1]


@pytest.mark.rule("R8.2", "R2.5.1")
def test_counterexample_2_one_stamp_for_the_state_does_not_associate():
    """8.2: c at 3 has no k, but lends its time to whoever is joined first. A stamp a key cannot be lent."""
    a, b, c = ({"k": "A"}, 1), ({"k": "B"}, 2), ({}, 3)

    assert by_state_time(by_state_time(a, c), b)[0] == {"k": "A"}
    assert by_state_time(by_state_time(a, b), c)[0] == {"k": "B"}

    x = state(0, "", timestamp=1, meta={"k": "A"}, stamps={"k": 1})
    y = state(0, "", timestamp=2, meta={"k": "B"}, stamps={"k": 2})
    z = state(0, "", timestamp=3)
    assert "B" == x.join(z).join(y).metadata.get("k") == x.join(y).join(z).metadata.get("k")


@pytest.mark.rule("R2.5.1", "R11.6")
def test_metadata_is_decided_by_stamp_then_by_value():
    """The higher stamp; at one stamp the larger canonical value; a missing stamp is 0; nil is the tombstone."""
    unstamped = state(0, "", meta={"k": "z", "other": 1})
    stamped = state(0, "", meta={"k": "a"}, stamps={"k": 1})
    tied = state(0, "", meta={"k": "b"}, stamps={"k": 1})
    gone = state(0, "", meta={"k": None}, stamps={"k": 2})

    assert unstamped.join(stamped).metadata.get("k") == "a"
    assert "b" == stamped.join(tied).metadata.get("k") == tied.join(stamped).metadata.get("k")
    assert gone.join(tied).metadata.get("k") is None
    assert CellMap({"k": None, "other": 1}) == unstamped.join(gone).metadata.values()


@pytest.mark.rule("R2.5.1")
def test_a_local_edit_beats_an_unstamped_foreign_value():
    """A local `set_meta` is stamped above 0 even without a clock, as the seed's "own wins" demands."""
    queue = LatticeQueue()
    queue.set_meta("k", "mine")
    queue.merge(((), {"k": "theirs"}, 0, 0))

    assert queue.get_meta("k") == "mine"


@pytest.mark.rule("R10.1")
def test_q25_the_fork_s_edit_wins_the_tie_in_its_sync():
    """Q25: a hand-made pair at 100 is "edited" by the text; through our API the edit is stamped 101 and wins anyway."""
    stale = state(0, "", timestamp=100, meta={"k": "stale"}, stamps={"k": 100})
    edited = state(0, "", timestamp=100, meta={"k": "edited"}, stamps={"k": 100})

    assert edited.merge_cad(stale).metadata.get("k") == "edited"
    assert edited.join(stale).metadata.get("k") == "stale"  # equal stamps by hand: canon decides

    queue = LatticeQueue(clock=ManualClock(100))
    queue.merge(stale)
    fork = queue.fork()
    fork.set_meta("k", "edited")
    queue.offer("somebody else was here")
    fork.sync()
    assert queue.get_meta("k") == "edited"
    assert [entry.stamp for entry in queue.state.metadata] == [101]


# --- literal rule


@pytest.mark.rule("R2.3.1", "R1.1.3", "R11.7")
@given(a=hostile, b=hostile)
def test_merge_cad_is_the_text(a, b):
    """Start and timestamp by max, slices to the start, the longer one, ties to the first operand, metadata by union."""
    start = max(a.start, b.start)
    mine, theirs = ([r.value for r in s.entries.between(start, s.stop)] for s in (a, b))
    merged = a.merge_cad(b)

    assert (start, theirs if len(theirs) > len(mine) else mine) == shown(merged)
    assert max(a.timestamp, b.timestamp) == merged.timestamp
    assert CellMap([*b.metadata.values().items(), *a.metadata.values().items()]) == merged.metadata.values()
    assert a.merge_cad(a) is a


@pytest.mark.rule("R1.1.3", "R2.4.1")
def test_merge_cad_and_join_agree_on_honest_states():
    """The seed's law holds under one leader, so both rules give one result there."""
    a, b = state(2, range(2, 90)), state(40, range(40, 130))

    assert same(a.merge_cad(b), a.join(b))
    assert same(b.merge_cad(a), a.join(b))


# --- from outside


@pytest.mark.rule("R2.1.3", "R1.1.2", "R10.1", "R11.1", "R9.7")
@pytest.mark.parametrize(
    "garbage",
    [
        None, (), (None,), ((), {}, None, None), ((), {}, 0), [(), {}, 0, 0], ((), {}, 0, -1), ((), {}, -1, 0),
        ((), {}, True, 0), ((), {}, 0, 1.0), ({}, {}, 0, 0), ((), (), 0, 0), ((None,), {}, 0, 0), ((), {}, 0, 2**63),
        (((1, 2, 3),), {}, 0, 0), (((1, None, 3, None),), {}, 0, 0), (((1, 2, "3", None),), {}, 0, 0),
        (((1, 2, 3, ()),), {}, 0, 0), (((1, object(), 3, None),), {}, 0, 0), ((), {"k": {1}}, 0, 0),
        ((), {}, 0, 0, object()), ((), {}, 0, 0, *[None] * 61), (((1, 2, 3, None),), {}, 0, 2**63 - 1), "queue", 7,
        ((), {"\ud800": 1}, 0, 0), (((None,) * 17),), ((), {}, 2**63, 0),
    ],
    ids=range(28),
)  # fmt: skip
def test_q17_what_is_no_queue_is_said_to_be_none_and_changes_nothing(garbage):
    """Q17, P7: nil, short vectors, nil numbers, wrong kinds, negative offsets: false, never an exception, no change."""
    check_garbage(QUEUES, state(1, "ab", timestamp=1), garbage)
    queue = LatticeQueue()
    queue.merge(garbage)

    assert queue.state is ZERO


@pytest.mark.rule("R9.7")
@given(
    garbage=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=2) | st.just({1}),
        lambda inner: (
            st.lists(inner, max_size=5).map(tuple)
            | st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=1), inner, max_size=2)
        ),
        max_leaves=12,
    )
)
def test_garbage_never_raises(garbage):
    """P7: any object at all is judged, read as a queue or as zero, and merged without an exception."""
    queue = LatticeQueue()
    queue.offer("a")
    before = queue.state
    queue.merge(garbage)

    assert QUEUES.check_foreign(garbage) or queue.state is before


@pytest.mark.rule("R2.1.1", "R2.1.3", "R10.1", "R11.1")
def test_q17_zero_and_longer_vectors_are_queues():
    """Q17: zero is one; extra slots are tolerated in states and in records, and a record keeps its own."""
    assert is_queue(((), {}, 0, 0))
    assert is_queue(ZERO.to_cell())
    longer = queue_from_cell((((None, "a", 5, None, "more"),), {}, 9, 4, None, "?", b"from a later version"))

    assert shown(longer) == (4, ["a"])
    assert longer.to_cell() == (((None, "a", 5, None, "more"),), {}, 9, 4)


@pytest.mark.rule("R2.5.1", "R2.1.3")
def test_hidden_slots_that_make_no_sense_count_as_missing():
    """Stamps and lease come from outside too: what is none is 0, or nobody."""
    stamps = {"k": -1, "other": True, "third": 2.0, "not a key": 7}
    odd = queue_from_cell(((), {"k": 1, "other": 2, "third": 3}, 0, 0, stamps, (1, "", 5)))

    assert [entry.stamp for entry in odd.metadata] == [0, 0, 0]
    assert Lease() == odd.lease
    for slot in (None, 3, (), (1, 2, 3), (-1, "a", 3), (True, "a", 3), (1, "a", None), (1, "a" * 257, 3)):
        assert Lease() == queue_from_cell(((), {}, 0, 0, {}, slot)).lease


@pytest.mark.rule("R2.1.1", "R11.1")
@given(before=hostile)
def test_a_state_comes_back_from_its_bytes(before):
    """Cells, bytes, and back: equal, and nothing is written that is not there."""
    cell = before.to_cell()
    after = queue_from_cell(decode_cell(encode_cell(cell)))

    assert before == after
    assert hash(before) == hash(after)
    assert cell == after.to_cell()
    assert (5 if len(before.metadata.stamps()) else 4) <= len(cell) <= 6


def test_states_that_differ_are_not_equal():
    """Each part counts: a record, the start, metadata, a stamp, the timestamp, the lease."""
    base = state(1, "ab", meta={"k": 1})
    others = [
        state(1, "ac", meta={"k": 1}), state(1, "a", meta={"k": 1}), state(0, "ab", meta={"k": 1}), state(1, "ab"),
        state(1, "ab", meta={"k": True}), state(1, "ab", meta={"k": 1}, stamps={"k": 1}),
        state(1, "ab", meta={"k": 1}, timestamp=1), state(1, "ab", meta={"k": 1}, lease=Lease(1, "x", 0)),
    ]  # fmt: skip

    assert base == state(1, "ab", meta={"k": 1})
    assert [base != other for other in others] == [True] * 8
    assert (base == "ab", base.metadata == 1, record("a") == "a") == (False, False, False)
    assert record("a") == record("a") != record("b")
    assert hash(record("a")) == hash(record("a"))


@pytest.mark.rule("R1.1.2")
def test_a_state_may_be_merged_as_it_is_or_as_cells():
    """Both ways of sending a queue end in the same state."""
    foreign = state(2, "xyz", timestamp=4, meta={"k": 1}, stamps={"k": 3}, lease=Lease(2, "n", 8))
    one, two = LatticeQueue(), LatticeQueue()
    one.merge(foreign)
    two.merge(foreign.to_cell())

    assert one.state == two.state == foreign
    check_commutes(QUEUES, one.state, two.state, same=same)


def test_canonical_metadata_keeps_keys_apart_that_python_takes_for_one():
    """1, 1.0 and True are three keys on the way through the wire, too (replication 13)."""
    made = LatticeQueueState(
        metadata=Metadata.from_cells(CellMap([(1, "i"), (1.0, "f"), (True, "b")]), CellMap([(1, 5)]))
    )
    after = queue_from_cell(decode_cell(encode_cell(made.to_cell())))

    assert [after.metadata.get(key) for key in (1, 1.0, True)] == ["i", "f", "b"]
    assert {entry.value: entry.stamp for entry in after.metadata} == {"i": 5, "f": 0, "b": 0}
    assert canon(made) == canon(after)
