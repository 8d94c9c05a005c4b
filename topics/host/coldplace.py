"""From the name of a cold directory to its store: a folder, or whatever fsspec reaches by a URL (storage 6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from topics.host.disk import OsDisk
from topics.host.folder import make_folder
from topics.host.fsspec_store import is_url, open_fsspec
from topics.host.nesting import COLD_TIER, enclosing
from topics.host.tiers import LocalSegmentStore, SegmentStore
from topics.kernel.errors import invalid

_FOLDERS: Final = ("file", "local")


def open_cold(place: str) -> SegmentStore:
    """The store at a folder, which is made if it is not there, or at a URL, of which nothing is asked yet.

    Raises:
        Rejected: the folder cannot be used, it lies in a data directory, or what the URL needs is not installed.
    """
    if not place:
        raise invalid("cold_dir", "must be a folder or a URL, not empty")
    if is_url(place):
        scheme, _, path = place.partition("://")
        if scheme in _FOLDERS:
            _check_nesting(Path(os.path.abspath(path)), place)
        return open_fsspec(place)
    folder = Path(os.path.abspath(place))
    _check_nesting(folder, place)
    try:
        make_folder(folder)
        disk = OsDisk(folder)
    except OSError as error:
        raise invalid("cold_dir", f"{place} cannot be used: {error.strerror or error}") from error
    return LocalSegmentStore(disk, place, close=disk.close)


def _check_nesting(folder: Path, place: str) -> None:
    for directory, what in enclosing(folder):
        if what != COLD_TIER:
            raise invalid(
                "cold_dir", f"{place} is or lies in {directory}, which is {what}: choose a place outside it"
            )
