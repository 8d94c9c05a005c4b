"""Files behind an fsspec URL as the Disk port, reading only: a backup in an object store is read where it lies."""

from __future__ import annotations

from topics.host.fsspec_files import FsspecFiles
from topics.host.layout import FORMAT_FILE
from topics.host.readonly import Unchanging


class FsspecDisk(Unchanging):
    """`kernel.ports.Disk` over files below a URL."""

    def __init__(self, files: FsspecFiles) -> None:
        self._files = files
        self._format: dict[tuple[int, int], bytes] = {}

    def read(self, path: str, offset: int, size: int) -> bytes:
        """FORMAT is kept until its size is asked for: each segment asks it whose it is, and a read is a request."""
        if path != FORMAT_FILE:
            return self._files.read(path, offset, size)
        if (offset, size) not in self._format:
            self._format[offset, size] = self._files.read(path, offset, size)
        return self._format[offset, size]

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:  # noqa: ARG002 -- the port's signature
        """Nothing is known to be at hand."""
        return None

    def names(self, path: str) -> list[str]:
        return self._files.names(path)

    def size(self, path: str) -> int | None:
        if path == FORMAT_FILE:
            self._format.clear()
        return self._files.size(path)

    def links(self, path: str) -> int:
        return 0 if self.size(path) is None else 1

    def free_bytes(self, path: str = "") -> int:  # noqa: ARG002 -- the port's signature
        return 0
