"""What may have taken bytes that were written and not synced: another boot of the machine, another mount of the log
(storage 4).

A file system that was unmounted and mounted again need not have all that was written to it: it may have been taken
away, or repaired. Boot id, device and inode stay the same, so LOCK keeps the mount's own id, too. Since 6.8 Linux gives
each mount a number that is never given again; before, one that the next mount may get. Another number makes a start
only more careful, so that a bind mount or a namespace of its own counts as another mount does no harm.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from struct import Struct
from typing import Final, TypeGuard

from topics.host.system.filetypes import DIRECTORY_FLAGS

BOOT_ID_CHARS_MAX: Final = 64
_AT_EMPTY_PATH: Final = 0x1000
_STX_MNT_ID_UNIQUE: Final = 0x4000
_STATX_SIZE: Final = 256
_MASK: Final = Struct("=I")
_MOUNT: Final = Struct("=Q")
_MOUNT_AT: Final = 144
_LEVELS: Final = 3  # wal, its generations, their shards
_statx: Final = getattr(ctypes.CDLL(None), "statx", None)


def machine_boot_id() -> str | None:
    """Changes with every start of the machine; None where the system does not tell."""
    if sys.platform == "darwin":
        return _boot_session_uuid()
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return text if is_plain(text, BOOT_ID_CHARS_MAX) else None


def log_mount(root_fd: int) -> int | None:
    """The mount that all of the log below a data directory lies on. None if there is no log, if it is spread over
    several, or if the system does not tell.
    """
    found: set[int | None] = set()
    folders = ["wal"]
    try:
        for _ in range(_LEVELS):
            folders = [below for folder in folders for below in _look(folder, root_fd, found)]
    except OSError:
        return None
    return found.pop() if len(found) == 1 else None


def mount_of(fd: int) -> int | None:
    """The id of the mount by which the descriptor was opened; None where the system does not tell."""
    unique = unique_mount_of(fd)
    return unique if unique is not None else numbered_mount_of(fd)


def _look(folder: str, root_fd: int, found: set[int | None]) -> list[str]:
    """Add the folder's mount; returns what is in it."""
    try:
        fd = os.open(folder, DIRECTORY_FLAGS, dir_fd=root_fd)
    except NotADirectoryError:
        return []
    try:
        found.add(mount_of(fd))
        return [f"{folder}/{name}" for name in os.listdir(fd)]
    finally:
        os.close(fd)


def unique_mount_of(fd: int) -> int | None:
    """What statx says, on Linux from 6.8 on."""
    if _statx is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_SIZE)
    if _statx(fd, b"", _AT_EMPTY_PATH, _STX_MNT_ID_UNIQUE, buffer) != 0:
        return None
    (mask,) = _MASK.unpack_from(buffer)
    return int(_MOUNT.unpack_from(buffer, _MOUNT_AT)[0]) if mask & _STX_MNT_ID_UNIQUE else None


def numbered_mount_of(fd: int) -> int | None:
    """The number in /proc/self/mountinfo, as older kernels tell it of a descriptor."""
    try:
        with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name == "mnt_id":
                    return int(value)
    except (OSError, ValueError):
        return None
    return None


def is_plain(value: object, chars_max: int) -> TypeGuard[str]:
    """Text that JSON writes as it is, or it might not fit the line."""
    if not isinstance(value, str) or not 0 < len(value) <= chars_max:
        return False
    return value.isascii() and value.isprintable() and not set(value) & {'"', "\\"}


def _boot_session_uuid() -> str | None:
    """What macOS calls the same thing."""
    import subprocess

    command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=5, check=True, text=True)  # noqa: S603 -- fixed words
    except (OSError, subprocess.SubprocessError):
        return None
    text = answer.stdout.strip()
    return text if is_plain(text, BOOT_ID_CHARS_MAX) else None
