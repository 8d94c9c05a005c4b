"""LatticeQueue, operation by operation: the vectors Q1 to Q18 of the page, and what stands around them."""

import pytest

from topics.codec.cell import INT_MAX, CellMap, encode_cell
from topics.kernel.errors import Code, Rejected, WrongState
from topics.lattice.queues.lattice_queue import OFFER_ROWS_MAX, LatticeQueue
from topics.lattice.queues.lattice_topic import LatticeTopic
from topics.lattice.queues.lattice_topics import LatticeTopics
from topics.lattice.queues.queue_state import QUEUES
from topics.lattice.queues.record import RECORD_BYTES_MAX
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.rule("R10.1")

NOW = 1_700_000_000_000


def queue_of(*values, clock=None):
    queue = LatticeQueue(clock=clock or ManualClock(NOW))
    for value in values:
        queue.offer(value)
    return queue


def items(count, start=0):
    """The page's notation: a queue of `item-<offset>`."""
    queue = LatticeQueue(clock=ManualClock(NOW))
    queue.truncate(start)
    for offset in range(start, start + count):
        queue.offer(f"item-{offset}")
    return queue


def values(queue):
    return list(queue.range(0, queue.end_offset()))


@pytest.mark.rule("R2.1.1", "R2.2.3", "R11.1", "R11.3", "R11.4")
def test_q1_an_empty_queue_has_nothing_to_show():
    """Q1: sizes and offsets are 0, every peek is nil, every range empty, and the form is the seed's zero."""
    queue = LatticeQueue()

    assert [queue.size(), queue.start_offset(), queue.end_offset(), queue.is_empty()] == [0, 0, 0, True]
    assert (
        queue.peek_first() is queue.peek_last() is queue.peek_first_entry() is queue.peek_last_entry() is None
    )
    assert queue.peek(0) is None
    assert list(queue.range(0, 10)) == []
    assert ((), CellMap(), 0, 0) == queue.state.to_cell()


@pytest.mark.rule("R2.2.1", "R11.2")
def test_q2_offers_give_consecutive_offsets():
    """Q2: each offer returns the absolute offset of its record."""
    queue = LatticeQueue(clock=ManualClock(NOW))

    assert [queue.offer(value) for value in "abc"] == [0, 1, 2]
    assert 3 == queue.end_offset() == len(queue)


@pytest.mark.rule("R2.2.1", "R2.1.2", "R11.1", "R11.2")
def test_an_offer_takes_a_value_or_a_key_or_headers_too():
    """Three forms of offer; the record has four positions and the producer's stamp."""
    clock = ManualClock(NOW)
    queue = LatticeQueue(clock=clock)
    queue.offer("v")
    clock.advance(5)
    queue.offer("k", "v")
    queue.offer("k", "v", {"trace": 7})

    assert queue.peek_entry(0).cells == (None, "v", NOW, None)
    assert queue.peek_entry(1).cells == ("k", "v", NOW + 5, None)
    assert ("k", "v", NOW + 5, CellMap({"trace": 7})) == queue.peek_entry(2).cells
    assert queue.peek_entry(2).headers == {"trace": 7}
    assert NOW + 5 == queue.state.timestamp == queue.peek_last_entry().timestamp
    assert queue.peek_last_entry().key == "k"


@pytest.mark.rule("R2.1.2", "R11.2")
@pytest.mark.parametrize(
    "arguments",
    [
        (None,),
        ("k", None),
        ("k", None, {}),
        ("k", "v", "headers"),
        ([1],),
        ({1: {2}},),
        (2**63,),
        (float("nan"),),
        (),
    ],
    ids=["nil", "nil-keyed", "nil-full", "headers", "list", "set-inside", "overflow", "nan", "nothing"],
)
def test_q3_what_cannot_be_stored_is_refused_and_nothing_is_appended(arguments):
    """Q3: a nil value is an argument error, so are headers that are no map, and what is no cell."""
    queue = queue_of("a")
    before = queue.state

    with pytest.raises(Rejected) as refused:
        queue.offer(*arguments)

    assert Code.INVALID_REQUEST is refused.value.code
    assert before is queue.state


def test_a_record_has_a_size_limit_and_a_batch_too():
    """A record of more than `RECORD_BYTES_MAX` bytes and more than `OFFER_ROWS_MAX` rows are refused by name."""
    queue = LatticeQueue()

    with pytest.raises(Rejected, match="value: the record is") as refused:
        queue.offer(b"x" * RECORD_BYTES_MAX)
    assert Code.RECORD_TOO_LARGE is refused.value.code
    with pytest.raises(Rejected, match="rows: 10001 at once"):
        queue.offer_all([(None, 1, None)] * (OFFER_ROWS_MAX + 1))
    with pytest.raises(Rejected, match="key: nested deeper"):
        queue.offer(nested(129), "v")
    assert queue.is_empty()


def nested(depth):
    value = ()
    for _ in range(depth - 1):
        value = (value,)
    return value


def test_a_batch_is_appended_whole_or_not_at_all():
    """`offer_all` returns the offsets; one bad row refuses all; no rows change nothing."""
    queue = queue_of("a")

    assert range(1, 3) == queue.offer_all([("k", "b", None), (None, "c", {})])
    with pytest.raises(Rejected):
        queue.offer_all([(None, "d", None), (None, None, None)])
    state = queue.state
    assert range(3, 3) == queue.offer_all([])
    assert state is queue.state
    assert values(queue) == ["a", "b", "c"]


@pytest.mark.rule("R2.1.2")
def test_a_record_does_not_change_when_the_caller_goes_on_changing_what_was_offered():
    """What is stored is a copy of the mapping; reading gives an immutable one."""
    headers, value = {"n": 1}, {"deep": {"list": (1, 2)}}
    queue = LatticeQueue()
    queue.offer("k", value, headers)
    headers["n"] = 2
    value["deep"]["list"] = ()

    assert queue.peek_entry(0).headers == {"n": 1}
    assert queue.peek(0) == {"deep": {"list": (1, 2)}}


@pytest.mark.rule("R2.2.2", "R11.3")
def test_q4_peeks_outside_are_nil():
    """Q4: below the start, at or above the end, and negative: nil."""
    queue = queue_of("a", "b")

    assert [queue.peek(offset) for offset in (99, -1, 2)] == [None, None, None]
    assert [queue.peek_entry(offset) for offset in (99, -1, 2)] == [None, None, None]
    assert [queue.peek(0), queue.peek(1)] == ["a", "b"]


@pytest.mark.rule("R2.2.4", "R11.3")
@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, 2, "abc"),
        (1, 2, "bc"),
        (10, 20, ""),
        (-10, -5, ""),
        (5, 2, ""),
        (-3, 0, "a"),
        (2, 99, "c"),
        (1, 1, "b"),
    ],
)
def test_q5_a_range_has_both_ends_and_is_clamped(first, last, expected):
    """Q5: inclusive, clamped to what is present, empty if disjoint or the wrong way round."""
    assert list(expected) == list(queue_of("a", "b", "c").range(first, last))


@pytest.mark.rule("R2.2.5", "R2.2.7", "R11.5")
def test_q6_truncating_an_empty_queue_moves_it():
    """Q6: truncate(10) of an empty queue drops nothing and leaves start = end = 10."""
    queue = LatticeQueue()

    assert queue.truncate(10) == 0
    assert (queue.start_offset(), queue.end_offset(), queue.size()) == (10, 10, 0)


@pytest.mark.rule("R2.2.7", "R11.5")
def test_q7_truncating_to_where_it_starts_is_a_no_op():
    """Q7: n at or below the start returns 0 and leaves everything, the timestamp too."""
    clock = ManualClock(NOW)
    queue = queue_of("a", "b", clock=clock)
    before = queue.state
    clock.advance(100)

    assert [queue.truncate(n) for n in (0, -1, -(2**70))] == [0, 0, 0]
    assert before is queue.state
    assert (queue.size(), queue.state.timestamp) == (2, NOW)


@pytest.mark.rule("R2.2.7", "R2.2.8", "R11.5")
def test_q8_truncating_drops_the_records_below():
    """Q8: a, b, c truncate(2) drops two; offsets of the rest stay; the timestamp is that of the truncation."""
    clock = ManualClock(NOW)
    queue = queue_of("a", "b", "c", clock=clock)
    clock.advance(3)

    assert queue.truncate(2) == 2
    assert (queue.start_offset(), queue.end_offset()) == (2, 3)
    assert (queue.peek(0), queue.peek(2)) == (None, "c")
    assert queue.state.timestamp == NOW + 3
    assert queue.truncate(2) == 0


@pytest.mark.rule("R2.2.5", "R2.2.7", "R11.5")
def test_q9_truncating_beyond_the_end_leaves_an_empty_queue_there():
    """Q9: a, b truncate(10) drops two; start = end = 10."""
    queue = queue_of("a", "b")

    assert queue.truncate(10) == 2
    assert (queue.is_empty(), queue.start_offset(), queue.end_offset()) == (True, 10, 10)


@pytest.mark.rule("R2.3.7", "R11.5")
def test_q10_the_next_record_sits_at_the_truncation_point():
    """Q10: after truncation offsets go on; past the end, the skipped ones are never assigned."""
    queue = queue_of("a", "b")
    queue.truncate(2)

    assert queue.offer("c") == 2
    queue.truncate(10)
    assert queue.offer("d") == 10
    assert [queue.peek(9), queue.peek(10)] == [None, "d"]


def test_a_metadata_key_holds_no_map():
    """The state is written as a map of them, and a key of a map may be none: better refused than not written."""
    queue = LatticeQueue()
    for key in ({}, {"k": 1}, (1, {})):
        with pytest.raises(Rejected, match="key: a key of a map is a map or holds one"):
            queue.set_meta(key, 1)
    queue.set_meta(("a", 1), 2)

    assert encode_cell(queue.state.to_cell())
    assert queue.get_meta(("a", 1)) == 2


def test_rows_are_triples():
    """Which of two would be the key is not guessed."""
    queue = LatticeQueue()
    for rows in ([("k", "v")], [1], "abc", [(None, "a", None), ["k", "v", None]]):
        with pytest.raises(Rejected, match="rows: each must be a tuple"):
            queue.offer_all(rows)
    assert queue.size() == 0


def test_a_queue_may_be_merged_as_it_is():
    """Not only its state: a handle in its place would pass for garbage, and be left out without a word."""
    queue, replica = queue_of("a", "b"), LatticeQueue()
    replica.merge(queue)

    assert replica.size() == 2
    replica.merge(LatticeTopics())
    assert replica.size() == 2


def test_a_truncation_point_must_be_an_offset():
    """What is no whole number, or beyond 2^63 - 1, is refused; the last offset there is can be truncated to."""
    queue = queue_of("a")

    for wrong in (True, 1.0, "1", None):
        with pytest.raises(Rejected, match="start: must be a whole number"):
            queue.truncate(wrong)
    for wrong in (INT_MAX + 1, 10**400):
        with pytest.raises(Rejected, match=f"start: must be at most {INT_MAX}"):
            queue.truncate(wrong)
    assert queue.truncate(INT_MAX) == 1
    with pytest.raises(Rejected, match="offer: offsets end at"):
        queue.offer("b")
    assert queue.end_offset() == INT_MAX


def test_a_queue_near_the_last_offset_works_like_any():
    """The tree is as tall as offsets ask: 2^63 - 3 is an offset like another."""
    queue = LatticeQueue()
    queue.truncate(INT_MAX - 3)

    assert [queue.offer("a"), queue.offer("b")] == [INT_MAX - 3, INT_MAX - 2]
    assert list(queue.range(0, INT_MAX)) == ["a", "b"]


@pytest.mark.rule("R2.3.1", "R2.3.3", "R11.7")
def test_q11_the_higher_start_wins():
    """Q11: (len 3, start 0) joined with (len 3, start 5) starts at 5 with 3 records, both ways."""
    for own, other in ((items(3), items(3, 5)), (items(3, 5), items(3))):
        own.merge(other.state)

        assert (own.start_offset(), own.size()) == (5, 3)
        assert values(own) == ["item-5", "item-6", "item-7"]


@pytest.mark.rule("R2.3.1", "R2.3.2", "R11.7")
def test_q12_the_longer_vector_wins():
    """Q12: (len 5) joined with (len 3) from one start has 5, both ways."""
    for own, other in ((items(5), items(3)), (items(3), items(5))):
        own.merge(other.state)

        assert [f"item-{n}" for n in range(5)] == values(own)


@pytest.mark.rule("R2.3.3", "R2.3.6", "R11.7")
def test_truncated_to_empty_against_a_long_laggard():
    """Start 10 and empty, joined with 0 to 14, is 10 to 14: truncation wins below, length decides above."""
    empty = LatticeQueue()
    empty.truncate(10)
    for own, other in ((empty, items(15)), (items(15), empty)):
        forked = own.fork()
        forked.merge(other.state)

        assert (forked.start_offset(), forked.end_offset()) == (10, 15)
        assert [f"item-{n}" for n in range(10, 15)] == values(forked)


@pytest.mark.rule("R2.3.4")
def test_a_laggard_jumps_over_what_is_gone():
    """Its end below the other's start: its own records go, nothing is in between, reads below are nil."""
    laggard = items(3)
    laggard.merge(items(2, 7).state)

    assert (laggard.start_offset(), laggard.end_offset(), laggard.size()) == (7, 9, 2)
    assert [laggard.peek(offset) for offset in (2, 6, 7)] == [None, None, "item-7"]


@pytest.mark.rule("R2.3.1", "R11.7")
def test_q15_the_later_timestamp_wins():
    """Q15: 300 joined with 100 is 300, both ways."""
    late, early = LatticeQueue(clock=ManualClock(300)), LatticeQueue(clock=ManualClock(100))
    late.truncate(1)
    early.truncate(1)

    assert 300 == late.merge(early.state).timestamp == early.merge(late.state).timestamp


@pytest.mark.rule("R2.3.1", "R2.5.1", "R11.6")
def test_q16_metadata_of_both_sides_is_there():
    """Q16: {name} joined with {owner} has both."""
    own, other = LatticeQueue(), LatticeQueue()
    own.set_meta("name", "orders")
    other.set_meta("owner", "#42")
    own.merge(other.state)

    assert [own.get_meta(key) for key in ("name", "owner", "created")] == ["orders", "#42", None]
    assert CellMap({"name": "orders", "owner": "#42"}) == own.state.metadata.values()


@pytest.mark.rule("R2.2.6", "R11.6")
def test_metadata_is_read_and_set_key_by_key():
    """`set_meta` bumps the timestamp; 1, 1.0 and True are three keys; None takes a value back."""
    clock = ManualClock(NOW)
    queue = LatticeQueue(clock=clock)
    queue.set_meta(1, "int")
    queue.set_meta(1.0, "float")
    queue.set_meta(True, "bool")

    assert [queue.get_meta(key) for key in (1, 1.0, True)] == ["int", "float", "bool"]
    assert queue.state.timestamp == NOW + 2
    queue.set_meta(1, None)
    assert queue.get_meta(1) is None
    assert len(queue.state.metadata) == 3


@pytest.mark.rule("R1.3.1")
def test_stamps_of_a_clock_that_steps_back_do_not():
    """Metadata set in one ms, or after the clock stepped back, is later still; records never have an earlier stamp."""
    clock = ManualClock(NOW)
    queue = LatticeQueue(clock=clock)
    queue.set_meta("k", 1)
    clock.set(5)
    queue.set_meta("k", 2)
    queue.offer("a")
    queue.truncate(1)

    assert queue.get_meta("k") == 2
    assert queue.state.timestamp == NOW + 1
    assert [entry.stamp for entry in queue.state.metadata] == [NOW + 1]


def test_metadata_is_bounded():
    """A key, a value, and the number of keys have limits that name themselves."""
    queue = LatticeQueue()

    with pytest.raises(Rejected, match="at most 65536 of metadata"):
        queue.set_meta("k", b"x" * 70_000)
    with pytest.raises(Rejected, match="key: list is no cell"):
        queue.set_meta([], 1)
    for n in range(1024):
        queue.set_meta(n, n)
    with pytest.raises(Rejected, match="key: 1024 keys are set"):
        queue.set_meta("one more", 1)
    queue.set_meta(3, "set again")
    assert queue.get_meta(3) == "set again"


@pytest.mark.rule("R1.4.1", "R1.4.3", "R11.8")
def test_q18_a_fork_is_apart_until_sync():
    """Q18: one record on the root; the fork's second is not seen before sync, and is after."""
    queue = queue_of("a")
    fork = queue.fork()
    fork.offer("b")

    assert queue.size() == 1
    fork.sync()
    assert queue.size() == 2
    assert queue.state is fork.state


@pytest.mark.rule("R1.4.1", "R11.8")
def test_forks_nest_and_are_used_again():
    """A fork of a fork comes up one level a sync; afterwards both go on from the result."""
    queue = queue_of("a")
    fork = queue.fork()
    inner = fork.fork()
    inner.offer("b")
    inner.sync()

    assert (queue.size(), fork.size()) == (1, 2)
    fork.sync()
    inner.offer("c")
    inner.sync()
    fork.sync()
    assert values(queue) == ["a", "b", "c"]


@pytest.mark.rule("R1.4.2", "R11.8")
def test_a_write_on_the_parent_meets_the_fork_at_sync():
    """The parent moved: the fork's value is joined, and truncation on one side keeps appends of the other."""
    queue = queue_of("a", "b")
    fork = queue.fork()
    fork.offer("c")
    queue.truncate(1)
    queue.set_meta("name", "q")
    fork.sync()

    assert (queue.start_offset(), queue.end_offset()) == (1, 3)
    assert fork.get_meta("name") == "q"


@pytest.mark.rule("R1.4.2", "R11.8")
def test_a_write_on_the_fork_during_its_sync_is_not_lost():
    """A record that lands on the fork while sync is at the parent is merged into the result."""

    class Busy:
        """A guard of the root: entering it is the moment at which somebody else writes to the fork."""

        def __enter__(self):
            if fork is not None and not written:
                written.append(fork.offer("late"))

        def __exit__(self, *exception):
            return None

    fork, written = None, []
    queue = LatticeQueue(Root(QUEUES, guard=Busy()), clock=ManualClock(NOW))
    fork = queue.fork()
    fork.truncate(4)
    fork.sync()

    assert written == [4]
    assert (queue.start_offset(), queue.end_offset()) == (4, 4)
    assert [fork.start_offset(), fork.end_offset(), fork.peek(4)] == [4, 5, "late"]
    fork.sync()
    assert values(queue) == ["late"]


@pytest.mark.rule("R1.4.6")
def test_the_sync_of_a_root_returns_its_value():
    """Standing alone a queue has nowhere to go: sync gives the value back."""
    queue = queue_of("a")

    assert queue.state is queue.sync()


@pytest.mark.rule("R1.3.2")
def test_a_state_from_the_future_waits_until_the_clock_comes_near():
    """More than an hour ahead is deferred, whole and unaltered, and merged once it is less."""
    ahead, clock = ManualClock(NOW + 3_600_001), ManualClock(NOW)
    foreign, queue = queue_of("a", clock=ahead), queue_of(clock=clock)
    queue.merge(foreign.state)

    assert (queue.size(), queue.waiting()) == (0, 1)
    fork = queue.fork()
    clock.advance(1)
    fork.merge_due()
    assert (fork.size(), queue.waiting()) == (0, 1)
    queue.merge_due()
    assert (queue.size(), queue.waiting()) == (1, 0)
    assert foreign.state == queue.state


@pytest.mark.rule("R1.3.2")
def test_a_drift_of_exactly_an_hour_is_believed():
    """Equality is fine: such a state is merged at once."""
    queue = queue_of(clock=ManualClock(NOW))
    queue.merge(queue_of("a", clock=ManualClock(NOW + 3_600_000)).state)

    assert (queue.size(), queue.waiting()) == (1, 0)


def test_a_partition_is_synced_with_its_topic():
    """A queue inside a topic is no fork; the error says what to do."""
    with pytest.raises(WrongState, match="sync: this is a part"):
        LatticeTopic("t").partition(0).sync()
