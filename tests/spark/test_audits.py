"""Spark finds in a directory what fsck finds, and reports it on a page that needs no network; reports and exports."""

import contextlib
import re
import signal
import subprocess
import sys

import attrs
import pyarrow.parquet as pq
import pytest

from tests.spark.processes import python
from tests.spark.stores import fill, fill_cold, records, rows
from tests.support.planting import plant
from tests.support.sample_store import build, write_out
from topics.audit.fsck import Options, fsck
from topics.audit.report.html_page import page
from topics.cli.main import main
from topics.host.cold.place import open_cold
from topics.host.system.readonly import ReadOnlyDisk
from topics.spark.audits import validate

PLANTED = (  # together; fsck's own tests find each kind by itself
    "hint: a flipped bit",
    "leftover: a segment of nobody",
    "segment.flag: another value",
    "segment.record: a flipped bit",
)

KILLED = """
import os, sys, topics
store = topics.open(sys.argv[1])
topic = store.create("t", durability="disk")
for number in range(50):
    topic.put(number)
os._exit(9)
"""


@pytest.fixture(scope="module")
def sample():
    return build()


@pytest.fixture
def damaged(sample, tmp_path):
    """A directory with faults of several kinds, as far as they can be planted beside each other."""
    files = dict(sample.files)
    for kind in PLANTED:
        plant(files, kind, 1)
    write_out(files, tmp_path / "data")
    return tmp_path / "data"


def local(path):
    return fsck(ReadOnlyDisk(path), where=str(path), options=Options())


@pytest.mark.rule("P1.7", "P4.10")
def test_spark_finds_what_fsck_finds_in_however_many_tasks(spark, damaged, sample, tmp_path):
    expected = local(damaged)
    told = []

    found = validate(spark, str(damaged), progress=lambda done, total: told.append((done, total)))

    assert {one.check for one in found.violations} >= {"segment.record"}
    assert found == expected
    assert found.exit_code == 1
    assert told[-1][0] == told[-1][1] > 0
    write_out(sample.files, tmp_path / "whole")
    assert validate(spark, str(tmp_path / "whole")).violations == []


@pytest.mark.rule("P4.8", "P4.9")
def test_a_report_is_a_page_without_network_and_tables_of_the_same_rows(spark, damaged, tmp_path, capsys):
    code = main(["spark", "validate", str(damaged), "--out", str(tmp_path / "report")])

    assert code == 1
    shown = (tmp_path / "report" / "report.html").read_text()
    expected = local(damaged)
    assert not re.search(r"(src|href)=|https?:|<script|@import|url\(", shown)
    assert shown.count("<svg") == 2
    for one in expected.violations:
        assert one.check in shown
    rows = pq.read_table(tmp_path / "report" / "violations.parquet").to_pylist()
    assert [(row["check"], row["seq"], row["file"]) for row in rows] == [
        (one.check, one.seq, one.file) for one in expected.violations
    ]
    checks = pq.read_table(tmp_path / "report" / "checks.parquet").to_pylist()
    assert {row["check"] for row in checks if row["status"] == "failed"} == {
        one.check for one in expected.errors
    }
    assert "segment.record" in capsys.readouterr().out


def test_what_is_damaged_in_the_cold_tier_is_found_where_that_is_named(spark, tmp_path, capsys):
    data, cold = tmp_path / "data", tmp_path / "cold"
    fill_cold(data, cold)
    args = ["spark", "validate", str(data)]
    assert main([*args, "--cold-dir", str(cold)]) == 0
    moved = sorted(cold.rglob("*.data"))[1]
    moved.write_bytes(moved.read_bytes().replace(b"11", b"1!"))

    found = validate(spark, str(data), cold_dir=str(cold))

    store = open_cold(str(cold))
    assert found == fsck(ReadOnlyDisk(data), where=str(data), options=Options(cold=store, cold_dir=str(cold)))
    assert [(one.check, one.seq) for one in found.errors] == [("segment.record", 12)]
    assert main([*args, "--cold-dir", str(cold)]) == 1
    capsys.readouterr()
    assert main(args) == 1
    assert "records in the cold tier were not looked at" in capsys.readouterr().err


def test_names_from_a_directory_do_not_become_markup(damaged):
    report = local(damaged)
    evil = attrs.evolve(report.violations[0], topic="<script>alert(1)</script>", detail="a & b < c")
    text = page(attrs.evolve(report, where="<b>", violations=[evil])).decode()

    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "a &amp; b &lt; c" in text


@pytest.mark.rule("P4.11", "P4.12", "O2.15")
def test_an_overview_and_an_export_hold_every_record_of_a_directory_or_a_backup(spark, tmp_path, capsys):
    fill(tmp_path / "data")
    out, parquet, acks = tmp_path / "page.html", tmp_path / "parquet", tmp_path / "acks.jsonl"
    acks.write_text('{"topic":"quakes","seq":1,"sent_ms":3,"acked_ms":9.5}\n')
    for name, text in (("offsets", 'v1\n{}\n{"quakes": {"epoch": 1, "next": 103}}'), ("commits", "v1\n{}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text(text)
    place = ["--data", str(tmp_path / "data")]
    told = ["--acks", str(acks), "--checkpoint", str(tmp_path)]
    kept = str(tmp_path / "backup")
    assert main(["backup", kept, *place]) == 0

    assert main(["spark", "validate", kept]) == 0
    assert main(["spark", "report", "quakes", "capped", "--out", str(out), *told, "--data", kept]) == 0
    assert main(["spark", "export", "quakes", "--out", str(parquet), *place]) == 0
    assert main(["spark", "export", "capped", "--out", str(tmp_path / "capped"), "--data", kept]) == 0
    assert main(["spark", "export", "empty", "--out", str(tmp_path / "empty"), *place]) == 0

    live = records(tmp_path / "data", "quakes")
    said = capsys.readouterr()
    assert f"2 topics, {len(live) + 10} records" in said.out
    assert f"{len(live)} records exported to {parquet}" in said.out
    assert f"0 records exported to {tmp_path / 'empty'}" in said.out
    assert "LOST: topic 'capped': seq 1 to " in said.err
    assert "headers" in spark.read.parquet(str(parquet)).columns
    shown = out.read_text()
    assert "<td>capped</td>" in shown
    assert "<td>cap</td>" in shown  # the reason of a loss
    assert re.search(
        r"<td>quakes</td>(<td class=\"n\">(1|6.5|0)</td>){6}</tr>.*up to 10 ms", shown, re.DOTALL
    )
    assert f'<td>{tmp_path}</td><td>quakes</td><td class="n">103</td><td class="n">1</td>' in shown
    assert not re.search(r"(src|href)=|https?:|<script", shown)
    assert rows(spark.read.parquet(str(parquet)).orderBy("offset")) == live
    assert (parquet / "topic=quakes" / "day=2023-11-14").is_dir()


@pytest.mark.rule("P4.10")
def test_the_commands_agree_on_a_store_that_was_killed(spark, tmp_path, capsys):
    """What a log lacks is damage after a kill, and a torn tail after a power cut: both must know which it was."""
    killed = tmp_path / "killed"
    subprocess.run([sys.executable, "-c", KILLED, str(killed)], check=False)
    log = next(killed.glob("wal/gen-*/shard-*/wal-*.log"))
    text = bytearray(log.read_bytes())
    text[text.index(b"\0\0\x0041") + 3] ^= 1
    log.write_bytes(text)

    codes, found = [], []
    for command in (["fsck"], ["spark", "validate"]):
        codes.append(main([*command, "--json", "--data", str(killed)]))
        found.append(capsys.readouterr().out.splitlines()[:-1])

    assert codes == [1, 1]
    assert found[0] == found[1]
    assert any('"seq":42' in line for line in found[0])


@pytest.mark.rule("P4.9")
def test_what_cannot_be_looked_at_is_one_line(spark, tmp_path, capsys):
    assert main(["spark", "validate", str(tmp_path / "nothing")]) == 2
    report = ["spark", "report", "nothing", "--out", str(tmp_path / "x"), "--data", str(tmp_path)]
    assert main(report) == 2
    main([*report, "--checkpoint", str(tmp_path / "none")])

    first, second, third = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("topics: ")
    ]
    assert "nothing" in first
    assert "is no topics directory" in second
    assert "none is no checkpoint of a stream" in third


@pytest.mark.slow
@pytest.mark.spark
def test_ctrl_c_ends_a_command_without_a_word(tmp_path):
    fill(tmp_path / "data")
    log = tmp_path / "log"
    place = ("--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"))
    with python("-m", "topics", "spark", "export", "quakes", *place, log=log) as child:
        while child.poll() is None and b"Setting Spark log level" not in log.read_bytes():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.1)
        child.send_signal(signal.SIGINT)

        assert child.wait(50) == 130
    assert b"Traceback" not in log.read_bytes()
