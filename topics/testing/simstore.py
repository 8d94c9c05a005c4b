"""What a simulated disk holds, and what each call does to it when nothing goes wrong.

Theory. A tree of names and files, one running order number over all changes, and a capacity of each file system. No
faults and no crashes here: they are the machine's (`simdisk`). Calls arrive as values, so a fault can shorten or
misdirect them first.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence

from topics.testing.faults import DiskCall
from topics.testing.simfile import SimFile
from topics.testing.simtree import SimDir, SimTree
from topics.testing.survival import Shape, Survival


class SimStore:
    """Files below one root, synced and not."""

    __slots__ = ("_capacity", "_inodes", "_order", "tree")

    def __init__(self, capacity: int, mounts: Sequence[str] = ()) -> None:
        self.tree = SimTree(mounts)
        self._capacity = dict.fromkeys(("", *mounts), capacity)
        self._order = 0
        self._inodes = 0

    def copy(self) -> SimStore:
        twin = SimStore(0)
        twin.tree = self.tree.copy()
        twin._capacity = dict(self._capacity)
        twin._order = self._order
        twin._inodes = self._inodes
        return twin

    def free(self, path: str = "") -> int:
        """Of the file system that has the path."""
        mount = self.tree.mount_of(path)
        return max(0, self._capacity[mount] - self._used(mount))

    def set_free(self, size: int, mount: str = "") -> None:
        assert mount in self._capacity, mount
        self._capacity[mount] = size + self._used(mount)

    def lose_power(self, shape: Shape, rng: random.Random) -> None:
        survival = Survival(shape, rng, self._pending_orders())
        self.tree.lose_power(survival.keeps_name)
        for file in self.tree.files():
            file.lose_power(survival)

    def read(self, call: DiskCall) -> bytes:
        return bytes(self.tree.file(call.path).data[call.offset : call.offset + call.size])

    def write(self, call: DiskCall, data: bytes) -> None:
        file = self.tree.file(call.path)
        self._take(call.path, call.offset + call.size - len(file.data))
        file.write(self._next_order(), call.offset, data[: call.size])

    def create(self, call: DiskCall) -> None:
        node = self.tree.find(call.path)
        if node is None:
            self._inodes += 1
            self.tree.link(self._next_order(), call.path, SimFile(self._inodes))
        self.tree.file(call.path).cut(self._next_order(), 0)
        self.extend(call)

    def extend(self, call: DiskCall) -> None:
        file = self.tree.file(call.path)
        self._take(call.path, call.size - len(file.data))
        file.extend(self._next_order(), call.size)

    def truncate(self, call: DiskCall) -> None:
        file = self.tree.file(call.path)
        assert call.size <= len(file.data), "truncate cuts, extend grows"
        file.cut(self._next_order(), call.size)

    def make_dir(self, call: DiskCall) -> None:
        parts = call.path.split("/")
        for depth in range(1, len(parts) + 1):
            path = "/".join(parts[:depth])
            if self.tree.find(path) is None:
                self.tree.link(self._next_order(), path, SimDir())
        self.tree.directory(call.path)  # refuses a file of that name

    def remove_dir(self, call: DiskCall) -> None:
        self.tree.remove_dir(self._next_order(), call.path)

    def links(self, call: DiskCall) -> int:
        node = self.tree.find(call.path)
        return node.links if isinstance(node, SimFile) else 0

    def names(self, call: DiskCall) -> list[str]:
        if call.path and self.tree.find(call.path) is None:
            return []
        return sorted(self.tree.directory(call.path).entries)

    def size(self, call: DiskCall) -> int | None:
        node = self.tree.find(call.path)
        return len(node.data) if isinstance(node, SimFile) else None

    def rename(self, call: DiskCall) -> None:
        self.tree.move(self._next_order(), call.path, call.target)

    def unlink(self, call: DiskCall) -> None:
        self.tree.unlink(self._next_order(), call.path)

    def sync_data(self, call: DiskCall) -> None:
        self.tree.file(call.path).sync()

    def sync_dir(self, call: DiskCall) -> None:
        self.tree.sync(call.path)

    def _take(self, path: str, growth: int) -> None:
        if growth > 0 and growth > self.free(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _used(self, mount: str) -> int:
        return sum(len(file.data) for file in self.tree.files_of(mount))

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _pending_orders(self) -> list[int]:
        """Orders of all that no sync covered. A removed file that may come back counts: its change of name does."""
        orders = {change.order for change in self.tree.pending}
        for file in self.tree.files():
            orders.update(change.order for change in file.log)
        return sorted(orders)
