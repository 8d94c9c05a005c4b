"""Answers as bytes of HTTP/1.1. What repeats is made once: status lines, and the date of the present second."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from topics.server.api.message import Answer, Sized, Unbounded

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
JOINED_BYTES_MAX: Final = 16 * 1024  # a body that is sent with its head in one call
_UPGRADE_REQUIRED: Final = 426
_LINES: Final = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class AnswerWriter:
    """`now_s`: wall time in seconds, for `Date`."""

    __slots__ = ("_date", "_now_s", "_second")

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._second = -1
        self._date = b""

    def encode(self, answer: Answer, *, without_body: bool, closes: bool, old: bool) -> bytes:
        """All of it in one. See `pieces`."""
        return b"".join(self.pieces(answer, without_body=without_body, closes=closes, old=old))

    def pieces(self, answer: Answer, *, without_body: bool, closes: bool, old: bool) -> tuple[bytes, ...]:
        """What to send. A large body is a piece of its own: it is not copied.

        `without_body`: the answer to a HEAD. `old`: to a request of HTTP/1.0, which is told if we keep open.
        """
        body = answer.held
        extra = b"connection: close\r\n" if closes else b"connection: keep-alive\r\n" if old else b""
        if (
            answer.status == _UPGRADE_REQUIRED
        ):  # what it is to upgrade to is for this connection alone (RFC 9110 7.8)
            extra = extra.replace(b": ", b": upgrade, ") or b"connection: upgrade\r\n"
        head = self._head(answer, b"\r\ncontent-length: %d" % len(body), extra)
        if without_body:
            return (head,)
        return (head + body,) if len(body) <= JOINED_BYTES_MAX else (head, body)

    def stream_head(self, answer: Answer, body: Sized | Unbounded, *, chunked: bool) -> bytes:
        """The head of a body that is sent in pieces, behind which the connection ends."""
        if isinstance(body, Sized):
            framing = b"\r\ncontent-length: %d" % body.size
        else:
            framing = b"\r\ntransfer-encoding: chunked" if chunked else b""
        return self._head(answer, framing, b"connection: close\r\n")

    def _head(self, answer: Answer, framing: bytes, extra: bytes) -> bytes:
        try:
            second = int(self._now_s())
        except OverflowError:  # beyond the year 2262 Python tells no time: the date stands still
            second = max(self._second, 0)
        if second != self._second:
            self._second = second
            self._date = b"\r\ndate: " + formatdate(second, usegmt=True).encode() + b"\r\n"
        fields = b""
        for name, value in answer.headers:
            fields += name + b": " + value + b"\r\n"
        return b"%bcontent-type: %b%b%b%b%b\r\n" % (
            _LINES[answer.status],
            answer.content_type,
            framing,
            self._date,
            fields,
            extra,
        )
