"""Heads that two servers might read differently. All of them are refused, and nothing behind them is looked at."""

from tests.transcripts.steps import KEPT, LAST, READ, case, chunk, chunked, get, post, raw

BAD = "400 invalid_request"
REST = get()  # what an attacker would like to have read as a request of its own


def with_fields(*fields: bytes) -> bytes:
    return get(*fields) + REST


def with_length(value: bytes) -> bytes:
    return post(b"hello", length=value) + REST


def coded(value: bytes) -> bytes:
    return chunked(chunk(READ), LAST, coding=b"Transfer-Encoding:" + value) + REST


LENGTHS = [
    case("twice, equal", post(b"hello", b"Content-Length: 5") + REST, BAD),
    case("twice, different", post(b"hello", b"Content-Length: 6") + REST, BAD),
    case("twice, zero", get(b"Content-Length: 0", b"Content-Length: 0") + REST, BAD),
    case("a list", with_length(b"5, 5"), BAD),
    case("a list with nothing", with_length(b"5,"), BAD),
    case("negative", with_length(b"-1"), BAD),
    case("minus zero", with_length(b"-0"), BAD),
    case("plus", with_length(b"+5"), BAD),
    case("a space inside", with_length(b"5 5"), BAD),
    case("hexadecimal", with_length(b"0x5"), BAD),
    case("hexadecimal digits", with_length(b"5a"), BAD),
    case("a fraction", with_length(b"5.0"), BAD),
    case("an exponent", with_length(b"5e0"), BAD),
    case("an underscore, as Python reads it", with_length(b"0_5"), BAD),
    case("digits of another script", with_length("٥".encode()), BAD),
    case("superscript digits", with_length("⁵".encode()), BAD),
    case("Latin-1 superscript", with_length(b"\xb2"), BAD),
    case("empty", with_length(b""), BAD),
    case("a word", with_length(b"five"), BAD),
    case("quoted", with_length(b'"5"'), BAD),
    case("a control byte behind", with_length(b"5\x0b"), BAD),
    case("more than any body", with_length(b"9" * 18), "400|413"),
    case("2 to the 64 and 5", with_length(b"18446744073709551621"), "400|413"),
    case("2 to the 32 and 5", with_length(b"4294967301"), "413 payload_too_large"),
    case("a hundred digits", with_length(b"1" * 100), "400|413"),
    case("spaces around", post(b"{}", length=b" \t2\t ") + REST, "200", "200", end=KEPT),
    case("length and chunks", chunked(chunk(READ), LAST, fields=(b"Content-Length: 5",)) + REST, BAD),
    case("length zero and chunks", chunked(LAST, fields=(b"Content-Length: 0",)) + REST, BAD),
    case("underscore in the name", post(b"hello", b"Content_Length: 6", kind=b"") + REST, "400|415"),
]

CODINGS = [
    case("chunked", coded(b" chunked"), "200", "200", end=KEPT),
    case("without a space", coded(b"chunked"), "200", "200", end=KEPT),
    # White space around a value is not part of it, a tab is white space (RFC 9112 5.1).
    case("a tab before", coded(b"\tchunked"), "200", "200", end=KEPT),
    # httptools refuses what RFC 9112 5.1 would strip; nobody sends it.
    case("white space behind", coded(b" chunked \t"), BAD),
    # The page says exactly `chunked`; RFC 9112 7 would take any case, and proxies differ.
    case("Chunked", coded(b" Chunked"), BAD),
    case("CHUNKED", coded(b" CHUNKED"), BAD),
    case("twice in a list", coded(b" chunked, chunked"), BAD),
    case("twice in fields", chunked(chunk(READ), LAST, fields=(b"Transfer-Encoding: chunked",)) + REST, BAD),
    case("a second field of another", chunked(LAST, fields=(b"Transfer-Encoding: identity",)) + REST, BAD),
    case("gzip first", coded(b" gzip, chunked"), BAD),
    case("gzip last", coded(b" chunked, gzip"), BAD),
    case("identity", coded(b" identity"), BAD),
    case("gzip", coded(b" gzip"), BAD),
    case("empty", coded(b""), BAD),
    case("a comma", coded(b" chunked,"), BAD),
    case("a comma before", coded(b" ,chunked"), BAD),
    case("a parameter", coded(b" chunked;q=1"), BAD),
    case("quoted", coded(b' "chunked"'), BAD),
    case("something like it", coded(b" xchunked"), BAD),
    case("cow", coded(b" cow"), BAD),
    case("a vertical tab before", coded(b" \x0bchunked"), BAD),
    case("a NUL behind", coded(b" chunked\x00"), BAD),
    case("a no-break space", coded(b"\xa0chunked"), BAD),
    case("folded", coded(b"\r\n chunked"), BAD),
    case("a space before the colon", chunked(LAST, coding=b"Transfer-Encoding : chunked") + REST, BAD),
    case("on 1.0", chunked(chunk(READ), LAST, version=b"HTTP/1.0") + REST, BAD),
    case(
        "on 1.0 with keep-alive", chunked(LAST, version=b"HTTP/1.0", fields=(b"Connection: keep-alive",)), BAD
    ),
    case("on a GET", get(b"Transfer-Encoding: chunked") + chunk(READ) + LAST + REST, "200", "200", end=KEPT),
]

FIELDS = [
    case("bare LF throughout", b"GET /healthz HTTP/1.1\nHost: localhost\n\n" + REST, BAD),
    case("bare LF at the line", b"GET /healthz HTTP/1.1\nHost: localhost\r\n\r\n" + REST, BAD),
    case("bare LF behind a field", b"GET /healthz HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n" + REST, BAD),
    case("bare LF at the end", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\n" + REST, BAD),
    case("bare LF, then CRLF", b"GET /healthz HTTP/1.1\r\nHost: localhost\n\r\n" + REST, BAD),
    case("bare CR in a value", with_fields(b"A: b\rc"), BAD),
    case(
        "bare CR at the end of a value",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nA: b\r\r\n\r\n" + REST,
        BAD,
    ),
    case("bare CR in a name", with_fields(b"A\rB: c"), BAD),
    case("bare CR at the line", b"GET /healthz HTTP/1.1\rHost: localhost\r\n\r\n" + REST, BAD),
    case("CR CR LF", b"GET /healthz HTTP/1.1\r\r\nHost: localhost\r\n\r\n" + REST, BAD),
    case("folded with a space", with_fields(b"A: b", b" c"), BAD),
    case("folded with a tab", with_fields(b"A: b", b"\tc"), BAD),
    case("folded at once", b"GET /healthz HTTP/1.1\r\n Host: localhost\r\n\r\n" + REST, BAD),
    case("a line of white space", with_fields(b"A: b", b" "), BAD),
    case("a space before the colon", with_fields(b"A : b"), BAD),
    case("a tab before the colon", with_fields(b"A\t: b"), BAD),
    case("a space in a name", with_fields(b"A B: c"), BAD),
    case("an empty name", with_fields(b": b"), BAD),
    case("no colon", with_fields(b"nonsense"), BAD),
    case("a name that is no token", with_fields(b"A(B): c"), BAD),
    case("a name with a byte above 127", with_fields(b"A\xe4: c"), BAD),
    case("a name with a NUL", with_fields(b"A\x00: c"), BAD),
    case("NUL in a value", with_fields(b"A: b\x00c"), BAD),
    case("a control byte in a value", with_fields(b"A: b\x01c"), BAD),
    case("DEL in a value", with_fields(b"A: b\x7fc"), BAD),
    case("ESC in a value", with_fields(b"A: \x1b[0m"), BAD),
    case("a tab in a value", with_fields(b"A: b\tc"), "200", "200", end=KEPT),
    case("bytes above 127 in a value", with_fields(b"A: \xc3\xa4\xff"), "200", "200", end=KEPT),
    case("an empty value", with_fields(b"A:"), "200", "200", end=KEPT),
    case("every character of a token", with_fields(b"!#$%&'*+-.^_`|~09azAZ: c"), "200", "200", end=KEPT),
    case("the same name twice", with_fields(b"A: b", b"a: c"), "200", "200", end=KEPT),
    case("two content types", post(READ, b"Content-Type: text/plain") + REST, "400|415"),
    case(
        "an HTTP/1.0 upgrade in a line of its own",
        raw(b"GET /healthz HTTP/1.1", b"Host: localhost", b"GET /healthz HTTP/1.1") + REST,
        BAD,
    ),
]
