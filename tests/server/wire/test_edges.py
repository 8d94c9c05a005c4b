"""One contract for every edge: a socket, TLS over one, and memory."""

import ssl
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.server.wire.places import alone, new_site
from topics.server.wire.edges import PolledEdge, SocketEdge, TlsEdge
from topics.server.wire.poller import HAS_EPOLL, Poller
from topics.testing.streams import edge_pair

pytestmark = [pytest.mark.trio, pytest.mark.rule("A5.30")]
CERTIFICATES = Path(__file__).parents[1] / "tls"
KINDS = pytest.mark.parametrize(
    "kind",
    [
        "socket",
        pytest.param("polled", marks=pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll")),
        "tls",
        "memory",
    ],
)


@asynccontextmanager
async def edges(kind):
    """Both ends: the one under test, and its peer's `receive`, `send_all` and `aclose`."""
    if kind == "memory":
        ours, theirs = edge_pair()
        yield ours, theirs
        return
    listener = (await trio.open_tcp_listeners(0, host="127.0.0.1"))[0]
    connected = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
    accepted = await listener.accept()
    await listener.aclose()
    async with alone(), trio.open_nursery() as pollers:
        ours, theirs = await both_ends(kind, accepted, connected, pollers)
        try:
            yield ours, theirs
        finally:
            ours.close()
            await trio.aclose_forcefully(accepted)
            await trio.aclose_forcefully(connected)
            pollers.cancel_scope.cancel()


async def both_ends(kind, accepted, connected, pollers):
    if kind == "polled":
        poller = Poller(new_site())
        pollers.start_soon(poller.run)
        return PolledEdge(accepted, poller), SocketEdge(connected)
    if kind == "socket":
        return SocketEdge(accepted), SocketEdge(connected)
    else:
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(CERTIFICATES / "one.pem", CERTIFICATES / "one.key")
        asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
        ours = trio.SSLStream(accepted, serving, server_side=True)
        theirs = trio.SSLStream(connected, asking)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ours.do_handshake)
            nursery.start_soon(theirs.do_handshake)
        return TlsEdge(ours), TlsEdge(theirs)


async def read(edge, size):
    found = b""
    while len(found) < size and (piece := await edge.receive()):
        found += piece
    return found


@KINDS
async def test_what_is_sent_arrives_in_order_whichever_way_it_was_sent(kind):
    async with edges(kind) as (ours, theirs):
        text = bytes(range(256)) * 8
        sent = ours.try_send(text)

        assert sent == (0 if kind == "tls" else len(text))
        await ours.send_all(text[sent:])
        assert await read(theirs, len(text)) == text
        await theirs.send_all(b"back")
        assert await read(ours, 4) == b"back"


@KINDS
async def test_try_send_never_waits_for_a_peer_that_does_not_read(kind):
    async with edges(kind) as (ours, _):
        for _ in range(10_000):  # 640 MB: more than any buffer on the way
            if not ours.try_send(bytes(1 << 16)):
                break

        assert ours.try_send(b"x" * 100_000) < 100_000


@KINDS
async def test_the_end_of_the_peer_is_no_bytes(kind):
    async with edges(kind) as (ours, theirs):
        await theirs.aclose()

        assert await ours.receive() == b""


@KINDS
async def test_a_half_close_leaves_the_other_half(kind):
    async with edges(kind) as (ours, theirs):
        await ours.send_eof()
        await theirs.send_all(b"still")

        assert await read(ours, 5) == b"still"


@KINDS
async def test_a_closed_edge_says_so(kind):
    async with edges(kind) as (ours, _):
        await ours.aclose()
        for call in (ours.receive, lambda: ours.send_all(b"x")):
            with pytest.raises((trio.ClosedResourceError, trio.BrokenResourceError)):
                await call()
