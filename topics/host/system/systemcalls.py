"""The system calls of a disk whose errors matter most, each by descriptor. Tests plant errors in them."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable

import attrs


def _sync_file(fd: int) -> None:
    if sys.platform == "darwin":  # fsync there stops at the drive's cache
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


def _reserve(fd: int, offset: int, size: int) -> None:
    """Ask for the blocks first, where the file system can: a full disk is then known before a byte is written."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


@attrs.frozen
class SystemCalls:
    """As the system has them."""

    sync_data: Callable[[int], None] = _sync_file
    sync_dir: Callable[[int], None] = os.fsync
    reserve: Callable[[int, int, int], None] = _reserve
