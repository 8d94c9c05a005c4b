"""A backup on its way to a client: read in a thread, a piece when the last one has been taken (storage 7).

Until it ends, what it needs is pinned. So it has to be taken at least at `bytes_per_s`, which the planes see to.
"""

from __future__ import annotations

from collections.abc import Iterator

from topics.embed.aio.runtime import Runtime
from topics.embed.aio.thread import Threads
from topics.host.backup.live_backup import Backup
from topics.host.backup.tarstream import tar_pieces, tar_size
from topics.kernel.errors import TopicsError
from topics.server.runtime.log import log


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


async def begin_backup(runtime: Runtime, *, with_cold: bool, bytes_per_s: int) -> BackupStream:
    """A backup of the store as it is now, to be read: cut, and how long the archive will be. `with_cold`: with what is
    in the cold tier.

    Raises:
        Rejected: a shard has failed, nothing is written, or too many backups are being taken.
        Corrupt: the store is damaged, or cannot be read.
    """
    compactor, checkpointer = runtime.writable_compactor()
    backup = Backup(checkpointer, cold=runtime.opened.cold.store if with_cold else None)
    try:
        await compactor.carry_out(backup.steps)
        contents = await runtime.threads.run(backup.contents)
        return BackupStream(
            backup,
            ts=contents.manifest.ts,
            size=tar_size(contents),
            pieces=tar_pieces(contents),
            threads=runtime.threads,
            bytes_per_s=bytes_per_s,
        )
    except BaseException:
        backup.close()
        raise
