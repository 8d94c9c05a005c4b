"""A file that is written beside its place until it is whole and synced, for a rename to put it there (storage 3).

So a crash leaves what was there, or what should be, and never a half. What fails gives its room back: a full disk wants
it, and whoever tries again would need as much once more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.kernel.ports import Disk

TEMPORARY: Final = ".tmp"


def write_temporary(disk: Disk, path: str, data: bytes) -> None:
    """Write the bytes beside the file, synced. Raises OSError, and then they are not there."""
    write_file(disk, path + TEMPORARY, data)


def write_file(disk: Disk, path: str, data: bytes) -> None:
    """A file of these bytes, synced; its name is not durable yet. Raises OSError, and then it is not there."""
    write_from(disk, path, len(data), lambda at, size: data[at : at + size])


def write_from(disk: Disk, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
    """The same of bytes that are read piece by piece: offset and size."""
    try:
        disk.create(path, 0)
        for at in range(0, size, ZERO_FILL_CHUNK):
            disk.write(path, at, [read(at, min(ZERO_FILL_CHUNK, size - at))])
        disk.sync_data(path)
    except OSError:
        with suppress(OSError):  # the first error is the one to tell
            disk.unlink(path)
        raise
