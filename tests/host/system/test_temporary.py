"""What is written beside its place is whole and synced there, or it is not there and takes no room."""

from __future__ import annotations

import pytest

from topics.host.system.temporary import TEMPORARY, write_from, write_temporary
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk

MUCH = bytes(range(256)) * (ZERO_FILL_CHUNK // 256) + b"and more"


@pytest.mark.parametrize("data", [b"", b"some", MUCH], ids=["none", "some", "much"])
def test_it_is_synced_before_a_rename_may_take_it(data):
    disk = SimDisk()
    disk.create("f", 5)
    disk.sync_data("f")
    write_temporary(disk, "f", data)
    disk.sync_dir("")
    disk.power_loss()

    assert disk.content("f" + TEMPORARY) == data
    assert disk.size("f") == 5


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    ("op", "kind"),
    [("create", FaultKind.ENOSPC), ("write", FaultKind.ENOSPC), ("write", FaultKind.SHORT),
     ("sync_data", FaultKind.EIO)],
)  # fmt: skip
def test_what_fails_takes_no_room_and_leaves_the_rest(op, kind, at):
    """One that an earlier try has left goes with it."""
    disk = SimDisk()
    for name in ("f", "f" + TEMPORARY):
        disk.create(name, 0)
        disk.write(name, 0, [b"before"])
    room = disk.free
    disk.inject(op, kind, at=disk.counts[op] + (at if op == "write" else 0))
    with pytest.raises(OSError, match=r"No space|Input/output|short"):
        write_temporary(disk, "f", MUCH)

    assert disk.free == room + len(b"before")
    assert disk.content("f") == b"before"


def test_what_cannot_be_read_is_not_half_written():
    disk = SimDisk()

    def read(at, size):
        if at:
            raise OSError("planted")
        return MUCH[:size]

    with pytest.raises(OSError, match="planted"):
        write_from(disk, "f", len(MUCH), read)

    assert disk.names("") == []
