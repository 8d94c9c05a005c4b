"""Carrying batches to the disk: one write and at most one sync each, errors that end the shard, space told before."""

from __future__ import annotations

import pytest

from tests.support.scene import SMALL, Scene, append, put_topic
from topics.engine.commands import Sync
from topics.host.checkpoint.steps import Blocking, Tell
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import PENDING_BYTES_MAX
from topics.store.steps import drive
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk


@pytest.fixture
def scene():
    """Topics `m`, `d`, `f` of those classes on one shard, with files of the usual size."""
    scene = Scene()
    scene.open()
    for name, durability in (("m", "memory"), ("d", "disk"), ("f", "fsync")):
        scene.create(name, durability=durability)
    return scene


def calls_of(scene, act):
    """The mutating disk calls an act makes."""
    calls = []
    scene.disk.monitor = lambda call: calls.append(call.op)
    act()
    scene.disk.monitor = None
    return [op for op in calls if op not in ("free_bytes", "read", "size")]


def done(step):
    """A step of whoever is alone with the store."""
    if isinstance(step, Blocking):
        step.call()


def refusal(scene, command):
    with pytest.raises(Rejected) as refused:
        scene.run(command)
    return refused.value.code


# Batches.


@pytest.mark.rule("T3.1")
def test_each_shard_has_one_writer_and_one_batch_and_what_waits_for_it_is_bounded():
    scene = Scene(shards=3)
    opened = scene.open()
    assert [writer.shard for writer in opened.writers] == [0, 1, 2]
    scene.create("t")
    shard = scene.engine.state.lanes_by_name["t"].shard
    writer = opened.writers[shard]
    scene.propose(append("t", 1))
    batch = scene.engine.take_batch(shard)
    scene.propose(append("t", 2))
    assert scene.engine.take_batch(shard) is None
    scene.engine.space(shard, 2 * PENDING_BYTES_MAX)
    waiting = scene.engine.state.shards[shard]
    held, waiting.pending_bytes = waiting.pending_bytes, PENDING_BYTES_MAX
    assert Code.THROTTLED is refusal_of_proposal(scene, append("t", 3))
    waiting.pending_bytes = held

    drive(writer.writing(batch), done)
    scene.drain()
    assert scene.read("t") == {1: b"1", 2: b"2"}


def refusal_of_proposal(scene, command):
    """`check_state` would see the planted count, so it rests meanwhile."""
    scene.engine._checking = False
    try:
        with pytest.raises(Rejected) as refused:
            scene.engine.propose(command)
    finally:
        scene.engine._checking = True
    return refused.value.code


@pytest.mark.rule("T3.11", "T3.12")
def test_what_waits_is_one_write_and_one_sync_whatever_the_classes(scene):
    tickets = [scene.propose(append(name, i)) for i, name in enumerate("mdfmdf")]

    assert calls_of(scene, scene.opened.writers[0].drain) == ["write", "sync_data"]
    assert all(ticket.done and ticket.error is None for ticket in tickets)


@pytest.mark.rule("T3.12")
def test_a_batch_without_a_durable_frame_is_not_synced_until_the_timer_is_due(scene):
    assert calls_of(scene, lambda: scene.put("d", 1)) == ["write"]
    assert calls_of(scene, lambda: scene.put("m", 1)) == ["write"]
    assert calls_of(scene, scene.opened.writers[0].drain) == []
    assert scene.state("d").durable_seq == 0
    scene.clock.advance(1000)
    scene.engine.tick()
    # The exact heads of both topics, which have rested, go into the same batch.
    assert calls_of(scene, scene.opened.writers[0].drain) == ["write", "sync_data"]
    assert (scene.state("d").durable_seq, scene.state("m").durable_seq) == (1, 1)


@pytest.mark.rule("T3.13")
def test_a_lone_durable_write_is_synced_at_once(scene):
    before = scene.clock.now_ms()

    assert calls_of(scene, lambda: scene.put("f", 1)) == ["write", "sync_data"]
    assert before == scene.clock.now_ms()
    assert calls_of(scene, lambda: scene.put("d", 1, sync=True)) == ["write", "sync_data"]


@pytest.mark.rule("T3.12", "S1.4")
@pytest.mark.invariant("I-17")
def test_unsynced_classes_are_published_when_written_and_fsync_when_synced(scene):
    writer = scene.opened.writers[0]
    lazy, strict = scene.propose(append("d", 1)), scene.propose(append("f", 1))
    steps = writer.writing(scene.engine.take_batch(0))
    done(next(steps))
    assert (lazy.done, strict.done) == (False, False)
    assert isinstance(next(steps), Tell)
    assert (lazy.done, strict.done) == (True, False)
    assert (scene.state("d").head_seq, scene.state("f").head_seq) == (1, 0)
    assert (scene.state("d").durable_seq, scene.state("f").durable_seq) == (0, 0)
    done(next(steps))
    assert not strict.done
    assert isinstance(next(steps), Tell)
    assert strict.done
    assert (scene.state("d").durable_seq, scene.state("f").durable_seq) == (1, 1)


# Errors.


@pytest.mark.rule("T3.24", "T3.25", "S2.15", "S2.16")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.SHORT, FaultKind.ENOSPC])
def test_an_error_or_short_write_fails_the_batch_and_everything_behind_it(scene, kind):
    scene.put("d", 1)
    scene.disk.inject("write", kind)
    first, second = scene.propose(append("d", 2)), scene.propose(append("f", 2))
    parked = [scene.propose(put_topic("d", durability="memory")), scene.propose(append("d", 3))]
    scene.opened.writers[0].drain()

    assert all(isinstance(ticket.error, Fatal) for ticket in (first, second, *parked))
    assert Code.STORAGE_READ_ONLY is refusal(scene, append("d", 4))
    assert scene.read("d") == {1: b"1"}
    assert calls_of(scene, scene.opened.writers[0].drain) == []
    scene.process_death().open()
    found = scene.read("d")
    assert found in ({1: b"1"}, {1: b"1", 2: b"2"})
    assert not scene.opened.read_only
    scene.put("d", 5)


@pytest.mark.rule("T3.28", "T3.29")
@pytest.mark.parametrize("kind", [FaultKind.EIO, FaultKind.DROPS_PAGES])
def test_after_a_failed_sync_nothing_is_synced_again_and_what_was_published_stays_readable(scene, kind):
    scene.disk.inject("sync_data", kind)
    lazy, strict = scene.propose(append("d", 1)), scene.propose(append("f", 1))
    calls = calls_of(scene, scene.opened.writers[0].drain)

    assert calls == [
        "write",
        "write",
        "sync_data",
    ]  # the sync failed, so it took no effect; then LOCK is written
    assert [call.path for call in list(scene.disk.calls)[-2:]] == ["LOCK", "LOCK"]
    assert lazy.error is None
    assert isinstance(strict.error, Fatal)
    assert scene.read("d") == {1: b"1"}
    assert 0 == scene.state("d").durable_seq < scene.state("d").head_seq
    scene.clock.advance(5000)
    scene.engine.tick()
    assert calls_of(scene, scene.opened.writers[0].drain) == []
    assert calls_of(scene, scene.opened.writers[0].mark) == []


@pytest.mark.rule("T3.24")
def test_a_mark_that_fails_ends_the_shard_too(scene):
    scene.put("f", 1)
    scene.disk.inject("sync_data")
    scene.opened.writers[0].mark()

    assert scene.opened.writers[0].failed is not None
    assert Code.STORAGE_READ_ONLY is refusal(scene, append("d", 1))
    assert scene.read("f") == {1: b"1"}


@pytest.mark.rule("T3.30", "T4.22")
def test_a_failed_shard_leaves_the_others_writing_and_shard_0_failed_refuses_creations():
    scene = Scene(shards=2)
    scene.open()
    for i in range(8):
        scene.create(f"t{i}", durability="fsync")
    by_shard = {lane.shard: name for name, lane in sorted(scene.engine.state.lanes_by_name.items())}
    scene.disk.inject("write")
    ticket = scene.propose(append(by_shard[0], 1))
    scene.opened.writers[0].drain()

    assert isinstance(ticket.error, Fatal)
    assert Code.STORAGE_READ_ONLY is refusal(scene, put_topic("new"))
    assert Code.STORAGE_READ_ONLY is refusal(scene, append("new", 1))
    assert scene.put(by_shard[1], 1).first_seq == 1


# Space.


def filled():
    """A small log on a disk that has just become full."""
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, 3)
    scene.disk.free = 0
    scene.opened.writers[0].keep_reserve()
    return scene


@pytest.mark.rule("T3.22", "T3.31", "S2.9")
def test_on_a_full_disk_appends_and_creations_get_507_before_any_seq_and_a_delete_still_works():
    scene = filled()

    assert Code.DISK_LOW is refusal(scene, append("t", 4))
    assert Code.DISK_LOW is refusal(scene, put_topic("new"))
    assert scene.state("t").head_seq == 3
    assert scene.delete("t", before_seq=3).deleted == 2
    scene.run(Sync(shard=0))
    assert scene.read("t") == {3: b"3"}
    assert scene.opened.writers[0].failed is None


@pytest.mark.rule("T3.22", "T3.31")
@pytest.mark.parametrize(
    ("mounts", "full"), [(("wal",), "wal"), (("wal",), ""), (("wal", "topics"), "topics")]
)
def test_space_is_asked_of_the_disk_of_the_log_and_of_that_of_the_segments(mounts, full):
    """Without room for segments no checkpoint gives any space back, so deletes must have theirs in the log."""
    scene = Scene(limits=SMALL, disk=SimDisk(mounts=mounts))
    scene.open()
    scene.create("t", durability="disk")
    scene.put("t", 1, 2, 3)
    scene.disk.set_free(0, full)
    scene.opened.writers[0].keep_reserve()

    assert Code.DISK_LOW is refusal(scene, append("t", 4))
    assert scene.delete("t", before_seq=3).deleted == 2
    scene.disk.set_free(1 << 30, full)
    scene.opened.writers[0].keep_reserve()
    assert scene.put("t", 4).first_seq == 4


def test_deletes_have_their_reserve_in_the_log_while_the_disk_of_the_segments_is_full():
    scene = Scene(limits=SMALL, disk=SimDisk(mounts=("topics",)))
    scene.open()
    scene.create("t", durability="disk")
    for start in range(0, 300, 20):
        scene.put("t", *range(start, start + 20))
    before = len(scene.files())
    scene.disk.set_free(0, "topics")
    scene.opened.writers[0].keep_reserve()
    for seq in range(2, 300):  # more than there is room for in one file
        assert scene.delete("t", before_seq=seq).deleted == 1
        scene.run(Sync(shard=0))
        scene.opened.writers[0].keep_reserve()

    assert len(scene.files()) > before
    assert scene.opened.writers[0].failed is None


@pytest.mark.rule("T3.23")
def test_writes_are_accepted_again_once_there_is_space():
    scene = filled()
    assert Code.DISK_LOW is refusal(scene, append("t", 4))
    scene.disk.free = 1 << 30
    scene.opened.writers[0].keep_reserve()

    assert scene.put("t", 4).first_seq == 4


@pytest.mark.rule("T3.22")
@pytest.mark.parametrize("kind", [FaultKind.ENOSPC, FaultKind.EIO, FaultKind.SHORT])
def test_a_reserve_that_cannot_be_had_refuses_appends_and_fails_no_shard(kind):
    scene = Scene(limits=SMALL)
    scene.open()
    scene.create("t", durability="disk")
    codes = []
    scene.disk.inject("create", kind, times=None)
    scene.disk.inject("extend", kind, times=None)
    for i in range(60):
        try:
            scene.put("t", b'"' + b"%d" % i * 100 + b'"')
        except Rejected as refused:
            codes.append(refused.code)
    assert len(codes) > 10
    assert {Code.DISK_LOW} == set(codes)
    assert scene.opened.writers[0].failed is None
    scene.disk.heal()
    scene.opened.writers[0].keep_reserve()
    scene.put("t", 1)
