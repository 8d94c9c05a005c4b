"""A directory copied by other means than a backup, with the cold tier of its original."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import topics
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules
from topics.store.opened import StoreOptions


def settings(cold_dir="cold"):
    rules = SegmentRules(records_max=8, bytes_max=100_000, age_ms=0)
    return StoreOptions(cold_dir=cold_dir, segments=rules, hot=HotRules(retain_segments=1), min_free_bytes=0)


def go_on(root, numbers, *, cold_dir="cold"):
    """Put these, and do whatever is due in the background. Says what is the matter with the cold tier."""
    with topics.open(root, options=settings(cold_dir)) as store:
        store.topic("t").put_many([{"data": number} for number in numbers])
        for _ in range(2):
            store.sync()
            store.checkpoint()
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        return store._opened.checkpointer.relocator.failed


def numbers_in(root):
    with topics.open(root, options=settings()) as store:
        return [record.data for record in store.topic("t").read(limit=1000).records]


def cold_files():
    return {str(path): path.read_bytes() for path in Path("cold/topics").rglob("*.*")}


@pytest.mark.rule("T6.3", "T1.8")
def test_a_copy_leaves_the_cold_tier_of_its_original_alone_until_it_adopts_it(call):
    assert go_on("a", range(40)) is None
    shutil.copytree("a", "b")
    assert go_on("a", range(100, 140)) is None
    there = cold_files()

    assert "another copy of this directory has gone on" in go_on("b", range(200, 240))
    assert cold_files() == there
    assert numbers_in("a") == [*range(40), *range(100, 140)]
    assert numbers_in("b") == [*range(40), *range(200, 240)]
    listed = call("ls", "--data", "b", "--cold-dir", "cold")
    assert "stop it, run `topics adopt-cold`" in listed.err
    assert listed.code == 0

    adopted = call("adopt-cold", "b", "--cold-dir", "cold")
    assert (adopted.code, adopted.err) == (
        0,
        "topics: b goes on with the cold tier in cold; other copies of it only read there\n",
    )
    assert go_on("b", range(300, 340)) is None
    assert numbers_in("b") == [*range(40), *range(200, 240), *range(300, 340)]
    there = cold_files()
    assert "another copy of this directory has gone on" in go_on("a", range(400, 440))
    assert cold_files() == there


@pytest.mark.rule("T6.3")
def test_adopting_says_what_is_in_its_way(call):
    go_on("a", range(40))
    unnamed = call("adopt-cold", "a")
    absent = call("adopt-cold", "a", "--cold-dir", "elsewhere")
    assert (unnamed.code, absent.code) == (1, 1)
    assert "no cold tier to adopt: name their place with --cold-dir" in unnamed.err
    assert "no cold tier to adopt: elsewhere is not there: mount it" in absent.err
    Path("other").mkdir()
    empty = call("adopt-cold", "a", "--cold-dir", "other")
    assert (
        "no segment there has the name and the size of one that this directory has in a cold tier (it has 4)"
        in empty.err
    )
    go_on("another", range(40), cold_dir="its")
    assert "do not say the same owner" in call("adopt-cold", "a", "--cold-dir", "its").err
    with topics.open("a", options=settings()):
        assert "is in use by this process" in call("adopt-cold", "a", "--cold-dir", "cold").err


@pytest.mark.rule("T4.11")
def test_a_repair_takes_lock_away_and_makes_no_copy_of_the_directory(call):
    go_on("a", range(40))
    data = min(Path("cold").rglob("*.data"))
    data.write_bytes(b"")
    assert call("fsck", "a", "--repair", "--cold-dir", "cold").code == 0
    assert go_on("a", range(100, 140)) is None
    shutil.copytree("a", "b")
    assert call("fsck", "b", "--repair", "--cold-dir", "cold").code == 0

    assert "copied or moved" in go_on("b", range(40))


@pytest.mark.rule("T6.3")
@pytest.mark.parametrize("note", ["a/COLD", "cold/OWNER"])
@pytest.mark.parametrize("damage", ["flipped", "removed"])
def test_a_note_that_is_damaged_or_gone_is_told_and_adopting_makes_it_anew(call, note, damage):
    """The whole way, as it is told: fsck, adopt-cold, a start."""
    go_on("a", range(40))
    path = Path(note)
    if damage == "flipped":
        path.write_bytes(b"[" + path.read_bytes()[1:])
    else:
        path.unlink()
    checked = call("fsck", "a", "--cold-dir", "cold")
    (row, _) = checked.text.splitlines()
    assert checked.code == 0
    assert row.startswith("NOTE        cold: ")
    assert row.endswith(f"({path.name})")
    assert "run `topics adopt-cold`" in row
    listed = call("ls", "--data", "a", "--cold-dir", "cold")
    assert ("run `topics adopt-cold`" in listed.err) == (
        note == "a/COLD"
    )  # a start does not ask the cold tier
    assert "run `topics adopt-cold`" in go_on("a", range(100, 140))

    adopted = call("adopt-cold", "a", "--cold-dir", "cold")
    assert (adopted.code, adopted.err) == (
        0,
        "topics: a goes on with the cold tier in cold; other copies of it only read there\n",
    )
    assert call("adopt-cold", "a", "--cold-dir", "cold", "--json").lines == [
        {"store": "a", "cold": "cold", "damaged_segments": 0}
    ]
    assert call("ls", "--data", "a", "--cold-dir", "cold").err == ""
    assert go_on("a", range(200, 240)) is None
    assert numbers_in("a") == [*range(40), *range(100, 140), *range(200, 240)]
    assert "nothing is wrong" in call("fsck", "a", "--cold-dir", "cold").text


@pytest.mark.rule("T6.3", "T7.1")
def test_what_a_backup_gives_reads_the_cold_segments_of_its_original_until_it_adopts_them(call):
    go_on("a", range(40))
    assert call("backup", "b", "--data", "a").code == 0
    assert call("verify", "b", "--cold-dir", "cold").code == 0
    assert call("restore", "b", "r").code == 0
    there = cold_files()
    assert "or restored from a backup" in go_on("r", range(100, 140))
    assert "or restored from a backup" in call("ls", "--data", "r", "--cold-dir", "cold").err
    assert cold_files() == there

    assert call("adopt-cold", "r", "--cold-dir", "cold").code == 0
    assert go_on("r", range(200, 240)) is None
    assert numbers_in("r") == [*range(40), *range(100, 140), *range(200, 240)]
    assert "another copy of this directory has gone on" in go_on("a", range(300, 340))
