"""A golden directory with a cold tier, flags, a rewritten segment and a backup: every later version opens them."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.embed.golden_store import contains, facts
from tests.embed.golden_store_2 import (
    BACKUP,
    COLD,
    DATA,
    END_MS,
    GOLDEN,
    make,
    reopened,
    reopened_backup,
    said_by,
)
from topics.codec.segments.segidx import DELETED, decode_idx
from topics.host.cold.ownership import own_tier
from topics.host.cold.place import open_cold
from topics.store.directory import ClaimedDirectory
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy


def said():
    return json.loads(GOLDEN.with_suffix(".json").read_text())


@pytest.fixture
def copy(tmp_path):
    """It goes on elsewhere, so it adopts its cold tier."""
    path = shutil.copytree(GOLDEN, tmp_path / "store")
    held, store = ClaimedDirectory.claim(path / DATA, create=False), open_cold(str(path / COLD))
    own_tier(held.disk, store, SeededEntropy(1))
    held.lock.remember_place()
    store.close()
    held.release()
    return path


@pytest.fixture
def clock():
    return ManualClock(END_MS)


def records_in(found):
    return [record for page in found["pages"] for record in page["records"]]


@pytest.mark.rule("T0.3", "T5.8", "T6.3")
def test_the_golden_directory_is_opened_and_says_what_it_said(copy, clock):
    """States, records, tombstones, accounts; and the digest, until a state says more: the facts hold even then."""
    with reopened(copy, clock) as store:
        assert (list(store.damages), list(store.cuts), list(store.warnings)) == ([], [], [])
        found = said_by(store)

    assert contains(found["facts"], said()["facts"])
    assert said()["digest"] == found["digest"]


def test_it_holds_what_it_is_kept_for():
    """By hand, so that the file beside the directory is not its own witness."""
    idx = {path: decode_idx(path.read_bytes(), 0) for path in (GOLDEN / DATA).rglob("*.idx")}

    assert len(list((GOLDEN / COLD).rglob("*.data"))) == 4
    assert len(list((GOLDEN / DATA).rglob("*.del"))) == 3
    assert [path.name for path, columns in idx.items() if 0 in columns.lengths] == [
        "seg-00000000000000000001.idx"
    ]
    assert any(flags & DELETED for columns in idx.values() for flags in columns.flags)
    assert len(list((GOLDEN / DATA / "meta").iterdir())) == 2


def test_what_it_says_is_what_was_done(copy, clock):
    with reopened(copy, clock) as store:
        numbers = [record.data for record in store.topic("orders").records()]
        clicks = [record.data for record in store.topic("clicks").records()]
        blobs = [record.data for record in store.topic("blobs").records()]
        again = store.topic("orders").put_many([{"data": "once"}], idempotency_key="order-1")

    kept = [n for n in range(20) if n % 4 != 1 and not (n % 4 == 0 and n < 5)]
    assert [value if value == "once" else value["n"] for value in numbers] == [
        *kept,
        "once",
        100,
        101,
        102,
        103,
    ]
    assert clicks == [i for i in range(33) if not (i % 4 == 1 and i < 19)]
    assert blobs == [b"\0\1\2" * 200, "z" * 2000, 6, 8]
    assert list(again.seqs) == [21]


def test_it_is_written_to_and_goes_on_moving_its_segments(copy, clock):
    with reopened(copy, clock) as store:
        for name in said()["facts"]:
            store.topic(name).put_many([{"data": i} for i in range(20)])
        store.checkpoint()
        store.checkpoint()
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        before = facts(store)
    with reopened(copy, clock) as store:
        assert list(store.damages) == []
        assert before == facts(store)
    assert len(list((copy / COLD).rglob("*.data"))) > 4


@pytest.mark.rule("T6.3")
def test_a_copy_of_it_reads_its_cold_tier_before_it_adopts_it(tmp_path, clock):
    path = shutil.copytree(GOLDEN, tmp_path / "store")
    with reopened(path, clock) as store:
        assert "copied or moved" in store.warnings[0]
        assert said()["digest"] == said_by(store)["digest"]


@pytest.mark.rule("T7.1")
def test_its_backup_is_opened_and_says_the_same_of_every_record(copy, clock):
    """It was taken behind the last write, so it knows them all, but not the exact heads that a clean end logs."""
    with reopened_backup(copy, clock) as store:
        assert list(store.damages) == []
        found = facts(store)

    assert found.keys() == said()["facts"].keys()
    for name, expected in said()["facts"].items():
        assert records_in(expected) == records_in(found[name])


def test_this_version_still_does_what_made_it(tmp_path):
    make(tmp_path / GOLDEN.name)
    found = json.loads((tmp_path / f"{GOLDEN.name}.json").read_text())

    assert contains(found["facts"], said()["facts"])
    assert (tmp_path / GOLDEN.name / BACKUP / "FORMAT").exists()
