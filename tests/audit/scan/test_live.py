"""Somebody writes while fsck looks: nothing is taken for damage, while it runs and when it has been killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from topics.audit.checks.acks import Acks
from topics.audit.fsck import Options, fsck
from topics.audit.recovery import read
from topics.audit.repair.repairing import repair
from topics.host.directory.layout import read_format
from topics.host.directory.owner import same_boot_at
from topics.host.system.readonly import ReadOnlyDisk

WRITER = """
import sys
import topics
from topics.engine.checkpoint import SegmentRules
from topics.store.opened import StoreOptions
from topics.kernel.limits import Limits

options = StoreOptions(
    limits=Limits(wal_file_first=1 << 14, wal_file_max=1 << 16, wal_reserve=1 << 12),
    segments=SegmentRules(records_max=40), checkpoint_wal_bytes=1 << 14,
)
with topics.open(sys.argv[1], options=options) as store:
    wanted = [("kept", {"durability": "fsync"}), ("capped", {"cap_records": 60}), ("fast", {"durability": "disk"})]
    written = [store.create(name, **config) for name, config in wanted]
    for number in range(1_000_000):
        for topic in written:
            rows = [{"data": {"n": number, "i": i}, "tag": "ab"[i % 2]} for i in range(7)]
            page = topic.put_many(rows)
        if number % 9 == 0:
            written[0].delete(match="a", before_seq=number * 5)
        if number % 12 == 0:
            store.checkpoint()
        print(written[0].state().durable_seq, flush=True)
"""


@pytest.mark.rule("O2.21", "T4.16")
@pytest.mark.parametrize("looks", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_no_look_at_a_store_that_is_written_takes_it_for_damaged(tmp_path, looks):
    root = tmp_path / "data"
    with subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE) as writer:
        try:
            durable = int(writer.stdout.readline())
            for _ in range(looks):
                report = fsck(
                    ReadOnlyDisk(root), where=str(root), options=Options(same_boot=same_boot_at(root))
                )

                assert not report.errors, report.errors[:3]
                for _ in range(10):
                    durable = int(writer.stdout.readline())
        finally:
            os.kill(writer.pid, signal.SIGKILL)
    acks = Acks("acks")
    for seq in range(1, durable + 1):
        acks.add("kept", seq)
    options = Options(same_boot=same_boot_at(root), acks=acks)
    report = fsck(ReadOnlyDisk(root), where=str(root), options=options)

    assert not report.errors, report.errors[:3]
    assert not report.unsettled
    assert report.records > 0
    assert read(ReadOnlyDisk(root), str(root), same_boot=True).topics


def test_a_look_changes_nothing(tmp_path):
    import topics

    with topics.open(tmp_path / "data") as store:
        store.create("t").put({"n": 1})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    disk = ReadOnlyDisk(tmp_path / "data")
    report = fsck(disk, where="data")

    assert report.exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert read_format(disk, "data").shards == 1
    with pytest.raises(AssertionError, match="only looked at"):
        disk.unlink("LOCK")
    assert not repair(disk, where="data", same_boot=True, stamp="0").aside
