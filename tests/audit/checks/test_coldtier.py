"""With the cold tier named, fsck looks for what the state says is there, and a repair makes hot what is left of it."""

from __future__ import annotations

import random

import pytest

from tests.support.cold_tier import DIRECTORY, cold_of, damage_record, looked, name_of, tiered
from tests.support.faulty_store import FaultyStore
from tests.support.sample_store import files_of
from tests.support.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.ownership import Whose, own_tier, whose
from topics.host.cold.segment_stores import HotRules
from topics.kernel.errors import CannotOpen
from topics.log.regions import SegmentId
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import MUTATING, SimDisk
from topics.testing.survival import Shape

STAMP = "20261121T120000Z"
GATE_POINTS = 24
BEHIND = 24  # calls behind the commit, each of which is struck in the gate
STRUCK = {11: 2, 21: 0, 31: 4}  # cold segments, and the record that is damaged in each


def mended(disk, cold, stamp=STAMP):
    return repair(disk, where="a store", same_boot=False, stamp=stamp, cold=cold)


@pytest.mark.rule("T5.11")
def test_a_cold_segment_that_is_not_there_is_told():
    """Whoever names the cold tier is told which segment is gone."""
    scene = tiered()
    cold = cold_of(scene.disk)
    assert looked(scene, cold).exit_code == 0
    cold.delete(SegmentId(1, 11))

    (told,) = looked(scene, cold).errors
    assert (told.topic, told.seq, told.check, told.file) == ("t", 11, "segment.record", name_of(11))
    assert told.detail == "seqs 11 to 15: their data is not in the cold tier the cold place"


@pytest.mark.rule("T4.10")
def test_records_that_could_not_be_looked_at_are_an_error_that_says_where_and_what_to_do():
    scene = tiered()
    blind = looked(scene, None, unseen="/mnt/cold is not there: mount it")
    other = looked(scene, cold_of(scene.disk, "elsewhere"))

    assert blind.exit_code == other.exit_code == 1
    assert [one.seq for one in blind.errors] == [one.seq for one in other.errors] == list(range(1, 46, 5))
    assert blind.errors[2].detail == (
        "seqs 11 to 15: they are in the cold tier and were not looked at: /mnt/cold is not there: mount it"
    )
    assert (blind.errors[2].topic, blind.errors[2].file) == ("t", name_of(11))
    assert "the cold place, which is not that of this directory" in other.errors[0].detail
    assert "name their place with --cold-dir or TOPICS_COLD_DIR" in other.errors[0].detail
    assert "name their place with --cold-dir or TOPICS_COLD_DIR" in looked(scene, None).errors[0].detail


class Unreachable:
    """A store whose place does not answer."""

    where = "s3://away"

    def read_owner(self):
        raise OSError("no route to host")


@pytest.mark.rule("T4.10")
def test_a_cold_tier_that_does_not_answer_is_told_and_not_believed():
    report = looked(tiered(), Unreachable())

    assert report.exit_code == 1
    assert len(report.errors) == 9
    assert "s3://away fails (no route to host)" in report.errors[0].detail


@pytest.mark.rule("T4.11", "T4.21")
def test_what_is_intact_of_a_damaged_cold_segment_is_hot_after_a_repair_and_the_rest_is_lost():
    scene = tiered()
    disk, cold = scene.disk, cold_of(scene.disk)
    damage_record(disk, 11, 2)
    cold.delete(SegmentId(1, 26))
    damaged = disk.read(f"cold/{name_of(11)}", 0, 1 << 20)
    assert looked(scene, cold).exit_code == 1
    done = mended(disk, cold)

    assert done.lost == {"t": [(13, 13), (26, 30)]}
    assert not [one for one in done.left if one.severity.value == "error"]
    assert looked(scene, cold).exit_code == 0
    assert not mended(disk, cold, "20261122T120000Z").lost
    assert disk.read(f"{done.aside}/{name_of(11)}", 0, 1 << 20) == damaged
    assert cold.list() == [SegmentId(1, first) for first in (1, 6, 16, 21, 31, 36, 41)]
    scene.open()
    assert scene.lost("t")[:2] == [(13, 13, "corrupt"), (26, 30, "corrupt")]
    kept = {seq: b"%d" % (seq - 1) for seq in range(1, 51) if seq not in (13, *range(26, 31))}
    assert scene.read("t") == kept
    scene.checkpoint()
    scene.put("t", b"more")
    scene.checkpoint()
    while scene.relocate():
        pass
    assert SegmentId(1, 11) in cold.list()
    assert scene.read("t").items() >= kept.items()
    assert looked(scene, cold).exit_code == 0


@pytest.mark.rule("T4.11")
@pytest.mark.parametrize("part", ["idx", "del"])
def test_a_damaged_file_beside_a_cold_segment_is_made_anew(part):
    scene = tiered()
    disk, cold = scene.disk, cold_of(scene.disk)
    path = name_of(16, part)
    if disk.size(path) is None:
        disk.create(path, 0)
        disk.write(path, 0, [b"no such file"])
        disk.sync_data(path)
        disk.sync_dir(DIRECTORY)
    else:
        disk.flip(path, 8)
    assert looked(scene, cold).exit_code == 1
    done = mended(disk, cold)

    assert not done.lost
    assert looked(scene, cold).exit_code == 0
    scene.open()
    assert len(scene.read("t")) == 50


def test_what_is_not_in_the_cold_tier_of_another_store_is_not_lost():
    scene = tiered()
    before = scene.disk.snapshot()
    with pytest.raises(CannotOpen, match="which is not that of this directory"):
        mended(scene.disk, cold_of(scene.disk, "elsewhere"))

    again = SimDisk(0)
    again.restore(before)
    assert (
        looked(scene, cold_of(scene.disk)).violations
        == fsck(again, where="a store", options=Options(settled=True, cold=cold_of(again))).violations
    )


def test_another_store_s_cold_tier_is_not_taken_over_though_its_segments_have_the_same_names():
    scene, cold = tiered(), cold_of(tiered(seed=1).disk)
    before = files_of(scene.disk)
    with pytest.raises(CannotOpen, match="the cold place is another store's"):
        mended(scene.disk, cold)

    assert files_of(scene.disk) == before


def test_a_copy_does_not_take_over_cold_records_that_its_own_index_does_not_know():
    """It has no note: what lies there must be what was put there."""
    scene, other = tiered(), tiered(later=5000)
    scene.disk.unlink("COLD")
    scene.disk.sync_dir("")
    before = files_of(scene.disk)
    with pytest.raises(CannotOpen, match="It may be the cold tier of another store: name the right place"):
        mended(scene.disk, cold_of(other.disk))

    assert files_of(scene.disk) == before


def test_a_copy_that_reads_the_cold_segments_of_its_original_removes_none_of_them():
    scene = tiered()
    disk, cold = scene.disk, cold_of(scene.disk)
    damage_record(disk, 11, 2)
    disk.unlink("COLD")
    disk.sync_dir("")
    there = cold.list()
    done = mended(disk, cold)

    assert done.lost == {"t": [(13, 13)]}
    assert cold.list() == there
    assert looked(scene, cold).exit_code == 0


def copied_blocks(disk):
    """Another disk with the same bytes, LOCK's inode and the note of the cold tier too."""
    copy = SimDisk(3)
    copy.restore(disk.snapshot())
    copy.process_death()
    return copy


@pytest.mark.rule("T4.11", "T6.3")
def test_a_repair_that_removes_cold_segments_draws_a_token_so_that_of_two_copies_one_has_the_tier():
    """As a server does: whoever was copied before it only reads from then on."""
    scene = tiered()
    disk, cold = scene.disk, cold_of(scene.disk)
    damage_record(disk, 11, 2)
    damage_record(disk, 21, 0)
    copy = copied_blocks(disk)
    assert whose(copy, cold) is Whose.OURS  # there is one tier, that of the original
    mended(disk, cold)

    assert whose(disk, cold) is Whose.OURS
    assert whose(copy, cold) is Whose.TAKEN
    there = cold.list()
    with pytest.raises(CannotOpen, match="Nothing is taken for lost before that"):
        mended(copy, cold)
    assert cold.list() == there


@pytest.mark.rule("T4.11", "T6.3")
def test_a_copy_that_takes_the_tier_in_the_middle_of_a_repair_keeps_what_is_there():
    scene = tiered()
    disk = scene.disk
    damage_record(disk, 11, 2)
    damage_record(disk, 21, 0)
    copy = copied_blocks(disk)

    class Adopted(FaultyStore):
        """The other copy adopts the tier when the first segment has gone."""

        def delete(self, segment):
            super().delete(segment)
            own_tier(copy, self, SeededEntropy(7))

    cold = Adopted(cold_of(disk))
    done = mended(disk, cold)

    assert done.lost == {"t": [(13, 13), (21, 21)]}
    assert SegmentId(1, 11) not in cold.list()
    assert SegmentId(1, 21) in cold.list()
    assert whose(disk, cold) is Whose.TAKEN


@pytest.mark.rule("T4.11", "T6.3")
def test_a_repair_that_removes_nothing_draws_no_token():
    scene = tiered()
    cold = cold_of(scene.disk)
    note = cold.read_owner()
    mended(scene.disk, cold)

    assert cold.read_owner() == note


def view(disk):
    """What is read of a store that is opened after it all."""
    scene = Scene(
        disk=disk, limits=SMALL, hot=HotRules(retain_segments=1), cold=cold_of,
        segments=SegmentRules(records_max=5, bytes_max=2000, age_ms=60_000),
    )  # fmt: skip
    scene.open()
    return scene.read("t"), [one for one in scene.lost("t") if one[2] == "corrupt"]


def content(disk, root, first):
    path = f"{root}/{name_of(first)}"
    return b"" if disk.size(path) is None else disk.read(path, 0, disk.size(path))


def broken_off(snapshot, call, landed, power):
    """The disk after a repair that broke off at this call."""
    disk = SimDisk(3)
    disk.restore(snapshot)
    damaged = {first: content(disk, "cold", first) for first in STRUCK}
    disk.crash_at(call, landed)
    with pytest.raises(SimCrash):
        mended(disk, cold_of(disk))
    if power:
        disk.power_loss(Shape.RANDOM_PAGES, call)
    else:
        disk.process_death()
    for first in STRUCK:  # nothing is deleted
        there = content(disk, "cold", first) or content(disk, f"repaired-{STAMP}", first)
        assert there == damaged[first], first
    return disk


def strike(snapshot, *point):
    """What is read after a repair that broke off at this point, and another one."""
    disk = broken_off(snapshot, *point)
    mended(disk, cold_of(disk), "20261122T120000Z")
    assert fsck(disk, where="a store", options=Options(settled=True, cold=cold_of(disk))).exit_code == 0
    return view(disk)


def points():
    """A damaged directory, what a repair makes of it, every call where one may break off, and which commits."""
    scene = tiered()
    for first, at in STRUCK.items():
        damage_record(scene.disk, first, at)
    cold_of(scene.disk).delete(SegmentId(1, 26))
    snapshot = scene.disk.snapshot()
    disk = SimDisk(3)
    disk.restore(snapshot)
    before = disk.mutations
    disk.calls.clear()
    mended(disk, cold_of(disk))
    calls = disk.mutations - before
    made = [call for call in disk.calls if call.op in MUTATING]
    assert len(made) == calls
    (commit,) = [
        at for at, call in enumerate(made) if (call.op, call.path) == ("rename", "meta/snapshot.tmp")
    ]
    every = [
        (call, landed, power)
        for call in range(calls)
        for landed in (Landed.NONE, Landed.PART, Landed.ALL)
        for power in (False, True)
    ]
    return snapshot, view(disk), every, commit


@pytest.mark.rule("T4.11")
def test_a_repair_of_cold_segments_may_be_broken_off_and_done_again(record_property):
    snapshot, wanted, every, commit = points()
    assert wanted[1] == [(13, 13, "corrupt"), (21, 21, "corrupt"), (26, 30, "corrupt"), (35, 35, "corrupt")]
    behind = [point for point in every if 0 < point[0] - commit < BEHIND and point[1] is Landed.NONE]
    chosen = [*random.Random(4).sample(every, GATE_POINTS), *behind]
    for point in chosen:
        assert strike(snapshot, *point) == wanted, point

    for point in behind:
        if point[0] > commit + 1:  # the name is synced
            assert view(broken_off(snapshot, *point)) == wanted, point

    record_property("crash points", len(chosen))


@pytest.mark.rule("T4.11")
def test_a_cold_tier_that_lets_nothing_go_keeps_what_is_damaged_and_holds_up_no_repair():
    snapshot, wanted, _, _ = points()
    disk = SimDisk(3)
    disk.restore(snapshot)
    cold = FaultyStore(cold_of(disk))
    there = cold.list()
    cold.fails = {"delete"}
    with pytest.raises(OSError, match="delete was made to fail"):
        mended(disk, cold)

    assert cold.list() == there
    assert fsck(disk, where="a store", options=Options(settled=True, cold=cold)).exit_code == 0
    assert view(disk) == wanted


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.rule("T4.11")
def test_a_repair_of_cold_segments_may_be_broken_off_at_every_call(record_property):
    snapshot, wanted, every, _ = points()
    for point in every:
        assert strike(snapshot, *point) == wanted, point

    record_property("crash points", len(every))
