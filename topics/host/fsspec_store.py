"""Cold segments in whatever fsspec reaches: `s3://`, `gs://`, `memory://` … (storage 6, decision 21).

fsspec and what stands behind a scheme are imported when a store is opened, never before: they are an extra, and slow
to import. Their errors are of many kinds; here all of them become OSError, with the path in it. Nothing is cached: what
a listing said an hour ago would make a segment look absent that is there.

Credentials and endpoints come from where each library looks for its own (for S3: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, a
profile, the machine's role), so none of ours hold a secret.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from topics.host.tiers import OWNER_FILE, PARTS, part_path, segment_of
from topics.kernel.errors import Rejected, invalid
from topics.log.regions import SegmentId

CONNECT_S: Final = 5
READ_S: Final = 20
TRIES_MAX: Final = 2
_FLAT: Final = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"))  # no folders to be made
_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": CONNECT_S,
            "read_timeout": READ_S,
            "retries": {"max_attempts": TRIES_MAX},
        },
        "default_fill_cache": False,
    }
}

T = TypeVar("T")


class FileSystem(Protocol):
    """What is used of an fsspec file system."""

    def pipe_file(self, path: str, value: bytes) -> object: ...

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes: ...

    def info(self, path: str) -> Mapping[str, Any]: ...

    def find(self, path: str) -> list[str]: ...

    def rm_file(self, path: str) -> object: ...

    def makedirs(self, path: str, exist_ok: bool = False) -> object: ...  # noqa: FBT001, FBT002 # as fsspec has it


def is_url(place: str) -> bool:
    """Whether a cold directory is a store's URL, and not a folder."""
    return "://" in place


def without_secrets(url: str) -> str:
    """The URL as it may be told: no user, no password, no query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def open_fsspec(url: str, options: Mapping[str, Any] | None = None) -> FsspecSegmentStore:
    """The store at a URL; nothing is asked of it yet. `options` go to the file system.

    Raises:
        Rejected: fsspec or what the scheme needs is not installed, or nobody knows the scheme.
    """
    scheme, where = urlsplit(url).scheme, without_secrets(url)
    given = {**_OPTIONS.get(scheme, {}), **(options or {})}
    try:
        core = importlib.import_module("fsspec.core")
        files, root = core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **given)
    except ImportError as absent:
        raise _unusable(where, f"{absent}; install topics[s3]" if scheme == "s3" else str(absent)) from absent
    except (ValueError, TypeError) as unknown:
        raise _unusable(where, str(unknown)) from unknown
    return FsspecSegmentStore(files, str(root), where, flat=scheme in _FLAT)


def _unusable(where: str, why: str) -> Rejected:
    return invalid("cold_dir", f"{where} cannot be used: {why}")


class FsspecSegmentStore:
    """Segments below one path of a file system. `flat`: it has no folders, so none are made."""

    def __init__(self, files: FileSystem, root: str, where: str, *, flat: bool = True) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._where = where.rstrip("/")
        self._flat = flat

    @property
    def where(self) -> str:
        return self._where

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        for part in PARTS:
            if part in parts:
                self._write(part_path(segment, part), parts[part])

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        assert offset >= 0, offset
        assert size >= 0, size
        if size == 0:
            return b""
        path, stop = part_path(segment, part), offset + size
        try:
            return bytes(self._asked(path, lambda at: self._files.cat_file(at, start=offset, end=stop)))
        except FileNotFoundError:
            raise
        except OSError:
            if offset < self.len(segment, part):  # some refuse a range that begins behind the end
                raise
            return b""

    def delete(self, segment: SegmentId) -> None:
        for part in PARTS:
            path = part_path(segment, part)
            if self._size(path) is not None:
                try:
                    self._asked(path, self._files.rm_file)
                except FileNotFoundError:
                    continue

    def list(self) -> list[SegmentId]:
        try:
            paths = self._asked("topics", self._files.find)
        except FileNotFoundError:
            return []
        # A file system may spell its own root with a slash before it, or without.
        marker = f"{self._root.lstrip('/')}/"
        found = (segment_of(path.lstrip("/").removeprefix(marker)) for path in paths)
        return sorted({segment for segment in found if segment is not None})

    def exists(self, segment: SegmentId, part: str) -> bool:
        return self._size(part_path(segment, part)) is not None

    def len(self, segment: SegmentId, part: str) -> int:
        path = part_path(segment, part)
        size = self._size(path)
        if size is None:
            raise FileNotFoundError(errno.ENOENT, "no such segment", f"{self._where}/{path}")
        return size

    def read_owner(self) -> bytes | None:
        if self._size(OWNER_FILE) is None:
            return None
        return bytes(self._asked(OWNER_FILE, self._files.cat_file))

    def write_owner(self, note: bytes) -> None:
        self._write(OWNER_FILE, note)

    def close(self) -> None:
        """The file system closes its own connections when it is collected."""

    def _write(self, path: str, data: bytes) -> None:
        if not self._flat:
            self._asked(path.rpartition("/")[0], lambda at: self._files.makedirs(at, exist_ok=True))
        self._asked(path, lambda at: self._files.pipe_file(at, data))

    def _size(self, path: str) -> int | None:
        try:
            return int(self._asked(path, self._files.info)["size"])
        except FileNotFoundError:
            return None

    def _asked(self, path: str, call: Callable[[str], T]) -> T:
        """The call at a path below the root. Whatever goes wrong in a library of others is an OSError here."""
        place = f"{self._where}/{path}"
        try:
            return call(f"{self._root}/{path}" if path else self._root)
        except FileNotFoundError as absent:
            raise FileNotFoundError(errno.ENOENT, str(absent) or "not found", place) from absent
        except Exception as error:  # libraries raise their own kinds: botocore's, aiohttp's, fsspec's
            raise OSError(errno.EIO, f"{type(error).__name__}: {error}", place) from error
