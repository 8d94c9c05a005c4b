"""Peers that are slow: what they get, and when. A head has 10 s from its first byte, a body 10 s and 1 KiB a second."""

from tests.transcripts.expecting import head_of
from tests.transcripts.steps import CLOSED, KEPT, QUIET, READ, Wait, answer, case, chunk, chunked, get, post

LATE = answer("408 request_timeout", connection="close")
LARGE = b"{" + b" " * 8000 + b"}"
BODY_HEAD = head_of(post(LARGE))

HEADS = [
    case("a head that stops", b"GET /hea", Wait(9.5), QUIET, Wait(1), LATE, end=CLOSED),
    case("only an end of line", b"\r", Wait(11), LATE, end=CLOSED),
    case("a head in time", get()[:20], Wait(9.5), get()[20:], "200", end=KEPT),
    case("a head that drips", *[b"G", Wait(2)] * 4, b"E", Wait(1.5), QUIET, Wait(1), LATE, end=CLOSED),
    case("time begins with the first byte", Wait(60), b"GET /", Wait(9.5), QUIET, Wait(1), LATE, end=CLOSED),
    case(
        "each head has its own time",
        get()[:9],
        Wait(9),
        get()[9:],
        "200",
        get()[:9],
        Wait(9),
        get()[9:],
        "200",
        end=KEPT,
    ),
    case("the second head", get(), "200", Wait(70), b"GET /", Wait(9.5), QUIET, Wait(1), LATE, end=CLOSED),
    case("a head behind a whole one", get() + get()[:20], "200", Wait(11), LATE, end=CLOSED),
]

BODIES = [
    case("no body comes", BODY_HEAD, Wait(9.5), QUIET, Wait(1), LATE, end=CLOSED),
    case("a body that stops", BODY_HEAD, LARGE[:4096], Wait(13.5), QUIET, Wait(1), LATE, end=CLOSED),
    case("a body in time", BODY_HEAD, Wait(9), LARGE, "200", end=KEPT),
    case("1 KiB a second", BODY_HEAD, *[b"{", *[LARGE[1:1001], Wait(1)] * 8, b"}"], "200", end=KEPT),
    case("100 bytes a second", BODY_HEAD, *[LARGE[:100], Wait(1)] * 10, QUIET, Wait(2), LATE, end=CLOSED),
    case("a byte a second", BODY_HEAD, *[b"{", Wait(1)] * 9, QUIET, Wait(2), LATE, end=CLOSED),
    case("chunks that do not come", chunked(), Wait(9.5), QUIET, Wait(1), LATE, end=CLOSED),
    case(
        "a chunk that stops", chunked(b"800\r\n", LARGE[:1024]), Wait(10.5), QUIET, Wait(1), LATE, end=CLOSED
    ),
    case("a size that stops", chunked(b"8"), Wait(11), LATE, end=CLOSED),
    case("a trailer that stops", chunked(chunk(READ), b"0\r\nA:"), Wait(11), LATE, end=CLOSED),
    case(
        "extensions do not count as body",
        chunked(),
        *[chunk(b" ", b";" + b"a" * 2000), Wait(1)] * 10,
        QUIET,
        Wait(1),
        LATE,
    ),
    case(
        "a body that was asked for",
        head_of(post(READ, b"Expect: 100-continue")),
        "100",
        Wait(11),
        LATE,
        end=CLOSED,
    ),
    case("behind a whole one", get() + BODY_HEAD, "200", Wait(11), LATE, end=CLOSED),
]

IDLE = [
    case("nothing ever", Wait(74), QUIET, Wait(2), end=CLOSED),
    case("nothing for a while", Wait(74), QUIET, end=KEPT),
    case("between requests", get(), "200", Wait(74), QUIET, get(), "200", Wait(74), QUIET, end=KEPT),
    case(
        "too long between requests",
        get(),
        "200",
        Wait(30),
        get(),
        "200",
        Wait(74),
        QUIET,
        Wait(2),
        end=CLOSED,
    ),
    case(
        "1.0",
        get(b"Connection: keep-alive", version=b"HTTP/1.0"),
        "200",
        Wait(74),
        QUIET,
        Wait(2),
        end=CLOSED,
    ),
    case("empty lines are no requests", get(), "200", *[b"\r\n", Wait(60)] * 16, Wait(76), end=CLOSED),
]
