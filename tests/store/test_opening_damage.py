"""Opening what is damaged, left over or half done: refused in words, or opened with nothing acknowledged missing."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress

import attrs
import pytest

import topics
from tests.support.scene import SMALL, Scene
from topics.audit.fsck import fsck
from topics.codec.log.walheader import HEADER_SIZE
from topics.host.directory.owner import read_owner
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import CannotOpen, Unusable
from topics.testing.faults import Landed, SimCrash
from topics.testing.survival import Shape

DIRECTORY = "wal/gen-0/shard-00"


def write_file(disk, path, data):
    disk.create(path, 0)
    disk.write(path, 0, [data])
    disk.sync_data(path)


def file_path(number, generation=0, shard=0):
    return f"wal/gen-{generation}/shard-{shard:02d}/wal-{number:020d}.log"


def stored(*, shards=None, limits=None, puts=3):
    """Topic `t` with seqs from 1, cleanly closed."""
    scene = Scene(shards=shards, limits=limits)
    scene.open()
    scene.create("t", durability="fsync")
    for i in range(puts):
        scene.put("t", b'"%d"' % i + b" " * 200)
    return scene.shut_down()


# FORMAT.


@pytest.mark.rule("T1.3")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"format": 3, "features": ["x"]}', Unusable.NEWER_FORMAT),
        (b'{"format": 3, "shards": {"hot": 4}, "generation": null}', Unusable.NEWER_FORMAT),
        (b'{"format": 1, "shards": "2", "generation": 0}', Unusable.FOREIGN),
        (b'{"format": 0}', Unusable.FOREIGN),
        (b'{"format": true}', Unusable.FOREIGN),
        (b'{"format": 1, "x": ' + b"[" * 3000, Unusable.FOREIGN),
        (b'{"format": 1, "\xff": 1}', Unusable.FOREIGN),
        (b"\xff" * 5000, Unusable.FOREIGN),
    ],
)
def test_whatever_else_a_newer_format_says_it_is_called_newer(data, reason):
    scene = Scene()
    write_file(scene.disk, "FORMAT", data)

    with pytest.raises(CannotOpen) as refused:
        scene.open()
    assert reason is refused.value.reason


# Headers.


@pytest.mark.rule("T4.18")
@pytest.mark.parametrize("at", [0, 8, 20, HEADER_SIZE - 1])
def test_a_bad_header_with_nothing_behind_it_is_a_file_that_was_never_begun(at):
    scene = Scene()
    scene.open()
    scene.process_death()
    scene.flip(scene.files()[0], at)

    assert not scene.open().read_only
    scene.create("t", durability="fsync")
    scene.put("t", 1)
    scene.power_loss(Shape.NOTHING).open()
    assert scene.read("t") == {1: b"1"}


@pytest.mark.rule("T4.18")
def test_a_bad_header_with_nothing_behind_it_is_damage_if_the_files_before_it_are_not_there():
    scene = stored(limits=SMALL, puts=30)
    first, *others = scene.files()
    write_file(scene.disk, others[0], bytes(2048))
    scene.disk.unlink(first)
    for path in others[1:]:
        scene.disk.unlink(path)

    opened = scene.open()
    assert "is missing before this one" in opened.damages[0].why


# Leftovers.


@pytest.mark.rule("T3.7")
def test_the_reserve_of_an_old_generation_goes_with_it_even_if_a_crash_had_left_it():
    scene = stored()
    scene.options = Scene(shards=2).options
    scene.open()

    assert "next.tmp" not in scene.disk.names(DIRECTORY)
    assert "next.tmp" in scene.disk.names("wal/gen-1/shard-01")
    write_file(scene.disk, f"{DIRECTORY}/next.tmp", bytes(100))
    scene.shut_down().open()
    assert "next.tmp" not in scene.disk.names(DIRECTORY)


@pytest.mark.rule("T3.16")
@pytest.mark.parametrize("puts", [0, 3])
def test_opening_and_closing_an_idle_store_writes_no_mark_after_mark(puts):
    scene = stored(puts=puts)
    before = scene.disk.content(scene.files()[0])
    for _ in range(3):
        scene.open()
        assert not scene.opened.writers[0].wal.mark_due
        scene.shut_down()

    assert before == scene.disk.content(scene.files()[0])
    scene.open()
    scene.put("t", 7)
    assert scene.opened.writers[0].wal.mark_due
    assert list(scene.shut_down().power_loss(Shape.NOTHING).open().cuts) == []
    assert list(scene.read("t").values())[-1] == b"7"


@pytest.mark.rule("T4.12")
@pytest.mark.parametrize("landed", list(Landed))
def test_a_crash_while_a_torn_tail_is_cut_leaves_a_torn_tail(landed):
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability="disk")
    for i in range(30):
        scene.put("t", b'"' + b"%d" % i * 100 + b'"')
    first, second, *others = scene.files()
    for path in others:
        scene.disk.unlink(path)
    begun = scene.disk.content(second)
    write_file(scene.disk, second, begun[:HEADER_SIZE] + bytes(len(begun) - HEADER_SIZE))
    scene.disk.sync_dir(DIRECTORY)
    scene.process_death()
    end = len(scene.disk.content(first).rstrip(b"\0"))
    scene.flip(first, 900)
    scene.disk.write(first, end - 80, [bytes(80)])  # the closing mark
    scene.disk.sync_data(first)
    snapshot = scene.power_loss(Shape.NOTHING).disk.snapshot()
    scene.open()
    assert [cut.file.first_frame for cut in scene.opened.cuts] == [1]
    mutations = scene.disk.mutations
    scene.disk.restore(snapshot)
    for n in range(mutations):
        scene.disk.restore(snapshot)
        scene.disk.crash_at(n, landed)
        try:
            scene.open()
            break
        except SimCrash:
            scene.power_loss(Shape.NOTHING)
        assert not scene.open().read_only
    else:
        raise AssertionError("every call crashed")


@pytest.mark.rule("T4.12", "T4.17")
def test_a_process_that_dies_between_two_steps_of_zeroing_a_tail_leaves_a_short_tail():
    scene = Scene()
    scene.open()
    scene.create("t", durability="disk")
    scene.opened.writers[0].keep_reserve(5 << 20)
    scene.put("t", *[b'"' + b"x" * 100_000 + b'"'] * 40)  # one write of 4 MB, more than is zeroed in a step
    (path,) = [name for name in scene.files() if len(scene.disk.content(name).rstrip(b"\0")) > 1 << 20]
    data = scene.disk.content(path).rstrip(b"\0")
    scene.process_death()
    scene.disk.write(path, len(data) - 1000, [bytes(1000)])  # all but the end of it was written
    snapshot = scene.disk.snapshot()
    for n in range(40):
        scene.disk.restore(snapshot)
        scene.disk.crash_at(n, Landed.ALL)
        try:
            scene.open()
            break
        except SimCrash:
            scene.process_death()
        assert not scene.open().read_only
        assert scene.state("t").head_seq == 0
    else:
        raise AssertionError("every call crashed")


# A damaged store promises nothing.


def test_a_damaged_store_says_that_nothing_is_durable():
    scene = stored()
    path = scene.files()[0]
    at = scene.disk.content(path).index(b'"1"')
    scene.flip(path, at)
    assert scene.open().read_only

    assert scene.state("t").head_seq == 3
    assert scene.state("t").durable_seq == 0
    assert scene.page("t")[0].durable_seq == 0


def test_a_damaged_store_says_what_an_ephemeral_topic_of_its_snapshot_has_lost():
    """Its records are in no file, and no frame can say that they went with the process."""
    scene = Scene()
    scene.open()
    scene.put("t", b"1")
    scene.create("news", durability="ephemeral")
    scene.put("news", b"1", b"2")
    scene.checkpoint()
    scene.put("t", b"2")
    scene.shut_down()
    scene.flip(scene.files()[0], 0)
    assert scene.open().read_only

    plan, records = scene.page("news")

    assert records == []
    assert (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason) == (1, 2, "restart")


def test_a_log_without_its_header_is_not_folded_again_onto_a_snapshot_of_it():
    """Frames from before the snapshot say nothing about the state, an old config least of all (storage 4)."""
    scene = Scene()
    scene.open()
    scene.create("t", durability="fsync")
    scene.create("t", durability="fsync", cap_records=50)
    scene.create("t", durability="fsync")
    scene.put("t", *(b"%d" % i for i in range(1, 80)))
    scene.checkpoint()
    scene.put("t", b"80")
    scene.shut_down()
    scene.flip(scene.files()[0], 0)
    assert scene.open().read_only

    assert list(range(1, 81)) == list(scene.read("t"))


# Directories that no writer leaves behind.


def spoil_with_directory(root, path):
    (root / path).unlink(missing_ok=True)
    (root / path).mkdir()


def spoil_with_empty_file(root, path):
    (root / path).write_bytes(b"")


def spoil_with_link(root, path):
    (root / path).unlink(missing_ok=True)
    (root / path).symlink_to("/dev/null")


@pytest.mark.parametrize("spoil", [spoil_with_directory, spoil_with_empty_file, spoil_with_link])
@pytest.mark.parametrize(
    "path",
    [
        file_path(1),
        file_path(0),
        file_path(99),
        file_path(99_999_999_999_999_999_999),
        f"{DIRECTORY}/CURRENT",
        f"{DIRECTORY}/next.tmp",
        "FORMAT",
        "FORMAT.tmp",
        "wal/gen-1",
        "wal/gen-0/shard-07",
    ],
)
def test_a_directory_that_something_has_spoiled_opens_or_is_refused_in_words(tmp_path, spoil, path):
    with topics.open(tmp_path) as store:
        store.create("t", durability="fsync")
        store.topic("t").put(1)
    spoil(tmp_path, path)

    refused = None
    try:
        with topics.open(tmp_path) as store:
            assert store.read_only or path == file_path(1) or store.topic("t").state().count == 1
    except CannotOpen as error:
        refused = error
    assert refused is None or str(tmp_path) in str(refused)


@pytest.mark.rule("T4.2")
def test_an_unreadable_file_is_an_error_of_the_disk_and_nothing_is_changed():
    scene = stored(shards=2)
    mutations = scene.disk.mutations
    for nth in range(3):  # FORMAT and two logs
        scene.disk.inject("read", at=scene.disk.counts["read"] + nth)
        with pytest.raises(OSError, match=r"EIO|I/O|error"):
            scene.open()
        scene.disk.heal()
    assert mutations == scene.disk.mutations
    assert not scene.open().read_only


@pytest.mark.rule("T3.6", "T4.2")
@pytest.mark.parametrize(("shards", "generation"), [(1, 0), (2, 0), (3, 1)])
def test_a_format_that_lags_behind_the_logs_begins_a_new_generation(shards, generation):
    scene = stored(shards=2)
    scene.options = Scene(shards=3).options
    scene.open()
    scene.put("t", b"7")
    scene.shut_down()
    form = {"format": 1, "shards": shards, "generation": generation}
    write_file(scene.disk, "FORMAT", json.dumps(form).encode())
    scene.options = Scene().options
    for _ in range(3):
        assert not scene.open().read_only
        assert list(scene.read("t").values())[3:4] == [b"7"]
        scene.put("t", b"8")
        scene.shut_down()
    assert scene.open().generation == (1 if generation else 2)


@pytest.mark.rule("T4.9")
def test_a_shard_whose_log_is_gone_while_another_has_records_is_damage():
    scene = stored(shards=3)
    (path,) = scene.files(1)
    scene.disk.unlink(path)

    opened = scene.open()
    assert opened.read_only
    assert "shard 1" in str(opened.damages[0])


@pytest.mark.rule("T3.6", "T3.7", "T4.9")
@pytest.mark.parametrize("landed", [Landed.NONE, Landed.ALL])
def test_a_shard_count_changed_again_before_the_first_change_was_through_is_no_damage(landed):
    """FORMAT may name a generation of which some shards have no file yet; the next change leaves the rest alone."""
    for first in range(1, 40, 4):
        for second in range(first % 4, 50, 4):
            scene = stored()
            for shards, at in ((3, first), (2, second)):
                scene.options = Scene(shards=shards).options
                scene.disk.crash_at(at, landed)
                with suppress(SimCrash):
                    scene.open()
                scene.disk.heal()
                scene.power_loss(Shape.NOTHING)

            opened = scene.open()

            assert not opened.read_only, (first, second, opened.damages)
            assert len(scene.read("t")) == 3


@pytest.mark.rule("T4.9")
@pytest.mark.parametrize("depth", [1, 2, 3], ids=["wal", "generation", "shard"])
def test_a_log_that_is_gone_as_a_whole_is_damage_if_a_snapshot_was_taken_in_it(depth):
    """Its directory, too: an empty one is as bad as none. What was written behind the snapshot is missed."""
    scene = Scene()
    scene.open()
    scene.put("t", 1, 2, 3)
    scene.sync()
    scene.checkpoint()
    scene.put("t", 4)
    scene.sync()
    scene.process_death()
    gone = "/".join("wal/gen-0/shard-00".split("/")[:depth])
    for name in scene.disk.names("wal/gen-0/shard-00"):
        scene.disk.unlink(f"wal/gen-0/shard-00/{name}")
    directory = "wal/gen-0/shard-00"
    while directory.startswith(gone):
        scene.disk.remove_dir(directory)
        directory = directory.rpartition("/")[0]
    scene.open()

    assert scene.opened.read_only
    assert "a snapshot was taken in this file, and it is not there" in str(scene.opened.damages[0])
    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3"}


@pytest.mark.rule("T4.9")
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("gone", ["wal", "wal/gen-0/shard-00/*"])
def test_a_directory_that_was_in_use_and_has_neither_log_nor_snapshot_is_damaged(tmp_path, gone, earlier):
    """LOCK remembers that a recovery was completed here: it would have left a log. `earlier`: no more than that."""
    with topics.open(tmp_path) as store:
        store.topic("t").put({"n": 1})
    if earlier:
        owner = read_owner(tmp_path)
        (tmp_path / "LOCK").write_bytes(attrs.evolve(owner, begun=()).encode())
    for path in tmp_path.glob(gone):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with topics.open(tmp_path) as store:
        assert store.read_only
        assert [damage.why for damage in store.damages] == [
            "there is no log and no whole snapshot, and LOCK says that the store was in use"
            if earlier
            else "shard 0 of generation 0 has no log, and LOCK says that it had begun"
        ]
    found = fsck(ReadOnlyDisk(tmp_path), where="here")
    assert [(one.check, one.file) for one in found.errors] == [("wal.damage", file_path(1))]


@pytest.mark.parametrize(
    "name", ["snapshot.99999999999999999999.bin", "snapshot.00001.bin", "snapshot.0000.bin"]
)
def test_a_file_that_has_nearly_the_name_of_a_snapshot_is_a_strangers(name):
    """Numbers go on behind the largest, so one that nobody wrote could leave no room for the next."""
    scene = Scene()
    scene.open()
    scene.put("t", 1)
    scene.checkpoint()
    scene.process_death()
    write_file(scene.disk, f"meta/{name}", b"x")
    scene.open()
    scene.checkpoint()

    assert not scene.opened.warnings
    assert sorted(scene.disk.names("meta")) == sorted(["snapshot.0001.bin", "snapshot.0002.bin", name])
    found = fsck(scene.disk, where="here").violations
    assert [(one.check, one.file) for one in found] == [("leftover", f"meta/{name}")]
