"""A folder of a disk as a disk: one simulated machine has both tiers, counts the calls of both, loses both at once."""

from __future__ import annotations

from collections.abc import Sequence

from topics.kernel.ports import Disk


class Below:
    """The port of `disk`, with every path below `folder`, which is made, durably, before anything is made in it."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def read(self, path: str, offset: int, size: int) -> bytes:
        return self._disk.read(self._at(path), offset, size)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        return self._disk.read_nowait(self._at(path), offset, size)

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        self._disk.write(self._at(path), offset, chunks)

    def sync_data(self, path: str) -> None:
        self._disk.sync_data(self._at(path))

    def sync_dir(self, path: str) -> None:
        self._disk.sync_dir(self._at(path))

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        self._disk.sync_many(list(map(self._at, files)), list(map(self._at, directories)))

    def create(self, path: str, size: int) -> None:
        self._make()
        self._disk.create(self._at(path), size)

    def extend(self, path: str, size: int) -> None:
        self._disk.extend(self._at(path), size)

    def truncate(self, path: str, size: int) -> None:
        self._disk.truncate(self._at(path), size)

    def rename(self, source: str, target: str) -> None:
        self._disk.rename(self._at(source), self._at(target))

    def unlink(self, path: str) -> None:
        self._disk.unlink(self._at(path))

    def make_dir(self, path: str) -> None:
        self._make()
        self._disk.make_dir(self._at(path))

    def remove_dir(self, path: str) -> None:
        self._disk.remove_dir(self._at(path))

    def links(self, path: str) -> int:
        return self._disk.links(self._at(path))

    def names(self, path: str) -> list[str]:
        return self._disk.names(self._at(path))

    def size(self, path: str) -> int | None:
        return self._disk.size(self._at(path))

    def free_bytes(self, path: str = "") -> int:
        return self._disk.free_bytes(self._at(path))

    def _make(self) -> None:
        if self._folder not in self._disk.names(""):
            self._disk.make_dir(self._folder)
            self._disk.sync_dir("")

    def _at(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder
