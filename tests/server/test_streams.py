"""Bodies that are not held, of a known size and without one, through both planes: whole, broken off, slow, left."""

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.app.h2peer import serving
from tests.server.wire.places import open_site, serve_connection
from tests.server.wire.playing import Client, pass_time
from topics.server.api.message import Answer, Sized, Unbounded
from topics.server.api.routes import Route
from topics.server.auth.scopes import Names
from topics.server.runtime.backup import StreamBroken
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio
SIZE = 1 << 15
PIECES = [b"one", b"two" * 1000, b"3"]
WHOLE = b"".join(PIECES)
CHUNKED = b"3\r\none\r\nbb8\r\n" + b"two" * 1000 + b"\r\n1\r\n3\r\n0\r\n\r\n"


class Pieces:
    """A source that gives these, then waits for more until it is told the end; `broken`: and then raises this."""

    bytes_per_s = 1024

    def __init__(self, pieces=PIECES, *, ends=True, broken=None):
        self.left = list(pieces)
        self.more = trio.Event()
        self.closed = 0
        self.broken = broken
        if ends:
            self.more.set()

    async def piece(self):
        if self.left:
            return self.left.pop(0)
        await self.more.wait()
        if self.left:
            return self.left.pop(0)
        if self.broken is not None:
            raise self.broken
        return b""

    def close(self):
        self.closed += 1


def row(body):
    async def handler(call):
        return Answer(
            200, body, content_type=b"text/event-stream", headers=((b"cache-control", b"no-store"),)
        )

    return Route(
        name="stream",
        method=b"GET",
        path="/v0/stream",
        handler=handler,
        scope="any",
        names=Names.NONE,
        summary="",
    )


def unbounded(source):
    return Unbounded(source)


def sized(source):
    return Sized(source, sum(map(len, source.left)))


@pytest.fixture
def mock_clock():
    return MockClock()


@asynccontextmanager
async def wire(source, body, line=b"GET /v0/stream HTTP/1.1", *, capacity=1 << 14, bugs=0):
    """A client that has asked; when the block ends the connection has, and the source is closed once."""
    async with open_site(more_routes=[row(body(source))]) as site, trio.open_nursery() as nursery:
        ours, theirs = edge_pair(capacity=capacity)
        nursery.start_soon(serve_connection, theirs, site)
        await ours.send_all(line + b"\r\nhost: localhost\r\n\r\n")
        yield Client(ours)
        ours.close()
        with trio.fail_after(60):
            while not theirs.closed:
                await wait_all_tasks_blocked()
        assert (source.closed, site.bugs, site.held_bytes, site.unsent_bytes) == (1, bugs, 0, 0)


async def everything(client):
    text = b""
    while data := await client.receive():
        text += data
    return text.partition(b"\r\n\r\n")[::2]


@pytest.mark.parametrize(
    ("line", "body", "fields", "sent"),
    [
        (b"GET /v0/stream HTTP/1.1", unbounded, b"transfer-encoding: chunked", CHUNKED),
        (b"GET /v0/stream HTTP/1.0", unbounded, b"", WHOLE),
        (b"HEAD /v0/stream HTTP/1.1", unbounded, b"transfer-encoding: chunked", b""),
        (b"HEAD /v0/stream HTTP/1.0", unbounded, b"", b""),
        (b"GET /v0/stream HTTP/1.1", sized, b"content-length: 3004", WHOLE),
        (b"GET /v0/stream HTTP/1.0", sized, b"content-length: 3004", WHOLE),
        (b"HEAD /v0/stream HTTP/1.1", sized, b"content-length: 3004", b""),
    ],
)
async def test_the_head_says_how_the_body_ends_and_the_connection_ends_with_it(
    mock_clock, line, body, fields, sent
):
    async with wire(Pieces(), body, line) as client:
        head, text = await everything(client)

    framing = [
        field for field in head.split(b"\r\n") if field.startswith((b"transfer-encoding", b"content-length"))
    ]
    assert (framing, text) == ([fields] if fields else [], sent)
    assert b"\r\nconnection: close" in head
    assert b"\r\ncache-control: no-store\r\n" in head


async def test_a_body_that_breaks_has_no_last_chunk(mock_clock):
    async with wire(Pieces(broken=StreamBroken), unbounded) as client:
        _, text = await everything(client)

    assert text == CHUNKED.removesuffix(b"0\r\n\r\n")


async def test_a_bug_in_the_midst_of_a_body_puts_no_other_answer_into_it(mock_clock):
    source = Pieces(broken=ZeroDivisionError)
    async with wire(source, unbounded, bugs=1) as client:
        _, text = await everything(client)

    assert text == CHUNKED.removesuffix(b"0\r\n\r\n")


async def test_a_piece_goes_when_it_is_there_however_long_that_took(mock_clock):
    source = Pieces([b"early"], ends=False)
    async with wire(source, unbounded) as client:
        while b"early" not in client.buffer:
            client.buffer += await client.receive()
        await pass_time(1000)
        source.left.append(b"late")
        source.more.set()

        assert (await everything(client))[0].endswith(b"4\r\nlate\r\n0")


@pytest.mark.parametrize(
    "leave", [lambda edge: edge.close(), lambda edge: edge.send_eof()], ids=["gone", "ended"]
)
async def test_a_client_that_leaves_while_nothing_comes_ends_the_stream(mock_clock, leave):
    source = Pieces([b"early"], ends=False)
    async with wire(source, unbounded) as client:
        while b"early" not in client.buffer:
            client.buffer += await client.receive()
        assert source.closed == 0
        left = leave(client.edge)
        if left is not None:
            await left
        await wait_all_tasks_blocked()

        assert source.closed == 1


@pytest.mark.parametrize("body", [unbounded, sized])
async def test_a_client_that_does_not_read_is_let_go_of(mock_clock, body):
    source = Pieces([b"x" * SIZE] * 8, ends=False)
    async with wire(source, body, capacity=1 << 12):
        await pass_time(9)
        before = source.closed
        await pass_time(40)

        assert (before, source.closed) == (0, 1)


# HTTP/2.


@asynccontextmanager
async def http2(source, body, method=b"GET"):
    async with open_site(more_routes=[row(body(source))]) as site, serving(site) as served:
        peer = await served.h2()
        yield peer, await peer.ask(method, b"/v0/stream")
        with trio.fail_after(60):
            while not source.closed:
                await wait_all_tasks_blocked()
    assert (source.closed, site.bugs) == (1, 0)


@pytest.mark.parametrize(
    ("method", "body", "length", "sent"),
    [
        (b"GET", unbounded, None, WHOLE),
        (b"HEAD", unbounded, None, b""),
        (b"GET", sized, b"3004", WHOLE),
        (b"HEAD", sized, b"3004", b""),
    ],
)
async def test_over_http2_only_a_known_size_is_told(mock_clock, method, body, length, sent):
    async with http2(Pieces(), body, method) as (peer, stream):
        reply = await peer.reply(stream)

    assert (reply.headers.get(b"content-length"), reply.body, reply.ended) == (length, sent, True)
    assert b"transfer-encoding" not in reply.headers


async def test_a_body_that_breaks_resets_its_stream(mock_clock):
    async with http2(Pieces(broken=StreamBroken), unbounded) as (peer, stream):
        reply = await peer.reply(stream)

    assert (reply.body, reply.ended, reply.reset is None) == (WHOLE, False, False)


async def test_a_reset_while_nothing_comes_ends_the_stream(mock_clock):
    source = Pieces([b"early"], ends=False)
    async with http2(source, unbounded) as (peer, stream):
        while not peer.replies[stream].body:
            await peer.receive()
        await pass_time(100)
        assert source.closed == 0
        peer.h2.reset_stream(stream)
        await peer.flush()
        await wait_all_tasks_blocked()

        assert source.closed == 1


@pytest.mark.parametrize("body", [unbounded, sized])
async def test_a_stream_whose_window_stays_shut_is_let_go_of(mock_clock, body):
    source = Pieces([b"x" * SIZE] * 8, ends=False)
    async with http2(source, body) as (peer, stream):
        peer.auto_window = False
        while len(peer.replies[stream].body) < SIZE:
            await peer.receive()
        await pass_time(29 if body is unbounded else 70)  # a stream is let go of when it is stuck
        before = source.closed
        await pass_time(200)

        assert (before, source.closed) == (0, 1)
