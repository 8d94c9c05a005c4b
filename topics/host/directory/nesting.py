"""Which folders are directories of topics, so that none is put into another (storage 1, 6 and 7).

A cold tier that is the data directory itself would lose what is moved there: the copy is put in the place of the
original, and then the original is removed. A backup inside a store would be rubbish to one or the other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from topics.codec.manifest import MANIFEST_FILE
from topics.host.cold.segment_stores import OWNER_FILE
from topics.host.directory.layout import FORMAT_FILE
from topics.host.directory.owner import LOCK_NAME

COLD_TIER: Final = "a cold tier"
_MARKS: Final = (
    ((FORMAT_FILE, MANIFEST_FILE), "a backup"),
    ((FORMAT_FILE, "wal"), "a data directory"),
    ((FORMAT_FILE, LOCK_NAME), "a data directory"),  # one that is being made
    ((OWNER_FILE, "topics"), COLD_TIER),
)


def enclosing(place: Path) -> Iterator[tuple[Path, str]]:
    """The directories of topics that the folder is or lies in, the innermost first, each with what it is."""
    real = Path(os.path.realpath(place))
    for directory in (real, *real.parents):
        for marks, what in _MARKS:
            if all(os.path.lexists(directory / mark) for mark in marks):
                yield directory, what
                break
