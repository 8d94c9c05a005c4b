"""Requests sent before the answers to those before them: answered in order, whatever they are."""

from tests.transcripts.steps import (
    CLOSED,
    EOF,
    KEPT,
    LAST,
    READ,
    WRITE,
    answer,
    case,
    chunk,
    chunked,
    get,
    post,
    raw,
)

BAD_HEAD = raw(b"GET /healthz HTTP/1.1", b"Host : localhost")
PUT = raw(b"PUT /v0/topics/t HTTP/1.1", b"Host: localhost")

PIPELINING = [
    case("three", get() * 3, *["200"] * 3, end=KEPT),
    case("sixteen", get() * 16, *["200"] * 16, end=KEPT),
    case("more than are read ahead", get() * 40, *["200"] * 40, end=KEPT),
    case(
        "every method, with and without bodies",
        get(method=b"HEAD") + post() + get() + PUT + chunked(chunk(READ), LAST) + get(path=b"/v0/topics"),
        "HEAD 200",
        "200",
        "200",
        "200",
        "200",
        "200",
        end=KEPT,
    ),
    case(
        "writes take effect in order",
        post(WRITE, path=b"/v0/topics/t") + post(WRITE, path=b"/v0/topics/t") + post(),
        "200",
        "200",
        "200",
        end=KEPT,
    ),
    case(
        "errors of a handler leave the connection alone",
        get() + post(b"{") + get(path=b"/v0/topics/absent") + get(method=b"PUT") + get(),
        "200",
        "400 invalid_request",
        "404 topic_not_found",
        "405 method_not_allowed",
        "200",
        end=KEPT,
    ),
    case(
        "a bad head ends it behind the answers due",
        get() + get() + BAD_HEAD + get(),
        "200",
        "200",
        "400 invalid_request",
        end=CLOSED,
    ),
    case(
        "a body refused by its head ends it",
        get() + post(kind=b"text/plain") + get(),
        "200",
        "415 unsupported_media_type",
        end=CLOSED,
    ),
    case("behind a body", post() + get(), "200", "200", end=KEPT),
    case(
        "behind a body nobody asked for", get(b"Content-Length: 5") + b"hello" + get(), "200", "200", end=KEPT
    ),
    case("behind chunks", chunked(chunk(READ), LAST) + get(), "200", "200", end=KEPT),
    case(
        "behind chunks and a trailer",
        chunked(chunk(READ), b"0\r\nA: b\r\n\r\n") + get(),
        "200",
        "200",
        end=KEPT,
    ),
    case(
        "nothing behind Connection: close is looked at",
        get() + get(b"Connection: close") + get() + BAD_HEAD,
        "200",
        answer("200", connection="close"),
        end=CLOSED,
    ),
    case("half of the next one waits for its rest", get() + get()[:20], "200", get()[20:], "200", end=KEPT),
    case("whole ones before the end are answered", get() * 3, EOF, "200", "200", "200", end=CLOSED),
    case("empty lines between requests", get() + b"\r\n" + get(), "200", "200", end=KEPT),
]
