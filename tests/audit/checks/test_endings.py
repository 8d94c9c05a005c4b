"""What reclaiming owes and has not done is told, and never as an error: a crash may have broken it off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.planting import KINDS, Survey, plant, plant_together
from tests.support.sample_store import ORDERS, build, disk_of
from topics.audit.fsck import Options, fsck
from topics.audit.report.violations import Status, results
from topics.audit.scan.rows import Severity
from topics.codec.snapshot import decode_snapshot, encode_snapshot
from topics.engine import image
from topics.host.checkpoint.snapshots import snapshot_path
from topics.host.cold.segment_stores import LocalSegmentStore
from topics.host.system.readonly import ReadOnlyDisk, WithCold

GOLDEN = Path(__file__).parents[2] / "golden"
ENDINGS = ("segment.marks: a deleted record is not flagged", "segment.floor: an evicted segment is there")


@pytest.fixture(scope="module")
def sample():
    return build()


def look(files, **options):
    return fsck(disk_of(files), where="a sample", options=Options(settled=True, **options))


@pytest.mark.rule("P4.1", "P4.4")
def test_a_flag_and_a_removal_that_are_owed_are_undecidable_and_no_check_of_them_has_passed(sample):
    files = dict(sample.files)
    planted = plant_together(files, ENDINGS)
    report = look(files)

    assert [(one.check, one.file, one.seq, one.severity) for one in report.violations] == [
        (one.check, one.file, one.seq, Severity.UNDECIDABLE) for one in reversed(planted)
    ]
    assert report.exit_code == 0
    ended = {one.check: one.status for one in results(report)}
    assert {ended["segment.marks"], ended["segment.floor"]} == {Status.NOTED}


@pytest.mark.rule("P4.1", "P4.4")
@pytest.mark.parametrize("kind", ENDINGS)
def test_nothing_is_owed_before_two_snapshots_are_kept(sample, kind):
    files = dict(sample.files)
    plant(files, kind)
    del files[snapshot_path(Survey(sample.files).numbers[0])]

    assert [one.check for one in look(files).violations] == []


@pytest.mark.rule("P4.1")
def test_a_segment_between_two_that_a_snapshot_has_forgotten_makes_it_unfit(sample):
    """Records without a gap, across segments: the state is taken of the snapshot before it."""
    files = dict(sample.files)
    path = snapshot_path(Survey(sample.files).numbers[-1])
    number, body = decode_snapshot(files[path])
    kept = image.decode(body)
    topic = next(one for one in kept.state.topics if one.name == ORDERS)
    del topic.segments[1]
    files[path] = encode_snapshot(number, image.encode(kept))
    report = look(files)

    assert [(one.check, one.file) for one in report.errors] == [("snapshot", path)]
    assert "records are there, of" in report.errors[0].detail


@pytest.mark.rule("P4.10")
@pytest.mark.parametrize(
    ("data", "tier"), [("store-1", None), ("store-2/data", "store-2/cold"), ("store-2/backup", None)]
)
def test_directories_of_earlier_versions_are_whole(data, tier):
    disk, store = ReadOnlyDisk(GOLDEN / data), None
    if tier is not None:
        store = LocalSegmentStore(ReadOnlyDisk(GOLDEN / tier), tier)
        disk = WithCold(disk, store)
    report = fsck(disk, where=data, options=Options(settled=True, cold=store))

    assert [(one.check, one.detail) for one in report.violations] == []


def test_every_kind_is_planted_alike_twice():
    files = build().files
    for kind in KINDS:
        first, second = dict(files), dict(files)
        assert plant(first, kind, 1) == plant(second, kind, 1)
        assert first == second, kind
