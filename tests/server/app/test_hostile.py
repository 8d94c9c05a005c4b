"""What a malicious HTTP/2 client may send: its connection ends, the others go on, nothing stays behind."""

import struct
from contextlib import suppress

import h2.errors
import h2.settings
import hpack
import pytest
import trio
import trio.testing

from tests.server.app.h2peer import HOST, JSON, Served, serving
from tests.server.wire.places import open_site

pytestmark = pytest.mark.trio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
HEAD = [(":method", "GET"), (":path", "/v0/health"), (":scheme", "http"), (":authority", HOST.decode())]


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream_id) + payload


def head(stream_id: int, *more: tuple[str, str], flags: int = 0x5) -> bytes:
    return frame(1, flags, stream_id, hpack.Encoder().encode([*HEAD, *more]))


async def goodbye_to(served: Served, *pieces: bytes) -> int | None:
    """Send bytes as they are, until the server has closed: the error code it went with, None without a GOAWAY."""
    edge = served.connect()
    received = b""

    async def send() -> None:
        with suppress(trio.BrokenResourceError):
            for piece in pieces:
                await edge.send_all(piece)

    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            with suppress(trio.BrokenResourceError):
                while data := await edge.receive():
                    received += data
            nursery.cancel_scope.cancel()
    await edge.aclose()
    await trio.testing.wait_all_tasks_blocked()
    while received:
        size, kind = int.from_bytes(received[:3]), received[3]
        if kind == 7:
            return int.from_bytes(received[13:17])
        received = received[9 + size :]
    return None


CASES = {
    "a preface that goes on wrong": [b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", SETTINGS],
    "HTTP/1.1 behind the preface": [PREFACE, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"],
    "a frame larger than agreed": [
        PREFACE,
        SETTINGS,
        struct.pack(">I", 1 << 20)[1:] + b"\x00\x00\x00\x00\x00\x01",
    ],
    "headers cut short by garbage": [PREFACE, SETTINGS, frame(1, 0x5, 1, b"\xff\xff\xff\xff\xff\xff")],
    "data on stream 0": [PREFACE, SETTINGS, frame(0, 0, 0, b"x")],
    "data on a stream that never was": [PREFACE, SETTINGS, frame(0, 0, 7, b"x")],
    "an even stream": [PREFACE, SETTINGS, head(2)],
    "a push": [PREFACE, SETTINGS, frame(5, 4, 1, b"\0\0\0\2" + hpack.Encoder().encode(HEAD))],
    "continuation without headers": [PREFACE, SETTINGS, frame(9, 4, 1, b"")],
    "settings of a wrong size": [PREFACE, frame(4, 0, 0, b"123")],
    "a window that overflows": [PREFACE, SETTINGS, frame(8, 0, 0, b"\x7f\xff\xff\xff")],
    "padding longer than its frame": [PREFACE, SETTINGS, head(1, flags=0x4), frame(0, 0x8, 1, b"\xff")],
    "a connection-specific header": [PREFACE, SETTINGS, head(1, ("connection", "close"))],
    "an upper-case header": [PREFACE, SETTINGS, frame(1, 5, 1, hpack.Encoder().encode([*HEAD, ("X", "1")]))],
    "a pseudo-header twice": [PREFACE, SETTINGS, head(1, (":path", "/"))],
    "less body than declared": [
        PREFACE,
        SETTINGS,
        head(1, ("content-length", "5"), flags=4),
        frame(0, 1, 1, b"x"),
    ],
    "a length that is none": [PREFACE, SETTINGS, head(1, ("content-length", "-1"))],
    "a header list without end": [PREFACE, SETTINGS, head(1, flags=1)]
    + [frame(9, 0, 1, b"\0\1a\1b" * 3000)] * 80,
    "a header bomb": [
        PREFACE,
        SETTINGS,
        # 4 KiB put in the table once, then named two thousand times: 8 MiB of headers in 6 KiB.
        frame(1, 0x5, 1, hpack.Encoder().encode([*HEAD, ("a" * 8, "b" * 3900)]) + b"\xbe" * 2000),
    ],
}


@pytest.mark.parametrize("pieces", CASES.values(), ids=CASES.keys())
async def test_what_breaks_the_protocol_ends_its_connection(pieces):
    async with open_site() as site, serving(site) as served:
        other = await served.h2()
        await other.get(b"PUT", b"/v0/topics/a", b"{}")
        waiting = await other.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)

        goodbye = await goodbye_to(served, *pieces)
        assert goodbye not in (None, h2.errors.ErrorCodes.NO_ERROR)

        assert served.hand_over.connections == 1
        await other.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}')
        assert (await other.reply(waiting)).status == 200


async def test_every_case_byte_by_byte_ends_alike():
    async with open_site() as site, serving(site) as served:
        for name, pieces in CASES.items():
            sent = b"".join(pieces)
            if len(sent) > 1000:
                continue
            goodbye = await goodbye_to(served, *(bytes([byte]) for byte in sent))
            assert goodbye not in (None, h2.errors.ErrorCodes.NO_ERROR), name


FLOODS = {
    "PING": lambda n: frame(6, 0, 0, b"12345678"),
    "PING answers": lambda n: frame(6, 1, 0, b"12345678"),
    "SETTINGS": lambda n: SETTINGS,
    "SETTINGS that move the window": lambda n: frame(4, 0, 0, struct.pack(">HI", 4, 65535 + n % 2)),
    "PRIORITY of streams that never come": lambda n: frame(2, 0, 2 * n + 1, b"\0\0\0\0\x10"),
    "WINDOW_UPDATE": lambda n: frame(8, 0, 0, b"\0\0\0\1"),
    "rapid reset": lambda n: head(2 * n + 1) + frame(3, 0, 2 * n + 1, b"\0\0\0\x08"),
    "resets that the server is made to send": lambda n: head(2 * n + 1) + frame(8, 0, 2 * n + 1, b"\0\0\0\0"),
    "requests beyond the bound": lambda n: head(2 * n + 1, flags=0x4),
    "frames of no known kind": lambda n: frame(0xEE, 0, 0),
}


@pytest.mark.parametrize("of", FLOODS.values(), ids=FLOODS.keys())
async def test_floods_are_ended(of):
    async with open_site() as site, serving(site) as served:
        other = await served.h2()
        pieces = [b"".join(of(n) for n in range(at, at + 100)) for at in range(0, 6000, 100)]
        goodbye = await goodbye_to(served, PREFACE, SETTINGS, *pieces)

        assert goodbye not in (None, h2.errors.ErrorCodes.NO_ERROR)
        assert (await other.get(b"GET", b"/v0/health")).status == 200
        assert served.hand_over.connections == 1


async def test_empty_data_without_end_is_a_flood():
    async with open_site() as site, serving(site) as served:
        pieces = [head(1, ("content-type", "application/json"), flags=4), *[frame(0, 0, 1) * 100] * 60]
        goodbye = await goodbye_to(served, PREFACE, SETTINGS, *pieces)
        assert goodbye == h2.errors.ErrorCodes.ENHANCE_YOUR_CALM


async def test_pings_of_an_honest_client_are_answered():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        for _ in range(500):
            peer.h2.ping(b"12345678")
            await peer.flush()
        while peer.pongs < 500:
            await peer.receive()
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


async def test_a_head_beyond_the_limit_is_refused():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        reply = await peer.get(b"GET", b"/v0/health", None, (b"x", b"a" * 34_000))
        assert (reply.status, reply.code) == (431, "headers_too_large")
        reply = await peer.get(b"GET", b"/v0/health", None, *[(b"x-%d" % n, b"a") for n in range(101)])
        assert (reply.status, reply.code) == (431, "headers_too_large")
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


@pytest.mark.parametrize("field", [(b":path", b"/v0/\xc3\xa4"), (b":method", b"G\xc3\x84T")])
async def test_bytes_that_are_no_text_reset_their_stream(field):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        named = dict([(b":method", b"GET"), (b":path", b"/v0/health"), field])
        stream = await peer.ask(named[b":method"], named[b":path"])
        assert (await peer.reply(stream)).reset == h2.errors.ErrorCodes.PROTOCOL_ERROR
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


async def test_trailers_are_read_and_left():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        stream = await peer.ask(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}', JSON, ends=False)
        peer.h2.send_headers(stream, [(b"x-checksum", b"1")], end_stream=True)
        await peer.flush()
        assert (await peer.reply(stream)).status == 201


async def test_a_client_that_sends_half_a_frame_and_waits_is_ended(autojump_clock):
    async with open_site() as site, serving(site) as served:
        began = trio.current_time()
        goodbye = await goodbye_to(served, PREFACE, SETTINGS, head(1)[:20])
        assert goodbye == h2.errors.ErrorCodes.NO_ERROR
        assert trio.current_time() - began < 80
