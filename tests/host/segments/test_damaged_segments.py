"""Damage in a segment takes the records it took: it is told at the start, and everything else goes on."""

from __future__ import annotations

import pytest

from tests.support.bad_sectors import BadSectors
from tests.support.segments import page, reopened, scene_with, walk
from topics.codec.segments.segidx import ENTRY_SIZE
from topics.engine.verify import digest
from topics.host.directory.layout import segment_path
from topics.log.reads.diff import DiffQuery
from topics.log.regions import SegmentId

pytestmark = pytest.mark.rule("T5.11")


def filled(scene, count=20, **config):
    scene.create("t", durability="fsync", **config)
    for i in range(count):
        scene.put("t", b"%d" % i, tag=[b"even" if i % 2 else b"odd"])
        scene.clock.advance(10)
    scene.sync()
    scene.checkpoint()
    return scene


def path(first, part="data"):
    return segment_path(1, first, part)


def lose(scene, first, *parts):
    """The files go while nobody looks."""
    scene.process_death()
    for part in parts:
        scene.disk.unlink(path(first, part))
    scene.open()


def segments(scene):
    return [(s.first, s.last, s.sealed) for s in scene.engine.state.catalog.find("t").segments]


LOSSES = [("data",), ("data", "idx"), ("data", "col"), ("data", "idx", "col")]


@pytest.mark.parametrize("parts", LOSSES, ids="-".join)
def test_a_store_whose_sealed_segment_is_gone_says_so_and_is_written_to_as_before(parts):
    """At this start and at every one after it, with checkpoints in between."""
    scene = filled(scene_with(1))
    lose(scene, 1, *parts)
    for i in range(4):
        assert not scene.opened.read_only
        (damage,) = scene.opened.damages
        assert (damage.file, damage.in_log) == (SegmentId(1, 1), False)
        assert (damage.topic, damage.first_seq, damage.last_seq) == ("t", 1, 8)
        assert path(1) in str(damage)
        assert scene.put("t", b"new").first_seq == 21 + i
        assert scene.engine.topic_state("t").head_seq == 21 + i
        assert walk(scene) == (list(range(9, 22 + i)), list(range(1, 9)))
        scene.sync()
        scene.checkpoint()
        assert scene.engine.topic_state("t").durable_seq == 21 + i
        reopened(scene)


@pytest.mark.parametrize("parts", LOSSES, ids="-".join)
def test_a_filter_does_not_pass_by_records_whose_labels_went_with_their_bytes(parts):
    scene = filled(scene_with(1))
    lose(scene, 1, *parts)
    found, told = walk(scene, match=None, nodes=frozenset({b"n"}))
    assert (found, told) == (list(range(9, 21)), list(range(1, 9)))
    assert page(scene, DiffQuery(topic="t", from_ts=0))[0] is None


def test_records_that_are_cut_off_are_named_and_those_before_them_are_read():
    scene = filled(scene_with(1))
    scene.process_death()
    scene.disk.truncate(path(9), 300)
    scene.open()

    (damage,) = scene.opened.damages
    assert (damage.first_seq, damage.last_seq) == (14, 16)
    assert walk(scene) == ([*range(1, 14), *range(17, 21)], [14, 15, 16])


@pytest.mark.parametrize("parts", [("data",), ("data", "idx")], ids="-".join)
def test_a_damaged_segment_that_was_to_grow_is_sealed_and_nothing_is_put_into_it(parts):
    scene = filled(scene_with(1))
    assert segments(scene)[-1] == (17, 20, False)
    lose(scene, 17, *parts)
    assert [damage.first_seq for damage in scene.opened.damages] == [17]
    scene.put("t", b"21", b"22")
    scene.sync()
    scene.checkpoint()

    assert segments(scene)[-2:] == [(17, 20, True), (21, 22, False)]
    assert scene.disk.size(path(17)) is None
    assert walk(scene) == ([*range(1, 17), 21, 22], [17, 18, 19, 20])
    reopened(scene)
    assert not scene.opened.read_only
    assert [(damage.first_seq, damage.last_seq) for damage in scene.opened.damages] == [(17, 20)]
    assert walk(scene) == ([*range(1, 17), 21, 22], [17, 18, 19, 20])


def test_the_files_of_a_damaged_segment_are_left_as_they_are():
    """Its idx knows more of the lost records than its data: times and sizes, by which they end when they should."""
    scene = filled(scene_with(1))
    scene.process_death()
    scene.disk.truncate(path(1), 300)
    scene.disk.truncate(path(17), 100)
    kept = {name: scene.disk.content(name) for first in (1, 17) for name in (path(first), path(first, "idx"))}
    scene.open()
    for _ in range(3):
        scene.put("t", b"new")
        scene.sync()
        scene.checkpoint()
        reopened(scene)

    assert {name: scene.disk.content(name) for name in kept} == kept


@pytest.mark.parametrize("lost", [(), ("data",), ("data", "idx"), ("data", "idx", "col")], ids="-".join)
@pytest.mark.parametrize("config", [{"ttl_ms": 150}, {"cap_records": 14}], ids=str)
def test_a_lost_record_ends_no_sooner_than_it_would_have_and_not_later_than_those_behind_it(lost, config):
    scene = filled(scene_with(1), **config)
    lose(scene, 9, *lost)
    base = scene.engine.topic_state("t").earliest_seq
    floors = []
    for i in range(20):
        scene.clock.advance(10)
        scene.put("t", b"%d" % i)
        floors.append(scene.engine.topic_state("t").earliest_seq)
    known = filled(scene_with(1), **config)
    expected = []
    reopened(known)
    for i in range(20):
        known.clock.advance(10)
        known.put("t", b"%d" % i)
        expected.append(known.engine.topic_state("t").earliest_seq)

    if "idx" not in lost or "cap_records" in config:
        assert floors == expected
    else:  # their times are lost: they are as young as what is behind them
        assert all(floor <= right for floor, right in zip(floors, expected, strict=True))
    assert base > 1
    assert floors[-1] == expected[-1] > 17


def test_a_segment_is_dropped_when_its_records_have_ended_damaged_or_not():
    scene = filled(scene_with(1), cap_records=10)
    lose(scene, 11, "data")
    assert [damage.first_seq for damage in scene.opened.damages] == [11]
    for _ in range(3):
        scene.put("t", *[b"x"] * 8)
        scene.sync()
        scene.checkpoint()

    assert scene.disk.size(path(11, "idx")) is None
    assert not reopened(scene).opened.damages


def test_damage_in_the_log_is_still_the_end_of_writing_and_both_are_told():
    scene = filled(scene_with(1))
    scene.put("t", b"21")
    scene.shut_down()
    scene.disk.unlink(path(1))
    files = scene.files()
    scene.disk.flip(files[-1], scene.disk.content(files[-1]).rindex(b"21") * 8)
    scene.open()

    assert scene.opened.read_only
    assert {damage.in_log for damage in scene.opened.damages} == {False, True}
    assert "wal file" in str(scene.engine.state.shards[0].read_only)


def test_damage_that_is_mended_is_gone_without_a_trace():
    """The file is put back, as from a backup: the next start finds nothing, and every record is served."""
    scene = filled(scene_with(1))
    data, idx = scene.disk.content(path(1)), scene.disk.content(path(1, "idx"))
    lose(scene, 1, "data", "idx")
    assert scene.opened.damages
    scene.put("t", b"21")
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    scene.disk.create(path(1), 0)
    scene.disk.write(path(1), 0, [data])
    scene.open()

    assert not scene.opened.damages
    assert walk(scene) == (list(range(1, 22)), [])
    assert len(idx) == 8 * ENTRY_SIZE + 12


def test_what_is_dead_may_be_lost():
    """A record that nobody can read any more is no damage."""
    scene = filled(scene_with(1))
    scene.delete("t", before_seq=9)
    scene.delete("t", match="even")
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    scene.disk.truncate(path(9), 0)
    scene.open()

    (damage,) = scene.opened.damages
    assert (damage.first_seq, damage.last_seq) == (9, 15)
    assert "4 of 8" in damage.why
    assert walk(scene, from_seq=8) == ([17, 19], list(range(9, 16)))


@pytest.mark.parametrize("part", ["idx", "col"])
def test_an_idx_or_columns_that_the_medium_does_not_give_are_made_anew_from_the_data(part):
    """A start needs neither: a bad sector there is no reason not to open, and a new file has other sectors."""
    scene = filled(scene_with(1, port=BadSectors))
    before, state = walk(scene), digest(scene.engine.state.catalog)
    content = scene.disk.content(path(1, part))
    scene.port.spoil(path(1, part))
    reopened(scene)
    assert not scene.opened.damages
    scene.port.bad.clear()
    assert (walk(scene), digest(scene.engine.state.catalog)) == (before, state)
    assert scene.disk.content(path(1, part)) == content


def test_of_a_damaged_record_a_block_that_is_whole_still_knows_the_labels():
    """Another block is damaged, so the columns are made anew from the data, which does not have all of them."""
    scene = filled(scene_with(1), 4)
    scene.put("t", *[b"behind"] * 4, tag=[b"behind"] * 4)
    scene.sync()
    scene.checkpoint()
    state = digest(scene.engine.state.catalog)
    scene.process_death()
    scene.disk.flip(path(1), 100 * 8)  # of the second record
    scene.disk.truncate(path(1, "col"), scene.disk.size(path(1, "col")) - 1)
    for _ in range(2):
        scene.open()
        assert digest(scene.engine.state.catalog) == state
        assert walk(scene) == ([1, 3, 4, 5, 6, 7, 8], [2])
        scene.process_death()


def test_data_that_the_medium_does_not_give_is_not_taken_for_missing():
    """Nothing follows from a read that failed: a start that needs the data itself says so, and changes nothing."""
    scene = filled(scene_with(1, port=BadSectors))
    scene.port.spoil(path(1, "data"))
    scene.port.spoil(path(1, "idx"))
    scene.process_death()
    before = {name: scene.disk.content(name) for name in (path(1, "data"), path(1, "idx"))}
    with pytest.raises(OSError, match="Input/output error"):
        scene.open()
    assert before == {name: scene.disk.content(name) for name in before}
