"""An answer that is too large to be held, or has no end: its head, then a piece whenever the last one has been taken.

An unbounded body goes in chunks, to a client of HTTP/1.0 as it is. The connection ends with either, so that whatever
breaks a body off shows: fewer bytes came than the head had said, or no last chunk.
"""

from __future__ import annotations

import trio

from topics.server.api.message import LATE_S, PART_BYTES, Answer, SendPace, Sized, Unbounded
from topics.server.runtime.backup import StreamBroken
from topics.server.wire.answers import AnswerWriter
from topics.server.wire.head import WireHead
from topics.server.wire.link import PeerLink

_LAST_CHUNK = b"0\r\n\r\n"


async def send_stream(
    link: PeerLink, writer: AnswerWriter, answer: Answer, body: Sized | Unbounded, wire: WireHead
) -> None:
    """Send all of it, to the end of the connection.

    Raises:
        BrokenResourceError: the peer has gone or is too slow, or there is no more to send.
        PeerGone: the peer has gone.
    """
    pace = SendPace(body, link.options.grace_s, trio.current_time())
    chunked = isinstance(body, Unbounded) and not wire.old
    try:
        await link.answer_first()
        await _send(link, pace, body, writer.stream_head(answer, body, chunked=chunked))
        if wire.head.method == b"HEAD":
            pass
        elif isinstance(body, Sized):
            await _send_pieces(link, pace, body, chunked=False)
        else:
            async with link.watch():  # the end of the peer's side is the end of what has no other
                await _send_pieces(link, pace, body, chunked=chunked)
        await link.linger()
    except StreamBroken as broken:
        raise trio.BrokenResourceError("the rest cannot be read") from broken
    finally:
        body.source.close()


async def _send_pieces(link: PeerLink, pace: SendPace, body: Sized | Unbounded, *, chunked: bool) -> None:
    while piece := await body.source.piece():
        await _send(link, pace, body, b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await _send(link, pace, body, _LAST_CHUNK)


async def _send(link: PeerLink, pace: SendPace, body: Sized | Unbounded, piece: bytes) -> None:
    rest = memoryview(piece)[
        link.edge.try_send(piece) :
    ]  # mostly nothing, and then nothing is to be waited for
    for at in range(0, len(rest), PART_BYTES):
        part = rest[at : at + PART_BYTES]
        deadline = pace.deadline(len(part), trio.current_time())
        late = body.late if isinstance(body, Unbounded) else None
        with trio.move_on_at(deadline if late is None else deadline + LATE_S) as patience:
            await link.edge.send_all(part)
        if late is not None and trio.current_time() > deadline:
            late()
        if patience.cancelled_caught:
            raise trio.BrokenResourceError(f"slower than {pace.bytes_per_s} bytes a second")
