"""A store of format 1 is raised at its first opening for writing: its files get seals, and those of another segment are
found out at last (decisions 45 and 46).
"""

import errno
import json

import pytest

from tests.crash.format_one import lower, replace
from tests.embed.golden_store import paths
from tests.host.segments.test_swapped_files import (
    NEIGHBOURS,
    PARTS,
    TOPICS,
    content,
    is_as_before,
    store,
    swap,
    tiered,
    view,
    whole,
)
from tests.support.bad_sectors import BadSectors
from tests.support.cold_tier import cold_of
from tests.support.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.engine.verify import digest
from topics.host.directory.layout import FORMAT_VERSION, segment_of, segment_path
from topics.host.segments.segment_seals import OF_FORMAT_1, seal_of
from topics.kernel.errors import CannotOpen, Corrupt, Unusable
from topics.store.viewing import view_store
from topics.testing.faults import FaultKind, Landed, SimCrash

__all__ = ["tiered"]  # a fixture


def old():
    scene = store()
    lower(scene.disk)
    return scene


def form_of(scene):
    return json.loads(scene.disk.content("FORMAT"))


def parts_of(scene):
    """(segment, part, bytes) of each file beside a segment's data."""
    found = [(segment_of(path), path) for path in paths(scene.disk, "topics")]
    return [
        (segment, path.rpartition(".")[2], scene.disk.content(path))
        for segment, path in found
        if segment is not None and not path.endswith(".data")
    ]


def reads(seal, part, data):
    """Whether the file is whole under this seal."""
    try:
        return {"idx": seal.idx, "del": seal.ends}[part](data) is not None
    except Corrupt:
        return False
    except KeyError:
        return seal.blocks(data, 1, 2**64 - 1)[1] == len(data)


def all_sealed(scene):
    return all(reads(seal_of(scene.disk, *segment), part, data) for segment, part, data in parts_of(scene))


@pytest.mark.rule("T1.3", "T5.4")
def test_a_raised_store_has_an_id_and_seals():
    scene = old()
    assert all(reads(OF_FORMAT_1, part, data) for _, part, data in parts_of(scene))
    scene.open()

    is_as_before(scene)
    form = form_of(scene)
    assert (form["format"], "raising" in form, len(form["store"])) == (FORMAT_VERSION, False, 32)
    assert all_sealed(scene)
    assert len(parts_of(scene)) > 12


def test_two_stores_have_different_ids_and_none_reads_the_others_files():
    ids, files = [], []
    for seed in (1, 2):
        scene = old()
        scene.entropy = type(scene.entropy)(seed)
        scene.open()
        ids.append(form_of(scene)["store"])
        files.append(parts_of(scene))
        mine = scene
    assert ids[0] != ids[1]
    assert not any(reads(seal_of(mine.disk, *segment), part, data) for segment, part, data in files[0])


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS, ids=str)
@pytest.mark.parametrize("parts", [("idx",), ("col",), ("idx", "col"), ("data",), PARTS], ids="-".join)
def test_the_files_of_another_segment_are_found_out_when_it_is_raised(parts, one, other):
    """All of the data is held against them, once."""
    scene = old()
    swap(scene, one, other, *parts)
    scene.open()

    if "data" not in parts:
        is_as_before(scene)
        assert all_sealed(scene)
    else:
        assert {damage.topic for damage in scene.opened.damages} == {
            "tuv"[topic - 1] for topic, _ in (one, other)
        }


@pytest.mark.parametrize("part", ["idx", "col"])
@pytest.mark.parametrize("at", [0, 30, -1])
def test_a_damaged_file_is_made_anew(part, at):
    scene = old()
    path = segment_path(1, 1, part)
    data = bytearray(content(scene, path))
    data[at] ^= 1
    replace(scene.disk, path, bytes(data))
    scene.open()

    is_as_before(scene)
    assert all_sealed(scene)


@pytest.mark.rule("T5.2", "T5.4")
def test_the_columns_of_a_cold_segment_are_kept_if_its_idx_is_damaged(tiered):
    """Where there is no data to make them from, nothing else says which tags there are."""
    path = segment_path(1, 1, "idx")
    lower(tiered.disk)
    tiered.disk.write(path, 5, [bytes([tiered.disk.content(path)[5] ^ 1])])
    tiered.cold = None
    tiered.open()
    assert "raising" not in form_of(tiered)
    assert reads(seal_of(tiered.disk, 1, 1), "col", tiered.disk.content(segment_path(1, 1, "col")))
    tiered.process_death()
    tiered.cold = cold_of(tiered.disk)
    tiered.open()
    assert not tiered.opened.damages
    assert digest(tiered.engine.state.catalog) == tiered.right


@pytest.mark.rule("T5.2", "T5.4")
@pytest.mark.parametrize("other", [None, (2, 1), (1, 9)])
def test_columns_without_an_idx_are_held_against_the_data(other):
    """They know more than the data of a damaged record; those of another segment are not believed."""
    scene = old()
    idx = OF_FORMAT_1.idx(content(scene, segment_path(1, 1, "idx")))
    if other is not None:
        swap(scene, (1, 1), other, "col")
    scene.flip(segment_path(1, 1, "data"), idx.offsets[2] + 40)
    scene.flip(segment_path(1, 1, "idx"), 5)
    scene.open()

    sealed = reads(seal_of(scene.disk, 1, 1), "col", content(scene, segment_path(1, 1, "col")))
    assert sealed == (other is None)
    assert reads(seal_of(scene.disk, 2, 1), "col", content(scene, segment_path(2, 1, "col")))


def test_what_its_files_know_of_a_damaged_record_is_kept():
    scene = old()
    idx = OF_FORMAT_1.idx(content(scene, segment_path(1, 1, "idx")))
    scene.flip(segment_path(1, 1, "data"), idx.offsets[2] + 40)
    scene.open()

    assert not scene.opened.damages
    assert digest(scene.engine.state.catalog) == whole()[0]
    assert all_sealed(scene)


@pytest.mark.rule("T5.11")
@pytest.mark.parametrize("first", [1, 17])
@pytest.mark.parametrize("part", PARTS)
def test_a_file_that_the_medium_does_not_give_keeps_no_store_from_being_raised(part, first):
    """The opening does with it what it does in a store of this format; a medium that is well again has lost nothing."""
    scene = old()
    path = segment_path(1, first, part)
    scene.port = BadSectors(scene.disk)
    scene.port.spoil(path, 20, 21)
    scene.open()

    assert not scene.opened.read_only
    assert not scene.opened.damages
    assert "raising" not in form_of(scene)
    assert digest(scene.engine.state.catalog) == whole()[0]
    scene.port.bad.clear()
    is_as_before(scene)


@pytest.mark.parametrize("after", [0, 1, 7])
@pytest.mark.parametrize("op", ["create", "write"])
def test_a_full_disk_refuses_to_raise_a_store_and_says_what_to_do(op, after):
    scene = old()
    before = paths(scene.disk, "")
    fault = scene.disk.inject(op, FaultKind.ENOSPC, at=scene.disk.counts[op] + after, times=None)
    with pytest.raises(CannotOpen, match="free some, or open it read-only") as refused:
        scene.open()
    assert refused.value.reason is Unusable.NO_SPACE
    assert set(paths(scene.disk, "")) <= {*before, "LOCK"}
    assert ("raising" in form_of(scene)) == (after > 0)
    seen = view_store(scene.disk, scene.clock, where="simulated", same_boot=True)
    assert not seen.damages
    assert digest(seen.engine.state.catalog) == whole()[0]

    scene.disk.heal(fault)
    scene.open()
    is_as_before(scene)
    assert all_sealed(scene)


def test_a_disk_that_fails_otherwise_ends_the_raise_and_the_next_opening_goes_on():
    scene = old()
    scene.port = BadSectors(scene.disk)
    scene.port.errno = errno.EMFILE
    scene.port.spoil(segment_path(1, 1, "data"), 20, 21)
    with pytest.raises(OSError, match="Too many open files"):
        scene.open()
    scene.port.bad.clear()
    scene.open()
    is_as_before(scene)
    assert all_sealed(scene)


def test_wherever_it_breaks_off_the_store_is_whole_to_readers_and_the_next_opening_ends_it():
    scene = old()
    before = scene.disk.mutations
    scene.open()
    calls = scene.disk.mutations - before
    assert calls > 30
    for call in range(0, calls, 3):
        scene = old()
        scene.disk.crash_at(call, Landed.ALL)
        with pytest.raises(SimCrash):
            scene.open()
        scene.process_death()
        seen = view_store(scene.disk, scene.clock, where="simulated", same_boot=True)
        assert not seen.damages
        assert digest(seen.engine.state.catalog) == whole()[0]
        assert not fsck(scene.disk, where="simulated", options=Options(settled=True)).errors
        scene.open()
        is_as_before(scene)
        assert all_sealed(scene)
        assert "raising" not in form_of(scene)


def test_it_asks_nothing_of_the_cold_tier(tiered):
    lower(tiered.disk)
    tiered.cold = None
    tiered.open()
    assert not tiered.opened.damages
    assert digest(tiered.engine.state.catalog) == tiered.right
    assert all_sealed(tiered)
    tiered.process_death()
    tiered.cold = cold_of(tiered.disk)
    tiered.open()
    assert not tiered.opened.damages
    assert len(tiered.read("t")) == 20


def test_a_store_whose_log_is_damaged_is_left_as_it_is():
    scene = Scene(limits=SMALL)
    scene.open()
    for i in range(20):
        scene.put("t", b'"%d"' % i + b" " * 200)
        if i == 9:
            scene.sync()
            scene.checkpoint()
    scene.sync()
    scene.shut_down()
    lower(scene.disk)
    last = scene.files()[-1]
    scene.flip(last, scene.disk.content(last).index(b'"17"'))
    before = {path: scene.disk.content(path) for path in paths(scene.disk, "") if path != "LOCK"}
    scene.open()

    assert scene.opened.read_only
    assert before == {path: scene.disk.content(path) for path in before}
    scene.process_death()
    repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    assert form_of(scene)["raising"]
    scene.open()
    assert not scene.opened.read_only
    assert "raising" not in form_of(scene)
    assert all_sealed(scene)


@pytest.mark.parametrize("bit", range(0, 8 * 130, 7))
def test_every_flipped_bit_of_format_is_found_and_repaired(bit):
    scene = store()
    size = scene.disk.size("FORMAT")
    scene.flip("FORMAT", bit // 8 % size, bit % 8)
    assert fsck(scene.disk, where="simulated", options=Options(settled=True)).errors
    repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    scene.open()

    assert not scene.opened.damages
    assert {topic: view(scene, topic) for topic in TOPICS} == whole()[1]
    assert all_sealed(scene)
