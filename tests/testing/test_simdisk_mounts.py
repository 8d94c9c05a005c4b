"""A folder of the simulated disk may be a file system of its own: no rename crosses to it, and it has its own space."""

from __future__ import annotations

import errno

import pytest

from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape


@pytest.fixture
def disk():
    disk = SimDisk(mounts=("wal",))
    disk.make_dir("wal/a")
    disk.make_dir("topics")
    for path in ("wal/a/file", "topics/file"):
        disk.create(path, 10)
    return disk


@pytest.mark.parametrize(
    ("source", "target"),
    [("wal/a/file", "topics/new"), ("topics/file", "wal/a/file"), ("topics/file", "wal/new")],
)
def test_a_rename_across_is_refused_and_changes_nothing(disk, source, target):
    with pytest.raises(OSError, match="cross-device") as refused:
        disk.rename(source, target)

    assert refused.value.errno == errno.EXDEV
    assert (disk.names("wal/a"), disk.names("wal"), disk.names("topics")) == (["file"], ["a"], ["file"])


def test_a_rename_within_one_goes_through(disk):
    disk.rename("wal/a/file", "wal/b")
    disk.rename("topics/file", "c")

    assert (disk.names("wal"), disk.names("topics"), disk.size("c")) == (["a", "b"], [], 10)


def test_a_mount_is_there_from_the_beginning_and_cannot_be_removed():
    disk = SimDisk(mounts=("wal",))
    disk.power_loss(Shape.NOTHING)

    assert disk.names("") == ["wal"]
    with pytest.raises(OSError, match="busy"):
        disk.remove_dir("wal")


def test_each_has_space_of_its_own_and_a_copy_keeps_it(disk):
    disk.set_free(100, "wal")
    disk.free = 5
    again = SimDisk()
    again.restore(disk.snapshot())

    for one in (disk, again):
        assert [one.free_bytes(path) for path in ("", "topics", "wal", "wal/a", "wal/none")] == [
            5,
            5,
            100,
            100,
            100,
        ]
        one.extend("wal/a/file", 60)
        assert (one.free_bytes("wal"), one.free_bytes()) == (50, 5)
        with pytest.raises(OSError, match="No space"):
            one.extend("topics/file", 60)
        with pytest.raises(OSError, match="cross-device"):
            one.rename("wal/a/file", "other")
