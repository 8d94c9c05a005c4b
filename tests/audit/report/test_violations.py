"""How each check ended: one that nobody made has not passed."""

from __future__ import annotations

import pytest

from tests.support.scene import SMALL, Scene
from topics.audit.checks.acks import Acks
from topics.audit.fsck import Options, fsck, fsck_of_backup
from topics.audit.report.violations import Status, results
from topics.audit.scan.flaws import Flaws
from topics.audit.scan.rows import FLAWS_MAX, Flaw, Severity, Violation


def stored():
    scene = Scene(limits=SMALL)
    scene.open()
    scene.put("t", *range(50))
    scene.checkpoint()
    scene.put("t", 1)
    scene.checkpoint()
    scene.process_death()
    return scene.disk


def statuses(disk, acks=None):
    report = fsck(disk, where="a store", options=Options(acks=acks, same_boot=True, settled=True))
    return {one.check: (one.status, one.message) for one in results(report)}


@pytest.mark.rule("P4.8")
def test_without_a_log_of_acknowledgements_that_check_is_skipped_and_the_others_pass():
    found = statuses(stored())

    assert found.pop("acknowledged") == (Status.SKIPPED, "no log of acknowledgements was given")
    assert set(found.values()) == {(Status.PASSED, "")}
    assert statuses(stored(), Acks("acks.jsonl"))["acknowledged"] == (Status.PASSED, "")


@pytest.mark.rule("P4.8")
def test_where_no_state_can_be_read_no_check_has_passed():
    disk = stored()
    disk.write("FORMAT", 0, [b'{"format":9'])  # of a version that nobody here knows
    known = Violation("", "FORMAT", "format", Severity.ERROR, None, None, "it is not what the backup says")
    report = fsck_of_backup(disk, "a backup", Options(), findings=[known])

    found = {one.check: one.status for one in results(report)}
    assert found.pop("format") is Status.FAILED
    assert set(found.values()) == {Status.SKIPPED}


def test_a_check_with_too_many_flaws_in_a_file_is_summed_up_by_itself_and_hides_no_other():
    flaws = Flaws()
    for seq in range(1, FLAWS_MAX + 8):
        severity = Severity.ERROR if seq == FLAWS_MAX + 3 else Severity.UNDECIDABLE
        flaws.add("segment.col", seq, None, "it lies", severity)
    flaws.add("segment.del", None, None, "not whole")
    found = flaws.summed_up()

    assert len(found) == FLAWS_MAX + 2
    assert found[-2] == Flaw("segment.del", None, None, "not whole")
    assert found[-1] == Flaw("segment.col", None, None, "7 more of this file", Severity.ERROR)
