"""A WebSocket over memory from the client's side. `websockets` knows the protocol, and does no I/O."""

from __future__ import annotations

import random

import trio
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from topics.simulation.clients.http_messages import Speaker
from topics.testing.streams import MemoryEdge

_URI = parse_uri("ws://localhost/v0/ws")


class SocketSpeaker(Speaker):
    """One connection, from the request to become a WebSocket on. One task says, another may hear meanwhile."""

    def __init__(self, edge: MemoryEdge, rng: random.Random) -> None:
        super().__init__(edge, rng)
        self._protocol = ClientProtocol(_URI)
        self._saying = trio.Lock()  # an edge has one sender
        self._messages: list[bytes] = []

    async def open(self) -> bool:
        """False if this is refused, or ends before."""
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        while self._protocol.state is State.CONNECTING and self._protocol.handshake_exc is None:
            data = await self.edge.receive()
            if not data:
                return False
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                self._take(event)
        return self._protocol.handshake_exc is None

    async def say(self, texts: list[bytes], *, in_pieces: bool = False, in_fragments: bool = False) -> None:
        """Messages, all at once."""
        if self._protocol.state is not State.OPEN:
            raise trio.ClosedResourceError
        for text in texts:
            at = self._random.randrange(len(text)) if in_fragments else 0
            if at:
                self._protocol.send_text(text[:at], fin=False)
                self._protocol.send_continuation(text[at:], fin=True)
            else:
                self._protocol.send_text(text)
        await self._flush(in_pieces=in_pieces)

    async def break_off(self, text: bytes) -> None:
        """Half a frame."""
        if self._protocol.state is not State.OPEN:
            return
        self._protocol.send_text(text)
        frame = b"".join(self._protocol.data_to_send())
        async with self._saying:
            await self.send(frame[: self._random.randrange(1, len(frame))])

    async def hear(self) -> bytes | None:
        """The next message; None at the end."""
        while not self._messages:
            data = await self.edge.receive()
            if not data:
                return None
            self._protocol.receive_data(data)
            for event in self._protocol.events_received():
                self._take(event)
            await self._flush()
        return self._messages.pop(0)

    async def close(self) -> None:
        """Say so. Who hears goes on until the other side has closed too."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(1000)
            await self._flush()

    def _take(self, event: object) -> None:
        if isinstance(event, Frame) and event.opcode is Opcode.TEXT:
            assert event.fin
            self._messages.append(bytes(event.data))

    async def _flush(self, *, in_pieces: bool = False) -> None:
        data = b"".join(self._protocol.data_to_send())
        if data:
            async with self._saying:
                await self.send(data, in_pieces=in_pieces)
