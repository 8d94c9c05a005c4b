"""The body of a request, as it comes: of a length that its head says, or in chunks."""

from __future__ import annotations

from io import BytesIO

import trio

from topics.server.api.site import Admitted
from topics.server.wire.answers import CONTINUE
from topics.server.wire.chunks import ChunkReader
from topics.server.wire.head import WireHead
from topics.server.wire.link import PeerLink


async def read_body(link: PeerLink, wire: WireHead, admitted: Admitted) -> bytes | None:
    """The whole body; None if the peer ended in it."""
    length, incoming = wire.head.length, link.incoming
    if length == 0:
        return b""
    if admitted.expects_continue and not incoming.buffer:
        link.outgoing.pieces.append(CONTINUE)
    if length is None:
        return await _read_chunks(link, admitted.body_max)
    buffer = incoming.buffer
    if len(buffer) >= length:
        body = bytes(memoryview(buffer)[:length])
        del buffer[:length]
        return body
    await link.flush()
    started, collected = trio.current_time(), BytesIO()  # which gives all away without a copy
    while (size := incoming.move(collected, length)) < length:
        link.held.cover(size + 1, most=length)
        link.pace(started, size)
        if not await incoming.receive():
            return None
    return collected.getvalue()


async def _read_chunks(link: PeerLink, body_max: int) -> bytes | None:
    reader = ChunkReader(body_max)
    started = trio.current_time()
    while True:
        reader.take(link.incoming.buffer)
        link.held.cover(reader.size, most=reader.size)
        if reader.done:
            return reader.body
        await link.flush()
        link.pace(started, reader.size)
        if not await link.incoming.receive():
            return None
