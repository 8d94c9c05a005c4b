"""The gate at which entries from the future are deferred, a database's own and its peers' alike (replication 1.3).

A node judges its own stamps as it judges others'. If its clock was ahead and is corrected, what it stamped meanwhile
lies in the future for everybody, and would win here, and nowhere else, until that time. So it is taken out of the state
and deferred with what came from peers; `withdraw` gives it up, or writes it again as of now.

A clock that was never set judges nothing of this node's own: see `is_unset`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

from topics.kernel.errors import Code, Rejected
from topics.kv.entries.merge import join
from topics.kv.entries.store import KeyedEntry, KvStore
from topics.kv.entries.tree import Leaf, Tree, items, put
from topics.kv.entries.wire import name_digest
from topics.kv.future.deferred import DeferredEntries, restamped, split_future
from topics.kv.journaled import Journaled
from topics.lattice.values.cursor import Cursor
from topics.lattice.values.stamps import is_future, is_unset, next_stamp


class FutureGate:
    """Of the database at one cursor. What is deferred is in the cursor's journal, if it has one."""

    def __init__(self, cursor: Cursor[KvStore], max_drift_ms: int) -> None:
        assert max_drift_ms >= 0
        self._cursor: Final = cursor
        self._max_drift_ms: Final = max_drift_ms
        self._journaled: Final = cursor if isinstance(cursor, Journaled) else None
        self.deferred: Final = DeferredEntries() if self._journaled is None else self._journaled.deferred

    def settle(self, now_ms: int) -> bool:
        """Merge what was deferred until now; defer what the state holds of a later time. True if it held any."""
        first = self.deferred.first()
        if first is not None and not is_future(first, now_ms, self._max_drift_ms):
            limit = now_ms + self._max_drift_ms
            for keyed in self.deferred.due(limit):
                self._cursor.merge(KvStore(_leaf(keyed)))
            if self._journaled is None:
                self.deferred.drop_due(limit)
            else:
                self._journaled.admit_due(limit)
        newest = self._cursor.get().newest
        if is_future(newest, now_ms, self._max_drift_ms) and not is_unset(now_ms, newest):
            self._defer_future(now_ms)
            return True
        return False

    def defer(self, entries: Iterable[KeyedEntry]) -> None:
        """Keep entries until their time."""
        if self._journaled is None:
            self.deferred.add(entries)
        else:
            self._journaled.defer(entries)

    def admit(self, store: KvStore, now_ms: int) -> list[KeyedEntry]:
        """Join a foreign store but for what comes from the future, which is deferred, and given back."""
        if not is_future(store.newest, now_ms, self._max_drift_ms):
            self._cursor.merge(store)
            return []
        ahead: list[KeyedEntry] = []
        present: Tree[KeyedEntry] = None
        own = self._cursor.get()
        for keyed in items(store.keys):
            newest = keyed.entry.newest
            # What this node has believed before, under another clock, is no news from the future.
            if is_future(newest, now_ms, self._max_drift_ms) and newest > own.get(keyed.key).newest:
                ahead.append(keyed)
            else:
                present = put(present, _leaf(keyed))
        self.defer(ahead)
        # The floor speaks of what the whole store lacks, so it comes another time, with the whole.
        self._cursor.merge(KvStore(present))
        return ahead

    def withdraw(self, key: str, now_ms: int, replica: str | None) -> bool:
        """Give up what is deferred of the key; write it again as of now if `replica` says whose write that is."""
        deferred = self.deferred.of(key)
        if not deferred:
            return False
        if replica is not None:
            whole = reduce(join, (keyed.entry for keyed in deferred))
            store = self._cursor.get()
            first = next_stamp(now_ms, max(store.get(key).newest, store.floor))
            again = restamped(whole, now_ms, first, replica)
            self.check_stamp(key, again.newest, now_ms)
            self._cursor.update(lambda own: own.with_entries([KeyedEntry(key, again)]))
        if self._journaled is None:
            self.deferred.drop(key)
        else:
            self._journaled.withdraw(key)
        return True

    def check_stamp(self, key: str, stamp: int, now_ms: int) -> None:
        """Refuse to write what no peer would believe, and this node no more: a key with far more edits than
        milliseconds, or a floor of another time.
        """
        if is_future(stamp, now_ms, self._max_drift_ms) and not is_unset(now_ms, stamp):
            ahead_ms = stamp - now_ms
            raise Rejected(
                Code.THROTTLED,
                f"key {key[:64]!r}: the write would be stamped {ahead_ms} ms ahead of the clock ({now_ms}), above all "
                f"that the key holds and the database has collected; peers believe {self._max_drift_ms} ms. Write it "
                "later or less often; if the clock was wrong, set it",
                key=key,
                limit=self._max_drift_ms,
            )

    def _defer_future(self, now_ms: int) -> None:
        """Take out of the state what is stamped too far ahead, and defer it."""
        limit = now_ms + self._max_drift_ms
        if self._journaled is not None:
            self._journaled.defer_future(limit, now_ms)
        else:
            left, ahead = split_future(self._cursor.get(), limit, now_ms)
            self._cursor.shrink(lambda _: left)
            self.defer(ahead)
        assert not is_future(self._cursor.get().newest, now_ms, self._max_drift_ms)


def _leaf(keyed: KeyedEntry) -> Leaf[KeyedEntry]:
    return Leaf(name_digest(keyed.key), keyed)
