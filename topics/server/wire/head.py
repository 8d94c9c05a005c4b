"""The head of an HTTP/1.1 request: found, checked, parsed (architecture 5, RFC 9112).

httptools parses, but it is lenient where leniency is how requests are smuggled, so the bytes are checked first: what
two servers in a row could read in two ways is refused. A head is bounded in bytes and in fields.
"""

from __future__ import annotations

import re
from typing import Any, Final

import httptools

from topics.kernel.errors import Code, Rejected, invalid
from topics.server.api.message import Head

HEAD_BYTES_MAX: Final = 32 * 1024
HEAD_FIELDS_MAX: Final = 100
_END: Final = b"\r\n\r\n"
_METHOD: Final = re.compile(rb"[A-Z]{1,20}")
_REQUEST_LINE: Final = re.compile(
    rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}) ([\x21-\x7e\x80-\xff]+) HTTP/(\d)\.(\d)"
)
# A field: a token, a colon at once, a value without control characters (a tab is fine).
_FIELDS: Final = re.compile(rb"(?:\r\n[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*)*")
_HOST: Final = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::\d{0,5})?")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_SINGLE: Final = frozenset(
    {b"content-length", b"transfer-encoding", b"host", b"content-type", b"content-encoding", b"origin"}
)


class WireHead:
    """A head as the wire needs it beside `head`: what becomes of the connection."""

    __slots__ = ("chunked", "head", "keeps", "old", "upgrade")

    def __init__(self, head: Head, *, chunked: bool, keeps: bool, old: bool, upgrade: bytes) -> None:
        self.head = head
        self.chunked = chunked
        self.keeps = keeps
        self.old = old
        self.upgrade = upgrade


class _HeadFields:
    """What httptools calls back."""

    __slots__ = ("fields", "url")

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append(
            (name.lower(), value.strip(b" \t"))
        )  # httptools leaves what is behind (RFC 9112 5.1)


def find_end(buffer: bytearray, searched: int, bytes_max: int = HEAD_BYTES_MAX) -> int:
    """Where the head ends (behind its empty line), -1 if it has not come yet. `searched`: bytes looked at before.

    Raises:
        Rejected: headers_too_large, invalid_request.
    """
    at = buffer.find(_END, max(searched - 3, 0), bytes_max)
    if at >= 0:
        return at + 4
    if len(buffer) > bytes_max:
        raise Rejected(
            Code.HEADERS_TOO_LARGE,
            f"head: more than the limit of {bytes_max} bytes",
            limit=bytes_max,
        )
    if buffer == b"\r":
        return -1  # maybe of an empty line before a request
    if buffer and (buffer.find(b"\n\n", max(searched - 1, 0)) >= 0 or buffer[0] < 0x21 or buffer[0] > 0x7E):
        raise invalid("head", "is not HTTP/1.1: lines end with CR LF, and a request begins with its method")
    return -1


def parse_head(text: bytes, *, secure: bool, fields_max: int = HEAD_FIELDS_MAX) -> WireHead:
    """A whole head, its empty line included.

    Raises:
        Rejected: invalid_request, headers_too_large, not_implemented; answer and close.
    """
    line_end = text.find(b"\r\n")
    line = _REQUEST_LINE.fullmatch(text, 0, line_end)
    if line is None:
        raise invalid("head", "the request line is METHOD, one space, target, one space, HTTP/1.1")
    if line[3] != b"1" or line[4] not in (b"0", b"1"):
        raise invalid(
            "head", f"HTTP/{line[3].decode()}.{line[4].decode()} is not spoken here; HTTP/1.1 and HTTP/2 are"
        )
    if _FIELDS.fullmatch(text, line_end, len(text) - 4) is None:
        raise invalid(
            "head",
            "a field is NAME: VALUE on one line, without control characters or a space before the colon",
        )
    if text.count(b"\r\n") - 2 > fields_max:
        raise Rejected(
            Code.HEADERS_TOO_LARGE,
            f"head: more than the limit of {fields_max} fields",
            limit=fields_max,
        )
    found = _HeadFields()
    if _METHOD.fullmatch(line[1]) is not None:
        _parse(text, found)
    else:  # a method that httptools does not know is answered 405 like any other
        _parse(b"GET" + text[len(line[1]) :], found)
    return _checked(line[1], line[4] == b"0", found, secure=secure)


def _parse(text: bytes, found: _HeadFields) -> None:
    parser: Any = httptools.HttpRequestParser(found)
    try:
        parser.feed_data(text)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserInvalidMethodError:
        method, rest = text.split(b" ", 1)
        assert method != b"GET"
        found.fields.clear()
        found.url = b""
        _parse(b"GET " + rest, found)
    except httptools.HttpParserError as error:
        raise invalid("head", f"cannot be read: {error}") from None


def _checked(method: bytes, old: bool, found: _HeadFields, *, secure: bool) -> WireHead:  # noqa: FBT001 -- of the line above
    headers: dict[bytes, bytes] = {}
    for name, value in found.fields:
        if name in headers:
            if name in _SINGLE:
                raise invalid("head", f"{name.decode()} is given twice")
            headers[name] = headers[name] + b", " + value
        else:
            headers[name] = value
    path, query = _target(method, found.url, headers)
    if b"host" not in headers:
        if not old:
            raise invalid("head", "a request of HTTP/1.1 has a Host")
        headers[b"host"] = b""
    elif _HOST.fullmatch(headers[b"host"]) is None:
        raise invalid("head", "Host is a name or an address, and maybe a port")
    length, chunked = _length(headers, old=old)
    tokens = _tokens(headers.get(b"connection"))
    keeps = b"close" not in tokens and (not old or b"keep-alive" in tokens)
    upgrade = b"" if old or b"upgrade" not in tokens else headers.get(b"upgrade", b"").lower()
    if old and b"expect" in headers:
        del headers[b"expect"]  # RFC 9110 10.1.1
    head = Head(method, path, query, headers, length=None if chunked else length, secure=secure)
    return WireHead(head, chunked=chunked, keeps=keeps, old=old, upgrade=upgrade)


def _target(method: bytes, url: bytes, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """Path and query. An absolute target brings its own host (RFC 9112 3.2.2)."""
    if url[:7].lower() in (b"http://", b"https:/"):
        authority, slash, rest = url.split(b"//", 1)[1].partition(b"/")
        authority, mark, query = authority.partition(b"?")
        if not authority or b"@" in authority or _HOST.fullmatch(authority) is None:
            raise invalid("head", "an absolute target names a host")
        if b"host" in headers:
            headers[b"host"] = authority
        url = slash + rest if slash else b"/" + mark + query
    elif not url.startswith(b"/"):
        if url == b"*" and method == b"OPTIONS":
            return b"*", b""
        raise invalid("head", "the target begins with `/`")
    path, _, query = url.partition(b"?")
    if b"#" in url:
        raise invalid("head", "a target has no fragment")
    return path, query


def _length(headers: dict[bytes, bytes], *, old: bool) -> tuple[int, bool]:
    length, coding = headers.get(b"content-length"), headers.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise invalid("head", "Content-Length and Transfer-Encoding do not go together")
        if coding != b"chunked" or old:
            raise invalid("head", "Transfer-Encoding: exactly `chunked`, in HTTP/1.1")
        return 0, True
    if length is None:
        return 0, False
    if _LENGTH.fullmatch(length) is None:
        raise invalid("head", "Content-Length is a whole number")
    return int(length), False


def _tokens(value: bytes | None) -> frozenset[bytes]:
    return frozenset() if value is None else frozenset(token.strip().lower() for token in value.split(b","))
