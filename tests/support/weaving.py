"""What the tests of the Weaver share: authors, hand-made intentions, a store on a journal in memory."""

from topics.crypto.keys import KeyPair
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, encode, hash_of
from topics.weaver.store.intention_store import open_store

STORE = b"\x5a" * 16
NOW = 1_700_000_000_000


def author(number):
    return KeyPair.from_seed(bytes([number]) * 32)


A, B, C, D = (author(number) for number in (1, 2, 3, 4))
NODE = author(200)


def made(key, wall, *, prev=ZERO_HASH, after=(), ops=b"", counter=0, store_id=STORE):
    """A signed intention; `prev` and `after` are envelopes or hashes."""
    named = [name_of(each) for each in after]
    body = encode(key.public, HLC(wall, counter), store_id, name_of(prev), named, ops)
    return Envelope.sealed(key, body)


def name_of(given):
    return hash_of(given.body) if isinstance(given, Envelope) else given


class Site:
    """A node: its clock, its journal, and the store over it."""

    def __init__(self, now_ms=NOW, node=NODE, **options):
        self.clock = ManualClock(now_ms)
        self.journal = MemoryJournal()
        self.node = node
        self.options = options
        self.open()

    def open(self, **options):
        self.store = open_store(
            self.journal, store_id=STORE, node=self.node, clock=self.clock, **self.options | options
        )
        return self.store

    def ingest(self, *envelopes):
        return self.store.ingest(envelopes)

    def outcomes(self, *envelopes):
        return [result.outcome for result in self.ingest(*envelopes).results]

    @property
    def order(self):
        return [node.hash for node in self.store.graph.order]


def closure(envelopes, graph):
    """{hash: hashes of all ancestors and itself}, by the definition."""
    above = {}
    for each in envelopes:
        node = graph.nodes[name_of(each)]
        above[node.hash] = {node.hash}.union(*(above[parent.hash] for parent in node.parents))
    return above
