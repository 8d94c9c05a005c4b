"""Nodes for the tests: a database each, with clocks that are set by hand and keys that follow from a number."""

from __future__ import annotations

from topics.codec.cell import encode_cell
from topics.crypto.keys import KeyPair
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.entries.store import store_to_cell
from topics.kv.journaled import DatabaseHeader, Journaled, replay
from topics.kv.replica import Replica
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

START_MS = 1000
LIMITS = KvLimits()


def keys_of(number):
    return KeyPair.from_seed(bytes([number]) * 32)


class Node:
    """One owner, one database called `shared`, and the clock they go by."""

    def __init__(
        self,
        number=1,
        *,
        name="shared",
        now_ms=START_MS,
        limits=None,
        owner=None,
        authority=None,
        journal=None,
    ):
        self.keys = keys_of(number)
        self.clock = ManualClock(now_ms)
        self.entropy = SeededEntropy(number)
        self.options = {
            "owner": owner, "authority": authority(self.clock) if authority else None, "limits": limits
        }  # fmt: skip
        self.name, self.journal = name, journal
        self.restart()

    def restart(self):
        """Open the database from its journal, if it has one; an empty one if it has none."""
        self.home = Replica(self.keys, clock=self.clock, entropy=self.entropy, **self.options)
        if self.journal is None:
            self.db = Database.of(self.home, self.name)
            return
        store, header, size, deferred = replay(self.journal)
        fresh = DatabaseHeader(self.name, self.keys.public, self.home.new_replica_id())
        cursor = Journaled(
            self.journal, self.home.limits, store, header or fresh, journal_bytes=size, deferred=deferred
        )
        if header is None:
            cursor.begin(fresh)
        self.home.adopt(self.name, cursor)
        self.db = Database.of(self.home, self.name, replica=cursor.header.replica)

    def later(self, ms=1):
        self.clock.advance(ms)
        return self.db

    def pull(self, *others, accept=None, accept_floor=None):
        """Merge what the others export, a report each."""
        return [
            self.db.merge_replicas(other.db.export_replica(), accept, accept_floor=accept_floor)
            for other in others
        ]


def state(db):
    """What two replicas that have seen the same agree on, byte for byte."""
    return encode_cell(store_to_cell(db.snapshot()))


def accepted(reports):
    """How many replicas were accepted, a number each."""
    return [len(report.accepted) for report in reports]


def everybody(_owner):
    return True


def exchange(*nodes, rounds=2, accept_floor=everybody):
    """All merge all; the floors too, since these nodes know each other."""
    for _ in range(rounds):
        for node in nodes:
            node.pull(*(other for other in nodes if other is not node), accept_floor=accept_floor)
