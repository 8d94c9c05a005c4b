"""What the operating system refused, as people are told it: which path, why, and what to do.

`OsDisk` opens files relative to its directory, and its errors name them so; all others name them as the process does.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

FULL: Final = (errno.ENOSPC, errno.EDQUOT)
TOO_MANY: Final = (errno.EMFILE, errno.ENFILE)


def refusal_line(error: OSError, root: Path | None = None) -> str:
    """One line. `root`: the data directory that was worked on, which also says what still works there."""
    path, why = _path_of(error, root), error.strerror or str(error)
    if not path:
        return f"input or output failed: {why}"
    if isinstance(error, PermissionError):
        what = f"{path} cannot be read and written by this user ({why})"
        return f"{what}: run this as the user that owns it, or change its owner or mode"
    if error.errno == errno.EROFS:
        what = f"{path}: the file system is read-only: mount it writable"
        if root is None or not os.path.lexists(root):
            return f"{what}, or choose another place"
        return (
            f"{what}, or open a copy of {root}; it is read as it is by topics ls, get, state, tail and fsck"
        )
    if error.errno in FULL:
        return f"{path}: no space left on the device; free some"
    if error.errno in TOO_MANY:
        return f"{path}: too many files are open: allow more (ulimit -n)"
    if error.errno == errno.EIO:
        return f"{path}: {why}: the disk does not give or take it; see the system's log"
    return f"{path}: {why}"


def _path_of(error: OSError, root: Path | None) -> str:
    """Empty if the error names none, and there is no directory either."""
    if not isinstance(error.filename, str | bytes):
        return "" if root is None else str(root)
    path = Path(os.fsdecode(error.filename))
    if root is None or path.is_absolute():
        return str(path)
    below = root / path
    is_as_it_is = path == root or root in path.parents or os.path.lexists(path)
    return str(path if is_as_it_is and not os.path.lexists(below) else below)
