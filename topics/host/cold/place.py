"""From the name of a cold directory to its store: a folder, or an object store that fsspec reaches (storage 6).

A segment's data is removed from the data directory when it is in the cold tier, so what is put there must be durable
then. A folder is synced by us. An object store says of a put that it is durable. Of other file systems behind fsspec
(sftp, smb, ftp, hdfs …) a file that was closed may be in a cache still, and fsspec has no sync: they are refused.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from topics.host.cold.fsspec_files import without_secrets
from topics.host.cold.fsspec_store import is_url, open_fsspec
from topics.host.cold.segment_stores import LocalSegmentStore, SegmentStore
from topics.host.directory.nesting import COLD_TIER, enclosing
from topics.host.system.disk import OsDisk
from topics.host.system.folder import make_folder
from topics.kernel.errors import Rejected, invalid

_FOLDERS: Final = ("file", "local")
# Whose put is durable when it returns: S3, Google's and Azure's stores. `memory` lasts as long as the process.
OBJECT_STORES: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory")


def open_cold(place: str) -> SegmentStore:
    """The store at a folder, which is made if it is not there, or at a URL, of which nothing is asked yet.

    Raises:
        Rejected: the folder cannot be used, it lies in a data directory, what the URL needs is not installed, or its
            store does not say when a file is durable.
    """
    if not place:
        raise invalid("cold_dir", "must be a folder or a URL, not empty")
    folder = folder_of(place)
    if folder is not None:
        return _open_folder(folder, place)
    scheme = place.partition("://")[0]
    if scheme.lower() not in OBJECT_STORES:
        raise invalid(
            "cold_dir",
            f"{scheme}:// does not say when a file is durable, and the local copy of a segment goes then: "
            f"mount it and give the folder, or take an object store ({', '.join(OBJECT_STORES)})",
        )
    return open_fsspec(place)


def check_place(place: str, data: Path) -> None:
    """What can be said of a cold directory before the data directory is touched; nothing is made.

    Raises:
        Rejected: as `open_cold`; or it lies in `data`, which need not be there yet.
    """
    folder = folder_of(place)
    if folder is None or not place:
        open_cold(place).close()
        return
    real, root = Path(os.path.realpath(folder)), Path(os.path.realpath(data))
    if real.exists() and not real.is_dir():
        raise invalid("cold_dir", f"{place} is no folder: give one, or a URL of an object store")
    if root in (real, *real.parents):
        raise _nested(place, data, "the data directory")
    _check_nesting(Path(os.path.abspath(folder)), place)


def folder_of(place: str) -> str | None:
    """The folder that a cold directory is, also one that is named by a URL; None for an object store.

    Raises:
        Rejected: the URL names no absolute path.
    """
    scheme, _, path = place.partition(":")
    if scheme.lower() in _FOLDERS and path:
        if not path.startswith("///"):
            raise invalid(
                "cold_dir",
                f"{without_secrets(place)} is no URL of a folder: write {scheme}:///absolute/path, or the folder",
            )
        return path.removeprefix("//")
    return None if is_url(place) else place


def _open_folder(path: str, place: str) -> SegmentStore:
    """The folder at `path`; `place` is its name as it was given."""
    folder = Path(os.path.abspath(path))
    _check_nesting(folder, place)
    try:
        make_folder(folder)
        disk = OsDisk(folder)
    except OSError as error:
        raise invalid("cold_dir", f"{place} cannot be used: {error.strerror or error}") from error
    return LocalSegmentStore(disk, path, close=disk.close)


def _check_nesting(folder: Path, place: str) -> None:
    for directory, what in enclosing(folder):
        if what != COLD_TIER:
            raise _nested(place, directory, what)


def _nested(place: str, directory: Path, what: str) -> Rejected:
    return invalid(
        "cold_dir", f"{place} is or lies in {directory}, which is {what}: choose a place outside it"
    )
