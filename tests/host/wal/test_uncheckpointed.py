"""Records that only the log has, in front of the newest snapshot: a start misses them as it does any (storage 4)."""

import pytest

from tests.support.scene import Scene
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.host.directory.layout import find_wal_files, wal_path
from topics.kernel.errors import Corrupt
from topics.kernel.limits import Limits

SMALL = Limits(wal_file_first=2048, wal_file_max=2048, wal_reserve=256)
COUNT = 60


@pytest.fixture
def scene():
    """A store that kept its state when it ended: nothing is in segments, and nothing is replayed."""
    scene = Scene(1, limits=SMALL)
    scene.open()
    for name in ("a", "b"):
        scene.create(name, durability="fsync")
    for i in range(COUNT // 2):
        scene.put("a", i)
        scene.put("b", i)
    scene.carry(scene.opened.checkpointer.closing())
    return scene.shut_down()


def place_of(scene, seq, topic="a"):
    """(path, offset) of a record in the log."""
    scene.open()
    _, found = scene.engine.state.topic(topic)
    source, _ = found.regions.source_until(seq)
    scene.process_death()
    return wal_path(source), found.index.offsets[found.index.position(seq)]


def test_all_of_it_is_there(scene):
    opened = scene.open()

    assert not opened.damages
    assert scene.read("a") == {i + 1: b"%d" % i for i in range(COUNT // 2)}


@pytest.mark.rule("T4.9")
@pytest.mark.parametrize("seq", [1, 7, COUNT // 2])
def test_a_damaged_record_makes_the_store_read_only_and_is_named(scene, seq):
    path, offset = place_of(scene, seq)
    scene.flip(path, offset + 40)
    opened = scene.open()
    (damage,) = opened.damages
    report = fsck(scene.disk, where="a store", options=Options(same_boot=True, settled=True))

    assert opened.read_only
    assert (damage.topic, damage.first_seq, damage.last_seq) == ("a", seq, seq)
    assert [(one.check, one.file, one.seq) for one in report.errors] == [("wal.damage", path, seq)]
    with pytest.raises(Corrupt):
        scene.page("a", seq - 1)


@pytest.mark.rule("T4.11")
def test_a_repair_keeps_all_but_the_damaged_record(scene):
    path, offset = place_of(scene, 7)
    scene.flip(path, offset + 40)
    done = repair(scene.disk, where="a store", same_boot=True, stamp="now")
    opened = scene.open()

    assert (done.lost, opened.read_only, list(opened.damages)) == ({"a": [(7, 7)]}, False, [])
    assert list(scene.read("a")) == [seq for seq in range(1, COUNT // 2 + 1) if seq != 7]


@pytest.mark.rule("T4.9")
def test_a_file_of_the_log_that_is_gone_is_missed(scene):
    gone = wal_path(find_wal_files(scene.disk, 0, 0)[0])
    scene.disk.unlink(gone)
    opened = scene.open()
    report = fsck(scene.disk, where="a store", options=Options(same_boot=True, settled=True))

    assert opened.read_only
    assert {damage.topic for damage in opened.damages} == {"a", "b"}
    assert {one.file for one in report.errors} == {gone}


def test_damage_where_nobody_s_record_is_stands_in_no_way(scene):
    """The creation of a topic: the snapshot has it."""
    _, offset = place_of(scene, 1)
    path = wal_path(find_wal_files(scene.disk, 0, 0)[0])
    scene.flip(path, offset - 60)
    opened = scene.open()
    report = fsck(scene.disk, where="a store", options=Options(same_boot=True, settled=True))

    assert not opened.damages
    assert [one.check for one in report.errors] == ["wal.absorbed"]
