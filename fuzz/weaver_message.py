"""Messages between Weaver nodes: a value with exactly these bytes, or `Rejected`; no session raises for one."""

from __future__ import annotations

from topics.crypto.keys import KeyPair
from topics.kernel.errors import Rejected
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.sync.messages import Hello, Refusal
from topics.weaver.sync.ranges import ZERO, Scheme
from topics.weaver.sync.session import SyncSession
from topics.weaver.sync.wire import decode, encode

STORE_ID = b"\x5a" * 16
CLOCK = ManualClock()
KEY = KeyPair.from_seed(b"\x01" * 32)
STORE = open_store(MemoryJournal(), store_id=STORE_ID, node=KEY, clock=CLOCK)
for number in range(40):
    STORE.submit(KEY, b"%d" % number)
STOCK = Inventory(STORE)
GREETED = Hello(STORE_ID, Scheme.XOR, ZERO)
TOKENS = (
    b"\x01\x03", b"\x01\x04", b"\x01\x05", b"\x01\x09", b"\x01\x0b", b"\x01\x00\x00\x00", b"\xff\xff\xff\xff",
    b"\x00\x04\x00\x00", b"\x01\x04\x00\x00", bytes(32), b"\xff" * 32, b"\x7f" + b"\xff" * 31, bytes(64),
    b"\x00" + bytes(33), b"\x02" + bytes(33), STORE_ID, b"\x00", b"\x01", b"\x02",
)  # fmt: skip


def check(data: bytes) -> None:
    """One encoding each; whatever it says, a session answers with messages or refuses, and raises nothing."""
    try:
        message = decode(data)
    except Rejected:
        return
    assert encode(message) == data, "a second encoding of the same message"
    known = len(STORE)
    session = SyncSession(STOCK, CLOCK, initiator=False, scheme=Scheme.XOR, options=ExchangeOptions())
    session.receive(GREETED)
    answers = session.receive(message)
    assert len(STORE) == known, "an unasked message changed the store"
    assert sum(len(encode(answer)) for answer in answers) <= 4 << 20
    if any(isinstance(answer, Refusal) for answer in answers):
        assert session.is_over
