"""HTTP/1.1 as Hypercorn speaks it, for pages and unknown paths: one request a connection, and nothing but HTTP.

What Hypercorn would also do is left out, because the data plane has decided otherwise (architecture 5): an `Upgrade` to
h2c is ignored, one to websocket too (no page has one), `100 Continue` is never sent (no page takes a body, so the final
answer is all there is to say), and a request that h11 cannot read is answered with an error body like every other.
"""

from __future__ import annotations

from typing import Any

import h11
from hypercorn.events import Closed, Event
from hypercorn.protocol.events import Request
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.typing import H11SendableEvent

from topics.kernel.errors import Code, Rejected
from topics.server.api.errors import STATUS, error_answer


class Http1(H11Protocol):
    """One connection."""

    stream: HTTPStream | None

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._pass_on, self.send = self.send, self._send

    async def _send(self, event: Event) -> None:
        """h11 takes what comes behind the one request for an error as soon as its answer has begun, and Hypercorn then
        closes: here the answer is ended first.
        """
        answering = self.stream is not None and self.connection.our_state is h11.SEND_BODY
        if not (answering and isinstance(event, Closed)):
            await self._pass_on(event)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Hypercorn answers `Upgrade: h2c` here."""

    async def _create_stream(self, request: h11.Request) -> None:
        self.stream = HTTPStream(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        self.keep_alive_requests += 1
        target, headers = _origin_form(request)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii"),
                raw_path=target,
                state=self.connection_state,
            )
        )

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        if not isinstance(event, h11.InformationalResponse):
            await super()._send_h11_event(event)

    async def _send_error_response(self, status_code: int) -> None:
        code = Code.HEADERS_TOO_LARGE if status_code == 431 else Code.INVALID_REQUEST
        answer = error_answer(Rejected(code, "head: the request cannot be read as HTTP/1.1"))
        await self._send_h11_event(
            h11.Response(
                status_code=STATUS[code],
                headers=[
                    (b"content-type", answer.content_type),
                    (b"content-length", b"%d" % len(answer.held)),
                    (b"connection", b"close"),
                    *self.config.response_headers("h11"),
                ],
            )
        )
        await self._send_h11_event(h11.Data(data=answer.held))
        await self._send_h11_event(h11.EndOfMessage())


def _origin_form(request: h11.Request) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Target and fields. An absolute target brings its own host (RFC 9112, 3.2.2)."""
    target, headers = request.target, list(request.headers)
    scheme, mark, rest = target.partition(b"://")
    if not mark or scheme.lower() not in (b"http", b"https"):
        return target, headers
    authority, slash, path = rest.partition(b"/")
    host, question, query = authority.partition(b"?")
    return b"/" + path if slash else b"/" + question + query, [
        (name, value if name != b"host" else host) for name, value in headers
    ]
