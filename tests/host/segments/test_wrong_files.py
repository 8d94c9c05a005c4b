"""Files of segments that are missing, cut, foreign or in the way: made again where they can be, told where not."""

from __future__ import annotations

import pytest

from tests.support.segments import reopened, scene_with, served
from topics.engine.verify import canonical
from topics.host.directory.layout import segment_path, topic_dir

pytestmark = pytest.mark.rule("T5.4", "T5.11")

SPOILS = {
    "missing": lambda own, other: None,
    "empty": lambda own, other: b"",
    "half": lambda own, other: own[: len(own) // 2],
    "one byte short": lambda own, other: own[:-1],
    "longer": lambda own, other: own + b"\0" * 20,
    "twice": lambda own, other: own + own,
    "zeros": lambda own, other: bytes(len(own)),
    "noise": lambda own, other: bytes((7 * i) % 251 for i in range(len(own))),
    "another's": lambda own, other: other,
    "flipped": lambda own, other: own[:5] + bytes([own[5] ^ 4]) + own[6:],
}


def filled():
    """Two topics alike but for their names, labelled and plain records, a sealed segment and one that grows."""
    scene = scene_with(1)
    for name in ("t", "u"):
        scene.create(name, durability="fsync")
        for i in range(1, 21):
            labels = (
                {"tag": [b"%b-%d" % (name.encode(), i % 3)], "node": [b"n"], "ttl_ms": [900_000]}
                if i % 2
                else {}
            )
            scene.put(name, b'"%b %d"' % (name.encode(), i), **labels)
            scene.clock.advance(10)
    scene.delete("t", match="t-0")
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    return scene


def spoil(scene, path, kind, other):
    content = SPOILS[kind](scene.disk.content(path), scene.disk.content(other))
    scene.disk.unlink(path)
    if content is not None:
        scene.disk.create(path, 0)
        if content:
            scene.disk.write(path, 0, [content])


def state(scene):
    return canonical(scene.engine.state.catalog)


@pytest.fixture(scope="module")
def whole():
    """What an unspoiled store says."""
    scene = filled()
    scene.open()
    return state(scene), served(scene)[0]


@pytest.mark.parametrize("kind", SPOILS)
@pytest.mark.parametrize("first", [1, 17], ids=["sealed", "growing"])
@pytest.mark.parametrize("part", ["idx", "col"])
def test_an_idx_or_col_that_is_not_right_is_made_again_from_the_data(part, first, kind, whole):
    scene = filled()
    other = segment_path(1, 9, part) if first == 1 else segment_path(2, 17, part)
    spoil(scene, segment_path(1, first, part), kind, other)
    scene.open()

    assert not scene.opened.damages
    assert state(scene) == whole[0]
    assert served(scene) == (whole[1], [])
    scene.put("t", b'"more"', tag=[b"x"])
    scene.sync()
    scene.checkpoint()
    reopened(scene)
    assert not scene.opened.damages
    assert served(scene) == (whole[1] | {21: b'"more"'}, [])


@pytest.mark.parametrize("first", [9, 17], ids=["sealed", "growing"])
def test_the_col_of_an_earlier_segment_of_the_topic_is_not_taken_for_its_own(first, whole):
    """It is intact and of this topic: only the seqs that it speaks of say that it is another's."""
    scene = filled()
    spoil(scene, segment_path(1, first, "col"), "another's", segment_path(1, first - 8, "col"))
    scene.open()

    assert not scene.opened.damages
    assert state(scene) == whole[0]
    scene.put("t", b'"more"', tag=[b"x"])
    scene.sync()
    scene.checkpoint()
    before = state(scene)
    reopened(scene)
    assert state(scene) == before
    assert served(scene) == (whole[1] | {21: b'"more"'}, [])


@pytest.mark.parametrize("kind", SPOILS)
@pytest.mark.parametrize("first", [1, 17], ids=["sealed", "growing"])
def test_of_data_that_is_not_right_everything_is_served_or_named(first, kind, whole):
    scene = filled()
    other = segment_path(1, 9, "data") if first == 1 else segment_path(2, 17, "data")
    spoil(scene, segment_path(1, first, "data"), kind, other)
    scene.open()
    found, told = served(scene)

    assert found == {seq: data for seq, data in whole[1].items() if seq not in told}
    assert not set(told) & set(found)
    assert all(first <= seq <= first + 8 for seq in told)
    assert bool(told) == (kind not in ("longer", "twice"))
    scene.put("t", b'"more"')
    scene.sync()
    scene.checkpoint()
    reopened(scene)
    again, named = served(scene)
    assert again == found | {21: b'"more"'}
    assert named == told


@pytest.mark.parametrize("kind", SPOILS)
@pytest.mark.parametrize(
    "parts", [("data", "idx"), ("data", "col"), ("idx", "col"), ("data", "idx", "col")], ids="-".join
)
def test_several_at_once(parts, kind, whole):
    scene = filled()
    for part in parts:
        spoil(scene, segment_path(1, 1, part), kind, segment_path(1, 9, part))
    scene.open()
    found, told = served(scene)

    assert found == {seq: data for seq, data in whole[1].items() if seq not in told}
    if "data" not in parts:
        assert not told
    tagged = {seq: data for seq, data in served(scene, match=None)[0].items() if seq > 8}
    assert tagged == {seq: data for seq, data in whole[1].items() if seq > 8}
    reopened(scene)
    assert served(scene) == (found, told)


LEFT = [
    "topics/0000000000000001/seg-00000000000000000001.data.tmp",
    "topics/0000000000000001/seg-00000000000000000001.idx.tmp",
    "topics/0000000000000001/seg-00000000000000000099.data",
    "topics/0000000000000001/seg-00000000000000000099.idx",
    "topics/0000000000000001/seg-1.data",
    "topics/0000000000000001/notes.txt",
    "topics/0000000000000077/seg-00000000000000000001.data",
    "topics/0000000000000077/seg-00000000000000000001.idx",
    "topics/no-topic/seg-00000000000000000001.data",
    "meta/snapshot.tmp",
    "wal/gen-0/shard-00/next.tmp.old",
]


def test_files_that_nobody_named_are_in_nobodys_way_and_those_of_ours_go_with_a_round_or_two(whole):
    scene = filled()
    for path in LEFT:
        scene.disk.make_dir(path.rsplit("/", 1)[0])
        scene.disk.create(path, 0)
        scene.disk.write(path, 0, [b"left over"])
    scene.open()
    assert not scene.opened.damages
    assert state(scene) == whole[0]
    for i in range(3):
        scene.put("u", b"%d" % i)
        scene.sync()
        scene.checkpoint()
    scene.process_death()
    left = [path for path in LEFT if scene.disk.size(path) is not None]
    scene.open()

    assert not scene.opened.damages
    assert served(scene) == (whole[1], [])
    foreign = {"notes.txt", "seg-1.data", "next.tmp.old"}
    assert {path.rsplit("/", 1)[1] for path in left if "no-topic" not in path} <= foreign


@pytest.mark.parametrize("gone", [("data",), ("idx",), ("data", "idx"), ("data", "idx", "col")], ids="-".join)
def test_what_is_left_of_a_topic_that_was_deleted_is_nobodys(gone):
    """A crash came while its files went; the name is another topic's by now, of another id."""
    scene = filled()
    scene.open()
    scene.drop("t")
    scene.create("t", durability="fsync")
    scene.put("t", b'"new"')
    scene.sync()
    scene.process_death()
    for part in gone:
        scene.disk.unlink(segment_path(1, 1, part))
    scene.open()

    assert not scene.opened.damages
    assert served(scene) == ({1: b'"new"'}, [])
    for _ in range(3):
        scene.put("u", b"1")
        scene.sync()
        scene.checkpoint()
    reopened(scene)
    assert not scene.opened.damages
    assert served(scene) == ({1: b'"new"'}, [])
    assert scene.disk.names(topic_dir(1)) == []
