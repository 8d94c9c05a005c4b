"""Queues of builds that kept of a job only what `.data` has: whoever opens them knows priority, not-before and key."""

from __future__ import annotations

import shutil

import attrs
import pytest

import topics
from tests.embed.golden_queue import GOLDEN, NAMES, QUEUE, job, put
from tests.embed.golden_store_2 import COLD, DATA, END_MS, in_the_background, options, reopened
from topics.audit.fsck import Options, fsck
from topics.audit.repair.repairing import repair
from topics.codec.log.run import pack_job
from topics.engine.verify import digest
from topics.host.cold.ownership import own_tier
from topics.host.cold.place import open_cold
from topics.host.directory.layout import segment_path
from topics.host.segments.segment_seals import seal_of
from topics.host.system.disk import OsDisk
from topics.host.system.readonly import ReadOnlyDisk
from topics.store.directory import ClaimedDirectory
from topics.store.viewing import view
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

HOT = (49, 57)  # first seqs of its segments
COLD_ONES = (1, 9, 17, 25, 33, 41)


@pytest.fixture(params=NAMES)
def copy(tmp_path, request):
    """It goes on elsewhere, so it adopts its cold tier."""
    path = shutil.copytree(GOLDEN / request.param, tmp_path / "store")
    held, store = ClaimedDirectory.claim(path / DATA, create=False), open_cold(str(path / COLD))
    own_tier(held.disk, store, SeededEntropy(1))
    held.lock.remember_place()
    store.close()
    held.release()
    return path


@pytest.fixture
def clock():
    return ManualClock(END_MS)


def jobs_in(engine):
    """{seq: (job, key)} of the live records."""
    index = engine.state.catalog.find(QUEUE).index
    live = [at for at in range(index.start, index.stop) if index.is_live(index.seq_at(at))]
    keys = index.key_ids or [0] * index.stop
    return {index.seq_at(at): (index.jobs[at] if index.jobs else 0, index.keys.name(keys[at])) for at in live}


def expected(engine, last=70):
    """What the story says of them."""
    index = engine.state.catalog.find(QUEUE).index
    found = {}
    for seq in range(6, last + 1):
        priority, delay_ms, key, tag = job(seq)
        if tag != "even" and (tag != "red" or seq > 30):
            due = None if delay_ms is None else index.ts[index.position(seq)] + delay_ms
            found[seq] = (pack_job(priority, due), (key or "").encode())
    return found


def engine_of(store):
    return store._opened.engine


def blocks_of(path, first):
    data = ReadOnlyDisk(path / DATA)
    columns = (path / DATA / segment_path(1, first, "col")).read_bytes()
    blocks, end = seal_of(data, 1, first).blocks(columns, first, first + 8)
    assert end == len(columns)
    return blocks


def errors_in(path):
    chosen = Options(settled=True, cold=open_cold(str(path / COLD)))
    return fsck(ReadOnlyDisk(path / DATA), where="golden", options=chosen).errors


def test_it_holds_what_it_is_kept_for():
    """By hand: no block says what the jobs are, and the newest snapshot has some that no segment has."""
    for name in NAMES:
        path = GOLDEN / name
        assert not any(block.of_queue for first in (*HOT, *COLD_ONES) for block in blocks_of(path, first))
        assert {block.version for first in HOT for block in blocks_of(path, first)} == (
            {1} if name == "queue-1" else {1, 2}
        )
        assert len(list((path / COLD).rglob("*.data"))) == len(COLD_ONES)
        assert len(list((path / DATA).rglob("*.del"))) == 1


def test_who_only_reads_it_knows_the_jobs_and_changes_nothing(copy, clock):
    before = {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}
    chosen = attrs.evolve(options(), cold_dir=str(copy / COLD))
    opened, _ = view(copy / DATA, clock=clock, options=chosen)

    assert list(opened.damages) == []
    assert jobs_in(opened.engine) == expected(opened.engine)
    assert not errors_in(copy)
    assert before == {file: file.read_bytes() for file in copy.rglob("*") if file.is_file()}


def test_its_columns_are_written_anew_when_it_is_opened_for_writing(copy, clock):
    states = []
    for _ in range(2):
        with reopened(copy, clock) as store:
            assert (list(store.damages), list(store.cuts)) == ([], [])
            engine = engine_of(store)
            assert jobs_in(engine) == expected(engine)
            states.append(digest(engine.state.catalog))
        assert all(block.of_queue for first in (*HOT, *COLD_ONES) for block in blocks_of(copy, first))
        assert not errors_in(copy)

    assert states[0] == states[1]


def test_the_next_start_asks_no_data(copy, clock):
    with reopened(copy, clock):
        pass
    for file in (*(copy / DATA).rglob("*.data"), *(copy / COLD).rglob("*.data")):
        file.write_bytes(bytes(file.stat().st_size))
    opened, _ = view(copy / DATA, clock=clock, options=attrs.evolve(options(), cold_dir=str(copy / COLD)))
    known = jobs_in(opened.engine)

    assert {seq: job for seq, job in known.items() if seq < 49} == {
        seq: job for seq, job in expected(opened.engine).items() if seq < 49
    }


def test_it_goes_on(copy, clock):
    """The jobs of the snapshot and of the log are copied with what they are, and rewritten so."""
    with reopened(copy, clock) as store:
        queue = store.topic(QUEUE)
        put(queue, 71, 90)
        store.checkpoint()
        queue.delete(before_seq=6)
        for seq in range(50, 58):
            queue.delete(match="odd", before_seq=seq)
        for _ in range(2):
            store.checkpoint()
            in_the_background(store)
        before = jobs_in(engine_of(store))
        assert before == {
            seq: job for seq, job in expected(engine_of(store), 90).items() if not 46 <= seq <= 53
        }
    with reopened(copy, clock) as store:
        assert list(store.damages) == []
        assert before == jobs_in(engine_of(store))
    assert not errors_in(copy)


def test_of_a_record_that_is_damaged_the_old_columns_still_know_the_labels(copy, clock):
    """Seq 47 has a tag, a key and nothing more: the tag is in the column, the key is lost with the bytes."""
    path = copy / DATA / segment_path(1, 49, "data")
    idx = seal_of(ReadOnlyDisk(copy / DATA), 1, 49).idx((path.with_suffix(".idx")).read_bytes())
    data = bytearray(path.read_bytes())
    data[idx.offsets[1] + 50] ^= 1  # of seq 50
    path.write_bytes(data)
    for _ in range(2):
        with reopened(copy, clock) as store:
            index = engine_of(store).state.catalog.find(QUEUE).index
            at = index.position(50)
            assert index.tags.labels.name(index.tag_ids[at]) == b"odd"
            found, wanted = jobs_in(engine_of(store)), expected(engine_of(store))
            assert {seq for seq in wanted if found[seq] != wanted[seq]} == {50}
    assert {(one.check, one.seq) for one in errors_in(copy)} == {("segment.record", 50)}


def test_while_the_cold_tier_is_away_its_jobs_are_not_known_and_nobody_says_they_are(copy, clock):
    with topics.open(copy / DATA, clock=clock, options=options()) as store:
        found, wanted = jobs_in(engine_of(store)), expected(engine_of(store))
        assert {seq: job for seq, job in found.items() if seq >= 49} == {
            seq: job for seq, job in wanted.items() if seq >= 49
        }
        assert all(found[seq][1] == b"" for seq in found if seq < 49)
    with reopened(copy, clock) as store:
        assert jobs_in(engine_of(store)) == expected(engine_of(store))


def test_a_repair_keeps_the_jobs(copy, clock):
    (copy / DATA / segment_path(1, 57, "idx")).unlink()
    disk = OsDisk(copy / DATA)
    repair(disk, where="golden", same_boot=False, stamp="20261122T120000Z", cold=open_cold(str(copy / COLD)))
    with reopened(copy, clock) as store:
        assert jobs_in(engine_of(store)) == expected(engine_of(store))
