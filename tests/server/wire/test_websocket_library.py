"""The library `websockets`: its client and we understand each other over sockets; and what we lean on is there."""

import json
from contextlib import asynccontextmanager
from importlib import metadata

import pytest
import trio
from websockets.exceptions import ConnectionClosedError, ConnectionClosedOK
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.trio.client import connect

from tests.server.process import CERTIFICATES, trusting
from tests.server.wire.places import begun, new_site
from tests.server.wire.sockets import frame, head, publish
from topics.kernel.limits import MIB, Limits
from topics.server.listener import Listener, bind, port_of
from topics.server.tls import server_context


@asynccontextmanager
async def listening(**how):
    """A site on a port; drained behind the block."""
    site = new_site(limits=Limits(body_bytes=2 * MIB))
    async with begun(site), trio.open_nursery() as nursery:
        listeners = await bind("127.0.0.1", 0)
        listener = Listener(site, listeners, **how)
        await nursery.start(listener.run)
        yield site, listener, port_of(listeners[0])
        site.draining = True
        await listener.drain(trio.CancelScope(deadline=trio.current_time() + 5))
        assert (listener.connections, site.bugs, site.held_bytes, site.unsent_bytes) == (0, 0, 0, 0)


def to(port, **how):
    return connect(f"ws://127.0.0.1:{port}/v0/ws", **how)


@pytest.mark.trio
@pytest.mark.rule("H10.5", "H10.8")
async def test_its_client_writes_and_reads_answers():
    """With what a client offers by itself: compression is declined, its keep-alive is answered."""
    async with (
        listening() as (site, _, port),
        to(port, subprotocols=["topics.v0"], max_size=8 * MIB) as client,
    ):
        assert client.subprotocol == "topics.v0"
        assert client.protocol.extensions == []
        for number in range(50):
            await client.send(publish_text(number, request_id=number))
        answers = [json.loads(await client.recv()) for _ in range(50)]
        assert [(one["request_id"], one["last_seq"]) for one in answers] == [(i, i + 1) for i in range(50)]

        large = publish_text("x" * 900_000, request_id="large")
        await client.send([large[:1000], large[1000:500_000], large[500_000:]])  # in fragments
        assert json.loads(await client.recv())["last_seq"] == 51
        await (await client.ping()).wait()
        with pytest.raises(ConnectionClosedError) as ended:
            await client.send(b" " * (24 * MIB))  # more than the kernel keeps
            await client.recv()
        assert ended.value.rcvd.code == 1009
        assert site.counts["websocket", 101] == 1


@pytest.mark.trio
async def test_a_drain_tells_it_to_go_away():
    async with listening() as (site, listener, port), to(port) as client:
        await client.send('{"op":"ping"}')
        await client.recv()
        site.draining = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.drain, trio.CancelScope(deadline=trio.current_time() + 5))
            with pytest.raises(ConnectionClosedOK) as ended:
                await client.recv()
        assert (ended.value.rcvd.code, listener.counts.forced) == (1001, 0)


@pytest.mark.trio
async def test_a_drain_is_not_held_up_by_whoever_never_reads():
    async with listening() as (_, listener, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all(head() + publish(1) * 50)
        await stream.receive_some(100)
        with trio.fail_after(10):
            await listener.drain(trio.CancelScope(deadline=trio.current_time() + 0.2))
        assert listener.counts.forced == 1
        await stream.aclose()


@pytest.mark.trio
async def test_over_tls():
    trusted = trusting("one")
    async with listening(context=server_context(CERTIFICATES / "one.pem", CERTIFICATES / "one.key")) as (
        _,
        _,
        port,
    ):
        where = f"wss://localhost:{port}/v0/ws"
        async with connect(where, ssl=trusted) as client:
            for _ in range(3):
                await client.send('{"op":"ping","request_id":1}')
                pong = json.loads(await client.recv())
                assert pong == {"op": "pong", "request_id": 1, "now": pong["now"]}


@pytest.mark.trio
async def test_raw_bytes_one_at_a_time():
    async with listening() as (_, _, port):
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        for byte in head() + frame(b'{"op":"ping"}'):
            await stream.send_all(bytes([byte]))
        seen = b""
        while not (b'{"op":"pong","now":' in seen and seen.endswith(b"}")):
            data = await stream.receive_some()
            assert data, seen
            seen += data
        await stream.aclose()


def publish_text(data, **fields):
    return json.dumps({"op": "publish", "topic": "t", "records": [{"data": data}], **fields})


# What we lean on.


def test_the_version_is_one_that_was_read():
    assert metadata.version("websockets").startswith("17.")


def test_what_has_come_of_a_message_is_in_the_readers_buffer():
    protocol = ServerProtocol(state=State.OPEN, max_size=100)
    protocol.receive_data(frame(b"x" * 50)[:30])

    assert len(protocol.reader.buffer) == 24
    protocol.receive_data(frame(b"x" * 50)[30:])
    (message,) = protocol.events_received()
    assert bytes(message.data) == b"x" * 50
    assert len(protocol.reader.buffer) == 0


def test_the_end_of_what_is_to_be_sent_is_an_empty_piece():
    protocol = ServerProtocol(state=State.OPEN)
    protocol.receive_data(frame(b"", 8))

    assert protocol.data_to_send() == [b"\x88\x00", b""]
    assert protocol.state is State.CLOSING
