"""What docs/replication.md shows of queues runs as it stands."""

import pathlib
import re

from topics.crypto.keys import KeyPair
from topics.lattice.owners.authority import Authority
from topics.lattice.queues.editor import Editor
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.lattice_topics import owned_topics, topics_of
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "replication.md"


def test_the_examples_of_the_page_run():
    """In the order they stand, with what the text says is there."""
    text = PAGE.read_text(encoding="utf-8")
    (part,) = (part for part in text.split("\n## ") if part.startswith("Replicated queues\n"))
    queue, topics, signed, threads = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
    clock = ManualClock()

    replica = LatticeQueue(clock=clock)
    scene = {"clock": clock, "replica": replica}
    exec(queue, scene)
    assert scene["lost"] == (0, 0)
    assert scene["last"] == (1, {"n": 1})
    assert (replica.start_offset(), replica.get_meta("owner")) == (1, "#42")

    scene = {"clock": clock}
    exec(topics, scene)
    assert scene["topics"].names() == ["bills", "orders"]
    assert scene["orders"].partition(scene["partition"]).peek(scene["offset"]) == {"total": 12}
    exec(threads, scene)
    assert scene["orders"].size() == 3
    assert scene["depths"] == (0,) * 8

    key, authority = KeyPair.from_seed(b"k" * 32), Authority(clock)
    peer_lattice, peer_editor = owned_topics(authority), Editor(clock)
    peer_slots = Root(peer_lattice)
    exec(signed, locals())
    received = topics_of(peer_slots, peer_lattice, key.public, editor=peer_editor)
    assert received.topic("orders").partition(0).end_offset() == 1000
    assert [envelope.seq for envelope in peer_slots.get()[key.public].envelopes] == [1]
