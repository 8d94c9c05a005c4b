"""fsck finds what is wrong with a directory, and nothing else."""

from __future__ import annotations

import pytest

from topics.audit.fsck import Options, fsck
from topics.audit.rows import Severity
from topics.testing.planting import KINDS, plant
from topics.testing.sample_store import build, disk_of

ONCE = Options(settled=True)


@pytest.fixture(scope="module")
def sample():
    return build()


def look(files, **options):
    return fsck(disk_of(files), where="a sample", options=Options(settled=True, **options))


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


@pytest.mark.rule("P4.10", "T4.10", "T5.11", "T5.6")
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_planted_is_found_and_nothing_else(sample, kind):
    for seed in range(3):
        files = dict(sample.files)
        planted = plant(files, kind, seed)
        report = look(files)
        hits, others = found(report, planted)

        assert hits, (planted, report.violations)
        assert not others, (planted, others)
        assert report.exit_code == (1 if any(one.severity is Severity.ERROR for one in hits) else 0)
