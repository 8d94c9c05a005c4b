"""Of several copies of a data directory, one changes the cold tier, and all others read."""

from __future__ import annotations

import attrs
import msgspec
import pytest

from tests.support.scene import SMALL, Scene
from tests.support.segments import TINY, reopened
from tests.support.tiers import cold_firsts, filled, half_dead, in_folder, relocator, worked
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.engine.verify import canonical
from topics.host.cold.ownership import (
    NOTE_SIZE,
    Whose,
    claim_tier,
    compare_notes,
    is_foreign,
    note_of,
    own_tier,
    settle_place,
    whose,
)
from topics.host.cold.relocation import AGAIN_MS
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.directory.layout import segment_path
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, OwnerRecord
from topics.kernel.errors import CannotOpen, Corrupt, Rejected
from topics.log.regions import SegmentId
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

OTHER_INODE = 2


def scene_at(store, *, seed=0, disk=None):
    rules = HotRules(retain_segments=1)
    scene = Scene(seed, disk=disk, limits=SMALL, segments=TINY, hot=rules, cold=lambda _: store)
    scene.open()
    return scene


def tier():
    return LocalSegmentStore(SimDisk(), "the cold place")


def copied_blocks(scene):
    """A disk with the same bytes, LOCK's inode too."""
    disk = SimDisk()
    disk.restore(scene.disk.snapshot())
    disk.process_death()
    return disk


def copied_files(scene):
    """A disk with the same bytes in other files, as `cp -a` makes it."""
    return remembering(copied_blocks(scene), OTHER_INODE)


def remembering(disk, inode):
    """LOCK remembers that it was this file."""
    owner = OwnerRecord.decode(disk.read(LOCK_NAME, 0, RECORD_SIZE))
    disk.write(LOCK_NAME, 0, [attrs.evolve(owner, inode=inode, boot_id=None).encode()])
    disk.sync_data(LOCK_NAME)
    return disk


def moved(store, *, seed=0):
    """A store that has moved five segments."""
    scene = scene_at(store, seed=seed)
    filled(scene)
    assert scene.relocate() == 5
    return scene


def more(scene, count=20):
    """More records, in segments, and whatever else is due."""
    for at in range(count):
        scene.put("t", b"%d" % at)
    scene.sync()
    for _ in range(2):
        scene.checkpoint()
        scene.clock.advance(AGAIN_MS)
        scene.relocate()


def files(store):
    return {(segment, part): store.len(segment, part) for segment in store.list() for part in ("data", "idx")}


@pytest.mark.rule("T6.3", "T1.8")
class TestCopies:
    def test_a_copy_reads_the_cold_segments_of_its_original_and_changes_none(self):
        store = tier()
        scene = moved(store)
        disk = copied_files(scene)
        more(scene)
        before, there = scene.read("t"), files(store)

        copy = scene_at(store, seed=1, disk=disk)
        assert "copied or moved" in copy.opened.warnings[0]
        assert "topics adopt-cold" in copy.opened.warnings[0]
        more(copy)
        copy.drop("t")
        more(copy)
        assert files(store) == there
        assert relocator(copy).counts.to_cold == relocator(copy).counts.dropped == 0
        assert "another copy of this directory has gone on" in relocator(copy).failed

        more(scene)
        assert relocator(scene).failed is None
        assert scene.read("t").items() >= before.items()

    def test_a_repair_of_a_copy_takes_nothing_for_lost_that_its_original_has_let_go_of(self):
        store = tier()
        scene = moved(store)
        disk = copied_files(scene)
        scene.drop("t")
        more(scene)
        more(scene)
        settle_place(disk, inode=OTHER_INODE, remembered=1)

        assert whose(disk, store) is Whose.TAKEN
        with pytest.raises(CannotOpen, match="Nothing is taken for lost before that"):
            repair(disk, where="a copy", same_boot=False, stamp="now", cold=store)

    def test_without_a_note_nobody_knows_who_has_let_go_of_what_is_not_there(self):
        """As what an older backup gives: its original goes on, and removes what it needs no more."""
        store = tier()
        scene = moved(store)
        disk = copied_files(scene)
        disk.unlink("COLD")
        scene.drop("t")
        more(scene)
        more(scene)

        assert whose(disk, store) is Whose.UNKNOWN
        with pytest.raises(Rejected, match="as this directory has no COLD, another copy of it may have"):
            scene_at(store, seed=1, disk=disk).read("t")
        with pytest.raises(CannotOpen, match="Nothing is taken for lost before that"):
            repair(disk, where="a copy", same_boot=False, stamp="now", cold=store)

    def test_a_copy_remains_one_when_lock_has_learnt_its_place(self):
        store = tier()
        disk = copied_files(moved(store))
        copy = scene_at(store, seed=1, disk=disk)
        copy.process_death()
        copy.open()

        assert whose(disk, store) is Whose.BORROWED
        assert "copied or moved" in copy.opened.warnings[0]

    def test_a_directory_whose_lock_was_removed_is_no_copy(self):
        store = tier()
        scene = moved(store)
        scene.process_death()
        scene.disk.unlink(LOCK_NAME)
        scene.open()

        assert whose(scene.disk, store) is Whose.OURS

    def test_a_copy_of_whole_blocks_that_was_made_before_a_change_changes_nothing(self):
        store = tier()
        scene = moved(store)
        disk = copied_blocks(scene)
        more(scene)
        before, there = scene.read("t"), files(store)

        copy = scene_at(store, seed=1, disk=disk)
        more(copy)
        assert files(store) == there
        assert "another copy of this directory has gone on" in relocator(copy).failed
        assert whose(disk, store) is Whose.TAKEN
        assert scene.read("t") == before

    def test_of_two_equal_copies_the_first_that_changes_the_tier_has_it(self):
        """The other one is open all the while, and removes nothing of what is there."""
        store = tier()
        scene = moved(store)
        copy = scene_at(store, seed=1, disk=copied_blocks(scene))
        more(copy)
        before, there = copy.read("t"), files(store)

        half_dead(scene)
        more(scene, 30)
        assert files(store) == there
        assert "another copy of this directory has gone on" in relocator(scene).failed
        assert copy.read("t") == before
        more(copy)
        assert relocator(copy).failed is None

    def test_a_copy_that_was_made_in_the_middle_of_a_slice_is_one_of_before_its_end(self):
        store = tier()
        scene = scene_at(store)
        filled(scene)
        disks = []
        steps = relocator(scene).due()
        scene.carry(steps)  # claimed
        steps = relocator(scene).due()

        def seen():
            for step in steps:
                if not disks and store.list():
                    disks.append(copied_blocks(scene))
                yield step

        scene.carry(seen())
        assert whose(disks[0], store) is Whose.TAKEN
        assert whose(scene.disk, store) is Whose.OURS

    def test_each_put_looks_whose_the_tier_is(self):
        """Another copy adopts it in the middle of a slice."""
        store = tier()
        scene = scene_at(store)
        filled(scene)
        adopted = []
        scene.carry(relocator(scene).due())  # claimed
        steps = relocator(scene).due()

        def seen():
            for step in steps:
                yield step
                if store.list() and not adopted:
                    adopted.append(copied_files(scene))
                    own_tier(adopted[0], store, SeededEntropy(7))

        scene.carry(seen())
        assert len(store.list()) == 1
        assert "another copy of this directory has gone on" in relocator(scene).failed

    def test_what_another_copy_has_taken_away_is_no_damage(self):
        store = tier()
        scene = moved(store)
        copy = scene_at(store, seed=1, disk=copied_blocks(scene))
        copy.drop("t")
        more(copy)
        more(copy)
        assert SegmentId(1, 1) not in store.list()

        with pytest.raises(Rejected, match="not in the cold place any more: another copy"):
            scene.read("t")

    def test_a_copy_with_nothing_cold_begins_a_tier_of_its_own_in_an_empty_place(self):
        store, own = tier(), tier()
        scene = scene_at(store)
        scene.relocate()  # leaves its note
        copy = scene_at(own, seed=1, disk=copied_files(scene))
        filled(copy)

        assert copy.relocate() == 5
        assert compare_notes(note_of(copy.disk), store.read_owner()) is Whose.OTHER


@pytest.mark.rule("T6.3")
class TestAdopting:
    def test_a_copy_goes_on_and_its_original_only_reads(self):
        store = tier()
        scene = moved(store)
        disk = copied_files(scene)
        more(scene)
        copy = scene_at(store, seed=1, disk=disk)
        copy.process_death()
        own_tier(disk, store, SeededEntropy(7))
        assert whose(scene.disk, store) is Whose.TAKEN
        copy.open()
        assert copy.opened.warnings == []
        more(copy)
        before, there = copy.read("t"), files(store)

        assert relocator(copy).failed is None
        assert cold_firsts(copy)[-1] > 33
        more(scene)
        assert "another copy of this directory has gone on" in relocator(scene).failed
        assert files(store) == there
        assert copy.read("t") == before

    def test_a_copy_that_was_never_opened_is_adopted(self):
        store = tier()
        disk = copied_files(moved(store))
        own_tier(disk, store, SeededEntropy(7))
        copy = scene_at(store, seed=1, disk=remembering(disk, 1))

        assert copy.opened.warnings == []
        assert whose(disk, store) is Whose.OURS

    def test_the_copy_of_a_copy_that_was_adopted_is_a_copy(self):
        store = tier()
        disk = copied_files(moved(store))
        own_tier(disk, store, SeededEntropy(7))
        copy = scene_at(store, seed=1, disk=disk)

        assert "copied or moved" in copy.opened.warnings[0]

    def test_only_the_tier_of_its_own_original_can_be_adopted(self):
        scene, others = moved(tier()), tier()
        moved(others, seed=3)
        for place in (others, tier()):
            with pytest.raises(Rejected, match="do not say the same owner"):
                own_tier(scene.disk, place, SeededEntropy(7))
        scene.disk.unlink("COLD")
        with pytest.raises(Rejected, match="do not say the same owner"):
            own_tier(scene.disk, others, SeededEntropy(7))


@pytest.mark.rule("T6.3")
class TestEpochs:
    def test_a_note_of_an_early_version_has_epoch_0(self):
        store = tier()
        scene = moved(store)
        scene.process_death()
        note = msgspec.json.encode({"format": 1, "owner": "ab" * 16})
        scene.disk.unlink("COLD")
        scene.disk.create("COLD", 0)
        scene.disk.write("COLD", 0, [note])
        scene.disk.sync_data("COLD")
        store.write_owner(note)
        scene.open()
        assert whose(scene.disk, store) is Whose.OURS
        more(scene)

        assert relocator(scene).failed is None
        assert scene.disk.size("COLD") == NOTE_SIZE
        assert compare_notes(note, store.read_owner()) is Whose.TAKEN

    def test_of_two_notes_with_tokens_the_tier_s_own_decides_as_it_did(self):
        def note(**said):
            return msgspec.json.encode({"format": 1, "owner": "ab" * 16, **said})

        there = note(token="cd" * 16)
        assert compare_notes(note(token="cd" * 16, before="", inode=1), there) is Whose.OURS
        assert compare_notes(note(token="ef" * 16, before="cd" * 16), there) is Whose.OURS
        assert compare_notes(note(token="ef" * 16, before="ab" * 16), there) is Whose.TAKEN
        assert compare_notes(note(epoch=1), there) is Whose.OURS
        assert compare_notes(note(token="cd" * 16), note(epoch=1)) is Whose.TAKEN

    def test_an_epoch_needs_no_room_on_a_full_disk(self):
        store = tier()
        scene = moved(store)
        for at in range(30):
            scene.put("t", b"%d" % at)
        scene.sync()
        scene.checkpoint()
        scene.disk.free = 0

        assert scene.relocate() > 0

    def test_a_store_with_nothing_to_change_counts_none(self):
        store = tier()
        scene = moved(store)
        note = store.read_owner()
        scene.checkpoint()
        scene.relocate()

        assert store.read_owner() == note

    @pytest.mark.parametrize("data", [b"", b"[]", b'{"format":2,"owner":"ab"}', b"\xff", b'{"format":1}'])
    def test_a_note_of_the_tier_that_says_nothing_is_not_ours(self, data):
        store = tier()
        scene = moved(store)
        there = files(store)
        store.write_owner(data)
        half_dead(scene)
        more(scene)

        assert "OWNER in the cold place is damaged" in relocator(scene).failed
        assert files(store) == there
        own_tier(scene.disk, store, SeededEntropy(7), fits=True)  # as it is told
        scene.process_death()
        scene.open()
        more(scene)
        assert relocator(scene).failed is None

    def test_whatever_moment_the_power_goes_the_tier_stays_ours(self):
        """Both notes lie on the disk that loses power."""
        rules = HotRules(retain_segments=1)
        for at in range(1, 10_000):
            scene = Scene(at, limits=SMALL, segments=TINY, hot=rules, cold=in_folder)
            scene.open()
            filled(scene, 30)
            scene.disk.crash_at(at)
            try:
                scene.relocate()
            except SimCrash:
                scene.power_loss(list(Shape)[at % len(Shape)])
            else:
                break
            scene.open()
            scene.relocate()
            assert (relocator(scene).failed, len(cold_firsts(scene))) == (None, 2), at
            assert len(scene.read("t")) == 30
        assert at > 60

    def test_a_damaged_note_in_the_directory_holds_up_relocation_and_nothing_else(self):
        store = tier()
        scene = moved(store)
        scene.process_death()
        scene.flip("COLD", 0)
        scene.open()
        worked(scene)

        assert "does not say whose" in relocator(scene).failed
        assert "topics adopt-cold" in relocator(scene).failed
        with pytest.raises(Rejected):
            own_tier(scene.disk, store, SeededEntropy(7))

    def test_a_damaged_note_of_a_directory_with_nothing_cold_is_made_anew_for_an_empty_place(self):
        store = tier()
        scene = scene_at(store)
        scene.relocate()
        scene.process_death()
        scene.flip("COLD", 0)
        scene.cold = own = tier()
        scene.open()
        assert "COLD of this directory is damaged" in scene.opened.warnings[0]
        filled(scene)

        assert scene.relocate() == 5
        assert whose(scene.disk, own) is Whose.OURS

    def test_a_damaged_note_is_not_made_anew_where_anybody_has_something(self):
        store = tier()
        scene = scene_at(store)
        scene.relocate()
        scene.process_death()
        scene.flip("COLD", 0)
        for place in (store, moved(tier(), seed=3).cold):
            with pytest.raises(Corrupt, match="does not say whose"):
                claim_tier(scene.disk, place, SeededEntropy(7))

    def test_every_start_tells_of_a_note_that_is_damaged_or_gone(self):
        store = tier()
        scene = moved(store)
        scene.process_death()
        scene.flip("COLD", 0)
        for what in ("COLD of this directory is damaged", "this directory has no COLD"):
            for _ in range(2):
                scene.open()
                (told,) = scene.opened.warnings
                assert told.startswith(f"{what}")
                assert "in the cold place are read, and nothing is put there or removed" in told
                assert "stop it, run `topics adopt-cold`, start it again" in told
                assert len(scene.read("t")) == 50
                scene.process_death()
            scene.disk.unlink("COLD")

    def test_a_note_of_the_tier_that_is_taken_away_while_the_store_runs_is_told(self):
        disk = SimDisk()
        store = LocalSegmentStore(disk, "the cold place")
        scene = moved(store)
        disk.unlink("OWNER")
        half_dead(scene)
        more(scene)

        assert "OWNER in the cold place is not there" in relocator(scene).failed


@pytest.mark.rule("T6.3", "T6.4")
class TestAnotherStores:
    def test_nothing_is_read_from_another_stores_cold_directory(self):
        """It has other records under the same topic ids and seqs."""
        scene, others = moved(tier()), tier()
        moved(others, seed=3)
        scene.process_death()
        scene.cold, own = others, scene.cold
        scene.open()

        with pytest.raises(Rejected, match=r"the cold place is another store's .*name the cold directory"):
            scene.read("t")
        scene.process_death()
        scene.cold = own
        scene.open()
        assert len(scene.read("t")) == 50

    def test_a_start_makes_no_index_of_another_stores_records(self):
        scene, others = moved(tier()), tier()
        moved(others, seed=3)
        before, state = scene.read("t"), canonical(scene.engine.state.catalog)
        scene.process_death()
        path = segment_path(1, 9, "idx")
        scene.disk.truncate(path, 5)
        scene.disk.sync_data(path)
        scene.cold, own = others, scene.cold
        scene.open()
        assert scene.opened.damages
        scene.process_death()
        scene.cold = own
        scene.open()

        assert not scene.opened.damages
        assert scene.read("t") == before
        assert canonical(scene.engine.state.catalog) == state

    def test_a_check_says_that_it_is_another_stores_and_not_that_all_records_are_wrong(self):
        scene, others = moved(tier()), tier()
        moved(others, seed=3)
        scene.process_death()
        report = fsck(scene.disk, where="a store", options=Options(settled=True, cold=others))

        assert len(report.errors) == 5
        assert all("the cold place is another store's" in one.detail for one in report.errors)

    @pytest.mark.parametrize("path", ["COLD", "cold/OWNER"])
    def test_no_flipped_bit_makes_a_note_another_stores(self, path):
        scene = Scene(limits=SMALL, segments=TINY, hot=HotRules(retain_segments=1), cold=in_folder)
        scene.open()
        filled(scene)
        scene.relocate()
        note, store = note_of(scene.disk), scene.cold
        for at in range(scene.disk.size(path) * 8):
            scene.flip(path, at // 8, at % 8)
            assert not is_foreign(note_of(scene.disk), store.read_owner()), at
            assert note_of(scene.disk) in (note, b""), at
            scene.flip(path, at // 8, at % 8)

    def test_a_damaged_note_keeps_no_reader_from_what_is_there(self):
        store = tier()
        scene = moved(store)
        before = scene.read("t")
        scene.process_death()
        scene.flip("COLD", 0)
        scene.open()
        assert scene.read("t") == before
        store.write_owner(b"no note")
        reopened(scene)
        assert scene.read("t") == before
