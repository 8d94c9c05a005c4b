"""A file that is moved to another file system is in one of the two places, or in both, and never half."""

from __future__ import annotations

import errno
import itertools
from functools import partial

import pytest

from topics.host.system.moving import move
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.testing.faults import FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

SOURCE, TARGET = "wal/file", "archive/file"
CONTENT = b"0123456789abcdef" * 700  # some pages


def made(mounts, content=CONTENT):
    disk = SimDisk(3, mounts=mounts)
    for folder in ("wal", "archive"):
        disk.make_dir(folder)
    disk.create(SOURCE, 0)
    disk.write(SOURCE, 0, [content])
    disk.sync_data(SOURCE)
    for folder in ("wal", "archive", ""):
        disk.sync_dir(folder)
    return disk


def moved(disk):
    move(disk, SOURCE, TARGET, partial(disk.sync_dir, "archive"))
    disk.sync_dir("archive")
    disk.sync_dir("wal")


@pytest.mark.parametrize("mounts", [(), ("wal",), ("archive",)])
@pytest.mark.parametrize(
    "content", [b"", CONTENT, b"x" * (ZERO_FILL_CHUNK + 7)], ids=["none", "some", "much"]
)
def test_a_file_is_moved_whatever_lies_between(mounts, content):
    disk = made(mounts, content)
    moved(disk)

    assert disk.content(TARGET) == content
    assert (disk.names("wal"), disk.names("archive")) == ([], ["file"])


@pytest.mark.parametrize("landed", Landed)
@pytest.mark.parametrize("how", [None, *Shape])
def test_a_crash_leaves_it_whole_in_one_of_the_places_or_in_both_and_moving_again_goes_on(landed, how):
    before = made(("wal",)).snapshot()
    for call in itertools.count():
        disk = SimDisk(3)
        disk.restore(before)
        disk.crash_at(call, landed)
        try:
            moved(disk)
        except SimCrash:
            disk.process_death() if how is None else disk.power_loss(how, call)
        else:
            break
        there = [disk.content(path) for path in (SOURCE, TARGET) if disk.size(path) is not None]
        assert there
        assert set(there) == {CONTENT}, call
        if disk.size(SOURCE) is not None:
            moved(disk)
        assert disk.content(TARGET) == CONTENT
        assert disk.size(SOURCE) is None

    assert call > 5


@pytest.mark.parametrize(
    "fault", [("write", FaultKind.ENOSPC), ("sync_data", FaultKind.EIO), ("read", FaultKind.EIO)]
)
def test_a_copy_that_fails_leaves_nothing_half_and_the_file_where_it_was(fault):
    disk = made(("wal",))
    disk.inject(*fault)
    with pytest.raises(OSError, match=r"No space|Input/output") as failed:
        moved(disk)

    assert failed.value.errno in (errno.ENOSPC, errno.EIO)
    assert (disk.names("wal"), disk.names("archive")) == (["file"], [])
    moved(disk)
    assert disk.content(TARGET) == CONTENT


def test_another_error_of_a_rename_is_no_reason_to_copy():
    disk = made(())
    disk.inject("rename")
    with pytest.raises(OSError, match="Input/output"):
        moved(disk)

    assert disk.names("archive") == []
