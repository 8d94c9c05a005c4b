"""A journal is written in pieces of bounded size, folds to what was there, and refuses what no database has written."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.kv_nodes import LIMITS, Node, keys_of, state
from topics.codec.cell import decode_cell, encode_cell
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kv.bounds import COMPACT_BYTES_MIN, DAY_MS, JOURNAL_ITEM_BYTES
from topics.kv.database import Database
from topics.kv.entries.store import EMPTY, KvStore, join_stores, store_from_cell, store_to_cell
from topics.kv.journaled import DatabaseHeader, Journaled, replay
from topics.testing.journal import MemoryJournal

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "kv-journal-1.bin"
HEADER = DatabaseHeader("shared", keys_of(1).public, "r")


class CuttableJournal(MemoryJournal):
    """A journal that can forget its beginning, and may refuse more than so many bytes at once."""

    def __init__(self):
        super().__init__()
        self.forgotten = 0
        self.bytes_max = None

    def append(self, items):
        if self.bytes_max is not None and sum(map(len, items)) > self.bytes_max:
            raise Rejected(Code.DISK_LOW, "no space")
        super().append(items)

    @property
    def position(self):
        return self.forgotten + len(self.items)

    def cut(self, position):
        del self.items[: position - self.forgotten]
        self.forgotten = position


def opened(journal):
    cursor = Journaled(journal, LIMITS, EMPTY, HEADER)
    cursor.begin(HEADER)
    return cursor


def bytes_of(store):
    return encode_cell(store_to_cell(store))


def large():
    """Fifteen megabytes: one set of six, values of three, and a list."""
    db = Node(2).db
    for i in range(9):
        db.sadd("s", *(f"{i}.{j}" + "x" * 7000 for j in range(100)))
    for i in range(10):
        db.set(f"v{i}", "y" * 900_000)
    db.incrby("s-counter", 5)
    db.delete("s-counter")
    db.expire("s", 10_000)
    return db


def test_a_large_merge_is_written_in_pieces_and_folds_to_the_same():
    journal = MemoryJournal()
    cursor = opened(journal)
    theirs = large().snapshot()
    cursor.merge(theirs)
    assert bytes_of(cursor.get()) == bytes_of(theirs)
    assert len(journal.items) > 3
    assert max(map(len, journal.items)) < 1.2 * JOURNAL_ITEM_BYTES
    assert bytes_of(replay(journal)[0]) == bytes_of(theirs)
    before = len(journal.items)
    cursor.merge(theirs)
    cursor.merge("garbage")
    assert len(journal.items) == before


def test_a_key_that_many_wrote_at_once_is_written_in_pieces():
    """Each replica's value is kept until a write has seen it; together they can be above what one write may hold."""
    nodes = [Node(number) for number in range(1, 8)]
    for node in nodes:
        node.db.set("k", f"{node.keys.public[0] % 10}" * 900_000)
    journal = MemoryJournal()
    cursor = opened(journal)
    whole = EMPTY
    for node in nodes:
        whole = join_stores(whole, node.db.snapshot())
    cursor.merge(whole)
    assert bytes_of(cursor.get()) == bytes_of(whole) == bytes_of(replay(journal)[0])
    assert max(map(len, journal.items)) < 1.2 * JOURNAL_ITEM_BYTES
    assert max(map(len, cursor.snapshot())) < 1.2 * JOURNAL_ITEM_BYTES


def test_a_snapshot_is_in_pieces_too_and_any_number_of_them_may_be_there_twice():
    journal = CuttableJournal()
    cursor = opened(journal)
    cursor.merge(large().snapshot())
    before = bytes_of(cursor.get())
    pieces = list(cursor.snapshot())
    assert max(map(len, pieces)) < 1.2 * JOURNAL_ITEM_BYTES
    for count in range(len(pieces) + 1):  # a crash while the snapshot was written, and one before the cut
        assert bytes_of(replay(MemoryJournal([*journal.items, *pieces[:count]]))[0]) == before
    cursor.compact()
    assert len(journal.items) == len(pieces)
    store, header, *_ = replay(journal)
    assert (bytes_of(store), header) == (before, HEADER)


def test_a_compaction_that_is_refused_is_not_the_edits_business():
    node, journal = Node(1), CuttableJournal()
    cursor = opened(journal)
    node.home.adopt("other", cursor)
    db = Database.of(node.home, "other")
    for i in range(COMPACT_BYTES_MIN // 900_000):
        db.set(f"k{i % 6}", "x" * 900_000)
    journal.bytes_max = 1_000_000  # a snapshot's piece is larger
    for i in range(3):
        db.set("k", f"{i}" * 900_000)
    assert db.get("k")[0] == "2"
    assert bytes_of(replay(journal)[0]) == state(db)
    assert journal.forgotten == 0
    journal.bytes_max = None
    for i in range(50):
        db.set("k", f"{i % 10}" * 900_000)
    assert journal.forgotten > 0
    assert bytes_of(replay(journal)[0]) == state(db)


def test_an_empty_journal_has_neither_state_nor_header():
    assert replay(MemoryJournal())[:3] == (EMPTY, None, 0)
    journal = MemoryJournal()
    opened(journal)
    assert replay(journal)[1] == HEADER


GOOD = ("change", {}, {})


@pytest.mark.parametrize(
    "items",
    [
        [b""],
        [b"\xff"],
        [b"\x01"],
        [encode_cell(GOOD)],  # before any header
        [encode_cell(("open", 2, "n", b"s", "r"))],
        [encode_cell(("open", 1, "n", "s", "r"))],
        [encode_cell(("else",))],
        [encode_cell(("change", {"k": ("garbage",)}, {}))],
        [encode_cell(("change", {}, {"k": "garbage"}))],
        [encode_cell(("change", {}, {1: None}))],
        [encode_cell(("change", None, {}))],
        [encode_cell(("change", {}, {"": None}))],
        [encode_cell(("change", {}, {"": ("v", 0, 1, None)}))],
        [encode_cell(("collect", 1, 2))],
        [encode_cell(("collect", -1, 0, 0))],
        [encode_cell(("open", 1, "n", b"s", ""))],
        [encode_cell(("wait", {"k": ("garbage",)}))],
        [encode_cell(("wait", None))],
        [encode_cell(("due", "soon"))],
        [encode_cell(("aside", 1))],
        [encode_cell(("withdraw", None))],
    ],
)
def test_an_item_that_no_database_wrote_is_corrupt(items):
    header = encode_cell(("open", 1, "n", b"s", "r"))
    given = items if items == [encode_cell(GOOD)] else [header, *items]
    with pytest.raises(Corrupt, match=r"item [01] was not written by one"):
        replay(MemoryJournal(given))


def test_a_change_that_changes_nothing_is_not_written():
    journal = MemoryJournal()
    cursor = opened(journal)
    cursor.update(lambda store: store)
    cursor.merge(KvStore())
    assert len(journal.items) == 1
    assert not cursor.collect(now_ms=1, grace_ms=0, floor=0, replica="q").keys
    assert len(journal.items) == 1


WITHOUT_WAITING = pathlib.Path(__file__).resolve().parents[1] / "golden" / "kv-journal.bin"


def test_a_journal_from_before_anything_waited_in_one_is_read():
    """Written by the version before: items, and last the state they fold to, each with its length in four bytes."""
    data, items = WITHOUT_WAITING.read_bytes(), []
    while data:
        size = int.from_bytes(data[:4], "little")
        items.append(data[4 : 4 + size])
        data = data[4 + size :]
    *items, expected = items
    store, header, _, waiting = replay(MemoryJournal(items))
    assert bytes_of(store) == expected
    assert (header.name, len(waiting)) == ("shared", 0)


def test_a_journal_and_replicas_of_the_first_form_are_read_as_they_were_meant():
    """Its collections dropped expired keys at once, and its later writes did not say when they expire."""
    now_ms, items, state_then, replica, changes = decode_cell(GOLDEN.read_bytes())
    assert {decode_cell(item)[0] for item in items} == {"open", "change", "collect"}
    store, *_ = replay(MemoryJournal(items))
    assert bytes_of(store) == bytes_of(store_from_cell(state_then, LIMITS))

    node = Node(2, now_ms=now_ms)
    assert len(node.db.merge_replicas(replica).accepted) == 1
    assert state(node.db) == bytes_of(store)
    assert len(Node(3, now_ms=now_ms).db.merge_changes(changes).accepted) == 1
    keys = node.db.keys()
    reads = {key: node.db.read(key).value for key in keys}
    assert reads == {
        "again:0": {"name": "Ada"}, "again:2": ("new",), "again:4": (("new", 2.0),), "again:6": 1, "h": {"g": 2},
        "list": (1, 2), "list:expiring": 1, "ttl": {"f": 1, "g": 2}, "v": 3, "w": "again",
    }  # fmt: skip
    assert node.db.ttl("ttl") == 8 * DAY_MS - 10
    assert node.db.delete("again:0")
