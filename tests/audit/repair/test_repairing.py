"""A repaired directory holds what its read-only view showed, and opens for writing."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.support.planting import KINDS, plant
from tests.support.repaired import STAMP, mended, merged, open_it, view
from tests.support.sample_store import CLICKS, FLEETING, ORDERS, build, disk_of, files_of
from tests.support.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.engine.commands import Append
from topics.host.directory.layout import segment_path
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import CannotOpen, Unusable
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

NOT_OF_FILES = (
    "acknowledged", "queue.", "kv.journal", "weaver.journal", "snapshot.agree", "tombstones", "segment.ts", "archive",
    "cold", "newer",
)  # fmt: skip
REPAIRABLE = sorted(kind for kind in KINDS if not kind.startswith(NOT_OF_FILES))


@pytest.fixture(scope="module")
def sample():
    return build()


def expected(before, missing=None):
    """The same, in which what cannot be had is lost, and what may have been behind the head: so many seqs, by topic."""
    after = {}
    for name, (records, lost, floors, past) in before.items():
        gone = {seq for seq, data in records.items() if data is None}
        kept = {seq: data for seq, data in records.items() if seq not in gone}
        (head, *others), count = floors, (missing or {}).get(name, 0)
        behind = [(head + 1, head + count)] if count and name != FLEETING else []
        if name == FLEETING and count:
            others[2] = max(others[2], head) + count  # the ceiling, to which a start goes
        elif count:
            head += count
        after[name] = (
            kept,
            merged([*lost, *((seq, seq) for seq in gone), *behind]),
            (head, *others),
            past,
        )
    return after


@pytest.mark.rule("T4.11", "T4.21")
@pytest.mark.parametrize("kind", REPAIRABLE)
def test_a_repaired_directory_is_the_read_only_view(sample, kind):
    for seed in range(2):
        files = dict(sample.files)
        plant(files, kind, seed)
        disk = disk_of(files)
        # A lying idx hides a record that is whole: a repair finds it again.
        before = view(disk_of(sample.files) if kind == "segment.idx: it lies" else disk)
        done = mended(disk)
        after = view(disk)

        assert after == expected(before, done.missing)
        assert not fsck(disk, where="a sample", options=Options(settled=True)).errors


@pytest.mark.rule("T4.11")
def test_a_repaired_store_opens_for_writing_and_tells_readers_what_is_lost(sample):
    files = dict(sample.files)
    planted = plant(files, "segment.record: a flipped bit")
    logged = plant(files, "wal.damage: a flipped bit")
    disk = disk_of(files)
    done = mended(disk)
    opened = open_it(disk)
    ticket = opened.engine.propose(Append(topic=ORDERS, records=RecordColumns([b"1"])))
    opened.writers[0].drain()
    opened.writers[1].drain()
    lost = {topic.name: list(topic.index.lost) for topic in opened.engine.state.catalog.topics.values()}

    assert ticket.result().count == 1
    assert done.lost == {ORDERS: [(planted.seq, planted.seq)], CLICKS: [(logged.seq, logged.seq)]}
    assert not done.holes
    assert [(one.first, one.last, one.reason) for one in lost[ORDERS]] == [
        (planted.seq, planted.seq, "corrupt")
    ]
    assert (logged.seq, logged.seq, "corrupt") in [(one.first, one.last, one.reason) for one in lost[CLICKS]]
    assert not opened.damages


def test_a_damaged_record_that_had_been_deleted_is_told_as_dropped_and_not_as_lost():
    scene = Scene(limits=SMALL)
    scene.open()
    scene.put("t", *[b'"record %d"' % n for n in range(6)], tag=[b"", b"", b"x", b"", b"", b"y"])
    scene.sync()
    scene.checkpoint()
    scene.delete("t", match="x")
    scene.sync()
    scene.process_death()
    path = segment_path(1, 1, "data")
    data = scene.disk.content(path)
    for payload in (b"record 2", b"record 4"):  # seqs 3 and 5
        scene.disk.flip(path, data.index(payload) * 8)
    done = mended(scene.disk)

    assert done.dropped == {"t": [3]}
    assert done.lost == {"t": [(5, 5)]}
    assert not fsck(scene.disk, where="it", options=Options(settled=True)).errors


def test_nothing_is_deleted_and_what_is_changed_is_kept_aside(sample):
    files = dict(sample.files)
    planted = plant(files, "segment.record: a flipped bit")
    disk = disk_of(files)
    done = mended(disk)
    after = files_of(disk)
    kept = {
        path.removeprefix(f"{done.aside}/"): data
        for path, data in after.items()
        if path.startswith(done.aside)
    }

    assert done.aside == f"repaired-{STAMP}"
    assert kept[planted.file] == files[planted.file]
    assert all(kept.get(path) == data or after.get(path) == data for path, data in files.items())


def test_a_directory_without_damage_is_left_alone(sample):
    disk = disk_of(sample.files)
    done = mended(disk)

    assert not done.aside
    assert files_of(disk) == sample.files


def test_without_any_snapshot_a_repair_is_refused_and_nothing_changed(sample):
    files = dict(sample.files)
    plant(files, "snapshot: a flipped bit")
    plant(files, "snapshot: a flipped bit in the older one")
    disk = disk_of(files)
    with pytest.raises(CannotOpen, match="restore the directory from a backup"):
        mended(disk)

    assert files_of(disk) == files


def on_simulated_disk(files, mounts=()):
    disk = SimDisk(3, mounts=mounts)
    for path, data in files.items():
        parent = path.rpartition("/")[0]
        if parent:
            disk.make_dir(parent)
        disk.create(path, 0)
        disk.write(path, 0, [data])
        disk.sync_data(path)
    for directory in ["", *{parent for path in files for parent in parents(path)}]:
        disk.sync_dir(directory)
    return disk


def parents(path):
    parts = path.split("/")[:-1]
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def strike(snapshot, call, landed, power):
    """Repair, with the world ending at this call; then again."""
    disk = SimDisk(3)
    disk.restore(snapshot)
    disk.crash_at(call, landed)
    try:
        mended(disk)
    except SimCrash:
        pass
    else:
        return None
    if power:
        disk.power_loss(Shape.RANDOM_PAGES, call)
    else:
        disk.process_death()
    repair(disk, where="a sample", same_boot=False, stamp=f"{STAMP}-2")
    return view(disk)


ENDS = tuple(
    itertools.product(Landed, (False, True))
)  # how much of the call took effect, and a power cut or not
FEW_ENDS = ((Landed.PART, True), (Landed.ALL, False))


def wound(sample):
    files = dict(sample.files)
    for kind in ("segment.record: a flipped bit", "wal.damage: a flipped bit", "segment.idx: gone"):
        plant(files, kind, 1)
    return files


@pytest.fixture(
    scope="module", params=[(), ("wal",), ("topics", "meta")], ids=["one disk", "wal apart", "topics apart"]
)
def wounded(sample, request):
    disk = on_simulated_disk(wound(sample), request.param)
    ends = FEW_ENDS if request.param else ENDS
    return disk.snapshot(), expected(view(disk)), ends


def kept_in(disk, files):
    """Which of these files lie where they were, or are kept under their path in a directory of a repair."""
    after = files_of(disk)
    asides = [name for name in disk.names("") if name.startswith("repaired-")]
    places = {path: [path, *(f"{aside}/{path}" for aside in asides)] for path in files}
    return {path for path, data in files.items() if any(after.get(place) == data for place in places[path])}


@pytest.mark.rule("T4.11")
@pytest.mark.parametrize("mounts", [("wal",), ("topics",), ("wal", "topics", "meta")])
def test_a_folder_on_a_disk_of_its_own_is_repaired_like_any_other(sample, mounts):
    files = wound(sample)
    disk = on_simulated_disk(files, mounts)
    before = view(disk)
    done = mended(disk)

    assert view(disk) == expected(before)
    assert not fsck(disk, where="a sample", options=Options(settled=True)).errors
    assert kept_in(disk, files) == set(files)
    assert not [path for path in files_of(disk) if path.endswith(".tmp") and not path.endswith("next.tmp")]
    assert disk.names("wal") == []
    assert any(path.startswith(f"{done.aside}/wal/") for path in files_of(disk))


@pytest.mark.rule("T4.11")
def test_whatever_a_power_cut_takes_of_a_repair_no_file_is_lost(sample):
    files = wound(sample)
    before = on_simulated_disk(files, ("wal",)).snapshot()
    for call in range(0, 400, 11):
        disk = SimDisk(3)
        disk.restore(before)
        disk.crash_at(call, Landed.ALL)
        try:
            mended(disk)
        except SimCrash:
            disk.power_loss(Shape.NOTHING, call)

        assert kept_in(disk, files) == set(files), call


def struck(wounded, calls):
    """How many points were struck, and the call behind the last, if there is none."""
    snapshot, wanted, ends = wounded
    count = 0
    for call in calls:
        for landed, power in ends:
            after = strike(snapshot, call, landed, power)
            if after is None:
                return count, call
            assert after == wanted, (call, landed, power)
            count += 1
    return count, None


@pytest.mark.rule("T4.11")
def test_a_repair_that_was_broken_off_is_done_again_with_the_same_result(wounded, record_property):
    count, _ = struck(wounded, range(3, 400, 97))

    assert count
    record_property("crash points", count)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_repair_may_break_off_at_every_call(wounded, record_property):
    count, last = struck(wounded, range(10_000))

    assert last is not None
    record_property("crash points", count)


def test_what_nobody_counts_is_put_aside_and_nothing_else_is_touched(sample):
    files = dict(sample.files)
    planted = [
        plant(files, kind) for kind in ("leftover: a segment of nobody", "leftover: a stranger's file")
    ]
    disk = disk_of(files)
    done = mended(disk)
    after = files_of(disk)

    assert after.pop(f"{done.aside}/{planted[0].file}") == files[planted[0].file]
    assert after == {path: data for path, data in files.items() if path != planted[0].file}
    assert done.segments == 0


def test_a_directory_whose_cold_tier_is_not_named_is_not_repaired(sample):
    files = dict(sample.files) | {"COLD": b"a note"}
    plant(files, "segment.record: a flipped bit")
    disk = disk_of(files)
    with pytest.raises(CannotOpen, match="cold_dir"):
        mended(disk)

    assert files_of(disk) == files


def test_a_repair_for_which_there_is_no_room_is_refused_in_words_before_it_begins(sample):
    files = dict(sample.files)
    plant(files, "segment.record: a flipped bit")
    disk = on_simulated_disk(files)
    disk.set_free(8 << 10)
    with pytest.raises(
        CannotOpen, match=r"a sample: a repair takes up to \d+ bytes there and 8192 are free"
    ) as refused:
        mended(disk)

    assert refused.value.reason is Unusable.NO_SPACE
    assert files_of(disk) == files


@pytest.mark.parametrize("number", [0, 1, 4, 8])
def test_a_repair_that_a_full_disk_ends_leaves_nothing_behind_and_is_done_again(sample, number):
    files = dict(sample.files)
    plant(files, "segment.record: a flipped bit")
    disk = on_simulated_disk(files)
    before = view(disk)
    full = disk.inject("write", FaultKind.ENOSPC, at=disk.counts["write"] + number, times=None)
    with pytest.raises(OSError, match="space"):
        mended(disk)
    disk.heal(full)

    assert files_of(disk) == files
    mended(disk)
    assert view(disk) == expected(before)


def edited(files, rng):
    """One to three files with a bit that flipped, an end that is gone, or a stretch of zeros."""
    for _ in range(rng.randrange(1, 4)):
        path = rng.choice([path for path in files if path != "FORMAT"])
        data = bytearray(files[path])
        at = rng.randrange(len(data))
        how = rng.randrange(3)
        if how == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del data[at:]
        else:
            data[at : at + 100] = bytes(len(data[at : at + 100]))
        files[path] = bytes(data)


@pytest.mark.rule("T4.21")
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_damaged_a_repair_keeps_all_that_was_shown(sample, seed):
    """It may find more: whole records that a damaged idx, or data with a piece missing, has at another place."""
    files = dict(sample.files)
    edited(files, random.Random(seed))
    disk = disk_of(files)
    before = view(disk)
    done = mended(disk)
    before = expected(before, done.missing)
    after = view(disk)

    assert after.keys() == before.keys()
    for name, (records, lost, floors, past) in before.items():
        assert records.items() <= after[name][0].items()
        assert merged([*after[name][1], *lost]) == lost
        assert after[name][2:] == (floors, past)
    errors = fsck(disk, where="a sample", options=Options(settled=True)).errors
    assert [one for one in errors if not one.check.endswith(".journal")] == []
