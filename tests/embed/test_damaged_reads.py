"""Reading damaged files: what is good is served, what is damaged is named, and nothing is skipped in silence."""

from __future__ import annotations

import errno
import os

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.embedded import SMALL, Sly, simulated
from topics.host.directory.layout import path_of
from topics.kernel.errors import Corrupt
from topics.kernel.limits import TAIL_CACHE_BYTES
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk

COUNT = 40


def filled(*, where, port=None, disk=None, tail_cache_bytes=TAIL_CACHE_BYTES, **config):
    """A store whose topic "t" has COUNT records, in its log or in a segment."""
    options = attrs.evolve(SMALL, tail_cache_bytes=tail_cache_bytes)
    store, disk = simulated(disk, port, options)
    topic = store.create("t", durability="fsync", **config)
    topic.put_many([{"data": {"n": i, "text": "x" * 60}} for i in range(1, COUNT + 1)])
    if where == "segment":
        store.checkpoint()
    return store, disk, topic


def place_of(store, seq):
    """(path, offset, size) of a record's frame."""
    topic = store._opened.engine.state.catalog.find("t")
    at = topic.index.position(seq)
    return path_of(topic.regions.source_until(seq)[0]), topic.index.offsets[at], topic.index.lengths[at]


def damage(disk, store, seq, *, byte=60):
    path, offset, size = place_of(store, seq)
    disk.flip(path, (offset + byte % size) * 8)


def attempt(topic, from_seq, query):
    try:
        return topic.read(from_seq=from_seq, **query), None
    except Corrupt as error:
        return None, error.detail


def walk(topic, **query):
    """(numbers read, ranges said to be damaged) of a reader that goes on as the errors say."""
    found, told, from_seq = [], [], 0
    while True:
        page, detail = attempt(topic, from_seq, query)
        if detail is not None:
            assert from_seq < detail["seq"] <= detail["last_seq"] == detail["next_from_seq"]
            assert detail["topic"] == "t"
            told.append((detail["seq"], detail["last_seq"]))
            from_seq = detail["next_from_seq"]
            continue
        assert page.tombstone is None
        assert [record.data["n"] for record in page.records] == [record.seq for record in page.records]
        found += [record.seq for record in page.records]
        from_seq = page.next_from_seq
        if page.caught_up:
            return found, told


@pytest.mark.rule("T5.11", "T5.22")
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("where", ["log", "segment"])
def test_a_page_ends_before_a_damaged_record_and_the_read_that_begins_with_it_says_how_to_go_on(
    where, compression
):
    store, disk, topic = filled(where=where, compression=compression, compression_min_bytes=1)
    damage(disk, store, 17)
    page = topic.read(account=True)

    assert [record.seq for record in page.records] == list(range(1, 17))
    assert (page.next_from_seq, page.caught_up, page.account.delivered, page.account.total) == (
        16,
        False,
        16,
        16,
    )
    with pytest.raises(Corrupt) as caught:
        topic.read(from_seq=16)
    path, _, _ = place_of(store, 17)
    assert caught.value.detail == {
        "topic": "t",
        "seq": 17,
        "last_seq": 17,
        "files": [path],
        "next_from_seq": 17,
    }
    assert caught.value.message == (
        f"topic 't': seq 17 is damaged in {path} (the checksum does not match); "
        "to read what is behind, go on with from_seq=17"
    )
    assert [record.seq for record in topic.read(from_seq=17).records] == list(range(18, COUNT + 1))
    assert topic.state().head_seq == COUNT


@pytest.mark.rule("T5.11")
@given(bad=st.sets(st.integers(1, COUNT), max_size=12), limit=st.integers(1, COUNT), byte=st.integers(0, 150))
@settings(max_examples=60, deadline=None)
def test_whatever_is_damaged_a_reader_gets_all_the_rest_and_is_told_of_every_record_it_does_not(
    bad, limit, byte
):
    """As a set: each seq is delivered once or named once, in order, whatever the size of a page."""
    store, disk, topic = filled(where="segment")
    for seq in sorted(bad):
        damage(disk, store, seq, byte=byte)
    found, told = walk(topic, limit=limit)

    assert found == sorted(set(range(1, COUNT + 1)) - bad)
    assert [seq for first, last in told for seq in range(first, last + 1)] == sorted(bad)


@pytest.mark.rule("T5.11")
def test_records_that_are_damaged_one_behind_the_other_are_told_at_once():
    store, disk, topic = filled(where="segment")
    for seq in (5, 6, 7, 8, 20):
        damage(disk, store, seq)

    assert walk(topic)[1] == [(5, 8), (20, 20)]


@pytest.mark.rule("T5.11")
def test_a_damaged_record_that_a_reader_would_not_get_does_not_stop_it():
    store, disk = simulated()
    topic = store.create("t", durability="fsync")
    topic.put_many([{"data": {"n": i}, "tag": "odd" if i % 2 else "even"} for i in range(1, 11)])
    damage(disk, store, 4)

    assert [record.seq for record in topic.read(match="odd").records] == [1, 3, 5, 7, 9]
    assert [record.seq for record in topic.read(match="even").records] == [2]


class Failing:
    """A disk with a bad spot: no read that touches it succeeds."""

    def __init__(self, disk, code):
        self._disk, self._code = disk, code
        self.spot = None

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def read(self, path, offset, size):
        if self.spot is not None and path == self.spot[0] and offset <= self.spot[1] < offset + size:
            raise OSError(self._code, os.strerror(self._code), path)
        return self._disk.read(path, offset, size)


@pytest.mark.rule("T5.11")
@pytest.mark.parametrize("seq", [1, 2, 23, COUNT])
def test_what_the_medium_cannot_give_is_narrowed_down_to_its_record(seq):
    disk = SimDisk(1)
    port = Failing(disk, errno.EIO)
    store, _, topic = filled(where="segment", disk=disk, port=port)
    path, offset, size = place_of(store, seq)
    port.spot = (path, offset + size // 2)

    assert walk(topic) == ([n for n in range(1, COUNT + 1) if n != seq], [(seq, seq)])


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
def test_an_error_that_may_pass_says_nothing_of_going_on_behind_it(code):
    disk = SimDisk(1)
    port = Failing(disk, code)
    store, _, topic = filled(where="segment", disk=disk, port=port)
    port.spot = place_of(store, 23)[:2]
    with pytest.raises(Corrupt, match=r"cannot be read from .*; try again") as caught:
        topic.read()

    assert "next_from_seq" not in caught.value.detail
    port.spot = None
    assert len(topic.read().records) == COUNT


@pytest.mark.rule("T5.11")
def test_a_segment_whose_file_goes_while_the_store_runs_is_told_as_a_whole():
    store, disk, topic = filled(where="segment")
    topic.put_many([{"data": {"n": i}} for i in range(COUNT + 1, COUNT + 21)])
    store.checkpoint()
    first, second = place_of(store, 1)[0], place_of(store, COUNT + 20)[0]
    assert first != second
    disk.unlink(first)

    found, told = walk(topic)
    assert told == [(1, 50)]
    assert found == list(range(51, COUNT + 21))


@pytest.mark.rule("T5.22")
def test_bytes_that_were_wrong_on_their_way_only_once_are_read_again():
    disk = SimDisk(1)
    sly = Sly(disk)
    store, _, topic = filled(where="segment", disk=disk, port=sly)
    path, offset, _ = place_of(store, 9)

    def flip():
        disk.flip(path, (offset + 50) * 8)
        sly.before_read = flip

    sly.before_read = flip  # before every read: wrong, right, wrong …
    assert len(topic.read().records) == COUNT


@pytest.mark.rule("T5.22")
def test_a_record_of_another_place_is_not_served_though_its_checksum_is_right():
    """A write that went astray: a whole frame of another seq, of the same length."""
    store, disk, topic = filled(where="segment")
    path, offset, size = place_of(store, 12)
    other, source, length = place_of(store, 31)
    assert (path, size) == (other, length)
    disk.write(path, offset, [disk.read(path, source, length)])

    assert walk(topic) == ([n for n in range(1, COUNT + 1) if n != 12], [(12, 12)])


@pytest.mark.rule("T5.22")
@pytest.mark.parametrize("where", ["log", "segment"])
@pytest.mark.parametrize("frames", [0, 1, 2], ids=["part of a frame", "a frame", "two frames"])
def test_reads_that_a_disk_misdirects_are_told_as_damage_and_never_served(where, frames):
    """Other bytes of the same file: whole frames of other seqs, at worst. All is well behind it."""
    store, disk, topic = filled(where=where, tail_cache_bytes=0)
    (_, first, size), (_, second, other) = place_of(store, 20), place_of(store, 21)
    assert size == other
    shift = (second - first) * frames or 7
    fault = disk.inject("read", FaultKind.MISDIRECTED, times=None, shift=shift)
    for from_seq in (0, 10, 30):
        page, detail = attempt(topic, from_seq, {"limit": 5})
        assert page is None
        assert detail["seq"] == from_seq + 1
    disk.heal(fault)

    assert walk(topic) == (list(range(1, COUNT + 1)), [])
