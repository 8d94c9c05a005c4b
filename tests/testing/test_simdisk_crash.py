"""A simulated crash: what was synced is always there, what was not may be gone, and nothing is there that never was."""

import itertools

import pytest

from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk
from topics.testing.survival import PAGE_SIZE, SECTOR_SIZE, Shape

EVERY_SHAPE = pytest.mark.parametrize("shape", list(Shape))
SEEDS = range(40)
PATH = "a"


def with_file(content: bytes) -> SimDisk:
    """A disk with one file, synced as a whole, name and all."""
    disk = SimDisk()
    disk.create(PATH, 0)
    disk.write(PATH, 0, [content])
    disk.sync_data(PATH)
    disk.sync_dir("")
    return disk


def crashes(disk: SimDisk, shape: Shape):
    """The disk after each of many crashes of this shape; at the end as it was."""
    before = disk.snapshot()
    for seed in SEEDS:
        disk.power_loss(shape, seed)
        yield disk
        disk.restore(before)


def outcomes(disk: SimDisk, shape: Shape) -> set[bytes]:
    return {after.content(PATH) for after in crashes(disk, shape)}


@EVERY_SHAPE
def test_what_was_synced_survives_every_crash(shape):
    disk = with_file(b"x" * 10_000)
    disk.write(PATH, 10_000, [b"y" * 20_000])

    for content in outcomes(disk, shape):
        assert content[:10_000] == b"x" * 10_000
        assert set(content[10_000:]) <= set(b"y\0")


def test_process_death_keeps_all_that_was_written():
    disk = SimDisk()
    disk.make_dir("wal")
    disk.create("wal/a", 10)
    disk.write("wal/a", 2, [b"data"])
    boot_id = disk.boot_id

    assert disk.process_death() == disk.boot_id == boot_id
    assert disk.read("wal/a", 0, 10) == b"\0\0data" + bytes(4)
    assert disk.power_loss(Shape.NOTHING) == disk.boot_id != boot_id
    assert disk.names("") == []


def test_the_shapes_of_an_unsynced_write():
    old, new = b"o" * 5 * PAGE_SIZE, b"n" * 5 * PAGE_SIZE
    disk = with_file(old)
    disk.write(PATH, 0, [new])

    assert outcomes(disk, Shape.NOTHING) == {old}
    assert outcomes(disk, Shape.ZEROS) == {old}
    assert outcomes(disk, Shape.EVERYTHING) == {new}
    prefixes = outcomes(disk, Shape.PREFIX)
    assert all(content == new[: content.count(b"n")] + old[content.count(b"n") :] for content in prefixes)
    assert any(content.count(b"n") % SECTOR_SIZE for content in prefixes)
    pages = outcomes(disk, Shape.RANDOM_PAGES)
    assert all(is_whole(content, PAGE_SIZE) for content in pages)
    assert any(b"on" in content for content in pages), "later pages may get there before earlier ones"
    sectors = outcomes(disk, Shape.TORN_SECTORS)
    assert all(is_whole(content, SECTOR_SIZE) for content in sectors)
    assert not all(is_whole(content, PAGE_SIZE) for content in sectors)


def is_whole(content: bytes, unit: int) -> bool:
    return all(len(set(content[at : at + unit])) == 1 for at in range(0, len(content), unit))


def test_growth_may_be_lost_or_read_as_zeros():
    disk = with_file(b"x" * 100)
    disk.write(PATH, 100, [b"y" * 3 * PAGE_SIZE])
    grown = 100 + 3 * PAGE_SIZE

    assert outcomes(disk, Shape.NOTHING) == {b"x" * 100}
    assert outcomes(disk, Shape.ZEROS) == {(b"x" * 100).ljust(grown, b"\0")}
    sizes = {len(content) for content in outcomes(disk, Shape.RANDOM_PAGES)}
    assert {100, grown} < sizes
    assert min(sizes) >= 100


def test_a_page_holds_a_version_it_really_had():
    """Writes to one page with no sync between: any prefix of them may be there, never a later one alone."""
    disk = with_file(bytes(PAGE_SIZE))
    for n in range(3):
        disk.write(PATH, n * 100, [bytes([n + 1]) * 100])
    versions = [
        b"".join(bytes([n + 1]) * 100 for n in range(count)).ljust(PAGE_SIZE, b"\0") for count in range(4)
    ]

    assert outcomes(disk, Shape.RANDOM_PAGES) == set(versions)


def test_a_prefix_is_one_moment_of_the_whole_disk():
    """Over all files and names: if a later change is there, every earlier one is."""
    disk = SimDisk()
    for name in "abc":
        disk.create(name, 0)
        disk.write(name, 0, [name.encode() * 1000])
    seen = set()
    for after in crashes(disk, Shape.PREFIX):
        names = after.names("")
        lengths = [len(after.content(name)) for name in names]
        assert names == list("abc")[: len(names)]
        assert all(length == 1000 for length in lengths[:-1])
        seen.add(len(names))

    assert seen == {0, 1, 2, 3}


@EVERY_SHAPE
def test_a_cut_that_was_not_synced_may_be_undone(shape):
    """Undone as a whole: what was written beyond the cut later cannot be there without it."""
    disk = with_file(b"o" * 3 * PAGE_SIZE)
    disk.truncate(PATH, PAGE_SIZE)
    disk.write(PATH, PAGE_SIZE, [b"n" * 100])
    for content in outcomes(disk, shape):
        assert content[:PAGE_SIZE] == b"o" * PAGE_SIZE
        rest = content[PAGE_SIZE:]
        assert rest == b"o" * 2 * PAGE_SIZE or rest in (b"n" * len(rest), bytes(len(rest)))
        assert b"o" in rest or len(rest) <= 100


@EVERY_SHAPE
def test_after_a_crash_all_that_is_there_is_synced(shape):
    disk = with_file(b"x" * 5000)
    disk.write(PATH, 0, [b"y" * 9000])
    for after in crashes(disk, shape):
        content = after.content(PATH)
        assert after.synced_bytes(PATH) == content
        after.power_loss(Shape.NOTHING)
        assert after.content(PATH) == content


@EVERY_SHAPE
def test_the_same_seed_gives_the_same_crash(shape):
    disk = with_file(b"x" * 5000)
    disk.write(PATH, 1000, [b"y" * 50_000])
    disk.create("b", 100)

    def run() -> list[tuple[list[str], bytes]]:
        return [(after.names(""), after.content(PATH)) for after in crashes(disk, shape)]

    assert run() == run()


class TestNames:
    def test_a_new_name_may_be_lost_though_its_data_was_synced(self):
        disk = SimDisk()
        disk.create("a", 0)
        disk.write("a", 0, [b"data"])
        disk.sync_data("a")
        seen = {tuple(after.names("")) for after in crashes(disk, Shape.RANDOM_PAGES)}

        assert seen == {(), ("a",)}
        assert disk.synced_bytes("a") == b""

    def test_a_rename_is_there_or_not_never_half(self):
        disk = SimDisk()
        for name in ("next", "current"):
            disk.create(name, 0)
            disk.write(name, 0, [name.encode()])
            disk.sync_data(name)
        disk.sync_dir("")
        disk.rename("next", "current")
        seen = {
            tuple((name, after.content(name)) for name in after.names(""))
            for after in crashes(disk, Shape.RANDOM_PAGES)
        }

        assert seen == {(("current", b"next"),), (("current", b"current"), ("next", b"next"))}

    @EVERY_SHAPE
    def test_a_synced_rename_is_there(self, shape):
        disk = with_file(b"data")
        disk.rename(PATH, "b")
        disk.sync_dir("")
        for after in crashes(disk, shape):
            assert after.names("") == ["b"]
            assert after.content("b") == b"data"

    @EVERY_SHAPE
    def test_a_synced_unlink_stays(self, shape):
        disk = with_file(b"data")
        disk.unlink(PATH)
        disk.sync_dir("")

        assert {tuple(after.names("")) for after in crashes(disk, shape)} == {()}

    def test_an_unsynced_unlink_may_be_undone_with_the_content(self):
        disk = with_file(b"data")
        disk.unlink(PATH)
        disk.power_loss(Shape.NOTHING)

        assert disk.content(PATH) == b"data"

    def test_each_new_name_is_lost_by_itself(self):
        disk = SimDisk()
        for name in ("a", "b"):
            disk.create(name, 0)
        seen = {tuple(after.names("")) for after in crashes(disk, Shape.RANDOM_PAGES)}

        assert seen == {(), ("a",), ("b",), ("a", "b")}

    @pytest.mark.parametrize("synced", [("",), ("wal",), ("", "wal")])
    def test_a_file_needs_every_directory_above_it(self, synced):
        disk = SimDisk()
        disk.make_dir("wal")
        disk.create("wal/a", 0)
        disk.sync_data("wal/a")
        for path in synced:
            disk.sync_dir(path)
        survives = synced == ("", "wal")

        assert disk.is_durable("wal/a", 0, 0) == survives
        disk.power_loss(Shape.NOTHING)
        assert disk.names("wal") == (["a"] if survives else [])

    @EVERY_SHAPE
    def test_a_removed_directory_may_come_back_until_its_parent_is_synced(self, shape):
        disk = SimDisk()
        disk.make_dir("topics/a")
        disk.create("topics/a/file", 0)
        for path in ("", "topics", "topics/a"):
            disk.sync_dir(path)
        disk.unlink("topics/a/file")
        disk.remove_dir("topics/a")
        for after in crashes(disk, shape):
            assert after.names("topics") in ([], ["a"])
        disk.sync_dir("topics")
        for after in crashes(disk, shape):
            assert after.names("topics") == []

    @EVERY_SHAPE
    @pytest.mark.parametrize("synced", [(), ("from",), ("to",), ("from", "to"), ("to", "from")])
    def test_a_move_between_directories_never_loses_the_file(self, shape, synced):
        disk = SimDisk()
        for path in ("from", "to"):
            disk.make_dir(path)
        disk.create("from/a", 0)
        disk.write("from/a", 0, [b"data"])
        disk.sync_data("from/a")
        for path in ("", "from", "to"):
            disk.sync_dir(path)
        disk.rename("from/a", "to/b")
        for path in synced:
            disk.sync_dir(path)
        for after in crashes(disk, shape):
            there = [path for path in ("from/a", "to/b") if after.size(path) is not None]
            assert there
            assert all(after.content(path) == b"data" for path in there)
            if synced:
                assert "to/b" in there
            if "from" in synced:
                assert there == ["to/b"]

    def test_the_old_name_of_a_move_goes_with_the_sync_of_its_directory(self):
        disk = SimDisk()
        for path in ("from", "to"):
            disk.make_dir(path)
        disk.create("from/a", 0)
        for path in ("", "from"):
            disk.sync_dir(path)
        disk.rename("from/a", "to/b")
        disk.sync_dir("to")
        seen = {(*after.names("from"), *after.names("to")) for after in crashes(disk, Shape.RANDOM_PAGES)}

        assert seen == {("a", "b"), ("b",)}


class TestFailedSync:
    def test_a_second_sync_does_not_save_the_pages(self):
        disk = with_file(b"old" + bytes(PAGE_SIZE))
        disk.write(PATH, 0, [b"new"])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.sync_data(PATH)

        assert disk.read(PATH, 0, 3) == b"new", "until the machine stops, the cache still has it"
        assert not disk.is_durable(PATH, 0, 3)
        disk.process_death()
        assert disk.read(PATH, 0, 3) == b"new"
        disk.power_loss(Shape.EVERYTHING)
        assert disk.read(PATH, 0, 3) == b"old"

    def test_writing_the_page_again_saves_all_of_it(self):
        disk = with_file(b"old" + bytes(PAGE_SIZE))
        disk.write(PATH, 0, [b"new"])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.write(PATH, 100, [b"more"])
        disk.sync_data(PATH)
        disk.power_loss(Shape.NOTHING)

        assert disk.read(PATH, 0, 3) == b"new"
        assert disk.read(PATH, 100, 4) == b"more"

    def test_some_of_the_pages_may_have_been_written(self):
        disk = with_file(b"o" * 4 * PAGE_SIZE)
        disk.write(PATH, 0, [b"n" * 4 * PAGE_SIZE])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        seen = outcomes(disk, Shape.RANDOM_PAGES)

        assert {b"o" * 4 * PAGE_SIZE, b"n" * 4 * PAGE_SIZE} < seen
        assert all(is_whole(content, PAGE_SIZE) for content in seen)

    def test_later_synced_bytes_win_over_given_up_ones(self):
        disk = with_file(b"o" * PAGE_SIZE)
        disk.write(PATH, 0, [b"n" * PAGE_SIZE])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.write(PATH, 0, [b"z" * PAGE_SIZE])
        disk.sync_data(PATH)
        for shape in Shape:
            assert outcomes(disk, shape) == {b"z" * PAGE_SIZE}

    def test_a_page_written_again_is_its_own_master(self):
        """Only the page that was not written again may still hold what the failed sync gave up."""
        disk = with_file(b"o" * 2 * PAGE_SIZE)
        disk.write(PATH, 0, [b"n" * 2 * PAGE_SIZE])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.write(PATH, 0, [b"z" * PAGE_SIZE])
        disk.sync_data(PATH)

        assert (disk.is_durable(PATH, 0, PAGE_SIZE), disk.is_durable(PATH, 0, PAGE_SIZE + 1)) == (True, False)
        assert outcomes(disk, Shape.RANDOM_PAGES) == {
            b"z" * PAGE_SIZE + rest * PAGE_SIZE for rest in (b"o", b"n")
        }

    def test_given_up_pages_may_leave_the_cache(self):
        disk = with_file(b"old")
        disk.write(PATH, 0, [b"newer"])
        disk.inject("sync_data", FaultKind.DROPS_PAGES)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.drop_caches()

        assert disk.read(PATH, 0, 10) == b"old\0\0"

    def test_it_may_fail_for_ever(self):
        disk = with_file(b"old")
        disk.inject("sync_data", FaultKind.DROPS_PAGES, times=None)
        for n in range(5):
            disk.write(PATH, 0, [b"%d" % n])
            with pytest.raises(OSError, match="Input/output error"):
                disk.sync_data(PATH)
        disk.heal()
        disk.sync_data(PATH)

        assert disk.synced_bytes(PATH) == b"old"

    def test_a_sync_that_fails_and_keeps_its_pages_can_be_repeated(self):
        """Not what Linux does; a disk of this kind must not fool a test that expects the other."""
        disk = with_file(b"old")
        disk.write(PATH, 0, [b"new"])
        disk.inject("sync_data", FaultKind.EIO)
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data(PATH)
        disk.sync_data(PATH)

        assert disk.synced_bytes(PATH) == b"new"


@EVERY_SHAPE
def test_is_durable_tells_the_truth(shape):
    """What it calls durable is there after any crash of any shape, whatever the disk went through before."""
    disk = SimDisk(7)
    steps = itertools.cycle(
        [
            lambda n: disk.write(PATH, 700 * n % 9000, [bytes([n % 250 + 1]) * 900]),
            lambda n: disk.sync_data(PATH) if n % 3 else None,
            lambda n: disk.extend(PATH, 400 * n),
            lambda n: disk.truncate(PATH, disk.size(PATH) // 2) if n % 5 == 0 else None,
            lambda n: disk.inject("sync_data", FaultKind.DROPS_PAGES) if n % 7 == 0 else None,
        ]
    )
    disk.create(PATH, 100)
    disk.sync_dir("")
    for n, step in zip(range(1, 200), steps, strict=False):
        try:
            step(n)
        except OSError:
            disk.heal()
        size = disk.size(PATH)
        spans = [(at, min(at + 300, size)) for at in range(0, size, 300)]
        sure = [span for span in spans if disk.is_durable(PATH, *span)]
        before, content = disk.snapshot(), disk.content(PATH)
        disk.power_loss(shape, n)
        for start, stop in sure:
            assert disk.content(PATH)[start:stop] == content[start:stop]
        disk.restore(before)
