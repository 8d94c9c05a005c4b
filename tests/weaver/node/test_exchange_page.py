"""What docs/replication.md shows of the exchange runs as it stands."""

import pathlib
import re

from tests.support.weaving import STORE, A, B
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal
from topics.weaver.node.outbox import GOSSIP, PeerStream
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.messages import Gossip
from topics.weaver.sync.wire import decode, encode

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "replication.md"


def test_the_examples_of_the_exchange_run():
    section = re.search(r"(?ms)^## Exchange between Weaver nodes$(.*?)(?=^## |\Z)", PAGE.read_text()).group(1)
    first, second = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    clock = ManualClock()
    other = open_store(MemoryJournal(), store_id=STORE, node=B, clock=clock)
    store = open_store(MemoryJournal(), store_id=STORE, node=A, clock=clock)
    told = other.submit(B, b"")
    names = {
        "store": store, "store_id": STORE, "key": A, "clock": clock, "peer": B.public, "entropy": SeededEntropy(1),
        "members_journal": MemoryJournal(), "committed": store.submit(A, b""),
        "stream": PeerStream(B.public, mine=False, number=GOSSIP), "data": encode(Gossip(told.envelopes[0])),
    }  # fmt: skip
    setup, calls = first.split("exchange.connected(peer)")
    exec(setup, names)
    names["roster"].admit(B.public)
    exec("exchange.connected(peer)" + calls, names)

    assert told.hash in store
    assert names["exchange"].counts.gossip_sent == 1
    exec(second, names)
    assert type(decode(names["exchange"].take_outbox(1)[0].data)).__name__ == "Join"
