"""Topics, partitions, the map of topics, and the owner's signed slot they travel in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_queues import hostile, metadatas, state
from topics.codec.cell import CellMap, decode_cell, encode_cell
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt, Rejected, WrongState
from topics.lattice.owners.authority import Authority
from topics.lattice.queues.editor import Editor
from topics.lattice.queues.fence import NotLeader
from topics.lattice.queues.lattice_topic import LatticeTopic
from topics.lattice.queues.lattice_topics import REGION, LatticeTopics, merge_owners, owned_topics, topics_of
from topics.lattice.queues.routing import PARTITIONS_MAX, Rerouted, partition_of
from topics.lattice.queues.topic_map import (
    META,
    NUM_PARTITIONS,
    PARTITIONS,
    TOPIC,
    TOPICS,
    TopicsCodec,
    topic_from_cell,
    topic_to_cell,
    topics_from_cell,
    topics_to_cell,
)
from topics.lattice.values.algebra import MapLattice
from topics.lattice.values.cursor import EntryStep, Root
from topics.lattice.values.laws import check_garbage, check_laws
from topics.testing.clock import ManualClock

NOW = 1_700_000_000_000


def topic_named(name="t", partitions=0, clock=None):
    topic = LatticeTopic(name, clock=clock or ManualClock(NOW))
    if partitions:
        topic.set_num_partitions(partitions)
    return topic


# --- routing


@pytest.mark.rule("R2.6.2", "R10.1", "R11.11")
def test_q20_a_keyed_offer_needs_a_number_of_partitions():
    """Q20: without num-partitions (0 if unset) a keyed offer is a state error and writes nothing."""
    topic = topic_named()

    assert topic.num_partitions() == 0
    with pytest.raises(WrongState, match="topic t: num-partitions is not set"):
        topic.offer("k", "v")
    assert topic.state == {}


@pytest.mark.rule("R2.6.3", "R10.1", "R11.11")
def test_q21_one_key_has_one_partition():
    """Q21: a hundred keys over four partitions make a hundred records; ten records of one key lie in one partition."""
    topic, single = topic_named(partitions=4), topic_named(partitions=4)
    for n in range(100):
        topic.offer(f"key-{n}", n)
    for n in range(10):
        single.offer("k", n)

    assert topic.size() == 100
    assert topic.partitions() == [0, 1, 2, 3]
    assert len(single.partitions()) == 1
    assert list(range(10)) == list(single.partition(single.partitions()[0]).range(0, 9))


@pytest.mark.rule("R2.6.1", "R10.1", "R11.11")
def test_q22_partitions_can_be_named():
    """Q22: direct offers to partitions 0, 0 and 2 leave sizes 2, 0 and 1; only what was written is there."""
    topic = topic_named()
    for index in (0, 0, 2):
        topic.partition(index).offer("v")

    assert [topic.partition(index).size() for index in range(3)] == [2, 0, 1]
    assert topic.partitions() == [0, 2]


@pytest.mark.rule("R2.6.3", "R13.1")
@pytest.mark.parametrize(
    ("key", "index"),
    [("key-0", 0), ("key-1", 30), (b"key-0", 47), (0, 45), (0.0, 47), (False, 63), ((), 27), (-1, 19)],
)
def test_the_partition_of_a_key_is_the_same_everywhere_and_for_ever(key, index):
    """These numbers are the format: another hash would send keys elsewhere after an upgrade."""
    assert index == partition_of(key, 64)


@pytest.mark.rule("R2.6.3", "R13.1")
@given(
    key=st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.booleans(),
    count=st.integers(1, PARTITIONS_MAX),
)
def test_every_key_has_a_partition(key, count):
    """The hash is unsigned: no key falls below 0, the smallest long neither."""
    assert 0 <= partition_of(key, count) < count
    assert partition_of(key, count) == partition_of(key, count)


def test_a_record_without_a_key_needs_a_named_partition():
    """None is no key: all such records would lie in one partition, and nobody would see why."""
    with pytest.raises(Rejected, match="key: must not be None"):
        topic_named(partitions=2).offer(None, "v")


@pytest.mark.rule("R2.6.2", "R2.6.3")
def test_more_partitions_warn():
    """Setting it first, or again, is quiet; another number is told: keys go elsewhere from now on."""
    topic = topic_named()

    assert topic.set_num_partitions(4) is None
    stamped = topic.state
    assert topic.set_num_partitions(4) is None
    assert stamped is topic.state
    warning = topic.set_num_partitions(8)
    assert Rerouted(4, 8) == warning
    assert "num-partitions went from 4 to 8" in str(warning)
    assert 8 == topic.num_partitions() == topic.get_meta("num-partitions")


@pytest.mark.parametrize("wrong", [0, -1, PARTITIONS_MAX + 1, True, 2.0, None, "4"])
def test_what_is_no_number_of_partitions_is_refused_and_ignored(wrong):
    """Set here it is an error; from a peer it counts as unset, and so does a partition of such an id."""
    topic = topic_named()

    with pytest.raises(Rejected, match="count: must be a whole number from 1"):
        topic.set_num_partitions(wrong)
    topic.merge({META: {NUM_PARTITIONS: wrong}})
    assert topic.num_partitions() == 0
    if wrong != 0:
        with pytest.raises(Rejected, match="partition: must be a whole number from 0"):
            topic.partition(wrong if wrong != PARTITIONS_MAX + 1 else PARTITIONS_MAX)


@pytest.mark.rule("R9.15")
@given(
    offers=st.lists(st.tuples(st.sampled_from(["a", "b", 1, True, 1.0, b"a"]), st.integers()), max_size=30),
    count=st.integers(1, 5),
)
def test_keyed_offers_keep_their_order_in_one_partition(offers, count):
    """P15: what is offered under a key is read in that order, from one partition."""
    offers = [(key, value % 1000) for key, value in offers]
    topic = topic_named(partitions=count)
    for key, value in offers:
        topic.offer(key, value)
    for key in {encode_cell(key): key for key, _ in offers}.values():
        queue = topic.partition(topic.partition_of(key))
        found = [record.value for record in queue.state.entries.between(0, 99) if same_cell(record.key, key)]

        assert [value for other, value in offers if same_cell(other, key)] == found


def same_cell(a, b):
    return encode_cell(a) == encode_cell(b)


# --- the maps


def topics_of_parts(*parts):
    """A map of topics with what is there of queues, metadata and unknown keys."""
    made = {}
    for name, queues, metadata, unknown in parts:
        topic = dict(unknown)
        if queues:
            topic[PARTITIONS] = queues
        if len(metadata):
            topic[META] = metadata
        made[name] = topic
    return made


topic_parts = st.tuples(
    st.sampled_from(["t", "u"]),
    st.dictionaries(st.integers(0, 2), hostile, max_size=2),
    metadatas,
    st.dictionaries(st.sampled_from(["later", "x"]), st.sampled_from([None, 1, True, "x"]), max_size=2),
)
topic_maps = st.lists(topic_parts, max_size=3).map(lambda parts: topics_of_parts(*parts))


def same_topics(a, b):
    return encode_cell(topics_to_cell(a)) == encode_cell(topics_to_cell(b))


@pytest.mark.rule("R2.6.1", "R1.1.1", "R9.1", "R9.2", "R9.3", "R9.4")
@pytest.mark.invariant("I-14")
@given(a=topic_maps, b=topic_maps, c=topic_maps)
def test_maps_of_topics_join_by_the_laws(a, b, c):
    """P1 to P4 for the whole map: partition by partition, metadata by stamps, unknown keys by value."""
    check_laws(TOPICS, a, b, c, same=same_topics)


@pytest.mark.rule("R2.6.1")
@given(topics=topic_maps)
def test_a_map_of_topics_comes_back_from_its_bytes(topics):
    """Cells, bytes, and back."""
    codec = TopicsCodec()
    cell = decode_cell(encode_cell(codec.to_cell(topics)))

    assert same_topics(topics, codec.from_cell(cell))
    assert same_topics(TOPICS.join({}, topics), topics_from_cell(cell))


@pytest.mark.rule("R2.6.1", "R1.1.3")
def test_unknown_keys_keep_own_by_the_text_and_converge_by_the_join():
    """The sources keep own; that does not commute, so the join keeps the larger value."""
    a, b = {"later": 1}, {"later": 2, "other": 0}

    assert [
        TOPIC.merge_cad(a, b),
        TOPIC.merge_cad(b, a),
    ] == [{"later": 1, "other": 0}, {"later": 2, "other": 0}]
    assert {"later": 2, "other": 0} == TOPIC.join(a, b) == TOPIC.join(b, a)


@pytest.mark.rule("R9.7", "R1.1.2")
@pytest.mark.parametrize(
    "garbage",
    [
        None, 7, (), "t", {1: {}}, {"t": ()}, {"t": {1: 2}}, {"t": {"later": object()}},
        {"t": {PARTITIONS: {0: object()}}},
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_no_map_of_topics_changes_nothing(garbage):
    """P7: no exception, no change."""
    if garbage != {"t": {1: 2}}:
        check_garbage(TOPICS, {"t": {PARTITIONS: {0: state(0, "a")}}}, garbage)
    mq = LatticeTopics()
    mq.topic("t").partition(0).offer("a")
    mq.merge(garbage)

    assert mq.topic("t").size() == 1
    assert mq.names() == ["t"]
    assert mq.topic("t").partitions() == [0]


@pytest.mark.rule("R1.1.2", "R2.1.3")
def test_a_bad_partition_harms_none_beside_it():
    """A queue that is none, or under no partition's id, is left out; the rest of the topic is taken."""
    good = state(3, "ab").to_cell()
    cell = CellMap(
        {PARTITIONS: CellMap([(0, good), (1, ((), {}, 0, -1)), ("2", good), (-1, good), (True, good)])}
    )

    assert {0: state(3, "ab")} == topic_from_cell(cell)[PARTITIONS]
    assert topic_from_cell(CellMap({PARTITIONS: 7, META: "?"})) == {}
    with pytest.raises(Corrupt):
        TopicsCodec().from_cell(("no", "map"))


def test_stamps_without_metadata_are_nothing():
    """A peer may send the one without the other, in any form: nothing comes of it, and the topic can be written."""
    mq = LatticeTopics()
    for stamps in ({"k": 5}, CellMap({"k": 5}), 7):
        mq.merge({"t": {"meta-stamps": stamps}})

    assert mq.topic("t").get_meta("k") is None
    assert topics_to_cell(mq.state) == {"t": {}}


@pytest.mark.rule("R2.5.1", "R2.6.1")
def test_metadata_of_topics_is_stamped_too():
    """Two sides set one key: the later one stays on both, and its stamp travels on the wire."""
    clock = ManualClock(NOW)
    one, two = topic_named(clock=clock), topic_named(clock=clock)
    one.set_meta("owner", "a")
    clock.advance(1)
    two.set_meta("owner", "b")
    one.merge(topic_to_cell(two.state))
    two.merge(topic_to_cell(one.state))

    assert "b" == one.get_meta("owner") == two.get_meta("owner")
    two.set_meta("owner", None)
    assert two.get_meta("owner") is None


def test_a_topic_has_a_name():
    """Empty, overlong or other names are refused; a name is text."""
    for wrong in ("", "x" * 257, 7):
        with pytest.raises(Rejected, match="topic: "):
            LatticeTopics().topic(wrong)


# --- forks


@pytest.mark.rule("R2.6.1", "R1.4.1", "R11.12")
def test_topics_and_partitions_appear_on_first_write():
    """Looking at a topic or partition makes none; neither does a call that changes nothing."""
    mq = LatticeTopics(clock=ManualClock(NOW))
    queue = mq.topic("t").partition(2)
    queue.truncate(0)

    assert (mq.names(), queue.size(), mq.topic("t").size()) == ([], 0, 0)
    queue.offer("a")
    assert (mq.names(), mq.topic("t").partitions()) == (["t"], [2])


@pytest.mark.rule("R1.4.1", "R1.4.2", "R11.12")
def test_forking_the_map_forks_everything_below():
    """Two forks write to different topics and partitions; each sync brings its own, and loses nothing."""
    mq = LatticeTopics(clock=ManualClock(NOW))
    mq.topic("t").partition(0).offer("base")
    one, two = mq.fork(), mq.fork()
    one.topic("t").partition(0).offer("one")
    one.topic("u").partition(0).offer("one")
    two.topic("t").partition(1).offer("two")
    two.topic("t").set_meta("k", 1)

    assert (mq.names(), mq.topic("t").size()) == (["t"], 1)
    one.sync()
    two.sync()
    assert (mq.names(), mq.topic("t").size(), mq.topic("u").size()) == (["t", "u"], 3, 1)
    assert mq.topic("t").get_meta("k") == 1
    assert mq.state is two.state
    assert mq.take_divergences() == []


@pytest.mark.rule("R1.4.1", "R11.12")
def test_a_topic_and_a_partition_fork_by_themselves():
    """Any level forks and syncs; a fork of a fork comes up level by level."""
    mq = LatticeTopics(clock=ManualClock(NOW))
    topic = mq.topic("t").fork()
    queue = topic.partition(5).fork()
    queue.offer("a")

    assert (topic.size(), mq.names()) == (0, [])
    queue.sync()
    assert (topic.size(), mq.names()) == (1, [])
    topic.sync()
    assert mq.topic("t").partition(5).size() == 1


@pytest.mark.rule("R2.4.1", "R2.4.2")
def test_divergence_and_leadership_are_seen_through_the_map():
    """A divergence names topic and partition; a stale fork of the whole map is refused whole."""
    mq = LatticeTopics(clock=ManualClock(NOW))
    one, two = mq.fork(), mq.fork()
    one.topic("t").partition(1).offer("one")
    two.topic("t").partition(1).offer("two")
    one.sync()
    two.sync()

    assert [(d.topic, d.partition, d.first_offset) for d in mq.take_divergences()] == [("t", 1, 0)]

    stale = mq.fork()
    stale.topic("t").partition(1).offer("stale")
    mq.topic("t").partition(1).acquire("n1", ttl_ms=1000)
    with pytest.raises(NotLeader):
        stale.sync()
    mq.topic("t").partition(1).offer("led")
    assert mq.topic("t").partition(1).peek_last() == "led"


@pytest.mark.rule("R1.3.2")
def test_topics_from_the_future_wait():
    """The map waits as a whole and is merged when the clock comes near; forks leave it to the root."""
    clock = ManualClock(NOW)
    mq, ahead = LatticeTopics(clock=clock), LatticeTopics(clock=ManualClock(NOW + 4_000_000))
    ahead.topic("t").partition(0).offer("a")
    mq.fork().merge(ahead.state)

    assert (mq.names(), mq.waiting()) == ([], 1)
    clock.advance(400_000)
    assert sorted(mq.sync()) == ["t"]


# --- the signed slot


KEYS = [KeyPair.from_seed(bytes([n]) * 32) for n in range(3)]


class Node:
    """One owner's node: all regions in one root, `queue` among them."""

    def __init__(self, key, clock):
        self.editor = Editor(clock)
        self.lattice = owned_topics(Authority(clock), key)
        self.root = Root(MapLattice(self.lattice))
        self.slots = self.root.at(EntryStep(REGION, self.lattice))
        self.owner = None if key is None else key.public

    def topics(self, owner=None):
        return topics_of(self.slots, self.lattice, owner or self.owner, editor=self.editor)

    def receive(self, other):
        return merge_owners(
            self.slots, self.lattice, self.lattice.to_cell(other.slots.get()), editor=self.editor
        )


@pytest.fixture
def clock():
    return ManualClock(NOW)


@pytest.mark.rule("R2.6.1", "R11.14", "R4.1.1")
def test_topics_travel_in_the_owner_s_signed_slot(clock):
    """queue / owner / value / topic / partitions / id: written by its owner, readable by everybody after two checks."""
    alice, bob = Node(KEYS[0], clock), Node(KEYS[1], clock)
    alice.topics().topic("orders").partition(3).offer("k", "v")
    bob.topics().topic("bills").partition(0).offer("b")
    bob.receive(alice)

    path = alice.root.get()[REGION][alice.owner].value["orders"][PARTITIONS]
    assert list(path) == [3]
    assert bob.topics(alice.owner).topic("orders").partition(3).peek(0) == "v"
    assert bob.topics().names() == ["bills"]
    assert len(bob.slots.get()) == 2


@pytest.mark.rule("R11.14", "R1.4.5")
def test_many_offers_on_a_fork_cost_one_signature(clock):
    """Edits on a fork are unsigned; the sync signs once, and a sync without work signs nothing."""
    node = Node(KEYS[0], clock)
    fork = node.topics().fork()
    for n in range(50):
        fork.topic("t").partition(n % 3).offer(n)

    assert node.slots.get() == {}
    fork.sync()
    slot = node.slots.get()[node.owner]
    assert [envelope.seq for envelope in slot.envelopes] == [1]
    fork.sync()
    assert slot is node.slots.get()[node.owner]
    assert node.topics().topic("t").size() == 50


@pytest.mark.rule("R11.14", "R1.4.5", "R4.1.1")
def test_nobody_else_can_write_an_owner_s_topics(clock):
    """Without a key, or with another one, a write raises; a forged slot is left out, and others beside it are taken."""
    alice, bob, nobody = Node(KEYS[0], clock), Node(KEYS[1], clock), Node(None, clock)
    alice.topics().topic("t").partition(0).offer("a")

    with pytest.raises(WrongState, match="no key to sign with"):
        nobody.topics(alice.owner).topic("t").partition(0).offer("x")
    with pytest.raises(WrongState, match="may not sign"):
        bob.topics(alice.owner).topic("t").partition(0).offer("x")
    forger = Node(KEYS[2], clock)
    forger.topics().topic("t").partition(0).offer("forged")
    forged = forger.lattice.to_cell(forger.slots.get())[forger.owner]
    bob.topics().topic("t").partition(0).offer("b")
    bob.receive(alice)
    merged = merge_owners(
        bob.slots, bob.lattice, CellMap({alice.owner: forged, KEYS[2].public: forged}), editor=bob.editor
    )

    assert sorted(key.public for key in KEYS) == sorted(merged)
    assert bob.topics(alice.owner).topic("t").partition(0).peek(0) == "a"


@pytest.mark.rule("R11.14", "R2.4.1")
def test_an_owner_s_replicas_converge_and_tell_of_divergence(clock):
    """One owner on two nodes (a restored backup): both end with the same topics, and hear where records differed."""
    one, two = Node(KEYS[0], clock), Node(KEYS[0], clock)
    one.topics().topic("t").partition(0).offer("one")
    two.topics().topic("t").partition(0).offer("two")
    for _ in range(3):
        one.receive(two)
        two.receive(one)

    assert same_topics(one.topics().state, two.topics().state)
    told = one.editor.take_divergences() + two.editor.take_divergences()
    assert {("t", 0, 0)} == {(d.topic, d.partition, d.first_offset) for d in told}


@pytest.mark.rule("R1.3.2", "R11.14")
def test_a_slot_from_the_future_waits_alone(clock):
    """One owner's clock is ahead: its slot waits, the others' are taken; it is merged once the clock comes near."""
    here, near, ahead = (
        Node(KEYS[0], clock),
        Node(KEYS[1], clock),
        Node(KEYS[2], ManualClock(NOW + 4_000_000)),
    )
    near.topics().topic("t").partition(0).offer("n")
    ahead.topics().topic("t").partition(0).offer("f")
    near.receive(ahead)
    merge_owners(here.slots, here.lattice, {**near.slots.get(), **ahead.slots.get()}, editor=here.editor)

    assert [near.owner] == list(here.slots.get())
    clock.advance(400_000)
    merge_owners(here.slots, here.lattice, {}, editor=here.editor)
    assert here.topics(ahead.owner).topic("t").partition(0).peek(0) == "f"
