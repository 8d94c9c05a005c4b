"""What a peer can put into queues and topics, and what it must not do to who merges it."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.cell import CELL_DEPTH_MAX, VALUE_DEPTH_MAX, CellMap, decode_cell, encode_cell
from topics.lattice.queues.consumer import Consumer
from topics.lattice.queues.fence import LEASE_MS_MAX, NotLeader
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.lattice_topics import LatticeTopics
from topics.lattice.queues.topic_map import TOPICS, topics_to_cell
from topics.lattice.values.stamps import MAX_DRIFT_MS
from topics.testing.clock import ManualClock

NOW = 1_700_000_000_000


def nested(depth, inner=1):
    for _ in range(depth):
        inner = (inner,)
    return inner


def queue_with(value):
    return (((None, value, 0, None),), {}, 0, 0)


@pytest.mark.rule("R2.1.3", "R2.6.1", "R9.7")
def test_what_a_partition_takes_its_topics_can_write():
    """A peer's value as deep as a cell may be would lie too deep in the map of topics, so it is no record."""
    topics = LatticeTopics()
    for depth in range(VALUE_DEPTH_MAX - 1, CELL_DEPTH_MAX - 2):
        topics.topic("t").partition(depth).merge(queue_with(nested(depth)))
        topics.topic("m").partition(depth).merge(((), {"k": nested(depth)}, 0, 0))
        topics.topic(f"q{depth}").merge({"partitions": {0: queue_with(nested(depth))}})
        topics.topic(f"m{depth}").merge({"meta": {"k": nested(depth)}})

    assert topics.topic("t").partitions() == [VALUE_DEPTH_MAX - 1, VALUE_DEPTH_MAX]
    again = LatticeTopics()
    again.merge(decode_cell(encode_cell(topics_to_cell(topics.state))))
    assert topics_to_cell(again.state) == topics_to_cell(topics.state)


@pytest.mark.rule("R2.6.1")
def test_a_key_nobody_knows_here_is_no_deeper_than_a_value():
    """Else the topics that hold it would be taken for none by the next merge within this process."""
    topics, again = LatticeTopics(), LatticeTopics()
    topics.merge(
        {
            "t": {"later": nested(VALUE_DEPTH_MAX + 1), "meta": {"k": 1}},
            "u": {"later": nested(VALUE_DEPTH_MAX)},
        }
    )
    again.merge(topics.state)

    assert topics.topic("t").state.keys() == {"meta"}
    assert topics_to_cell(again.state) == topics_to_cell(topics.state)


@pytest.mark.rule("R2.6.1", "R9.7")
@pytest.mark.parametrize("name", ["", "n" * 257], ids=["empty", "long"])
def test_a_topic_with_a_name_that_nobody_may_use_is_not_there(name):
    """Who goes through the names asks for each of them; the topics beside it are taken."""
    topics = LatticeTopics()
    peers = {"t": {"partitions": {0: queue_with("a")}}, name: {"partitions": {0: queue_with("b")}}}
    topics.merge(peers)

    assert [topics.topic(found).size() for found in topics.names()] == [1]
    assert set(TOPICS.sift({}, {name: {}})) == set()


@pytest.mark.rule("R1.3.2", "R2.4.2")
def test_a_lease_for_ever_waits_like_any_stamp_from_the_future():
    """No lease is longer than a day, so one that ends later than that was acquired in the future."""
    queue = LatticeQueue(clock=ManualClock(NOW))
    last = NOW + MAX_DRIFT_MS + LEASE_MS_MAX
    queue.merge(((), {}, 0, 0, {}, (1, "mallory", 2**63 - 1)))
    queue.merge(((), {}, 0, 0, {}, (1, "mallory", last + 1)))

    assert queue.acquire("me", ttl_ms=1000).epoch == 1
    assert queue.waiting() == 2
    queue.merge(((), {}, 0, 0, {}, (2, "in time", last)))
    with pytest.raises(NotLeader, match="in time leads"):
        queue.acquire("me", ttl_ms=1000)


ODD = st.sampled_from(
    [None, True, 0, 1, -1, 2**63 - 1, -(2**63), 2**62, 4095, 4096, 1.0, float("inf"), "", "a", "partitions", "meta",
     "meta-stamps", "num-partitions", b"", (), ((),), CellMap(), NOW, NOW + 2 * MAX_DRIFT_MS, "n" * 257]
)  # fmt: skip


def mostly(good):
    """Nine times of ten what belongs there."""
    return st.integers(0, 9).flatmap(lambda n: good if n else ODD)


RECORDS = st.tuples(ODD, st.sampled_from("abc"), st.just(0), st.none()) | st.lists(ODD, max_size=5).map(tuple)
MAPS = st.dictionaries(st.sampled_from(["a", 1, "num-partitions"]), ODD, max_size=2).map(CellMap)
LEASES = st.tuples(mostly(st.integers(0, 2)), mostly(st.sampled_from("xy")), ODD)
OFFSETS = st.sampled_from([0, 1, 2, 2**62, 2**63 - 7])
STATES = st.tuples(
    mostly(st.lists(mostly(RECORDS), max_size=4).map(tuple)),
    mostly(MAPS), mostly(st.just(5)), mostly(OFFSETS), mostly(MAPS), mostly(LEASES),
)  # fmt: skip
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "partitions": mostly(
            st.dictionaries(st.sampled_from([0, 1, 4095, 4096, -1, "0"]), mostly(STATES), max_size=2).map(
                CellMap
            )
        ),
        "meta": mostly(MAPS),
        "meta-stamps": mostly(MAPS),
        "later": ODD,
    },
).map(CellMap)
MESSAGES = st.dictionaries(st.sampled_from(["t", "t", "t", ""]), mostly(PARTS), max_size=2).map(CellMap)


@pytest.mark.rule("R9.6", "R9.7", "R2.6.1")
@given(messages=st.lists(MESSAGES, min_size=1, max_size=3))
def test_whatever_peers_send_all_replicas_end_alike_and_can_be_read_and_sent(messages):
    """In any order, also when it had to wait for the clock; what is read back from the bytes is the same again."""
    ends = []
    for order in permutations(messages):
        clock = ManualClock(NOW)
        topics = LatticeTopics(clock=clock)
        for message in order:
            topics.merge(message)
        for topic in map(topics.topic, topics.names()):
            assert topic.num_partitions() >= 0
            for queue in map(topic.partition, topic.partitions()):
                assert None not in list(queue.range(0, 2**63 - 1))
                assert len(Consumer().poll(queue.state)) >= queue.size()
        clock.set(2**63 - 1)
        topics.merge_due()
        ends.append(encode_cell(topics_to_cell(topics.state)))
        again, here = LatticeTopics(), LatticeTopics()
        again.merge(decode_cell(ends[-1]))
        here.merge(topics.state)
        assert [ends[-1]] * 2 == [encode_cell(topics_to_cell(copy.state)) for copy in (again, here)]

    assert len(set(ends)) == 1
