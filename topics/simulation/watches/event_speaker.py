"""A stream of server-sent events over memory, from the client's side. It shares nothing with the server."""

from __future__ import annotations

import random
from typing import Any

import attrs
import trio

from topics.simulation.clients.http_messages import SimulatedResponse, Speaker, fields_of
from topics.testing.streams import MemoryEdge


@attrs.frozen
class SentEvent:
    """`name` and `fields` of nothing if it only says that the stream lives, or only an id."""

    name: str
    event_id: str
    fields: dict[str, Any]


class EventSpeaker(Speaker):
    """One connection, whose last request is for a stream."""

    def __init__(self, edge: MemoryEdge, rng: random.Random) -> None:
        super().__init__(edge, rng)
        self._text = bytearray()  # of the stream, not yet cut into events

    async def open(self, path: str, last_id: str | None) -> SimulatedResponse | None:
        """None if the stream has begun, or the connection ended; else why not."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept: text/event-stream"]
        if last_id is not None:
            lines.append(f"Last-Event-ID: {last_id}")
        await self.send("\r\n".join([*lines, "", ""]).encode())
        end = await self._until_head()
        if end < 0:
            return None
        if b"\r\ntransfer-encoding: chunked\r\n" not in bytes(self._buffer[: end + 2]):
            return await self.answer()
        del self._buffer[: end + 4]
        return None

    async def event(self) -> SentEvent | None:
        """The next; None at the end, also of the connection."""
        while (end := self._text.find(b"\n\n")) < 0:
            chunk = await self._chunk()
            if not chunk:
                return None
            self._text += chunk
        lines = bytes(self._text[:end]).split(b"\n")
        del self._text[: end + 2]
        fields = [line.partition(b": ")[::2] for line in lines]
        found = {name: b"\n".join(value for one, value in fields if one == name) for name, _ in fields}
        data = found.get(b"data")
        return SentEvent(
            found.get(b"event", b"").decode(),
            found.get(b"id", b"").decode(),
            {} if data is None else fields_of(data),
        )

    async def _chunk(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            if not await self._receive():
                return b""
        start, size = end + 2, _size_in(bytes(self._buffer[:end]))
        while len(self._buffer) < start + size + 2:
            if not await self._receive():
                return b""
        chunk = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size + 2]
        return chunk


def _size_in(line: bytes) -> int:
    try:
        return int(line, 16)
    except ValueError:
        raise trio.BrokenResourceError(f"no chunk begins with {line!r:.80}") from None
