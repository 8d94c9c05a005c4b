"""A record in the log that is not whole costs a round its own topic from there on, and nothing else (storage 5)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.bad_sectors import BadSectors
from tests.support.segments import reopened, scene_with, segments, sources, state_of
from topics.host.checkpoint.blocked_topics import AGAIN_MS, CheckpointIncomplete
from topics.host.directory.layout import path_of, segment_path
from topics.kernel.errors import Corrupt
from topics.log.regions import SegmentId, WalFileId
from topics.store.damages import known_damages
from topics.testing.faults import SimCrash
from topics.testing.survival import Shape


def place_of(scene, topic, seq):
    """(path, offset, size) of a record's frame."""
    found = scene.engine.state.catalog.find(topic)
    at = found.index.position(seq)
    return path_of(found.regions.source_until(seq)[0]), found.index.offsets[at], found.index.lengths[at]


def damage(scene, topic, seq):
    path, offset, _ = place_of(scene, topic, seq)
    scene.flip(path, offset + 40)
    return path, offset


def written(scene, *, records=6, rounds=1, names=("bad", "good")):
    """Topics that take turns in the log."""
    for name in names:
        scene.create(name, durability="fsync")
    for i in range(rounds):
        for name in names:
            scene.put(name, *[b'"%d-%d"' % (i, at) for at in range(records)])
    scene.sync()
    return scene


def absorbed(scene, topic):
    return scene.engine.state.catalog.find(topic).segments.stored_seq


def told(scene):
    return [
        (one.topic, one.first_seq, one.last_seq, path_of(one.file)) for one in known_damages(scene.opened)
    ]


def background(scene):
    """The work that is due at this look of a driver; says whether it was a round."""
    checkpointer = scene.opened.checkpointer
    before, steps = checkpointer.rounds, checkpointer.due()
    if steps is not None:
        scene.carry(steps)
    return checkpointer.rounds > before


def checkpoint(scene):
    """A round that leaves something out."""
    with pytest.raises(CheckpointIncomplete) as left:
        scene.checkpoint()
    return left.value


@pytest.mark.rule("T5.14")
def test_a_damaged_record_in_the_log_holds_up_its_own_topic_and_no_other():
    scene = written(scene_with())
    before = scene.read("good")
    path, offset = damage(scene, "bad", 4)
    left = checkpoint(scene)

    assert (left.detail["topic"], left.detail["seq"], left.detail["files"]) == ("bad", 4, [path])
    assert "topic 'bad' has from seq 4 on" in left.message
    assert "topics fsck" in left.message
    assert (absorbed(scene, "good"), absorbed(scene, "bad")) == (6, 3)
    assert all(isinstance(source, SegmentId) for source in sources(scene, "good"))
    assert scene.read("good") == before
    assert len(scene.opened.checkpointer.kept) == 1
    assert told(scene) == [("bad", 4, 4, path)]
    (report,) = known_damages(scene.opened)
    assert report.in_log
    assert report.offset == offset
    assert "not whole in the log (" in report.why


def test_what_is_intact_around_it_is_read_on_and_nothing_wrong_is_served():
    scene = written(scene_with())
    damage(scene, "bad", 4)
    checkpoint(scene)

    assert [record.seq for record in scene.page("bad")[1]] == [1, 2, 3]
    with pytest.raises(Corrupt, match="seq 4 is damaged"):
        scene.page("bad", 3)
    assert [record.seq for record in scene.page("bad", 4)[1]] == [5, 6]
    assert scene.put("bad", b"7").first_seq == 7


@pytest.mark.rule("T5.16")
def test_logs_that_nobody_needs_go_and_those_from_the_damage_on_stay():
    scene = written(scene_with(), rounds=4, records=8)
    path, _ = damage(scene, "bad", 20)
    before = scene.files()
    for _ in range(3):
        checkpoint(scene)
        scene.put("good", b'"%s"' % (b"x" * 1500))
        scene.sync()
    files = scene.files()

    assert path == files[0] != before[0]
    assert absorbed(scene, "bad") == 19
    assert len(scene.opened.checkpointer.kept) == 2
    assert {source for source in sources(scene, "bad") if isinstance(source, WalFileId)}
    assert [record.seq for record in scene.page("bad", 20, limit=100)[1]] == list(range(21, 33))


def test_each_round_does_not_read_it_again_and_one_after_a_while_does():
    """It may have been a passing error: then nobody has to do anything."""
    scene = written(scene_with(port=BadSectors, checkpoint_interval_ms=1000))
    path, offset = damage(scene, "bad", 4)
    scene.clock.advance(1001)
    assert background(scene)  # and nobody is told by an error: a driver looks at the damages
    assert told(scene) == [("bad", 4, 4, path)]
    scene.disk.flip(path, (offset + 40) * 8)
    rounds = 0
    for _ in range(AGAIN_MS // 10_000 - 1):
        scene.clock.advance(10_000)
        scene.put("good", b"1")
        scene.sync()
        rounds += background(scene)
    assert rounds > 10
    assert absorbed(scene, "bad") == 3
    assert told(scene)
    scene.clock.advance(10_000)
    assert background(scene)
    assert absorbed(scene, "bad") == 6
    assert not told(scene)
    scene.checkpoint()


def test_what_is_held_up_makes_a_round_due_by_itself_but_only_then():
    scene = written(scene_with(checkpoint_interval_ms=1000))
    damage(scene, "bad", 4)
    for _ in range(3):
        checkpoint(scene)
    scene.clock.advance(60_000)
    while background(scene):
        scene.clock.advance(60_000)
    assert not scene.opened.checkpointer.is_due()
    scene.clock.advance(AGAIN_MS)
    assert scene.opened.checkpointer.is_due()
    assert background(scene)
    scene.clock.advance(60_000)
    assert not scene.opened.checkpointer.is_due()


def test_a_log_that_is_held_up_makes_no_round_due_at_every_look():
    """It has grown beyond checkpoint_wal_bytes, and no round can help that."""
    scene = written(scene_with(checkpoint_wal_bytes=2000), rounds=8)
    damage(scene, "bad", 4)
    assert scene.opened.checkpointer.is_full()
    assert background(scene)
    assert not scene.opened.checkpointer.is_full()
    assert not scene.opened.checkpointer.is_due()


def test_who_asks_for_a_round_has_it_tried_at_once():
    scene = written(scene_with())
    path, offset = damage(scene, "bad", 4)
    checkpoint(scene)
    scene.disk.flip(path, (offset + 40) * 8)
    scene.checkpoint()

    assert absorbed(scene, "bad") == 6
    assert not told(scene)


@pytest.mark.parametrize("end", ["deleted", "dropped"])
def test_what_is_gone_holds_nobody_up_any_more(end):
    scene = written(scene_with())
    damage(scene, "bad", 4)
    checkpoint(scene)
    if end == "deleted":
        scene.delete("bad", before_seq=5)
    else:
        scene.drop("bad")
    assert not told(scene)
    scene.checkpoint()
    if end == "deleted":
        assert absorbed(scene, "bad") == 6
        assert [record.seq for record in scene.page("bad", 4)[1]] == [5, 6]
    state = state_of(scene)
    assert state_of(reopened(scene)) == state
    assert not scene.opened.read_only


def test_a_second_damage_behind_the_first_is_told_when_the_first_is_over():
    scene = written(scene_with())
    path, offset = damage(scene, "bad", 2)
    other, _ = damage(scene, "bad", 5)
    checkpoint(scene)
    assert told(scene) == [("bad", 2, 2, path)]
    scene.disk.flip(path, (offset + 40) * 8)
    checkpoint(scene)
    assert told(scene) == [("bad", 5, 5, other)]
    assert absorbed(scene, "bad") == 4


def test_a_round_says_how_many_topics_it_left_out():
    scene = written(scene_with(), names=("a", "bad", "worse"))
    damage(scene, "bad", 1)
    damage(scene, "worse", 6)
    left = checkpoint(scene)

    assert "and 1 other" in left.message
    assert [one[0] for one in told(scene)] == ["bad", "worse"]
    assert [absorbed(scene, name) for name in ("a", "bad", "worse")] == [6, 0, 5]


def test_a_start_behind_it_says_it_too_and_is_read_only():
    scene = written(scene_with())
    path, _ = damage(scene, "bad", 4)
    checkpoint(scene)
    before = scene.read("good")
    reopened(scene)

    assert scene.opened.read_only
    assert told(scene) == [("bad", 4, 4, path)]
    assert scene.read("good") == before
    assert [record.seq for record in scene.page("bad")[1]] == [1, 2, 3]


class TestBadSectors:
    """The medium does not give some bytes at all."""

    def test_of_the_log_cost_only_whose_record_lies_there(self):
        scene = written(scene_with(port=BadSectors), rounds=4, records=2)
        path, offset, _ = place_of(scene, "bad", 4)
        scene.port.spoil(path, offset + 30, offset + 31)
        left = checkpoint(scene)

        assert left.detail["seq"] == 4
        assert told(scene) == [("bad", 4, 4, path)]
        assert "cannot be read in the log (Input/output error)" in left.message
        assert (absorbed(scene, "good"), absorbed(scene, "bad")) == (8, 3)
        scene.port.bad.clear()
        scene.checkpoint()
        assert absorbed(scene, "bad") == 8
        state = state_of(scene)
        assert state_of(reopened(scene)) == state

    @pytest.mark.parametrize("part", ["data", "idx", "col"])
    def test_of_the_segment_that_grows_end_it_and_a_new_one_goes_on(self, part):
        """Its data is needed only if its idx is damaged."""
        scene = written(scene_with(port=BadSectors), records=2)
        scene.put("bad", b"3", tag=[b"x"])
        scene.sync()
        scene.checkpoint()
        scene.port.spoil(segment_path(1, 1, part))
        if part == "data":
            scene.flip(segment_path(1, 1, "idx"), 5)
        scene.put("bad", b"4", b"5", tag=[b"x", b"y"])
        scene.put("good", b"3")
        scene.sync()
        scene.checkpoint()

        assert [(one.first, one.last, one.sealed) for one in segments(scene, "bad")] == [
            (1, 3, True),
            (4, 5, False),
        ]
        assert (absorbed(scene, "good"), absorbed(scene, "bad")) == (3, 5)
        assert told(scene) == [("bad", 1, 3, segment_path(1, 1, "data"))]
        assert segment_path(1, 1, part) in known_damages(scene.opened)[0].why
        scene.port.bad.clear()
        state = state_of(scene)
        assert state_of(reopened(scene)) == state
        assert not known_damages(scene.opened)
        assert list(scene.read("bad")) == [1, 2, 3, 4, 5]

    def test_another_error_of_a_read_ends_the_round_as_ever(self):
        scene = written(scene_with(port=BadSectors))
        path, _, _ = place_of(scene, "bad", 4)
        scene.port.spoil(path)
        scene.port.errno = errno.EMFILE
        with pytest.raises(OSError, match="Too many open files"):
            scene.checkpoint()
        assert not told(scene)
        assert not scene.opened.checkpointer.kept


def test_a_segment_that_grows_and_has_lost_its_data_is_ended_and_holds_nobody_up():
    scene = written(scene_with(), records=3)
    scene.checkpoint()
    for part in ("data", "idx"):
        scene.disk.truncate(segment_path(1, 1, part), 10)
    scene.put("bad", b"4")
    scene.put("good", b"4")
    scene.sync()
    scene.checkpoint()

    assert (absorbed(scene, "good"), absorbed(scene, "bad")) == (4, 4)
    assert [(one.first, one.last, one.sealed) for one in segments(scene, "bad")] == [
        (1, 3, True),
        (4, 4, False),
    ]
    assert told(scene) == [("bad", 1, 3, segment_path(1, 1, "data"))]
    assert [record.seq for record in scene.page("bad", 3)[1]] == [4]


DAMAGES = st.sets(st.tuples(st.sampled_from("abc"), st.integers(1, 12)), max_size=5)


@settings(max_examples=60, deadline=None)
@given(DAMAGES, st.integers(1, 12), st.booleans())
def test_each_topic_is_absorbed_up_to_its_first_damaged_record(hit, run, again):
    scene = scene_with()
    for name in "abc":
        scene.create(name, durability="fsync")
    for at in range(0, 12, run):
        for name in "abc":
            scene.put(name, *[b"%d" % i for i in range(at, min(at + run, 12))])
    scene.sync()
    for name, seq in sorted(hit):
        damage(scene, name, seq)
    for _ in range(1 + again):
        if hit:
            checkpoint(scene)
        else:
            scene.checkpoint()
    first = {name: min(seq for of, seq in hit if of == name) for name in sorted({of for of, _ in hit})}

    assert {name: absorbed(scene, name) + 1 for name in first} == first
    assert all(absorbed(scene, name) == 12 for name in "abc" if name not in first)
    assert sorted((topic, seq) for topic, seq, _, _ in told(scene)) == sorted(first.items())
    for name in "abc":
        for seq in range(1, 13):
            if (name, seq) in hit:
                with pytest.raises(Corrupt):
                    scene.page(name, seq - 1, limit=1)
            else:
                (record,) = scene.page(name, seq - 1, limit=1)[1]
                assert (record.seq, record.data) == (seq, b"%d" % (seq - 1))


def test_a_crash_anywhere_in_such_a_round_loses_nothing():
    for calls in range(300):
        scene = written(scene_with())
        before = scene.read("good")
        path, _ = damage(scene, "bad", 4)
        scene.disk.crash_at(calls)
        try:
            scene.checkpoint()
        except SimCrash:
            scene.power_loss(Shape.NOTHING)
        except CheckpointIncomplete:
            break
        scene.open()
        assert scene.opened.read_only
        assert set(told(scene)) == {("bad", 4, 4, path)}
        assert scene.read("good") == before
        assert [record.seq for record in scene.page("bad")[1]] == [1, 2, 3]
        assert [record.seq for record in scene.page("bad", 4)[1]] == [5, 6]

    assert calls > 10
