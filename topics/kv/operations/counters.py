"""Counters: for each replica what it has added and taken (replication 3.2, 3.3).

A replica moves its own columns only, and only up, so no increment is lost by merging. A replica id must therefore
belong to one writer at a time: it is the hash of the public key and an incarnation, and a fork has one of its own.
"""

from __future__ import annotations

from topics.codec.cell import INT_MAX, INT_MIN
from topics.kernel.errors import invalid
from topics.kv.entries.edit import add_to_counter
from topics.kv.entries.entry import Column, Tag, total_of
from topics.kv.entries.wire import name_digest
from topics.kv.operations.keyspace import Keyspace


class CounterOperations(Keyspace):
    """The counter table of the seed. Each gives the total of all replicas."""

    def incr(self, key: str) -> int:
        return self.incrby(key, 1)

    def incrby(self, key: str, amount: int) -> int:
        """Add to the counter. 0 only reads."""
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise invalid("amount", f"must be a whole number, not {amount!r:.40}")
        if not INT_MIN < amount <= INT_MAX:
            raise invalid("amount", "must fit 64 bits")
        looked = self._look(key, Tag.COUNTER)
        if amount == 0:
            return total_of(looked.view.tree) if looked.live else 0
        edit = self._begin(looked, Tag.COUNTER, 1)
        digest = name_digest(self._replica)
        known = looked.find(Tag.COUNTER, digest)
        present = known if isinstance(known, Column) else Column(self._replica, 0, 0)
        assert present.replica == self._replica
        edit.put(Tag.COUNTER, digest, add_to_counter(present, amount))
        self._commit(looked, edit)
        # After a delete there may be what others have counted without knowing of it.
        before = 0 if looked.expired else total_of(looked.elements(Tag.COUNTER))
        return before + amount

    def decr(self, key: str) -> int:
        return self.incrby(key, -1)

    def decrby(self, key: str, amount: int) -> int:
        """Take from the counter. 0 only reads."""
        if isinstance(amount, bool) or not isinstance(amount, int):
            raise invalid("amount", f"must be a whole number, not {amount!r:.40}")
        return self.incrby(key, -amount)
