"""One connection of HTTP/1.1 (architecture 5): heads and bodies in, answers out, in order.

Theory. The connection owns its buffer and reads only when it needs more, so a client that sends faster than it is
answered is held back by TCP. A request is served before the next is looked at; answers to pipelined ones are gathered
and sent together, before anything is waited for. What is wrong before a body was read whole ends the connection: nobody
knows where the next request begins. One cancel scope bounds whatever the peer makes us wait for; its deadline moves.

Between requests a connection may be handed over: to HTTP/2 by its preface, or for a path that has no route.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from io import BytesIO
from typing import Final

import trio

from topics.kernel.errors import Code, Rejected
from topics.server.api.edge import Edge
from topics.server.api.memory import Share
from topics.server.api.message import Answer, PeerGone
from topics.server.api.site import Admitted, Site
from topics.server.wire.answers import CONTINUE, AnswerWriter
from topics.server.wire.chunks import ChunkReader
from topics.server.wire.head import WireHead, parse_head
from topics.server.wire.patience import Phase, WireOptions
from topics.server.wire.receiving import Incoming
from topics.server.wire.sending import Outgoing
from topics.server.wire.streaming import send_stream
from topics.server.wire.watch import Watch

HTTP2_PREFACE_HEAD: Final = b"PRI * HTTP/2.0\r\n\r\n"
_REMEMBERED_MAX: Final = 4096  # bytes of a head: ten thousand idle connections keep one each
_LINGER_BYTES: Final = 64 * 1024
_LINGER_S: Final = 1.0

HandOver = Callable[[Edge, bytes, bool], Awaitable[None]]


class Connection:
    """`hand_over(edge, unread, http2)` is awaited for what the wire does not serve; without it that is a 404."""

    def __init__(
        self,
        edge: Edge,
        site: Site,
        *,
        options: WireOptions | None = None,
        hand_over: HandOver | None = None,
        secure: bool = False,
    ) -> None:
        self.edge = edge
        self.site = site
        self.options = options or WireOptions()
        self._hand_over = hand_over
        self._secure = secure
        self._incoming = Incoming(edge, site.requests)
        self._phase = Phase.IDLE
        self._requests = 0
        self._writer = AnswerWriter(self.options.now_s)
        self._outgoing = Outgoing(edge)
        self._held = Share(site.requests)
        self.room = Share(site.answers)
        self._scope = trio.CancelScope()
        self._idle_since = 0.0
        self._bounded = False
        self._last: tuple[bytes, WireHead] | None = None  # a head that was served here
        self._body: bytes | None = None  # of the present request, from when it is there until it is served

    @property
    def is_idle(self) -> bool:
        """True between requests."""
        return self._phase is Phase.IDLE

    def end_if_idle(self) -> None:
        """The server drains: an idle connection ends now, a busy one behind its answer."""
        if self.is_idle:
            self._scope.cancel()

    async def serve(self) -> None:
        """Until the connection ends, which closes the edge. Nothing that a peer or a handler does is raised."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_idle)
            await self._serve_guarded()
            nursery.cancel_scope.cancel()

    async def _serve_guarded(self) -> None:
        try:
            with self._scope:
                await self._serve()
            if self._scope.cancelled_caught:
                await self._timed_out()
        except (trio.BrokenResourceError, trio.ClosedResourceError, PeerGone):
            pass
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            await self._broken(bug)
        finally:
            self._incoming.let_go()
            self._held.release()
            self.room.release()
            with trio.CancelScope(deadline=trio.current_time() + _LINGER_S, shield=True):
                await self.edge.aclose()

    # Requests.

    async def _end_idle(self) -> None:
        """A task of its own, so that a request moves no deadline: that would cost as much as reading a small body."""
        while True:
            await trio.sleep_until(self._idle_since + self.options.idle_s)
            if self.is_idle and trio.current_time() >= self._idle_since + self.options.idle_s:
                self._scope.cancel()
                return
            if not self.is_idle:
                await trio.sleep(self.options.idle_s)

    async def _serve(self) -> None:
        while True:
            text = await self._read_head()
            if text is None:
                return
            if self._requests == 0 and text == HTTP2_PREFACE_HEAD and self._hand_over is not None:
                await self._give_away(text, http2=True)
                return
            self._requests += 1
            last = self._last
            if last is not None and last[0] == text:  # a client mostly sends one head again and again
                wire = last[1]
            else:
                try:
                    wire = parse_head(text, secure=self._secure, fields_max=self.site.options.head_fields_max)
                except Rejected as refused:
                    await self._end(self.site.refuse(refused))
                    return
                if self._is_elsewhere(wire):
                    await self._give_away(text, http2=False)
                    return
                self._last = (text, wire) if len(text) <= _REMEMBERED_MAX else None
            if not await self._serve_request(wire):
                return

    def _is_elsewhere(self, wire: WireHead) -> bool:
        """True if the request is one for whoever takes what the wire does not serve."""
        kept = self._hand_over is None or wire.upgrade == b"websocket"
        return not kept and self.site.place(wire.head) is None

    async def _serve_request(self, wire: WireHead) -> bool:
        """One request whose head is read. False if the connection ends with it."""
        try:
            if wire.upgrade == b"websocket":
                raise Rejected(
                    Code.NOT_IMPLEMENTED, "upgrade: WebSocket is not served yet; use long polls of diff"
                )
            admitted = self.site.admit(wire.head)
            self._body = await self._read_body(wire, admitted)
        except Rejected as refused:
            self._body = None
            answer = self.site.refuse(refused)
            if wire.chunked or wire.head.length:
                await self._end(answer, without_body=wire.head.method == b"HEAD")
                return False
            return await self._go_on(self._gather(answer, wire))
        if self._body is None:
            return False
        self._enter_unbounded(Phase.BUSY)
        answer = await self.site.answer(admitted, self._take_body(), self)
        self._held.release()
        if answer.stream is not None:
            return await send_stream(self, self._writer, answer, answer.stream)
        closes = self._gather(answer, wire)
        del answer  # what is gathered is all of it that is held
        return await self._go_on(closes)

    async def _read_head(self) -> bytes | None:
        """The next head; None if the peer has ended."""
        incoming = self._incoming
        first = True
        while True:
            if incoming.buffer:
                try:
                    text = incoming.take_head(self.site.options.head_bytes_max)
                except Rejected as refused:
                    await self._end(self.site.refuse(refused))
                    return None
                if text is not None:
                    return text
            await self._flush()
            if incoming.ended:
                return None
            if not incoming.buffer:
                incoming.let_go()
                if self.site.draining:
                    return None
                self._idle_since = trio.current_time()
                self._enter_unbounded(Phase.IDLE)
                first = False
                again = await self._receive_again()
                if again is not None:
                    return again
                continue
            if first or self._phase is Phase.IDLE:
                self._enter(Phase.HEAD, self.options.head_s)
            first = False
            await incoming.receive()

    async def _receive_again(self) -> bytes | None:
        """More bytes into the empty buffer. If they are the last head again and its whole body, which a small request
        mostly is, the body is set aside and the head returned.
        """
        data = await self.edge.receive()
        if self._last is not None:
            text, wire = self._last
            length = wire.head.length
            if length is not None and len(data) == len(text) + length and data.startswith(text):
                self._body = data[len(text) :]
                return text
        self._incoming.ended = not data
        self._incoming.buffer += data
        return None

    def _take_body(self) -> bytes:
        """The body, given away: once it is decoded nothing holds it."""
        body, self._body = self._body or b"", None
        return body

    async def _read_body(self, wire: WireHead, admitted: Admitted) -> bytes | None:
        """The whole body; None if the peer ended in it."""
        length, incoming = wire.head.length, self._incoming
        if length == 0:
            return b""
        if length is not None:
            self._held.cover(1, most=length)
        if self._body is not None:  # it came with its head
            return self._body
        if admitted.expects_continue and not self._incoming.buffer:
            self._outgoing.pieces.append(CONTINUE)
        if length is None:
            return await self._read_chunks(admitted.body_max)
        buffer = incoming.buffer
        if len(buffer) >= length:
            body = bytes(memoryview(buffer)[:length])
            del buffer[:length]
            return body
        await self._flush()
        started, collected = trio.current_time(), BytesIO()  # which gives all away without a copy
        while (size := incoming.move(collected, length)) < length:
            self._held.cover(size + 1, most=length)
            self._pace(started, size)
            if not await incoming.receive():
                return None
        return collected.getvalue()

    async def _read_chunks(self, body_max: int) -> bytes | None:
        reader = ChunkReader(body_max)
        started = trio.current_time()
        while True:
            reader.take(self._incoming.buffer)
            self._held.cover(reader.size, most=reader.size)
            if reader.done:
                return reader.body
            await self._flush()
            self._pace(started, reader.size)
            if not await self._incoming.receive():
                return None

    def _pace(self, started: float, received: int) -> None:
        self._phase = Phase.BODY
        self._bounded = True
        self._scope.deadline = started + self.options.grace_s + received / self.options.byte_rate

    # Bytes.

    def _gather(self, answer: Answer, wire: WireHead) -> bool:
        """Put the answer behind those before it. True if it is the last."""
        closes = not wire.keeps or answer.closes or self.site.draining
        without_body = wire.head.method == b"HEAD"
        self._outgoing.pieces += self._writer.pieces(
            answer, without_body=without_body, closes=closes, old=wire.old
        )
        return closes

    async def _go_on(self, closes: bool) -> bool:  # noqa: FBT001 -- what `_gather` says
        """Behind an answer. False if the connection ends with it."""
        if closes:
            await self._flush()
            await self.linger()
        elif self._incoming.buffer and self._outgoing.enough:
            await self._flush()
            await trio.lowlevel.checkpoint()  # a peer that takes all at once must not hold up the others
        return not closes

    async def _flush(self) -> None:
        outgoing = self._outgoing
        if not outgoing.pieces:
            return
        if not outgoing.send_nowait():
            size = outgoing.size
            if not self.room.keep(size):
                self.site.unsent_dropped += 1
                raise trio.BrokenResourceError("no memory is left for a peer that does not read")
            self._enter(Phase.SENDING, self.options.grace_s + size / self.options.byte_rate)
            await outgoing.send()
        if self.room.size:
            self.room.release()

    async def _end(self, answer: Answer, *, without_body: bool = False) -> None:
        """Answer and close. What the peer still sends is read for a while, so that it reads the answer first."""
        if self._phase is Phase.BODY:  # what has come of it does not count as left unread
            self._incoming.buffer.clear()
            self._held.release()
        self._outgoing.pieces += self._writer.pieces(
            answer, without_body=without_body, closes=True, old=False
        )
        await self._flush()
        await self.linger()

    async def linger(self) -> None:
        """Half-close and drain (RFC 9112 9.6): a close with bytes unread would take the answer back."""
        await self.edge.send_eof()
        with trio.move_on_after(_LINGER_S):
            await self._incoming.drain(_LINGER_BYTES)

    async def _give_away(self, text: bytes, *, http2: bool) -> None:
        await self._flush()
        self._enter_unbounded(Phase.BUSY)
        unread = text + bytes(self._incoming.buffer)
        self._incoming.buffer.clear()
        assert self._hand_over is not None
        await self._hand_over(self.edge, unread, http2)

    def _enter_unbounded(self, phase: Phase) -> None:
        self._phase = phase
        if self._bounded:
            self._bounded = False
            self._scope.deadline = math.inf

    def _enter(self, phase: Phase, bound_s: float) -> None:
        self._phase = phase
        self._bounded = True
        self._scope.deadline = trio.current_time() + bound_s

    # Ends.

    async def _timed_out(self) -> None:
        """The peer was too slow. An idle connection just ends."""
        if self._phase in (Phase.HEAD, Phase.BODY):
            head = f"head: slower than the limit of {self.options.head_s:g} s"
            body = f"body: slower than the limit of {self.options.byte_rate} bytes a second"
            self._outgoing.drop()
            refused = Rejected(Code.REQUEST_TIMEOUT, head if self._phase is Phase.HEAD else body)
            with trio.move_on_after(_LINGER_S):
                await self._end(self.site.refuse(refused))

    async def _broken(self, bug: Exception) -> None:
        self._outgoing.drop()
        answer = self.site.failed(bug, "connection")
        with trio.move_on_after(_LINGER_S), suppress(Exception):  # what broke may be the stream
            await self._end(answer)

    # As the handlers' Peer.

    def watch(self) -> Watch:
        return Watch(self._incoming, self.flush_answers)

    async def flush_answers(self) -> None:
        """Answers to requests before the present one: nobody waits for them any longer."""
        await self._flush()
        self._enter_unbounded(Phase.BUSY)


async def serve_connection(
    edge: Edge,
    site: Site,
    *,
    options: WireOptions | None = None,
    hand_over: HandOver | None = None,
    secure: bool = False,
) -> None:
    """Serve one connection until it ends."""
    await Connection(edge, site, options=options, hand_over=hand_over, secure=secure).serve()
