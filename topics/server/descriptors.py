"""How many files this process may have open, and how many of them may be connections."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

FILES_KEPT: Final = 256  # of the descriptors, or half of fewer than twice as many, for what is no connection


def raise_file_limit() -> int:
    """The soft limit on open files becomes the hard one; returns what holds now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # where it is not to be had (macOS: unlimited), the soft one stays
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return open_files_max()


def open_files_max() -> int:
    """How many descriptors this process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 30


def connections_fit(files_max: int) -> int:
    """How many connections leave the store and everything else the descriptors they need."""
    return files_max - min(FILES_KEPT, files_max // 2)
