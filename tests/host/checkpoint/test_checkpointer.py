"""A checkpoint moves bytes and forgets logs, and nobody who reads can tell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.segments import reopened, scene_with, segments, sources, state_of
from topics.audit.repair.repairing import repair
from topics.codec.segments.segidx import ENTRY_SIZE, TRAILER_SIZE
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import Checkpointed, DeleteTopic
from topics.host.checkpoint.snapshots import find_snapshots, snapshot_path
from topics.host.checkpoint.steps import Blocking, Propose, ResumeBatches
from topics.host.directory.layout import log_files_bytes, segment_path
from topics.host.segments.appending import append_pieces
from topics.host.wal.archive import ArchiveRules
from topics.kernel.errors import Rejected
from topics.log.regions import SegmentId
from topics.testing.faults import Landed, SimCrash
from topics.testing.survival import Shape


def labelled(scene, count=20):
    """Records of every kind: plain, with names, with a time of their own, deleted, expired."""
    scene.put(
        "t", *[b'"%d"' % i for i in range(count)], tag=[b"a", b"b", b"", b"c"] * (count // 4),
        node=[b"n", b""] * (count // 2), meta=[b'{"k":"v"}', b""] * (count // 2),
        ttl_ms=[None, None, 5, None] * (count // 4),
    )  # fmt: skip
    scene.delete("t", match="b")
    scene.clock.advance(50)
    scene.put("t", b"1", b"2")
    scene.sync()


@pytest.mark.rule("T5.1", "T5.3")
@pytest.mark.invariant("I-19")
def test_records_are_read_from_segments_after_a_checkpoint():
    scene = scene_with()
    scene.put("t", *[b"%d" % i for i in range(20)])
    before = scene.read("t")
    scene.sync()
    scene.checkpoint()

    assert all(isinstance(source, SegmentId) for source in sources(scene, "t"))
    assert scene.read("t") == before
    assert [segment.count for segment in segments(scene, "t")] == [8, 8, 4]
    assert [segment.sealed for segment in segments(scene, "t")] == [True, True, False]


@pytest.mark.parametrize("archive", [None, ArchiveRules()])
def test_the_size_of_the_log_is_counted_as_the_disk_has_it(archive):
    scene = scene_with(shards=2, archive=archive)
    sizes = set()
    for life in range(3):
        for turn in range(6):
            scene.put("t", *[b'"%d"' % n * 40 for n in range(20)])
            if turn % 2:
                scene.sync()
                scene.checkpoint()
            assert scene.opened.checkpointer.log_bytes == log_files_bytes(scene.disk)
            sizes.add(log_files_bytes(scene.disk))
        assert scene.opened.checkpointer.removal.log_bytes > 0
        scene.process_death() if life else scene.shut_down()
        scene.open()
        assert scene.opened.checkpointer.log_bytes == log_files_bytes(scene.disk)

    assert len(sizes) > 3


@pytest.mark.invariant("I-20")
def test_a_start_from_a_snapshot_gives_the_state_that_was():
    scene = scene_with()
    labelled(scene)
    scene.checkpoint()
    scene.put("t", b"20", b"21", tag=[b"a", b"z"])
    state, read = state_of(scene), scene.read("t")
    reopened(scene)

    assert state_of(scene) == state
    assert scene.read("t") == read


@pytest.mark.parametrize("part", ["idx", "col"])
def test_what_an_index_file_has_lost_is_made_again_from_the_data(part):
    scene = scene_with()
    labelled(scene)
    scene.checkpoint()
    state, read = state_of(scene), scene.read("t")
    topic_id = scene.engine.state.catalog.find("t").topic_id
    for segment in segments(scene, "t"):
        path = segment_path(topic_id, segment.first, part)
        if scene.disk.size(path):
            scene.disk.truncate(path, scene.disk.size(path) // 2)
    reopened(scene)

    assert not scene.opened.read_only
    assert state_of(scene) == state
    assert scene.read("t") == read


def test_a_flipped_entry_of_the_segment_that_grows_is_mended_before_more_is_appended():
    scene = scene_with()
    scene.put("t", b"1", b"2", b"3")
    scene.sync()
    scene.checkpoint()
    (active,) = segments(scene, "t")
    scene.flip(segment_path(1, active.first, "idx"), ENTRY_SIZE + 1)
    reopened(scene)
    scene.put("t", b"4")
    scene.sync()
    scene.checkpoint()
    reopened(scene)

    assert scene.read("t") == {1: b"1", 2: b"2", 3: b"3", 4: b"4"}


def test_an_entry_that_flips_while_the_store_runs_is_not_vouched_for_by_the_next_append():
    scene = scene_with()
    scene.put("t", b"1", b"2", b"3")
    scene.sync()
    scene.checkpoint()
    scene.flip(segment_path(1, 1, "idx"), ENTRY_SIZE + 9)  # in the ts of seq 2
    scene.put("t", b"4")
    scene.sync()
    scene.checkpoint()
    state = state_of(scene)
    reopened(scene)

    assert state_of(scene) == state
    assert not scene.opened.read_only


def test_what_a_crash_left_behind_the_marked_bytes_is_overwritten_and_cut():
    scene = scene_with()
    scene.put("t", b"1", b"2")
    scene.sync()
    scene.checkpoint()
    scene.put("t", *[b'"%d"' % i for i in range(5)])
    scene.sync()
    scene.disk.crash_at(2, Landed.ALL)  # data and idx of the next piece are written, nothing is marked
    with pytest.raises(SimCrash):
        scene.checkpoint()
    reopened(scene)
    scene.delete("t", before_seq=6)
    scene.checkpoint()
    (active,) = segments(scene, "t")
    size = scene.disk.size(segment_path(1, 1, "idx"))

    assert size == 2 * ENTRY_SIZE + TRAILER_SIZE
    assert active.first == 6
    assert scene.read("t") == {6: b'"3"', 7: b'"4"'}


@pytest.mark.rule("T4.1")
def test_a_damaged_snapshot_falls_back_on_the_one_before_it_and_loses_nothing():
    scene = scene_with()
    for number in range(5):
        scene.put("t", *[b'"%d-%d"' % (number, i) for i in range(6)], *[b'"' + b"x" * 400 + b'"'] * 16)
        scene.create("u", durability="fsync", cap_records=4)
        scene.put("u", *[b"%d" % i for i in range(9)])
        scene.sync()
        scene.checkpoint()
    scene.put("t", b'"last"')
    state, read = state_of(scene), scene.read("t")
    newest = find_snapshots(scene.disk)[-1]
    scene.flip(snapshot_path(newest), 100)
    reopened(scene)

    assert not scene.opened.read_only
    assert [snapshot_path(newest)] == [warning.partition(":")[0] for warning in scene.opened.warnings]
    assert state_of(scene) == state
    assert scene.read("t") == read
    scene.checkpoint()
    assert find_snapshots(scene.disk) == [newest - 1, newest + 1]
    state = state_of(scene)
    assert state_of(reopened(scene)) == state


def test_without_any_snapshot_the_rest_of_the_log_is_told_as_damaged():
    scene = scene_with()
    for _ in range(4):
        scene.put("t", *[b'"' + b"x" * 400 + b'"'] * 12)
        scene.sync()
        scene.checkpoint()
    for number in find_snapshots(scene.disk):
        scene.flip(snapshot_path(number), 60)
    reopened(scene)

    assert scene.opened.read_only
    assert any("missing before this one" in str(damage) for damage in scene.opened.damages)


def test_a_log_shorter_than_its_snapshot_says_is_damage():
    scene = scene_with()
    scene.put("t", b"1", b"2")
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    scene.disk.truncate(scene.files()[-1], 100)
    scene.open()

    assert scene.opened.read_only


def test_a_log_whose_first_frame_behind_the_snapshot_is_broken_opens_read_only():
    """Then none of its items is in the total that progress is a share of."""
    scene = scene_with()
    scene.put("t", b"1", b"2")
    scene.sync()
    scene.checkpoint()
    (place,) = scene.opened.checkpointer.kept[0].places
    scene.put("t", b"3")
    scene.sync()
    scene.put("t", b"4")
    scene.sync()
    scene.process_death()
    scene.flip(scene.files()[-1], place.offset + 30)
    scene.open()

    assert scene.opened.read_only
    assert {1: b"1", 2: b"2"}.items() <= scene.read("t").items()


def test_a_segment_that_is_not_there_is_damage_with_topic_and_seqs():
    scene = scene_with()
    scene.put("t", *[b"%d" % i for i in range(10)])
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    for part in ("data", "idx"):
        scene.disk.unlink(segment_path(1, 1, part))
    scene.open()

    assert not scene.opened.read_only
    (damage,) = scene.opened.damages
    assert (damage.topic, damage.first_seq, damage.last_seq) == ("t", 1, 8)
    assert scene.engine.topic_state("t").head_seq == 10


@pytest.mark.parametrize("left", [0, 30])
def test_data_that_is_cut_short_is_damage_at_the_start_although_the_index_is_whole(left):
    scene = scene_with()
    scene.put("t", *[b"%d" % i for i in range(10)])
    scene.sync()
    scene.checkpoint()
    scene.process_death()
    scene.disk.truncate(segment_path(1, 1, "data"), left)
    scene.open()

    assert not scene.opened.read_only
    (damage,) = scene.opened.damages
    assert (damage.topic, damage.first_seq, damage.last_seq) == ("t", 1, 8)
    assert damage.why == "8 of 8 records are not in topics/0000000000000001/seg-00000000000000000001.data"


@pytest.mark.rule("T5.12", "T5.16")
def test_logs_and_segments_go_when_neither_kept_snapshot_needs_them():
    scene = scene_with()
    scene.create("t", durability="fsync", cap_records=10)
    scene.put("gone", b"1")
    for _ in range(6):
        scene.put("t", *[b'"' + b"x" * 400 + b'"'] * 12)
        scene.sync()
        scene.checkpoint()
    scene.run(DeleteTopic(topic="gone"))
    for _ in range(3):
        scene.checkpoint()
    names = scene.disk.names("topics/0000000000000001")
    held = {segment.first for segment in segments(scene, "t")}

    assert len(scene.files()) <= 2
    assert {int(name[4:24]) for name in names} == held
    assert scene.disk.names("topics/0000000000000002") == []
    assert len(find_snapshots(scene.disk)) == 2
    assert len(scene.read("t")) == 10


def test_what_is_written_behind_the_cut_is_due_again_and_an_idle_store_comes_to_rest():
    scene = scene_with(checkpoint_interval_ms=1000)
    checkpointer = scene.opened.checkpointer
    scene.put("t", b"1")
    scene.sync()
    steps = checkpointer.round()
    for step in steps:
        match step:
            case Blocking(call):
                call()
            case Propose(command):
                scene.run(command)
            case ResumeBatches():
                scene.put("t", b"2")  # behind the cut, before the round has ended
    scene.clock.advance(1001)

    assert checkpointer.is_due()
    rounds = 0
    while checkpointer.is_due():
        rounds += 1
        assert rounds < 4
        scene.checkpoint()
        for writer in scene.opened.writers:
            writer.mark()
        scene.clock.advance(1001)
    assert [segment.count for segment in segments(scene, "t")] == [2]


@pytest.mark.rule("T5.10")
def test_a_segment_is_sealed_when_it_is_full_by_records_or_by_bytes():
    rules = SegmentRules()
    assert (rules.records_max, rules.bytes_max, rules.age_ms) == (10_000, 64 << 20, 3_600_000)

    scene = scene_with()
    scene.put("records", *[b"1"] * 9)
    scene.put("bytes", *[b'"' + b"x" * 500 + b'"'] * 5)
    scene.sync()
    scene.checkpoint()

    assert [(segment.count, segment.sealed) for segment in segments(scene, "records")] == [
        (8, True),
        (1, False),
    ]
    assert [(segment.count, segment.sealed) for segment in segments(scene, "bytes")] == [
        (4, True),
        (1, False),
    ]


@pytest.mark.rule("T1.6")
def test_the_files_of_a_segment_are_named_by_its_topics_id_and_its_first_seq():
    scene = scene_with()
    scene.put("other", b"1")
    scene.put("t", *[b"%d" % i for i in range(9)])
    scene.sync()
    scene.checkpoint()

    assert scene.disk.names("topics") == ["0000000000000001", "0000000000000002"]
    names = [name for name in scene.disk.names("topics/0000000000000002") if not name.endswith(".col")]
    assert names == [f"seg-{first:020d}.{part}" for first in (1, 9) for part in ("data", "idx")]


@pytest.mark.rule("T4.6")
def test_frames_that_a_snapshot_knows_are_not_applied_again_and_not_even_looked_at():
    """The log that the older snapshot needs is still there; what the newer one knows of it may as well be damaged."""
    scene = scene_with()
    scene.create("t", durability="fsync", cap_records=5)
    scene.put("t", *[b"%d" % i for i in range(9)], idempotency_key=b"k")
    scene.delete("t", before_seq=6)
    scene.checkpoint()
    (place,) = scene.opened.checkpointer.kept[0].places
    scene.put("t", b"9")
    state, read = state_of(scene), scene.read("t")
    scene.process_death()
    (path,) = scene.files()
    for offset in range(100, place.offset, 40):
        scene.flip(path, offset)
    scene.open()

    assert not scene.opened.damages
    assert place.offset > 500
    assert (state_of(scene), scene.read("t")) == (state, read)


@pytest.mark.parametrize("ending", [False, True], ids=["killed", "with a snapshot at the end"])
def test_a_log_that_many_short_lives_have_written_is_absorbed_too(ending):
    scene = scene_with(checkpoint_wal_bytes=100_000)
    lives = 0
    while not scene.opened.checkpointer.is_due():
        lives += 1
        assert lives < 40
        for _ in range(10):
            scene.put("t", b'"' + b"x" * 700 + b'"')
        scene.sync()
        if ending:
            scene.carry(scene.opened.checkpointer.closing())
        reopened(scene)
    assert lives > 5
    scene.checkpoint()
    assert not scene.opened.checkpointer.is_due()
    reopened(scene)
    assert not scene.opened.checkpointer.is_due()


@pytest.mark.rule("A4.5")
def test_at_its_end_a_store_keeps_a_snapshot_without_copying_and_only_if_anything_was_written():
    scene = scene_with()
    labelled(scene)
    scene.carry(scene.opened.checkpointer.closing())
    (kept,) = scene.opened.checkpointer.kept
    state, read = state_of(scene), scene.read("t")
    scene.process_death()
    scene.flip(
        scene.files()[0], 100
    )  # in a frame before the cut: a start that looked at it would find damage
    scene.open()

    assert kept.number == 1
    assert not kept.segments
    assert not scene.opened.damages
    assert (state_of(scene), scene.read("t")) == (state, read)
    assert scene.opened.checkpointer.closing() is None
    scene.put("t", b"behind")
    scene.sync()
    scene.carry(scene.opened.checkpointer.closing())
    assert find_snapshots(scene.disk) == [1, 2]
    scene.checkpoint()
    assert scene.opened.checkpointer.closing() is None


@pytest.mark.rule("T5.10")
def test_a_segment_is_sealed_by_its_age():
    scene = scene_with()
    scene.put("t", b"1")
    scene.sync()
    scene.checkpoint()
    scene.clock.advance(61_000)
    scene.checkpoint()

    assert [(segment.count, segment.sealed) for segment in segments(scene, "t")] == [(1, True)]


@pytest.mark.rule("T5.10")
def test_a_segment_grows_old_in_a_store_in_which_nothing_is_written_too():
    scene = scene_with(checkpoint_interval_ms=1000)
    checkpointer = scene.opened.checkpointer
    scene.put("t", b"1")
    scene.sync()
    for _ in range(3):
        scene.checkpoint()
    scene.clock.advance(59_000)
    assert not checkpointer.is_due()
    scene.clock.advance(2_000)
    assert checkpointer.is_due()
    scene.checkpoint()

    assert [(segment.count, segment.sealed) for segment in segments(scene, "t")] == [(1, True)]
    scene.clock.advance(120_000)
    assert not checkpointer.is_due()


def test_an_ephemeral_topic_leaves_its_head_and_no_record():
    scene = scene_with()
    scene.create("e", durability="ephemeral")
    scene.put("e", b"1", b"2")
    scene.checkpoint()
    reopened(scene)

    assert scene.read("e") == {}
    assert scene.state("e").head_seq >= 2
    assert scene.put("e", b"3").first_seq > 2


def test_a_snapshot_that_a_start_has_read_outlives_a_power_cut():
    for calls in range(
        200
    ):  # die in every call of a checkpoint: in one, the rename has landed and no sync covers it
        scene = scene_with()
        scene.put("t", b"1")
        scene.disk.crash_at(calls)
        try:
            scene.checkpoint()
        except SimCrash:
            reopened(scene)
        else:
            break
        there = find_snapshots(scene.disk)
        scene.power_loss(Shape.NOTHING)
        assert find_snapshots(scene.disk) == there

    assert calls > 5


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abc"), st.integers(1, 12)),
        st.tuples(st.just("tagged"), st.sampled_from("abc"), st.integers(1, 6)),
        st.tuples(st.just("delete"), st.sampled_from("abc"), st.integers(1, 30)),
        st.tuples(st.just("match"), st.sampled_from("abc"), st.just(0)),
        st.tuples(st.just("time"), st.just(""), st.integers(1, 90_000)),
        st.tuples(st.just("checkpoint"), st.just(""), st.just(0)),
        st.tuples(st.just("die"), st.just(""), st.just(0)),
        st.tuples(st.just("drop"), st.sampled_from("abc"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.invariant("I-09", "I-10")
@pytest.mark.rule("T5.14")
@settings(max_examples=60, deadline=None)
@given(STEPS, st.sampled_from(["fsync", "disk"]), st.integers(0, 12))
def test_whatever_is_done_a_start_from_a_snapshot_is_one_from_the_whole_log(steps, durability, cap):
    """Two stores get the same commands; one takes checkpoints."""
    ours, plain = scene_with(), scene_with()
    for name in "abc":
        for scene in (ours, plain):
            scene.create(name, durability=durability, cap_records=cap)
    for kind, name, number in steps:
        for scene in (ours, plain):
            take(scene, kind, name, number, checkpoints=scene is ours)
    ours.sync()
    ours.checkpoint()
    for scene in (ours, plain):
        scene.sync()
        reopened(scene)

    for name in "abc":
        assert ours.read(name) == plain.read(name) if name in plain.engine.names() else True
        if name in plain.engine.names():
            assert ours.state(name).evict_floor == plain.state(name).evict_floor
            assert ours.state(name).count == plain.state(name).count


def take(scene, kind, name, number, *, checkpoints):
    if kind in ("delete", "match") and name not in scene.engine.names():
        return
    match kind:
        case "put":
            scene.put(name, *[b'"%d"' % i for i in range(number)])
        case "tagged":
            scene.put(name, *[b"%d" % i for i in range(number)], tag=[b"x"] * number, ttl_ms=[500] * number)
        case "delete":
            scene.delete(name, before_seq=number)
        case "match":
            scene.delete(name, match="x")
        case "time":
            scene.clock.advance(number)
        case "checkpoint" if checkpoints:
            scene.sync()
            scene.checkpoint()
        case "die":
            reopened(scene)
        case "drop":
            scene.run(DeleteTopic(topic=name))


@pytest.mark.rule("T5.16")
def test_seqs_lost_behind_the_last_record_keep_no_log():
    scene = scene_with()
    scene.create("t", durability="disk")
    scene.put("t", b"1")
    scene.sync()
    scene.put("t", b"2")
    scene.power_loss(Shape.NOTHING).open()
    for _ in range(4):
        for _ in range(10):
            scene.put("u", b'"%s"' % (b"x" * 1500))
        scene.sync()
        scene.checkpoint()

    assert scene.lost("t") == [(2, 64, "crash")]
    assert not scene.files()[0].endswith("wal-00000000000000000001.log")
    assert len(scene.files()) <= 4
    state = state_of(scene)
    reopened(scene)
    assert state_of(scene) == state
    assert scene.read("t") == {1: b"1"}


def test_two_lost_ranges_side_by_side_are_no_more_than_one_to_a_round():
    """A repair leaves them where the last record before a power loss was damaged: no round went past them."""
    scene = scene_with()
    scene.create("t", durability="disk")
    for data in (b"1", b"2"):
        scene.put("t", data)
    scene.put("u", b"1")
    scene.sync()
    scene.put("u", b"2")
    damaged = scene.engine.state.catalog.find("t").index.offsets[1]
    scene.flip(scene.files()[0], damaged + 40)
    repair(scene.process_death().disk, where="a scene", same_boot=True, stamp="20261121T120000Z")
    scene.open()
    assert scene.lost("t") == [(2, 2, "corrupt"), (3, 64, "crash")]

    scene.put("t", b"3")
    scene.sync()
    scene.checkpoint()

    assert scene.read("t") == {1: b"1", 65: b"3"}
    assert scene.engine.state.catalog.find("t").segments.stored_seq == 65


def test_a_topic_with_nothing_left_is_not_looked_at_again():
    """Else each piece of a large topic would cost a look at ten thousand quiet ones."""
    scene = scene_with()
    scene.put("large", *[b"1"] * 20)
    for name in "abc":
        scene.put(name, b"1")
    scene.sync()
    checkpoints = scene.engine.checkpoints
    goals = checkpoints.goals()
    pieces = checkpoints.plan(goals)
    append_pieces(scene.disk, pieces, {})
    for piece in pieces:
        scene.run(Checkpointed(topic_id=piece.topic_id, mark=piece.mark))
    (piece,) = checkpoints.plan(goals)

    assert list(goals) == [piece.topic_id]
    assert (piece.topic, piece.mark.first, piece.mark.last) == ("large", 9, 16)


@pytest.mark.invariant("I-20")
def test_a_topic_made_ephemeral_starts_alike_from_a_snapshot_and_from_the_log():
    """Its idempotency keys end with its time in the log, whether a snapshot or the log tells of them."""
    answers = []
    for checkpoints in (False, True):
        scene = scene_with()
        scene.create("t", durability="fsync")
        scene.put("t", b"1", idempotency_key=b"k")
        scene.delete("t", before_seq=2)
        scene.create("t", durability="ephemeral")
        scene.sync()
        if checkpoints:
            scene.checkpoint()
        reopened(scene)
        answers.append((scene.put("t", b"1", idempotency_key=b"k").first_seq, scene.read("t")))

    assert answers[0] == answers[1]


@pytest.mark.parametrize("left", [None, 60])
def test_without_a_col_file_and_its_data_a_store_opens_and_says_what_is_gone(left):
    """What the index needs of a record whose bytes are gone is damage, not a failed start."""
    scene = scene_with()
    labelled(scene)
    scene.checkpoint()
    scene.process_death()
    first, *_ = scene.disk.names("topics/0000000000000001")
    col = f"topics/0000000000000001/{first}"
    data = col.replace(".col", ".data")
    scene.disk.unlink(col)
    if left is None:
        scene.disk.unlink(data)
    else:
        scene.disk.truncate(data, left)
    scene.open()

    assert col.endswith(".col")
    assert "records are not in" in str(scene.opened.damages[0])
    assert scene.opened.damages[0].topic == "t"


@pytest.mark.parametrize(
    "rules",
    [{"records_max": 0}, {"bytes_max": 0}, {"bytes_max": 1 << 31}, {"age_ms": -1}, {"records_max": "8"}],
)
def test_rules_of_segments_that_cannot_be_kept_are_refused(rules):
    (name,) = rules
    with pytest.raises(Rejected, match=f"segments.{name}"):
        SegmentRules(**rules)
