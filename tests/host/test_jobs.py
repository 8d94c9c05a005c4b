"""Priority and not-before of a record are known wherever its labels are: `.data` is never the only place."""

from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scene import Scene
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.codec.log.encode import encode_run
from topics.codec.log.frame import decode_frame
from topics.codec.log.run import pack_job, unpack_job
from topics.codec.log.scan import scan
from topics.engine.checkpoint import SegmentRules
from topics.kernel.columns import RecordColumns
from topics.kernel.limits import U64_MAX
from topics.log.kinds import JobQueue, Kind

PRIORITIES = st.none() | st.integers(0, 9)
DELAYS = st.none() | st.integers(1, 10**10)
JOBS = st.lists(st.tuples(PRIORITIES, DELAYS, st.sampled_from([b"", b"red"])), min_size=1, max_size=8)


@given(st.none() | st.integers(0, 254), st.none() | st.integers(1, 2**56 - 1))
def test_a_job_is_packed_and_unpacked(priority, not_before):
    assert unpack_job(pack_job(priority, not_before)) == (priority, not_before)
    assert (pack_job(priority, not_before) == 0) == (priority is None and not_before is None)


def test_what_does_not_fit_is_as_great_as_fits():
    assert unpack_job(pack_job(255, U64_MAX)) == (254, 2**56 - 1)


@given(JOBS)
def test_a_frame_a_live_run_and_a_recovered_one_say_the_same_job(jobs):
    chunk, run = encode_run(1, 1, 10**12, columns(jobs), durable=False, keyed=None, write_frames=len(jobs))
    views, at = [], 0
    for length in run.lengths:
        views.append(decode_frame(chunk, at))
        at += length
    found = [view.job for view in views]

    assert found == [pack_job(p, None if delay is None else 10**12 + delay) for p, delay, _ in jobs]
    assert found == (run.jobs or [0] * len(jobs))
    again = [job for item in scan(chunk, 0, len(chunk)).items for job in item.jobs or [0] * len(item)]
    assert found == again


MORE = pack_job(1, None)  # of what is written for the rewrite


def columns(jobs):
    return RecordColumns(
        [b'"job"'] * len(jobs),
        priority=[priority for priority, _, _ in jobs],
        delay_ms=[delay for _, delay, _ in jobs],
        tag=[tag for _, _, tag in jobs],
    )


@contextmanager
def taken_by_logs():
    """Only a queue takes records with a job, and there is none yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kind, "check_records", JobQueue.check_records)
        yield


def jobs_of(scene):
    """{seq: job} of the live records of `t`."""
    index = scene.engine.state.catalog.find("t").index
    live = [at for at in range(index.start, index.stop) if index.is_live(index.seq_at(at))]
    return {index.seq_at(at): 0 if index.jobs is None else index.jobs[at] for at in live}


@settings(max_examples=25)
@given(st.lists(JOBS, min_size=1, max_size=5))
def test_jobs_outlive_checkpoints_restarts_rewrites_and_repairs(writes):
    """Log, snapshot, segments, columns made anew, a rewrite, a salvage: the index says the same of every record."""
    scene = Scene(segments=SegmentRules(records_max=6, bytes_max=4000))
    scene.open()
    scene.create("t", durability="fsync")
    for jobs in writes:
        put(scene, jobs)
    before = jobs_of(scene)
    for step in (at_once, checkpointed, columns_lost, rewritten, repaired):
        step(scene)
        found = jobs_of(scene)
        assert found == {seq: before.get(seq, MORE) for seq in found}, step.__name__
        assert not fsck(scene.disk, where="simulated", options=Options(settled=True)).errors


def put(scene, jobs):
    given = columns(jobs)
    with taken_by_logs():
        scene.put("t", *given.data, priority=given.priority, delay_ms=given.delay_ms, tag=given.tag)


def at_once(scene):
    scene.process_death()
    scene.open()


def checkpointed(scene):
    scene.sync()
    scene.checkpoint()
    at_once(scene)


def columns_lost(scene):
    for name in scene.disk.names("topics/0000000000000001"):
        if name.endswith(".col"):
            scene.disk.unlink(f"topics/0000000000000001/{name}")
    at_once(scene)


def rewritten(scene):
    scene.delete("t", match="red")
    for _ in range(2):
        put(scene, [(1, None, b"")])
        scene.sync()
        scene.checkpoint()
    scene.reclaim()
    at_once(scene)


def repaired(scene):
    scene.shut_down()
    segment = min(name for name in scene.disk.names("topics/0000000000000001") if name.endswith(".idx"))
    scene.disk.unlink(f"topics/0000000000000001/{segment}")
    repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    scene.open()
