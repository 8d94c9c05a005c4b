"""Two Weaver stores of 100 000 intentions that differ in 10 are made equal: what travels, and how long it takes.

Real stores and sessions over journals in memory, every message through the codec. The common history comes in as linked
segments, so that the setting-up signs no author's name; the ten that differ are signed, fetched and verified.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

from ci.benchmarks.figure import Figure, Setting
from topics.crypto.keys import KeyPair
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, encode, hash_of
from topics.weaver.store.intention_store import IntentionStore, open_store
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.sync.ranges import Scheme
from topics.weaver.sync.session import SessionPhase, SyncSession
from topics.weaver.sync.wire import decode
from topics.weaver.sync.wire import encode as encode_message

STORE_ID = b"\xbe" * 16
AUTHORS = 10
LACKED = 5  # by each side
BYTES_MUST = 100_000


def figures(setting: Setting) -> Iterator[Figure]:
    """Bytes with their must, then what they are made of."""
    count = setting.count(100_000, 2_000)
    clock = ManualClock()
    one, other = (_store(number, clock) for number in (1, 2))
    for number in range(AUTHORS):
        chain = _chain(KeyPair.from_seed(bytes([100 + number]) * 32), (count - LACKED) // AUTHORS)
        one.ingest_segment(chain)
        other.ingest_segment(chain)
    for number, store in enumerate((one, other), 1):
        key = KeyPair.from_seed(bytes([number]) * 32)
        for written in range(LACKED):
            store.submit(key, b"written by one side only: %d" % written)
    begun = time.perf_counter()
    stocks = Inventory(one), Inventory(other)
    ordered_s = time.perf_counter() - begun
    messages, size, rounds, took = _sync(stocks, clock)
    assert one.fingerprint == other.fingerprint
    assert len(one) == len(other)
    beside = f"2 stores of {len(one) - LACKED}, {LACKED} + {LACKED} differ; {messages} messages"
    yield Figure("weaver_sync: bytes of a session", size, "B", must=BYTES_MUST, less=True, beside=beside)
    yield Figure("  messages", messages, "")
    yield Figure("  payloads of ranges", rounds, "")
    yield Figure(
        "  time of the session, both sides", took * 1000, "ms", beside="signatures of the 10 verified"
    )
    equal_messages, equal_size, _, equal_took = _sync(stocks, clock)
    text = f"{equal_messages} messages, {equal_size} B"
    yield Figure("  time of a session of equals", equal_took * 1000, "ms", beside=text)
    yield Figure("  ordering the hashes of both, once", ordered_s, "s")


def _store(number: int, clock: ManualClock) -> IntentionStore:
    key = KeyPair.from_seed(bytes([number]) * 32)
    return open_store(MemoryJournal(), store_id=STORE_ID, node=key, clock=clock)


def _chain(key: KeyPair, count: int) -> list[Envelope]:
    """Linked intentions, of which the last is signed."""
    chain, prev = [], ZERO_HASH
    for wall in range(1, count + 1):
        body = encode(key.public, HLC(wall, 0), STORE_ID, prev, [], b"op")
        prev = hash_of(body)
        chain.append(Envelope(body, bytes(64)))
    return [*chain[:-1], Envelope.sealed(key, chain[-1].body)]


def _sync(stocks: tuple[Inventory, Inventory], clock: ManualClock) -> tuple[int, int, int, float]:
    begun = time.perf_counter()
    first, second = (
        SyncSession(inventory, clock, initiator=at == 0, scheme=Scheme.XOR, options=ExchangeOptions())
        for at, inventory in enumerate(stocks)
    )
    ends = (second, first)
    waiting = deque((0, message) for message in first.open())
    messages = size = 0
    while waiting:
        to, message = waiting.popleft()
        data = encode_message(message)
        messages, size = messages + 1, size + len(data)
        waiting += [(1 - to, answer) for answer in ends[to].receive(decode(data))]
    took = time.perf_counter() - begun
    assert first.phase is second.phase is SessionPhase.FINISHED
    return messages, size, first.tally.rounds + second.tally.rounds, took
