"""A WebSocket's frames, good and bad, whole and byte by byte; and how one is asked for (http-api 10, RFC 6455)."""

import struct
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.wire.places import SMALL, open_site, serve_connection
from tests.server.wire.playing import byte_by_byte, play_every_way, whole
from tests.server.wire.sockets import (
    BINARY,
    CLOSE,
    CONT,
    PING,
    PONG,
    TEXT,
    SocketPeer,
    close,
    frame,
    head,
    publish,
    socket_of,
    text,
)
from tests.transcripts.steps import CLOSED, KEPT, answer, case, get
from topics.server.api.origins import Origins
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio

ASK = text(op="ping")
BYTES_MAX = SMALL.body_bytes


@pytest.fixture
def mock_clock():
    return MockClock()


def pieces(payload, *cuts):
    """A message in fragments, cut there."""
    bounds = [0, *cuts, len(payload)]
    parts = [payload[a:b] for a, b in pairwise(bounds)]
    return [frame(part, TEXT if i == 0 else CONT, fin=i == len(parts) - 1) for i, part in enumerate(parts)]


PING_OP = b'{"op":"ping"}'
WIDE = '{"op":"ping","request_id":"äö𝄞"}'.encode()
FRAMES = {
    "nothing": (b"", []),
    "a message": (ASK, ["pong"]),
    "two": (ASK + ASK, ["pong", "pong"]),
    "in fragments": (b"".join(pieces(PING_OP, 1, 4)), ["pong"]),
    "in empty ones": (b"".join(pieces(PING_OP, 0, 0, 13, 13)), ["pong"]),
    "of a byte each": (b"".join(pieces(PING_OP, *range(1, len(PING_OP)))), ["pong"]),
    "cut in a character": (b"".join(pieces(WIDE, 28, 31, 35)), ["pong"]),
    "a ping": (frame(b"abc", PING), [b"abc"]),
    "a ping of 125": (frame(b"a" * 125, PING), [b"a" * 125]),
    "a ping between fragments": (
        frame(b"mid", PING).join(pieces(PING_OP, 5)), [b"mid", "pong"],
    ),
    "a pong nobody asked for": (frame(b"x", PONG) + ASK, ["pong"]),
    "a mask of zeros": (frame(PING_OP, mask=bytes(4)), ["pong"]),
    "the largest": (frame(PING_OP.ljust(BYTES_MAX)), ["pong"]),
    "the largest in two": (b"".join(pieces(PING_OP.ljust(BYTES_MAX), 5000)), ["pong"]),
    # What is asked is wrong, the protocol is not: the socket stays open.
    "binary": (frame(PING_OP, BINARY) + ASK, ["invalid_request", "pong"]),
    "binary, no text at all": (frame(b"\xff", BINARY) + ASK, ["invalid_request", "pong"]),
    "binary in fragments": (
        frame(b"\xff", BINARY, fin=False) + frame(b"\xfe", CONT) + ASK, ["invalid_request", "pong"],
    ),
    "no JSON": (frame(b"{") + ASK, ["invalid_request", "pong"]),
    "empty": (frame(b"") + ASK, ["invalid_request", "pong"]),
    "no object": (frame(b"[1]") + ASK, ["invalid_request", "pong"]),
    "NaN": (frame(b'{"op":"ping","x":NaN}') + ASK, ["invalid_request", "pong"]),
    "no op": (frame(b"{}") + ASK, ["invalid_request", "pong"]),
    "an unknown op": (text(op="pong") + ASK, ["invalid_request", "pong"]),
    "an op of what is not there": (text(op="subscribe", topic="t") + ASK, ["topic_not_found", "pong"]),
    "an op that is no text": (text(op=None) + text(op={}) + ASK, ["invalid_request"] * 2 + ["pong"]),
    "too deep": (
        frame(b'{"op":"ping","x":' + b"[" * 300 + b"]" * 300 + b"}") + ASK, ["invalid_request", "pong"],
    ),
    # Ends.
    "a close": (close(), [1000]),
    "a close without a code": (close(None), [0]),
    "a close with a reason": (close(4000, b"genug"), [4000]),
    "nothing counts behind a close": (close() + ASK + b"\xff" * 10, [1000]),
    "a close of one byte": (frame(b"\x03", CLOSE), [1002]),
    "a close with a code that is none": (close(1005), [1002]),
    "a close whose reason is no text": (close(1000, b"\xff"), [1007]),
    "a close in a message": (pieces(PING_OP, 5)[0] + close(), [1002]),
    "no mask": (frame(PING_OP, mask=None), [1002]),
    "a reserved bit": (frame(PING_OP, rsv=4), [1002]),
    "an opcode that is none": (frame(PING_OP, 3), [1002]),
    "a control opcode that is none": (frame(b"", 11), [1002]),
    "a ping in fragments": (frame(b"a", PING, fin=False), [1002]),
    "a ping of 126": (frame(b"a" * 126, PING), [1002]),
    "fragments of nothing": (frame(b"a", CONT), [1002]),
    "a message in a message": (pieces(PING_OP, 5)[0] + ASK, [1002]),
    "no text": (frame(b'{"op":"ping","x":"\xff"}'), [1007]),
    "no text, in fragments": (b"".join(pieces(b'{"op":"ping","x":"\xc3\x28"}', 19)), [1007]),
    "text cut short": (frame(b'{"op":"ping","x":"\xc3'), [1007]),
    "too large": (frame(PING_OP.ljust(BYTES_MAX + 1)), [1009]),
    "too large, and only said so": (struct.pack("!BBQ", 0x81, 0xFF, 1 << 62), [1009]),
    "too large together": (b"".join(pieces(PING_OP.ljust(BYTES_MAX + 1), 5000)), [1009]),
}  # fmt: skip


@pytest.mark.rule("A5.32", "H10.2", "H10.8")
@pytest.mark.parametrize("cut", [whole, byte_by_byte])
@pytest.mark.parametrize("sent", FRAMES)
async def test_frames(mock_clock, sent, cut):
    data, expected = FRAMES[sent]
    closes = bool(expected) and isinstance(expected[-1], int)
    async with open_site() as site, socket_of(site) as (peer, _):
        await peer.send(*cut(data))
        got = [await peer.frame() for _ in expected]

        assert [one.short for one in got] == expected
        if closes:
            if expected != [1007] or "close" in sent:
                assert await peer.frame() is None, "who is closed is let go at once"
            else:
                await peer.send(close(1007))
                assert await peer.frame() is None
        else:
            await peer.quiet()
            assert (await peer.ask(op="ping", request_id=7))["request_id"] == 7
        assert site.bugs == 0


@pytest.mark.parametrize("before", [b"", bytes(4)], ids=["of its head", "of its mask"])
@pytest.mark.parametrize("size", [13, 200])
async def test_the_rest_of_a_frame_is_no_frame_of_its_own(mock_clock, size, before):
    """The library takes each part of a head out of its buffer, so nothing there says that a frame has begun."""
    rest = frame(PING_OP.ljust(size))
    length = len(before + rest) - 4
    sizes = struct.pack("!B", 0x80 | length) if length < 126 else struct.pack("!BH", 0xFE, length)
    async with open_site() as site, socket_of(site) as (peer, _):
        await peer.send(bytes((0x80 | BINARY,)) + sizes + before)
        await wait_all_tasks_blocked()
        await peer.send(rest)

        assert (await peer.frame()).short == "invalid_request"
        await peer.quiet()
        assert (await peer.ask(op="ping"))["op"] == "pong"


@pytest.mark.parametrize("sent", [b"\x81\x7e\0\5", b"\x81\x7f\0\0\0"])
async def test_the_head_of_a_frame_without_a_mask_is_refused_though_it_comes_alone(mock_clock, sent):
    async with open_site() as site, socket_of(site) as (peer, _):
        await peer.send(sent, *[b"x"] * 20)

        assert (await peer.frame()).close[0] == 1002
        assert site.bugs == 0


@pytest.mark.rule("H10.1")
@pytest.mark.parametrize(
    "given", ["1", "1.50", '"ä\\u00e4"', "null", "false", '[1, {"a":  2}]', "{}", "12345678901234567890"]
)
async def test_a_request_id_comes_back_as_it_was_given(mock_clock, given):
    async with open_site() as site, socket_of(site) as (peer, _):
        for message in (
            '{"op":"ping","request_id":%s}',
            '{"request_id":%s,"op":"cake"}',
            '{"request_id":%s,"op":7}',
        ):
            await peer.send(frame((message % given).encode()))
            got = await peer.frame()
            assert b'"request_id":%b' % given.encode() in got.payload
        await peer.send(ASK)
        assert (await peer.message())["op"] == "pong"


SAID = {"upgrade": "websocket"}
UPGRADES = [
    case("not asked to", get(path=b"/v0/ws"), answer("426 upgrade_required", **SAID, connection="upgrade"), end=KEPT),
    case(
        "not asked to, old", get(path=b"/v0/ws", version=b"HTTP/1.0"),
        answer("426", **SAID, connection="upgrade, close"), end=CLOSED,
    ),
    case("1.0", head(line=b"GET /v0/ws HTTP/1.0"), "426", end=CLOSED),
    case("HEAD", get(path=b"/v0/ws", method=b"HEAD"), "HEAD 426", end=KEPT),
    case("HEAD, upgrading", head(line=b"HEAD /v0/ws HTTP/1.1"), "HEAD 426", end=KEPT),
    case("to something else", get(b"Connection: Upgrade", b"Upgrade: h2c", path=b"/v0/ws"), "426", end=KEPT),
    case("without Connection", head(without=b"Connection"), "426", end=KEPT),
    case("another method", head(line=b"POST /v0/ws HTTP/1.1"), "405", end=KEPT),
    case("another path", head(line=b"GET /healthz HTTP/1.1"), answer("200", upgrade=None), end=KEPT),
    case("no such path", head(line=b"GET /v0/ws/ HTTP/1.1"), "404", end=KEPT),
    case("without a key", head(without=b"Sec-WebSocket-Key"), "400 invalid_request", end=KEPT),
    case("a short key", head(b"Sec-WebSocket-Key: eA==", without=b"Sec-WebSocket-Key"), "400", end=KEPT),
    case("two keys", head(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="), "400", end=KEPT),
    case("without a version", head(without=b"Sec-WebSocket-Version"), "400", end=KEPT),
    case(
        "another version",
        head(b"Sec-WebSocket-Version: 8", without=b"Sec-WebSocket-Version"),
        answer("426 upgrade_required", sec_websocket_version="13"),
        end=KEPT,
    ),
    case("a parameter", head(line=b"GET /v0/ws?token=mine HTTP/1.1"), "400 invalid_request", end=KEPT),
    case("a cookie too long", head(b"Cookie: " + b"a" * 9000), "400 invalid_request", end=KEPT),
    case("a page of elsewhere", head(b"Origin: http://evil.example"), "403 forbidden", end=KEPT),
    case("from another site", head(b"Sec-Fetch-Site: cross-site"), "403 forbidden", end=KEPT),
    case("another host", head(b"Host: x.example", without=b"Host"), "421 misdirected_request", end=KEPT),
    case("a body", head(b"Content-Length: 1") + b"x", "400 invalid_request", end=CLOSED),
    case("chunks", head(b"Transfer-Encoding: chunked"), "400 invalid_request", end=CLOSED),
    case("refused, then others", head(without=b"Sec-WebSocket-Key") + get(), "400", "200", end=KEPT),
]  # fmt: skip


@pytest.mark.rule("A5.32", "H2.20")
@pytest.mark.parametrize("asked", UPGRADES, ids=lambda asked: asked.name)
async def test_who_is_not_accepted_is_answered_as_ever(mock_clock, asked):
    async with open_site() as site:
        await play_every_way(site, asked, splits=False)


@pytest.mark.rule("A5.32", "H2.20")
@pytest.mark.parametrize("origin", [b"http://localhost", b"https://page.example"])
async def test_pages_of_our_own_and_of_listed_origins_are_accepted(mock_clock, origin):
    async with (
        open_site(origins=Origins(allowed=frozenset({b"https://page.example"}))) as site,
        socket_of(site, request=head(b"Origin: " + origin)) as (peer, _),
    ):
        assert (await peer.ask(op="ping"))["op"] == "pong"


async def test_what_is_offered_is_taken_up_only_as_far_as_we_speak_it(mock_clock):
    offers = (
        b"Sec-WebSocket-Protocol: topics.key.eA, topics.v0",
        b"Sec-WebSocket-Extensions: permessage-deflate",
    )
    async with open_site() as site, trio.open_nursery() as nursery:
        for request, expected in (
            (head(*offers), "topics.v0"),
            (head(b"Sec-WebSocket-Protocol: soap"), None),
        ):
            ours, theirs = edge_pair()
            nursery.start_soon(serve_connection, theirs, site)
            found = await SocketPeer(ours).open(request)
            assert found["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of RFC 6455
            assert found.get("sec-websocket-protocol") == expected
            assert "sec-websocket-extensions" not in found
            await ours.aclose()


async def test_requests_before_it_are_answered_first_and_messages_may_come_with_it(mock_clock):
    async with open_site() as site, trio.open_nursery() as nursery:
        for number, cut in enumerate((whole, byte_by_byte), 1):
            ours, theirs = edge_pair(1 << 20)
            nursery.start_soon(serve_connection, theirs, site)
            peer = SocketPeer(ours)
            await peer.send(*cut(get() + head() + publish(1)))
            seen = await peer.client.answer()
            assert seen is not None
            assert seen.status == 200
            await peer.open()
            assert (await peer.message())["last_seq"] == number
            await ours.aclose()
