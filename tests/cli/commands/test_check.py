"""`fsck` and `inspect` as a user calls them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest

import topics
from tests.support.planting import plant
from tests.support.sample_store import build, write_out
from topics.audit.fsck import FsckReport
from topics.audit.scan.rows import Severity, Violation
from topics.cli.commands.directory.check import print_report


@pytest.fixture
def sample(tmp_path):
    """Writes a sample, with faults of these kinds, and says where."""

    def write(*kinds):
        made = build()
        planted = [plant(made.files, kind) for kind in kinds]
        root = tmp_path / "data"
        write_out(made.files, root)
        (tmp_path / "acks.jsonl").write_text(
            "".join(
                json.dumps({"topic": a.topic, "seq": a.seq, "digest": f"{a.digest:016x}"}) + "\n" for a in made.acks
            )
        )  # fmt: skip
        return root, planted

    return write


@pytest.mark.rule("T4.10", "O2.12")
def test_a_whole_directory_is_said_to_be_whole(call, sample):
    root, _ = sample()
    answer = call("fsck", str(root), "--acks", "acks.jsonl")

    assert answer.code == 0
    assert answer.text.startswith(f"{root}: ")
    assert answer.text.endswith("nothing is wrong\n")


@pytest.mark.rule("T4.10", "T5.11")
def test_damage_is_named_with_topic_seq_and_file_and_ends_with_1(call, sample):
    root, (planted,) = sample("segment.record: a flipped bit")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    answer = call("fsck", "--data", str(root))

    assert answer.code == 1
    assert f"segment.record: topic 'orders' seq {planted.seq}:" in answer.text
    assert planted.file in answer.text
    assert "1 error" in answer.text
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


@pytest.mark.rule("T4.15", "T4.16")
def test_a_tail_is_undecidable_and_no_error(call, sample):
    root, _ = sample("wal.tail: a torn write")
    answer = call("fsck", str(root))

    assert answer.code == 0
    assert "UNDECIDABLE wal.tail:" in answer.text
    assert "bytes of tail that no mark covers" in answer.text


@pytest.mark.rule("T4.11", "O2.12")
def test_a_repair_says_what_is_lost_and_leaves_a_whole_directory(call, sample):
    root, (planted,) = sample("segment.record: a flipped bit")
    answer = call("fsck", str(root), "--repair")
    with topics.open(root) as store:
        page = store.topic("orders").read(from_seq=planted.seq - 1)
        store.topic("orders").put("on it goes")

    assert answer.code == 0
    assert f"LOST: topic 'orders': 1 record cannot be had any more (seq {planted.seq})" in answer.err
    assert "repaired-" in answer.err
    assert answer.text.endswith("nothing is wrong\n")
    assert page.tombstone.reason == "corrupt"
    assert call("fsck", str(root), "--repair").err.startswith("topics: nothing to repair")


@pytest.mark.rule("T4.10")
def test_a_directory_that_is_in_use_is_not_repaired(call, tmp_path):
    with topics.open(tmp_path / "data") as store:
        store.create("t")
        answer = call("fsck", str(tmp_path / "data"), "--repair")

    assert answer.code == 2
    assert "in use by" in answer.err


def test_machines_get_a_row_a_violation_and_a_summary(call, sample):
    root, (planted,) = sample("segment.flag: another value")
    answer = call("fsck", str(root), "--json", "--out", "report.json")
    row, summary = answer.lines
    report = json.loads((root.parent / "report.json").read_text())

    assert answer.code == 1
    assert list(row) == ["topic", "file", "check", "severity", "seq", "offset", "detail"]
    assert (row["check"], row["file"], row["seq"]) == (planted.check, planted.file, planted.seq)
    assert summary["error"] == summary["exit_code"] == 1
    assert report["violations"] == [row]
    assert {one["status"] for one in report["checks"]} == {"passed", "failed", "skipped"}


def test_a_file_with_any_bytes_for_a_name_is_told_to_machines_too(call, tmp_path):
    with topics.open(tmp_path / "data") as store:
        store.create("t")
    Path(os.fsdecode(os.fsencode(tmp_path / "data") + b"/mine\xff")).write_text("x")

    answer = call("fsck", str(tmp_path / "data"), "--json", "--out", str(tmp_path / "report.json"))

    row, _summary = answer.lines
    assert answer.code == 0
    assert row["file"] == "mine\\udcff"
    assert json.loads((tmp_path / "report.json").read_text())["violations"] == [row]


@pytest.mark.rule("P4.9")
def test_a_report_that_cannot_be_written_ends_with_2(call, tmp_path):
    with topics.open(tmp_path / "data") as store:
        store.create("t")
    answer = call("fsck", str(tmp_path / "data"), "--out", str(tmp_path / "nowhere" / "report.json"))

    assert answer.code == 2
    assert "--out: " in answer.err
    assert "report.json cannot be written: No such file or directory" in answer.err


def test_what_cannot_be_looked_at_ends_with_2(call, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "FORMAT").write_text('{"format": 9}')

    for arguments, field in (("fsck", "DIRECTORY"), ("fsck --data", "--data")):
        nowhere = call(*arguments.split(), str(tmp_path / "nowhere"))
        assert nowhere.code == 2
        assert nowhere.err.startswith(f"topics: {field}: {tmp_path / 'nowhere'} is no directory: name a data")
    assert call("fsck", str(tmp_path / "empty")).code == 2
    newer = call("fsck", str(tmp_path / "newer"))
    assert newer.code == 2
    assert "use a newer topics" in newer.err


@pytest.mark.rule("O2.21")
def test_a_directory_that_is_in_use_is_looked_at(call, tmp_path):
    with topics.open(tmp_path / "data") as store:
        topic = store.create("t", durability="fsync")
        for i in range(50):
            topic.put({"n": i})
        checked = call("fsck", str(tmp_path / "data"))
        log = next((tmp_path / "data" / "wal").rglob("wal-*.log"))
        shown = call("inspect", str(log), "--json", "--seq", "7-8")

    assert checked.code == 0, checked.text
    assert [row["seq"] for row in shown.lines] == [7, 8]


@pytest.mark.rule("O2.12")
def test_inspect_prints_a_line_an_item(call, sample):
    root, _ = sample()
    log = max((root / "wal").rglob("wal-*.log"))
    answer = call("inspect", str(log), "--limit", "3")
    lines = answer.text.splitlines()

    assert answer.code == 0
    assert len(lines) == 3
    assert lines[0].split()[:2] == ["0", "header"]
    assert "first_frame=" in lines[0]


def test_inspect_says_that_there_is_nothing_about_a_seq(call, sample):
    root, _ = sample()
    data = max((root / "topics").rglob("*.data"))
    answer = call("inspect", str(data), "--seq", "900000")

    assert (answer.code, answer.out) == (0, b"")
    assert answer.err.endswith("is about seq 900000\n")


@pytest.mark.parametrize(
    "wrong",
    [("inspect", "notes.txt"), ("inspect", "x.log", "--seq", "a-b"), ("inspect", "x.log", "--seq", "9-7")],
)
def test_a_wrong_call_of_inspect_says_so_in_a_line(call, tmp_path, wrong):
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "x.log").write_bytes(bytes(64))
    answer = call(*wrong)

    assert answer.code == 2
    assert answer.err.count("\n") == 1


def test_what_is_lost_with_the_newest_log_is_told_and_no_seq_of_it_is_given_out_again(call, sample):
    root, _ = sample()
    newest = max((root / "wal/gen-0/shard-00").glob("wal-*.log"))
    acked = max(
        one["seq"]
        for one in map(json.loads, (root.parent / "acks.jsonl").read_text().splitlines())
        if one["topic"] == "orders"
    )
    newest.unlink()
    answer = call("fsck", str(root), "--repair", "--json")
    row = json.loads(answer.text.splitlines()[0])
    with topics.open(root) as store:
        pages = [store.topic("orders").read(from_seq=0, limit=1000, account=True)]
        while not pages[-1].caught_up:
            pages.append(
                store.topic("orders").read(from_seq=pages[-1].next_from_seq, limit=1000, account=True)
            )
        again = store.topic("orders").put("on it goes")
    head = pages[-1].head_seq
    told = sum(page.account.lost for page in pages)

    assert "LOST: topic 'orders': what was written from seq" in answer.err
    assert newest.name in answer.err
    assert "records that were deleted may be back in 'orders'" in answer.err
    assert row["lost"]["orders"][-1][1] == head
    assert told == sum(last - first + 1 for first, last in row["lost"]["orders"])
    assert row["holes"][0]["file"].endswith(newest.name)
    assert again.first_seq > acked
    assert sum(sum(attrs.astuple(page.account)) for page in pages) == head


def test_many_rows_of_one_cause_are_summed_up_for_people(capsys):
    rows = [
        Violation("t", file, "segment.record", Severity.ERROR, seq, None, "gone")
        for file, count in (("a.data", 400), ("b.data", 11))
        for seq in range(1, count + 1)
    ]
    print_report(FsckReport(where="data", violations=rows, files=2, bytes=0, records=0, passes=1))
    lines = capsys.readouterr().out.splitlines()

    assert len(lines) == 11 + 11 + 1
    assert lines[10] == "ERROR       segment.record: 390 more in a.data; --json lists them"
    assert "seq 11: gone (b.data)" in lines[21]
    assert "411 errors" in lines[22]
