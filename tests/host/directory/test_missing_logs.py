"""A log that had begun and is not there, before any snapshot was taken in it: LOCK remembers it (storage 1 and 4)."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress

import attrs
import pytest

import topics
from tests.support.scene import Scene
from tests.support.segments import without_room
from topics.audit.fsck import fsck
from topics.audit.repair.repairing import repair
from topics.host.directory.layout import read_format, write_format
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, OwnerRecord, owner_on
from topics.host.system.readonly import ReadOnlyDisk
from topics.testing.faults import Landed, SimCrash
from topics.testing.survival import Shape

WHY = "shard {} of generation {} has no log, and LOCK says that it had begun"


def of_store(disk, **fields):
    """FORMAT as another moment of this store had it."""
    return attrs.evolve(read_format(disk, "x"), **fields)


def remove(disk, directory):
    """With all that is in it, as `rm -r` does."""
    for name in disk.names(directory):
        path = f"{directory}/{name}"
        if disk.size(path) is None:
            remove(disk, path)
        else:
            disk.unlink(path)
    disk.remove_dir(directory)


def filled(*, shards=1, damaged=True):
    """Topics t0 to t3 with a record each in segments and one in the log, then damage in the log of shard 0."""
    scene = Scene(shards=shards)
    scene.open()
    for i in range(4):
        scene.create(f"t{i}", durability="fsync")
        scene.put(f"t{i}", b'"old"')
    scene.checkpoint()
    for i in range(4):
        scene.put(f"t{i}", b'"logged"')
    scene.shut_down()
    if damaged:
        path = scene.files()[0]
        scene.flip(path, scene.disk.content(path).rindex(b'"logged"'))
        assert scene.open().read_only
        scene.process_death()
    return scene


def mended(scene, stamp="20261121T120000Z"):
    return repair(scene.disk, where="here", same_boot=False, stamp=stamp)


def whys(scene):
    return [damage.why for damage in scene.opened.damages if damage.topic is None]


def told(scene):
    """What fsck says, as (check, file)."""
    return [(one.check, one.file) for one in fsck(scene.disk, where="here").errors]


def new_records(scene):
    for i in range(4):
        scene.put(f"t{i}", b'"new"', sync=True)
    return scene


def first_file(generation, shard=0):
    return f"wal/gen-{generation}/shard-{shard:02d}/wal-{1:020d}.log"


@pytest.mark.rule("T4.9", "T4.11")
@pytest.mark.parametrize("gone", ["wal", "wal/gen-1", "wal/gen-1/shard-00"])
def test_what_was_acknowledged_behind_a_repair_is_missed_if_its_log_is_gone(gone):
    """The repair's snapshot knows of the old logs only, so it opened as if nothing had been written behind it."""
    scene = filled()
    mended(scene)
    scene.open()
    new_records(scene).process_death()
    remove(scene.disk, gone)
    changed = scene.disk.mutations

    assert scene.open().read_only
    assert whys(scene) == [WHY.format(0, 1)]
    assert scene.disk.mutations == changed
    assert list(scene.read("t1").values()) == [b'"old"', b'"logged"']
    assert told(scene) == [("wal.damage", first_file(1))]
    assert fsck(scene.disk, where="here").exit_code == 1


@pytest.mark.rule("T4.9", "T4.11")
@pytest.mark.parametrize("shard", [0, 1])
def test_one_log_of_two_that_is_gone_behind_a_repair_is_missed(shard):
    scene = filled(shards=2)
    mended(scene)
    scene.open()
    scene.process_death()  # neither has a frame of which the other's absence could be told
    remove(scene.disk, f"wal/gen-1/shard-{shard:02d}")

    assert scene.open().read_only
    assert whys(scene) == [WHY.format(shard, 1)]
    assert told(scene) == [("wal.damage", first_file(1, shard))]


@pytest.mark.rule("T4.11")
def test_a_repair_of_a_missing_log_is_a_store_again_and_takes_no_number_of_a_log_that_was():
    scene = filled()
    mended(scene)
    scene.open()
    new_records(scene).process_death()
    remove(scene.disk, "wal")
    # FORMAT of a backup knows nothing of generation 1.
    write_format(scene.disk, of_store(scene.disk, shards=1, generation=0))
    done = mended(scene, "20261121T130000Z")

    assert [one.detail for one in done.found] == [WHY.format(0, 1) + "; unknown records"]
    assert not done.left
    assert not scene.open().read_only
    assert scene.opened.generation == 2
    new_records(scene)
    scene.checkpoint()
    scene.process_death().open()
    assert list(scene.read("t1").values()) == [b'"old"', b'"logged"', b'"new"']
    assert not told(scene)


@pytest.mark.rule("T4.11")
@pytest.mark.parametrize("landed", [Landed.NONE, Landed.ALL])
def test_a_repair_of_a_missing_log_that_breaks_off_misses_it_no_more_once_its_snapshot_is_there(landed):
    """LOCK still names the lost log: what it names is not missed again, nor in the snapshots that follow."""
    scene = filled(shards=2, damaged=False)
    remove(scene.disk, "wal")
    snapshot, call, opened = scene.disk.snapshot(), 0, 0
    while True:
        scene.disk.restore(snapshot)
        scene.disk.crash_at(call, landed)
        try:
            mended(scene)
            break
        except SimCrash:
            scene.power_loss(Shape.NOTHING if landed is Landed.NONE else Shape.EVERYTHING)
        if not scene.open().read_only:
            opened += 1
            for _ in range(3):
                new_records(scene)
                scene.checkpoint()
                scene.process_death()
                assert not scene.open().damages, call
        call += 1
    assert opened > 2


def changed(*counts):
    """A store whose logs are of these shard counts, a generation each. No snapshot was taken of any."""
    scene = Scene(shards=counts[0], port=without_room)
    for count in counts:
        scene.options = attrs.evolve(scene.options, shards=count)
        scene.open()
        new_records(scene).process_death()
    assert not scene.disk.names("meta")
    return scene


@pytest.mark.rule("T3.8", "T4.9")
@pytest.mark.parametrize(
    ("gone", "missed"),
    [
        (["wal/gen-1"], [(0, 1), (1, 1)]),
        (["wal/gen-1/shard-01"], [(1, 1)]),
        (["wal/gen-0"], [(0, 0), (1, 0), (2, 0)]),
        (["wal/gen-0/shard-02"], [(2, 0)]),  # what is there has no gap that would tell
        (["wal/gen-0/shard-01", "wal/gen-1/shard-00"], [(1, 0), (0, 1)]),
    ],
)
def test_any_log_behind_a_change_of_shards_that_no_snapshot_knows_is_missed(gone, missed):
    scene = changed(3, 2)
    for directory in gone:
        remove(scene.disk, directory)

    assert scene.open().read_only
    assert [why for why in whys(scene) if "LOCK" in why] == [WHY.format(*key) for key in missed]
    assert {file for _, file in told(scene)} >= {
        first_file(generation, shard) for shard, generation in missed
    }


@pytest.mark.rule("T3.8", "T4.9")
def test_logs_that_a_snapshot_has_ended_may_go_and_so_may_their_directories():
    """A copy may leave empty directories behind; and snapshots that are taken later need not name them."""
    scene = changed(3, 2)
    scene.port = scene.disk
    for _ in range(3):
        scene.open()
        new_records(scene)
        scene.checkpoint()
        scene.checkpoint()
        scene.process_death()
        if scene.disk.names("wal/gen-0"):
            assert not scene.files(generation=0)
            remove(scene.disk, "wal/gen-0")

    assert not scene.open().damages
    assert len(scene.read("t1")) == 5
    scene.process_death()
    assert not told(scene)


@pytest.mark.rule("T4.9")
def test_more_changes_of_shards_than_lock_can_name_leave_the_newest_in_it():
    scene = changed(1, 2, 3, 2, 1, 2)
    assert owner_on(scene.disk).begun == ((5, 2), (4, 1), (3, 2))
    remove(scene.disk, "wal/gen-3/shard-01")

    assert scene.open().read_only
    assert WHY.format(1, 3) in whys(scene)


@pytest.mark.rule("T4.9")
def test_a_first_file_of_zeros_is_no_log():
    """Its header was durable before LOCK said that it had begun. The hint, which would tell, is not synced then."""
    scene = Scene()
    scene.open()
    scene.process_death()
    (path,) = scene.files()
    for name in (path, "wal/gen-0/shard-00/CURRENT"):
        scene.disk.write(name, 0, [bytes(scene.disk.size(name))])

    assert scene.open().read_only
    assert whys(scene) == [WHY.format(0, 0)]


@pytest.mark.rule("T4.9", "T4.11")
def test_a_store_that_is_there_from_a_repair_on_is_nothing_without_the_repair_s_snapshot():
    """The log behind it is whole from its first frame on. It opened with what is in that, and the rest was removed."""
    scene = filled()
    mended(scene)
    scene.open()
    scene.create("t9", durability="fsync")
    scene.process_death()
    (name,) = scene.disk.names("meta")
    scene.flip(f"meta/{name}", 100)

    assert scene.open().read_only
    assert whys(scene) == [WHY.format(0, 0)]


@pytest.mark.rule("T4.9")
def test_what_the_hint_tells_already_is_told_once():
    scene = Scene()
    scene.open()
    scene.process_death()
    scene.disk.unlink(first_file(0))

    assert scene.open().read_only
    assert whys(scene) == ["CURRENT names this file, and it is not there with its header"]


# LOCK that says nothing, or other things than FORMAT.


@pytest.mark.rule("T4.9")
@pytest.mark.parametrize("how", ["gone", "of an earlier version", "torn"])
def test_without_what_lock_says_the_logs_tell_what_they_can(how):
    scene = filled(shards=2)
    mended(scene)
    scene.open()
    new_records(scene).process_death()
    if how == "gone":
        scene.disk.unlink(LOCK_NAME)
    else:
        line = attrs.asdict(owner_on(scene.disk))
        del line["begun"]
        text = json.dumps(line).encode() if how == "of an earlier version" else b'{"pid": 1,'
        scene.disk.write(LOCK_NAME, 0, [text.ljust(RECORD_SIZE)])
    snapshot = scene.disk.snapshot()
    remove(scene.disk, "wal/gen-1/shard-01")
    assert scene.open().read_only
    assert whys(scene) == ["shard 1 of generation 1 has no log, and another one has"]

    scene.disk.restore(snapshot)
    assert not scene.open().read_only
    assert owner_on(scene.disk).begun == ((1, 2), (0, 2))


@pytest.mark.rule("T3.6", "T4.9")
@pytest.mark.parametrize("form", [(3, 0), (1, 0), (1, 1)])
def test_a_format_that_was_put_back_hides_no_log_that_is_gone(form):
    scene = changed(3, 2)
    write_format(scene.disk, of_store(scene.disk, shards=form[0], generation=form[1]))
    scene.options = attrs.evolve(scene.options, shards=None)
    snapshot = scene.disk.snapshot()
    assert not scene.open().read_only
    assert scene.opened.generation == 2

    scene.disk.restore(snapshot)
    remove(scene.disk, "wal/gen-1")
    assert scene.open().read_only
    assert whys(scene)[:2] == [WHY.format(0, 1), WHY.format(1, 1)]


@pytest.mark.rule("T3.6", "T4.11")
def test_a_format_put_back_behind_a_repair_does_not_go_on_in_a_log_that_has_ended():
    """What is written there would not be read again: the repair's snapshot says that it is done with."""
    scene = filled()
    mended(scene)
    write_format(scene.disk, of_store(scene.disk, shards=1, generation=0))
    assert scene.open().generation == 1
    new_records(scene).process_death()

    assert not scene.open().read_only
    assert list(scene.read("t1").values()) == [b'"old"', b'"logged"', b'"new"']


@pytest.mark.rule("T3.6", "T4.11")
@pytest.mark.parametrize("again", [False, True])
def test_nor_in_one_that_ended_by_another_repair(again):
    """`again`: the second repair is done with that FORMAT, too."""
    scene = filled()
    mended(scene, "1")
    scene.open()
    new_records(scene).shut_down()
    old = of_store(scene.disk, shards=1, generation=0)
    if again:
        write_format(scene.disk, old)
    scene.flip(first_file(1), 70)
    mended(scene, "2")
    write_format(scene.disk, old)
    if again:
        (name,) = scene.disk.names("topics/0000000000000001")[:1]
        scene.flip(f"topics/0000000000000001/{name}", 20)
        mended(scene, "3")

    scene.open()
    assert scene.opened.generation == 2
    assert not scene.opened.damages


@pytest.mark.rule("T3.7", "T4.25")
@pytest.mark.parametrize("landed", [Landed.NONE, Landed.ALL])
@pytest.mark.parametrize("shape", [Shape.NOTHING, Shape.EVERYTHING, Shape.RANDOM_PAGES])
def test_a_start_that_breaks_off_anywhere_has_not_told_lock_of_what_is_not_there(landed, shape):
    """A first one, and one that changes the shard count: the next start finds all that LOCK names."""
    for first in range(0, 60, 7):
        scene = Scene(shards=2)
        for count, call in ((2, first), (3, 2 * first), (1, first // 2)):
            scene.options = attrs.evolve(scene.options, shards=count)
            scene.disk.crash_at(call, landed)
            with suppress(SimCrash):
                scene.open()
            scene.disk.heal()
            scene.power_loss(shape, first)
            scene.options = attrs.evolve(scene.options, shards=None)
            assert not scene.open().damages, (first, count)
            scene.power_loss(shape, first)


def test_a_read_only_start_says_nothing_to_lock():
    scene = filled()
    before = scene.disk.content(LOCK_NAME)
    assert scene.open().read_only

    assert scene.disk.content(LOCK_NAME) == before


@pytest.mark.rule("T4.9", "T4.26")
def test_a_copy_of_a_directory_misses_what_did_not_come_along(tmp_path):
    with topics.open(tmp_path / "a", options=topics.StoreOptions(shards=2)) as store:
        store.topic("t").put({"n": 1})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "wal" / "gen-0" / "shard-01")
    (tmp_path / "b" / "meta").exists() and shutil.rmtree(tmp_path / "b" / "meta")
    with topics.open(tmp_path / "b") as store:
        assert store.read_only
        assert [damage.why for damage in store.damages] == [WHY.format(1, 0)]
    found = fsck(ReadOnlyDisk(tmp_path / "b"), where="here")
    assert [(one.check, one.file) for one in found.errors] == [("wal.damage", first_file(0, 1))]


def test_an_owner_s_line_of_an_earlier_version_says_nothing_of_logs():
    line = b'{"pid": 1, "boot_id": "b", "device": 1, "inode": 1}'

    assert OwnerRecord.decode(line) == OwnerRecord(pid=1, boot_id="b", device=1, inode=1, begun=())
