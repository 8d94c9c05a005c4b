"""A segment of which the medium gives something no more is given up and told, and holds up no other (storage 5)."""

from __future__ import annotations

import errno

import pytest

from tests.support.bad_sectors import BadSectors
from tests.support.reclaiming import data_size, ends_of, half_dead, put, reopened, scene_with
from tests.support.segments import state_of
from tests.support.tiers import cold_firsts, filled, relocator, worked
from tests.support.tiers import scene_with as tiered
from topics.codec.segments.segidx import DELETED
from topics.host.checkpoint.snapshots import find_snapshots
from topics.host.directory.layout import segment_path
from topics.log.regions import SegmentId
from topics.store.damages import known_damages

PARTS = ["data", "idx", "col"]


def path(first, part="data", topic_id=1):
    return segment_path(topic_id, first, part)


def told(scene):
    """The segments that are told as damaged; each is told once, and the file that is is named."""
    damages = known_damages(scene.opened)
    firsts = [damage.file.first_seq for damage in damages]
    assert len(set(firsts)) == len(firsts)
    for damage in damages:
        assert (damage.topic, damage.first_seq) == ("t", damage.file.first_seq)
        assert any(file in damage.why for file in scene.port.bad)
        assert "Input/output error" in damage.why
    return sorted(firsts)


def lives_on(scene, before=None):
    """Nothing is lost, and a start on a disk that is well finds nothing wrong."""
    scene.port.bad.clear()
    read = scene.read("t")
    assert before in (None, read)
    state = state_of(scene)
    assert state_of(reopened(scene)) == state
    assert not known_damages(scene.opened)
    assert scene.read("t") == read


class TestRounds:
    @pytest.mark.rule("T5.11", "T5.16")
    def test_an_idx_that_cannot_be_read_keeps_no_round_from_removing_logs(self):
        scene = scene_with(port=BadSectors)
        put(scene, 30, tag=[b"a", b"b", b"c"] * 10)
        scene.checkpoint()
        scene.port.spoil(path(11, "idx"))
        logs = []
        for match in ("a", "b", "nothing", "nothing"):
            scene.delete("t", match=match)
            put(scene, 40)
            scene.checkpoint()
            logs.append(scene.files()[0])

        assert told(scene) == [11]
        assert logs[0] != logs[-1]
        assert find_snapshots(scene.disk) == [4, 5]
        assert {flags for _, flags in ends_of(scene, 21)} == {0, DELETED}
        lives_on(scene)

    @pytest.mark.parametrize("shared", [False, True], ids=["in place", "a copy"])
    def test_data_that_cannot_be_flagged_keeps_no_round_from_flagging_others(self, shared):
        scene = scene_with(port=BadSectors)
        put(scene, 30, tag=[b"a", b"b", b"c", b"d", b"e"] * 6)
        scene.checkpoint()
        scene.port.spoil(path(1))
        if shared:
            scene.disk.share(path(1))
        scene.delete("t", match="c")
        for _ in range(2):
            scene.checkpoint()

        assert told(scene) == [1]
        assert {flags for _, flags in ends_of(scene, 11)} == {0, DELETED}
        scene.port.reads.clear()
        scene.delete("t", match="d")
        scene.checkpoint()
        assert path(1) not in scene.port.reads
        assert path(11, "idx") in scene.port.reads
        lives_on(scene)

    @pytest.mark.parametrize("part", ["data", "idx"])
    def test_a_sync_that_fails_is_no_damage(self, part):
        """Nobody knows what is on the disk then: the round fails, as ever."""
        scene = scene_with(port=BadSectors)
        put(scene, 30, tag=[b"a", b"b"] * 15)
        scene.checkpoint()
        scene.delete("t", match="a")
        scene.port.unsyncable = path(11, part)
        with pytest.raises(OSError, match="Input/output error"):
            scene.checkpoint()
        assert not known_damages(scene.opened)
        scene.port.unsyncable = None
        scene.checkpoint()
        assert {flags for _, flags in ends_of(scene, 11)} == {0, DELETED}

    def test_another_error_of_a_read_ends_the_round_as_ever(self):
        scene = scene_with(port=BadSectors)
        put(scene, 30, tag=[b"a", b"b"] * 15)
        scene.checkpoint()
        scene.delete("t", match="a")
        scene.port.spoil(path(1, "idx"))
        scene.port.errno = errno.EMFILE
        with pytest.raises(OSError, match="Too many open files"):
            scene.checkpoint()
        assert not known_damages(scene.opened)


class TestRewrites:
    def test_one_that_could_not_be_flagged_is_not_tried(self):
        scene = scene_with(port=BadSectors)
        put(scene, 30, tag=[b"keep" if i % 5 == 0 else b"go" for i in range(30)])
        scene.checkpoint()
        scene.port.spoil(path(1))
        scene.delete("t", match="go")
        scene.checkpoint()

        assert told(scene) == [1]
        assert scene.opened.checkpointer.reclaimer.half_dead() == {SegmentId(1, 11), SegmentId(1, 21)}

    @pytest.mark.parametrize("part", PARTS)
    def test_one_that_cannot_be_read_is_given_up_and_the_others_are_written_anew(self, part):
        scene = scene_with(port=BadSectors)
        half_dead(scene)
        for _ in range(2):
            scene.checkpoint()
        before, size = scene.read("t"), data_size(scene, 11)
        if part == "col":
            scene.port.spoil(path(1, part))
        else:
            scene.port.spoil(path(1, part), 100)  # its end
        assert scene.reclaim() == 2

        assert told(scene) == [1]
        assert data_size(scene, 11) < size
        scene.port.reads.clear()
        put(scene, 1)
        for _ in range(3):
            scene.checkpoint()
        assert scene.reclaim() == 0
        assert path(1, part) not in scene.port.reads
        assert not [name for name in scene.disk.names("topics/0000000000000001") if name.endswith(".tmp")]
        lives_on(scene, {**before, 31: b'"record 0"'})


class TestMoves:
    def test_a_del_file_that_cannot_be_read_is_replaced_where_it_is_noted_anew(self):
        """As by the first round of each life. The ends in files are hints, so nothing of it is missed."""
        scene = tiered(port=BadSectors)
        filled(scene)
        scene.relocate()
        scene.delete("t", match="blue")
        scene.checkpoint()
        before = scene.disk.inode(path(1, "del")), scene.disk.content(path(1, "del"))
        scene.port.spoil(path(1, "del"))
        reopened(scene)
        scene.checkpoint()

        assert not known_damages(scene.opened)
        assert scene.disk.inode(path(1, "del")) != before[0]
        assert scene.disk.content(path(1, "del")) == before[1]

    @pytest.mark.parametrize("part", PARTS)
    def test_one_that_cannot_be_read_stays_and_the_others_go(self, part):
        scene = tiered(port=BadSectors)
        before = filled(scene)
        scene.port.spoil(path(1, part))

        assert scene.relocate() == 4
        assert cold_firsts(scene) == [9, 17, 25, 33]
        assert told(scene) == [1]
        assert relocator(scene).failed is None
        scene.port.reads.clear()
        scene.put("t", *[b"%d" % i for i in range(50, 58)])
        scene.sync()
        scene.checkpoint()
        assert scene.relocate() == 1
        assert path(1, part) not in scene.port.reads
        lives_on(scene, {**before, **{seq: b"%d" % (seq - 1) for seq in range(51, 59)}})

    def test_one_that_cannot_come_back_stays_where_it_is_and_the_others_come(self):
        scene = tiered(port=BadSectors)
        filled(scene)
        scene.relocate()
        scene.delete("t", match="red")
        scene.delete("t", match="blue")
        scene.delete("t", before_seq=7)
        worked(scene)
        scene.port.spoil(path(1, "idx"))
        for _ in range(6):
            worked(scene)

        assert 1 in cold_firsts(scene)
        assert 1 in told(scene)

    def test_a_del_file_that_cannot_be_read_keeps_no_other_from_going(self):
        scene = tiered(port=BadSectors)
        filled(scene)
        scene.relocate()
        scene.delete("t", match="blue")
        scene.checkpoint()
        scene.port.spoil(path(1, "del"))
        assert scene.disk.size(path(1, "del"))
        scene.relocate()
        scene.port.reads.clear()
        for _ in range(3):
            scene.checkpoint()
            scene.relocate()

        assert path(1, "del") not in scene.port.reads
        cold = {
            int(name[4:24])
            for name in scene.disk.names("cold/topics/0000000000000001")
            if name.endswith(".del")
        }
        assert 1 not in cold
        assert {9, 17} <= cold
        noted = scene.disk.content(path(1, "del"))
        scene.delete("t", match="red")
        scene.checkpoint()
        assert scene.disk.content(path(1, "del")) != noted  # it is replaced as a whole
        lives_on(scene)
