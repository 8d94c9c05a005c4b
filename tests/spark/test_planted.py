"""Every kind of fault is found in a large directory by fsck and by Spark, and nothing else; beside a writer, too."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.support.planting import KINDS, TOGETHER, Survey, plant_together
from tests.support.planting.journals import ACKS
from tests.support.sample_store import build, write_out
from topics.audit.checks.acks import NO_DIGEST, Acks
from topics.audit.fsck import Options, fsck
from topics.audit.recovery import read
from topics.audit.scan.rows import Severity
from topics.cli.demo.private_server import PrivateServer
from topics.codec.log.layout import CHECKSUM_SIZE
from topics.host.directory.layout import segment_path
from topics.host.directory.owner import same_boot_at
from topics.host.segments.segment_seals import seal_of
from topics.host.system.readonly import ReadOnlyDisk
from topics.spark.audits import validate

FRAMES_OF = {6_000: 100_000, 292_000: 5_000_000}  # records a round -> so many frames at least
RUN, COMPARED = 1000, 20  # of this many acknowledgements in a row one run in so many has digests
SETTINGS = "segment_max_events = 40\nmin_free_bytes = 0\n"
WRITER = """
import sys
import topics

with topics.Client(sys.argv[1]) as client:
    kept, capped = client.create("kept"), client.create("capped", cap_records=60)
    for number in range(1_000_000):
        for topic in kept, capped:
            topic.put_many([{"data": {"n": number, "i": i}, "tag": "ab"[i % 2]} for i in range(7)])
        if number % 9 == 0:
            capped.delete(match="a", before_seq=number * 5)
        if number % 1000 == 50:
            client.checkpoint()
        print(number, flush=True)
"""
SEALED = 4  # segments to plant in


@pytest.fixture(scope="module")
def other():
    """A process in which fsck looks, while Spark does here: neither is in need of more than a core most of the time."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver")) as pool:
        yield pool


def acks_of(told):
    acks = Acks(ACKS)
    for ack in told:
        acks.add(ack.topic, ack.seq, ack.digest)
    return acks


def acks_of_all(told):
    """Every one of them: the seqs, and of some runs the data too, which is to read them all."""
    acks = Acks(ACKS)
    for number, ack in enumerate(told):
        compared = number // RUN % COMPARED == 0
        acks.add(ack.topic, ack.seq, ack.digest if compared else NO_DIGEST)
    return acks


def look_alone(root, acks, same_boot, settled):
    started = time.perf_counter()
    options = Options(jobs=2, acks=acks, settled=settled, same_boot=same_boot)
    report = fsck(ReadOnlyDisk(root), where=str(root), options=options)
    return report, time.perf_counter() - started


def both(spark, other, root, acks, *, same_boot=False, settled=True):
    """What is wrong with a directory by fsck and by Spark, beside each other; and how long each took."""
    alone = other.submit(look_alone, root, acks, same_boot, settled)
    started = time.perf_counter()
    sparks = validate(spark, str(root), acks=acks, same_boot=same_boot, settled=settled)
    took = time.perf_counter() - started
    report, alone_took = alone.result()
    return report, sparks, (alone_took, took)


def put_in_place(root, clean, files):
    """Make a directory that holds `clean` hold `files`, and say which paths differ."""
    differ = [path for path in {**clean, **files} if clean.get(path) is not files.get(path)]
    for path in differ:
        if path in files:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(files[path])
        else:
            (root / path).unlink()
    return differ


@pytest.mark.rule("P4.1", "P4.2", "P4.3", "P4.4", "P4.7", "P4.10", "P1.7")
@pytest.mark.parametrize(
    "records", [6_000, pytest.param(292_000, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_every_kind_is_found_in_a_large_directory_and_nothing_in_its_twin(spark, other, tmp_path, records):
    started = time.perf_counter()
    sample = build(records=records, segments=8)
    write_out(sample.files, tmp_path)
    survey = Survey(sample.files)
    print(f"made in {time.perf_counter() - started:.1f} s")
    alone, sparks, took = both(spark, other, tmp_path, acks_of_all(sample.acks))
    print(f"{alone.frames} frames, {alone.bytes >> 20} MiB: fsck took {took[0]:.1f}, Spark {took[1]:.1f} s")

    assert alone.frames == sparks.frames >= FRAMES_OF[records]
    assert [*alone.violations, *sparks.violations] == []
    assert sorted(kind for group in TOGETHER for kind in group) == sorted(KINDS)
    for group in TOGETHER:
        files = dict(sample.files)
        planted = plant_together(files, group, survey=survey)
        put_in_place(tmp_path, sample.files, files)
        told = acks_of([ack for one in planted for ack in one.acks])
        alone, sparks, took = both(spark, other, tmp_path, told)
        print(f"{len(group)} kinds: fsck took {took[0]:.1f}, Spark {took[1]:.1f} s")
        put_in_place(tmp_path, files, sample.files)

        assert list(alone.violations) == list(sparks.violations)
        expected = {pair for one in planted for pair in ((one.check, one.file), *one.also)}
        for one in planted:
            assert any(
                (found.check, found.file, found.topic) == (one.check, one.file, one.topic)
                and one.seq in (None, found.seq)
                for found in alone.violations
            ), one
        for found in alone.violations:
            assert (found.check, found.file) in expected or (found.check, "*") in expected, found


def plant_beside_a_writer(root):
    """Faults in sealed segments of a topic that only grows, and a file of nobody; (check, file, seq) of each."""
    state = read(ReadOnlyDisk(root), str(root), same_boot=True)
    topic = next(topic for topic in state.topics.values() if topic.name == "kept")
    sealed = [one for one in topic.segments if one.sealed][:SEALED]
    assert len(sealed) == SEALED
    files = [[segment_path(topic.topic_id, one.first, part) for part in ("data", "idx")] for one in sealed]
    for one, (data, idx), byte, behind in zip(sealed, files[:2], (0xFF, 0x0F), (False, True), strict=False):
        entries = seal_of(ReadOnlyDisk(root), topic.topic_id, one.first).idx((root / idx).read_bytes())
        text = bytearray((root / data).read_bytes())
        text[entries.offsets[5] + entries.lengths[5] - (0 if behind else CHECKSUM_SIZE + 1)] ^= byte
        (root / data).write_bytes(text)
    (root / files[2][1]).unlink()
    (root / "notes.txt").write_bytes(b"somebody's")
    return {
        ("segment.record", files[0][0], sealed[0].first + 5),
        ("segment.flag", files[1][0], sealed[1].first + 5),
        ("segment.idx", files[2][1], None),
        ("leftover", "notes.txt", None),
    }


@pytest.mark.rule("P2.3", "P4.10", "O2.22")
def test_faults_are_found_and_nothing_else_while_a_server_writes_and_when_it_was_killed(
    spark, other, tmp_path
):
    root, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    (home / "topics.toml").write_text(SETTINGS)
    with (
        PrivateServer(root, home) as server,
        subprocess.Popen([sys.executable, "-c", WRITER, server.url], stdout=subprocess.PIPE) as writer,
    ):
        try:
            assert writer.stdout is not None
            for _ in range(60):
                assert writer.stdout.readline()
            planted = plant_beside_a_writer(root)
            while_written = both(spark, other, root, None, same_boot=same_boot_at(root), settled=False)[:2]
            assert writer.poll() is None
            server.kill()
        finally:
            writer.kill()
    when_killed = both(spark, other, root, None, same_boot=same_boot_at(root), settled=False)[:2]

    for report in (*while_written, *when_killed):
        assert not report.unsettled
        # What a kill leaves behind is worth a note, and a write that it cut off is undecidable; no error is.
        found = {(one.check, one.file, one.seq): one.severity for one in report.violations}
        assert planted <= found.keys()
        assert {one for one, severity in found.items() if severity is Severity.ERROR} <= planted
        assert report.exit_code == 1
