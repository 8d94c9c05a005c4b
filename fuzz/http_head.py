"""Heads of HTTP/1.1, against h11: what we take, it must take and read alike; how the bytes come changes nothing."""

from __future__ import annotations

import h11

from topics.kernel.errors import Rejected
from topics.server.wire.head import HEAD_BYTES_MAX, HEAD_FIELDS_MAX, WireHead, find_end, parse_head

BYTEWISE_MAX = 300
TOKENS = (
    b"\r\n",
    b"\n",
    b"\r",
    b"\r\n\r\n",
    b": ",
    b" ",
    b"\t",
    b"\x00",
    b"\x7f",
    b"\xff",
    b"HTTP/1.1",
    b"http://a",
    b"Host: b\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Connection: close\r\n",
    b"Upgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"a: b\r\n" * 101,
    b"+",
    b"-",
    b"0",
    b",",
    b"chunked",
    b"#",
    b"@",
    b"[::1]",
    b" c\r\n",
)


def check(data: bytes) -> None:
    """Nothing but a head or `Rejected`."""
    end = ends(data)
    if len(data) <= BYTEWISE_MAX:
        agree_bytewise(data, end)
    if end is None or end < 0:
        return
    assert end <= HEAD_BYTES_MAX
    assert data[:end].endswith(b"\r\n\r\n")
    try:
        wire = parse_head(data[:end], secure=False)
    except Rejected:
        return
    compare(wire, data[:end])


def ends(data: bytes) -> int | None:
    """Where the head ends, -1 if nowhere yet, None if it is refused."""
    try:
        return find_end(bytearray(data), 0)
    except Rejected:
        return None


def agree_bytewise(data: bytes, whole: int | None) -> None:
    """Byte by byte a head ends where it does at once, or is refused: also what `parse_head` would refuse."""
    buffer, searched = bytearray(), 0
    for i in range(len(data)):
        buffer.append(data[i])
        try:
            end = find_end(buffer, searched)
        except Rejected:
            assert whole is None or whole < 0 or refused(data[:whole]), "refused only byte by byte"
            return
        if end >= 0:
            assert end == whole, "ends elsewhere byte by byte"
            return
        searched = len(buffer)
    assert whole is None or whole < 0, "found at once, but not byte by byte"


def refused(text: bytes) -> bool:
    try:
        parse_head(text, secure=False)
    except Rejected:
        return True
    return False


def compare(wire: WireHead, text: bytes) -> None:
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * HEAD_BYTES_MAX)
    server.receive_data(text)
    event = server.next_event()  # an error here: we took what h11 refuses
    assert isinstance(event, h11.Request)
    head = wire.head
    assert head.method == event.method
    target = head.path + (b"?" + head.query if head.query else b"")
    assert event.target.rstrip(b"?").endswith(target.rstrip(b"?")) or event.target.count(b"/") == 2
    assert wire.old == (event.http_version == b"1.0")
    assert len(event.headers) <= HEAD_FIELDS_MAX
    theirs: dict[bytes, bytes] = {}
    for name, value in event.headers:
        theirs[name] = theirs[name] + b", " + value if name in theirs else value
    absolute = not event.target.startswith((b"/", b"*"))
    if absolute or b"host" not in theirs:
        theirs[b"host"] = head.headers[b"host"]
    if wire.old:
        theirs.pop(b"expect", None)
    assert dict(head.headers) == theirs
    assert wire.chunked == (theirs.get(b"transfer-encoding") is not None) == (head.length is None)
    if not wire.chunked:
        assert head.length == int(theirs.get(b"content-length", b"0"))
    body(server, head.length)


def body(server: h11.Connection, length: int | None) -> None:
    """Where h11 sees the next request begin."""
    if length is not None and length <= 1000:
        server.receive_data(b"x" * length)
        got = 0
        while isinstance(event := server.next_event(), h11.Data):
            got += len(event.data)
        assert isinstance(event, h11.EndOfMessage)
        assert got == length
    elif length is None:
        server.receive_data(b"3\r\nabc\r\n0\r\n\r\n")
        assert bytes(server.next_event().data) == b"abc"
        assert isinstance(server.next_event(), h11.EndOfMessage)
