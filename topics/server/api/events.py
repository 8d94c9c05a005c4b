"""Server-sent events: what all streams of them have in common."""

from __future__ import annotations

import re
from typing import Final

from topics.kernel.errors import Code, Rejected
from topics.server.api.message import Head

MEDIA_TYPE: Final = "text/event-stream"
RETRY: Final = b"retry: 2000\n"  # ms, before a browser connects again
_RANGES: Final = (b"text/event-stream", b"text/*", b"*/*")
_NONE: Final = re.compile(rb"q\s*=\s*0(\.0{0,3})?")
HEADERS: Final = ((b"cache-control", b"no-store"), (b"x-accel-buffering", b"no"))


def check_accepted(head: Head) -> None:
    """Raises `Rejected(not_acceptable)` if the client takes no events."""
    accept = head.headers.get(b"accept")
    if accept is not None and not _is_accepted(accept.lower()):
        raise Rejected(Code.NOT_ACCEPTABLE, f"accept: this comes as {MEDIA_TYPE}; accept that")


def _is_accepted(accept: bytes) -> bool:
    """By the closest of its ranges (RFC 9110, 12.5.1)."""
    takes: dict[bytes, bool] = {}
    for one in accept.split(b","):
        kind, *parameters = one.split(b";")
        takes[kind.strip()] = not any(_NONE.fullmatch(parameter.strip()) for parameter in parameters)
    return next((takes[kind] for kind in _RANGES if kind in takes), False)


def event(name: bytes, data: bytes) -> bytes:
    """All but the id, and the empty line that ends it."""
    if b"\n" in data or b"\r" in data:  # a payload may have lines
        data = b"\ndata: ".join(data.splitlines())
    return b"event: %b\ndata: %b\n" % (name, data)


def with_id(event: bytes, event_id: bytes) -> bytes:
    """All of it. The id comes last, so that who shares an event shares its text."""
    return b"%bid: %b\n\n" % (event, event_id)


def heartbeat(now_ms: int) -> bytes:
    return b": hb %d\n\n" % now_ms
