"""The checks that must see data see that of the cold tier where it is named, and say so where it is not."""

from __future__ import annotations

import pytest

from tests.support.cold_tier import cold_of, looked, tiered
from topics.audit.checks.acks import Acks
from topics.audit.report.violations import Status, results
from topics.audit.scan.rows import Severity
from topics.codec.primitives import checksum
from topics.log.regions import SegmentId

JOURNAL = "$kv.settings.main"


def told(*wrong, last=50):
    """Acknowledgements of all that `tiered` puts, with other digests for some."""
    acks = Acks("acks.jsonl")
    for seq in range(1, last + 1):
        acks.add("t", seq, 1 if seq in wrong else checksum(b"%d" % (seq - 1)))
    return acks


def of(report, check):
    return [one for one in report.violations if one.check == check]


def status(report, check):
    return next(one.status for one in results(report) if one.check == check)


@pytest.mark.rule("P4.10", "T4.10")
def test_what_was_acknowledged_with_other_data_is_found_in_the_cold_tier():
    """A topic with cold segments is compared with what clients were told, its hot records too."""
    scene = tiered()
    report = looked(scene, cold_of(scene.disk), acks=told(3, 17, 48))

    found = of(report, "acknowledged")
    assert [(one.topic, one.seq, one.severity) for one in found] == [
        ("t", seq, Severity.ERROR) for seq in (3, 17, 48)
    ]
    assert report.exit_code == 1
    assert not of(looked(scene, cold_of(scene.disk), acks=told()), "acknowledged")


@pytest.mark.rule("P4.10", "T4.10")
def test_what_was_acknowledged_and_lies_in_a_cold_tier_that_nobody_named_is_undecided():
    """The hot records are compared; of the others the report says that nobody has."""
    scene = tiered()
    report = looked(scene, None, acks=told(3, 48))

    undecided, wrong = of(report, "acknowledged")
    assert (undecided.topic, undecided.seq, undecided.severity) == ("t", 1, Severity.UNDECIDABLE)
    assert undecided.detail == (
        "45 acknowledged records, seqs 1 to 45, are in the cold tier, and nobody has compared their data: "
        "name their place with --cold-dir or TOPICS_COLD_DIR"
    )
    assert (wrong.seq, wrong.severity) == (48, Severity.ERROR)
    only = looked(scene, None, acks=told(3))
    assert [one.severity for one in of(only, "acknowledged")] == [Severity.UNDECIDABLE]
    assert status(only, "acknowledged") is Status.NOTED


@pytest.mark.rule("T4.10")
def test_a_cold_segment_that_is_gone_leaves_the_others_to_be_compared():
    scene = tiered()
    cold = cold_of(scene.disk)
    cold.delete(SegmentId(1, 11))
    report = looked(scene, cold, acks=told(3, 12, 17, 48))

    assert not report.unsettled
    undecided, *wrong = of(report, "acknowledged")
    assert (undecided.seq, undecided.severity) == (11, Severity.UNDECIDABLE)
    assert undecided.detail.startswith("5 acknowledged records, seqs 11 to 15, are in the cold tier")
    assert [one.seq for one in wrong] == [3, 17, 48]


def test_a_few_acknowledgements_beside_a_cold_tier_that_nobody_named():
    """What is read around a hot record ends where the cold ones begin."""
    scene = tiered()
    acks = Acks("acks.jsonl")
    for seq in (2, 47):
        acks.add("t", seq, checksum(b"%d" % (seq - 1)))

    (undecided,) = of(looked(scene, None, acks=acks), "acknowledged")
    assert undecided.detail.startswith("1 acknowledged record, seq 2, is in the cold tier")


@pytest.mark.rule("P4.10")
def test_a_journal_in_the_cold_tier_is_folded_or_told():
    scene = tiered(JOURNAL)  # numbers, which are no items of a database
    seen, blind = looked(scene, cold_of(scene.disk)), looked(scene, None)

    (error,) = of(seen, "kv.journal")
    assert (error.severity, error.seq) == (Severity.ERROR, 1)
    (undecided,) = of(blind, "kv.journal")
    assert (undecided.topic, undecided.seq, undecided.severity) == (JOURNAL, 1, Severity.UNDECIDABLE)
    assert undecided.detail == (
        "seqs 1 to 45 of the journal are in the cold tier, and nobody has read them: "
        "name their place with --cold-dir or TOPICS_COLD_DIR"
    )
