"""Bodies: declared, in chunks, compressed, of a type, empty, too large. The limit of these sites is 8 KiB."""

import gzip

from tests.transcripts.steps import (
    CLOSED,
    EOF,
    KEPT,
    LAST,
    READ,
    answer,
    case,
    chunk,
    chunked,
    get,
    post,
    raw,
)

BAD = "400 invalid_request"
LARGE = "413 payload_too_large"
LIMIT = 8192
ODD = "415 unsupported_media_type"
SPACES = b"{" + b" " * (LIMIT - 2) + b"}"
BOMB = gzip.compress(b" " * 1_000_000, mtime=0)
GZIPPED = gzip.compress(READ, mtime=0)

DECLARED = [
    case("a body", post(), "200", end=KEPT),
    case("empty, declared", post(b"", kind=b""), "200", end=KEPT),
    case("empty, not declared", raw(b"POST /v0/topics/t/diff HTTP/1.1", b"Host: localhost"), "200", end=KEPT),
    case("leading zeros", post(b"{}", length=b"0002"), "200", end=KEPT),
    case("the limit", post(SPACES), "200", end=KEPT),
    case("a byte above the limit", post(SPACES + b" "), answer(LARGE, connection="close"), end=CLOSED),
    case("above the limit, only declared", post(b"", length=b"8193"), LARGE, end=CLOSED),
    case("empty where a body is needed", post(b"", path=b"/v0/topics/t"), "400|415", end=KEPT),
    case("bad JSON", post(b'{"limit":'), BAD, end=KEPT),
    case("no object", post(b"[]"), BAD, end=KEPT),
    case("NaN", post(b'{"limit":NaN}'), BAD, end=KEPT),
    case("not UTF-8", post(b'{"a":"\xff"}'), BAD, end=KEPT),
    case("too deep", post(b'{"a":' + b"[" * 200 + b"]" * 200 + b"}"), BAD, end=KEPT),
    case("no type", post(kind=b""), ODD, end=CLOSED),
    case("another type", post(kind=b"text/json"), ODD, end=CLOSED),
    case("something like the type", post(kind=b"application/jsonx"), ODD, end=CLOSED),
    case("parameters", post(kind=b"application/json; charset=utf-8"), "200", end=KEPT),
    case("capitals", post(kind=b"Application/JSON;charset=UTF-8"), "200", end=KEPT),
    case("a charset that JSON has not", post(kind=b"application/json; charset=latin-1"), ODD, end=CLOSED),
    case("405 before 413", post(SPACES + b" ", path=b"/healthz"), "405 method_not_allowed", end=CLOSED),
    case("413 before 415", post(SPACES + b" ", kind=b""), LARGE, end=CLOSED),
    case("415 before 400", post(b"{", kind=b""), ODD, end=CLOSED),
    case("405 with a body", post(path=b"/healthz"), "405 method_not_allowed", end=CLOSED),
    case("404 with a body", post(path=b"/nowhere"), "404 not_found", end=CLOSED),
]

GZIP = [
    case("gzip", post(GZIPPED, b"Content-Encoding: gzip"), "200", end=KEPT),
    case("GZIP", post(GZIPPED, b"Content-Encoding: GZIP"), "200", end=KEPT),
    case(
        "two members",
        post(gzip.compress(b'{"li', mtime=0) + gzip.compress(b'mit":1}', mtime=0), b"Content-Encoding: gzip"),
        "200",
        end=KEPT,
    ),
    case(
        "gzip in chunks",
        chunked(chunk(GZIPPED[:9]), chunk(GZIPPED[9:]), LAST, fields=(b"Content-Encoding: gzip",)),
        "200",
        end=KEPT,
    ),
    case("identity", post(READ, b"Content-Encoding: identity"), "200", end=KEPT),
    case("a bomb", post(BOMB, b"Content-Encoding: gzip"), LARGE, end=KEPT),
    case("the limit", post(gzip.compress(SPACES, mtime=0), b"Content-Encoding: gzip"), "200", end=KEPT),
    case(
        "a byte above",
        post(gzip.compress(SPACES + b" ", mtime=0), b"Content-Encoding: gzip"),
        LARGE,
        end=KEPT,
    ),
    case("cut short", post(GZIPPED[:-3], b"Content-Encoding: gzip"), BAD, end=KEPT),
    case("a bad checksum", post(GZIPPED[:-8] + bytes(8), b"Content-Encoding: gzip"), BAD, end=KEPT),
    case("not gzip", post(READ, b"Content-Encoding: gzip"), BAD, end=KEPT),
    case("garbage behind", post(GZIPPED + b"garbage", b"Content-Encoding: gzip"), BAD, end=KEPT),
    case("another coding", post(READ, b"Content-Encoding: br"), ODD, end=KEPT),
    case("two codings", post(READ, b"Content-Encoding: gzip, gzip"), ODD, end=KEPT),
    case("empty", post(b"", b"Content-Encoding: gzip"), "200", end=KEPT),
]

CHUNKS = [
    case("one", chunked(chunk(READ), LAST), "200", end=KEPT),
    case("many", chunked(*(chunk(READ[i : i + 1]) for i in range(len(READ))), LAST), "200", end=KEPT),
    case("none", chunked(LAST), "200", end=KEPT),
    case(
        "none, no type",
        raw(b"POST /v0/topics/t/diff HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: chunked") + LAST,
        "200",
        end=KEPT,
    ),
    case(
        "no type",
        raw(b"POST /v0/topics/t/diff HTTP/1.1", b"Host: localhost", b"Transfer-Encoding: chunked")
        + chunk(READ)
        + LAST,
        ODD,
        end=KEPT,
    ),
    case("upper case", chunked(b"B\r\n" + READ + b"\r\n", LAST), "200", end=KEPT),
    case("lower case", chunked(b"b\r\n" + READ + b"\r\n", LAST), "200", end=KEPT),
    case("leading zeros", chunked(b"00b\r\n" + READ + b"\r\n", b"000\r\n\r\n"), "200", end=KEPT),
    case("an extension", chunked(chunk(READ, b";a=b"), LAST), "200", end=KEPT),
    case("extensions", chunked(chunk(READ, b";a;b=c"), b"0;last=1\r\n\r\n"), "200", end=KEPT),
    case("a quoted extension", chunked(chunk(READ, b';a="b;c"'), LAST), "200", end=KEPT),
    case("a trailer", chunked(chunk(READ), b"0\r\nA: b\r\nC: d\r\n\r\n"), "200", end=KEPT),
    # Fields that matter are never taken from a trailer (RFC 9110 6.5.1).
    case(
        "a trailer that would close",
        chunked(chunk(READ), b"0\r\nConnection: close\r\n\r\n"),
        "200|400",
        end=KEPT,
    ),
    case("bad JSON", chunked(chunk(b"{"), LAST), BAD, end=KEPT),
    case("the limit", chunked(chunk(SPACES[:5000]), chunk(SPACES[5000:]), LAST), "200", end=KEPT),
    case(
        "a byte above the limit",
        chunked(chunk(SPACES[:5000]), chunk(SPACES[5000:] + b" "), LAST),
        LARGE,
        end=CLOSED,
    ),
    case("a size above the limit", chunked(b"2001\r\n"), LARGE, end=CLOSED),
    case("eight digits", chunked(b"10000000\r\n"), LARGE, end=CLOSED),
    case("nine digits", chunked(b"100000000\r\n"), "400|413", end=CLOSED),
    case("2 to the 64 and 5", chunked(b"10000000000000005\r\nhello\r\n", LAST), "400|413", end=CLOSED),
    case("a thousand digits", chunked(b"f" * 1000 + b"\r\n"), "400|413", end=CLOSED),
    case("a size without end", chunked(b"0" * 40_000), "400|413|431", end=CLOSED),
    case("no digits", chunked(b"\r\nhello\r\n", LAST), BAD, end=CLOSED),
    case("only an extension", chunked(b";a=b\r\n", LAST), BAD, end=CLOSED),
    case("not hexadecimal", chunked(b"g\r\n"), BAD, end=CLOSED),
    case("negative", chunked(b"-5\r\nhello\r\n", LAST), BAD, end=CLOSED),
    case("plus", chunked(b"+5\r\nhello\r\n", LAST), BAD, end=CLOSED),
    case("0x", chunked(b"0x5\r\nhello\r\n", LAST), BAD, end=CLOSED),
    case("an underscore, as Python reads it", chunked(b"0_b\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("a space before", chunked(b" b\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("a space behind", chunked(b"b \r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("bare LF behind the size", chunked(b"b\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("bare CR behind the size", chunked(b"b\r" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("bare LF behind the data", chunked(b"b\r\n" + READ + b"\n", LAST), BAD, end=CLOSED),
    case("bare CR in an extension", chunked(b"b;a=\rb\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("bare LF in an extension", chunked(b"b;a=\nb\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("NUL in an extension", chunked(b"b;a=\x00b\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("a CR and something else behind the data", chunked(b"b\r\n" + READ + b"\rX", LAST), BAD, end=CLOSED),
    case("nine digits of a small size", chunked(b"00000000b\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("nothing behind the data", chunked(b"b\r\n" + READ, LAST), BAD, end=CLOSED),
    case("data longer than said", chunked(b"a\r\n" + READ + b"\r\n", LAST), BAD, end=CLOSED),
    case("a bad end", chunked(chunk(READ), b"0\r\nXX"), b"\r\n\r\n", BAD, end=CLOSED),
    case(
        "a trailer with a space before the colon",
        chunked(chunk(READ), b"0\r\nA : b\r\n\r\n"),
        BAD,
        end=CLOSED,
    ),
    case("a trailer with a bare LF", chunked(chunk(READ), b"0\r\nA: b\nC: d\r\n\r\n"), BAD, end=CLOSED),
    case("a folded trailer", chunked(chunk(READ), b"0\r\nA: b\r\n c\r\n\r\n"), BAD, end=CLOSED),
    case("a trailer with NUL", chunked(chunk(READ), b"0\r\nA: b\x00\r\n\r\n"), BAD, end=CLOSED),
    case("bare LF at the end", chunked(chunk(READ), b"0\r\n\n"), BAD, end=CLOSED),
    case(
        "a trailer without end", chunked(chunk(READ), b"0\r\nA: " + b"b" * 40_000), "400|413|431", end=CLOSED
    ),
    case(
        "trailers without end",
        chunked(chunk(READ), b"0\r\n" + b"A: b\r\n" * 6000),
        "400|413|431",
        end=CLOSED,
    ),
    case("an extension without end", chunked(b"b;" + b"a" * 40_000), "400|413|431", end=CLOSED),
    case("the end in a chunk", chunked(b"b\r\n" + READ[:5]), EOF, answer(BAD, maybe=True), end=CLOSED),
    case("the end in a size", chunked(b"b"), EOF, answer(BAD, maybe=True), end=CLOSED),
    case("the end before the last", chunked(chunk(READ)), EOF, answer(BAD, maybe=True), end=CLOSED),
    case(
        "the end in a trailer",
        chunked(chunk(READ), b"0\r\nA: b\r\n"),
        EOF,
        answer(BAD, maybe=True),
        end=CLOSED,
    ),
    case("the end after a whole one", chunked(chunk(READ), LAST), EOF, "200", end=CLOSED),
]

LIMITS = [
    case("a head of 32 KiB", get(b"A: " + b"b" * (32768 - len(get(b"A: ")))), "200", end=KEPT),
    *(
        case(f"{more} more", get(b"A: " + b"b" * (32768 + more - len(get(b"A: ")))), "431 headers_too_large")
        for more in (1, 2, 3, 4, 5)
    ),
    case("a head without end", get()[:-2] + b"A: " + b"b" * 40_000, "431 headers_too_large", end=CLOSED),
    case("a line without end", b"GET /" + b"a" * 40_000, "431 headers_too_large", end=CLOSED),
    case("100 fields", get(*[b"A: b"] * 99), "200", end=KEPT),
    case("101 fields", get(*[b"A: b"] * 100), "431 headers_too_large", end=CLOSED),
    case("8000 fields", get(*[b"A:"] * 8000), "431 headers_too_large", end=CLOSED),
]
