"""What handles of queues, topics and maps share: whose deferred values are whose, and what a sync does in one step."""

import pytest

from topics.codec.cell import CellMap
from topics.crypto.keys import KeyPair
from topics.lattice.owners.authority import Authority, Fate, OwnerKeys
from topics.lattice.owners.owner import OwnerLattice, revoke
from topics.lattice.queues.editor import Editor
from topics.lattice.queues.fence import NotLeader
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.lattice_topics import REGION, LatticeTopics, merge_owners, owned_topics, topics_of
from topics.lattice.queues.queue_state import QUEUES
from topics.lattice.queues.topic_map import TOPICS, TopicsCodec
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock

NOW = 1_700_000_000_000
AHEAD = NOW + 4_000_000
ALICE = KeyPair.from_seed(b"a" * 32)


def future_topics(name="t"):
    """What a peer sends whose clock is more than an hour ahead."""
    topics = LatticeTopics(clock=ManualClock(AHEAD))
    topics.topic(name).partition(0).offer("f")
    return topics.state


@pytest.mark.rule("R1.3.2", "R11.14")
def test_a_topic_may_have_the_region_s_name():
    """Slots that wait for the clock and a topic called `queue` that waits for it are two things."""
    clock = ManualClock(NOW)
    lattice, editor = owned_topics(Authority(clock), ALICE), Editor(clock)
    slots = Root(lattice)
    merge_owners(slots, lattice, CellMap(), editor=editor)
    topic = topics_of(slots, lattice, ALICE.public, editor=editor).topic("queue")
    topic.merge(future_topics("queue")["queue"])

    assert topic.waiting() == 1
    clock.advance(400_000)
    merge_owners(slots, lattice, CellMap(), editor=editor)
    topic.merge_due()
    assert topic.partition(0).peek(0) == "f"


class BothAliceS:
    """#1 and #2 are accounts of one key."""

    def keys_of(self, address):
        return OwnerKeys([ALICE.public]) if address in (1, 2) else None


@pytest.mark.rule("R1.3.2", "R2.4.2", "R11.14")
def test_owners_who_share_an_editor_share_neither_what_waits_nor_leases():
    """One node writes two accounts' topics: what came for one is not merged into the other's, a lease is of one."""
    clock = ManualClock(NOW)
    lattice, editor = owned_topics(Authority(clock, addresses=BothAliceS()), ALICE), Editor(clock)
    slots = Root(lattice)
    one, two = (topics_of(slots, lattice, owner, editor=editor) for owner in (1, 2))
    one.merge(future_topics())
    clock.advance(400_000)
    two.merge_due()
    one.merge_due()

    assert (one.names(), two.names()) == (["t"], [])
    one.topic("t").partition(0).acquire("a", ttl_ms=1000)
    led = LatticeQueue(clock=clock)
    led.acquire("a", ttl_ms=1000)
    two.topic("t").partition(0).merge(led.state)
    with pytest.raises(NotLeader):
        two.topic("t").partition(0).offer("not led here")
    one.topic("t").partition(0).offer("led")


@pytest.mark.rule("R1.3.2")
@pytest.mark.parametrize("nested", [False, True])
def test_a_place_inside_a_fork_leaves_what_waits_to_the_root(nested):
    """A fork may be thrown away at any depth, and nothing that waited goes with it."""
    clock = ManualClock(NOW)
    topics = LatticeTopics(clock=clock)
    fork = topics.fork().fork() if nested else topics.fork()
    fork.topic("t").partition(0).merge(future_topics()["t"]["partitions"][0])
    clock.advance(400_000)

    assert fork.topic("t").partition(0).merge_due().stop == 0
    assert topics.topic("t").partition(0).merge_due().stop == 1


class Meanwhile:
    """A guard; whoever takes it finds that somebody was there just before."""

    def __init__(self):
        self.before = None

    def __enter__(self):
        work, self.before = self.before, None
        if work is not None:
            work()

    def __exit__(self, *exception):
        return None


@pytest.mark.rule("R2.4.2", "R1.4.2")
def test_a_leader_that_comes_as_a_fork_arrives_is_seen():
    """The sync asks who leads in the very step that brings the records, not before it."""
    clock, guard = ManualClock(NOW), Meanwhile()
    queue = LatticeQueue(Root(QUEUES, guard=guard), editor=Editor(clock))
    other = LatticeQueue(clock=clock)
    other.acquire("somebody else", ttl_ms=1000)
    fork = queue.fork()
    fork.offer("mine")
    guard.before = lambda: queue.merge(other.state)

    with pytest.raises(NotLeader, match="the records stay on the fork"):
        fork.sync()
    assert (queue.size(), fork.size()) == (0, 1)


class Counted(TopicsCodec):
    """Counts payloads that are decoded, which each envelope is once it has been verified."""

    count = 0

    def from_cell(self, cell):
        self.count += 1
        return super().from_cell(cell)


class Entered:
    """A guard that counts the changes of its root."""

    count = 0

    def __enter__(self):
        self.count += 1

    def __exit__(self, *exception):
        return None


@pytest.mark.rule("R4.1.2", "R11.14")
def test_a_map_of_many_owners_is_verified_once_and_joined_at_once():
    """A slot at a time would copy the map for each owner: a map of 100 000, which anybody can sign, for hours."""
    clock, codec, guard = ManualClock(NOW), Counted(), Entered()
    message = {}
    for n in range(20):
        key = KeyPair.from_seed(bytes([n]) * 32)
        lattice = owned_topics(Authority(clock), key)
        slots = Root(lattice)
        topics_of(slots, lattice, key.public, editor=Editor(clock)).topic("t").partition(0).offer(n)
        message |= lattice.to_cell(slots.get())

    lattice = OwnerLattice(TOPICS, codec, region=REGION, authority=Authority(clock))
    slots = Root(lattice, guard=guard)
    assert len(merge_owners(slots, lattice, message, editor=Editor(clock))) == 20
    assert (codec.count, guard.count) == (20, 1)
    before = slots.get()
    assert merge_owners(slots, lattice, message, editor=Editor(clock)) is before
    assert codec.count == 20, "what is here was verified when it came"


@pytest.mark.rule("R1.3.2", "R4.2.9")
def test_what_waited_is_judged_again_when_its_time_comes():
    """A key that was revoked meanwhile brings nothing in that it signed before."""
    clock, ahead = ManualClock(NOW), ManualClock(AHEAD)
    theirs = owned_topics(Authority(ahead), ALICE)
    signed = Root(theirs)
    topics_of(signed, theirs, ALICE.public, editor=Editor(ahead)).topic("t").partition(0).offer("f")
    lattice, editor = owned_topics(Authority(clock)), Editor(clock)
    slots = Root(lattice)
    assert merge_owners(slots, lattice, signed.get(), editor=editor) == {}
    revoke(slots, lattice, ALICE.public, ALICE.public, Fate.DROP)
    clock.set(AHEAD)

    assert merge_owners(slots, lattice, CellMap(), editor=editor) == {}
