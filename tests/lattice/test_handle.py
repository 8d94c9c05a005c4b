"""What handles of queues, topics and maps share: whose deferred values are whose, and what a sync does in one step."""

import pytest

from topics.codec.cell import CellMap
from topics.crypto.keys import KeyPair
from topics.lattice.authority import Authority, Keys
from topics.lattice.cursor import Root
from topics.lattice.editor import Editor
from topics.lattice.fence import NotLeader
from topics.lattice.messages import LatticeTopics, merge_owners, owned_topics, topics_of
from topics.lattice.queue import LatticeQueue
from topics.lattice.state import QUEUES
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
    lattice, slots, editor = owned_topics(Authority(clock), ALICE), None, Editor(clock)
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
        return Keys([ALICE.public]) if address in (1, 2) else None


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
