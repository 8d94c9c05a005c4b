"""What of HTTP/2's streams waits to be sent, and whose turn it is: where Hypercorn has its own of both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container

from hypercorn.protocol.h2 import BUFFER_HIGH_WATER, BUFFER_LOW_WATER, BufferCompleteError, StreamBuffer
from priority.priority import DeadlockError


class Turns:
    """Whose turn it is to send: streams that may have something to send, one behind the other. Stands where Hypercorn
    has its priority tree; `open_streams` are those that it may name.
    """

    def __init__(self, open_streams: Container[int]) -> None:
        self._open = open_streams
        self._ready: OrderedDict[int, None] = OrderedDict()

    def unblock(self, stream_id: int) -> None:
        if stream_id in self._open:
            self._ready[stream_id] = None

    def block(self, stream_id: int) -> None:
        self._ready.pop(stream_id, None)

    remove_stream = block

    def __next__(self) -> int:
        if not self._ready:
            raise DeadlockError
        stream_id = next(iter(self._ready))
        self._ready.move_to_end(stream_id)
        return stream_id


class PatientBuffer(StreamBuffer):
    """What of a stream waits to be sent. Who has more waits until little of it is left. Hypercorn lets him go on as
    soon as a frame is small, an empty one, too: behind a window that stays shut small pieces gathered without end.
    """

    async def push(self, data: bytes) -> None:
        if self._complete:
            raise BufferCompleteError
        self.buffer.extend(data)
        await self._is_empty.clear()
        if len(self.buffer) >= BUFFER_HIGH_WATER:
            await self._paused.clear()
            await self._paused.wait()

    async def pop(self, max_length: int) -> bytes:
        data = bytes(self.buffer[:max_length])
        del self.buffer[:max_length]
        if len(self.buffer) < BUFFER_LOW_WATER:
            await self._paused.set()
        if not self.buffer:
            await self._is_empty.set()
        return data
