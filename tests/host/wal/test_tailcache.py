"""The newest bytes of a log in memory: the same as in the file, bounded, and free of charge when nobody reads."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scene import SMALL, Scene
from topics.host.wal.tailcache import TailCache
from topics.kernel.errors import Fatal
from topics.log.regions import WalFileId
from topics.testing.faults import FaultKind

FILE = WalFileId(0, 0, 1)
pytestmark = pytest.mark.rule("T5.21")


def content(file, offset, size):
    """What is written at each place: told by the place alone."""
    return bytes((file.first_frame * 7 + at * 31 + (at >> 8)) % 251 for at in range(offset, offset + size))


def cut(data, sizes):
    """The data in chunks of these sizes, the last one the rest."""
    chunks, at = [], 0
    for size in sizes:
        chunks.append(data[at : at + size])
        at += size
    return [chunk for chunk in [*chunks, data[at:]] if chunk]


def wanted(bytes_max):
    tail = TailCache(bytes_max)
    assert tail.find(FILE, 0, 1) is None
    return tail


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 400), st.lists(st.integers(1, 60), max_size=4)),
        st.tuples(st.just("hole"), st.integers(1, 50), st.just([])),
        st.tuples(st.just("rotate"), st.integers(1, 5), st.just([])),
        st.tuples(
            st.just("read"), st.integers(0, 500), st.lists(st.integers(0, 900), min_size=1, max_size=1)
        ),
    ),
    max_size=60,
)


@given(steps=STEPS, bytes_max=st.sampled_from([0, 300, 2000, 10_000]))
@settings(max_examples=150, deadline=None)
def test_what_is_found_is_what_was_written_whatever_was_forgotten(steps, bytes_max):
    """The oracle: all bytes of each file that were written, and none that were not."""
    tail, file, end, written = TailCache(bytes_max), FILE, 64, {}
    for kind, number, more in steps:
        match kind:
            case "write":
                data = content(file, end, number)
                tail.add(file, end, cut(data, more), number)
                written.setdefault(file, set()).update(range(end, end + number))
                end += number
            case "hole":  # written by somebody else
                end += number
            case "rotate":
                file, end = WalFileId(0, 0, file.first_frame + number), 64
            case "read":
                at = max(end - more[0], 0)
                found = tail.find(file, at, number)
                if found is not None:
                    assert found == content(file, at, number)
                    assert set(range(at, at + number)) <= written.get(file, set())
        assert tail.size <= bytes_max
        for other in written:
            found = tail.find(other, 64, 10)
            assert found in (None, content(other, 64, 10))


def test_once_somebody_has_read_near_the_end_everything_newer_is_there():
    tail = wanted(50_000)
    for offset in range(64, 3064, 100):
        tail.add(FILE, offset, cut(content(FILE, offset, 100), [10, 30]), 100)
        assert tail.find(FILE, 64, offset + 36) == content(FILE, 64, offset + 36)
        assert tail.find(FILE, offset + 7, 50) == content(FILE, offset + 7, 50)
        assert tail.find(FILE, offset + 7, 94) is None


def test_nothing_is_kept_for_nobody_and_what_was_kept_is_forgotten_when_readers_are_gone():
    tail = TailCache(1000)
    for offset in range(0, 5000, 100):
        tail.add(FILE, offset, [bytes(100)], 100)
    assert tail.size == 0
    assert tail.find(FILE, 0, 100) is None, "far from the end: of no interest"
    tail.add(FILE, 5000, [bytes(100)], 100)
    assert tail.size == 0
    assert tail.find(FILE, 5000, 100) is None
    tail.add(FILE, 5100, [bytes(100)], 100)
    assert tail.find(FILE, 5100, 100) == bytes(100)
    for offset in range(5200, 6200, 100):
        tail.add(FILE, offset, [bytes(100)], 100)
    assert tail.size > 0
    tail.add(FILE, 6200, [bytes(100)], 100)
    assert tail.size == 0


def test_many_small_batches_stay_within_the_bound_and_cost_what_they_take():
    tail = wanted(100_000)
    for offset in range(20_000):
        tail.add(FILE, offset, [b"x"], 1)
        if offset % 50 == 0:
            assert tail.find(FILE, offset, 1) == b"x"
        assert tail.size <= 100_000
    assert tail.find(FILE, 19_900, 100) == b"x" * 100


def test_a_read_of_one_whole_chunk_copies_nothing():
    tail = wanted(1000)
    chunk = content(FILE, 64, 100)
    tail.add(FILE, 64, [chunk], 100)

    assert tail.find(FILE, 64, 100) is chunk


def test_readers_need_no_lock_beside_the_writer():
    """Three threads read what a fourth one writes; batches are forgotten and lists are shortened meanwhile."""
    tail, wrong, hits, end = wanted(40_000), [], [0, 0, 0], [64]
    done = threading.Event()
    deadline = time.monotonic() + 30  # for a machine that lets the writer run first

    def read(number):
        step = 0
        while not done.is_set():
            step += 1
            at = max(end[0] - 1 - step * 37 % 3000, 0)
            found = tail.find(FILE, at, 1 + step % 200)
            if found is not None:
                hits[number] += 1
                if found != content(FILE, at, 1 + step % 200):
                    wrong.append((at, step))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(3)]
    for reader in readers:
        reader.start()
    added = 0
    while added < 12_000 or (not all(hits) and time.monotonic() < deadline):
        added += 1
        size = 1 + end[0] % 30
        tail.add(FILE, end[0], cut(content(FILE, end[0], size), [size // 3]), size)
        end[0] += size
    done.set()
    for reader in readers:
        reader.join()

    assert not wrong
    assert all(hits)


# In a store.


def scene_with(**options):
    scene = Scene(1, limits=SMALL, **options)
    scene.open()
    return scene


def reads(scene):
    return scene.disk.counts["read"]


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_reader_near_the_head_asks_the_disk_once_and_then_no_more(durability):
    """Across rotations, marks in between, and records of every size."""
    scene = scene_with()
    scene.create("t", durability=durability)
    scene.put("t", b"0")
    assert len(scene.page("t")[1]) == 1
    before = reads(scene)
    first = scene.opened.writers[0].wal.file
    for i in range(1, 300):
        scene.put("t", b"%d" % i, b'"%b"' % (b"x" * (i * 7 % 300)))
        if i % 10 == 0:
            scene.opened.writers[0].mark()
        _, records = scene.page("t", from_seq=2 * i - 1)
        assert [record.seq for record in records] == [2 * i, 2 * i + 1]

    assert scene.opened.writers[0].wal.file != first
    assert reads(scene) == before


def test_a_page_across_batches_and_marks_comes_from_memory():
    scene = scene_with()
    scene.create("t", durability="fsync")
    scene.put("t", b"0")
    scene.page("t")
    for i in range(1, 30):
        scene.put("t", b"%d" % i)
        scene.opened.writers[0].mark()
    before = reads(scene)

    assert len(scene.page("t", from_seq=1)[1]) == 29
    assert reads(scene) == before


def test_a_write_that_failed_leaves_nothing_to_be_read():
    scene = scene_with()
    scene.create("t", durability="disk")
    scene.put("t", b"0")
    scene.page("t")
    writer = scene.opened.writers[0]
    file, offset = writer.wal.file, writer.wal.tail[0]
    scene.disk.inject("write", FaultKind.SHORT)
    with pytest.raises(Fatal):
        scene.put("t", b'"lost"')

    assert writer.tail.find(file, offset, 1) is None
    assert scene.read("t") == {1: b"0"}


@pytest.mark.rule("T3.29")
def test_what_a_failed_sync_left_published_is_read_as_it_was_written():
    """The kernel may have thrown the pages away; who reads above durable_seq gets what was published."""
    scene = scene_with()
    scene.create("t", durability="disk")
    scene.put("t", b"0")
    scene.page("t")
    scene.put("t", b"1")
    scene.disk.inject("sync_data", FaultKind.DROPS_PAGES)
    with pytest.raises(Fatal):
        scene.sync()
    scene.disk.drop_caches()

    plan, records = scene.page("t", from_seq=1)
    assert [record.data for record in records] == [b"1"]
    assert plan.durable_seq == 0


def test_a_setting_of_zero_keeps_nothing():
    scene = scene_with(tail_cache_bytes=0)
    for i in range(10):
        scene.put("t", b"%d" % i)
        assert len(scene.read("t")) == i + 1

    assert scene.opened.writers[0].tail.size == 0


def test_what_is_kept_is_divided_among_the_shards():
    scene = scene_with(shards=4, tail_cache_bytes=1 << 20)

    assert [writer.tail.bytes_max for writer in scene.opened.writers] == [1 << 18] * 4


def test_recovery_begins_with_nothing_and_reads_the_file():
    scene = scene_with()
    scene.put("t", b"0", b"1")
    scene.page("t")
    scene.put("t", b"2")
    scene.process_death()
    scene.open()
    before = reads(scene)

    assert scene.read("t") == {1: b"0", 2: b"1", 3: b"2"}
    assert reads(scene) > before
