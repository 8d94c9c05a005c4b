"""Priority, not-before and key of a job are known wherever its labels are: `.data` is never the only place."""

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
from topics.codec.snapshot import encode_snapshot
from topics.engine.checkpoint import SegmentRules
from topics.engine.image import encode
from topics.engine.verify import digest
from topics.host.checkpoint.snapshots import find_snapshots, read_snapshot, snapshot_path
from topics.host.directory.layout import segment_of
from topics.host.segments.segment_seals import seal_of
from topics.kernel.columns import RecordColumns
from topics.kernel.limits import U64_MAX

PRIORITIES = st.none() | st.integers(0, 9)
DELAYS = st.none() | st.integers(1, 10**10)
JOBS = st.lists(
    st.tuples(PRIORITIES, DELAYS, st.sampled_from([b"", b"red"]), st.sampled_from([b"", b"k", b"j"])),
    min_size=1,
    max_size=8,
)


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
    found = [(view.job, view.key) for view in views]

    assert found == [
        (pack_job(p, None if delay is None else 10**12 + delay), key) for p, delay, _, key in jobs
    ]
    assert found == jobs_in(run)
    assert found == [job for item in scan(chunk, 0, len(chunk)).items for job in jobs_in(item)]


def jobs_in(run):
    assert run.jobs is None or any(run.jobs)
    assert run.keys is None or any(run.keys)
    return list(zip(run.jobs or [0] * len(run), run.keys or [b""] * len(run), strict=True))


MORE = (pack_job(1, None), b"more")  # of what is written for the rewrite


def columns(jobs):
    return RecordColumns(
        [b'"job"'] * len(jobs),
        priority=[priority for priority, _, _, _ in jobs],
        delay_ms=[delay for _, delay, _, _ in jobs],
        tag=[tag for _, _, tag, _ in jobs],
        key=[key for _, _, _, key in jobs],
    )


def jobs_of(scene):
    """{seq: (job, key)} of the live records of `t`."""
    index = scene.engine.state.catalog.find("t").index
    live = [at for at in range(index.start, index.stop) if index.is_live(index.seq_at(at))]
    return {
        index.seq_at(at): (
            0 if index.jobs is None else index.jobs[at],
            b"" if index.key_ids is None else index.keys.name(index.key_ids[at]),
        )
        for at in live
    }


def check_blocks(scene):
    """All that `.col` files say is said as of a queue: whoever loads them asks no data."""
    paths = [f"topics/0000000000000001/{name}" for name in scene.disk.names("topics/0000000000000001")]
    for segment, path in [(segment_of(path), path) for path in paths if path.endswith(".col")]:
        blocks, _ = seal_of(scene.disk, *segment).blocks(scene.disk.content(path), 1, U64_MAX)
        assert all(block.of_queue for block in blocks)


@pytest.mark.rule("Q2.12", "T2.13")
@settings(max_examples=25)
@given(st.lists(JOBS, min_size=1, max_size=5))
def test_jobs_outlive_checkpoints_restarts_rewrites_and_repairs(writes):
    """Log, snapshot, segments, columns made anew, a rewrite, a salvage: the index says the same of every record."""
    scene = Scene(segments=SegmentRules(records_max=6, bytes_max=4000))
    scene.open()
    scene.create("t", type="queue", durability="fsync")
    for jobs in writes:
        put(scene, jobs)
    before = jobs_of(scene)
    for step in (at_once, checkpointed, columns_lost, rewritten, repaired):
        step(scene)
        found = jobs_of(scene)
        assert found == {seq: before.get(seq, MORE) for seq in found}, step.__name__
        assert not fsck(scene.disk, where="simulated", options=Options(settled=True)).errors


@settings(max_examples=15)
@given(st.lists(JOBS, min_size=1, max_size=3))
def test_what_a_snapshot_of_an_earlier_build_does_not_say_is_taken_from_the_log(writes):
    """Dead ones among them: what they were nobody needs to know."""
    scene = Scene()
    scene.open()
    scene.create("t", type="queue", durability="fsync")
    put(scene, [(None, None, b"", b"k")])
    for jobs in writes:
        put(scene, jobs)
    scene.delete("t", match="red")
    scene.carry(scene.opened.checkpointer.closing())
    before = jobs_of(scene), digest(scene.engine.state.catalog)
    scene.process_death()
    for number in find_snapshots(scene.disk):
        snapshot = read_snapshot(scene.disk, number)
        for slots in [slots for image in snapshot.state.topics for slots in image.slots]:
            slots.jobs, slots.keys, slots.key_numbers, slots.of_queue = b"", [], b"", False
        path, content = snapshot_path(number), encode_snapshot(number, encode(snapshot))
        scene.disk.unlink(path)
        scene.disk.create(path, 0)
        scene.disk.write(path, 0, [content])
    scene.open()

    assert scene.opened.checkpointer.kept
    assert (jobs_of(scene), digest(scene.engine.state.catalog)) == before


def test_jobs_that_have_gone_leave_no_trace_in_the_state():
    """A start from the snapshot never knew of them, one from the log did (I-20)."""
    scene = Scene()
    scene.open()
    scene.create("t", type="queue", durability="fsync")
    put(scene, [(5, 1000, b"", b"k"), (None, None, b"", b"")])
    scene.delete("t", before_seq=2)
    scene.sync()
    scene.checkpoint()
    before = digest(scene.engine.state.catalog)
    at_once(scene)

    assert digest(scene.engine.state.catalog) == before


def test_states_that_differ_in_a_job_or_a_key_have_other_digests():
    states, given = set(), [(None, None, b""), (0, None, b""), (1, None, b""), (None, 7, b""), (None, 8, b"")]
    given += [(None, None, b"k"), (None, None, b"j")]
    for priority, delay_ms, key in given:
        scene = Scene()
        scene.open()
        scene.create("t", type="queue")
        put(scene, [(priority, delay_ms, b"", key)])
        scene.engine.state.catalog.find("t").index.lengths[0] = 0  # which differ, too
        states.add(digest(scene.engine.state.catalog))

    assert len(states) == len(given)


def put(scene, jobs):
    given = columns(jobs)
    scene.put(
        "t", *given.data, priority=given.priority, delay_ms=given.delay_ms, tag=given.tag, key=given.key
    )


def at_once(scene):
    scene.process_death()
    scene.open()


def checkpointed(scene):
    scene.sync()
    scene.checkpoint()
    check_blocks(scene)
    at_once(scene)


def columns_lost(scene):
    for name in scene.disk.names("topics/0000000000000001"):
        if name.endswith(".col"):
            scene.disk.unlink(f"topics/0000000000000001/{name}")
    at_once(scene)


def rewritten(scene):
    scene.delete("t", match="red")
    for _ in range(2):
        put(scene, [(1, None, b"", b"more")])
        scene.sync()
        scene.checkpoint()
    scene.reclaim()
    check_blocks(scene)
    at_once(scene)


def repaired(scene):
    scene.shut_down()
    segment = min(name for name in scene.disk.names("topics/0000000000000001") if name.endswith(".idx"))
    scene.disk.unlink(f"topics/0000000000000001/{segment}")
    repair(scene.disk, where="simulated", same_boot=False, stamp="20261122T120000Z")
    scene.open()
