"""What a repair takes out of use: a directory below the data directory, each file in it under its old path.

Nothing is deleted by a repair. A file is moved, or copied where a new one takes its name. The directory may lie on
another file system than the log or the segments do; what cannot be renamed to it is copied (`host.system.moving`).

Where a file is going to lie is durable before it is put there, so a crash loses none on its way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from topics.host.directory.layout import shard_dir
from topics.host.system.moving import move, write_copy
from topics.kernel.ports import Disk


class Aside:
    """`directory`: its path. It is made when something is put there."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.directory = directory
        self._disk = disk
        self._made: dict[str, None] = {}
        self._changed: dict[str, None] = {}

    def take(self, path: str) -> bool:
        """Move a file. False if none is there, which is fine."""
        if self._disk.size(path) is None:
            return False
        place = self._place(path)
        move(self._disk, path, place, partial(self._disk.sync_dir, _folder(place)))
        self._changed[_folder(place)] = None
        self._changed[_folder(path)] = None
        return True

    def copy(self, path: str) -> None:
        """Copy a file that is going to be replaced, durably; one that is not there is fine."""
        size = self._disk.size(path)
        if size is not None:
            self.keep(path, size, partial(self._disk.read, path))

    def keep(self, path: str, size: int, read: Callable[[int, int], bytes]) -> None:
        """Keep a copy of these bytes, durably, as those of that path."""
        place = self._place(path)
        write_copy(self._disk, place, size, read)
        self._disk.sync_dir(_folder(place))

    def take_logs(self, shards: Sequence[tuple[int, int]]) -> None:
        """Move the files of some shards' logs, and remove their directories."""
        for key in shards:
            for name in self._disk.names(shard_dir(*key)):
                self.take(f"{shard_dir(*key)}/{name}")
        self.sync()
        for key in shards:
            directory = shard_dir(*key)
            self._disk.remove_dir(directory)
            parent = _folder(directory)
            if not self._disk.names(parent):
                self._disk.remove_dir(parent)

    def sync(self) -> None:
        """Make the moves durable."""
        for directory in self._changed:
            self._disk.sync_dir(directory)
        self._changed.clear()

    def _place(self, path: str) -> str:
        place = f"{self.directory}/{path}"
        folder = _folder(place)
        if folder not in self._made:
            self._made[folder] = None
            self._disk.make_dir(folder)
            while folder:
                folder = _folder(folder)
                self._disk.sync_dir(folder)
        return place


def _folder(path: str) -> str:
    return path.rpartition("/")[0]
