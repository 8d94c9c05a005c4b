"""Which boot of the machine this is, which mount the log lies on: the same while it lasts, None where nobody knows."""

import os
import sys

import pytest

from topics.host.system.boot import log_mount, machine_boot_id, mount_of, numbered_mount_of

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems tell no mount")


@pytest.fixture
def root(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield tmp_path, fd
    os.close(fd)


def opened_mount(path, tell=mount_of):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return tell(fd)
    finally:
        os.close(fd)


@on_linux
@pytest.mark.parametrize("tell", [mount_of, numbered_mount_of])
def test_a_mount_has_one_number_and_another_mount_another(tmp_path, tell):
    """The second is for kernels before 6.8 and C libraries without statx."""
    assert opened_mount(tmp_path, tell) is not None
    assert opened_mount(tmp_path, tell) == opened_mount(tmp_path, tell)
    assert opened_mount("/proc", tell) != opened_mount(tmp_path, tell)


def test_a_descriptor_of_which_the_system_does_not_tell_has_none():
    assert mount_of(1 << 20) is None


@on_linux
@pytest.mark.rule("T4.26")
def test_the_logs_mount_is_that_of_all_its_directories(root):
    path, fd = root
    assert log_mount(fd) is None  # before the first start there is none
    (path / "wal" / "gen-0" / "shard-00").mkdir(parents=True)
    (path / "wal" / "stray").touch()

    assert log_mount(fd) == mount_of(fd)


@on_linux
@pytest.mark.rule("T4.26")
@pytest.mark.parametrize("place", ["wal/gen-0", "wal/gen-0/shard-01"])
def test_a_log_on_several_mounts_has_none_so_each_start_counts_as_a_restart(root, place):
    path, fd = root
    (path / "wal" / "gen-1" / "shard-00").mkdir(parents=True)
    (path / place).parent.mkdir(exist_ok=True)
    (path / place).symlink_to("/proc/self")

    assert log_mount(fd) is None


@on_linux
def test_a_log_that_is_a_link_lies_where_it_leads(root):
    path, fd = root
    (path / "wal").symlink_to("/proc/self")

    assert log_mount(fd) in (opened_mount("/proc"), None)
    assert log_mount(fd) != mount_of(fd)


@pytest.mark.skipif(not sys.platform.startswith(("linux", "darwin")), reason="no boot id is known elsewhere")
def test_this_machine_has_a_boot_id_that_stays():
    assert machine_boot_id()
    assert machine_boot_id() == machine_boot_id()
