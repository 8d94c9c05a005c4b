"""kv_merge: two replicas edit the same 1000 keys in ten ways each, apart, and one absorbs what the other has changed.

Measured is all a reader does: verify the signature, decode the cells, join. The delta is what counts, so the same is
asked with a quarter of the keys (the time an edit must not grow with the delta) and beside ten times as many keys that
nobody touches (it must not grow with the database either).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Final

from ci.benchmarks.figure import Figure, Setting, cpu_of
from topics.codec.cell import CellMap
from topics.crypto.keys import KeyPair
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.entries.store import KvStore, StoreLattice
from topics.kv.replica import Replica
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

KEYS: Final = 1000
UNTOUCHED: Final = 10
GROWTH_MAX: Final = 1.5
START_MS: Final = 1_700_000_000_000

BASE: Final[dict[str, Callable[[Database, str], object]]] = {
    "set": lambda db, key: db.set(key, "base"),
    "delete": lambda db, key: db.set(key, "base"),
    "expire": lambda db, key: db.set(key, "base"),
    "hset": lambda db, key: db.hset(key, "field", "base"),
    "hdel": lambda db, key: db.hset(key, "field", "base"),
    "sadd": lambda db, key: db.sadd(key, "base"),
    "srem": lambda db, key: db.sadd(key, "base"),
    "zadd": lambda db, key: db.zadd(key, 1, "base"),
    "rpush": lambda db, key: db.rpush(key, "base"),
    "incr": lambda db, key: db.incr(key),
}
EDITS: Final[dict[str, Callable[[Database, str], object]]] = {
    "set": lambda db, key: db.set(key, db.replica),
    "delete": lambda db, key: db.delete(key),
    "expire": lambda db, key: db.expire(key, 10_000),
    "hset": lambda db, key: db.hset(key, db.replica, "edited"),
    "hdel": lambda db, key: db.hdel(key, "field"),
    "sadd": lambda db, key: db.sadd(key, db.replica),
    "srem": lambda db, key: db.srem(key, "base"),
    "zadd": lambda db, key: db.zadd(key, 2, db.replica),
    "rpush": lambda db, key: db.rpush(key, db.replica),
    "incr": lambda db, key: db.incr(key),
}
assert BASE.keys() == EDITS.keys()


def figures(setting: Setting) -> Iterator[Figure]:
    """Seconds of CPU of one merge; and how an edit's share grows with the delta and with what is not touched."""
    keys = setting.count(KEYS, 8)
    whole = _Meeting(keys, untouched=0).seconds(setting)
    beside = f"{keys} keys × {len(EDITS)} kinds, verified, decoded and joined"
    yield Figure("kv_merge: 1000 keys × 10 kinds", whole * 1000, "ms", beside=beside)
    yield Figure("kv_merge: an edit", whole / (keys * len(EDITS)) * 1e6, "µs", beside=beside)
    part = _Meeting(keys // 4, untouched=0).seconds(setting)
    growth = whole / (part * keys / (keys // 4))
    yield Figure(
        "kv_merge: an edit, whole delta / a quarter", growth, "×", must=GROWTH_MAX, less=True,
        beside="1 is linear in the delta",
    )  # fmt: skip
    among = _Meeting(keys, untouched=UNTOUCHED * keys).seconds(setting)
    yield Figure(
        "kv_merge: among 10 000 other keys / alone", among / whole, "×", must=GROWTH_MAX, less=True,
        beside="1 does not see the rest of the database",
    )  # fmt: skip


class _Meeting:
    """Two replicas that had everything of each other and then edited apart."""

    def __init__(self, keys: int, *, untouched: int) -> None:
        reader, writer = (_database(n, None) for n in (1, 2))
        for kind, make in BASE.items():
            for i in range(keys):
                make(writer, f"{kind}:{i}")
        for i in range(untouched):
            writer.set(f"untouched:{i}", "base")
        reader.merge_replicas(writer.export_replica())
        mark = writer.mark()
        for database in (reader, writer):
            for kind, edit in EDITS.items():
                for i in range(keys):
                    edit(database, f"{kind}:{i}")
        self._held = reader.snapshot()
        self._changes: CellMap = writer.export_changes(mark)

    def seconds(self, setting: Setting) -> float:
        """Of one merge into the reader's state; each turn begins with that state again."""
        readers = iter([_database(1, self._held) for _ in range(setting.runs)])

        def work() -> None:
            assert len(next(readers).merge_changes(self._changes).accepted) == 1

        gc.collect()
        gc.disable()  # as timeit does: when the collector walks the whole heap is not the merge's business
        try:
            return cpu_of(work, turns=setting.runs)
        finally:
            gc.enable()


def _database(number: int, held: KvStore | None) -> Database:
    home = Replica(
        KeyPair.from_seed(bytes([number]) * 32),
        clock=ManualClock(START_MS + number),
        entropy=SeededEntropy(number),
    )
    home.adopt("bench", Root(StoreLattice(KvLimits()), held))
    return Database.of(home, "bench")
