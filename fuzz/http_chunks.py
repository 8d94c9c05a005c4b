"""Bodies in chunks, against h11: what we take is the same body, and the next request begins at the same byte."""

from __future__ import annotations

import re

import h11

from topics.kernel.errors import Rejected
from topics.server.wire.chunks import ChunkReader

BODY_MAX = 4096
BYTEWISE_MAX = 400
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
SPACE_BEFORE_EXTENSION = re.compile(rb"(?i)\b([0-9a-f]+)[ \t]+;(?=[^\r\n]*\r\n)")
TOKENS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"0\r\n\r\n",
    b"0\r\n",
    b"1\r\n",
    b"1000\r\n",
    b"1001\r\n",
    b"FFFFFFFF",
    b"fffffffff",
    b";a=b",
    b';a="b;c"',
    b";",
    b" ",
    b"\t",
    b"_",
    b"+",
    b"0x",
    b"00000",
    b"A: b\r\n",
    b"A : b\r\n",
    b"a" * 9000,
    b"\x00",
    b"\xff",
)


def check(data: bytes) -> None:
    """A body, more to come, or `Rejected`: the same however the bytes come."""
    whole = read(data, len(data) or 1)
    assert whole == read(data, 7)
    if len(data) <= BYTEWISE_MAX:
        assert whole == read(data, 1)
    if isinstance(whole, tuple):
        compare(data, *whole)


def read(data: bytes, step: int) -> tuple[bytes, bytes] | str:
    """Body and what is behind it; `more`, or the code of the refusal."""
    reader, buffer = ChunkReader(BODY_MAX), bytearray()
    for at in range(0, len(data), step):
        buffer += data[at : at + step]
        try:
            reader.take(buffer)
        except Rejected as refused:
            return refused.code.value
        assert len(reader.body) <= BODY_MAX
        if reader.done:
            return bytes(reader.body), bytes(buffer) + data[at + step :]
    return "more"


def compare(data: bytes, body: bytes, behind: bytes) -> None:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 17)
    server.receive_data(HEAD)
    assert isinstance(server.next_event(), h11.Request)
    message = data[: len(data) - len(behind)]
    # h11 does not take a space before an extension, RFC 9112 7.1.1 does; what lies behind is compared as it is.
    server.receive_data(SPACE_BEFORE_EXTENSION.sub(rb"\1;", message) + behind)
    theirs = b""
    while isinstance(event := server.next_event(), h11.Data):
        theirs += event.data
    assert isinstance(event, h11.EndOfMessage), event
    assert theirs == body
    assert server.trailing_data[0] == behind
