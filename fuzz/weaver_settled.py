"""Snapshots of pruned history: adopted whole by a new node, or refused and nothing taken."""

from __future__ import annotations

from topics.codec.primitives import U64, checksum
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt, Rejected
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.state.prune import adopt_snapshot
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.catchup import pack_items, unpack_items

STORE_ID = b"\x5a" * 16
CLOCK = ManualClock()
SERVER = KeyPair.from_seed(b"\x01" * 32)
READER = KeyPair.from_seed(b"\x02" * 32)
TOKENS = (b"\x02", b"\x03", b"\x09", b"\x0a", bytes(4), b"\xff" * 4, bytes(32), STORE_ID, SERVER.public)


def check(data: bytes) -> None:
    """All of it or nothing, and what was taken opens again."""
    journal = MemoryJournal()
    store = open_store(journal, store_id=STORE_ID, node=READER, clock=CLOCK)
    try:
        items = unpack_items(data)
        assert pack_items(items) == data
        brought = adopt_snapshot(store, items, SERVER.public, CLOCK.now_ms())
    except (Corrupt, Rejected):
        assert len(journal.items) == 1, "a refused snapshot left something"
        return
    assert brought == len(store)
    again = open_store(journal, store_id=STORE_ID, node=READER, clock=CLOCK)
    assert again.fingerprint == store.fingerprint
    assert again.frontier == store.frontier


def reseal(data: bytes) -> bytes:
    """Make the checksums right, so that damage gets behind them."""
    try:
        items = unpack_items(data)
    except Corrupt:
        return data
    sealed = [item[:-8] + U64.pack(checksum(item[:-8])) if len(item) > 8 else item for item in items]
    return pack_items(sealed)
