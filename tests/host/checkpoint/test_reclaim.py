"""Space of dead records comes back, and nobody who reads or starts can tell."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reclaiming import TEN, data_size, ends_of, half_dead, idx_of, put, reopened, scene_with
from tests.support.scene import SMALL, Scene
from tests.support.segments import state_of
from topics.codec.segments.segidx import DELETED, ENDS, EXPIRED
from topics.codec.segments.segment import DEAD, LIVE
from topics.engine.commands import DeleteTopic
from topics.host.checkpoint.reclaim import ROOM_AGAIN_MS
from topics.host.checkpoint.snapshots import find_snapshots, snapshot_path
from topics.host.checkpoint.steps import Blocking, Propose, Swap
from topics.host.directory.layout import segment_path
from topics.host.segments.appending import append_pieces
from topics.host.segments.segment_files import load_idx
from topics.kernel.errors import Rejected
from topics.store.inline import carry_out
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape


def rounds(scene, count=2):
    for _ in range(count):
        scene.checkpoint()


# Flags.


@pytest.mark.rule("T5.5", "T5.15")
def test_a_delete_that_comes_while_records_are_copied_is_flagged_when_the_round_is_done():
    """In data and index, and synced before the round takes any log away."""
    scene = scene_with()
    put(scene, 4, tag=[b"a", b"b", b"a", b"a"])
    deleted = False
    for step in scene.opened.checkpointer.round():
        match step:
            case Blocking(call):
                call()
            case Propose(command):
                scene.run(command)
                if not deleted:  # the mark is folded, the cut is to come
                    scene.delete("t", match="b")
                    deleted = True

    assert ends_of(scene) == [(LIVE, 0), (DEAD, DELETED), (LIVE, 0), (LIVE, 0)]
    for part in ("data", "idx"):
        path = segment_path(1, 1, part)
        assert scene.disk.is_durable(path, 0, scene.disk.size(path))


@pytest.mark.rule("T5.15")
@pytest.mark.parametrize("end", ["deleted", "before", "dropped", "capped"])
def test_what_a_plan_copies_stays_where_it_is_until_it_is_copied(end):
    """Whatever ends its records between plan and done, and although nobody else needs the files any more."""
    scene = scene_with()
    for _ in range(12):  # over several files of the log
        put(scene, 4, tag=[b"a", b"b", b"a", b"b"])
    ends = {
        "deleted": lambda: scene.delete("t", match="b"),
        "before": lambda: scene.delete("t", before_seq=48),
        "dropped": lambda: scene.run(DeleteTopic(topic="t")),
        "capped": lambda: scene.create("t", cap_records=1),
    }
    named, copied = scene.files(), 0
    for step in scene.opened.checkpointer.round():
        match step:
            case Blocking(partial(func=call, args=(_, pieces, _))) if call is append_pieces:
                if not copied:
                    ends[end]()
                copied += len(pieces)
                assert scene.files()[: len(named)] == named
                step.call()
            case Blocking(call) | Swap(call):
                call()
            case Propose(command):
                with suppress(Rejected):  # a mark of a topic that is gone
                    scene.run(command)

    assert copied
    rounds(scene)
    assert scene.files() != named
    state = state_of(scene)
    assert state_of(reopened(scene)) == state


@pytest.mark.rule("T5.5")
def test_what_expired_is_flagged_as_expired():
    scene = scene_with()
    put(scene, 3, ttl_ms=[None, 5, None])
    scene.checkpoint()
    scene.clock.advance(100)
    put(scene, 1)
    scene.checkpoint()

    assert ends_of(scene) == [(LIVE, 0), (DEAD, EXPIRED), (LIVE, 0), (LIVE, 0)]


@pytest.mark.rule("T5.7")
def test_a_delete_of_everything_before_a_seq_flags_nothing():
    """It is one number in the snapshot, whatever the number of records."""
    scene = scene_with()
    put(scene, 8)
    scene.checkpoint()
    scene.delete("t", before_seq=6)
    scene.checkpoint()

    assert ends_of(scene) == [(LIVE, 0)] * 8
    assert list(reopened(scene).read("t")) == [6, 7, 8]


@pytest.mark.rule("T5.6")
@pytest.mark.parametrize("bit", range(8))
def test_no_single_flip_of_a_delete_byte_brings_a_record_back_or_takes_one(bit):
    """An index that is made anew asks the delete bytes."""
    scene = scene_with()
    put(scene, 3, tag=[b"", b"x", b""])
    scene.checkpoint()
    scene.delete("t", match="x")
    put(scene, 1)
    scene.checkpoint()
    idx, (segment,) = idx_of(scene), scene.engine.state.catalog.find("t").segments
    for at in range(3):
        scene.flip(segment_path(1, 1, "data"), idx.offsets[at] + idx.lengths[at], bit)
    scene.disk.truncate(segment_path(1, 1, "idx"), 0)
    found, rebuilt = load_idx(scene.disk, 1, segment)

    assert rebuilt
    assert [flags & ENDS for flags in found.flags] == [0, DELETED, 0, 0]
    assert list(reopened(scene).read("t")) == [1, 3, 4]


@pytest.mark.rule("T5.9")
def test_a_segment_that_a_backup_shares_is_copied_before_its_first_flip():
    scene = scene_with()
    put(scene, 6, tag=[b"", b"x", b"", b"y", b"", b""])
    scene.checkpoint()
    paths = [segment_path(1, 1, part) for part in ("data", "idx")]
    inodes, before = [scene.disk.inode(path) for path in paths], [scene.disk.content(path) for path in paths]
    for path in paths:
        scene.disk.share(path)
    scene.delete("t", match="x")
    scene.checkpoint()
    ours = [scene.disk.inode(path) for path in paths]
    scene.delete("t", match="y")
    scene.checkpoint()

    assert all(now != inode for now, inode in zip(ours, inodes, strict=True))
    assert [scene.disk.inode(path) for path in paths] == ours  # which nobody shares
    assert [end for end, _ in ends_of(scene)] == [LIVE, DEAD, LIVE, DEAD, LIVE, LIVE]
    assert [len(scene.disk.content(path)) for path in paths] == [len(content) for content in before]
    assert list(reopened(scene).read("t")) == [1, 3, 5, 6]


def test_a_segment_in_which_nothing_ended_since_is_not_looked_at_again():
    scene = scene_with()
    put(scene, 10, tag=[b"", b"x"] * 5)
    scene.delete("t", match="x")
    scene.checkpoint()
    path = segment_path(1, 1, "idx")
    calls = [call for call in scene.disk.calls if call.path == path]
    scene.checkpoint()

    assert [call for call in scene.disk.calls if call.path == path] == calls


# Rewriting.


@pytest.mark.rule("T5.13")
@pytest.mark.invariant("I-19")
def test_a_sealed_segment_of_which_half_is_dead_is_written_anew_without_it():
    scene = scene_with()
    half_dead(scene)
    rounds(scene)
    before, state, size = scene.read("t"), state_of(scene), data_size(scene)
    calls = scene.reclaim()

    assert calls == 3
    assert scene.read("t") == before
    assert state_of(scene) == state
    assert 0 < data_size(scene) < size // 2
    idx = idx_of(scene)
    assert [bool(length) for length in idx.lengths] == [at % 5 == 0 for at in range(10)]
    assert all(flags & DELETED for flags, length in zip(idx.flags, idx.lengths, strict=True) if not length)
    assert next(iter(scene.engine.state.catalog.find("t").segments)).size == data_size(scene)
    assert scene.reclaim() == 0


@pytest.mark.invariant("I-10", "I-20")
@pytest.mark.parametrize(
    "again", ["at once", "behind a checkpoint", "without index", "with an older snapshot"]
)
def test_a_start_behind_a_rewrite_gives_the_state_that_was(again):
    scene = scene_with()
    put(
        scene, 30, tag=[b"keep" if i % 5 == 0 else b"go" for i in range(30)], node=[b"n", b""] * 15,
        meta=[b'{"k":1}', b""] * 15, ttl_ms=[None, None, 100_000] * 10,
    )  # fmt: skip
    scene.delete("t", match="go")
    rounds(scene)
    assert scene.reclaim() == 3
    put(scene, 3)
    if again == "behind a checkpoint":
        scene.checkpoint()
    if again == "without index":
        for first in (1, 11, 21):
            scene.disk.truncate(segment_path(1, first, "idx"), 5)
            scene.disk.truncate(segment_path(1, first, "col"), 5)
    if again == "with an older snapshot":
        scene.flip(snapshot_path(find_snapshots(scene.disk)[-1]), 60)
    before, state = scene.read("t"), state_of(scene)
    reopened(scene)

    assert scene.read("t") == before
    sealed = [segment for segment in scene.engine.state.catalog.find("t").segments if segment.sealed]
    assert [segment.size for segment in sealed] == [data_size(scene, segment.first) for segment in sealed]
    if again == "without index":  # of a dropped record it said when it was written, and nobody reads that
        assert scene.facts()["topics"][1]["live"] == live_of(state)
    else:
        assert state_of(scene) == state
    assert state_of(reopened(scene)) == state_of(scene)


def live_of(state):
    return msgspec.msgpack.decode(state)["topics"][0]["live"]


def test_without_any_snapshot_the_log_gives_the_state_and_the_files_give_the_places():
    """Marks in the log say where records lay before they were rewritten."""
    scene = Scene(0, segments=TEN)
    scene.open()
    half_dead(scene)
    rounds(scene)
    assert scene.reclaim() == 3
    put(scene, 12)
    scene.checkpoint()
    state, read = state_of(scene), scene.read("t")
    for number in find_snapshots(scene.disk):
        scene.flip(snapshot_path(number), 60)
    reopened(scene)

    assert len(scene.opened.warnings) == 2
    assert (state_of(scene), scene.read("t")) == (state, read)


def test_what_is_less_than_half_dead_is_left_alone():
    scene = scene_with()
    put(scene, 10, tag=[b"go"] * 4 + [b"keep"] * 6)
    put(scene, 1)
    scene.delete("t", match="go")
    rounds(scene, 3)

    assert scene.reclaim() == 0


def test_a_segment_that_still_grows_is_left_alone():
    scene = scene_with()
    half_dead(scene, 9)
    rounds(scene, 3)

    assert scene.reclaim() == 0


def test_the_dead_at_the_front_count_although_no_flag_says_so():
    scene = scene_with()
    put(scene, 12)
    scene.checkpoint()
    scene.delete("t", before_seq=7)
    rounds(scene)

    assert scene.reclaim() == 1
    assert list(reopened(scene).read("t")) == [7, 8, 9, 10, 11, 12]


@pytest.mark.invariant("I-20")
def test_only_what_is_dead_in_both_snapshots_is_dropped_so_that_a_start_from_the_older_one_evicts_alike():
    """Folding the log onto it needs the sizes of what is live in it: else a cap by bytes would let more stay."""
    scene = scene_with()
    scene.create("t", durability="fsync", cap_bytes=400)
    put(scene, 20, tag=[b"it" if i % 3 == 0 else b"go" for i in range(20)])
    scene.checkpoint()
    put(scene, 20)
    floor = scene.state("t").evict_floor
    scene.delete("t", match="go")
    scene.checkpoint()
    assert scene.reclaim() == 0  # the older snapshot has them alive
    state = state_of(scene)
    snapshot = scene.disk.snapshot()
    scene.flip(snapshot_path(find_snapshots(scene.disk)[-1]), 60)
    reopened(scene)

    assert scene.opened.warnings
    assert floor > 1
    assert state_of(scene) == state
    scene.disk.restore(snapshot)
    reopened(scene)
    rounds(scene, 2)
    assert scene.reclaim() > 0


def test_a_segment_whose_records_all_died_in_the_middle_of_a_topic_keeps_its_entries_only():
    scene = scene_with()
    put(scene, 30, tag=[b"a"] * 10 + [b"b"] * 10 + [b"c"] * 10)
    scene.delete("t", match="b")
    rounds(scene)

    assert scene.reclaim() == 1
    assert data_size(scene, 11) == 0
    assert list(reopened(scene).read("t")) == [*range(1, 11), *range(21, 31)]
    rounds(scene)
    assert list(reopened(scene).read("t")) == [*range(1, 11), *range(21, 31)]


def test_what_ended_behind_the_mask_is_kept_with_its_flag():
    """A record that has died since lies in the new file all the same, and its end is told there."""
    scene = scene_with()
    put(
        scene,
        12,
        tag=[b"it", b"go", b"go", b"go", b"go", b"go", b"go", b"at", b"it", b"it", b"", b""],
    )
    scene.delete("t", match="go")
    scene.checkpoint()
    scene.delete("t", match="at")
    scene.checkpoint()

    assert scene.reclaim() == 1
    assert ends_of(scene) == [(LIVE, 0), (DEAD, DELETED), (LIVE, 0), (LIVE, 0)]
    assert list(reopened(scene).read("t")) == [1, 9, 10, 11, 12]


def test_a_record_that_is_damaged_is_not_copied_and_the_segment_stays_as_it_is():
    scene = scene_with()
    half_dead(scene, 10)
    put(scene, 1)
    rounds(scene)
    idx = idx_of(scene)
    scene.flip(segment_path(1, 1, "data"), idx.offsets[5] + 20)
    before = scene.disk.content(segment_path(1, 1, "data"))

    assert scene.reclaim() == 0
    assert scene.disk.content(segment_path(1, 1, "data")) == before


def test_a_topic_that_goes_while_its_segment_is_rewritten_takes_it_along():
    scene = scene_with()
    half_dead(scene)
    rounds(scene)
    checkpointer = scene.opened.checkpointer
    for step in checkpointer.reclaimer.due(checkpointer.kept):
        match step:
            case Blocking(call):
                call()
            case Swap(call):
                if "t" in scene.engine.names():
                    scene.run(DeleteTopic(topic="t"))
                call()
    put(scene, 1, "other")
    rounds(scene, 3)

    assert checkpointer.reclaimer.rewrites == 0
    assert scene.disk.names("topics") == ["0000000000000002"]


@pytest.mark.rule("T5.13")
def test_a_slice_is_bounded_and_its_debt_is_taken_from_those_that_follow():
    scene = scene_with()
    half_dead(scene, 60)
    rounds(scene)
    checkpointer = scene.opened.checkpointer
    reclaimer = checkpointer.reclaimer
    reclaimer.slice_bytes = 30  # less than one rewritten segment
    done = []
    for _ in range(40):
        steps = reclaimer.due(checkpointer.kept)
        if steps is not None:
            carry_out(scene.engine, steps, scene.drain)
        done.append(reclaimer.rewrites)
    gained = [after - before for before, after in pairwise([0, *done])]

    assert done[-1] == 6
    assert max(gained) == 1
    assert gained.index(0) < 3
    assert reclaimer.rewritten_bytes == sum(data_size(scene, first) for first in range(1, 60, 10))
    assert reclaimer.freed_bytes > reclaimer.rewritten_bytes


def test_a_disk_without_room_for_a_copy_puts_a_rewrite_off():
    scene = scene_with()
    half_dead(scene, 11)
    rounds(scene)
    scene.disk.free = 4096  # what the log wants to keep free
    checkpointer = scene.opened.checkpointer
    carry_out(scene.engine, checkpointer.reclaimer.due(checkpointer.kept), scene.drain)
    assert checkpointer.reclaimer.rewrites == 0
    scene.disk.free = 1 << 20
    scene.clock.advance(ROOM_AGAIN_MS)

    assert scene.reclaim() == 1


def test_the_room_for_a_copy_is_asked_of_the_disk_of_the_segments():
    scene = scene_with(disk=SimDisk(mounts=("topics",)))
    half_dead(scene, 11)
    rounds(scene)
    scene.disk.set_free(4096, "topics")
    checkpointer = scene.opened.checkpointer
    carry_out(scene.engine, checkpointer.reclaimer.due(checkpointer.kept), scene.drain)
    assert checkpointer.reclaimer.rewrites == 0
    scene.disk.set_free(1 << 20, "topics")
    scene.disk.free = 0
    scene.clock.advance(ROOM_AGAIN_MS)

    assert scene.reclaim() == 1


# What is due.


def test_an_idle_store_does_what_it_takes_to_free_space_and_comes_to_rest():
    scene = scene_with(checkpoint_interval_ms=1000)
    half_dead(scene)
    put(scene, 10, "gone")
    scene.checkpoint()
    scene.run(DeleteTopic(topic="gone"))
    works = 0
    for _ in range(12):
        scene.clock.advance(1001)
        steps = scene.opened.checkpointer.due()
        if steps is not None:
            works += 1
            carry_out(scene.engine, steps, scene.drain)
        for writer in scene.opened.writers:
            writer.mark()

    assert works < 8
    assert scene.opened.checkpointer.due() is None
    assert scene.opened.checkpointer.reclaimer.rewrites == 3
    assert scene.disk.names("topics") == ["0000000000000001"]


@pytest.mark.rule("T5.12")
def test_segments_wholly_below_the_floor_go_with_the_directory_of_their_topic():
    scene = scene_with()
    put(scene, 30)
    put(scene, 5, "other")
    scene.checkpoint()
    scene.delete("t", before_seq=25)
    rounds(scene)
    assert sorted({name[4:24] for name in scene.disk.names("topics/0000000000000001")}) == [f"{21:020d}"]
    scene.delete("t", before_seq=31)
    scene.run(DeleteTopic(topic="other"))
    put(scene, 1)
    rounds(scene, 3)

    assert scene.disk.names("topics") == ["0000000000000001"]
    assert list(reopened(scene).read("t")) == [31]


@pytest.mark.rule("S6.2")
def test_a_cap_evicts_at_once_and_gives_space_back_later_by_whole_segments():
    scene = scene_with()
    scene.create("t", durability="fsync", cap_records=16)
    put(scene, 16)
    scene.checkpoint()
    first_size = data_size(scene, 1)
    put(scene, 14)
    topic = scene.engine.topic_state("t")
    assert (topic.count, topic.earliest_seq) == (16, 15)
    assert data_size(scene, 1) == first_size > 0

    rounds(scene, 3)
    assert data_size(scene, 1) is None
    assert all(idx_of(scene, 11).lengths)  # the floor is in this one: what is dead in it keeps its bytes
    assert list(scene.read("t")) == list(range(15, 31))


def test_what_a_crash_left_of_a_rewrite_goes_with_the_next_round():
    scene = scene_with()
    half_dead(scene)
    rounds(scene)
    scene.disk.crash_at(5, Landed.ALL)
    with pytest.raises(SimCrash):
        scene.reclaim()
    reopened(scene)
    put(scene, 1)
    rounds(scene)

    assert not [name for name in scene.disk.names("topics/0000000000000001") if name.endswith(".tmp")]


@pytest.mark.rule("T5.14")
@pytest.mark.parametrize("how", ["process", *Shape])
def test_a_rewrite_may_end_at_any_of_its_disk_calls(how, record_property):
    scene = scene_with()
    half_dead(scene, 21)
    rounds(scene)
    snapshot, before, call = scene.disk.snapshot(), scene.read("t"), 0
    while True:
        twin = scene_with_disk(snapshot)
        # Candidates are found again by rounds; only the rewriting is struck.
        put(twin, 1)
        rounds(twin)
        twin.disk.crash_at(call, Landed.ALL)
        try:
            twin.reclaim()
        except SimCrash:
            if how == "process":
                twin.process_death()
            else:
                twin.power_loss(how, call)
            twin.open()
            assert not twin.opened.read_only, twin.opened.damages
            assert before.items() <= twin.read("t").items()
            state = state_of(twin)
            assert state_of(reopened(twin)) == state
            call += 1
            continue
        break

    assert call > 15
    record_property("crash points", call)


def test_a_swap_that_no_sync_covered_may_be_undone_although_a_snapshot_counts_on_it():
    """A snapshot of the new size, and the old data: a driver would have to go on when the disk fails, and none does."""
    scene = scene_with()
    half_dead(scene, 11)
    rounds(scene)
    checkpointer = scene.opened.checkpointer
    steps = checkpointer.reclaimer.due(checkpointer.kept)
    for step in steps:
        step.call()
        if isinstance(step, Swap):
            steps.close()
    before, numbers = scene.read("t"), find_snapshots(scene.disk)
    for step in checkpointer.round():
        match step:
            case Blocking(call):
                call()
            case Propose(command):
                scene.run(command)
        if find_snapshots(scene.disk) != numbers:
            break
    scene.power_loss(Shape.NOTHING)
    scene.open()

    assert not scene.opened.damages
    assert scene.read("t") == before
    sealed = next(iter(scene.engine.state.catalog.find("t").segments))
    assert sealed.size == data_size(scene) > 600
    rounds(scene)
    assert scene.reclaim() == 1
    assert reopened(scene).read("t") == before


def scene_with_disk(snapshot):
    scene = Scene(0, limits=SMALL, segments=TEN)
    scene.disk.restore(snapshot)
    scene.disk.process_death()
    scene.open()
    return scene


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 15)),
        st.tuples(st.just("delete"), st.integers(0, 4)),
        st.tuples(st.just("before"), st.integers(1, 40)),
        st.tuples(st.just("time"), st.integers(1, 400)),
        st.tuples(st.just("checkpoint"), st.just(0)),
        st.tuples(st.just("reclaim"), st.just(0)),
        st.tuples(st.just("die"), st.just(0)),
        st.tuples(st.just("fall back"), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.invariant("I-09", "I-20")
@pytest.mark.rule("T5.14")
@settings(max_examples=80, deadline=None)
@given(STEPS, st.integers(0, 600))
def test_whatever_is_rewritten_a_store_answers_like_one_that_never_reclaims(steps, cap_bytes):
    ours, plain = scene_with(), scene_with()
    for scene in (ours, plain):
        scene.create("t", durability="fsync", cap_bytes=cap_bytes)
    for kind, number in steps:
        for scene in (ours, plain):
            take(scene, kind, number, reclaims=scene is ours)
        assert ours.read("t") == plain.read("t")
    rounds(ours, 2)
    ours.reclaim()
    for scene in (ours, plain):
        reopened(scene)

    assert ours.read("t") == plain.read("t")
    assert ours.state("t").evict_floor == plain.state("t").evict_floor
    assert ours.page("t")[0].account == plain.page("t")[0].account


def take(scene, kind, number, *, reclaims):
    match kind:
        case "put":
            columns = {"tag": [b"%d" % (i % 5) for i in range(number)], "ttl_ms": [None, 300, None] * 5}
            scene.put(
                "t",
                *[b'"%d"' % (i * 37) for i in range(number)],
                **{k: v[:number] for k, v in columns.items()},
            )
        case "delete":
            scene.delete("t", match=str(number))
        case "before":
            scene.delete("t", before_seq=number)
        case "time":
            scene.clock.advance(number)
        case "checkpoint" if reclaims:
            scene.checkpoint()
        case "reclaim" if reclaims:
            scene.reclaim()
        case "die":
            reopened(scene)
        case "fall back" if reclaims and len(find_snapshots(scene.disk)) == 2:
            scene.flip(snapshot_path(find_snapshots(scene.disk)[-1]), 60)
            reopened(scene)
