"""A backup on its way to a client: read in a thread, a piece when the last one has been taken (storage 7).

Until it ends, what it needs is pinned. So it has to be taken at least at `bytes_per_s`, which the planes see to.
"""

from __future__ import annotations

from collections.abc import Iterator

from topics.host.backup.live_backup import Backup
from topics.host.backup.tarstream import tar_pieces, tar_size
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.cold.segment_stores import SegmentStore
from topics.kernel.errors import TopicsError
from topics.server.runtime.compactor import CompactorTask
from topics.server.runtime.log import log
from topics.server.runtime.thread import Threads


class StreamBroken(Exception):
    """The rest of a body cannot be had: whoever reads it must see that it has no end."""


class BackupStream:
    """`ts`: of the cut. `size`: of the archive. Close it, whatever happens."""

    def __init__(
        self,
        backup: Backup,
        *,
        ts: int,
        size: int,
        pieces: Iterator[bytes],
        threads: Threads,
        bytes_per_s: int,
    ) -> None:
        self.ts = ts
        self.size = size
        self.bytes_per_s = bytes_per_s
        self._backup = backup
        self._pieces = pieces
        self._threads = threads
        self._sent = 0

    async def piece(self) -> bytes:
        """The next bytes, none at the end.

        Raises:
            StreamBroken: there are no more, and it is not the end.
        """
        try:
            piece = await self._threads.run(self._next)
        except TopicsError as error:
            log.error("backup.failed", error=error.message)
            raise StreamBroken from error
        self._sent += len(piece)
        return piece

    def _next(self) -> bytes:
        return next(self._pieces, b"")

    def close(self) -> None:
        """Free what it needed. Twice is fine."""
        self._backup.close()
        log.info(
            "backup.sent" if self._sent == self.size else "backup.broken_off", size=self.size, sent=self._sent
        )


async def begin_backup(
    checkpointer: Checkpointer,
    compactor: CompactorTask,
    threads: Threads,
    *,
    cold: SegmentStore | None,
    bytes_per_s: int,
) -> BackupStream:
    """Cut, and say how long the archive will be. `cold`: copy what is there too.

    Raises:
        Rejected: a shard has failed, or too many backups are being taken.
        Corrupt: the store is damaged, or cannot be read.
    """
    backup = Backup(checkpointer, cold=cold)
    try:
        await compactor.carry_out(backup.steps)
        contents = await threads.run(backup.contents)
        return BackupStream(
            backup,
            ts=contents.manifest.ts,
            size=tar_size(contents),
            pieces=tar_pieces(contents),
            threads=threads,
            bytes_per_s=bytes_per_s,
        )
    except BaseException:
        backup.close()
        raise
