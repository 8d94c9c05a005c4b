"""A folder on this machine that outlives a power cut: its name, and that of every folder made on the way to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def make_folder(path: Path, sync: Callable[[int], None] = os.fsync) -> None:
    """Make it with its parents, durably; one that is there is fine. Raises OSError.

    Only the folders are synced that got a new name, for of the others this user may be unable to open some.
    """
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_names(made.parent, sync)


def sync_names(folder: Path, sync: Callable[[int], None] = os.fsync) -> None:
    """What was made, renamed or removed in the folder is durable. Raises OSError."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)
