"""gzip of bodies, in a thread: a MiB of it would hold the loop up for 17 ms (performance 4)."""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from io import BytesIO
from typing import Final

import trio

from topics.kernel.errors import Code, Rejected, invalid
from topics.server.api.memory import Share
from topics.server.api.message import Answer, Head

ENCODE_BYTES_MIN: Final = 1024
_GZIP: Final = 16 + zlib.MAX_WBITS
_LEVEL: Final = 1
_VARY: Final = b"vary"
_RATIO_MAX: Final = 1032  # of deflate
_PIECE: Final = 1 << 16
_SLICE: Final = 1 << 12


async def decoded(
    head: Head, body: bytes, body_max: int, limiter: trio.CapacityLimiter, held: Share
) -> bytes:
    """The body as it was before its content encoding; its limit holds while it is decoded. `limiter`: how many at
    once; `held`: room for all that it may become, and then for what it has become.

    Raises:
        Rejected: payload_too_large, unsupported_media_type, invalid_request, throttled.
    """
    coding = head.headers[b"content-encoding"].strip().lower()
    if coding in (b"", b"identity"):
        return body
    if coding not in (b"gzip", b"x-gzip"):
        raise Rejected(
            Code.UNSUPPORTED_MEDIA_TYPE,
            f"content-encoding: gzip or none, not {coding[:40].decode('latin-1')!r}",
        )
    async with limiter:
        held.reserve(min(body_max, len(body) * _RATIO_MAX))
        body = await trio.to_thread.run_sync(partial(gunzip, body, body_max))
        held.cover(len(body), most=len(body))
        held.settle(len(body))
    return body


def gunzip(body: bytes, body_max: int) -> bytes:
    """All members of a gzip body, at most `body_max` bytes of it.

    It is fed in slices: zlib copies what it has not used, so that many members of a few bytes would cost their square.
    """
    unfolded = BytesIO()  # not pieces: joined, they would be there twice
    size = at = 0
    while at < len(body):
        machine = zlib.decompressobj(_GZIP)
        left = b""
        while not machine.eof:
            if not left:
                left = body[at : at + _SLICE]
                at += len(left)
            try:
                piece = machine.decompress(left, max_length=_PIECE)
            except zlib.error as error:
                raise invalid("body", f"is not gzip: {error}") from None
            if not left and not piece:
                raise invalid("body", "is gzip cut short")
            left = machine.unconsumed_tail
            size += len(piece)
            if size > body_max:
                raise Rejected(
                    Code.PAYLOAD_TOO_LARGE,
                    f"body: decompressed, it is more than the limit of {body_max} bytes",
                    limit=body_max,
                )
            unfolded.write(piece)
        at -= len(machine.unused_data)
    return unfolded.getvalue()


async def encoded(head: Head, answer: Answer) -> Answer:
    """An answer that is worth it, compressed if that was asked for; a cache is told that it might not have been."""
    varies = b", ".join((*(value for name, value in answer.headers if name == _VARY), b"accept-encoding"))
    others = (field for field in answer.headers if field[0] != _VARY)
    body, headers = answer.held, (*others, (_VARY, varies))
    assert len(body) >= ENCODE_BYTES_MIN
    if accepts_gzip(head.headers.get(b"accept-encoding", b"")):
        body = await trio.to_thread.run_sync(partial(gzip.compress, body, _LEVEL, mtime=0))
        headers = (*headers, (b"content-encoding", b"gzip"))
    return Answer(
        answer.status,
        body,
        content_type=answer.content_type,
        headers=headers,
        closes=answer.closes,
        unsent=answer.unsent,
    )


def accepts_gzip(value: bytes) -> bool:
    """True if the header names gzip with a weight above 0. `*` alone asks for nothing in particular."""
    for part in value.split(b","):
        name, _, weight = part.partition(b";")
        if name.strip().lower() in (b"gzip", b"x-gzip"):
            return weight.replace(b" ", b"").lower() not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False
