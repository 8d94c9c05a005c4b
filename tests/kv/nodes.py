"""Nodes for the tests: a database each, with clocks that are set by hand and keys that follow from a number."""

from __future__ import annotations

from topics.codec.cell import encode_cell
from topics.crypto.keys import KeyPair
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.replica import Replica
from topics.kv.store import store_to_cell
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

START_MS = 1000
LIMITS = KvLimits()


def keys_of(number):
    return KeyPair.from_seed(bytes([number]) * 32)


class Node:
    """One owner, one database called `shared`, and the clock they go by."""

    def __init__(self, number=1, *, name="shared", now_ms=START_MS, limits=None, owner=None, authority=None):
        self.keys = keys_of(number)
        self.clock = ManualClock(now_ms)
        self.home = Replica(
            self.keys,
            clock=self.clock,
            entropy=SeededEntropy(number),
            owner=owner,
            authority=authority(self.clock) if authority else None,
            limits=limits,
        )
        self.db = Database.of(self.home, name)

    def later(self, ms=1):
        self.clock.advance(ms)
        return self.db

    def pull(self, *others, accept=None):
        return [self.db.merge_replicas(other.db.export_replica(), accept) for other in others]


def state(db):
    """What two replicas that have seen the same agree on, byte for byte."""
    return encode_cell(store_to_cell(db.snapshot()))


def exchange(*nodes, rounds=2):
    for _ in range(rounds):
        for node in nodes:
            node.pull(*(other for other in nodes if other is not node))
