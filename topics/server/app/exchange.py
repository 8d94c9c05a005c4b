"""One request of the second plane: from an ASGI scope to the site's answer, body and disconnect included.

Why this is not a Quart view: Quart reads a whole body into memory whether or not anybody asked for it, decodes and
normalises paths, and ends a handler in the middle when its client goes. The site decides by the head alone whether a
body is read, wants the path as it was sent, and lets only waiting be ended. So the API is served from the ASGI events
themselves, by the handlers of `topics.server.api`, and Quart serves the pages.

An event is read by one task at a time: by the body's reader, then, while something is waited for, by a listener that
looks for the disconnect and drops what else comes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, Final

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope

from topics.kernel.errors import Code, Rejected, invalid
from topics.server.api.authorise import unauthorized
from topics.server.api.memory import Share
from topics.server.api.message import (
    LATE_S,
    PART_BYTES,
    Answer,
    Head,
    PeerGone,
    SendPace,
    Sized,
    Unbounded,
)
from topics.server.api.resources.state import SiteOptions
from topics.server.api.site import Admitted, Site, too_large
from topics.server.app.http2 import BELONGS, ENDED, GO_ON
from topics.server.auth.keys import Key
from topics.server.runtime.backup import StreamBroken

BODY_GRACE_S: Final = 10.0
ANSWER_GRACE_S: Final = 75.0
_PIECE: Final = 1 << 16
_END: Final[Any] = {"type": "http.response.body", "body": b"", "more_body": False}
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_SINGLE: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"content-type", b"content-encoding", b"origin"}
)


class Http2Exchange:
    """A request and its answer; the `Peer` of its handler. `refusal`: what the answer is, whatever it asks."""

    def __init__(
        self,
        site: Site,
        scope: HTTPScope,
        receive: ASGIReceiveCallable,
        send: ASGISendCallable,
        refusal: Rejected | None = None,
    ) -> None:
        self._site = site
        self._scope = scope
        self._receive = receive
        self._send = send
        self._refusal = refusal
        self._held = Share(site.requests)
        self.room = Share(site.answers)
        self._unsent: Callable[[], None] | None = None
        self._gone = self._revoked = False
        self._is_held = False  # the answer is there, and all that is left is to send it
        self._listening = False
        self._waits: set[trio.CancelScope] = set()
        self._key = site.keys.stranger  # until it is known
        self._nursery: trio.Nursery

    async def run(self) -> None:
        async with trio.open_nursery() as self._nursery:
            try:
                await self._send_answer(await self._answer())
            except PeerGone:
                pass  # nobody is there to be answered
            finally:
                self._key.unbind(self._revoke)
                self._held.release()
                self.room.release()
                if self._unsent is not None:
                    self._unsent()
            self._nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        """`Peer.watch`: the block is cancelled if the peer goes, by a reset of the stream or with its connection."""
        if self._gone or (self._revoked and not self._is_held):
            raise PeerGone
        if not self._listening:
            self._listening = True
            self._nursery.start_soon(self._listen)
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)
        if scope.cancelled_caught:
            raise PeerGone

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._end_waits()

    def _end_waits(self) -> None:
        for scope in self._waits:
            scope.cancel()

    def _revoke(self) -> None:
        """Its key is none any more: whatever it waits for ends, and a stream; an answer that is there is sent."""
        self._revoked = True
        if not self._is_held:
            self._end_waits()

    async def _answer(self) -> Answer:
        site, head = self._site, None
        try:
            if self._refusal is not None:
                raise self._refusal
            if self._scope["method"] == "CONNECT":
                message = "CONNECT, and with it WebSocket, is not served over HTTP/2; use HTTP/1.1"
                raise Rejected(Code.NOT_IMPLEMENTED, message)
            head = head_of(self._scope, site.options)
            admitted = site.admit(head)
            try:
                self._belong_to(admitted.key)
                if admitted.route.upgrade is not None:
                    raise Rejected(Code.NOT_IMPLEMENTED, "this path is a WebSocket, over HTTP/1.1 only")
                # The body has no name here, so that the site's is the only hold on it.
                return await site.answer(admitted, await self._body(admitted), self)
            except PeerGone:
                if self._gone:
                    raise
                raise unauthorized(given=True) from None
            finally:
                admitted.end()
        except Rejected as error:
            return site.refuse(error, head)

    def _belong_to(self, key: Key) -> None:
        self._key = key
        key.bind(self._revoke)
        if BELONGS in self._scope["state"]:  # none is said of the one request of a handed-over connection
            self._scope["state"][BELONGS](key)

    async def _body(self, admitted: Admitted) -> bytes:
        """The whole body.

        Raises:
            Rejected: payload_too_large, throttled, request_timeout, invalid_request.
            PeerGone: it has not come whole.
        """
        length = admitted.head.length
        if length == 0 and self._scope["state"].get(ENDED, True):
            return b""
        if length is not None:
            self._held.cover(1, most=length)
        if admitted.expects_continue and GO_ON in self._scope["state"]:
            await self._scope["state"][GO_ON]()
        body = BytesIO()  # not a list: frames of one byte each would take forty times their room
        started, rate = trio.current_time(), self._site.options.bytes_per_s
        more = True
        while more:
            with trio.move_on_at(started + BODY_GRACE_S + body.tell() / rate) as patience:
                event: Any = await self._receive()
            if patience.cancelled_caught:
                raise Rejected(Code.REQUEST_TIMEOUT, f"body: slower than the limit of {rate} bytes a second")
            if event["type"] == "http.disconnect":
                self._gone = True
                raise PeerGone
            piece, more = event.get("body", b""), event.get("more_body", False)
            size = body.tell() + len(piece)
            if size > admitted.body_max:
                raise too_large(admitted.body_max)
            self._held.cover(size, most=size if length is None else max(length, size))
            body.write(piece)
        if length is not None and body.tell() != length:
            raise invalid("body", f"has {body.tell()} bytes, its content-length says {length}")
        return body.getvalue()

    async def _send_answer(self, answer: Answer) -> None:
        body = answer.body
        headers = [(b"content-type", answer.content_type), *answer.headers]
        if not isinstance(body, Unbounded):
            size = len(body) if isinstance(body, bytes) else body.size
            headers.insert(1, (b"content-length", b"%d" % size))
        start: Any = {"type": "http.response.start", "status": answer.status, "headers": headers}
        if isinstance(body, bytes):
            await self._send_held(start, body, answer.unsent)
        else:
            await self._send_stream(start, body)

    async def _send_held(self, start: Any, body: bytes, unsent: Callable[[], None] | None) -> None:
        self._unsent = unsent
        self._is_held = True
        patience_s = ANSWER_GRACE_S + len(body) / self._site.options.bytes_per_s
        kept = self.room.keep(len(body))
        self._site.unsent_dropped += not kept
        async with self.watch():
            with trio.move_on_after(patience_s):  # its stream is reset if it does not take the answer
                await self._send(start)
                if kept:  # else its stream is reset
                    await self._send_piece(body)
                    await self._send(_END)
                    self._unsent = None

    async def _send_stream(self, start: Any, body: Sized | Unbounded) -> None:
        """A piece when the last one was taken. If it does not come to its end, its stream is reset."""
        pace = SendPace(body, ANSWER_GRACE_S, trio.current_time())
        try:
            async with self.watch():
                await self._send(start)
                while self._has_body and (piece := await body.source.piece()):
                    if not await self._send_in_time(body, pace, piece):
                        return
                await self._send(_END)
        except StreamBroken:
            return
        finally:
            body.source.close()

    async def _send_in_time(self, body: Sized | Unbounded, pace: SendPace, piece: bytes) -> bool:
        """False if its peer does not take it."""
        late = body.late if isinstance(body, Unbounded) else None
        for at in range(0, len(piece), PART_BYTES):
            part = piece[at : at + PART_BYTES]
            deadline = pace.deadline(len(part), trio.current_time())
            with trio.move_on_at(deadline if late is None else deadline + LATE_S) as patience:
                await self._send_piece(part)
            if late is not None and trio.current_time() > deadline:
                late()
            if patience.cancelled_caught:
                return False
        return True

    @property
    def _has_body(self) -> bool:
        return self._scope["method"] != "HEAD"

    async def _send_piece(self, piece: bytes) -> None:
        for at in range(0, len(piece), _PIECE) if self._has_body else ():
            part: Any = {"type": "http.response.body", "body": piece[at : at + _PIECE], "more_body": True}
            await self._send(part)


def head_of(scope: HTTPScope, options: SiteOptions) -> Head:
    """The head as the site takes it.

    Raises:
        Rejected: headers_too_large, invalid_request.
    """
    fields = list(scope["headers"])
    # As HTTP/2 counts a header list (RFC 9113, 6.5.2); `host` is there once, from :authority.
    fields_max, bytes_max = options.head_fields_max, options.head_bytes_max
    size = len(scope["raw_path"]) + len(scope["query_string"]) + sum(len(n) + len(v) + 32 for n, v in fields)
    for what, count, most in (("fields", len(fields), fields_max), ("bytes", size, bytes_max)):
        if count > most:
            raise Rejected(Code.HEADERS_TOO_LARGE, f"head: more than the limit of {most} {what}", limit=most)
    headers: dict[bytes, bytes] = {}
    for spelled, value in fields:
        name = spelled.lower()
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise invalid("head", f"{name.decode('latin-1')} is given twice")
        else:
            headers[name] += (b"; " if name == b"cookie" else b", ") + value
    return Head(
        scope["method"].encode("latin-1"),
        scope["raw_path"],
        scope["query_string"],
        headers,
        length=_length(scope, headers),
        secure=scope["scheme"] == "https",
    )


def _length(scope: HTTPScope, headers: dict[bytes, bytes]) -> int | None:
    """What the head says of the body's length; None if it says nothing and one may come."""
    given = headers.get(b"content-length")
    if given is not None:
        if _LENGTH.fullmatch(given) is None:
            raise invalid("head", "Content-Length is a whole number")
        return int(given)
    if b"transfer-encoding" in headers:
        return None
    return 0 if scope["state"].get(ENDED, True) else None
