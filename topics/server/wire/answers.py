"""Answers as bytes of HTTP/1.1. What repeats is made once: status lines, and the date of the present second."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

from topics.server.api.message import Answer

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
JOINED_BYTES_MAX: Final = 16 * 1024  # a body that is sent with its head in one call
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
        try:
            second = int(self._now_s())
        except OverflowError:  # beyond the year 2262 Python tells no time: the date stands still
            second = max(self._second, 0)
        if second != self._second:
            self._second = second
            self._date = b"\r\ndate: " + formatdate(second, usegmt=True).encode() + b"\r\n"
        body = b"" if without_body else answer.body
        extra = b""
        for name, value in answer.headers:
            extra += name + b": " + value + b"\r\n"
        if closes:
            extra += b"connection: close\r\n"
        elif old:
            extra += b"connection: keep-alive\r\n"
        joined = len(body) <= JOINED_BYTES_MAX
        head = b"%bcontent-type: %b\r\ncontent-length: %d%b%b\r\n%b" % (
            _LINES[answer.status],
            answer.content_type,
            answer.size,
            self._date,
            extra,
            body if joined else b"",
        )
        return (head,) if joined else (head, body)
