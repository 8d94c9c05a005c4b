"""Moving a file to another folder of a data directory, which may lie on a file system of its own.

A folder such as `wal/` may be a mount or a link to another disk, and no rename crosses to it. Then the file is copied:

    bytes under a temporary name, synced; their name; what makes that name durable; only then the old one goes

So a crash leaves the old file, or both, and moving it again goes on. A half copy never has the name of a whole one.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial

from topics.host.system.medium import unreadable_on_error
from topics.host.system.temporary import TEMPORARY, write_from
from topics.kernel.ports import Disk


def move(disk: Disk, source: str, target: str, settle: Callable[[], None]) -> None:
    """Move a file. `settle` makes the target's name durable; the caller does that behind a rename, and of the source's
    folder in any case.

    Raises:
        OSError: the file is where it was, or in both places; nothing half is left of a copy, unless its disk failed.
            Unreadable: it is where it was, and cannot be copied.
    """
    try:
        disk.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_copy(disk, target, disk.size(source) or 0, partial(_read, disk, source))
        settle()
        disk.unlink(source)


def _read(disk: Disk, path: str, offset: int, size: int) -> bytes:
    with unreadable_on_error():
        return disk.read(path, offset, size)


def write_copy(disk: Disk, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
    """A file of these bytes, synced. Its name is not durable yet. Raises OSError, and then it is not there."""
    write_from(disk, path + TEMPORARY, size, read)
    disk.rename(path + TEMPORARY, path)
