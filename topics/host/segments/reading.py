"""Where the bytes of an extent come from. One place that knows, for every driver of an engine (architecture 3.5).

An extent lies in memory (an ephemeral topic), in a file of the log or in a segment; what was written to the log last is
in memory, too. `nowait` answers from memory and may be called by an event loop; `read` may wait for a disk. Neither
checks what it reads: `log.reads.frames.assemble` does.

Files are read, not mapped: a page that is not in memory would stop every thread, and a disk error would be a signal
(decision 0023).
"""

from __future__ import annotations

import errno
from collections.abc import Mapping

from topics.engine.recovery.recover import ShardKey
from topics.host.cold.cold_tier import ColdTier
from topics.host.directory.layout import path_of
from topics.host.wal.tailcache import TailCache
from topics.kernel.ports import Disk
from topics.log.reads.frames import Extent
from topics.log.regions import WalFileId


class Unread(OSError):
    """The bytes of this extent cannot be had. `errno` says why; that of a file that is not there is ENOENT."""

    def __init__(self, extent: Extent, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), path_of(extent.source))
        self.extent = extent


class ExtentReader:
    """Bytes by extent. Any thread may call at any time."""

    def __init__(
        self,
        disk: Disk,
        tails: Mapping[ShardKey, TailCache] | None = None,
        cold: ColdTier | None = None,
    ) -> None:
        """`tails`: the newest bytes of each shard's log that is written to. `cold`: the cold tier, if there is one."""
        self._disk = disk
        self._tails = tails or {}
        self.cold = cold

    @property
    def disk(self) -> Disk:
        """Where the files are: for whoever reads others than extents."""
        return self._disk

    def nowait(self, extent: Extent) -> bytes | None:
        """All of the bytes if they are at hand in memory, else None: then ask `read`."""
        found = self._in_memory(extent)
        if found is not None:
            return found
        try:
            return self._disk.read_nowait(path_of(extent.source), extent.offset, extent.size)
        except OSError:
            return None  # `read` says what it is

    def is_cold(self, extent: Extent) -> bool:
        """True if `read` is going to ask the cold tier: it may take as long as that does."""
        return self.cold is not None and self.cold.is_cold(extent.source)

    def read(self, extent: Extent) -> bytes:
        """The bytes, fewer if the file ends before. A file in the data directory wins while both tiers have it.

        Raises:
            Unread: a checkpoint has moved them, or the disk failed.
            Rejected: they are in the cold tier, and it fails or is overrun.
        """
        try:
            return self.read_hot(extent)
        except Unread as gone:
            if gone.errno != errno.ENOENT or self.cold is None or not self.cold.is_cold(extent.source):
                raise
        try:
            return self.cold.read(extent)
        except OSError as error:
            raise Unread(extent, error) from error

    def read_hot(self, extent: Extent) -> bytes:
        """`read` without the cold tier: what has gone there meanwhile is `Unread`, and is to be planned again."""
        found = self._in_memory(extent)
        if found is not None:
            return found
        try:
            return self._disk.read(path_of(extent.source), extent.offset, extent.size)
        except OSError as error:
            raise Unread(extent, error) from error

    def _in_memory(self, extent: Extent) -> bytes | None:
        source = extent.source
        if isinstance(source, bytes):
            return source[extent.offset : extent.offset + extent.size]
        if isinstance(source, WalFileId):
            tail = self._tails.get((source.generation, source.shard))
            return None if tail is None else tail.find(source, extent.offset, extent.size)
        return None
