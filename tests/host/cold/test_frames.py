"""What lies in the cold tier and is another store's is damage to a reader, and is served to nobody."""

from __future__ import annotations

import pytest

from tests.support.segments import segments
from tests.support.tiers import filled, half_dead, relocator, scene_with, worked
from topics.codec.segments.segment import walk
from topics.host.cold.frames import without_foreign
from topics.host.directory.layout import segment_path
from topics.kernel.errors import Corrupt
from topics.log.regions import SegmentId

ONE = SegmentId(1, 1)


def moved(*, later_ms=0, digit=b"1"):
    """Records of the same sizes under the same seqs, five segments of them in the cold tier."""
    scene = scene_with()
    scene.clock.advance(later_ms)
    scene.put("t", *[digit * 3] * 48)
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() == 5
    return scene


def swapped(**other):
    """A store whose first cold segment is that of another one."""
    scene, theirs = moved(), moved(**other)
    size = theirs.cold.len(ONE, "data")
    assert size == scene.cold.len(ONE, "data")
    scene.cold.store.put(ONE, {"data": theirs.cold.read_range(ONE, "data", 0, size)})
    return scene


def frames_of(data):
    """Where the eight frames begin, and where the last one ends."""
    return [*walk(data, 0, len(data), topic_id=1, first_seq=1).offsets, len(data)]


@pytest.mark.rule("T6.4", "T5.22")
def test_the_records_of_a_copy_are_damage_at_their_seqs_and_the_rest_is_served():
    scene = swapped(later_ms=1, digit=b"2")

    with pytest.raises(Corrupt, match=r"seqs 1-8 are damaged in .*go on with from_seq=8") as caught:
        scene.read("t")
    assert caught.value.detail["next_from_seq"] == 8
    _, records = scene.page("t", 8)
    assert {record.seq: record.data for record in records} == dict.fromkeys(range(9, 49), b"111")


@pytest.mark.rule("T5.13")
def test_the_records_of_a_copy_are_not_brought_back():
    scene = swapped(later_ms=1, digit=b"2")
    scene.delete("t", before_seq=7)
    for _ in range(3):
        worked(scene)

    assert "its records are not those that its idx counts" in relocator(scene).unmovable[ONE]


@pytest.mark.rule("T6.4")
def test_what_is_ours_is_given_as_it_is_from_any_record_on():
    scene = moved()
    found, disk = segments(scene)[0], scene.disk
    data = scene.cold.read_range(ONE, "data", 0, found.size)
    starts = frames_of(data)
    for number, start in enumerate(starts[:-1]):
        for stop in starts[number + 1 :]:
            piece = data[start : stop - 1]  # without the last delete byte
            assert without_foreign(disk, ONE, found, start, piece) == piece


@pytest.mark.rule("T6.4")
def test_one_foreign_record_is_damaged_and_no_other():
    scene, theirs = moved(), moved(later_ms=1)
    found = segments(scene)[0]
    data = scene.cold.read_range(ONE, "data", 0, found.size)
    start, stop = frames_of(data)[3:5]
    other = theirs.cold.read_range(ONE, "data", 0, found.size)
    mixed = data[:start] + other[start:stop] + data[stop:]
    given = without_foreign(scene.disk, ONE, found, 0, mixed)

    assert [at for at in range(len(mixed)) if given[at] != mixed[at]] == [stop - 2]


@pytest.mark.rule("T6.4")
@pytest.mark.parametrize("harm", ["gone", "short", "flipped"])
def test_without_an_index_that_can_be_read_nothing_is_said_of_a_record(harm):
    scene = moved()
    found, path = segments(scene)[0], segment_path(*ONE, "idx")
    data = scene.cold.read_range(ONE, "data", 0, found.size)
    if harm == "gone":
        scene.disk.unlink(path)
    elif harm == "short":
        scene.disk.truncate(path, 30)
    else:
        scene.flip(path, 8)

    assert without_foreign(scene.disk, ONE, found, 0, data) == data


@pytest.mark.rule("T6.4", "T5.8")
def test_deleted_records_and_rewritten_segments_are_ours():
    scene = scene_with()
    filled(scene)
    scene.relocate()
    half_dead(scene)
    for _ in range(4):
        worked(scene)
        scene.read("t")
    assert scene.opened.checkpointer.reclaimer.rewrites >= 1
