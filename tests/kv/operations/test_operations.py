"""Every operation of the seed's tables, on a database of its own: what it gives back, and what it refuses."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import START_MS, Node, state
from topics.kernel.errors import Code, Rejected, WrongState
from topics.kv.bounds import TTL_MS_MAX, KvLimits
from topics.kv.operations.keys import KeyReading


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def db(node):
    return node.db


def make(db, kind, key="k"):
    """A live key of each type."""
    {
        "value": lambda: db.set(key, "v"),
        "hash": lambda: db.hset(key, "f", "v"),
        "set": lambda: db.sadd(key, "m"),
        "zset": lambda: db.zadd(key, 1, "m"),
        "list": lambda: db.rpush(key, "e"),
        "counter": lambda: db.incr(key),
    }[kind]()


KINDS = ("value", "hash", "set", "zset", "list", "counter")
OPERATIONS = {
    "value": (lambda db: db.get("k"),),
    "hash": (
        lambda db: db.hset("k", "f", 1), lambda db: db.hget("k", "f"), lambda db: db.hdel("k", "f"),
        lambda db: db.hexists("k", "f"), lambda db: db.hgetall("k"), lambda db: db.hlen("k"),
    ),
    "set": (
        lambda db: db.sadd("k", 1), lambda db: db.srem("k", 1), lambda db: db.sismember("k", 1),
        lambda db: db.smembers("k"), lambda db: db.scard("k"),
    ),
    "zset": (
        lambda db: db.zadd("k", 1, "m"), lambda db: db.zrem("k", "m"), lambda db: db.zscore("k", "m"),
        lambda db: db.zrange("k", 0, -1), lambda db: db.zrangebyscore("k", 0, 1), lambda db: db.zcard("k"),
    ),
    "list": (
        lambda db: db.lpush("k", 1), lambda db: db.rpush("k", 1), lambda db: db.lpop("k"), lambda db: db.rpop("k"),
        lambda db: db.lrange("k", 0, -1), lambda db: db.llen("k"),
    ),
    "counter": (
        lambda db: db.incr("k"), lambda db: db.incrby("k", 0), lambda db: db.decr("k"),
        lambda db: db.decrby("k", 2),
    ),
}  # fmt: skip


@pytest.mark.rule("R3.3.4", "R9.22", "R11.19")
@pytest.mark.parametrize("kind", KINDS)
def test_an_operation_of_another_type_is_refused_and_changes_nothing(db, kind):
    """P22."""
    make(db, kind)
    before, at = state(db), db.snapshot()
    for other in KINDS:
        for operation in OPERATIONS[other]:
            if other != kind:
                with pytest.raises(Rejected, match=f"holds a {kind}, not a {other}") as refused:
                    operation(db)
                assert refused.value.code is Code.WRONG_TYPE
    assert before == state(db)
    assert db.snapshot() is at


@pytest.mark.rule("R11.16", "R3.1.2", "R3.3.1")
@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_there_until_it_is_deleted(db, kind):
    assert (db.exists("k"), db.type("k"), db.keys(), db.read("k")) == (False, None, [], None)
    make(db, kind)
    assert (db.exists("k"), db.type("k"), db.keys()) == (True, kind, ["k"])
    assert db.delete("k")
    assert (db.exists("k"), db.type("k"), db.keys(), db.read("k"), db.ttl("k")) == (False, None, [], None, -2)


@pytest.mark.rule("R11.17", "R3.3.1", "R3.3.3", "R9.21")
@pytest.mark.parametrize("kind", KINDS)
def test_an_expired_key_is_absent_everywhere(node, db, kind):
    """P21, at every millisecond around the stamp."""
    make(db, kind)
    assert db.expire("k", 10) == 1
    for rest in range(10, 0, -1):
        assert (db.ttl("k"), db.exists("k")) == (rest, True)
        node.later()
    assert (db.ttl("k"), db.exists("k"), db.type("k"), db.keys(), db.read("k")) == (-2, False, None, [], None)
    for operations in OPERATIONS.values():
        for operation in operations:
            assert not operation(Scratch(db)), operation
    assert not db.delete("k")
    assert db.expire("k", 10) == 0


class Scratch:
    """Reads go to the database, writes to nothing."""

    def __init__(self, db):
        self._db = db

    def __getattr__(self, name):
        writes = ("hset", "sadd", "zadd", "lpush", "rpush", "incr", "decr", "decrby")
        return (lambda *_: None) if name in writes else getattr(self._db, name)


@pytest.mark.rule("R3.3.2", "R11.17")
def test_set_overwrites_any_type_and_clears_the_expiry(node, db):
    for kind in KINDS:
        make(db, kind)
        db.expire("k", 1000)
        db.set("k", "new")
        assert (db.get("k"), db.ttl("k")) == ("new", -1)
        db.delete("k")
    db.set("k", 1, ttl_ms=50)
    assert db.ttl("k") == 50
    node.later(50)
    assert db.get("k") is None


@pytest.mark.rule("R3.3.12", "R7.18")
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_structural_write_keeps_the_expiry(node, db, kind):
    make(db, kind)
    db.expire("k", 1000)
    node.later(10)
    make(db, kind)
    assert db.ttl("k") == 990


@pytest.mark.rule("R3.4.4")
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_key_written_after_it_expired_starts_empty_and_stays(node, db, kind):
    make(db, kind)
    if kind == "set":
        db.sadd("k", "another")
    db.expire("k", 10)
    node.later(10)
    make(db, kind)
    assert db.ttl("k") == -1
    assert db.read("k") == KeyReading("k", kind, FIRST[kind], None, ())


FIRST = {"hash": {"f": "v"}, "set": ("m",), "zset": (("m", 1.0),), "list": ("e",), "counter": 1, "value": "v"}


@pytest.mark.rule("R3.4.4", "R3.4.5")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["delete", "set"])
def test_a_key_made_again_has_nothing_of_its_first_life(db, kind, how):
    make(db, kind)
    if kind == "counter":
        db.incrby("k", 10)
    if how == "set":
        db.set("k", "between")
    db.delete("k")
    make(db, kind)
    assert db.read("k") == KeyReading("k", kind, FIRST[kind], None, ())


@pytest.mark.rule("R3.3.4")
def test_get_is_for_values_and_read_renders_all_types(db):
    """What `get` does on a structure: it refuses, and names what renders it."""
    assert "`read` renders all types" in type(db).get.__doc__
    for kind in KINDS:
        make(db, kind, key=kind)
        assert db.read(kind) == KeyReading(kind, kind, FIRST[kind], None, ())


@pytest.mark.rule("R3.3.5", "R11.18")
def test_hash_operations_never_show_a_removed_field(db):
    assert [db.hset("h", field, 1) for field in "bac"] == [1, 1, 1]
    assert db.hset("h", "a", 2) == 0
    assert db.hdel("h", "b")
    assert not db.hdel("h", "never")
    assert list(db.hgetall("h").items()) == [("a", 2), ("c", 1)]
    assert (db.hget("h", "b"), db.hexists("h", "b"), db.hlen("h")) == (None, False, 2)
    assert db.hset("h", "b", 3) == 1
    for field in "abc":
        assert db.hdel("h", field)
    assert (db.hlen("h"), db.exists("h")) == (0, True)
    with pytest.raises(Rejected, match="use hdel"):
        db.hset("h", "a", None)


@pytest.mark.rule("R3.3.6", "R11.18")
def test_set_operations_count_changes_of_presence(db):
    assert db.sadd("s", "a", "b", "a") == 2
    at = state(db)
    assert db.srem("s", "never", "nor this") == 0
    assert at == state(db)
    assert db.srem("s", "a", "a", "never") == 1
    assert db.srem("s", "a") == 0
    assert db.sadd("s", "a") == 1
    assert db.smembers("s") == ["a", "b"]


@pytest.mark.rule("R1.2.2", "R13.1")
def test_members_that_python_takes_for_one_are_three(db):
    assert db.sadd("s", 1, 1.0, True, 0, False, 0.0, -0.0) == 6
    assert db.smembers("s") == [False, True, 0, 1, 0.0, 1.0]
    assert [type(member) for member in db.smembers("s")] == [bool, bool, int, int, float, float]
    assert db.srem("s", 1.0) == 1
    assert (db.sismember("s", 1), db.sismember("s", 1.0), db.sismember("s", True)) == (True, False, True)


@pytest.mark.rule("R3.3.7", "R3.3.10", "R7.5", "R11.18")
def test_a_sorted_set_is_ranged_by_rank_and_by_score(db):
    for score, member in ((2, "d"), (1, "b"), (1, "a"), (3, "c"), (float("inf"), "top")):
        assert db.zadd("z", score, member) == 1
    assert db.zrange("z", 0, -1) == ["a", "b", "d", "c", "top"]
    assert db.zrange("z", -2, -1) == ["c", "top"]
    assert db.zrange("z", 3, 1) == db.zrange("z", 9, 12) == []
    assert db.zrange("z", -99, 1) == ["a", "b"]
    assert db.zrange("z", 1, 2, by="score") == db.zrangebyscore("z", 1, 2) == ["a", "b", "d"]
    assert db.zrangebyscore("z", 2.5, float("inf")) == ["c", "top"]
    assert (db.zscore("z", "never"), db.zscore("z", "a")) == (None, 1.0)
    assert db.zrem("z", "a", "never") == 1
    assert (db.zcard("z"), db.zscore("z", "a")) == (4, None)
    assert db.zadd("z", -0.0, "a") == 1
    assert str(db.zscore("z", "a")) == "0.0"


@pytest.mark.rule("R3.3.8", "R11.18")
def test_a_list_is_pushed_popped_and_ranged(db):
    assert db.lpush("l", "a", "b") == 2
    assert db.lrange("l", 0, -1) == ["b", "a"]
    assert db.rpush("l", "c", "d") == 4
    assert db.lrange("l", -3, -2) == ["a", "c"]
    assert db.lrange("l", 2, 1) == []
    assert db.lrange("l", -100, 0) == ["b"]
    assert [db.lpop("l"), db.rpop("l"), db.lpop("l"), db.rpop("l"), db.rpop("l")] == [
        "b",
        "d",
        "a",
        "c",
        None,
    ]
    assert (db.exists("l"), db.type("l"), db.llen("l"), db.lrange("l", 0, -1)) == (True, "list", 0, [])
    assert (db.lpop("absent"), db.llen("absent"), db.exists("absent")) == (None, 0, False)


@pytest.mark.rule("R3.3.9", "R11.18")
def test_incrby_zero_only_reads(db):
    assert db.incrby("c", 0) == 0
    assert not db.exists("c")
    assert [db.incr("c"), db.incrby("c", 9), db.decr("c"), db.decrby("c", -2)] == [1, 10, 9, 11]
    at = db.snapshot()
    assert (db.incrby("c", 0), db.decrby("c", 0)) == (11, 11)
    assert db.snapshot() is at


@pytest.mark.rule("R3.3.3")
def test_delete_and_expire_say_whether_the_key_was_there(db):
    assert (db.delete("k"), db.expire("k", 5)) == (False, 0)
    at = db.snapshot()
    assert len(at) == 0
    db.set("k", 1)
    assert (db.expire("k", 0), db.exists("k"), db.delete("k")) == (1, False, False)


@pytest.mark.rule("R1.3.1", "R9.5")
def test_stamps_rise_in_one_millisecond_and_under_a_clock_that_steps_back(node, db):
    """P5 in the small: set then delete inside a millisecond, and an hour earlier."""
    db.set("k", 1)
    assert db.delete("k")
    db.set("k", 2)
    node.clock.set(1)
    assert db.delete("k")
    db.set("k", 3)
    entry = db.snapshot().get("k")
    assert (db.get("k"), entry.lww.utime, entry.newest) == (3, START_MS + 4, START_MS + 4)


def test_keys_may_be_listed_by_prefix(db):
    for key in ("b:2", "a:1", "b:1"):
        db.set(key, key)
    assert (db.keys("b:"), db.keys("c")) == (["b:1", "b:2"], [])
    with pytest.raises(Rejected, match="prefix: must be a string"):
        db.keys(3)


def test_a_value_is_the_databases_own(db):
    given = {"a": 1}
    db.set("k", given)
    given["a"] = 2
    assert db.get("k") == {"a": 1}


@pytest.mark.parametrize(
    "call",
    [
        lambda db: db.set("", 1),
        lambda db: db.set("k" * 1025, 1),
        lambda db: db.set("\ud800", 1),
        lambda db: db.get(1),
        lambda db: db.set("k", [1]),
        lambda db: db.set("k", 2**63),
        lambda db: db.set("k", float("nan")),
        lambda db: db.set("k", "x" * (2**20 + 1)),
        lambda db: db.set("k", 1, ttl_ms=0),
        lambda db: db.set("k", 1, ttl_ms=True),
        lambda db: db.set("k", 1, ttl_ms=TTL_MS_MAX + 1),
        lambda db: db.hset("k", "", 1),
        lambda db: db.hset("k", "f" * 1025, 1),
        lambda db: db.sadd("k"),
        lambda db: db.srem("k"),
        lambda db: db.sadd("k", *range(10_001)),
        lambda db: db.zadd("k", "1", "m"),
        lambda db: db.zadd("k", True, "m"),
        lambda db: db.zadd("k", float("nan"), "m"),
        lambda db: db.zadd("k", 10**400, "m"),
        lambda db: db.zrange("k", 0.5, 1),
        lambda db: db.zrange("k", 0, 1, by="lex"),
        lambda db: db.lrange("k", True, 1),
        lambda db: db.rpush("k"),
        lambda db: db.incrby("k", 1.0),
        lambda db: db.incrby("k", 2**63),
        lambda db: db.decrby("k", "1"),
        lambda db: db.expire("k", -1),
    ],
)
def test_what_no_database_takes_is_refused_by_name(db, call):
    with pytest.raises(Rejected) as refused:
        call(db)
    assert refused.value.code in (
        Code.INVALID_REQUEST, Code.RECORD_TOO_LARGE, Code.BATCH_TOO_LARGE,
    )  # fmt: skip
    assert len(db.snapshot()) == 0


def test_the_longest_key_and_the_largest_value_are_taken(db):
    db.set("k" * 1024, "x" * 2**20)
    db.set("é" * 512, b"\x00" * 2**20)
    assert len(db.get("é" * 512)) == 2**20


def test_every_limit_is_a_refusal_with_its_number():
    db = Node(limits=KvLimits(elements=2, keys=2, value_bytes=100)).db
    db.sadd("s", 1, 2)
    for call in (lambda: db.sadd("s", 3), lambda: db.rpush("l", 1, 2, 3), lambda: db.rpush("l", "x" * 99)):
        with pytest.raises(Rejected):
            call()
    db.srem("s", 1)
    with pytest.raises(Rejected, match="removed ones count"):
        db.sadd("s", 3)
    db.set("a", 1)
    with pytest.raises(Rejected, match="its limit; deleted ones count") as refused:
        db.set("b", 1)
    assert refused.value.detail["limit"] == 2
    db.set("a", 2)
    for bad in (0, -1, True, 1.5):
        with pytest.raises(Rejected, match="limits"):
            KvLimits(keys=bad)


def test_a_counter_ends_at_64_bits(db):
    assert db.incrby("c", 2**63 - 1) == 2**63 - 1
    with pytest.raises(Rejected, match="would pass"):
        db.incr("c")
    assert db.decr("c") == 2**63 - 2


def test_batches_see_their_own_edits_and_do_not_nest(db):
    db.incr("c")
    with db.batch():
        db.set("k", 1)
        assert db.incr("c") == 2
        assert (db.get("k"), db.keys()) == (1, ["c", "k"])
        for call in (
            db.fork,
            db.gc,
            db.export_replica,
            lambda: db.merge_replicas({}),
            lambda: db.batch().__enter__(),
        ):
            with pytest.raises(WrongState):
                call()
    assert (db.get("k"), db.incrby("c", 0)) == (1, 2)
    with pytest.raises(KeyError), db.batch():
        db.delete("k")
        raise KeyError
    assert db.get("k") == 1
