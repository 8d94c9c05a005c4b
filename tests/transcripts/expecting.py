"""Expect: 100-continue and Upgrade: what is checked before a body is asked for, and what is not understood."""

from tests.transcripts.steps import CLOSED, KEPT, LAST, READ, answer, case, chunk, chunked, get, post, raw

CONTINUE = b"Expect: 100-continue"
BODY = post(READ, CONTINUE)
HEAD = BODY[: -len(READ)]
CHUNKED_HEAD = chunked(fields=(CONTINUE,))


def head_of(request: bytes) -> bytes:
    return request[: request.index(b"\r\n\r\n") + 4]


EXPECTING = [
    case("asked for, then read", HEAD, "100", READ, "200", end=KEPT),
    case("twice on a connection", HEAD, "100", READ, "200", HEAD, "100", READ, "200", end=KEPT),
    case("the body is there already", BODY, "200", end=KEPT, optional_100=True),
    case("pipelined behind one", BODY + get(), "200", "200", end=KEPT, optional_100=True),
    case("behind another request", get() + HEAD, "200", "100", READ, "200", end=KEPT),
    case("capitals", head_of(post(READ, b"Expect: 100-Continue")), "100", READ, "200", end=KEPT),
    case("chunks", CHUNKED_HEAD, "100", chunk(READ) + LAST, "200", end=KEPT),
    case("no body", get(CONTINUE), "200", end=KEPT),
    case("no body, declared", post(b"", CONTINUE), "200", end=KEPT),
    case("1.0 does not know it", head_of(post(READ, CONTINUE, version=b"HTTP/1.0")), READ, "200", end=CLOSED),
    case("with close", head_of(post(READ, CONTINUE, b"Connection: close")), "100", READ, "200", end=CLOSED),
    case(
        "an error of the handler", head_of(post(b"{", CONTINUE)), "100", b"{", "400 invalid_request", end=KEPT
    ),
    case(
        "refused: type",
        head_of(post(READ, CONTINUE, kind=b"")),
        answer("415", connection="close"),
        end=CLOSED,
    ),
    case(
        "refused: length", head_of(post(b"", CONTINUE, length=b"8193")), "413 payload_too_large", end=CLOSED
    ),
    case("refused: method", head_of(post(READ, CONTINUE, path=b"/healthz")), "405", end=CLOSED),
    case("refused: path", head_of(post(READ, CONTINUE, path=b"/nowhere")), "404 not_found", end=CLOSED),
    case(
        "refused: host",
        raw(b"POST /v0/topics/t/diff HTTP/1.1", b"Host: x.example", b"Content-Length: 5", CONTINUE),
        "421 misdirected_request",
        end=CLOSED,
    ),
    case("refused: head", head_of(post(READ, CONTINUE, b"Content-Length: 1")), "400", end=CLOSED),
    case("too much in chunks", CHUNKED_HEAD, "100", b"2001\r\n", "413 payload_too_large", end=CLOSED),
    case("something else", head_of(post(READ, b"Expect: cake")), "417 expectation_failed", end=CLOSED),
    case("both", head_of(post(READ, b"Expect: 100-continue, cake")), "417 expectation_failed", end=CLOSED),
    case("something else, no body", get(b"Expect: cake"), "417 expectation_failed", end=KEPT),
]

UPGRADE = [
    case(
        "h2c is not understood",
        get(
            b"Connection: Upgrade, HTTP2-Settings",
            b"Upgrade: h2c",
            b"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
        ),
        answer("200", upgrade=None),
        end=KEPT,
    ),
    case(
        "h2c with a body", post(READ, b"Connection: Upgrade", b"Upgrade: h2c") + get(), "200", "200", end=KEPT
    ),
    case("nonsense", get(b"Connection: upgrade", b"Upgrade: cow/2, h3"), "200", end=KEPT),
    case("TLS", get(b"Connection: upgrade", b"Upgrade: TLS/1.3"), "200", end=KEPT),
    case("without Connection", get(b"Upgrade: h2c"), "200", end=KEPT),
]
