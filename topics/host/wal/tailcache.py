"""The newest bytes of one shard's log, as its writer handed them to the system: what live readers read (storage 5).

A reader that is close to the head reads what was just written. The bytes are still there, in the very chunks that were
written, so reading them needs neither a system call nor, where the file system cannot say what is in its cache, a
thread. Keeping them is not free, though they are not copied: memory that is not given back at once is not in the
processor's caches when the next batch takes it (decision 0023). So it holds something only while somebody reads near
the end: it begins with the first such read, and ends when as much as it may hold was written since the last one.

What it holds is what is in the file: a batch is added when its write has returned, never before, and a write that
failed adds nothing. It is bounded by bytes, the oldest batch goes first. It answers with all of what was asked for, or
with nothing: then the file has it.

One writer adds, under whatever guards its engine; any thread may read at any time and takes no lock. So the two lists
only grow while they are in use; forgotten batches leave holes, and now and then shorter lists take the place of both.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.log.regions import WalFileId

BATCH_COST: Final = 200  # bytes that a batch takes beside its own, and a chunk
CHUNK_COST: Final = 40
HOLES_MAX: Final = 4096


class _Batch(msgspec.Struct, gc=False, eq=False):
    """Bytes [start, stop) of a file, in chunks. It refers to bytes only, and there are thousands: no collector looks at
    them.
    """

    start: int
    stop: int
    chunks: Sequence[bytes]
    cost: int

    def data(self) -> bytes:
        """All of it. Chunks are joined by the first who asks, for nobody asks for most of them."""
        chunks = self.chunks
        if len(chunks) > 1:
            chunks = self.chunks = (b"".join(chunks),)
        return chunks[0]


class TailCache:
    """Of one shard of one generation. `bytes_max`: of all that it holds; 0 holds nothing."""

    __slots__ = ("_first", "_kept", "_stop", "_wanted", "bytes_max", "size")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max >= 0, bytes_max
        self.bytes_max = bytes_max
        self.size = 0  # what it costs now
        # Where each batch begins, ascending; and the batches.
        self._kept: tuple[list[int], list[_Batch | None]] = ([], [])
        self._first = 0  # everything before was forgotten
        self._stop = 0  # where the log ends
        self._wanted = 0  # bytes still to be kept of what will be written

    def add(self, file: WalFileId, offset: int, chunks: Sequence[bytes], size: int) -> None:
        """These bytes, `size` in all, were written there, behind everything that was added before."""
        assert size > 0
        start = _key(file, offset)
        stop = start + size
        assert self._stop <= start
        self._stop = stop
        if self._wanted <= 0:
            if self._kept[0]:
                self._forget_all()
            return
        self._wanted -= size
        starts, batches = self._kept
        cost = size + CHUNK_COST * len(chunks) + BATCH_COST
        batches.append(_Batch(start, stop, chunks, cost))  # first: whoever finds a start finds its batch
        starts.append(start)
        self.size += cost
        if self.size > self.bytes_max:
            self._forget()

    def find(self, file: WalFileId, offset: int, size: int) -> bytes | None:
        """These bytes of the file, if all of them are here. Asking near the log's end keeps what will be written."""
        at = _key(file, offset)
        stop = at + size
        if self._stop - stop <= self.bytes_max:
            self._wanted = self.bytes_max
        starts, batches = self._kept
        number = bisect_right(starts, at) - 1
        if number < 0:
            return None
        parts: list[bytes] = []
        while number < len(starts):
            batch = batches[number]
            if batch is None or not batch.start <= at < batch.stop:
                return None
            part = batch.data()[at - batch.start : stop - batch.start]
            if stop <= batch.stop:
                return b"".join([*parts, part]) if parts else part
            parts.append(part)
            at = batch.stop
            number += 1
        return None

    def _forget(self) -> None:
        _, batches = self._kept
        while self.size > self.bytes_max:
            batch = batches[self._first]
            assert batch is not None
            self.size -= batch.cost
            batches[self._first] = None
            self._first += 1
        if self._first >= HOLES_MAX:
            starts, batches = self._kept
            self._kept = (starts[self._first :], batches[self._first :])
            self._first = 0

    def _forget_all(self) -> None:
        self._kept = ([], [])
        self._first = self.size = 0


def _key(file: WalFileId, offset: int) -> int:
    """One number for a place in the log of a shard: it ascends as the log grows."""
    return file.first_frame << 32 | offset
