"""One simulated file: what a process reads, what the platter holds, and the changes between.

Theory. `data` is the page cache, `durable` the platter, `log` the changes since the last sync in their order; applying
the log to `durable` gives `data`, but for *lost* pages. Those are what a failed sync leaves (Linux marks the pages
clean): they read as new, no later sync writes them, and a crash brings the old content back. Writing into a lost page
makes the whole page dirty again. `ghosts` are the changes that got lost: some may have reached the disk after all.

A cut that was not synced may be undone by a crash; then nothing written beyond it later can be there either, because
the file system had given those blocks away only in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.testing.survival import ALL, PAGE_SIZE, FileFate, Survival


class WriteChange(NamedTuple):
    """`data` at `start`; None means zeros that made the file longer."""

    order: int
    start: int
    stop: int
    data: bytes | None


class CutChange(NamedTuple):
    order: int
    size: int


Change = WriteChange | CutChange


class SimFile:
    """Content of one inode. Knows no name."""

    __slots__ = ("data", "durable", "ghosts", "inode", "links", "log", "lost")

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.links = 1
        self.data = bytearray()
        self.durable = bytearray()
        self.log: list[Change] = []
        self.ghosts: list[WriteChange] = []
        self.lost: set[int] = set()

    def copy(self) -> SimFile:
        twin = SimFile(self.inode)
        twin.links = self.links
        twin.data = self.data[:]
        twin.durable = self.durable[:]
        twin.log = self.log[:]
        twin.ghosts = self.ghosts[:]
        twin.lost = set(self.lost)
        return twin

    def write(self, order: int, start: int, data: bytes) -> None:
        if not data:
            return
        stop = start + len(data)
        if self.lost:
            self._revive(order, start, stop)
        self._change(WriteChange(order, start, stop, data))

    def extend(self, order: int, size: int) -> None:
        if size > len(self.data):
            self._change(WriteChange(order, len(self.data), size, None))

    def cut(self, order: int, size: int) -> None:
        assert size <= len(self.data)
        if size < len(self.data):
            self._change(CutChange(order, size))
            self.lost = {page for page in self.lost if page * PAGE_SIZE < size}
            self._bury()

    def sync(self) -> None:
        """All that is dirty reaches the platter. Lost pages are not dirty."""
        for change in self.log:
            _apply(self.durable, change)
        self.log.clear()
        assert self.lost or len(self.data) == len(self.durable)

    def fail_sync(self) -> None:
        """The pages become clean without having been written; cuts are metadata and stay pending."""
        for change in self.log:
            if isinstance(change, WriteChange):
                self.ghosts.append(change)
                self.lost.update(_pages(change.start, change.stop))
        self.log = [change for change in self.log if isinstance(change, CutChange)]

    def drop_caches(self) -> None:
        """Clean pages leave memory: lost ones read as the platter has them from now on."""
        for page in self.lost:
            start, stop = page * PAGE_SIZE, min((page + 1) * PAGE_SIZE, len(self.data))
            self.data[start:stop] = self.durable[start:stop].ljust(max(0, stop - start), b"\0")
        self.lost.clear()
        self.ghosts.clear()

    def flip(self, bit: int) -> None:
        """One bit at rest turns over, in the cache too."""
        at, mask = bit >> 3, 1 << (bit & 7)
        self.data[at] ^= mask
        if at < len(self.durable):
            self.durable[at] ^= mask

    def is_durable(self, start: int, stop: int) -> bool:
        """Whether every byte of [start, stop) survives any crash as it reads now."""
        if stop > len(self.durable) or not self.lost.isdisjoint(_pages(start, stop)):
            return False
        return not any(_touches(change, start, stop) for change in self.log)

    def lose_power(self, survival: Survival) -> None:
        """Keep the synced part and what of the rest the survival draws."""
        fate = survival.fate(len(self.durable), len(self.data))
        image = self.durable[:]
        for ghost in self.ghosts if fate.ghosts else ():
            _settle(image, ghost, ghost.stop, fate, only=self.lost)
        limit = ALL
        for change in self.log:
            if isinstance(change, WriteChange):
                stop = survival.stop(change.order, change.start, change.stop)
                _settle(image, change, min(stop, limit), fate, torn=change.order == survival.torn_order)
            elif change.order < fate.cuts_below:
                del image[change.size :]
            else:
                limit = min(limit, change.size)
        self.durable = image
        self.data = image[:]
        self.log = []
        self.ghosts = []
        self.lost = set()

    def _change(self, change: Change) -> None:
        _apply(self.data, change)
        self.log.append(change)

    def _revive(self, order: int, start: int, stop: int) -> None:
        """Lost pages that are written again become dirty as a whole, with what the cache holds."""
        for page in sorted(self.lost.intersection(_pages(start, stop))):
            content = bytes(self.data[page * PAGE_SIZE : (page + 1) * PAGE_SIZE])
            begin = page * PAGE_SIZE
            self.log.append(WriteChange(order, begin, begin + len(content), content))
            self.lost.discard(page)
        self._bury()

    def _bury(self) -> None:
        if not self.lost:
            self.ghosts.clear()


def _settle(
    image: bytearray,
    change: WriteChange,
    stop: int,
    fate: FileFate,
    *,
    torn: bool = False,
    only: set[int] | None = None,
) -> None:
    """Grow the image and copy those units of the change that survived; `only` names the pages it may touch."""
    size = min(stop, fate.size_max)
    if size > len(image) and (torn or change.order < fate.growth_below):
        image.extend(bytes(size - len(image)))
    if change.data is None:
        return
    for unit in range(change.start // fate.unit_size, -(-stop // fate.unit_size)):
        start = max(change.start, unit * fate.unit_size)
        end = min(stop, (unit + 1) * fate.unit_size, len(image))
        if start >= end or (only is not None and start // PAGE_SIZE not in only):
            continue
        if torn or change.order < fate.horizon(unit):
            image[start:end] = change.data[start - change.start : end - change.start]


def _apply(into: bytearray, change: Change) -> None:
    if isinstance(change, CutChange):
        del into[change.size :]
        return
    if change.stop > len(into):
        into.extend(bytes(change.stop - len(into)))
    if change.data is not None:
        into[change.start : change.stop] = change.data


def _pages(start: int, stop: int) -> range:
    """Pages that [start, stop) touches."""
    return range(start // PAGE_SIZE, -(-stop // PAGE_SIZE))


def _touches(change: Change, start: int, stop: int) -> bool:
    """Whether undoing the change could alter [start, stop)."""
    if isinstance(change, CutChange):
        return change.size < stop
    return change.start < stop and start < change.stop
