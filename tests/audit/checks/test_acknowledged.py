"""What clients were told is compared with all that can be read, however much of it there is."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from tests.support.cold_tier import looked, name_of, tiered
from tests.support.scene import SMALL, Scene
from topics.audit.checks.acknowledged import LISTED_MAX, check_acknowledged
from topics.audit.checks.acks import ANY_EPOCH, Acks
from topics.audit.fsck import Options, fsck
from topics.audit.recovery import read
from topics.audit.scan.rows import Severity
from topics.codec.primitives import checksum
from topics.host.system.readonly import Hiding

pytestmark = pytest.mark.rule("P4.10")
MANY = 100_000
BYTES_OF_ACK = 64  # that the check may take: a dict of them took 140


def told(seqs, wrong=()):
    acks = Acks("acks.jsonl")
    for seq in seqs:
        acks.add("t", seq, 1 if seq in wrong else checksum(b"%d" % (seq - 1)))
    return acks


def acknowledged(report):
    return [one for one in report.violations if one.check == "acknowledged"]


def stored():
    """A store of fifty records, the last five of them in a segment of their own, and nobody who has it open."""
    scene = Scene(limits=SMALL)
    scene.open()
    scene.put("t", *range(50))
    scene.sync()
    scene.process_death()
    return scene


@pytest.mark.parametrize(
    ("epoch", "severities"),
    [
        (
            ANY_EPOCH,
            {3: Severity.UNDECIDABLE, 5: Severity.UNDECIDABLE},
        ),  # 3 has other data, 5 is above the head
        (1, {}),
        (2, {3: Severity.ERROR, 5: Severity.ERROR}),
        (3, {1: Severity.ERROR}),
    ],
)
def test_what_was_told_of_a_topic_that_was_deleted_is_not_asked_of_its_successor(epoch, severities):
    scene = Scene(limits=SMALL)
    scene.open()
    for count in (9, 4):
        scene.put("t", *range(count))
        scene.drop("t") if count == 9 else scene.sync()
    scene.process_death()
    acks = Acks("acks.jsonl")
    for seq in (1, 3, 5):
        acks.add("t", seq, 7 if seq == 3 else checksum(b"%d" % (seq - 1)), epoch=epoch)
    report = fsck(scene.disk, where="simulated", options=Options(acks=acks, same_boot=True))

    assert {one.seq: one.severity for one in acknowledged(report)} == severities


def test_damage_hides_nothing_of_what_lies_around_it():
    """Records 47 and 48 are damaged, the others are compared, those before and behind them in the same file."""
    scene = tiered()
    path = name_of(46)
    size = scene.disk.size(path) // 5
    for at in (1, 2):
        scene.disk.flip(path, (at * size + 10) * 8)
    found = acknowledged(looked(scene, None, acks=told((46, 47, 48, 49, 50), wrong=(46, 50))))

    assert {one.seq: one.detail.partition(":")[0] for one in found} == {
        46: "it was acknowledged with other data",
        47: "it was acknowledged, and cannot be read",
        48: "it was acknowledged, and cannot be read",
        50: "it was acknowledged with other data",
    }


def test_damage_that_nobody_was_told_of_is_not_told_here():
    scene = tiered()
    scene.disk.flip(name_of(46), 80)

    assert acknowledged(looked(scene, None, acks=told((47, 48)))) == []


def test_the_first_of_many_are_listed_and_the_others_counted():
    scene = stored()
    report = looked(scene, None, acks=told(range(1, 51 + LISTED_MAX + 17)))

    *listed, more = acknowledged(report)
    assert [one.seq for one in listed] == list(range(51, 51 + LISTED_MAX))
    assert (more.topic, more.seq, more.severity) == ("t", None, Severity.ERROR)
    assert more.detail == "17 more that were acknowledged"


def test_the_last_that_was_said_of_a_seq_counts():
    """A write that was repeated is told of twice."""
    scene, acks = stored(), Acks("acks.jsonl")
    for seq, digest in ((7, 1), (3, 1), (7, checksum(b"6"))):
        acks.add("t", seq, digest)

    assert [one.seq for one in acknowledged(looked(scene, None, acks=acks))] == [3]


class Going(Hiding):
    """A disk on which the log goes away between a look at its size and a read behind its head."""

    def read(self, path, offset, size):
        return super().read(path, offset, size) if offset else self._disk.read(path, offset, size)

    def size(self, path):
        return self._disk.size(path)

    def names(self, path):
        return self._disk.names(path)


def test_a_file_that_a_checkpoint_takes_away_meanwhile_is_looked_for_again():
    scene = stored()
    going = Going(scene.disk, frozenset({"wal"}))
    report = fsck(going, where="a store", options=Options(acks=told(range(1, 51))))

    assert report.unsettled


@pytest.mark.parametrize("shuffled", [False, True])
def test_acknowledgements_take_columns_of_memory(shuffled):
    scene = stored()
    state = read(scene.disk, "a store", same_boot=False)
    seqs = list(range(1, MANY + 1))
    if shuffled:
        random.Random(1).shuffle(seqs)
    acks = Acks("acks.jsonl")
    for seq in seqs:
        acks.add("t", seq)
    tracemalloc.start()
    try:
        found = sum(1 for _ in check_acknowledged(scene.disk, state, acks))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert found == LISTED_MAX + 1
    assert peak < MANY * BYTES_OF_ACK
