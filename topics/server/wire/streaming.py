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
            await _Pieces(link, chunked=False).send(pace, body)
        else:
            async with link.watch():  # the end of the peer's side is the end of what has no other
                await _Pieces(link, chunked=chunked).send(pace, body)
        await link.linger()
    except StreamBroken as broken:
        raise trio.BrokenResourceError("the rest cannot be read") from broken
    finally:
        body.source.close()


class _Pieces:
    """A body on its way, piece by piece, each in a chunk if it goes in chunks."""

    def __init__(self, link: PeerLink, *, chunked: bool) -> None:
        self._link = link
        self._chunked = chunked
        self._gone = 0  # of the piece that comes next

    def send_now(self, piece: bytes) -> bool:
        """From where it was made, and no task is woken. Who sends what is left is told why it does not go."""
        framed = self._framed(piece)
        try:
            sent = self._link.edge.try_send(framed)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return False
        if sent == len(framed):
            return True
        self._gone = sent
        return False

    async def send(self, pace: SendPace, body: Sized | Unbounded) -> None:
        if isinstance(body, Unbounded):
            body.lent(self.send_now)
        while piece := await body.source.piece():
            framed = self._framed(piece)
            rest, self._gone = memoryview(framed)[self._gone :] if self._gone else framed, 0
            await _send(self._link, pace, body, rest)
        if self._chunked:
            await _send(self._link, pace, body, _LAST_CHUNK)

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece


async def _send(link: PeerLink, pace: SendPace, body: Sized | Unbounded, piece: bytes | memoryview) -> None:
    sent = link.edge.try_send(piece)  # mostly all, and then nothing is to be waited for
    rest = memoryview(piece)[sent:]
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
