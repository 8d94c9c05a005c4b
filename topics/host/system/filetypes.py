"""The type of what lies under a name that should be a file: a pipe, a directory, a socket, a device or a link.

None of these holds what topics has written, and to open a pipe or a device may wait for ever. So whoever opens a file
does it without waiting, asks what it is, and refuses everything else with its name and what to do.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Final

_KINDS: Final = {
    stat.S_IFIFO: ("a pipe", errno.ESPIPE),
    stat.S_IFDIR: ("a directory", errno.EISDIR),
    stat.S_IFSOCK: ("a socket", errno.ENXIO),
    stat.S_IFLNK: ("a symbolic link", errno.ELOOP),
    stat.S_IFCHR: ("a device", errno.ENODEV),
    stat.S_IFBLK: ("a device", errno.ENODEV),
    stat.S_IFREG: ("a file", errno.ENOTDIR),
}
_OTHER: Final = ("something else", errno.EINVAL)
DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY


def open_file(path: str, flags: int, mode: int = 0o777, *, root_fd: int | None = None) -> int:
    """Open a regular file, below `root_fd` if it is given, without waiting. Raises OSError."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK, mode, dir_fd=root_fd)
    except OSError:
        with suppress(FileNotFoundError):
            _check_way(path, root_fd)
        raise
    try:
        check_file(os.fstat(fd).st_mode, path)
    except OSError:
        os.close(fd)
        raise
    return fd


def open_directory(path: str, *, root_fd: int) -> int:
    """Open a directory below another one. Raises OSError."""
    try:
        return os.open(path, DIRECTORY_FLAGS, dir_fd=root_fd)
    except (NotADirectoryError, FileNotFoundError):  # a link to nothing is no directory that is not there
        with suppress(FileNotFoundError):
            check_directory(os.stat(path, dir_fd=root_fd, follow_symlinks=False).st_mode, path)
        raise


def status_of(path: str, *, root_fd: int) -> os.stat_result | None:
    """What the system knows of a name, None if there is none of it. Raises OSError."""
    try:
        return os.stat(path, dir_fd=root_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        with suppress(FileNotFoundError):
            _check_way(path, root_fd)
        raise


def check_file(mode: int, path: str) -> None:
    """Raises OSError unless this is the mode of a regular file."""
    if not stat.S_ISREG(mode):
        raise _refused(mode, path, "file")


def check_directory(mode: int, path: str) -> None:
    """Raises OSError unless this is the mode of a directory."""
    if not stat.S_ISDIR(mode):
        raise _refused(mode, path, "directory")


def _check_way(path: str, root_fd: int | None) -> None:
    """Raises what is wrong with the kind of the first on the way, if anything is."""
    for at in range(1, len(path)):
        if path[at] == "/":
            check_directory(os.stat(path[:at], dir_fd=root_fd).st_mode, path[:at])
    check_file(os.stat(path, dir_fd=root_fd, follow_symlinks=False).st_mode, path)


def _refused(mode: int, path: str, wanted: str) -> OSError:
    kind, code = _KINDS.get(stat.S_IFMT(mode), _OTHER)
    hint = f"it is {kind} where a {wanted} of topics should be: remove it, and put the {wanted} back from a backup"
    if wanted == "directory":
        code = errno.ENOTDIR
        hint += "; or bring back what it leads to" if stat.S_ISLNK(mode) else ""
    return OSError(code, hint, path)
