"""Segments move between the tiers, and nobody who reads can tell but by the time it takes."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.segments import reopened, segments, state_of
from tests.support.tiers import cold_firsts, filled, half_dead, relocator, scene_with, worked
from topics.codec.segments.segidx import DELETED
from topics.engine.commands import Checkpointed
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.checkpoint.snapshots import find_snapshots, read_snapshot
from topics.host.checkpoint.steps import Blocking, Propose
from topics.host.cold.cold_tier import COLD_WAITING_BYTES_MAX, ColdTier
from topics.host.cold.relocation import AGAIN_MS
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.directory.layout import segment_path
from topics.host.segments.segment_seals import seal_of
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.log.reads.frames import Extent
from topics.log.regions import SegmentId
from topics.testing.below import Below
from topics.testing.faults import FaultKind, SimCrash
from topics.testing.simdisk import SimDisk

COLD_FILES = "cold/topics/0000000000000001"
HOT_FILES = "topics/0000000000000001"


def have(scene, folder, part="data"):
    return [int(name[4:24]) for name in scene.disk.names(folder) if name.endswith(f".{part}")]


class TestMoving:
    @pytest.mark.rule("T6.3", "T6.6", "T1.8")
    def test_older_segments_go_and_are_read_from_there(self):
        scene = scene_with(retain=2)
        before = filled(scene)

        assert scene.relocate() == 4
        assert cold_firsts(scene) == [1, 9, 17, 25]
        assert have(scene, COLD_FILES) == [1, 9, 17, 25]
        assert have(scene, HOT_FILES) == [33, 41, 49]
        assert have(scene, HOT_FILES, "idx") == [1, 9, 17, 25, 33, 41, 49]
        assert scene.read("t") == before

    @pytest.mark.rule("T6.6")
    def test_without_a_cold_directory_nothing_moves(self):
        scene = scene_with(cold=None, retain=0)
        filled(scene)

        assert scene.relocate() == 0
        assert have(scene, HOT_FILES) == [1, 9, 17, 25, 33, 41, 49]
        assert scene.disk.size("COLD") is None

    @pytest.mark.rule("T6.6")
    def test_the_stricter_bound_wins(self):
        scene = scene_with(retain=4)
        filled(scene)
        size = segments(scene)[4].size
        found = scene.engine.state.catalog.find("t")

        assert HotRules() == HotRules(retain_segments=4, retain_bytes=0)
        for rules, firsts in (
            (HotRules(), [1, 9]),
            (HotRules(retain_segments=1), [1, 9, 17, 25, 33]),
            (HotRules(retain_segments=0), [1, 9, 17, 25, 33, 41]),
            (HotRules(retain_segments=100), []),
            (HotRules(retain_segments=100, retain_bytes=10 * size), []),
            (HotRules(retain_segments=4, retain_bytes=1), [1, 9, 17, 25, 33, 41]),
            (HotRules(retain_segments=1, retain_bytes=10**9), [1, 9, 17, 25, 33]),
        ):
            assert [segment.first for segment in rules.surplus(found)] == firsts

    @pytest.mark.rule("T6.3", "T4.1")
    @pytest.mark.invariant("I-20")
    def test_a_start_asks_nothing_of_the_cold_tier(self):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        state = state_of(scene)
        for with_snapshot in (False, True):
            if with_snapshot:
                scene.checkpoint()
            reopened(scene)
            scene.cold.calls.clear()
            reopened(scene)

            assert scene.cold.calls == []
            assert not scene.opened.read_only
            assert state_of(scene) == state
            assert scene.read("t") == before

    def test_a_mark_for_a_topic_that_has_gone_says_nothing(self):
        """Deleted between copy and mark: the copy is removed when no snapshot names the segment any more."""
        scene = scene_with()
        filled(scene)
        while (steps := relocator(scene).due()) is not None:
            for step in steps:
                if isinstance(step, Blocking):
                    step.call()
                elif isinstance(step, Propose):
                    if isinstance(step.command, Checkpointed) and scene.engine.names():
                        scene.drop("t")
                    scene.run(step.command)
        assert have(scene, COLD_FILES) == [1]
        for _ in range(2):
            scene.put("other", b"1")
            scene.sync()
            scene.checkpoint()
        scene.relocate()

        assert have(scene, COLD_FILES) == []

    @pytest.mark.rule("T5.12", "T6.3")
    def test_a_segment_that_is_dropped_goes_in_both_tiers(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        scene.delete("t", before_seq=20)
        assert have(scene, COLD_FILES) == [1, 9, 17, 25, 33]
        for _ in range(2):
            scene.put("t", b"more")
            scene.sync()
            scene.checkpoint()
            scene.relocate()

        assert have(scene, COLD_FILES) == [17, 25, 33]
        assert have(scene, HOT_FILES, "idx")[0] == 17
        assert relocator(scene).counts.dropped == 2


class TestEnds:
    @pytest.mark.rule("T5.8")
    def test_deletes_of_a_cold_segment_are_said_beside_it(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        data = scene.disk.content(f"{COLD_FILES}/seg-{1:020d}.data")
        scene.delete("t", match="blue")
        scene.sync()
        scene.checkpoint()
        scene.relocate()
        hot, cold = (scene.disk.content(f"{place}/seg-{1:020d}.del") for place in (HOT_FILES, COLD_FILES))

        assert hot == cold
        assert seal_of(scene.disk, 1, 1).ends(cold).ends == bytes((0, 0, DELETED, 0, 0, 0, 0, 0))
        assert scene.disk.content(f"{COLD_FILES}/seg-{1:020d}.data") == data
        puts = scene.cold.calls.count("put")
        scene.put("t", b"more")
        scene.sync()
        scene.checkpoint()
        scene.relocate()
        assert scene.cold.calls.count("put") == puts + len(cold_firsts(scene)) - 5

    @pytest.mark.rule("T5.8", "T5.13")
    def test_a_half_dead_cold_segment_comes_back_is_rewritten_and_goes_again(self):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        size = segments(scene)[1].size
        half_dead(scene)
        expected = {seq: data for seq, data in before.items() if seq in scene.read("t")}
        back = 0
        for _ in range(6):
            worked(scene)
            back += relocator(scene).counts.to_hot
        found = scene.read("t")

        assert back >= 1
        assert scene.opened.checkpointer.reclaimer.rewrites >= 1
        assert {seq: data for seq, data in found.items() if data != b"more"} == expected
        assert segments(scene)[0].size < size
        assert cold_firsts(scene)[0] == segments(scene)[0].first
        state = state_of(scene)
        reopened(scene)
        assert state_of(scene) == state
        assert scene.read("t") == found


@pytest.mark.rule("T5.14", "T6.3", "T4.4")
@pytest.mark.parametrize("part", ["idx", "col"])
def test_of_a_segment_that_came_back_behind_the_snapshot_one_file_may_be_from_before_it_was_rewritten(part):
    """As a power cut between the renames leaves them. The snapshot says that its data is in the cold tier."""
    scene = scene_with()
    for start in range(0, 50, 10):
        tags = [b"gone" if i % 5 else b"kept" for i in range(10)]
        scene.put("t", *[b"%d" % i for i in range(start, start + 10)], tag=tags)
    scene.sync()
    scene.checkpoint()
    scene.relocate()
    scene.delete("t", match="gone")
    path = segment_path(1, 1, part)
    old = scene.disk.content(path)
    for _ in range(2):
        worked(scene)
    assert 1 in cold_in_snapshot(scene)
    assert 1 not in cold_firsts(scene)
    assert scene.disk.content(path) != old
    state, found = state_of(scene), scene.read("t")
    scene.process_death()
    scene.disk.truncate(path, 0)
    scene.disk.write(path, 0, [old])
    scene.disk.sync_data(path)

    assert not scene.open().damages
    assert scene.read("t") == found
    assert state_of(scene) == state


def cold_in_snapshot(scene):
    """The segments that the newest snapshot says are in the cold tier."""
    (topic,) = read_snapshot(scene.disk, max(find_snapshots(scene.disk))).state.topics
    return [segment.first for segment in topic.segments if segment.cold]


def returning(scene):
    """A cold segment is to be brought back, and two hot ones are to go."""
    filled(scene)
    scene.relocate()
    half_dead(scene)
    for _ in range(2):
        scene.put("t", *[b"more"] * 8)
        scene.sync()
        scene.checkpoint()


@pytest.mark.rule("T5.8", "T6.3")
class TestNoRoom:
    def test_segments_go_and_none_comes_back_until_there_is_room_above_the_reserve(self):
        scene = scene_with()
        returning(scene)
        scene.disk.free = scene.options.min_free_bytes
        before = relocator(scene).counts.to_cold

        assert scene.relocate() >= 2
        assert relocator(scene).counts.to_hot == 0
        assert relocator(scene).failed is None
        assert relocator(scene).due() is None  # nothing is tried at once again
        scene.disk.free = 1 << 30
        scene.clock.advance(AGAIN_MS)
        scene.relocate()
        assert relocator(scene).counts.to_hot >= 1
        assert relocator(scene).counts.to_cold > before

    def test_what_has_to_go_goes_first(self):
        """It makes the room that the returning one needs."""
        scene = scene_with()
        returning(scene)
        scene.cold.calls.clear()
        scene.relocate()

        assert relocator(scene).counts.to_hot >= 1
        calls = scene.cold.calls
        assert calls[: calls.index("delete")].count("put") >= 2

    def test_room_that_somebody_else_takes_meanwhile_ends_nothing(self):
        elsewhere = LocalSegmentStore(SimDisk(1), "another disk")
        scene = scene_with(cold=lambda _: elsewhere)
        returning(scene)
        before = scene.read("t")
        fault = scene.disk.inject("create", FaultKind.ENOSPC, times=None)
        moved = scene.relocate()

        assert moved >= 2
        assert relocator(scene).counts.to_hot == 0
        assert not [name for name in scene.disk.names(HOT_FILES) if name.endswith(".tmp")]
        assert scene.read("t") == before
        scene.disk.heal(fault)
        scene.clock.advance(AGAIN_MS)
        scene.relocate()
        assert relocator(scene).counts.to_hot >= 1


def broken_off(scene, at):
    """Relocation up to its first mark (`marked`: up to the step behind it), then the process dies."""
    marked = False
    while (steps := relocator(scene).due()) is not None:
        for step in steps:
            if isinstance(step, Propose):
                if at == "copied":
                    return scene.process_death()
                scene.run(step.command)
                marked = True
            elif marked and at == "marked":
                return scene.process_death()
            else:
                step.call()
    raise AssertionError("nothing was moved")


def carried(scene, count):
    """So many steps of relocation are carried out, or all there are; says how many were."""
    done = 0
    while (steps := relocator(scene).due()) is not None:
        for step in steps:
            if done == count:
                return done
            scene.carry(one for one in (step,))
            done += 1
    return done


class TestBrokenOff:
    @pytest.mark.rule("T4.4", "T6.3")
    @pytest.mark.parametrize("at", ["copied", "marked"])
    def test_what_was_begun_is_finished_after_the_next_start(self, at):
        """Behind the copy there is one too many there, behind the mark one too many here; hot wins meanwhile."""
        scene = scene_with(retain=5)
        before = filled(scene)
        broken_off(scene, at)
        assert (have(scene, HOT_FILES)[0], have(scene, COLD_FILES)) == (1, [1])
        scene.open()
        scene.cold.calls.clear()

        assert scene.read("t") == before
        assert "read_range" not in scene.cold.calls
        assert cold_firsts(scene) == ([] if at == "copied" else [1])
        scene.relocate()
        assert (have(scene, HOT_FILES)[0], have(scene, COLD_FILES)) == (9, [1])
        assert scene.read("t") == before

    @pytest.mark.rule("T4.4")
    def test_the_only_whole_copy_is_kept_wherever_it_is(self):
        """The mark says cold, and what is there is not whole: the hot one is the segment again, and moves anew."""
        scene = scene_with(retain=5)
        before = filled(scene)
        broken_off(scene, "marked")
        scene.disk.truncate(f"{COLD_FILES}/seg-{1:020d}.data", 10)
        scene.open()
        scene.relocate()

        assert scene.read("t") == before
        scene.put("t", b"more")
        scene.sync()
        scene.checkpoint()
        scene.relocate()
        assert cold_firsts(scene) == [1]
        assert {seq: data for seq, data in scene.read("t").items() if data != b"more"} == before

    @pytest.mark.rule("T6.3", "T4.4")
    def test_a_power_cut_behind_any_step_takes_no_segment_from_the_tier_that_the_log_names(self):
        """The next start is without the cold directory, so that nobody can look whether it is there."""
        for count in range(1, 100):
            scene = scene_with(retain=3)
            before = filled(scene)
            done = carried(scene, count)
            scene.power_loss()
            kept, scene.cold = scene.cold, None
            scene.open()
            assert not scene.opened.damages, count
            scene.process_death()
            scene.cold = kept
            scene.open()
            assert scene.read("t") == before, count
            if done < count:
                break

        assert done > 6  # the store is looked at; then a copy, a mark, a sync and a removal for each segment

    @pytest.mark.rule("T6.3")
    def test_a_segment_whose_mark_was_lost_is_found_where_it_is(self):
        """As after a repair of the log: the state says hot, and only the cold tier has it."""
        scene = scene_with(retain=5)
        before = filled(scene)
        broken_off(scene, "copied")
        scene.disk.unlink(segment_path(1, 1, "data"))
        scene.open()

        assert not scene.opened.read_only
        assert cold_firsts(scene) == [1]
        assert scene.read("t") == before

    @pytest.mark.rule("T6.3")
    @pytest.mark.invariant("I-09")
    def test_a_segment_that_is_empty_is_not_taken_for_one_that_is_elsewhere(self):
        """All of it was rewritten away, and then it was copied without a mark: it is hot, as the log says."""
        scene = scene_with(retain=5)
        for tag in (b"", b"red", b""):
            scene.put("t", *[b"%d" % at for at in range(8)], tag=[tag] * 8)
        scene.sync()
        scene.checkpoint()
        scene.delete("t", match="red")
        while not scene.opened.checkpointer.reclaimer.rewrites:
            worked(scene)
        scene.checkpoint()
        empty = segments(scene)[1]
        assert empty.size == 0
        scene.process_death()
        scene.cold.put(SegmentId(1, empty.first), {"data": b""})
        scene.open()

        assert cold_firsts(scene) == []

    @pytest.mark.parametrize("part", ["idx", "col"])
    def test_what_an_index_file_has_lost_is_made_again_from_the_cold_data(self, part):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        state = state_of(scene)
        scene.checkpoint()
        for first in cold_firsts(scene):
            path = segment_path(1, first, part)
            if scene.disk.size(path):
                scene.disk.truncate(path, scene.disk.size(path) // 2)
        reopened(scene)

        assert not scene.opened.read_only
        assert state_of(scene) == state
        assert scene.read("t") == before


class TestStoreFails:
    @pytest.mark.rule("T6.3")
    @pytest.mark.parametrize(
        "operation", ["put", "read_range", "len", "list", "read_owner", "write_owner", "lies"]
    )
    def test_nothing_is_lost_and_all_is_tried_again(self, operation):
        scene = scene_with()
        before = filled(scene)
        scene.cold.tears = True
        scene.cold.lies = operation == "lies"
        scene.cold.fails = {operation} - {"lies"}

        assert scene.relocate() == 0
        assert "the cold place fails" in relocator(scene).failed
        assert have(scene, HOT_FILES) == [1, 9, 17, 25, 33, 41, 49]
        assert scene.read("t") == before
        scene.cold.fails, scene.cold.lies = set(), False
        assert scene.relocate() == 0  # not at once
        scene.clock.advance(AGAIN_MS)
        assert scene.relocate() == 5
        assert relocator(scene).failed is None
        assert scene.read("t") == before

    @pytest.mark.rule("T6.3")
    def test_a_delete_that_fails_leaves_a_copy_that_goes_later(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        scene.cold.fails = {"delete"}
        scene.delete("t", before_seq=20)
        for _ in range(2):
            scene.put("t", b"more")
            scene.sync()
            scene.checkpoint()
            scene.relocate()
        assert have(scene, COLD_FILES)[0] == 1
        scene.cold.fails = set()
        scene.clock.advance(AGAIN_MS)
        scene.relocate()

        assert have(scene, COLD_FILES)[0] == 17

    def test_a_returned_segment_whose_cold_copy_stays_is_an_orphan_once_nobody_needs_it(self):
        """The store lets go of nothing while it comes back; later the copy goes without a restart."""
        scene = scene_with()
        filled(scene)
        scene.relocate()
        half_dead(scene)
        scene.cold.fails = {"delete"}
        for _ in range(4):
            worked(scene)
        assert relocator(scene).counts.to_hot >= 1
        back = min(set(have(scene, COLD_FILES)) - set(cold_firsts(scene)))
        scene.cold.fails = set()
        scene.delete("t", before_seq=scene.engine.topic_state("t").head_seq)
        for _ in range(4):
            scene.clock.advance(AGAIN_MS)
            worked(scene)

        assert back not in have(scene, COLD_FILES)

    @pytest.mark.rule("T6.3")
    def test_a_list_that_leaves_something_out_takes_nothing_away(self):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        scene.checkpoint()
        scene.process_death()
        scene.cold.forgets = {SegmentId(1, 9), SegmentId(1, 17)}
        scene.open()
        scene.relocate()

        assert cold_firsts(scene) == [1, 9, 17, 25, 33]
        assert scene.read("t") == before

    def test_a_damaged_segment_stays_where_it_is(self):
        scene = scene_with()
        filled(scene)
        scene.flip(segment_path(1, 9, "data"), 70)

        assert scene.relocate() == 4
        assert cold_firsts(scene) == [1, 17, 25, 33]
        assert "stays where it is" in relocator(scene).unmovable[SegmentId(1, 9)]
        assert relocator(scene).failed is None

    @pytest.mark.rule("T6.3")
    def test_the_cold_directory_of_another_store_is_left_alone(self):
        """Two stores with one cold directory: the second moves nothing there and removes nothing."""
        one = scene_with()
        filled(one)
        one.relocate()
        other = scene_with(cold=lambda disk: one.cold)
        filled(other)

        assert other.relocate() == 0
        assert "holds the cold segments of another store" in relocator(other).failed
        assert have(one, COLD_FILES) == [1, 9, 17, 25, 33]

    @pytest.mark.rule("T6.3")
    def test_an_empty_place_is_not_taken_for_the_cold_tier_of_a_store_that_has_cold_segments(self):
        """A mount point with nothing mounted: with a note there, all that is cold would pass for lost."""
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        scene.process_death()
        right, scene.cold = scene.cold, LocalSegmentStore(Below(scene.disk, "empty"), "the mount point")
        scene.open()

        assert scene.relocate() == 0
        assert "5 segments of this store are in a cold tier" in relocator(scene).failed
        assert "the mount point has no OWNER: it is not mounted" in relocator(scene).failed
        assert scene.disk.names("empty") == []
        with pytest.raises(Rejected, match="which holds no segments of this store"):
            scene.read("t")
        scene.process_death()
        scene.cold = right
        scene.open()
        scene.relocate()
        assert relocator(scene).failed is None
        assert scene.read("t") == before


class TestBackedUp:
    """What a backup is made of stays where the backup has found it until it is done."""

    def backup_of(self, scene):
        backup = Backup(scene.opened.checkpointer, cold=scene.cold)
        scene.carry(backup.steps())
        return backup, backup.contents()

    @pytest.mark.rule("T7.1")
    def test_a_cold_segment_does_not_come_back_meanwhile(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        half_dead(scene)
        for _ in range(2):
            scene.put("t", b"more")
            scene.sync()
            scene.checkpoint()
        backup, contents = self.backup_of(scene)
        with backup:
            worked(scene)
            assert relocator(scene).counts.to_hot == 0
            manifest = write_backup(contents, SimDisk(5)).manifest
        worked(scene)

        assert manifest.cold == []
        assert relocator(scene).counts.to_hot >= 1

    @pytest.mark.rule("T7.1")
    def test_of_two_copies_that_a_crash_has_left_neither_goes_meanwhile(self):
        scene = scene_with(retain=5)
        before = filled(scene)
        broken_off(scene, "marked")
        scene.open()
        backup, contents = self.backup_of(scene)
        with backup:
            scene.relocate()
            assert (have(scene, HOT_FILES)[0], have(scene, COLD_FILES)) == (1, [1])
            manifest = write_backup(contents, SimDisk(5)).manifest
        scene.clock.advance(AGAIN_MS)
        scene.relocate()

        assert manifest.cold == []
        assert (have(scene, HOT_FILES)[0], have(scene, COLD_FILES)) == (9, [1])
        assert scene.read("t") == before


class TestReading:
    @pytest.mark.rule("T6.4")
    def test_a_failing_store_is_named_with_topic_and_segment_and_the_rest_is_served(self):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        scene.cold.fails = {"read_range"}
        with pytest.raises(Rejected) as caught:
            scene.read("t")

        assert caught.value.code is Code.NOT_READY
        assert str(caught.value).startswith(
            "topic 't': its segment that begins with seq 1 is in the cold tier, and"
        )
        assert "the cold place fails" in str(caught.value)
        _, records = scene.page("t", 40)
        assert {record.seq: record.data for record in records} == {s: d for s, d in before.items() if s > 40}
        assert scene.put("t", b"1").first_seq == 51
        scene.cold.fails = set()
        assert len(scene.read("t")) == 51

    @pytest.mark.rule("T6.6")
    def test_without_the_directory_it_is_said_what_is_missing_and_the_hot_rest_is_served(self):
        scene = scene_with()
        before = filled(scene)
        scene.relocate()
        scene.process_death()
        scene.cold = None
        scene.open()

        assert "5 segments are in the cold tier, and no cold directory is given" in scene.opened.warnings[0]
        with pytest.raises(Rejected, match="no cold directory is given: name it with --cold-dir"):
            scene.read("t")
        _, records = scene.page("t", 40)
        assert {record.seq: record.data for record in records} == {s: d for s, d in before.items() if s > 40}
        for _ in range(2):
            scene.put("t", b"more")
            scene.sync()
            scene.checkpoint()
        assert have(scene, COLD_FILES) == [1, 9, 17, 25, 33]  # nothing is dropped
        assert have(scene, HOT_FILES, "idx")[:5] == [1, 9, 17, 25, 33]

    @pytest.mark.rule("T6.4")
    def test_a_segment_that_is_lost_is_damage_only_in_its_own_store(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        scene.cold.store.delete(SegmentId(1, 1))
        with pytest.raises(
            Corrupt, match=r"seqs 1-8 are damaged .*not in the cold place.*go on with from_seq=8"
        ):
            scene.read("t")
        scene.disk.unlink("cold/OWNER")
        with pytest.raises(Rejected, match="which holds no segments of this store"):
            scene.read("t")

    @pytest.mark.rule("T6.4")
    def test_what_is_not_in_the_cold_tier_of_another_store_is_no_damage_from_the_start_on(self):
        """A command ends before relocation has looked whose the cold tier is."""
        scene = scene_with()
        filled(scene)
        scene.relocate()
        scene.process_death()
        scene.cold = LocalSegmentStore(Below(scene.disk, "theirs"), "their place")
        scene.cold.write_owner(b"their note")
        scene.open()
        with pytest.raises(Rejected, match="not in their place, which holds no segments of this store"):
            scene.read("t")

    @pytest.mark.rule("T6.4", "T5.22")
    def test_what_the_store_gives_is_verified(self):
        scene = scene_with()
        filled(scene)
        scene.relocate()
        scene.cold.lies = True
        with pytest.raises(Corrupt, match=r"cannot be read from|damaged in"):
            scene.read("t")

    @pytest.mark.rule("T6.4")
    def test_reads_are_bounded_in_number_and_bytes(self):
        """One read is let in, one waits, and the rest is refused; so is one that would wait with too many bytes."""
        scene = scene_with()
        filled(scene)
        scene.relocate()
        tier = ColdTier(scene.engine.state.catalog, scene.cold, reads_max=1, waiting_max=1, wait_s=0)
        extent = Extent(SegmentId(1, 1), 0, 10, 0, 1)
        refused = []

        def inside(operation):
            if operation == "read_range" and not refused:
                refused.append("")
                for size in (10, COLD_WAITING_BYTES_MAX):
                    with pytest.raises(Rejected) as caught:
                        tier.read(msgspec.structs.replace(extent, size=size))
                    refused.append(caught.value)

        scene.cold.waits = inside
        assert len(tier.read(extent)) == 10
        assert [error.code for error in refused[1:]] == [Code.NOT_READY, Code.THROTTLED]
        assert "no turn in 0 s" in str(refused[1])
        assert (tier.waiting, tier.counts.refused, tier.counts.reads) == (0, 1, 1)


def test_a_simulated_crash_is_no_failure_of_the_store():
    """What a machine dies of goes up through everything."""
    scene = scene_with()
    filled(scene)
    scene.disk.crash_at(3)
    with pytest.raises(SimCrash):
        scene.relocate()
