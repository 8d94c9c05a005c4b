"""A restore gives the store that was, at a moment or a seq: no record less, none more, whatever has happened since."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.history import TINY, TOPICS, History, archiving, backed_up, contents, heads, rebuilt, steps
from tests.support.scene import SMALL, Scene
from topics.codec.log.layout import FRAME_HEAD
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.verify import canonical
from topics.host.backup.verifying import verify_backup
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.host.wal.archive import Archive, ArchiveRules, archive_path
from topics.kernel.errors import Corrupt, Rejected
from topics.log.regions import WalFileId
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape


def opened(disk, clock=None):
    scene = Scene(9, disk=disk, limits=SMALL, segments=TINY)
    if clock is not None:
        scene.clock.set(clock.now_ms())
    scene.open()
    assert not scene.opened.read_only, scene.opened.damages
    assert not scene.opened.cuts
    return scene


@pytest.mark.rule("T7.1", "T7.3", "T1.7")
@settings(max_examples=30)
@given(before=steps(), behind=steps(), at=st.floats(0, 1), shards=st.integers(1, 3))
def test_a_restore_to_a_moment_gives_what_the_store_held_then(before, behind, at, shards):
    history = History(archiving(shards=shards))
    for step in [*before, ("backup", "", 0), *behind]:
        history.take(*step)
    moment, held, reached = history.seen[int(at * (len(history.seen) - 1))]
    restored = rebuilt(history.base, [history.scene.disk], until_ms=moment)

    assert heads(restored) == reached
    assert contents(opened(restored, history.scene.clock)) == held


@pytest.mark.rule("T7.3")
@settings(max_examples=30)
@given(
    before=steps(),
    behind=steps(),
    topic=st.sampled_from(TOPICS),
    at=st.floats(0, 1),
    shards=st.integers(1, 3),
)
def test_a_restore_to_a_seq_gives_what_the_store_held_before_the_first_write_beyond_it(
    before, behind, topic, at, shards
):
    history = History(archiving(shards=shards))
    behind = [step for step in behind if step[0] != "drop"]  # or the name would stand for two topics
    for step in [*before, ("backup", "", 0), ("put", topic, 2), *behind]:
        history.take(*step)
    first, last = history.seen[0][2].get(topic, 0), history.heads()[topic]
    seq = first + int(at * (last - first))
    restored = rebuilt(history.base, [history.scene.disk], seqs={topic: seq})
    held, reached = [(held, reached) for _, held, reached in history.seen if reached.get(topic, 0) <= seq][-1]
    held, reached = (
        {topic: {}, **held},
        {topic: 0, **reached},
    )  # a write before the first one beyond creates it

    assert heads(restored) == reached
    assert contents(opened(restored, history.scene.clock)) == held


@pytest.mark.rule("T7.3")
@settings(max_examples=30)
@given(before=steps(), behind=steps(), shards=st.integers(1, 3))
def test_a_restore_to_the_end_gives_the_store_as_it_is(before, behind, shards):
    history = History(archiving(shards=shards))
    for step in [*before, ("backup", "", 0), *behind]:
        history.take(*step)
    restored = rebuilt(history.base, [history.scene.disk])

    assert heads(restored) == history.heads()
    assert contents(opened(restored, history.scene.clock)) == contents(history.scene)


@pytest.mark.rule("T7.1", "T7.3")
@pytest.mark.parametrize("shards", [1, 3])
def test_without_a_checkpoint_behind_it_the_restored_state_is_that_at_the_cut_byte_for_byte(shards):
    scene = archiving(shards=shards)
    scene.put("a", *[b"%d" % i for i in range(12)], tag=[b"x"] * 12)
    scene.sync()
    scene.checkpoint()
    base = backed_up(scene)
    scene.clock.advance(5)
    scene.put("b", b"1", b"2")
    scene.delete("a", match="x")
    then, moment = canonical(scene.engine.state.catalog), scene.clock.now_ms()
    scene.clock.advance(5)
    scene.put("a", b"99")
    restored = rebuilt(base, [scene.disk], until_ms=moment)
    found = read_state(restored, read_format(restored, "x"), same_boot=False).recovered

    assert canonical(found.catalog) == then


@pytest.mark.rule("T7.3")
def test_what_is_restored_goes_on_as_any_store():
    scene = archiving()
    scene.put("a", *[b"%d" % i for i in range(30)])
    base = backed_up(scene)
    scene.put("a", *[b"%d" % i for i in range(30, 60)])
    scene.sync()
    for _ in range(3):
        scene.checkpoint()
        scene.put("a", b"0")
    scene.sync()
    again = opened(rebuilt(base, [scene.disk], seqs={"a": 60}))
    seq = again.put("a", b'"new"').first_seq
    again.sync()
    again.checkpoint()
    again.checkpoint()
    again.power_loss()
    again.open()

    assert list(again.read("a").items()) == [(i + 1, b"%d" % i) for i in range(60)] + [(seq, b'"new"')]
    assert verify_backup(base, "the base").findings == []


@pytest.mark.rule("T7.3")
def test_several_seqs_are_none_of_them_passed():
    scene = archiving()
    base = backed_up(scene)
    for i in range(10):
        scene.clock.advance(1)
        scene.put("a", b"%d" % i)
        scene.put("b", b"%d" % i, b"%d" % i)

    assert heads(rebuilt(base, [scene.disk], seqs={"a": 7, "b": 8})) == {"a": 5, "b": 8}
    assert heads(rebuilt(base, [scene.disk], seqs={"a": 3, "b": 8})) == {"a": 3, "b": 6}


@pytest.mark.rule("T7.3")
def test_of_the_millisecond_of_a_cut_other_shards_keep_nothing_and_shard_0_all():
    """What is kept may depend on shard 0, where topics begin; on no other."""
    scene = archiving(shards=3)
    names = [f"t{i}" for i in range(9)]
    for name in names:
        scene.create(name)
    of = {lane.shard: name for name, lane in scene.engine.state.lanes_by_name.items()}
    base = backed_up(scene)
    scene.clock.advance(1)
    scene.put(of[1], b"1")
    scene.clock.advance(1)
    for shard in (0, 2, 1):
        scene.put(of[shard], b"2")
    found = heads(rebuilt(base, [scene.disk], seqs={of[1]: 1}))

    assert {shard: found[of[shard]] for shard in (0, 1, 2)} == {0: 1, 1: 1, 2: 0}


@pytest.mark.rule("T7.3")
def test_a_write_is_cut_as_a_whole():
    scene = archiving()
    base = backed_up(scene)
    scene.put("a", b"1", b"2")
    scene.put("a", b"3", b"4", b"5")

    assert heads(rebuilt(base, [scene.disk], seqs={"a": 4})) == {"a": 2}


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ({"until_ms": 5}, "before the backup was taken"),
        ({"seqs": {"a": 1}}, "the backup holds up to seq 3 already"),
        ({"seqs": {"a": 100}}, "the log ends at seq 4 of it"),
        ({"seqs": {"nothing": 1}}, "no topic 'nothing'"),
    ],
    ids=["moment", "behind", "beyond", "unknown"],
)
def test_a_goal_that_cannot_be_reached_is_refused(goal, message):
    scene = archiving()
    scene.put("a", b"1", b"2", b"3")
    base = backed_up(scene)
    scene.put("a", b"4")
    with pytest.raises(Rejected, match=message):
        rebuilt(base, [scene.disk], **goal)


def test_a_hole_in_the_log_is_refused_and_named():
    scene = archiving()
    base = backed_up(scene)
    for _ in range(30):
        scene.put("a", b'"' + b"x" * 1500 + b'"')
    scene.disk.unlink(scene.files()[-2])
    with pytest.raises(
        Corrupt,
        match="the file that begins with frame 32 is missing before this one: topic 'a' seqs 21 to 25",
    ):
        rebuilt(base, [scene.disk])


def test_a_log_of_another_history_is_refused():
    scene = archiving()
    scene.put("a", b"1")
    base = backed_up(scene)
    other = archiving(seed=5)
    other.put("a", b"2")
    with pytest.raises(Corrupt, match=r"differs from the backup.s own .*different histories"):
        rebuilt(base, [other.disk])


def test_a_log_that_begins_later_is_refused():
    scene = archiving()
    scene.put("a", b"1")
    base = backed_up(scene)
    for _ in range(4):
        scene.put("a", b'"' + b"x" * 1500 + b'"')
    scene.disk.unlink(scene.files()[0])
    with pytest.raises(Corrupt, match="give the directory that has it too"):
        rebuilt(base, [scene.disk])


@pytest.mark.rule("T1.7")
def test_an_absorbed_log_is_moved_to_the_archive_and_without_the_setting_it_goes():
    for archive, kept in ((ArchiveRules(), True), (None, False)):
        scene = archiving(archive=archive)
        for _ in range(12):
            scene.put("a", b'"' + b"x" * 700 + b'"')
            scene.sync()
            scene.checkpoint()

        live = [int(path[-24:-4]) for path in scene.files()]
        gone = [int(name[4:24]) for name in scene.disk.names("archive/gen-0/shard-00")]
        assert bool(gone) is kept
        assert live[0] > 1
        assert gone == [] or (gone[0], max(gone) < live[0]) == (1, True)


@pytest.mark.rule("T1.7")
@pytest.mark.parametrize("rest", [b"", bytes(100)], ids=["nothing", "zeros"])
def test_a_file_without_a_frame_makes_nothing_before_it_old(rest):
    """It says no time, which is not the time 0; and the oldest file goes first, so that there is no hole."""
    disk = SimDisk(5)
    files = [WalFileId(0, 0, first) for first in (1, 10, 20)]
    disk.make_dir("archive/gen-0/shard-00")
    for file, ts in zip(files, (1000, 2000, None), strict=True):
        frame = rest if ts is None else FRAME_HEAD.pack(0, 0, 0, 0, 0, ts, 0, 0, 0)
        disk.create(archive_path(file), 0)
        disk.write(archive_path(file), 0, [bytes(HEADER_SIZE) + frame])
    size = sum(disk.size(archive_path(file)) for file in files)

    def kept(rules, now_ms):
        Archive(disk, rules).trim(now_ms)
        return [file.first_frame for file in files if disk.size(archive_path(file)) is not None]

    assert kept(ArchiveRules(age_ms=500), now_ms=2400) == [1, 10, 20]
    assert kept(ArchiveRules(bytes_max=size - 1), now_ms=2400) == [10, 20]
    assert kept(ArchiveRules(age_ms=500), now_ms=10**12) == [10, 20]


@pytest.mark.rule("T1.7")
def test_the_archive_keeps_to_its_bounds_and_has_no_hole():
    for rules in (ArchiveRules(bytes_max=20_000), ArchiveRules(age_ms=25)):
        scene = archiving(archive=rules)
        for _ in range(30):
            scene.clock.advance(5)
            scene.put("a", b'"' + b"x" * 700 + b'"')
            scene.sync()
            scene.checkpoint()
        names = scene.disk.names("archive/gen-0/shard-00")
        sizes = [scene.disk.size(f"archive/gen-0/shard-00/{name}") for name in names]

        assert 0 < sum(sizes) <= 20_000 + 8192
        assert int(names[0][4:24]) > 1
        base = backed_up(scene)
        assert heads(rebuilt(base, [scene.disk])) == {"a": 30}


@pytest.mark.rule("T1.7")
@pytest.mark.parametrize("mount", ["wal", "archive"])
def test_a_crash_while_a_log_is_archived_to_another_disk_leaves_it_whole_in_one_place_or_in_both(
    mount, record_property
):
    scene = archiving(disk=SimDisk(0, mounts=(mount,)))
    base = backed_up(scene)
    for _ in range(5):
        scene.put("a", b'"' + b"x" * 1500 + b'"')
        scene.sync()
        scene.checkpoint()
    scene.put("a", b"1")
    scene.sync()
    scene.process_death()
    before, struck = scene.disk.snapshot(), 0
    for call in range(0, 90, 3):
        for landed in Landed:
            disk = SimDisk(0)
            disk.restore(before)
            scene = archiving(disk=disk)
            disk.crash_at(call, landed)
            try:
                scene.checkpoint()
                continue
            except SimCrash:
                struck += 1
                scene.power_loss(Shape.RANDOM_PAGES, call)
            assert heads(rebuilt(base, [disk], seqs={"a": 6})) == {"a": 6}
            scene.open()
            scene.checkpoint()
            assert heads(rebuilt(base, [disk], seqs={"a": 6})) == {"a": 6}
            assert not [name for name in disk.names("archive/gen-0/shard-00") if name.endswith(".tmp")]
            live, gone = (disk.names(f"{root}/gen-0/shard-00") for root in ("wal", "archive"))
            assert not {name for name in gone if name in live}
    assert struck > 20
    record_property("crash points", struck)


@pytest.mark.rule("T1.7")
def test_a_crash_while_a_log_is_archived_leaves_it_in_one_of_the_two_places(record_property):
    struck = 0
    for call in range(0, 40, 2):
        for landed in Landed:
            scene = archiving()
            base = backed_up(scene)
            for _ in range(5):
                scene.put("a", b'"' + b"x" * 1500 + b'"')
                scene.sync()
                scene.checkpoint()
            scene.put("a", b"1")
            scene.sync()
            scene.disk.crash_at(call, landed)
            try:
                scene.checkpoint()
            except SimCrash:
                struck += 1
                scene.power_loss(Shape.RANDOM_PAGES, call)
                scene.open()

            assert heads(rebuilt(base, [scene.disk], seqs={"a": 6})) == {"a": 6}
    assert struck > 20
    record_property("crash points", struck)
