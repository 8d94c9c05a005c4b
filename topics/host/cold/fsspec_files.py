"""Files below a URL, in whatever fsspec reaches: `s3://`, `gs://`, `memory://` … (storage 6, decision 21).

fsspec and what stands behind a scheme are imported when files are opened, never before: they are an extra, and slow to
import. Their errors are of many kinds; here all of them become OSError, with the path in it. Nothing is cached: what a
listing said an hour ago would make a file look absent that is there.

Credentials and endpoints come from where each library looks for its own (for S3: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, a
profile, the machine's role), so none of ours hold a secret.
"""

from __future__ import annotations

import errno
import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from topics.kernel.errors import invalid

CONNECT_S: Final = 5
READ_S: Final = 20
TRIES_MAX: Final = 2
_UNTOLD: Final = re.compile(r"(?<=://)[^/]*@|[?#].*", re.DOTALL)  # user and password; query and fragment
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

    def ls(self, path: str, detail: bool = True) -> list[str]: ...  # noqa: FBT001, FBT002 # as fsspec has it

    def find(self, path: str) -> list[str]: ...

    def rm_file(self, path: str) -> object: ...

    def makedirs(self, path: str, exist_ok: bool = False) -> object: ...  # noqa: FBT001, FBT002 # as fsspec has it


def without_secrets(url: str) -> str:
    """The URL, or what should be one, as it may be told: no user, no password, no query, no fragment."""
    return _UNTOLD.sub("", url)


def _secrets_of(url: str) -> tuple[str, ...]:
    """What of a URL must not be told, longest first: a library may quote any of it in its errors."""
    whole = [found.group() for found in _UNTOLD.finditer(url)]
    inner = [one[:-1].partition(":")[2] if one.endswith("@") else one[1:] for one in whole]
    return tuple(sorted(filter(None, (*whole, *inner)), key=len, reverse=True))


def open_files(url: str, field: str, options: Mapping[str, Any] | None = None) -> FsspecFiles:
    """The files at a URL; nothing is asked of it yet. `field`: who names it. `options` go to the file system.

    Raises:
        Rejected: fsspec or what the scheme needs is not installed, or nobody knows the scheme.
    """
    scheme, where = url.partition("://")[0].lower(), without_secrets(url)
    given = {**_OPTIONS.get(scheme, {}), **(options or {})}
    try:
        core = importlib.import_module("fsspec.core")
        files, root = core.url_to_fs(url, use_listings_cache=False, skip_instance_cache=True, **given)
    except (ImportError, ValueError, TypeError) as unfit:
        why = _hidden(str(unfit), _secrets_of(url))
        how = "; pip install 'topics-log[s3]'" if scheme == "s3" and isinstance(unfit, ImportError) else ""
        raise invalid(field, f"{where} cannot be used: {why}{how}") from None
    return FsspecFiles(files, str(root), where, flat=scheme in _FLAT, secrets=_secrets_of(url))


def _hidden(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "")
    return text


class FsspecFiles:
    """Files by their paths below one path of a file system. `flat`: it has no folders, so none are made. `secrets`: of
    these no error tells.
    """

    def __init__(
        self, files: FileSystem, root: str, where: str, *, flat: bool = True, secrets: Sequence[str] = ()
    ) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._flat = flat
        self._secrets = secrets
        self.where = where.rstrip("/")

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Bytes [offset, offset + size) of a file, fewer only at its end."""
        assert offset >= 0, offset
        assert size >= 0, size
        if size == 0:
            return b""
        stop = offset + size
        try:
            return bytes(self._asked(path, lambda at: self._files.cat_file(at, start=offset, end=stop)))
        except FileNotFoundError:
            raise
        except OSError:
            length = self.size(path)  # some refuse a range that begins behind the end
            if length is None or offset < length:
                raise
            return b""

    def read_all(self, path: str) -> bytes:
        return bytes(self._asked(path, self._files.cat_file))

    def write(self, path: str, data: bytes) -> None:
        if not self._flat:
            self._asked(path.rpartition("/")[0], lambda at: self._files.makedirs(at, exist_ok=True))
        self._asked(path, lambda at: self._files.pipe_file(at, data))

    def remove(self, path: str) -> None:
        self._asked(path, self._files.rm_file)

    def size(self, path: str) -> int | None:
        """Bytes of a file; None if there is none."""
        try:
            found = self._asked(path, self._files.info)
        except FileNotFoundError:
            return None
        return int(found["size"]) if found.get("type", "file") == "file" else None

    def names(self, path: str) -> list[str]:
        """What is in a folder, ascending; nothing if it is not there."""
        try:
            found = self._asked(path, lambda at: self._files.ls(at, detail=False))
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def paths(self, path: str) -> list[str]:
        """Every file below a folder, by its path below the root."""
        try:
            found = self._asked(path, self._files.find)
        except FileNotFoundError:
            return []
        # A file system may spell its own root with a slash before it, or without.
        marker = f"{self._root.lstrip('/')}/"
        return [path.lstrip("/").removeprefix(marker) for path in found]

    def _asked(self, path: str, call: Callable[[str], T]) -> T:
        """The call at a path below the root. Whatever goes wrong in a library of others is an OSError here."""
        place = f"{self.where}/{path}"
        try:
            return call(f"{self._root}/{path}" if path else self._root)
        except FileNotFoundError as absent:
            why = _hidden(str(absent), self._secrets) or "not found"
            raise FileNotFoundError(errno.ENOENT, why, place) from self._cause(absent)
        except Exception as error:  # noqa: BLE001 -- libraries raise their own kinds: botocore's, aiohttp's, fsspec's
            why = _hidden(f"{type(error).__name__}: {error}", self._secrets)
            raise OSError(errno.EIO, why, place) from self._cause(error)

    def _cause(self, error: Exception) -> Exception | None:
        """Behind a URL with secrets nobody knows what a traceback of a library shows."""
        return None if self._secrets else error
