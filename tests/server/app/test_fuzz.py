"""Streams of frames drawn at random, from a fixed seed: no bug is logged, nothing is left, others are served."""

import io
import random
from contextlib import suppress

import hpack
import pytest
import trio
import trio.testing

from tests.server.app.h2peer import Served, serving
from tests.server.wire.places import open_site
from topics.server.runtime.log import LEVEL_DEFAULT, log

pytestmark = pytest.mark.trio

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
METHODS = ["GET", "GET", "POST", "POST", "PUT", "HEAD", "CONNECT", "x"]
PATHS = ["/", "/v0/health", "/v0/topics/a", "/v0/topics/a/diff", "/nowhere", "/favicon.ico"]
BODIES = [b"{}", b'{"records":[{"data":1}]}', b"", b"\0" * 100, b'{"wait_ms":50}']
SETTINGS = [b"", b"\0\4\0\0\0\0", b"\0\4\0\0\0\5", b"\0\1\0\0\0\0", b"\0\5\0\0\x40\0", b"\0\5\0\0\0\0"]
WINDOWS = [b"\0\0\0\0", b"\0\0\xff\xff", b"\x7f\xff\xff\xff"]
MOSTLY = ["head", "head", "data", "data", "data", "reset", "ping"]
SOMETIMES = [*MOSTLY, "window", "settings", "goodbye", "noise"]


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream_id.to_bytes(4) + payload


def drawn(rng: random.Random) -> list[bytes]:
    """A client's frames: mostly well-formed and often too late; now and then a byte is flipped."""
    frames, stream_id = [PREFACE, frame(4, 0, 0)], -1
    for _ in range(rng.randrange(1, 12)):
        match rng.choice(SOMETIMES if rng.random() < 0.2 else MOSTLY):
            case "head":
                stream_id += 2
                fields = [(":method", rng.choice(METHODS)), (":path", rng.choice(PATHS)), (":scheme", "http")]
                fields += [(":authority", "localhost"), ("content-type", "application/json")]
                if rng.random() < 0.3:
                    fields.append(("content-length", str(rng.choice([0, 2, 5, 100, 10**9]))))
                if rng.random() < 0.1:
                    fields.append(("expect", "100-continue"))
                flags = rng.choice([4, 4, 4, 5, 5, 5, 0, 1, 0x24])
                frames.append(frame(1, flags, stream_id, hpack.Encoder().encode(fields)))
            case "data":
                on = rng.choice([max(1, stream_id)] * 6 + [1, 3, stream_id + 2])
                frames.append(frame(0, rng.choice([0, 1, 8]), on, rng.choice(BODIES)))
            case "reset":
                frames.append(frame(3, 0, rng.choice([1, 3, 5, 7]), b"\0\0\0\x08"))
            case "ping":
                frames.append(frame(6, rng.choice([0, 1]), 0, b"12345678"))
            case "window":
                frames.append(frame(8, 0, rng.choice([0, 1, 3]), rng.choice(WINDOWS)))
            case "settings":
                frames.append(frame(4, 0, 0, rng.choice(SETTINGS)))
            case "goodbye":
                frames.append(frame(7, 0, 0, bytes(8)))
            case "noise":
                frames.append(
                    frame(rng.randrange(12), rng.randrange(256), rng.choice([0, 1, 3]), rng.randbytes(9))
                )
    if rng.random() < 0.3:
        at = rng.randrange(1, len(frames))
        damaged = bytearray(frames[at])
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        frames[at] = bytes(damaged)
    return frames


async def play(served: Served, rng: random.Random) -> None:
    """One connection: at once, byte by byte, or with each frame answered before the next."""
    frames = drawn(rng)
    pace = rng.choice(["whole", "bytes", "frames"])
    edge = served.connect()
    with suppress(trio.BrokenResourceError):
        if pace == "frames":
            for piece in frames:
                await edge.send_all(piece)
                await trio.testing.wait_all_tasks_blocked()
        else:
            sent = b"".join(frames)
            for at in range(0, len(sent), step := 1 if pace == "bytes" else len(sent)):
                await edge.send_all(sent[at : at + step])
        if rng.random() < 0.5:
            await edge.send_eof()
        await trio.testing.wait_all_tasks_blocked()
    edge.close()


@pytest.mark.parametrize("seed", range(4))
async def test_random_frames_end_what_they_must(seed):
    rng, told = random.Random(seed), io.StringIO()
    log.set_up("warning", told)
    try:
        async with open_site() as site, serving(site) as served:
            other = await served.h2()
            await other.get(b"PUT", b"/v0/topics/a", b"{}")
            for _ in range(100):
                await play(served, rng)
            assert (await other.get(b"GET", b"/v0/health")).status == 200
            with trio.fail_after(10):  # a write may be under way in its thread
                while served.hand_over.connections > 1:
                    await trio.lowlevel.checkpoint()
            assert site.held_bytes == 0
    finally:
        log.set_up(LEVEL_DEFAULT)
    assert told.getvalue() == ""
