"""An answer that is too large to be held, or has no end: its head, then a piece whenever the last one has been taken.

An unbounded body goes in chunks, to a client of HTTP/1.0 as it is. The connection ends with either, so that whatever
breaks a body off shows: fewer bytes came than the head had said, or no last chunk.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from topics.server.api.message import LATE_S, PART_BYTES, Answer, SendPace, Sized, Unbounded
from topics.server.runtime.backup import StreamBroken
from topics.server.wire.answers import AnswerWriter
from topics.server.wire.head import WireHead
from topics.server.wire.link import PeerLink

_LAST_CHUNK = b"0\r\n\r\n"


class StreamedBody:
    """A body on its way, piece by piece, each in a chunk if it goes in chunks. `resume`: called when there is something
    to send, if the connection may rest while there is nothing.
    """

    __slots__ = ("_body", "_chunked", "_gone", "_link", "_pace")

    def __init__(
        self, link: PeerLink, body: Sized | Unbounded, wire: WireHead, resume: Callable[[], None] | None
    ) -> None:
        self._link = link
        self._body = body
        self._chunked = isinstance(body, Unbounded) and not wire.old
        self._pace = SendPace(body, link.options.grace_s, trio.current_time())
        self._gone = 0  # of the piece that comes next
        if isinstance(body, Unbounded):
            body.lent(self.send_now, resume)

    async def begin(self, writer: AnswerWriter, answer: Answer) -> None:
        """The head. Raises as `send`."""
        await self._link.answer_first()
        await self._send(writer.stream_head(answer, self._body, chunked=self._chunked))

    async def send(self) -> bool:
        """All that there is. False if it is not all that there will be: `resume` is called when there is more.

        Raises:
            BrokenResourceError: the peer has gone or is too slow, or there is no more to send.
            PeerGone: the peer has gone.
        """
        is_sent = True
        try:
            if isinstance(self._body, Sized):
                await self._send_pieces()
            else:
                async with self._link.watch():  # the end of the peer's side is the end of what has no other
                    is_sent = await self._send_pieces()
        except StreamBroken as broken:
            raise trio.BrokenResourceError("the rest cannot be read") from broken
        return is_sent

    def close(self) -> None:
        """Nothing more is sent."""
        self._body.source.close()

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

    async def _send_pieces(self) -> bool:
        while piece := await self._body.source.piece():
            framed = self._framed(piece)
            rest, self._gone = memoryview(framed)[self._gone :] if self._gone else framed, 0
            await self._send(rest)
        if piece is None:
            return False
        if self._chunked:
            await self._send(_LAST_CHUNK)
        return True

    def _framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece

    async def _send(self, piece: bytes | memoryview) -> None:
        edge, late = self._link.edge, self._body.late if isinstance(self._body, Unbounded) else None
        sent = edge.try_send(piece)  # mostly all, and then nothing is to be waited for
        rest = memoryview(piece)[sent:]
        for at in range(0, len(rest), PART_BYTES):
            part = rest[at : at + PART_BYTES]
            deadline = self._pace.deadline(len(part), trio.current_time())
            with trio.move_on_at(deadline if late is None else deadline + LATE_S) as patience:
                await edge.send_all(part)
            if late is not None and trio.current_time() > deadline:
                late()
            if patience.cancelled_caught:
                raise trio.BrokenResourceError(f"slower than {self._pace.bytes_per_s} bytes a second")
