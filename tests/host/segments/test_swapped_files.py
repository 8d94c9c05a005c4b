"""Intact files of another segment, which fit by their size: a start does not believe them (decision 0029)."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cold_tier import cold_of
from tests.support.scene import SMALL, Scene
from tests.support.segments import page, reopened, scene_with, served, walk
from topics.audit.fsck import Options, fsck
from topics.codec.log.layout import FRAME_HEAD
from topics.engine.checkpoint import SegmentRules
from topics.engine.verify import digest
from topics.host.cold.segment_stores import HotRules
from topics.host.directory.layout import segment_path
from topics.host.segments.segment_seals import seal_of
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import parse_match

pytestmark = pytest.mark.rule("T5.2", "T5.4", "T5.11")

TOPICS = ("t", "u", "v")
FIRSTS = (1, 9, 17)  # the last one grows
RECORDS = 20
PARTS = ("data", "idx", "col")
TAGS = ("a", "b")


def tag_of(topic, i):
    return b"ab"[(i * i * (3 + topic) // 7) % 2 :][:1]


def filled():
    """Three topics with records of the same sizes and flags, at times of their own, tagged as a coin falls."""
    scene = scene_with(1)
    for name in TOPICS:
        scene.create(name, durability="fsync")
    for i in range(1, RECORDS + 1):
        for topic, name in enumerate(TOPICS):
            labels = {"tag": [tag_of(topic, i)], "ttl_ms": [900_000 + 1000 * topic]} if i % 4 else {}
            scene.put(name, b'"%b %02d"' % (name.encode(), i), **labels)
            scene.clock.advance(10 + (i * (topic + 2)) % 7)
    scene.delete("u", match="b")
    scene.sync()
    scene.checkpoint()
    return scene.shut_down()


@cache
def original():
    scene = filled()
    return scene.disk.snapshot(), scene.clock.now_ms()


def store():
    """A closed one, of which each caller may break the files."""
    scene = scene_with(1)
    snapshot, now = original()
    scene.process_death()
    scene.disk.restore(snapshot)
    scene.clock.advance(now - scene.clock.now_ms())
    return scene


def content(scene, path):
    return scene.disk.content(path)


def put_file(scene, path, data):
    scene.disk.create(path, 0)
    scene.disk.write(path, 0, [data])
    scene.disk.sync_data(path)


def swap(scene, one, other, *parts):
    """The files of two segments, each (topic id, first seq), change places."""
    for part in parts:
        paths = [segment_path(*named, part) for named in (one, other)]
        files = [content(scene, path) for path in paths]
        for path, data in zip(paths, reversed(files), strict=True):
            put_file(scene, path, data)


def matching(scene, topic, tag):
    """{seq: data} of a filtered read, and the seqs that are named as damaged."""
    found, told, from_seq = {}, [], 0
    match = parse_match(tag, tag_bytes_max=256)
    head = scene.engine.topic_state(topic).head_seq
    while from_seq < head:
        query = DiffQuery(topic=topic, from_seq=from_seq, match=match)
        seqs, after = page(scene, query)
        if seqs is None:
            told += range(from_seq + 1, after + 1)
        elif seqs:
            _, records = scene.page(topic, from_seq=from_seq, match=match, limit=len(seqs))
            found |= {record.seq: record.data for record in records}
        from_seq = after
    return found, told


def view(scene, topic):
    """What readers see: records with their times, by tag, and from each time on."""
    index = scene.engine.state.catalog.find(topic).index
    times = {index.seq_at(at): index.ts[at] for at in range(index.start, index.stop)}
    return {
        "records": walk_of(scene, topic),
        "tags": {tag: matching(scene, topic, tag) for tag in TAGS},
        "times": times,
    }


def walk_of(scene, topic):
    found, told, from_seq = {}, [], 0
    head = scene.engine.topic_state(topic).head_seq
    while from_seq < head:
        seqs, after = page(scene, DiffQuery(topic=topic, from_seq=from_seq))
        if seqs is None:
            told += range(from_seq + 1, after + 1)
        elif seqs:
            _, records = scene.page(topic, from_seq=from_seq, limit=len(seqs))
            found |= {record.seq: (record.ts, record.tag, record.data) for record in records}
        from_seq = after
    return found, told


@cache
def whole():
    scene = store()
    scene.open()
    assert not scene.opened.damages
    return digest(scene.engine.state.catalog), {topic: view(scene, topic) for topic in TOPICS}


def is_as_before(scene):
    assert not scene.opened.damages
    assert {topic: view(scene, topic) for topic in TOPICS} == whole()[1]
    assert digest(scene.engine.state.catalog) == whole()[0]


def found_by_fsck(scene):
    return fsck(scene.disk, where="a store", options=Options(settled=True)).violations


T, U = (1, 1), (2, 1)
NEIGHBOURS = [((1, 1), (2, 1)), ((1, 1), (1, 9)), ((1, 9), (3, 9)), ((1, 17), (2, 17)), ((1, 1), (3, 9))]


def idx_of(scene, topic_id, first):
    return seal_of(scene.disk, topic_id, first).idx(content(scene, segment_path(topic_id, first, "idx")))


def test_the_files_are_of_one_size_so_that_nothing_else_tells_them_apart():
    scene = store()
    for first in FIRSTS:
        for part in ("data", "idx"):
            assert len({len(content(scene, segment_path(1 + i, first, part))) for i in range(3)}) == 1
    entries = [idx_of(scene, 1 + i, 1) for i in range(3)]
    assert entries[0].offsets == entries[1].offsets == entries[2].offsets
    assert entries[0].ts != entries[1].ts
    assert not found_by_fsck(scene)


@pytest.mark.parametrize(("one", "other"), NEIGHBOURS, ids=str)
@pytest.mark.parametrize("parts", [("idx",), ("col",), ("idx", "col")], ids="-".join)
def test_an_idx_and_a_col_of_another_segment_are_made_again_from_the_data(parts, one, other):
    """Times, tags and expiries are those of the records, and the files are right again."""
    scene = store()
    swap(scene, one, other, *parts)
    assert found_by_fsck(scene)
    scene.open()

    is_as_before(scene)
    scene.process_death()
    assert not found_by_fsck(scene)
    scene.open()
    is_as_before(scene)


@pytest.mark.parametrize("parts", [("data",), ("data", "idx"), PARTS], ids="-".join)
@pytest.mark.parametrize("first", [1, 17], ids=["sealed", "growing"])
def test_data_of_another_segment_is_damage_from_the_start_on(first, parts):
    """With an idx that fits it or not: its records are named, and nothing else is."""
    scene = store()
    swap(scene, (1, first), (2, first), *parts)
    scene.open()
    last = min(first + 7, RECORDS)

    assert [(one.topic, one.first_seq, one.last_seq) for one in scene.opened.damages if one.topic == "t"] == [
        ("t", first, last)
    ]
    assert {one.topic for one in scene.opened.damages} == {"t", "u"}
    found, told = walk(scene)
    assert told == list(range(first, last + 1))
    assert found == [seq for seq in range(1, RECORDS + 1) if seq not in told]
    scene.put("t", b'"more"')
    scene.sync()
    scene.checkpoint()
    reopened(scene)
    assert walk(scene) == ([*found, RECORDS + 1], told)


def test_what_an_own_idx_knows_of_lost_records_is_kept_and_what_a_foreign_one_says_is_not():
    """Times of records whose data is another's: from their idx if that is theirs, else those of the record behind."""
    own, foreign = store(), store()
    swap(own, T, U, "data")
    swap(foreign, T, U, *PARTS)
    times = whole()[1]["t"]["times"]
    for scene, expected in ((own, [times[seq] for seq in range(1, 9)]), (foreign, [times[9]] * 8)):
        scene.open()
        index = scene.engine.state.catalog.find("t").index
        assert index.ts[index.start : index.start + 8].tolist() == expected


@pytest.mark.parametrize("part", PARTS)
def test_fsck_says_in_a_line_that_a_file_is_of_another_segment(part):
    scene = store()
    swap(scene, T, U, part)
    path = segment_path(*T, part)
    found = [one for one in found_by_fsck(scene) if one.file == path]

    words = {
        "data": "of topic id 2",
        "idx": "of another segment",
        "col": "another segment",
    }
    assert words[part] in found[0].detail
    assert "error" in [one.severity for one in found]  # of a col: that its records lack a block


# Damage is no swap.


@pytest.mark.parametrize("first", [1, 17], ids=["sealed", "growing"])
@pytest.mark.parametrize("byte", [0, 4, 5, 6, 14, 22, 30, 32, 34, 38, 44, -1], ids=str)
def test_a_damaged_last_record_is_one_damaged_record_and_nothing_else(first, byte):
    """Whatever byte of its frame it is: idx and columns are believed as before, and not a file is changed."""
    scene = store()
    idx = idx_of(scene, 1, first)
    offset, last = idx.offsets[-1], first + len(idx) - 1
    at = offset + byte if byte >= 0 else offset + idx.lengths[-1] + byte
    assert byte < FRAME_HEAD.size + 10
    scene.flip(segment_path(1, first, "data"), at, bit=2)
    parts = {part: content(scene, segment_path(1, first, part)) for part in PARTS}
    scene.open()

    assert not scene.opened.damages
    assert digest(scene.engine.state.catalog) == whole()[0]
    assert served(scene)[1] == [last]
    assert {part: content(scene, segment_path(1, first, part)) for part in PARTS} == parts


def test_of_a_segment_with_a_damaged_record_a_foreign_idx_is_not_believed():
    """The others say whose it is."""
    scene = store()
    idx = idx_of(scene, *T)
    swap(scene, T, U, "idx")
    scene.flip(segment_path(*T, "data"), idx.offsets[-1] + 50)
    scene.open()

    assert [(one.first_seq, one.last_seq) for one in scene.opened.damages] == [(8, 8)]
    assert served(scene)[1] == [8]
    times = view(scene, "t")["times"]
    assert {seq: ts for seq, ts in times.items() if seq != 8} == {
        seq: ts for seq, ts in whole()[1]["t"]["times"].items() if seq != 8
    }


def test_a_start_reads_the_name_of_one_record_of_each_segment():
    scene, seen = store(), []
    scene.disk.monitor = seen.append
    scene.open()
    sizes = {}
    for call in seen:
        if call.op == "read" and call.path.endswith(".data"):
            sizes.setdefault(call.path, []).append(call.size)

    assert len(sizes) == len(SEGMENTS)
    assert max(map(len, sizes.values())) <= 3
    assert all(size == 16 for several in sizes.values() for size in several)


def test_bytes_that_the_disk_does_not_give_stop_no_start():
    """A start looks at a record of each segment; whoever reads those that cannot be had is told."""
    scene, seen = store(), []
    scene.disk.monitor = seen.append
    scene.open()
    reads = [call.path for call in seen if call.op == "read"]
    looks = [at for at, path in enumerate(reads) if path.endswith(".data")]
    assert len(looks) >= len(SEGMENTS)
    for at in looks:
        scene = store()
        scene.disk.inject("read", at=scene.disk.counts["read"] + at)
        scene.open()
        is_as_before(scene)


# In the cold tier.


@pytest.fixture
def tiered():
    """Two topics with cold segments, records of one size, of which others have tags."""
    rules = SegmentRules(records_max=8, bytes_max=2000, age_ms=60_000)
    scene = Scene(limits=SMALL, segments=rules, hot=HotRules(retain_segments=1), cold=cold_of)
    scene.open()
    for every, name in ((2, "t"), (3, "u")):
        for i in range(RECORDS):
            labels = {"tag": [b"a"]} if i % every == 0 else {}
            scene.put(name, b"%02d" % i if labels else b"%02d " % i, **labels)
            scene.clock.advance(10)
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() == 2
    scene.right = digest(scene.engine.state.catalog)
    scene.process_death()
    return scene


def test_a_start_asks_for_no_data_of_cold_segments_that_are_whole(tiered):
    seen = []
    tiered.disk.monitor = seen.append
    tiered.open()
    tiered.disk.monitor = None
    assert not [call for call in seen if call.path.startswith("cold/")]
    assert digest(tiered.engine.state.catalog) == tiered.right


def test_columns_of_cold_segments_are_made_anew_once(tiered):
    for named in (T, U):
        tiered.disk.unlink(segment_path(*named, "col"))
    tiered.open()
    tiered.process_death()

    test_a_start_asks_for_no_data_of_cold_segments_that_are_whole(tiered)


@pytest.mark.parametrize("kind", ["another's", "gone"])
def test_entries_and_columns_of_a_cold_segment_are_held_against_each_other(tiered, kind):
    """Where they contradict each other the cold data says what is right; without it, that is told, though the snapshot
    is from before the move.
    """
    if kind == "gone":
        for named in (T, U):
            tiered.disk.unlink(segment_path(*named, "col"))
    else:
        swap(tiered, T, U, "col")
    blind = tiered.cold
    tiered.cold = None
    tiered.open()
    assert {one.topic for one in tiered.opened.damages} == {"t", "u"}
    tiered.process_death()
    tiered.cold = blind
    tiered.open()

    assert not tiered.opened.damages
    assert digest(tiered.engine.state.catalog) == tiered.right
    assert list(matching(tiered, "t", "a")[0]) == list(range(1, RECORDS + 1, 2))


# Any of it.

SEGMENTS = [(1 + i, first) for i in range(3) for first in FIRSTS]
SWAPS = st.lists(
    st.tuples(
        st.sampled_from(SEGMENTS),
        st.sampled_from(SEGMENTS),
        st.sampled_from([("idx",), ("col",), ("data",), ("idx", "col"), ("data", "idx"), PARTS]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=30)
@given(swaps=SWAPS)
def test_whatever_files_change_places_nothing_wrong_is_served(swaps):
    """The store is as it was, or what is missing is named: no record, time or match is another's, at this start or the
    next one.
    """
    scene = store()
    for one, other, parts in swaps:
        swap(scene, one, other, *parts)
    for _ in range(2):
        scene.open()
        if not scene.opened.damages:
            is_as_before(scene)
        for topic in TOPICS:
            right = whole()[1][topic]
            found, told = walk_of(scene, topic)
            lost = {
                seq
                for damage in scene.opened.damages
                if damage.topic == topic
                for seq in range(damage.first_seq, damage.last_seq + 1)
            }
            assert found == {seq: record for seq, record in right["records"][0].items() if seq not in told}
            assert {seq for seq in told if seq in right["records"][0]} <= lost
            for tag in TAGS:
                matched = matching(scene, topic, tag)[0]
                assert matched == {
                    seq: data for seq, data in right["tags"][tag][0].items() if seq not in lost
                }
            times = view(scene, topic)["times"]
            assert all(times[seq] == right["times"][seq] for seq in found)
        scene.sync()
        scene.checkpoint()
        scene.process_death()
