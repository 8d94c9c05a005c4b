"""A change of shards may break off anywhere: nothing is lost, and restores go past it."""

from __future__ import annotations

import attrs
import pytest

from tests.host.directory.test_missing_logs import of_store
from tests.support.damaged_logs import FIRST, LARGE, ONE_FILE, Case, damage, files_of, names, whole
from tests.support.segments import without_room
from topics.audit.repair.repairing import repair
from topics.host.directory.layout import write_format
from topics.host.wal.archive import archive_path
from topics.host.wal.walfile import MARK_SIZE
from topics.kernel.errors import Corrupt
from topics.kernel.limits import Limits
from topics.log.regions import WalFileId
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.survival import PAGE_SIZE, Shape


def with_shards(case, shards):
    """The next start has this many."""
    case.scene.options = attrs.evolve(case.scene.options, shards=shards)
    return case.scene


def tail_of(case):
    """Where the zeros of the first file begin."""
    return len(whole(case.disk, FIRST).rstrip(b"\0"))


@pytest.mark.rule("T3.7", "T4.23", "T7.3")
@pytest.mark.parametrize("back", [1, 2, 3])
def test_wherever_a_change_of_shards_breaks_off_the_next_start_makes_it_durable(back):
    """A process that dies leaves its writes where the next one reads them, and a power cut behind that takes them."""
    case, n = Case(*names(5), limits=ONE_FILE), 0
    scene = case.scene.shut_down()
    before = case.disk.snapshot()
    while True:
        case.disk.restore(before)
        case.disk.crash_at(n, Landed.ALL)
        with_shards(case, 2)
        try:
            scene.open()
            break
        except SimCrash as crash:
            broke_off = str(crash)
        scene.process_death()
        with_shards(case, back).open()
        case.write(b"9")
        scene.power_loss(Shape.NOTHING)
        scene.open()
        assert not scene.opened.damages, broke_off
        assert case.head() == 9, broke_off
        n += 1
    assert n > 40


@pytest.mark.rule("T3.7", "T4.23", "T7.3")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.DROPS_PAGES])
@pytest.mark.parametrize("back", [1, 2])
def test_an_ending_mark_whose_sync_failed_is_written_again_before_anything_is_built_on_it(kind, back):
    """It can be read all the same, from pages that nothing will write any more. This one lies across two of them."""
    case = Case(limits=ONE_FILE)
    case.write(b'"' + b"x" * (PAGE_SIZE - tail_of(case) - 234) + b'"')
    scene = case.scene.shut_down()
    assert PAGE_SIZE - 50 < tail_of(case) < PAGE_SIZE - 10
    before, synced = case.disk.snapshot(), []
    case.disk.monitor = lambda call: call.op == "sync_data" and synced.append(call.path)
    with_shards(case, 2).open()
    case.disk.restore(before)
    ending = len(synced) - 1 - synced[::-1].index(FIRST)
    case.disk.inject("sync_data", kind, at=case.disk.counts["sync_data"] + ending)
    with pytest.raises(OSError):
        scene.open()
    scene.process_death()
    with_shards(case, back).open()
    case.write(*names(3))
    scene.power_loss(Shape.NOTHING)
    scene.open()

    assert not scene.opened.damages
    assert len(scene.read("a")) == 7
    assert case.head() == 7


@pytest.mark.rule("T3.6", "T3.7", "T7.3")
def test_a_change_of_shards_for_which_there_was_no_room_may_be_taken_back():
    """A generation with a shard that never got its first file is one whose log is missed."""
    limits = Limits(wal_file_first=1 << 16, wal_file_max=1 << 16, wal_reserve=256)
    case = Case(*names(20), limits=limits)
    scene, free = case.scene.shut_down(), case.disk.free
    case.disk.free = 150_000
    with_shards(case, 4)
    with pytest.raises(OSError, match="No space left"):
        scene.open()
    assert [len(scene.files(shard, generation=1)) for shard in range(4)] == [1, 1, 1, 0]
    case.disk.free = 75_000  # one first file more, and little besides
    scene.process_death()
    with_shards(case, 1).open()
    case.disk.free = free
    scene.drain()
    case.write(b"1")

    assert scene.opened.generation == 2
    assert case.head() == 24
    for _ in range(2):
        case.checkpoint()
        scene.shut_down().open()
        assert not scene.opened.damages
        assert case.head() == 24


@pytest.mark.rule("T3.6", "T1.7", "T7.3")
@pytest.mark.parametrize("room", [True, False])
def test_a_format_that_was_put_back_begins_no_log_anew_that_was_absorbed(room):
    """Its first file would go to the archive in the place of the true one. Without room no snapshot is of the newest
    generation.
    """
    case = Case(*names(5))
    case.change_shards(2)
    case.write(b"1")
    for _ in range(3):
        case.checkpoint()
    case.write(b"2", topic="b")
    case.scene.port = case.disk if room else without_room(case.disk)
    case.change_shards(1)
    assert not case.scene.files(generation=0)
    archived = whole(case.disk, archive_path(WalFileId(0, 0, 1)))
    case.scene.shut_down()
    write_format(case.disk, of_store(case.disk, shards=1, generation=0))
    with_shards(case, None).open()

    assert case.scene.opened.generation == 3
    assert whole(case.disk, archive_path(WalFileId(0, 0, 1))) == archived
    assert case.head() == 9


@pytest.mark.rule("T3.6", "T4.11", "T1.7")
def test_nor_one_that_a_repair_has_ended():
    case = Case(*[LARGE] * 30)
    case.checkpoint()
    case.checkpoint()
    archived = whole(case.disk, archive_path(WalFileId(0, 0, 1)))
    case.write(*names(20))
    case.scene.shut_down()
    damage(case.disk, case.scene.files()[-1], b"record 19")
    assert case.scene.open().read_only
    case.scene.process_death()
    repair(case.disk, where="here", same_boot=False, stamp="now")
    write_format(case.disk, of_store(case.disk, shards=1, generation=0))

    assert not case.scene.open().read_only
    assert case.scene.opened.generation == 1
    assert whole(case.disk, archive_path(WalFileId(0, 0, 1))) == archived


# Behind an ending mark.

ROOMS = [0, 1, *(MARK_SIZE + n for n in (-1, 0, 1)), *(2 * MARK_SIZE + n for n in (-1, 0, 1))]


def broken_off(case):
    """The process dies in a change of shards, right behind the ending mark."""
    before, n, broke_off = case.disk.snapshot(), 0, ""
    while "create 'FORMAT.tmp'" not in broke_off:
        case.disk.restore(before)
        case.disk.crash_at(n, Landed.NONE)
        with pytest.raises(SimCrash) as crash:
            with_shards(case, 2).open()
        broke_off = str(crash.value)
        n += 1
    case.scene.process_death()


def taken_back(room):
    """A change of shards broke off behind the ending mark of a file with so much room behind its last frame."""
    case = Case(b"4")
    case.scene.shut_down()
    case.disk.truncate(FIRST, tail_of(case) + room)
    broken_off(case)
    with_shards(case, 1).open()
    return case


@pytest.mark.rule("T3.7", "T3.16", "T7.3")
@pytest.mark.parametrize("room", ROOMS)
@pytest.mark.parametrize("topic", ["a", "b"])
def test_a_file_that_rotates_right_behind_an_ending_mark_does_not_pass_for_the_last(room, topic):
    """It is closed by another mark. Whether the topic goes on behind the files that are gone does not matter."""
    case = taken_back(room)
    case.write(*names(20))
    case.change_shards(2)
    case.write(b"1", topic=topic)
    for _ in range(3):
        case.checkpoint()
    kept, *gone = sorted(path for path in files_of(case.disk) if "/gen-0/" in path and "/wal-" in path)
    for path in gone:
        case.disk.unlink(path)

    assert gone
    with pytest.raises(Corrupt, match=f"{kept}: it does not end with the mark that ends its generation"):
        case.head()


@pytest.mark.rule("T3.7")
def test_starts_that_break_off_behind_it_add_no_ending_mark_to_another():
    """On a full disk there would be no room for it one day."""
    case = Case(b"4")
    case.scene.shut_down()
    broken_off(case)
    before = whole(case.disk, FIRST)
    for _ in range(3):
        broken_off(case)

    assert whole(case.disk, FIRST) == before


@pytest.mark.rule("T3.7", "T7.3")
def test_an_older_generation_gets_no_ending_mark_that_would_hide_what_it_has_lost():
    """A start cannot know that something is missing where no topic goes on, and no snapshot was taken."""
    case = Case(*[LARGE] * 10)
    scene = case.scene
    scene.port = without_room(case.disk)
    case.change_shards(2)
    case.write(b"1", topic="b")
    *_, last = scene.files()
    case.disk.unlink(last)
    case.disk.unlink("wal/gen-0/shard-00/CURRENT")
    case.change_shards(3)

    assert not scene.opened.damages
    assert not case.disk.names("meta")
    with pytest.raises(Corrupt, match="it does not end with the mark that ends its generation"):
        case.head()


@pytest.mark.rule("T3.7", "T7.3")
def test_a_log_that_was_gone_on_with_and_cut_right_behind_an_ending_mark_does_not_end_there():
    case = Case(b"4", limits=ONE_FILE)
    case.scene.shut_down()
    broken_off(case)
    ending = tail_of(case)
    with_shards(case, 1).open()
    case.write(*names(3))
    case.change_shards(2)
    case.write(b"1", topic="b")
    (path,) = [path for path in files_of(case.disk) if "/gen-0/" in path and "/wal-" in path]
    case.disk.truncate(path, ending + 10)

    with pytest.raises(Corrupt, match="it does not end with the mark that ends its generation"):
        case.head()
