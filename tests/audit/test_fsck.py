"""fsck finds what is wrong with a directory, and nothing else."""

from __future__ import annotations

import pytest

from tests.support.planting import KINDS, Survey, plant
from tests.support.planting.journals import ACKS
from tests.support.sample_store import build, disk_of
from topics.audit.checks.acks import Acks
from topics.audit.checks.row_checks import CHECKS
from topics.audit.fsck import Options, fsck
from topics.audit.scan.rows import Severity

ONCE = Options(settled=True)


@pytest.fixture(scope="module")
def sample():
    return build()


@pytest.fixture(scope="module")
def survey(sample):
    return Survey(sample.files)


def look(files, **options):
    return fsck(disk_of(files), where="a sample", options=Options(settled=True, **options))


def acks_of(told):
    acks = Acks(ACKS)
    for ack in told:
        acks.add(ack.topic, ack.seq, ack.digest)
    return acks


def found(report, planted):
    """What was planted, and what else was told."""
    own = (planted.check, planted.file)
    hits = [
        one
        for one in report.violations
        if (one.check, one.file, one.topic) == (*own, planted.topic) and planted.seq in (None, one.seq)
    ]
    known = {own, *planted.also}
    others = [
        one
        for one in report.violations
        if (one.check, one.file) not in known and (one.check, "*") not in known
    ]
    return hits, others


@pytest.mark.rule("P4.1", "P4.2", "P4.3", "P4.4", "P4.7", "P4.10", "T4.10", "T5.11", "T5.6")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_planted_is_found_and_nothing_else(sample, survey, kind):
    for seed in range(3):
        files = dict(sample.files)
        planted = plant(files, kind, seed, survey)
        report = look(files, acks=acks_of(planted.acks))
        hits, others = found(report, planted)

        assert hits, (planted, report.violations)
        assert not others, (planted, others)
        assert report.exit_code == (1 if any(one.severity is Severity.ERROR for one in hits) else 0)


def test_a_directory_without_a_fault_has_none(sample):
    report = look(sample.files, acks=acks_of(sample.acks))

    assert list(report.violations) == []
    assert report.exit_code == 0
    assert report.records > 0


@pytest.mark.rule("P4.1")
@pytest.mark.parametrize(
    "path",
    ["wal/gen-01/shard-00/wal-00000000000000000001.log", "wal/gen-0/shard-1/wal-00000000000000000001.log"],
)
def test_what_a_start_does_not_take_for_a_log_is_told(sample, path):
    """It is in nobody's way, but whoever put it there wanted something of it."""
    report = look({**sample.files, path: sample.files["wal/gen-0/shard-00/CURRENT"]})

    assert [(one.check, path.startswith(one.file)) for one in report.violations] == [("leftover", True)]


def test_each_check_has_a_fault_that_it_is_there_for():
    """Those of routers are planted in a store that has some: `tests/audit/checks/test_copies.py`."""
    assert {kind.partition(":")[0] for kind in KINDS} == set(CHECKS) - {"router.copies"}


def test_a_larger_sample_is_found_whole_and_its_faults_are_found(sample):
    large = build(records=40, seed=3)
    survey = Survey(large.files)
    for kind in sorted(KINDS)[::5]:
        files = dict(large.files)
        planted = plant(files, kind, survey=survey)
        hits, others = found(look(files, acks=acks_of(planted.acks)), planted)

        assert hits, planted
        assert not others, (planted, others)
    assert not look(large.files, acks=acks_of(large.acks)).violations
