"""A database in an embedded store: what it held is there again, its journal stays short, and lives are told apart."""

from __future__ import annotations

import pytest

from tests.support.kv_nodes import Node, keys_of, state
from topics.codec.log.control import Control
from topics.codec.log.layout import FrameType
from topics.codec.log.run import Run
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.embed.database import Databases, topic_of
from topics.embed.journal import TopicJournal
from topics.kernel.errors import Corrupt, Fatal, Rejected, WrongState
from topics.kv.bounds import COMPACT_BYTES_MIN, KvLimits
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import FaultKind


@pytest.fixture
def opened(open_sim, clock):
    """Open the store and its databases (again)."""

    def open_it(number=1, *, seed=7, **options):
        store = open_sim(**options)
        return store, Databases(store, keys_of(number), clock=clock, entropy=SeededEntropy(seed))

    return open_it


def fill(db):
    db.set("v", b"\x00value", ttl_ms=10**9)
    db.hset("h", "f", 1)
    db.hset("h", "g", 2)
    db.hdel("h", "f")
    db.sadd("s", 1, 1.0, True, None)
    db.zadd("z", 2.5, "m")
    db.rpush("l", "a", ("b", 1))
    db.incrby("c", 5)
    db.set("gone", 1)
    db.delete("gone")
    db.expire("h", 10**8)


@pytest.mark.rule("R13.2")
def test_a_reopened_database_is_the_same_to_the_byte(opened) -> None:
    store, databases = opened()
    db = databases.open("shared")
    fill(db)
    before, replica = state(db), db.replica
    store.close()

    store, databases = opened(seed=8)
    db = databases.open("shared")
    assert before == state(db)
    assert replica == db.replica
    assert db.incr("c") == 6
    store.close()


def test_absorbed_replicas_and_collections_are_there_again(opened, clock) -> None:
    store, databases = opened()
    db = databases.open("shared")
    peer = Node(2, now_ms=clock.now_ms())
    fill(peer.db)
    assert len(db.merge_replicas(peer.db.export_replica()).accepted) == 1
    db.set("old", 1)
    db.delete("old")
    clock.advance(1000)
    assert db.gc(grace_ms=10).keys == 2
    before = state(db)
    store.close()

    store, databases = opened(seed=8)
    assert before == state(databases.open("shared"))
    store.close()


def test_what_a_floor_has_dropped_stays_dropped(opened, clock) -> None:
    """A merge with a peer that has collected is no join, and the journal says so."""
    store, databases = opened()
    db = databases.open("shared")
    peer = Node(2, now_ms=clock.now_ms())
    db.set("k", 1)
    db.sadd("s", "a", "b")
    peer.db.merge_replicas(db.export_replica())
    peer.db.delete("k")
    peer.db.srem("s", "a")
    clock.advance(1000)
    peer.clock.advance(1000)
    peer.db.gc(stable_ms=clock.now_ms() - 500)
    db.merge_replicas(peer.db.export_replica(), accept_floor=lambda _: True)
    before = state(db)
    assert state(peer.db) == before
    assert db.keys() == ["s"]
    store.close()

    store, databases = opened(seed=8)
    assert before == state(databases.open("shared"))
    store.close()


@pytest.mark.rule("R8.9", "R3.3.11")
def test_a_copy_of_a_directory_counts_under_an_id_of_its_own(opened, open_sim, clock, disk) -> None:
    """8.9: two lives that share an id count 1 where 2 were counted."""
    store, databases = opened()
    databases.open("shared").set("made", 1)
    store.close()
    image = disk.snapshot()

    results = {}
    for new_life in (False, True):
        exported = []
        for seed in (11, 12):
            disk.restore(image)
            store, databases = opened(seed=seed)
            db = databases.open("shared", new_life=new_life)
            db.incr("c")
            exported.append(db.export_replica())
            store.close()
        reader = Node(3, now_ms=clock.now_ms())
        for replica in exported:
            reader.db.merge_replicas(replica)
        results[new_life] = reader.db.incrby("c", 0)
    assert results[True] == 2
    assert results[False] == 1


def test_another_signer_begins_another_life(opened) -> None:
    store, databases = opened(1)
    first = databases.open("shared").replica
    store.close()

    store, databases = opened(2)
    assert databases.open("shared").replica != first
    store.close()


def test_databases_of_one_store_share_the_envelope_and_nothing_else(opened) -> None:
    store, databases = opened()
    a, b = databases.open("a"), databases.open("b")
    a.set("k", 1)
    assert b.get("k") is None
    assert databases.open("a") is a
    reader = Node(3, name="b", now_ms=1_700_000_000_000)
    assert len(reader.db.merge_replicas(a.export_replica()).accepted) == 1
    assert databases.home.names() == ["a", "b"]
    store.close()


def test_a_journal_is_compacted_when_it_is_long(opened) -> None:
    store, databases = opened()
    db = databases.open("shared")
    journal = TopicJournal(store, topic_of("shared"))
    for i in range(COMPACT_BYTES_MIN // 900_000 + 2):
        db.set("k", f"{i % 10}" * 900_000)
    assert sum(map(len, journal.read())) < 4_000_000
    before = state(db)
    store.close()

    store, databases = opened(seed=8)
    assert before == state(databases.open("shared"))
    store.close()


def test_compacting_by_hand_leaves_the_state_alone(opened) -> None:
    store, databases = opened()
    db = databases.open("shared")
    fill(db)
    before = state(db)
    databases.compact("shared")
    assert before == state(db)
    assert len(list(TopicJournal(store, topic_of("shared")).read())) == 2
    db.set("after", 1)
    before = state(db)
    store.close()

    store, databases = opened(seed=8)
    assert before == state(databases.open("shared"))
    store.close()


def test_a_batch_is_one_write(opened) -> None:
    store, databases = opened()
    db = databases.open("shared")
    journal = TopicJournal(store, topic_of("shared"))
    position = journal.position
    with db.batch():
        fill(db)
        assert db.get("v") == b"\x00value"
    assert journal.position == position + 1
    with pytest.raises(ZeroDivisionError), db.batch():
        db.set("v", 2)
        raise ZeroDivisionError
    assert db.get("v") == b"\x00value"
    assert journal.position == position + 1
    store.close()


def test_a_failed_write_is_not_to_be_seen_and_nothing_more_is_taken(opened, disk) -> None:
    store, databases = opened()
    db = databases.open("shared")
    db.set("k", 1)
    disk.inject("sync_data", FaultKind.EIO)
    with pytest.raises(Fatal):
        db.set("k", 2)
    assert db.get("k") == 1
    with pytest.raises(WrongState, match="open the database again"):
        db.set("k", 3)
    disk.process_death()

    store, databases = opened(seed=8)
    assert databases.open("shared").get("k") in (1, 2)
    store.close()


def test_a_journal_of_somebody_else_is_refused(opened) -> None:
    store, databases = opened()
    TopicJournal(store, topic_of("shared")).append([b"\x01"])
    with pytest.raises(Corrupt, match="not written by one"):
        databases.open("shared")
    store.close()


def test_limits_lowered_later_lose_nothing(open_sim, clock) -> None:
    with open_sim() as store:
        db = Databases(store, keys_of(1), clock=clock, entropy=SeededEntropy(1)).open("shared")
        db.set("k" * 1000, "v" * 1000)
        before = state(db)
    with open_sim() as store:
        small = KvLimits(key_bytes=10, value_bytes=10)
        db = Databases(store, keys_of(1), clock=clock, entropy=SeededEntropy(2), limits=small).open("shared")
        assert before == state(db)
        with pytest.raises(Rejected):
            db.set("k", "v" * 1000)


@pytest.mark.parametrize("name", ["a", "ü", "a b", "x" * 200, "hash.a", "."])
def test_any_name_has_a_topic_of_its_own(open_sim, clock, name) -> None:
    with open_sim() as store:
        databases = Databases(store, keys_of(1), clock=clock, entropy=SeededEntropy(1))
        databases.open(name).set("k", name)
        databases.open("b").set("k", "b")
        assert databases.open(name).get("k") == name
        assert topic_of(name) != topic_of("b")
    for bad in ("", "x" * 201, 1):
        with pytest.raises(Rejected, match="database"):
            databases.open(bad)


@pytest.mark.rule("T2.18", "R13.2")
def test_a_change_is_a_record_of_an_internal_topic_and_types_16_and_17_stay_unused(opened, disk) -> None:
    """The types have their numbers; what they would hold is in appends, which recovery, backup and audit know."""
    store, databases = opened()
    fill(databases.open("shared"))
    assert (FrameType.KV_OP, FrameType.INTENTION) == (16, 17)

    (path,) = (name for name in disk.names("wal/gen-0/shard-00") if name.startswith("wal-"))
    content = bytes(disk.content(f"wal/gen-0/shard-00/{path}"))
    found = scan(content, HEADER_SIZE, len(content)).items
    controls = {item.type for item in found if isinstance(item, Control)}
    assert FrameType.TOPIC_CREATE in controls
    assert not controls & {FrameType.KV_OP, FrameType.INTENTION}
    assert sum(len(item) for item in found if isinstance(item, Run)) == 12  # a header and eleven edits
    store.close()


def test_a_database_opened_twice_at_once_is_refused_the_second_writer(opened, clock) -> None:
    """Both would count under one id, and each would compact away what the other has written."""
    store, databases = opened()
    first = databases.open("shared")
    second = Databases(store, keys_of(1), clock=clock, entropy=SeededEntropy(9)).open("shared")
    first.incr("c")
    for write in (lambda: second.incr("c"), lambda: second.gc(0, stable_ms=1)):
        with pytest.raises(WrongState, match="somebody else has written"):
            write()
    assert second.incrby("c", 0) == 0
    assert first.incr("c") == 2
    store.close()

    store, databases = opened(seed=8)
    assert databases.open("shared").incrby("c", 0) == 2
    store.close()
