"""Files that are swapped or removed under readers: nobody reads anything wrong, misses anything, or hears of damage."""

from __future__ import annotations

import threading

import attrs
import pytest

import topics
from tests.support.embedded import SMALL, Sly, simulated
from topics.engine.checkpoint import SegmentRules
from topics.kernel.errors import Corrupt
from topics.testing.simdisk import SimDisk

OPTIONS = attrs.evolve(SMALL, segments=SegmentRules(records_max=50, bytes_max=1 << 20))


def rewrite(store):
    """All rewriting that is due. Returns how many segments there were."""
    checkpointer = store._opened.checkpointer
    before = checkpointer.reclaimer.rewrites
    while store._compactor.carry_out(checkpointer.due):
        pass
    return checkpointer.reclaimer.rewrites - before


def put(topic, count):
    """Every third record is kept, the others are going to be deleted."""
    first = topic.state().head_seq if topic.store.config(topic.name) is not None else 0
    records = [
        {"data": {"n": n, "text": "x" * (n % 50)}, "tag": "drop" if n % 3 else "keep"}
        for n in range(first + 1, first + count + 1)
    ]
    topic.put_many(records)


def half_dead(store, count=200):
    """A topic whose sealed segments are to be rewritten now."""
    topic = store.create("t", durability="fsync")
    put(topic, count)
    store.checkpoint()
    topic.delete(match="drop")
    for _ in range(3):
        topic.put({"n": -1}, tag="end")
        store.checkpoint()
    return topic


def checked(page):
    """The seqs of a page, each with its own bytes, none missing that is kept."""
    seqs = [record.seq for record in page.records if record.tag != "end"]
    assert [record.data["n"] for record in page.records if record.tag != "end"] == seqs
    assert {seq for seq in seqs if not seq % 3} == {
        seq for seq in range(page.from_seq + 1, min(page.next_from_seq, 200) + 1) if not seq % 3
    }
    assert page.tombstone is None
    return seqs


@pytest.mark.rule("T5.13", "T5.22")
def test_a_segment_that_is_rewritten_between_plan_and_fetch_is_planned_again():
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly, OPTIONS)
    topic = half_dead(store)
    done = []
    sly.before_read = lambda: done.append(rewrite(store))

    assert checked(topic.read(limit=1000)) == list(range(3, 201, 3))
    assert done == [4]


@pytest.mark.rule("T5.13", "T5.22")
def test_files_that_change_faster_than_they_are_read_are_no_damage():
    """Each attempt finds another file. That ends, with words that send nobody behind the record."""
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _ = simulated(disk, sly, OPTIONS)
    topic = half_dead(store)
    engine = store._opened.engine
    index = engine.state.catalog.find("t").index

    def move():
        for at in range(index.start, index.stop):
            index.offsets[at] += 1
        sly.before_read = move

    move()
    with pytest.raises(Corrupt, match="change faster than they are read; try again") as caught:
        topic.read()
    assert "next_from_seq" not in caught.value.detail


@pytest.mark.rule("T5.13")
def test_readers_see_nothing_of_rewrites_checkpoints_and_removals(tmp_path):
    """Two threads read whatever they like while everything under them moves."""
    wrong, reads, head = [], [0, 0], [200]
    done = threading.Event()

    def read(number):
        topic, step = store.topic("t"), number
        while not done.is_set():
            step += 1
            try:
                checked_now(topic.read(from_seq=step * 37 % head[0], limit=1 + step % 400))
                reads[number] += 1
            except Exception as error:  # noqa: BLE001 -- told by the assertion below
                wrong.append(repr(error))
                return

    def checked_now(page):
        for record in page.records:
            assert record.data["n"] == record.seq
        seqs = {record.seq for record in page.records}
        assert all(seq in seqs for seq in range(page.from_seq + 1, page.next_from_seq + 1) if not seq % 3)
        assert page.tombstone is None

    with topics.open(tmp_path, options=OPTIONS) as store:
        topic = store.create("t", durability="disk")
        put(topic, 200)
        readers = [threading.Thread(target=read, args=(number,)) for number in range(2)]
        for reader in readers:
            reader.start()
        rewritten = 0
        for _ in range(6):
            put(topic, 150)
            head[0] += 150
            topic.delete(match="drop")
            store.checkpoint()
            rewritten += rewrite(store)
        done.set()
        for reader in readers:
            reader.join()

    assert not wrong
    assert rewritten >= 5
    assert min(reads) > 0
