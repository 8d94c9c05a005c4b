"""The order of the writer's operations, on which recovery rests: rotation, marks, room, oversized writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.codec.log.control import CommitMark, Control
from topics.codec.log.frame import encode_run
from topics.codec.log.walheader import HEADER_SIZE, decode_header
from topics.engine.batch import WalBatch
from topics.engine.recovery.judge import examine_log_file
from topics.host.directory.layout import CURRENT_FILE, CURRENT_SIZE, hint, wal_path
from topics.host.wal.walfile import (
    MARK_SIZE,
    Create,
    ExtendFile,
    Rename,
    SyncData,
    SyncDir,
    WalFile,
    WalWrite,
    bytes_with_marks,
    bytes_without_marks,
    carry_out_ops,
)
from topics.kernel.columns import RecordColumns
from topics.kernel.limits import MIB, Limits
from topics.log.regions import WalFileId
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

TS = 1000
SMALL = Limits(wal_file_first=1024, wal_file_max=4096, wal_reserve=0)


def placed(wal, batch):
    return wal.place(batch, TS, begins_file=wal.rotates(batch))


class Log:
    """A WalFile on a disk, its plans carried out."""

    def __init__(self, limits=None):
        self.disk = SimDisk()
        self.disk.make_dir("wal/gen-0/shard-00")
        self.disk.create("wal/gen-0/shard-00/CURRENT", CURRENT_SIZE)
        self.wal = WalFile(0, 0, SeededEntropy(0), limits)
        carry_out_ops(self.disk, self.wal.begin())
        self.seq = 1

    def batch(self, count=1, size=20, *, sync=False):
        data = RecordColumns([b'"' + b"x" * size + b'"'] * count)
        chunk, _ = encode_run(1, self.seq, TS, data, durable=False, keyed=None, write_frames=count)
        self.seq += count
        return WalBatch(0, (chunk,), len(chunk), count, sync, ())

    def write(self, count=1, size=20, *, sync=False):
        """One batch to its end; its plan."""
        plan = placed(self.wal, self.batch(count, size, sync=sync))
        carry_out_ops(self.disk, plan.write)
        self.wal.wrote()
        if sync:
            carry_out_ops(self.disk, plan.sync)
            self.wal.synced()
        self.wal.done()
        return plan

    def mark(self):
        carry_out_ops(self.disk, self.wal.closing_mark(TS))
        self.wal.closed()

    def reserve(self, needed=0):
        size = self.wal.wanted_reserve(needed)
        if size is not None:
            carry_out_ops(self.disk, self.wal.reserve(size))
            self.wal.reserved(size)
        return size

    def look(self, file=None):
        file = file or self.wal.file
        return examine_log_file(file, self.disk.content(wal_path(file)))

    def marks(self):
        return [(m.payload.covered_file, m.payload.covered_offset) for m in self.look().items if is_mark(m)]


def is_mark(item):
    return isinstance(item, Control) and isinstance(item.payload, CommitMark)


def kinds(ops):
    return [type(op) for op in ops]


# Files.


@pytest.mark.rule("T1.5", "T2.1", "T2.2", "T2.3", "T2.5")
def test_the_first_file_is_one_mib_of_zeros_with_a_header_and_is_named_by_its_first_frame():
    log = Log()

    data = log.disk.content("wal/gen-0/shard-00/wal-00000000000000000001.log")
    assert len(data) == MIB
    assert not any(data[HEADER_SIZE:])
    header = decode_header(data)
    assert (0, 0, 1, log.wal.file_id) == (header.generation, header.shard, header.first_frame, header.file_id)
    assert log.disk.content(f"wal/gen-0/shard-00/{CURRENT_FILE}") == hint(WalFileId(0, 0, 1))


@pytest.mark.rule("T2.5")
def test_each_next_file_is_four_times_larger_up_to_the_largest():
    log = Log(Limits(wal_file_first=1 * MIB, wal_file_max=16 * MIB))
    sizes = []
    for _ in range(3):
        sizes.append(log.reserve())
        log.write(size=sizes[-1] // 2)
        log.write(size=sizes[-1] // 2)

    assert sizes == [4 * MIB, 16 * MIB, 16 * MIB]
    assert (Limits().wal_file_first, Limits().wal_file_max) == (1 * MIB, 64 * MIB)


@pytest.mark.rule("T2.6", "T3.16")
def test_rotation_syncs_the_old_file_marks_it_and_names_the_new_one_before_its_first_frame():
    log = Log(SMALL)
    log.write(size=500)
    log.reserve()
    old = log.wal.file
    plan = placed(log.wal, log.batch(size=500))

    next_tmp, new = "wal/gen-0/shard-00/next.tmp", wal_path(log.wal.file)
    expected = [
        (SyncData, wal_path(old)), (WalWrite, wal_path(old)), (SyncData, wal_path(old)), (WalWrite, next_tmp),
        (SyncData, next_tmp), (Rename, next_tmp), (SyncDir, "wal/gen-0/shard-00"),
        (WalWrite, f"wal/gen-0/shard-00/{CURRENT_FILE}"), (WalWrite, new),
    ]  # fmt: skip
    assert expected == [(type(op), getattr(op, "path", None) or op.source) for op in plan.write]
    carry_out_ops(log.disk, plan.write)
    log.wal.wrote()
    log.wal.done()
    last = log.look(old).items[-1]
    assert is_mark(last)
    assert (1, last.offset) == (last.payload.covered_file, last.payload.covered_offset)
    assert old.first_frame + log.look(old).frames == log.wal.file.first_frame


@pytest.mark.rule("T2.3", "T2.6")
def test_the_next_file_is_reserved_with_real_zeros_and_synced_ahead_of_need():
    log = Log(SMALL)

    assert [Create, SyncData] == kinds(log.wal.reserve(4096))
    carry_out_ops(log.disk, log.wal.reserve(4096))
    log.wal.reserved(4096)
    assert bytes(4096) == log.disk.content("wal/gen-0/shard-00/next.tmp")
    assert [ExtendFile, SyncData] == kinds(log.wal.reserve(8192))
    steps = [Create, SyncData, ExtendFile, SyncData, ExtendFile, SyncData]
    assert steps == kinds(Log().wal.reserve(9 << 20))  # no sync of much at once


@pytest.mark.rule("T2.8")
def test_the_frames_of_a_write_lie_in_one_file_and_an_oversized_write_enlarges_it():
    log = Log(SMALL)
    log.write(size=700)
    log.reserve()
    plan = log.write(count=40, size=200)  # larger than any file is meant to be

    assert log.wal.file == plan.at.file
    seen = log.look()
    assert sum(len(item) for item in seen.items if not is_mark(item)) == 40
    assert seen.size >= 40 * 200
    log.write(size=10)
    assert log.look().clean


@pytest.mark.rule("T2.2")
def test_frame_numbers_count_every_frame_marks_included():
    log = Log()
    log.write(count=3, sync=True)
    log.mark()
    log.write(count=2)

    assert log.wal.statistics()["next_frame"] == 1 + 3 + 1 + 2
    assert log.look().frames == 6


# Room.


@pytest.mark.rule("T3.22")
def test_what_room_says_fits_without_a_new_reserve():
    for reserve_first in (True, False):
        log = Log(SMALL)
        log.write(size=300)
        if reserve_first:
            log.reserve()
        room = log.wal.room()
        overhead = log.batch(size=0).size
        plan = placed(log.wal, log.batch(size=room - overhead))

        assert not any(isinstance(op, Create | ExtendFile) for op in plan.write)
        carry_out_ops(log.disk, plan.write)


@pytest.mark.rule("T3.22", "T3.23")
@pytest.mark.parametrize("first", [100, 300])
def test_what_room_says_fits_also_while_a_batch_with_a_mark_is_on_its_way(first):
    """Deletes took the last of a file on a full disk, one mark more was due, and its shard was read-only."""
    log = Log(SMALL)
    log.write(sync=True)
    room, file, overhead = log.wal.room(), log.wal.file, log.batch(size=0).size
    for size in (first, room - first):
        log.write(size=size - overhead, sync=True)
    log.mark()

    assert log.wal.file == file
    assert len(log.marks()) == 3


@pytest.mark.parametrize("needed", [0, 1, 1000, MIB - 1, MIB, MIB + 1, 5 * MIB])
def test_a_file_that_is_reserved_for_a_write_has_room_for_it(needed):
    log = Log(SMALL)
    size = log.reserve(needed)
    assert log.wal.room() >= needed
    assert size == SMALL.wal_file_max or log.wal.room() < needed + MARK_SIZE


@pytest.mark.rule("T3.22", "T3.23")
@given(st.integers(0, 5), st.integers(-200, 200))
def test_whatever_is_free_what_fits_into_it_fits_with_its_marks_and_no_byte_more(mib, beside):
    free = max(mib * (MIB + MARK_SIZE) + 3 * MARK_SIZE + beside, bytes_with_marks(0))
    fits = bytes_without_marks(free)
    assert bytes_with_marks(fits) <= free < bytes_with_marks(fits + 1)


def test_without_a_reserve_there_is_room_in_the_present_file_only():
    log = Log(SMALL)
    before = log.wal.room()
    log.write(size=100)

    assert before - log.batch(size=100).size == log.wal.room()
    log.reserve()
    assert log.wal.room() == 4096 - HEADER_SIZE - 3 * MARK_SIZE


# Marks.


@pytest.mark.rule("T3.14", "T3.15")
def test_a_batch_begins_with_a_mark_iff_the_synced_offset_moved_since_the_last_one():
    log = Log()
    log.write()
    log.write()
    assert log.marks() == []  # nothing was synced

    log.write(sync=True)
    synced_to = log.wal.statistics()["tail"]
    assert log.marks() == []
    plan = log.write()
    assert [(1, synced_to)] == log.marks()
    assert synced_to + MARK_SIZE == plan.at.offset
    log.write()
    assert [(1, synced_to)] == log.marks()


@pytest.mark.rule("T3.15")
def test_a_mark_says_only_what_a_sync_had_returned_for_when_it_was_framed():
    log = Log()
    log.write(sync=True)
    covered = log.wal.statistics()["tail"]
    log.write(sync=True)  # its own mark is framed before its own sync

    assert [(1, covered)] == log.marks()
    assert all(offset <= covered for _, offset in log.marks())
    mark = next(item for item in log.look().items if is_mark(item))
    assert log.wal.file_id == mark.payload.file_id


@pytest.mark.rule("T3.16")
def test_a_closing_mark_covers_everything_and_is_not_due_again_for_itself():
    log = Log()
    assert not log.wal.mark_due
    log.write(sync=True)
    assert log.wal.mark_due
    end = log.wal.statistics()["tail"]
    log.mark()

    assert [(1, end)] == log.marks()
    assert not log.wal.mark_due
    log.write()
    assert [(1, end)] == log.marks()


def test_the_first_mark_of_a_new_file_covers_the_end_of_the_old_one():
    log = Log(SMALL)
    log.write(size=500, sync=True)
    old = log.wal.file
    log.reserve()
    log.write(size=500)

    assert log.wal.file != old
    assert [(old.first_frame, log.look(old).end)] == log.marks()


@pytest.mark.parametrize("left", [0, 10, MARK_SIZE - 1])
def test_no_mark_is_written_beyond_the_end_of_its_file(left):
    log = Log(SMALL)
    wal = WalFile(0, 0, SeededEntropy(1), SMALL)
    wal.go_on(log.wal.file, log.wal.file_id, size=1024, tail=1024 - left, next_frame=9)

    assert not wal.mark_due
    batch = log.batch(size=20)
    plan = placed(wal, batch)
    assert all(
        op.offset + sum(map(len, op.chunks)) <= 1024
        for op in plan.write
        if isinstance(op, WalWrite) and op.path == wal_path(WalFileId(0, 0, 1))
    )


def test_a_sync_without_frames_needs_no_room():
    log = Log(SMALL)
    wal = WalFile(0, 0, SeededEntropy(1), SMALL)
    wal.go_on(log.wal.file, log.wal.file_id, size=1024, tail=1024, next_frame=9)
    plan = placed(wal, WalBatch(0, (), 0, 0, True, ()))

    assert ((), (SyncData(wal_path(log.wal.file)),)) == (plan.write, plan.sync)


def test_one_plan_at_a_time():
    log = Log()
    placed(log.wal, log.batch())

    assert not log.wal.mark_due
    with pytest.raises(AssertionError):
        placed(log.wal, log.batch())
