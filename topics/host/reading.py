"""Where the bytes of an extent come from. One place that knows, for every driver of an engine (architecture 3.5).

An extent lies in memory (an ephemeral topic), in a file of the log or in a segment. `nowait` answers from memory and
may be called by an event loop; `read` may wait for a disk. Neither checks what it reads: `log.diff.assemble` does.
"""

from __future__ import annotations

from topics.host.layout import path_of
from topics.kernel.ports import Disk
from topics.log.diff import Extent


class Unread(OSError):
    """The bytes of this extent cannot be had. `errno` says why; that of a file that is not there is ENOENT."""

    def __init__(self, extent: Extent, error: OSError) -> None:
        super().__init__(error.errno, error.strerror or str(error), path_of(extent.source))
        self.extent = extent


class Reader:
    """Bytes by extent. Any thread may call at any time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def nowait(self, extent: Extent) -> bytes | None:
        """All of the bytes if they are at hand in memory, else None: then ask `read`."""
        source = extent.source
        if isinstance(source, bytes):
            return source[extent.offset : extent.offset + extent.size]
        try:
            return self._disk.read_nowait(path_of(source), extent.offset, extent.size)
        except OSError:
            return None  # `read` says what it is

    def read(self, extent: Extent) -> bytes:
        """The bytes, fewer if the file ends before.

        Raises:
            Unread: a checkpoint has moved them, or the disk failed.
        """
        source = extent.source
        if isinstance(source, bytes):
            return source[extent.offset : extent.offset + extent.size]
        try:
            return self._disk.read(path_of(source), extent.offset, extent.size)
        except OSError as error:
            raise Unread(extent, error) from error
