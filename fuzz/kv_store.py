"""A store of the database from outside: what is good of it joins in any order, and every read and edit goes on."""

from __future__ import annotations

from functools import cache

from topics.codec.cell import decode_cell, encode_cell
from topics.kernel.errors import Corrupt, Rejected
from topics.kv.bounds import KvLimits
from topics.kv.database import Database
from topics.kv.entries.store import KvStore, StoreLattice, join_stores, store_from_cell, store_to_cell
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

LIMITS = KvLimits()
NOW_MS = 1000
STAMP = b"\x04\x80\x00\x00\x00\x00\x00\x03"  # an int of the corpus less its last byte
TOKENS = (
    STAMP + b"\xe8",
    STAMP + b"\xe9",
    b"\x04\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\x04\x80\x00\x00\x00\x00\x00\x00\x05",
    b"\x04\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x01",
    b"\x03",
    b"\x06seen\x00",
    b"\x06lww\x00",
    b"\x06exp\x00",
    b"\x06set\x00",
    b"\x06reset:r\x00",
    b"\x08\x00",
    b"\x09\x00",
)


def check(data: bytes) -> None:
    """No store, or one whose laws hold and that a database can live with."""
    try:
        store = store_from_cell(decode_cell(data), LIMITS)
    except Corrupt:
        return
    if store is None:
        return
    check_read_again(store)
    mine = own()
    both, other = join_stores(mine, store), join_stores(store, mine)
    assert canon(both) == canon(other), "the join does not commute"
    assert join_stores(both, store) is both, "the join does not inflate"
    use(both)


def use(store: KvStore) -> None:
    """Every kind of look and edit, on each key; a refusal is an answer."""
    database = Database(
        "fuzz", Root(StoreLattice(LIMITS), store), clock=ManualClock(NOW_MS), entropy=SeededEntropy(1)
    )
    for key in database.keys()[:8]:
        before = database.read(key)
        for call in (
            lambda key=key: database.hset(key, "f", 1),
            lambda key=key: database.sadd(key, 1),
            lambda key=key: database.zadd(key, 1, 1),
            lambda key=key: database.rpush(key, 1),
            lambda key=key: database.incr(key),
            lambda key=key: database.expire(key, 10),
        ):
            try:
                call()
            except Rejected:
                continue
        assert before is not None
        try:
            assert database.delete(key)
        except Rejected:  # its newest stamp is the last there is
            continue
        assert not database.exists(key)
    check_read_again(database.snapshot())  # or nobody could replay what was written here
    database.gc(grace_ms=0)
    check_read_again(database.snapshot())


def check_read_again(store: KvStore) -> None:
    again = store_from_cell(store_to_cell(store), LIMITS)
    assert again is not None
    assert canon(again) == canon(store), "a store does not come back from its cell"


@cache
def own() -> KvStore:
    """What is here already: every type, a removed element, a deleted key."""
    database = Database(
        "own", Root(StoreLattice(LIMITS)), clock=ManualClock(NOW_MS), entropy=SeededEntropy(2)
    )
    fill(database)
    return database.snapshot()


def fill(database: Database) -> None:
    """A few keys of each type."""
    database.set("v", "x", ttl_ms=50)
    database.hset("h", "f", 1)
    database.hdel("h", "f")
    database.sadd("s", 1, "m")
    database.srem("s", 1)
    database.zadd("z", 1.5, "m")
    database.rpush("l", 1, "e")
    database.incrby("c", 5)
    database.delete("c")
    database.incr("c")
    database.sadd("t", "x")
    database.set("t", "over a set")


def canon(store: KvStore) -> bytes:
    return encode_cell(store_to_cell(store))
