"""What every `kernel.ports.Disk` does, real or simulated; then what only the real one can show."""

import errno
import os
import resource
import threading
from pathlib import Path

import pytest

from topics.host.system.disk import OsDisk
from topics.host.system.memory import MemoryDisk
from topics.host.system.spares import SPARE_FILES
from topics.host.system.systemcalls import SystemCalls
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.kernel.ports import Disk
from topics.testing.simdisk import SimDisk


@pytest.fixture
def tmp_path(on_disk):
    return on_disk


@pytest.fixture(params=["os", "os with one descriptor", "simulated", "memory"])
def disk(request, tmp_path):
    if request.param in ("simulated", "memory"):
        yield SimDisk() if request.param == "simulated" else MemoryDisk()
        return
    disk = OsDisk(tmp_path, open_files_max=1 if "one" in request.param else 128)
    yield disk
    disk.close()


class TestContract:
    def test_a_new_file_reads_as_zeros(self, disk: Disk):
        size = ZERO_FILL_CHUNK + 5000
        disk.create("a", size)

        assert disk.size("a") == size
        assert disk.read("a", 0, size + 1) == bytes(size)

    def test_creating_again_empties(self, disk: Disk):
        disk.create("a", 10)
        disk.write("a", 0, [b"0123456789"])
        disk.create("a", 4)

        assert disk.read("a", 0, 100) == bytes(4)

    def test_chunks_are_written_one_after_another(self, disk: Disk):
        disk.create("a", 100)
        disk.write("a", 3, [b"one", b"", b"two", b"three"])

        assert disk.read("a", 0, 20) == b"\0\0\0onetwothree" + bytes(6)

    @pytest.mark.parametrize("count", [0, 1, 2, 1024, 1025, 5000])
    def test_any_number_of_chunks_is_one_write(self, disk: Disk, count):
        chunks = [str(n).encode().zfill(5) for n in range(count)]
        disk.create("a", 0)
        disk.write("a", 0, chunks)

        assert disk.read("a", 0, 5 * count + 1) == b"".join(chunks)

    def test_a_read_is_short_only_at_the_end(self, disk: Disk):
        disk.create("a", 0)
        disk.write("a", 0, [b"0123456789"])

        assert disk.read("a", 8, 10) == b"89"
        assert disk.read("a", 10, 10) == b""
        assert disk.read("a", 1000, 10) == b""
        assert disk.read("a", 3, 0) == b""

    def test_a_read_that_must_not_wait_gives_all_the_bytes_or_none(self, disk: Disk):
        disk.create("a", 0)
        disk.write("a", 0, [b"0123456789"])

        assert disk.read_nowait("a", 3, 4) in (b"3456", None)
        assert disk.read_nowait("a", 8, 10) is None
        assert disk.read_nowait("a", 100, 1) is None

    def test_extend_grows_with_zeros_and_never_cuts(self, disk: Disk):
        disk.create("a", 0)
        disk.write("a", 0, [b"data"])
        disk.extend("a", 10)
        disk.extend("a", 2)

        assert disk.read("a", 0, 100) == b"data" + bytes(6)

    def test_truncate_cuts_and_what_grows_back_is_zero(self, disk: Disk):
        disk.create("a", 0)
        disk.write("a", 0, [b"0123456789"])
        disk.truncate("a", 4)
        assert disk.size("a") == 4
        disk.extend("a", 8)

        assert disk.read("a", 0, 100) == b"0123" + bytes(4)

    def test_truncate_to_more_is_a_bug(self, disk: Disk):
        disk.create("a", 4)

        with pytest.raises(AssertionError, match="truncate cuts"):
            disk.truncate("a", 5)

    def test_rename_replaces_and_later_calls_find_the_right_file(self, disk: Disk):
        for name in ("new", "old"):
            disk.create(name, 3)
            disk.write(name, 0, [name.encode()])
        disk.rename("new", "old")

        assert disk.names("") == ["old"]
        assert disk.read("old", 0, 3) == b"new"
        disk.write("old", 0, [b"xyz"])
        disk.sync_data("old")
        assert disk.read("old", 0, 3) == b"xyz"
        disk.create("new", 1)
        assert disk.read("old", 0, 3) == b"xyz"

    def test_rename_works_across_directories(self, disk: Disk):
        disk.make_dir("from")
        disk.make_dir("to")
        disk.create("from/a", 2)
        disk.rename("from/a", "to/b")

        assert (disk.names("from"), disk.names("to")) == ([], ["b"])

    def test_unlink_removes_and_an_absent_file_is_fine(self, disk: Disk):
        disk.create("a", 2)
        disk.unlink("a")
        disk.unlink("a")

        assert disk.size("a") is None
        with pytest.raises(FileNotFoundError):
            disk.read("a", 0, 1)

    def test_a_name_can_be_used_again_after_unlink(self, disk: Disk):
        disk.create("a", 2)
        disk.write("a", 0, [b"xx"])
        disk.unlink("a")
        disk.create("a", 2)

        assert disk.read("a", 0, 2) == b"\0\0"

    def test_directories_are_made_with_their_parents_and_again(self, disk: Disk):
        disk.make_dir("wal/gen-0/shard-00")
        disk.make_dir("wal/gen-0/shard-00")
        disk.make_dir("wal/gen-1")
        for path in ("", "wal", "wal/gen-0", "wal/gen-0/shard-00"):
            disk.sync_dir(path)

        assert disk.names("wal") == ["gen-0", "gen-1"]

    def test_many_can_be_synced_together_and_one_that_is_not_there_is_told(self, disk: Disk):
        names = [f"topics/{i}" for i in range(20)]
        for name in names:
            disk.make_dir(name)
            disk.create(f"{name}/a", 3)
        disk.sync_many([f"{name}/a" for name in names], names)
        disk.sync_many([], [])

        for files, directories in (
            ([*names[:1], "b"], []),
            ([f"{name}/a" for name in names] + ["b"], []),
            ([], ["c"]),
        ):
            with pytest.raises(OSError, match=r"No such file|[Ii]s a directory"):
                disk.sync_many(files, directories)

    def test_an_empty_directory_can_be_removed_and_an_absent_one_is_fine(self, disk: Disk):
        disk.make_dir("topics/a")
        disk.create("topics/a/file", 0)

        with pytest.raises(OSError, match="not empty"):
            disk.remove_dir("topics/a")
        disk.unlink("topics/a/file")
        disk.remove_dir("topics/a")
        disk.remove_dir("topics/a")
        assert disk.names("topics") == []
        disk.make_dir("topics/a")
        assert disk.names("topics") == ["a"]

    def test_a_file_that_is_no_directory_is_not_removed_as_one(self, disk: Disk):
        disk.create("a", 0)

        with pytest.raises(NotADirectoryError):
            disk.remove_dir("a")

    def test_a_file_has_one_name_and_an_absent_one_none(self, disk: Disk):
        disk.create("a", 0)

        assert (disk.links("a"), disk.links("b")) == (1, 0)

    def test_names_ascend_and_an_absent_directory_has_none(self, disk: Disk):
        for name in ("b", "a", "B", "a0"):
            disk.create(name, 0)

        assert disk.names("") == ["B", "a", "a0", "b"]
        assert disk.names("none") == []
        assert disk.names("none/at/all") == []

    def test_size_is_none_for_what_is_no_file(self, disk: Disk):
        disk.make_dir("directory")

        assert disk.size("directory") is None
        assert disk.size("none") is None
        assert disk.size("none/at/all") is None

    @pytest.mark.parametrize(
        "call",
        [
            lambda disk: disk.read("none", 0, 1),
            lambda disk: disk.write("none", 0, [b"x"]),
            lambda disk: disk.sync_data("none"),
            lambda disk: disk.sync_dir("none"),
            lambda disk: disk.extend("none", 1),
            lambda disk: disk.truncate("none", 0),
            lambda disk: disk.rename("none", "other"),
            lambda disk: disk.create("none/a", 1),
            lambda disk: disk.rename("file", "none/a"),
        ],
    )
    def test_what_is_not_there_cannot_be_used(self, disk: Disk, call):
        disk.create("file", 1)

        with pytest.raises(FileNotFoundError):
            call(disk)
        assert disk.names("") == ["file"]

    @pytest.mark.parametrize(
        "call",
        [
            lambda disk: disk.make_dir("file"),
            lambda disk: disk.make_dir("file/below"),
            lambda disk: disk.names("file"),
            lambda disk: disk.sync_dir("file"),
            lambda disk: disk.create("file/below", 1),
            lambda disk: disk.write("file/below", 0, [b"x"]),
            lambda disk: disk.size("file/below"),
        ],
    )
    def test_a_file_is_not_a_directory(self, disk: Disk, call):
        disk.create("file", 1)

        with pytest.raises(NotADirectoryError):
            call(disk)

    @pytest.mark.parametrize(
        "call",
        [
            lambda disk: disk.create("directory", 1),
            lambda disk: disk.write("directory", 0, [b"x"]),
            lambda disk: disk.unlink("directory"),
            lambda disk: disk.rename("file", "directory"),
        ],
    )
    def test_a_directory_is_not_a_file(self, disk: Disk, call):
        disk.make_dir("directory")
        disk.create("file", 1)

        with pytest.raises(OSError, match="directory"):
            call(disk)
        assert disk.names("") == ["directory", "file"]

    @pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../b", "a//b", "a/", "./a", "a\0b"])
    def test_a_path_that_leaves_the_directory_is_a_bug(self, disk: Disk, path):
        for call in (disk.size, disk.unlink, disk.make_dir, lambda path: disk.create(path, 0)):
            with pytest.raises(AssertionError):
                call(path)

    def test_free_space_is_told_of_a_directory_that_is_not_there_too(self, disk: Disk):
        disk.make_dir("a")

        assert all(disk.free_bytes(path) > 0 for path in ("", "a", "a/b", "c/d/e"))

    def test_many_files_at_once(self, disk: Disk):
        paths = [f"file-{n:03}" for n in range(300)]
        for path in paths:
            disk.create(path, 8)
            disk.write(path, 0, [path.encode()])
        for path in reversed(paths):
            disk.sync_data(path)

        assert all(disk.read(path, 0, 8) == path.encode() for path in paths)

    def test_threads_share_it(self, disk: Disk):
        """Eight threads write, sync, read, rename and remove; each finds its own bytes and no other's."""
        failures = []

        def work(me: int) -> None:
            try:
                for turn in range(50):
                    path, block = f"{me}-{turn % 3}", bytes([me]) * 5000
                    disk.create(path, 5000)
                    disk.write(path, 0, [block])
                    disk.sync_data(path)
                    disk.rename(path, f"{path}.kept")
                    assert disk.read(f"{path}.kept", 0, 5001) == block
                    disk.unlink(f"{path}.kept")
            except BaseException as error:  # noqa: BLE001 -- told to the test, which fails
                failures.append(error)

        threads = [threading.Thread(target=work, args=(me,)) for me in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert failures == []
        assert disk.names("") == []


@pytest.fixture
def file_size_limit():
    """The kernel's bound on file sizes: the one way to get a short write without a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestOperatingSystem:
    @pytest.fixture
    def disk(self, tmp_path):
        disk = OsDisk(tmp_path)
        yield disk
        disk.close()

    def test_space_is_taken_not_promised(self, disk, tmp_path):
        disk.create("a", 3 * ZERO_FILL_CHUNK)
        disk.sync_data("a")

        assert (tmp_path / "a").stat().st_blocks * 512 >= 3 * ZERO_FILL_CHUNK

    @pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot read without waiting")
    def test_what_was_just_written_is_read_without_waiting_and_what_left_the_cache_is_not(
        self, disk, tmp_path
    ):
        data = os.urandom(1 << 20)
        disk.create("a", 0)
        disk.write("a", 0, [data])
        disk.sync_data("a")
        with (tmp_path / "a").open("rb") as file:
            try:
                os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except OSError:
                pytest.skip("this file system cannot read without waiting")
            assert disk.read_nowait("a", 1000, 100_000) == data[1000:101_000]

            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert disk.read_nowait("a", 0, len(data)) in (
            None,
            data,
        )  # the kernel may keep what it was told to drop
        assert disk.read("a", 0, len(data)) == data
        assert disk.read_nowait("a", 0, len(data)) == data

    def test_a_read_that_must_not_wait_opens_no_file_and_leaves_none_open(self, disk, tmp_path):
        (tmp_path / "a").write_bytes(b"0123456789")
        before = open_descriptors()

        assert disk.read_nowait("a", 0, 10) is None
        assert open_descriptors() == before
        disk.read("a", 0, 10)
        disk.read_nowait("a", 0, 10)
        disk.unlink("a")
        assert open_descriptors() == before

    def test_a_short_write_raises_what_the_rest_of_it_raises(self, disk, file_size_limit):
        disk.create("a", 0)
        file_size_limit(8192)

        with pytest.raises(OSError) as caught:
            disk.write("a", 0, [b"x" * 5000, b"y" * 5000])
        assert caught.value.errno == errno.EFBIG  # as ENOSPC of a full disk
        assert disk.size("a") == 8192

    @pytest.mark.parametrize("call", ["sync_data", "sync_dir"])
    def test_a_sync_asks_the_kernel_once_and_tells_its_error(self, tmp_path, call):
        asked = []

        def fail(fd: int) -> None:
            asked.append(os.fstat(fd).st_ino)
            raise OSError(errno.EIO, "planted")

        disk = OsDisk(tmp_path, calls=SystemCalls(**{call: fail}))
        disk.make_dir("d")
        disk.create("d/d", 1)
        before = open_descriptors()
        with pytest.raises(OSError, match="planted"):
            getattr(disk, call)("d/d" if call == "sync_data" else "d")

        expected = tmp_path / ("d/d" if call == "sync_data" else "d")
        assert asked == [expected.stat().st_ino]
        assert open_descriptors() == before
        disk.close()

    @pytest.mark.parametrize("calls", [SystemCalls(), SystemCalls(reserve=lambda fd, offset, size: None)])
    def test_growth_that_fails_gives_the_space_back(self, tmp_path, file_size_limit, calls):
        disk = OsDisk(tmp_path, calls=calls)
        disk.create("a", 100)
        file_size_limit(ZERO_FILL_CHUNK + 1)

        with pytest.raises(OSError, match=r".") as extended:
            disk.extend("a", 3 * ZERO_FILL_CHUNK)
        with pytest.raises(OSError, match=r".") as created:
            disk.create("b", 3 * ZERO_FILL_CHUNK)
        assert (extended.value.errno, created.value.errno) == (errno.EFBIG, errno.EFBIG)
        assert (disk.size("a"), disk.size("b")) == (100, 0)
        disk.close()

    def test_a_link_is_not_followed(self, disk, tmp_path):
        outside = tmp_path.parent / f"{tmp_path.name}-outside"
        outside.write_bytes(b"untouched")
        (tmp_path / "a").symlink_to(outside)

        for call in (
            lambda: disk.create("a", 4),
            lambda: disk.write("a", 0, [b"x"]),
            lambda: disk.read("a", 0, 1),
        ):
            with pytest.raises(OSError, match=r".") as caught:
                call()
            assert caught.value.errno == errno.ELOOP
        assert outside.read_bytes() == b"untouched"

    def test_the_directory_may_move(self, tmp_path):
        (tmp_path / "before").mkdir()
        disk = OsDisk(tmp_path / "before")
        (tmp_path / "before").rename(tmp_path / "after")
        disk.create("a", 3)
        disk.close()

        assert (tmp_path / "after" / "a").stat().st_size == 3

    def test_descriptors_are_bounded_and_all_closed(self, tmp_path):
        before = open_descriptors()
        disk = OsDisk(tmp_path, open_files_max=4)
        for n in range(20):
            disk.create(f"{n}", 1)
            disk.sync_data(f"{n}")

        assert open_descriptors() - before <= 1 + SPARE_FILES + 4
        disk.close()
        disk.close()
        assert open_descriptors() == before

    def test_a_descriptor_with_unsynced_writes_is_kept(self, tmp_path):
        """A later one might not be told that the write-back failed."""
        before = open_descriptors()
        disk = OsDisk(tmp_path, open_files_max=2)
        for n in range(6):
            disk.create(f"{n}", 1)
        assert open_descriptors() - before == 1 + SPARE_FILES + 6
        for n in range(6):
            disk.sync_data(f"{n}")
        disk.create("one more", 1)

        assert open_descriptors() - before <= 1 + SPARE_FILES + 2
        disk.close()

    def test_a_failed_sync_keeps_the_descriptor(self, tmp_path):
        """Whoever syncs again must be told again, and only this descriptor is sure to be."""
        failures = [OSError(errno.EIO, "planted")]

        def fail_once(fd: int) -> None:
            if failures:
                raise failures.pop()
            os.fsync(fd)

        disk = OsDisk(tmp_path, open_files_max=1, calls=SystemCalls(sync_data=fail_once))
        disk.create("a", 1)
        before = open_descriptors()
        with pytest.raises(OSError, match="planted"):
            disk.sync_data("a")
        for n in range(5):
            disk.create(f"{n}", 1)
            disk.sync_data(f"{n}")

        assert open_descriptors() == before + 1
        disk.close()

    @pytest.mark.parametrize("first", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
    def test_a_directory_whose_sync_has_failed_is_never_called_synced(self, tmp_path, first):
        """The kernel tells of it once, and then calls the names clean that it may have lost. So it is of a full disk,
        and room that is made later brings nothing back: only the first error is told as one.
        """
        failures = [OSError(first, "planted")]

        def fail_once(fd: int) -> None:
            if failures:
                raise failures.pop()

        disk = OsDisk(tmp_path, calls=SystemCalls(sync_dir=fail_once))
        disk.make_dir("a")
        with pytest.raises(OSError, match="planted") as told:
            disk.sync_dir("a")
        disk.sync_dir("")
        with pytest.raises(OSError, match=r"a sync of it .*: restart the process") as caught:
            disk.sync_dir("a")

        assert told.value.errno == first
        assert (caught.value.errno, caught.value.filename) == (errno.EIO, "a")
        disk.close()

    def test_a_rename_hides_the_file_it_replaced(self, tmp_path):
        """Also where the old file was open and the new one was not."""
        for name in ("new", "old"):
            (tmp_path / name).write_bytes(name.encode())
        disk = OsDisk(tmp_path)
        before = open_descriptors()
        assert disk.read("old", 0, 3) == b"old"
        disk.rename("new", "old")

        assert open_descriptors() == before
        assert disk.read("old", 0, 3) == b"new"
        disk.close()

    def test_a_closed_disk_refuses(self, tmp_path):
        disk = OsDisk(tmp_path)
        disk.create("a", 1)
        disk.close()

        for call in (
            lambda: disk.read("a", 0, 1),
            lambda: disk.names(""),
            lambda: disk.size("a"),
            disk.free_bytes,
        ):
            with pytest.raises(OSError, match="the disk is closed"):
                call()

    def test_a_root_must_be_a_directory(self, tmp_path):
        (tmp_path / "file").write_bytes(b"")

        with pytest.raises(NotADirectoryError):
            OsDisk(tmp_path / "file")
        with pytest.raises(FileNotFoundError):
            OsDisk(tmp_path / "none")

    def test_files_are_the_owners_only(self, disk, tmp_path):
        disk.make_dir("wal")
        disk.create("wal/a", 1)

        assert (tmp_path / "wal" / "a").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "wal").stat().st_mode & 0o777 == 0o700


class TestMemory:
    def test_what_does_not_fit_is_refused_and_the_space_comes_back(self):
        disk = MemoryDisk(1000)
        disk.create("a", 600)
        for call in (
            lambda: disk.create("b", 401),
            lambda: disk.extend("a", 1001),
            lambda: disk.write("a", 1000, [b"x"]),
        ):
            with pytest.raises(OSError, match="No space left"):
                call()
        assert (disk.free_bytes(), disk.size("a"), disk.size("b")) == (400, 600, None)
        disk.create("b", 400)
        disk.create("b", 100)
        assert disk.free_bytes() == 300
        disk.rename("b", "a")
        assert disk.free_bytes() == 900
        disk.truncate("a", 40)
        disk.write("a", 40, [b"0123456789"])
        assert disk.free_bytes() == 950
        disk.unlink("a")

        assert disk.free_bytes() == 1000

    def test_it_has_a_bound_by_itself(self):
        assert 0 < MemoryDisk().capacity < 2**48


def open_descriptors() -> int:
    root = Path("/proc/self/fd")
    return len(list((root if root.exists() else Path("/dev/fd")).iterdir()))
