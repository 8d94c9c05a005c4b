"""Files behind an fsspec URL as the Disk port, reading only: a backup in an object store is read where it lies."""

from __future__ import annotations

import importlib
from typing import Any, Final

from topics.audit.files import Unchanging
from topics.kernel.errors import invalid

_LOCAL: Final = "file://"


def is_url(path: str) -> bool:
    """Whether a path is an fsspec URL, and not a folder of this machine."""
    return "://" in path and not path.startswith(_LOCAL)


class FsspecDisk(Unchanging):
    """`kernel.ports.Disk` over an fsspec file system. Nothing is cached between calls."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            core = importlib.import_module("fsspec.core")
            self._files, root = core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as absent:
            raise invalid(
                "path", f"{url} cannot be read: {absent}; install topics[s3], or what fsspec needs"
            ) from None
        self._root = root.rstrip("/")

    def read(self, path: str, offset: int, size: int) -> bytes:
        data: bytes = self._files.cat_file(self._at(path), start=offset, end=offset + size)
        return data

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:  # noqa: ARG002 -- the port's signature
        return None

    def names(self, path: str) -> list[str]:
        try:
            found: list[Any] = self._files.ls(self._at(path), detail=False)
        except FileNotFoundError:
            return []
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def size(self, path: str) -> int | None:
        try:
            found = self._files.info(self._at(path))
        except FileNotFoundError:
            return None
        return int(found["size"]) if found["type"] == "file" else None

    def links(self, path: str) -> int:
        return 0 if self.size(path) is None else 1

    def free_bytes(self) -> int:
        return 0

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root
