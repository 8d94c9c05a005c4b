"""Faults of the simulated disk: each strikes the call it names, does what it says, and can be taken back."""

import errno

import pytest

from topics.testing.faults import MUTATING, FaultKind, Landed, SimCrash
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

CALLS = {
    "write": lambda disk: disk.write("a", 0, [b"new ", b"content"]),
    "sync_data": lambda disk: disk.sync_data("a"),
    "sync_dir": lambda disk: disk.sync_dir(""),
    "create": lambda disk: disk.create("b", 100),
    "extend": lambda disk: disk.extend("a", 100),
    "truncate": lambda disk: disk.truncate("a", 3),
    "rename": lambda disk: disk.rename("a", "c"),
    "unlink": lambda disk: disk.unlink("a"),
    "make_dir": lambda disk: disk.make_dir("d"),
    "remove_dir": lambda disk: disk.remove_dir("empty"),
    "links": lambda disk: disk.links("a"),
    "read": lambda disk: disk.read("a", 0, 5),
    "names": lambda disk: disk.names(""),
    "size": lambda disk: disk.size("a"),
    "free_bytes": lambda disk: disk.free_bytes(),
}
EVERY_CALL = pytest.mark.parametrize("op", list(CALLS))
EVERY_MUTATION = pytest.mark.parametrize("op", sorted(MUTATING))


@pytest.fixture
def disk():
    disk = SimDisk()
    disk.create("a", 0)
    disk.write("a", 0, [b"old content"])
    disk.make_dir("empty")
    disk.sync_data("a")
    disk.sync_dir("")
    return disk


def state(disk: SimDisk) -> dict[str, bytes | None]:
    """All names and contents; None for a directory."""
    return {name: None if disk.inode(name) is None else disk.content(name) for name in disk.names("")}


@EVERY_CALL
@pytest.mark.parametrize(("kind", "code"), [(FaultKind.EIO, errno.EIO), (FaultKind.ENOSPC, errno.ENOSPC)])
def test_an_error_does_nothing_and_strikes_once(disk, op, kind, code):
    before = state(disk)
    disk.inject(op, kind)
    with pytest.raises(OSError, match=r".") as caught:
        CALLS[op](disk)

    assert caught.value.errno == code
    assert state(disk) == before
    CALLS[op](disk)


@EVERY_CALL
def test_a_fault_strikes_from_its_index_as_often_as_asked(disk, op):
    first = disk.counts[op]
    before = disk.snapshot()
    failed = []
    for n in range(8):
        disk.restore(before)
        disk.inject(op, at=first + 2, times=3)
        try:
            CALLS[op](disk)
        except OSError:
            failed.append(n)

    assert failed == [2, 3, 4]


def test_a_global_index_counts_all_calls(disk):
    disk.inject(None, at=disk.counts.total() + 2)
    disk.names("")
    disk.size("a")
    with pytest.raises(OSError, match="Input/output error"):
        disk.read("a", 0, 1)
    disk.read("a", 0, 1)


def test_a_fault_for_ever_can_be_healed(disk):
    disk.inject("write", times=None)
    reads = disk.inject("read", times=None)
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            disk.write("a", 0, [b"x"])
    disk.heal(reads)
    disk.read("a", 0, 1)
    with pytest.raises(OSError, match="Input/output error"):
        disk.write("a", 0, [b"x"])
    disk.heal()
    disk.write("a", 0, [b"x"])


def test_a_short_write_leaves_a_part(disk):
    lengths = set()
    before = disk.snapshot()
    for _ in range(30):
        disk.inject("write", FaultKind.SHORT)
        with pytest.raises(OSError, match="Input/output error"):
            disk.write("a", 0, [b"new", b" content"])
        content = disk.content("a")
        lengths.add(next(n for n in range(12) if content == b"new content"[:n] + b"old content"[n:]))
        state_of_chance = disk._random.getstate()
        disk.restore(before)
        disk._random.setstate(state_of_chance)

    assert len(lengths) > 3
    assert max(lengths) < len(b"new content")


def test_a_misdirected_read_answers_with_other_bytes(disk):
    disk.inject("read", FaultKind.MISDIRECTED, shift=4)

    assert disk.read("a", 0, 3) == b"con"
    assert disk.read("a", 0, 3) == b"old"


def test_a_misdirected_write_lands_elsewhere(disk):
    disk.inject("write", FaultKind.MISDIRECTED, shift=4)
    disk.write("a", 0, [b"XXX"])

    assert disk.content("a") == b"old XXXtent"


@pytest.mark.parametrize("bit", [0, 7, 8, 42])
def test_a_flipped_bit_is_at_rest_too(disk, bit):
    disk.flip("a", bit)
    expected = bytearray(b"old content")
    expected[bit // 8] ^= 1 << bit % 8

    assert disk.read("a", 0, 100) == expected
    disk.power_loss(Shape.NOTHING)
    assert disk.read("a", 0, 100) == expected
    disk.flip("a", bit)
    assert disk.read("a", 0, 100) == b"old content"


class TestFullDisk:
    def test_growth_is_refused_and_the_rest_goes_on(self, disk):
        disk.free = 10
        assert disk.free_bytes() == 10
        for grow in (
            lambda: disk.extend("a", 11 + 11),
            lambda: disk.write("a", 20, [b"xx"]),
            lambda: disk.create("b", 11),
        ):
            with pytest.raises(OSError, match="No space left") as caught:
                grow()
            assert caught.value.errno == errno.ENOSPC
        disk.write("a", 0, [b"in place"])
        disk.extend("a", 11 + 10)

        assert disk.free == 0
        assert (disk.size("a"), disk.size("b")) == (21, 0)

    def test_space_comes_back(self, disk):
        disk.free = 0
        disk.truncate("a", 1)
        assert disk.free_bytes() == 10
        disk.unlink("a")
        assert disk.free_bytes() == 11
        disk.create("b", 11)
        assert disk.free_bytes() == 0


class TestCrashTrap:
    @EVERY_MUTATION
    def test_nothing_of_the_call_took_effect(self, disk, op):
        before = state(disk)
        disk.crash_at(0, Landed.NONE)
        with pytest.raises(SimCrash, match=op):
            CALLS[op](disk)
        disk.process_death()

        assert state(disk) == before

    @EVERY_MUTATION
    def test_all_of_the_call_took_effect(self, disk, op):
        snapshot = disk.snapshot()
        CALLS[op](disk)
        expected, durable = state(disk), disk.synced_bytes("a")
        disk.restore(snapshot)
        disk.crash_at(0, Landed.ALL)
        with pytest.raises(SimCrash):
            CALLS[op](disk)
        disk.process_death()

        assert state(disk) == expected
        assert disk.synced_bytes("a") == durable

    @EVERY_MUTATION
    def test_a_part_of_the_call_took_effect(self, disk, op):
        """Bytes come in any prefix; names, cuts and syncs happen or do not."""
        snapshot, seen = disk.snapshot(), []
        for seed in range(30):
            disk.restore(snapshot)
            disk._random.seed(seed)
            disk.crash_at(0, Landed.PART)
            with pytest.raises(SimCrash):
                CALLS[op](disk)
            disk.process_death()
            if state(disk) not in seen:
                seen.append(state(disk))

        least, most = {"write": (4, 11), "create": (4, 100), "extend": (4, 100)}.get(op, (1, 2))
        assert least <= len(seen) <= most

    @EVERY_CALL
    def test_after_it_every_call_is_refused(self, disk, op):
        disk.crash_at(0)
        with pytest.raises(SimCrash):
            disk.sync_dir("")
        assert disk.down
        for _ in range(2):
            with pytest.raises(SimCrash, match="restart the disk first"):
                CALLS[op](disk)
        disk.process_death()
        CALLS[op](disk)

    def test_it_counts_mutating_calls_only(self, disk):
        disk.crash_at(2)
        disk.write("a", 0, [b"1"])
        disk.read("a", 0, 1)
        disk.names("")
        disk.sync_data("a")
        with pytest.raises(SimCrash):
            disk.write("a", 0, [b"2"])
        disk.power_loss(Shape.NOTHING)

        assert disk.read("a", 0, 1) == b"1"

    def test_no_handler_of_errors_catches_it(self):
        assert not issubclass(SimCrash, Exception)

    def test_a_sweep_visits_every_call(self, disk):
        """How a test uses it: count the calls once, then crash in each of them."""

        def work() -> None:
            disk.create("next.tmp", 0)
            disk.write("next.tmp", 0, [b"head"])
            disk.sync_data("next.tmp")
            disk.rename("next.tmp", "b")
            disk.sync_dir("")

        before, first = disk.snapshot(), disk.mutations
        work()
        count = disk.mutations - first
        points = []
        for n in range(count):
            disk.restore(before)
            disk.crash_at(n)
            with pytest.raises(SimCrash):
                work()
            disk.power_loss(Shape.RANDOM_PAGES, n)
            points.append(tuple(disk.names("")))
            assert disk.size("b") in (None, 4), "the content was synced before the name"

        assert count == 5
        assert all("a" in names for names in points)


class TestWatching:
    def test_the_monitor_sees_each_call_after_it_took_effect(self, disk):
        """So a test can hold every acknowledgement against the sync that must cover it."""
        seen = []
        disk.monitor = lambda call: seen.append((call.op, call.path, disk.is_durable("a", 0, 3)))
        disk.write("a", 0, [b"new"])
        disk.inject("sync_data")
        with pytest.raises(OSError, match="Input/output error"):
            disk.sync_data("a")
        disk.sync_data("a")

        assert seen == [("write", "a", False), ("sync_data", "a", True)]

    def test_calls_are_counted_and_logged(self, disk):
        disk.rename("a", "b")
        disk.read("b", 2, 3)

        assert disk.counts["rename"] == disk.counts["read"] == 1
        assert list(disk.calls)[-2:] == [("rename", "a", 0, 0, "b"), ("read", "b", 2, 3, "")]
        assert disk.mutations == len(disk.calls) - 1

    def test_looking_in_is_no_call(self, disk):
        before = len(disk.calls)
        (
            disk.content("a"),
            disk.synced_bytes("a"),
            disk.is_durable("a", 0, 1),
            disk.inode("a"),
            disk.snapshot(),
        )

        assert len(disk.calls) == before

    def test_a_snapshot_is_independent_and_can_be_used_again(self, disk):
        disk.create("b", 5)
        before = disk.snapshot()
        for _ in range(2):
            for name in ("a", "b"):
                disk.write(name, 0, [b"xyz"])
                disk.sync_data(name)
            disk.rename("b", "c")
            disk.sync_dir("")
            disk.power_loss(Shape.EVERYTHING)
            disk.restore(before)

            assert state(disk) == {"a": b"old content", "b": bytes(5), "empty": None}
            assert disk.synced_bytes("a") == b"old content"
            assert disk.synced_bytes("b") == b""
            assert disk.boot_id == "boot-0-0"

    def test_an_inode_stays_with_its_file(self, disk):
        inode = disk.inode("a")
        disk.create("b", 1)
        assert disk.inode("b") not in (None, inode)
        disk.rename("a", "b")
        assert (disk.inode("b"), disk.inode("a")) == (inode, None)
        disk.sync_dir("")
        disk.power_loss()
        assert disk.inode("b") == inode

    def test_a_crash_lets_go_of_the_directory(self, disk):
        for crash in (disk.process_death, disk.power_loss):
            disk.owner = 4711
            crash()
            assert disk.owner is None
