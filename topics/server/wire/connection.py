"""One connection of HTTP/1.1 (architecture 5): heads and bodies in, answers out, in order.

Theory. The connection owns its buffer and reads only when it needs more, so a client that sends faster than it is
answered is held back by TCP. A request is served before the next is looked at; answers to pipelined ones are gathered
and sent together, before anything is waited for. What is wrong before a body was read whole ends the connection: nobody
knows where the next request begins.

Between requests a connection may go on with another protocol, which gets the edge and every byte that was not served:
HTTP/2 by its preface, Hypercorn's HTTP/1.1 for a path that has no route. A request to upgrade counts where the
route has an upgrade: the connection goes on as a WebSocket.

A connection is its last key's. When that is revoked it ends: at once if idle, behind its answer if that is there soon,
and whatever it does after `REVOKED_GRACE_S`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from topics.kernel.errors import Code, Rejected
from topics.server.api.call import parse_query
from topics.server.api.edge import Edge, HandOver
from topics.server.api.message import Answer, Sized, Unbounded
from topics.server.api.site import Admitted, Site
from topics.server.auth.keys import REVOKED_GRACE_S, Key
from topics.server.wire.again import Again, ServedHead
from topics.server.wire.answers import AnswerWriter
from topics.server.wire.bodies import read_body
from topics.server.wire.edges import ToldEdge
from topics.server.wire.handshake import accept_websocket
from topics.server.wire.head import WireHead, parse_head
from topics.server.wire.link import LINGER_S, PeerLink
from topics.server.wire.patience import Phase, WireOptions
from topics.server.wire.resting import RestingConnection
from topics.server.wire.streaming import StreamedBody
from topics.server.wire.tasks import Attended
from topics.server.wire.websocket import WebSocket

HTTP2_PREFACE_HEAD: Final = b"PRI * HTTP/2.0\r\n\r\n"
_REMEMBERED_MAX: Final = 4096  # bytes of a head: ten thousand idle connections keep one each

_Protocol = Callable[[Edge, bytes], Awaitable[None]]  # serves the connection to its end, unread bytes first


class WireConnection(RestingConnection):
    """`hand_over` is awaited for what the wire does not serve; without it that is a 404."""

    __slots__ = (
        "_again", "_body", "_hand_over", "_has_peer_ended", "_is_revoked", "_key", "_requests", "_secure", "_socket",
        "_stream", "_writer", "options", "site", "tick",
    )  # fmt: skip

    def __init__(
        self,
        edge: Edge,
        site: Site,
        *,
        start: Callable[[Attended], None],
        options: WireOptions | None = None,
        hand_over: HandOver | None = None,
        secure: bool = False,
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.site = site
        self.options = options or WireOptions()
        super().__init__(PeerLink(edge, site, self.options), start, ended)
        self._hand_over = hand_over
        self._secure = secure
        self._requests = 0
        self._socket: WebSocket | None = None
        self._key: Key | None = None
        self._is_revoked = self._has_peer_ended = False
        self.tick: int | None = None  # of the wheel
        self._writer = AnswerWriter(self.options.now_s)
        self._again = Again(self._link, site, self._gather, self.wake)
        self._stream: StreamedBody | None = None  # an answer in pieces, the last one
        self._body: bytes | None = None  # of the present request, from when it is there until it is served

    def end_if_idle(self) -> None:
        """The server drains: an idle connection ends now, a busy one behind its answer, a WebSocket says so."""
        if self._socket is not None:
            self._socket.go_away()
        elif self._link.phase is Phase.IDLE and not self._has_risen:
            self._end_idle()

    async def serve(self) -> None:
        """See `RestingConnection`."""
        self.site.wheel.set(self, self._link.idle_until())
        await super().serve()

    def _let_go(self) -> None:
        """As there."""
        self.site.wheel.drop(self)
        self._again.end()
        self._leave_key()
        for goes_on_as in (self._stream, self._socket):
            if goes_on_as is not None:
                goes_on_as.close()

    def _has_ended(self) -> None:
        """As there: what a WebSocket had is given back before."""
        if self._socket is None:
            super()._has_ended()
        else:
            self._socket.when_over(super()._has_ended)

    def _leave_key(self) -> None:
        if self._key is not None:
            self._key.unbind(self._end_revoked)

    def _belong_to(self, key: Key) -> None:
        self._leave_key()
        self._key = key
        key.bind(self._end_revoked)

    def _end_revoked(self) -> None:
        """Its key is none any more."""
        self._is_revoked = True
        self.site.wheel.set(self, trio.current_time() + REVOKED_GRACE_S)
        if self._socket is not None:
            self._socket.revoke()
        else:
            self.end_if_idle()

    def due(self) -> None:
        """The wheel looks at it: its key was revoked a while ago, or it may have been idle for too long."""
        if self._is_revoked:
            self._link.edge.close()
            return
        if self._socket is not None:
            self._socket.look_over()
            self.site.wheel.set(self, trio.current_time() + self.options.ping_s)
            return
        until = self._link.idle_until()
        if until > trio.current_time():
            self.site.wheel.set(self, until)
        else:
            self._end_idle()

    # At rest.

    def _look(self, edge: ToldEdge) -> None:
        """What comes is served where it comes, if it can be."""
        if self._stream is not None:
            self._look_at_peer(edge)
            return
        begin = partial(self._again.begin, self._key) if self._socket is None else self._socket.begin
        while self._is_at_rest and edge.is_readable:
            data = edge.receive_nowait()
            if data is None or begin(data):
                continue
            if data or self._again.is_begun or self._socket is not None:
                self._rise(data)
            else:
                self._end_at_rest()

    def _look_at_peer(self, edge: ToldEdge) -> None:
        """The end of the peer's side is the end of a stream that has no other."""
        found = self._link.incoming.read_ahead_nowait(edge)
        if found:
            self._has_peer_ended = True
            self._rise()
        elif found is not None:
            self._end_at_rest()

    # Requests.

    async def _serve(self) -> None:
        if self._stream is not None:
            await self._send_stream(self._stream)
            return
        if self._socket is not None:
            self._leaves = await self._socket.serve(self._take_told())
            return
        while True:
            text = await self._read_head()
            if text is None:
                return
            if self._requests == 0 and text == HTTP2_PREFACE_HEAD and self._hand_over is not None:
                await self._go_over(partial(self._hand_over, http2=True, secure=self._secure), text)
                return
            self._requests += 1
            last = self._again.last
            if last is not None and last.text == text:  # a client mostly sends one head again and again
                wire = last.wire
            else:
                try:
                    wire = parse_head(text, secure=self._secure, fields_max=self.site.options.head_fields_max)
                except Rejected as refused:
                    await self._end(self.site.refuse(refused))
                    return
                elsewhere = self._elsewhere(wire)
                if elsewhere is not None:
                    await self._go_over(elsewhere, text)
                    return
                self._again.last = ServedHead(text, wire) if len(text) <= _REMEMBERED_MAX else None
            if not await self._serve_request(wire, text):
                return

    def _elsewhere(self, wire: WireHead) -> _Protocol | None:
        """Who serves this request and all behind it, if that is not us."""
        if self._hand_over is None or self.site.place(wire.head) is not None:
            return None
        return partial(self._hand_over, http2=False, secure=self._secure)

    async def _go_over(self, protocol: _Protocol, text: bytes) -> None:
        """Go on with another protocol, from the head that was read last on, to the connection's end."""
        await self._link.flush()
        await protocol(self._link.edge, self._link.give_away(text))

    async def _serve_request(self, wire: WireHead, text: bytes) -> bool:
        """One request whose head is read. False if the connection ends with it."""
        try:
            admitted = self.site.admit(wire.head)
            if admitted.key is not self._key:
                self._belong_to(admitted.key)
            if admitted.route.upgrade == wire.upgrade and wire.head.method == b"GET":
                await self._serve_socket(admitted, text)
                return False
            try:
                if length := wire.head.length:
                    self._link.held.cover(1, most=length)
                if self._body is None:
                    self._body = await read_body(self._link, wire, admitted)
                    if self._body is None:
                        return False
                self._link.enter_unbounded(Phase.BUSY)
                answer = await self.site.answer(admitted, self._take_body(), self._link)
            finally:
                admitted.end()
        except Rejected as refused:
            self._body = None
            answer = self.site.refuse(refused, wire.head)
            if wire.chunked or wire.head.length:
                await self._end(answer, without_body=wire.head.method == b"HEAD")
                return False
            return await self._go_on(self._gather(answer, wire))
        self._link.held.release()
        if not isinstance(answer.body, bytes):
            await self._begin_stream(answer, answer.body, wire)
            return False
        closes = self._gather(answer, wire)
        del answer  # what is gathered is all of it that is held
        return await self._go_on(closes)

    async def _begin_stream(self, answer: Answer, body: Sized | Unbounded, wire: WireHead) -> None:
        self._again.last = None
        self._stream = StreamedBody(self._link, body, wire, self.wake if self.can_rest else None)
        await self._stream.begin(self._writer, answer)
        if wire.head.method == b"HEAD":
            await self._link.linger()
        else:
            await self._send_stream(self._stream)

    async def _send_stream(self, stream: StreamedBody) -> None:
        """To the end of the connection, unless there is nothing to send now."""
        if self._has_peer_ended or await stream.send():
            await self._link.linger()
        else:
            self._leaves = True

    async def _serve_socket(self, admitted: Admitted, text: bytes) -> None:
        """As a stream of its key. Raises `Rejected` before it has begun."""
        admitted.end()
        admitted.route.check_query(parse_query(admitted.head.query))
        response = accept_websocket(text)
        self.site.begin_stream(admitted.key)
        self._again.last = None
        self.site.counts["websocket", 101] += 1
        self._socket = WebSocket(self._link, self.site, admitted.key, self)
        self.site.wheel.set(self, trio.current_time() + self.options.ping_s)
        self._link.outgoing.pieces.append(response)
        await self._link.answer_first()
        self._leaves = await self._socket.serve(self._link.give_away(b"") or None)

    async def _read_head(self) -> bytes | None:
        """The next head; None if the peer has ended. If what comes is the last head again and its whole body, which a
        small request mostly is, the body is set aside.
        """
        link, incoming = self._link, self._link.incoming
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
            await self._link.flush()
            if incoming.ended:
                return None
            if not incoming.buffer:
                incoming.let_go()
                first = False
                data = await self._rest()
                if data is None:
                    return None
                last = self._again.last
                if last is not None and (body := last.body_in(data)) is not None:
                    self._body = body
                    return last.text
                incoming.take(data)
                continue
            if first or link.phase is Phase.IDLE:
                link.enter(Phase.HEAD, self.options.head_s)
            first = False
            await incoming.receive()

    async def _rest(self) -> bytes | None:
        """What comes next and is not served where it comes. None if the connection ends with what was, or the task
        leaves it at rest.
        """
        link, again = self._link, self._again
        while True:
            if self._has_risen:
                data = self._take_told()
            else:
                if self.site.draining:
                    return None
                link.rest()
                if self.can_rest:
                    self._leaves = True
                    return None
                data = await link.rest_until(partial(again.begin, self._key))
            await again.wait_answered()
            await link.flush()
            if again.closes:
                await link.linger()
                return None
            if data is not None:
                link.enter_unbounded(Phase.IDLE)
                return data

    def _take_body(self) -> bytes:
        """The body, given away: once it is decoded nothing holds it."""
        body, self._body = self._body or b"", None
        return body

    # Answers.

    def _gather(self, answer: Answer, wire: WireHead) -> bool:
        """Put the answer behind those before it. True if it is the last."""
        closes = not wire.keeps or answer.closes or self.site.draining or self._is_revoked
        self._link.outgoing.pieces += self._writer.pieces(
            answer, without_body=wire.head.method == b"HEAD", closes=closes, old=wire.old
        )
        if answer.unsent is not None:
            self._link.outgoing.unsent.append(answer.unsent)
        return closes

    async def _go_on(self, closes: bool) -> bool:  # noqa: FBT001 -- what `_gather` says
        """Behind an answer. False if the connection ends with it."""
        if closes:
            await self._link.flush()
            await self._link.linger()
        elif self._link.incoming.buffer and self._link.outgoing.enough:
            await self._link.flush()
            await trio.lowlevel.checkpoint()  # a peer that takes all at once must not hold up the others
        return not closes

    async def _end(self, answer: Answer, *, without_body: bool = False) -> None:
        """Answer and close. What the peer still sends is read for a while, so that it reads the answer first."""
        if self._link.phase is Phase.BODY:  # what has come of it does not count as left unread
            self._link.incoming.buffer.clear()
            self._link.held.release()
        self._link.outgoing.pieces += self._writer.pieces(
            answer, without_body=without_body, closes=True, old=False
        )
        await self._link.flush()
        await self._link.linger()

    # Ends.

    async def _timed_out(self) -> None:
        """An idle connection just ends."""
        if self._link.phase in (Phase.HEAD, Phase.BODY):
            head = f"head: slower than the limit of {self.options.head_s:g} s"
            body = f"body: slower than the limit of {self.options.byte_rate} bytes a second"
            self._link.outgoing.drop()
            refused = Rejected(Code.REQUEST_TIMEOUT, head if self._link.phase is Phase.HEAD else body)
            with trio.move_on_after(LINGER_S):
                await self._end(self.site.refuse(refused))

    def _failed(self, bug: Exception) -> Answer:
        return self.site.failed(bug, "connection")

    async def _broken(self, bug: Exception) -> None:
        self._link.outgoing.drop()
        answer = self._failed(bug)
        if self._stream is not None or self._socket is not None:  # nobody would take this for an answer
            return
        with trio.move_on_after(LINGER_S), suppress(Exception):  # what broke may be the stream
            await self._end(answer)
