"""An answer that is too large to be held: its head, then a piece whenever the last one has been taken (http-api 11).

The connection ends with it, so that whatever breaks it off shows: fewer bytes came than the head had said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from topics.server.api.message import Answer, Stream
from topics.server.runtime.backup import StreamBroken
from topics.server.wire.answers import AnswerWriter

if TYPE_CHECKING:
    from topics.server.wire.connection import Connection


async def send_stream(connection: Connection, writer: AnswerWriter, answer: Answer, stream: Stream) -> bool:
    """Send all of it. False: the connection ends.

    Raises:
        BrokenResourceError: the peer has gone or is too slow, or there is no more to send.
    """
    options, started, sent = connection.options, trio.current_time(), 0
    try:
        await connection.flush_answers()
        await connection.edge.send_all(writer.encode(answer, without_body=False, closes=True, old=False))
        while piece := await stream.piece():
            sent += len(piece)
            with trio.move_on_at(started + options.grace_s + sent / stream.bytes_per_s) as patience:
                await connection.edge.send_all(piece)
            if patience.cancelled_caught:
                raise trio.BrokenResourceError(f"slower than {stream.bytes_per_s} bytes a second")
        await connection.linger()
        return False
    except StreamBroken as broken:
        raise trio.BrokenResourceError("the rest cannot be read") from broken
    finally:
        stream.close()
