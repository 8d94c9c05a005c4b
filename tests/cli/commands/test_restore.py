"""`topics restore` of a log that is not whole: what is refused, what is cut, and what can be had."""

from __future__ import annotations

import json
import pathlib

import pytest

import topics
from tests.cli.conftest import Call
from topics.host.directory.layout import with_sum
from topics.host.directory.restored import RestoreNote, read_restored, write_restored
from topics.host.system.disk import OsDisk
from topics.host.system.readonly import ReadOnlyDisk
from topics.host.wal.archive import ArchiveRules
from topics.store.opened import StoreOptions


@pytest.fixture
def log(call: Call) -> pathlib.Path:
    """The one log file of a directory `d`. Its backup `b` has three records; twenty are behind that, each by itself."""
    with topics.open("d") as store:
        orders = store.create("orders", durability="fsync")
        orders.put_many([{"data": {"n": n}} for n in range(3)])
        store.backup("b")
        for n in range(1000, 1020):
            orders.put({"n": n})
    (found,) = pathlib.Path("d").rglob("wal-*.log")
    return found


def damage(path: pathlib.Path, text: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[content.rindex(text)] ^= 1
    path.write_bytes(content)


def numbers(call: Call, root: str) -> list[int]:
    """What is behind the backup's own in a restored store."""
    lines = call("get", "orders", "--data", root, "--json").out.splitlines()
    found = [json.loads(line)["data"]["n"] for line in lines if b'"data"' in line]
    assert found[:3] == [0, 1, 2]
    return found[3:]


@pytest.mark.rule("T7.3")
def test_a_damaged_log_is_refused_and_what_the_message_says_can_be_had(call: Call, log: pathlib.Path) -> None:
    damage(log, b'"n":1010')
    refused = call("restore", "b", "r", "--archive", "d")
    before = call("restore", "b", "r", "--archive", "d", "--to-seq", "orders=13")

    assert (refused.code, before.code) == (1, 0)
    assert f"{log}, offset" in refused.err
    assert "topic 'orders' seq 14 of the log" in refused.err
    assert "--to-seq orders=13" in refused.err
    assert numbers(call, "r") == list(range(1000, 1010))


@pytest.mark.rule("T7.3")
def test_an_end_of_the_log_that_may_never_have_been_durable_is_cut_and_told(
    call: Call, log: pathlib.Path
) -> None:
    content = log.read_bytes()
    end = content.rindex(b'"n":1019')
    log.write_bytes(content[:end] + bytes(len(content) - end))
    restored = call("restore", "b", "r", "--archive", "d")
    (fields,) = call("restore", "b", "r2", "--archive", "d", "--json").lines

    assert restored.code == 0
    assert "CUT: " in restored.err
    assert "bytes of tail that no mark covers cut at offset" in restored.err
    assert [line.partition(" bytes of tail")[0].isdigit() for line in fields["tails_cut"]] == [True]
    assert fields["topics"] == {"orders": 22}
    assert numbers(call, "r") == list(range(1000, 1019))


@pytest.mark.rule("T7.3")
def test_without_the_file_in_which_the_backup_ends_the_log_behind_it_is_refused(
    call: Call, log: pathlib.Path
) -> None:
    with topics.open("d", options=topics.StoreOptions(shards=2)) as store:
        store.topic("orders").put({"n": 0})
    log.rename("kept.log")
    refused = call("restore", "b", "r", "--archive", "d")

    assert refused.code == 1
    assert f"{log.relative_to('d')}, in which the backup ends, is not there, and d/wal/gen-1/" in refused.err


@pytest.mark.rule("T7.3")
def test_of_two_copies_of_one_log_the_longer_is_taken_and_two_that_differ_are_named(
    call: Call, log: pathlib.Path
) -> None:
    older = pathlib.Path("older") / log.relative_to("d/wal")
    older.parent.mkdir(parents=True)
    older.write_bytes(log.read_bytes())
    with topics.open("d") as store:
        store.topic("orders").put({"n": 0})
    for at, places in enumerate((["older", "d"], ["d", "older"])):
        options = [option for place in places for option in ("--archive", place)]
        assert call("restore", "b", f"r{at}", *options).code == 0
        assert len(numbers(call, f"r{at}")) == 21
    with topics.open("e") as other:
        other.create("orders").put({"n": 0})
    refused = call("restore", "b", "r2", "--archive", "d", "--archive", "e")

    assert refused.code == 1
    assert f"e/{log.relative_to('d')} differs from {log}" in refused.err


@pytest.mark.rule("T7.4", "T4.10")
def test_a_backup_is_not_repaired_and_nothing_is_left_in_it(call: Call, log: pathlib.Path) -> None:
    """A repair writes, as a start does: what was a backup could neither be verified nor restored then."""
    assert log.exists()
    (copied,) = pathlib.Path("b").rglob("wal-*.log")
    for whole in (True, False):
        if not whole:
            damage(copied, b'{"n":2}')
        before = {path: path.read_bytes() for path in pathlib.Path("b").rglob("*") if path.is_file()}
        refused = call("fsck", "--repair", "b")
        codes = [call("fsck", "b").code, call("verify", "b").code]

        assert refused.code == 2
        assert "make a store of it with topics restore b DIR, and repair that" in refused.err
        assert codes == ([0, 0] if whole else [1, 1])
        assert before == {path: path.read_bytes() for path in pathlib.Path("b").rglob("*") if path.is_file()}
    assert call("restore", "b", "r").code == 1
    assert call("fsck", "--repair", "r").code == 0
    assert call("get", "orders", "--data", "r").code == 0


@pytest.mark.parametrize("goal", ["--to-seq", "--to-time"])
def test_what_a_restore_to_a_moment_leaves_out_is_no_loss(call: Call, goal: str) -> None:
    """Nothing was lost with the power: heads are what they were then, and the next write goes on there."""
    with topics.open("data", options=StoreOptions(archive=ArchiveRules())) as store:
        for durability in ("disk", "fsync", "memory"):
            store.create(durability, durability=durability).put_many([{"data": n} for n in range(3)])
        store.backup("nightly")
        for topic in ("disk", "fsync", "memory"):
            store.topic(topic).put(3)
        moment = store.topic("fsync").read().records[-1].ts + 1
        while store.topic("disk").state().last_write_ts <= moment:
            store.topic("disk").put(4)
        expected = sum(record.ts <= moment for record in store.topic("disk").records())
        expected = expected if goal == "--to-time" else 4
        topics_there = [store.topic(name) for name in ("disk", "fsync", "memory")]
        last_kept = max(one.ts for topic in topics_there for one in topic.records() if one.seq <= 4)
    reached = ("--to-ts", str(moment)) if goal == "--to-time" else ("--to-seq", "disk=4")
    done = call("restore", "nightly", "again", "--archive", "data", *reached)
    assert done.code == 0, done.err
    note = read_restored(ReadOnlyDisk("again"))
    assert note is not None
    assert note.as_of == (moment if goal == "--to-time" else last_kept)

    with topics.open("again") as store:
        for topic in ("disk", "fsync"):
            page = store.topic(topic).read(from_seq=0, account=True)
            assert (page.tombstone, page.account.lost) == (None, 0)
            assert page.head_seq == (expected if topic == "disk" else 4)
            assert store.topic(topic).put("next").first_seq == page.head_seq + 1


def test_a_restored_backup_alone_lost_nothing_either(call: Call) -> None:
    with topics.open("data") as store:
        store.create("t").put_many([{"data": n} for n in range(3)])
        store.backup("nightly")
    assert call("restore", "nightly", "again").code == 0

    with topics.open("again") as store:
        page = store.topic("t").read(from_seq=0, account=True)
        assert (page.tombstone, page.head_seq) == (None, 3)


def test_why_tells_of_what_a_restore_left_out_whatever_has_its_seq_now(call: Call) -> None:
    with topics.open("data") as store:
        store.create("t").put_many([{"data": n} for n in range(2)])
        store.backup("nightly")
        store.topic("t").put(2)
        store.create("later").put(1)
    assert call("restore", "nightly", "again").code == 0
    left_out = b"when the head was 2: whatever had seq 3 before is gone"

    told = call("why", "t", "3", "--data", "again").out
    assert b"record 3 is not here: no such seq yet, the head is 2" in told
    assert left_out in told
    with topics.open("again") as store:
        assert store.topic("t").put("another").first_seq == 3
        found_now = store.why("t", 3)
    assert found_now.restored is not None
    assert (found_now.now.state, found_now.restored.head_seq) == ("live", 2)
    assert left_out in call("why", "t", "3", "--data", "again").out
    assert b"restored" not in call("why", "t", "2", "--data", "again").out
    assert b"whatever was above 2 before is gone" in call("why", "t", "--reader", "0", "--data", "again").out
    later = call("why", "later", "1", "--data", "again")
    assert later.code == 1
    assert "so a topic that was created in between is gone" in later.err


def test_what_is_restored_is_as_old_as_the_backup_at_most_whatever_was_written_last(call: Call) -> None:
    with topics.open("data") as store:
        store.create("t")
        store.backup("nightly")
        store.topic("t").put(1)
    assert call("restore", "nightly", "again", "--archive", "data", "--to-seq", "t=0").code == 0

    restored = read_restored(ReadOnlyDisk("again"))
    assert restored is not None
    assert restored.as_of == json.loads(pathlib.Path("nightly/BACKUP.json").read_bytes())["ts"]


def test_a_damaged_note_of_a_restore_is_told_by_fsck_and_believed_by_nobody(call: Call) -> None:
    with topics.open("data") as store:
        store.create("t").put(1)
        store.backup("nightly")
    call("restore", "nightly", "again")
    assert call("fsck", "again").out.endswith(b"nothing is wrong\n")
    note = pathlib.Path("again/RESTORED")
    whole = note.read_bytes()
    for at in range(len(whole)):
        note.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert read_restored(ReadOnlyDisk("again")) is None
    for forged in ({"as_of": "1"}, {"heads": {"0000000000000001": "1"}}, {"heads": []}):
        note.write_bytes(with_sum({"ts": 2, "as_of": 1, "heads": {}} | forged))
        assert read_restored(ReadOnlyDisk("again")) is None
    assert b"restored: it is damaged" in (told := call("fsck", "again")).out
    assert told.code == 0
    assert b"never put" in call("why", "t", "2", "--data", "again").out

    write_restored(OsDisk("again"), RestoreNote.of(ts=1 << 70, as_of=-1, heads={1: 0}))
    assert b"restored at 1180591620717411303424 ms to" in call("why", "t", "1", "--data", "again").out
