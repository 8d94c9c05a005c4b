"""From the name of a cold directory to its store: a folder, or whatever fsspec reaches by a URL (storage 6)."""

from __future__ import annotations

from pathlib import Path

from topics.host.disk import OsDisk
from topics.host.fsspec_store import is_url, open_fsspec
from topics.host.tiers import LocalSegmentStore, SegmentStore
from topics.kernel.errors import invalid


def open_cold(place: str) -> SegmentStore:
    """The store at a folder, which is made if it is not there, or at a URL, of which nothing is asked yet.

    Raises:
        Rejected: the folder cannot be used, or what the URL needs is not installed.
    """
    if not place:
        raise invalid("cold_dir", "must be a folder or a URL, not empty")
    if is_url(place):
        return open_fsspec(place)
    folder = Path(place)
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            _sync_name(folder)
        disk = OsDisk(folder)
    except OSError as error:
        raise invalid("cold_dir", f"{place} cannot be used: {error.strerror or error}") from error
    return LocalSegmentStore(disk, place, close=disk.close)


def _sync_name(folder: Path) -> None:
    """The new folder outlives a power cut, and so does every one that was made on the way to it."""
    for parent in folder.resolve().parents:
        disk = OsDisk(parent)
        disk.sync_dir("")
        disk.close()
