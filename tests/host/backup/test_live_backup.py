"""A backup is the store at its cut, whatever is written, removed or struck meanwhile; what is broken off is none."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

import topics
from tests.support.backups import TINY, cold_scene, taken
from tests.support.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.codec.manifest import MANIFEST_FILE
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import DeleteTopic
from topics.engine.verify import canonical
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.backup.verifying import read_manifest, verify_backup
from topics.host.checkpoint.pins import PINS_MAX
from topics.host.cold.ownership import NOTE_FILE, Whose, own_tier, settle_place, whose
from topics.host.cold.segment_stores import HotRules
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.host.system.disk import OsDisk
from topics.kernel.errors import CannotOpen, Corrupt, Fatal, Rejected
from topics.simulation.background.checkpoint import WorkWalk
from topics.store.inline import carry_out
from topics.store.opened import StoreOptions
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

GATE_POINTS = 30
ENDS = (None, *Shape)  # None: the process, not the machine


def filled(seed=0, *, disk=None, shards=2):
    """Segments, sealed and growing, a log behind them, deletes, labels, times of their own."""
    scene = Scene(seed, disk=disk, limits=SMALL, segments=TINY, shards=shards)
    scene.open()
    scene.put("a", *[b"%d" % i for i in range(20)], tag=[b"x", b"", b"y", b"z"] * 5, node=[b"n", b""] * 10)
    scene.put("b", *[b"%d" % i for i in range(9)], ttl_ms=[None, 5, None] * 3)
    scene.sync()
    scene.checkpoint()
    scene.delete("a", match="y")
    scene.put("c", b"1", b"2", idempotency_key=b"k")
    scene.sync()
    scene.checkpoint()
    scene.delete("b", before_seq=3)
    scene.put("a", b"100", b"101")
    return scene


def state_of(disk):
    found = read_state(disk, read_format(disk, "x"), same_boot=False).recovered
    assert not found.read_only, found.damages
    assert not found.cuts
    return canonical(found.catalog)


def churn(scene, rounds=4):
    """So much happens that nothing of before is needed any more."""
    for i in range(rounds):
        scene.put("a", *[b"%d" % i] * 7)
        scene.put("d", b'"' + b"x" * 1500 + b'"')
        scene.sync()
        scene.checkpoint()
    scene.delete("a", before_seq=40)
    scene.run(DeleteTopic(topic="b"))
    scene.put("a", b"0")
    for _ in range(3):
        scene.sync()
        scene.checkpoint()
        scene.put("a", b"0")


@pytest.mark.rule("T7.1")
@pytest.mark.parametrize("shards", [1, 3])
def test_a_backup_is_the_state_at_its_cut_whatever_happens_until_it_is_read(shards):
    scene = filled(shards=shards)
    with taken(scene) as backup:
        before = canonical(scene.engine.state.catalog)
        churn(scene)
        target = SimDisk(5)
        write_backup(backup.contents(), target)

    assert state_of(target) == before
    assert verify_backup(target, "x").findings == []


@pytest.mark.rule("T7.1")
def test_what_a_backup_needs_is_removed_when_it_is_done_and_not_before():
    scene = filled()
    files = sorted(set(all_files(scene.disk)))
    backup = taken(scene)
    contents = backup.contents()
    needed = {
        part.path
        for part in contents.parts
        if part.path in files and part.path.startswith(("wal/", "topics/")) and "CURRENT" not in part.path
    }
    churn(scene)
    held = needed - set(all_files(scene.disk))
    backup.close()
    backup.close()
    for _ in range(3):
        scene.put("a", b"0")
        scene.sync()
        scene.checkpoint()

    assert held == set()
    gone = needed - set(all_files(scene.disk))
    assert {path for path in needed if path.startswith("topics/0000000000000002/")} <= gone
    assert any(path.startswith("wal/") for path in gone)


def all_files(disk, directory=""):
    for name in disk.names(directory):
        path = f"{directory}/{name}".lstrip("/")
        if disk.size(path) is None:
            yield from all_files(disk, path)
        else:
            yield path


@pytest.mark.rule("T7.1")
def test_every_record_before_the_cut_is_in_it_and_none_behind_at_any_step_of_writing():
    """Between any two steps of the backup a record is written in each shard."""
    scene = filled(shards=3)
    backup = Backup(scene.opened.checkpointer)
    written, asked = 0, []

    walk = WorkWalk(backup.steps(), scene.propose)
    heads = None
    while not walk.done:
        said = walk.advance()
        if heads is None and said == "goes on":
            heads = {name: scene.state(name).head_seq for name in scene.engine.names()}
        scene.drain()
        for topic in ("a", "b", "c"):
            asked.append(scene.put(topic, b"%d" % written))
            written += 1
    target = SimDisk(5)
    write_backup(backup.contents(), target)
    backup.close()
    manifest = read_manifest(target)

    assert {topic.name: topic.head_seq for topic in manifest.topics} == heads
    assert verify_backup(target, "x").findings == []
    again = Scene(6, disk=target, limits=SMALL, segments=TINY)
    again.open()
    for name, head in heads.items():
        assert again.read(name) == {seq: data for seq, data in scene.read(name).items() if seq <= head}


@pytest.mark.rule("T7.1", "T7.2")
def test_a_backup_of_a_store_that_many_threads_write_holds_whole_writes_and_all_that_were_acknowledged(
    tmp_path,
):
    options = StoreOptions(segments=SegmentRules(records_max=500), shards=2, min_free_bytes=0)
    with topics.open(tmp_path / "data", options=options) as store:
        acknowledged = {f"t{i}": 0 for i in range(4)}
        stop = threading.Event()

        def write(name):
            topic = store.create(name, durability="fsync")
            while not stop.is_set():
                reply = topic.put_many([{"data": i} for i in range(5)])
                acknowledged[name] = reply.last_seq

        threads = [threading.Thread(target=write, args=(name,)) for name in acknowledged]
        for thread in threads:
            thread.start()
        try:
            for round_ in range(4):
                while not all(acknowledged.values()):
                    stop.wait(0.001)
                before = dict(acknowledged)
                written = store.backup(tmp_path / f"b{round_}")
                after = dict(acknowledged)
                heads = {topic.name: topic.head_seq for topic in written.manifest.topics}
                store.checkpoint()

                for name, head in heads.items():
                    assert before[name] <= head <= after[name] + 5
                    assert head % 5 == 0
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    for round_ in range(4):
        disk = OsDisk(tmp_path / f"b{round_}")
        assert verify_backup(disk, "b").findings == []
        heads = {topic.name: topic.head_seq for topic in read_manifest(disk).topics}
        with topics.open(tmp_path / f"b{round_}") as restored:
            for name, head in heads.items():
                records = [item for item in restored.topic(name).records() if isinstance(item, topics.Record)]
                assert [record.seq for record in records] == list(range(1, head + 1))
                assert [record.data for record in records] == [0, 1, 2, 3, 4] * (head // 5)


@pytest.mark.rule("T7.1", "T5.9")
def test_sealed_segments_are_linked_and_a_flag_flipped_later_is_not_in_the_backup(tmp_path):
    options = StoreOptions(segments=SegmentRules(records_max=10), min_free_bytes=0)
    with topics.open(tmp_path / "data", options=options) as store:
        topic = store.create("t", durability="fsync")
        topic.put_many([{"data": i, "tag": "odd" if i % 2 else "even"} for i in range(25)])
        store.checkpoint()
        written = store.backup(tmp_path / "b")
        linked = [path for path in (tmp_path / "b").rglob("*.data") if path.stat().st_nlink > 1]
        topic.delete(match="odd")
        for _ in range(3):
            store.checkpoint()
            topic.put({"more": 1})

        assert len(linked) == 2
        assert written.linked == sum(path.stat().st_size for path in linked)
    assert verify_backup(OsDisk(tmp_path / "b"), "b").findings == []
    with topics.open(tmp_path / "b") as restored:
        assert len(list(restored.topic("t").records())) == 25


@pytest.mark.rule("T7.1")
def test_where_nothing_can_be_linked_everything_is_copied():
    scene = filled()
    asked = []

    def link(path):
        asked.append(path)
        return False

    target = SimDisk(5)
    with taken(scene) as backup:
        written = write_backup(backup.contents(), target, link=link)

    assert asked
    assert all(path.endswith(".data") for path in asked)
    assert written.linked == 0
    assert verify_backup(target, "x").findings == []


# What is struck.


def strike(call, landed, how, *, on_source):
    """One crash in a backup, of the machine it reads from or of the one it is written to."""
    scene = filled()
    target = SimDisk(5)
    struck = scene.disk if on_source else target
    backup = Backup(scene.opened.checkpointer)
    start = struck.mutations
    struck.crash_at(call, landed)
    complete = False
    try:
        carry_out(scene.engine, backup.steps(), scene.drain)
        before = canonical(scene.engine.state.catalog)
        contents = backup.contents()
        write_backup(contents, target)
        complete = True
    except SimCrash:
        assert call < struck.mutations - start + 1
    made = struck.mutations - start
    if how is None:
        struck.process_death()
    else:
        struck.power_loss(how, call)
    if on_source:
        held = {name: scene.read(name) for name in ("a", "b", "c")} if complete else None
        scene.open()
        assert not scene.opened.read_only
        assert held is None or {name: scene.read(name) for name in ("a", "b", "c")} == held
    else:
        try:
            read_manifest(target)
        except Corrupt:
            assert not complete  # what was broken off is none
        else:
            assert verify_backup(target, "x").findings == []
            assert state_of(target) == before
    return complete, made


def points(*, on_source):
    """Every (call, how much of it took effect, end) there is."""
    _, calls = strike(10_000, Landed.NONE, None, on_source=on_source)
    for call in range(calls + 1):
        yield from itertools.product([call], Landed if call < calls else [Landed.NONE], ENDS)


@pytest.mark.rule("T7.1")
@pytest.mark.parametrize("on_source", [True, False], ids=["source", "destination"])
def test_a_crash_leaves_a_whole_backup_or_none_and_the_store_as_it_was(on_source, record_property):
    every = list(points(on_source=on_source))
    last = max(call for call, _, _ in every)
    ends = [point for point in every if point[0] >= last - 1]  # its name, and what comes when it is complete
    sample = random.Random(3).sample(every, min(GATE_POINTS, len(every)))
    chosen = list(dict.fromkeys([*ends, *sample]))
    for point in chosen:
        strike(*point, on_source=on_source)

    record_property("crash points", len(chosen))
    print(f"backup: {len(chosen)} of {len(every)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.rule("T7.1")
@pytest.mark.parametrize("on_source", [True, False], ids=["source", "destination"])
def test_every_crash_point_of_a_backup(on_source, record_property):
    every = list(points(on_source=on_source))
    for point in every:
        strike(*point, on_source=on_source)

    record_property("crash points", len(every))
    print(f"backup: all {len(every)} crash points")


@pytest.mark.rule("T7.1")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.ENOSPC])
def test_an_error_of_any_call_ends_the_backup_and_nothing_else(kind):
    scene = filled()
    with taken(scene) as backup:
        calls = SimDisk(5)
        write_backup(backup.contents(), calls)
    for at in range(calls.mutations):
        target = SimDisk(5)
        target.inject(None, kind, at=at)
        with taken(scene) as backup:
            try:
                write_backup(backup.contents(), target)
            except OSError:
                if at + 1 < calls.mutations:  # behind the last one it is whole, but nobody may rely on it
                    with pytest.raises(Corrupt, match="no backup"):
                        read_manifest(target)
        assert scene.opened.checkpointer.pins.first_frame((0, 0)) > 2**63
    scene.put("a", b"1")
    scene.sync()
    scene.checkpoint()


def test_a_source_that_cannot_be_read_is_named():
    scene = filled()
    with taken(scene) as backup:
        contents = backup.contents()
        scene.disk.inject("read", times=None)
        with pytest.raises(Corrupt, match=r"wal/gen-0/shard-00/wal-.* cannot be read"):
            write_backup(contents, SimDisk(5))
    scene.disk.heal()


def test_a_store_that_cannot_be_read_is_no_bug_of_ours():
    """A server answers `OSError` as a bug, and the error of the disk as what it is."""
    scene = filled()
    with taken(scene) as backup:
        scene.disk.inject("read", times=None)
        with pytest.raises(Corrupt, match=r"the store cannot be read: .*try again"):
            backup.contents()
    scene.disk.heal()


def test_a_shard_that_has_failed_is_not_backed_up():
    scene = filled(shards=1)
    scene.disk.inject("write")
    with pytest.raises(Fatal):
        scene.put("a", b"1")
    with pytest.raises(Rejected, match="open the store again"):
        taken(scene)


def test_no_more_backups_at_once_than_there_are_pins():
    scene = filled()
    held = [taken(scene) for _ in range(PINS_MAX)]
    with pytest.raises(Rejected, match="retry when one is done"):
        taken(scene)
    held.pop().close()
    taken(scene).close()


# Where it goes.


@pytest.fixture
def store(tmp_path):
    with topics.open(tmp_path / "data") as opened:
        opened.topic("t").put({"a": 1})
        yield opened


@pytest.mark.rule("T7.2")
def test_places_that_cannot_be_written_are_refused_in_one_line_and_left_as_they_were(store, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "left.partial").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, message in (
        ("there", "is there already"),
        ("file", "is there already"),
        ("dangling", "is there already"),
        ("data", "lies inside"),
        ("data/b", "lies inside"),
        ("there/../data/b", "lies inside"),
        ("left", "broken off"),
        ("file/b", "cannot be written"),
        ("x" * 300, "cannot be written"),
        ("/dev", "is where a disk is mounted"),
    ):
        with pytest.raises((Rejected, CannotOpen), match=message) as refused:
            store.backup(tmp_path / name)
        assert "\n" not in refused.value.message

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "dangling", "data", "file", "left.partial", "there"
    ]  # fmt: skip
    store.backup(tmp_path / "new" / "b")
    assert verify_backup(OsDisk(tmp_path / "new" / "b"), "b").findings == []


@pytest.mark.rule("T7.2")
def test_a_backup_into_what_topics_has_made_is_refused_before_anything_is_written(tmp_path):
    options = StoreOptions(
        cold_dir=str(tmp_path / "cold"),
        hot=HotRules(retain_segments=0),
        segments=SegmentRules(records_max=4),
        min_free_bytes=0,
    )
    with topics.open(tmp_path / "other"):
        pass
    with topics.open(tmp_path / "data", options=options) as store:
        (tmp_path / "link").symlink_to(tmp_path / "cold")
        for name in ("cold", "cold/b", "link/b"):  # nothing is in it yet
            with pytest.raises(Rejected, match="the cold tier: choose a directory that is not in it"):
                store.backup(tmp_path / name)
        store.topic("t").put_many([{"data": n} for n in range(20)])
        store.backup(tmp_path / "b")
        (tmp_path / "theirs" / "topics").mkdir(parents=True)
        (tmp_path / "theirs" / "OWNER").write_text("a note")
        before = sorted(str(path) for path in tmp_path.rglob("*"))
        for name, message in (
            ("b", "is there already, and is a backup"),
            ("b/x", "lies inside .*b, which is a backup"),
            ("b/topics/deep/x", "lies inside .*b, which is a backup"),
            ("other", "is there already, and is a data directory"),
            ("other/x", "lies inside .*other, which is a data directory"),
            ("theirs/x", "lies inside .*theirs, which is a cold tier"),
            ("data/x", "lies inside .*data: choose a directory beside it"),
        ):
            with pytest.raises(Rejected, match=message) as refused:
                store.backup(tmp_path / name)
            assert "\n" not in refused.value.message

        assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_an_empty_directory_is_a_place(store, tmp_path):
    (tmp_path / "b").mkdir()
    store.backup(tmp_path / "b")

    assert verify_backup(OsDisk(tmp_path / "b"), "b").findings == []


def test_a_store_that_is_closed_meanwhile_leaves_nothing(store, tmp_path):
    def tell(done, total):
        assert 0 <= done <= total
        if done:
            store.close()

    with pytest.raises(Rejected, match="the store is closed"):
        store.backup(tmp_path / "b", tell=tell)

    assert [path.name for path in tmp_path.iterdir()] == ["data"]


# What is wrong with a backup.


@pytest.mark.rule("T7.4")
def test_every_file_that_is_missing_cut_or_changed_is_found_and_named():
    scene = filled()
    good = SimDisk(5)
    with taken(scene) as backup:
        write_backup(backup.contents(), good)
    for file in read_manifest(good).files:
        for harm in ("unlink", "truncate", "flip"):
            disk = SimDisk(5)
            disk.restore(good.snapshot())
            if harm == "unlink":
                disk.unlink(file.path)
            elif harm == "truncate":
                disk.truncate(file.path, file.size - 1)
            else:
                disk.flip(file.path, file.size * 4)
            try:
                findings = verify_backup(disk, "x").findings
            except CannotOpen:
                assert file.path == "FORMAT"
                continue

            assert file.path in [finding.file for finding in findings], (file.path, harm)


@pytest.mark.rule("T7.4")
def test_a_backup_that_was_written_to_is_found():
    scene = filled()
    target = SimDisk(5)
    with taken(scene) as backup:
        write_backup(backup.contents(), target)
    again = Scene(6, disk=target, limits=SMALL, segments=TINY)
    again.open()
    again.put("a", b"1")
    again.sync()

    assert any(
        "cut" in finding.what or "head" in finding.what for finding in verify_backup(target, "x").findings
    )


@pytest.mark.rule("T7.4")
def test_a_directory_without_a_manifest_is_no_backup():
    scene = filled()
    found = verify_backup(scene.disk, "x")

    assert found.manifest is None
    assert "no backup" in found.findings[0].what


# What lies in the cold tier.


@pytest.mark.rule("T7.1")
def test_cold_segments_are_referenced_and_their_index_comes_along():
    scene = cold_scene()
    target = SimDisk(5)
    with taken(scene) as backup:
        before = canonical(scene.engine.state.catalog)
        manifest = write_backup(backup.contents(), target).manifest

    assert len(manifest.cold) > 2
    assert verify_backup(target, "x").findings == []
    assert state_of(target) == before


@pytest.mark.rule("T7.1")
def test_cold_segments_are_copied_if_that_is_asked_for_and_the_copy_needs_no_cold_tier():
    scene = cold_scene()
    backup = Backup(scene.opened.checkpointer, cold=scene.cold)
    carry_out(scene.engine, backup.steps(), scene.drain)
    target = SimDisk(5)
    with backup:
        manifest = write_backup(backup.contents(), target).manifest
    findings = verify_backup(target, "x").findings
    again = Scene(6, disk=target, limits=SMALL, segments=TINY)
    again.open()

    assert manifest.cold == []
    assert findings == []
    assert not again.opened.warnings
    assert not any(segment.cold for segment in again.engine.state.catalog.find("a").segments)
    assert again.read("a") == {i + 1: b"%d" % i for i in range(40)}


@pytest.mark.rule("T7.1", "T6.3")
def test_a_backup_knows_whose_the_cold_tier_is_and_that_it_is_a_copy():
    """Whatever its original's note says of LOCK: a file that is made anew may get any inode."""
    scene = cold_scene()
    own_tier(scene.disk, scene.cold, SeededEntropy(7))
    target = SimDisk(5)
    with taken(scene) as backup:
        manifest = write_backup(backup.contents(), target).manifest

    assert [file.path for file in manifest.files][-2:] == [NOTE_FILE, "FORMAT"]
    settle_place(target, inode=1, remembered=1)
    assert whose(target, scene.cold) is Whose.BORROWED
    scene.process_death()
    scene.open()
    scene.put("a", *[b"%d" % i for i in range(40)])
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() > 2
    assert not whose(target, scene.cold).complete  # what is not there any more is not lost
    target.flip(NOTE_FILE, 0)
    (finding,) = verify_backup(target, "x").findings
    assert (finding.file, finding.what) == (NOTE_FILE, "is not as it was written (checksum)")


@pytest.mark.rule("T7.1", "T6.3")
def test_a_backup_of_which_nothing_is_cold_or_whose_note_is_damaged_has_none():
    scene = cold_scene()
    whole = Backup(scene.opened.checkpointer, cold=scene.cold)
    carry_out(scene.engine, whole.steps(), scene.drain)
    with whole:
        assert NOTE_FILE not in [part.path for part in whole.contents().parts]
    scene.disk.flip(NOTE_FILE, 0)
    with taken(scene) as backup:
        assert NOTE_FILE not in [part.path for part in backup.contents().parts]


@pytest.mark.rule("T7.1", "T6.3")
def test_a_backup_of_before_it_had_a_note_is_whole_and_what_it_gives_reads_the_cold_segments():
    scene = cold_scene()
    target = SimDisk(5)
    with taken(scene) as backup:
        contents = backup.contents()
        for part in list(contents.parts):
            if part.path == NOTE_FILE:
                contents.parts.remove(part)
        write_backup(contents, target)
    there = scene.cold.list()

    assert verify_backup(target, "x").findings == []
    assert not fsck(target, where="x", options=Options(settled=True, cold=scene.cold)).violations
    target.unlink(MANIFEST_FILE)  # as a restore leaves it
    again = Scene(6, disk=target, limits=SMALL, segments=TINY, cold=lambda _: scene.cold)
    again.open()
    assert "an older backup was restored" in again.opened.warnings[0]
    assert again.read("a") == scene.read("a")
    again.relocate()
    assert scene.cold.list() == there
