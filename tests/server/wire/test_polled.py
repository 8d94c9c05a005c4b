"""Sockets in an epoll instance of the wire's own: nothing that comes is missed, whoever waits, and whoever closes."""

import re
import socket
import struct
import sys
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.wire.places import alone, new_site
from tests.server.wire.ports import SETTLE_S, WRITE, connected, served
from tests.server.wire.sockets import SocketPeer, head, publish, text
from tests.transcripts.steps import get, post
from topics.engine.commands import PutTopic
from topics.kernel.config import parse_config
from topics.server.api.bodies.writes import decode_write
from topics.server.wire.edges import RECEIVE_BYTES, PolledEdge, SocketEdge
from topics.server.wire.patience import Phase
from topics.server.wire.poller import HAS_EPOLL, Poller

pytestmark = [
    pytest.mark.trio,
    pytest.mark.rule("A5.30"),
    pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll"),
]


@asynccontextmanager
async def polled():
    """The edge, its peer, who sends without waiting for the loop, and the poller."""
    poller = Poller(new_site())
    ours, theirs = trio.socket.socketpair()
    theirs_raw = theirs._sock
    async with alone(), trio.open_nursery() as pollers:
        pollers.start_soon(poller.run)
        edge = PolledEdge(trio.SocketStream(ours), poller)
        with trio.fail_after(10):
            yield edge, theirs_raw, poller
        edge.close()
        theirs.close()
        pollers.cancel_scope.cancel()


async def all_of(edge):
    pieces = [await edge.receive()]
    while pieces[-1]:
        pieces.append(await edge.receive())
    return b"".join(pieces)


@pytest.mark.parametrize("size", [1, RECEIVE_BYTES - 1, RECEIVE_BYTES, RECEIVE_BYTES + 1, 3 * RECEIVE_BYTES])
@pytest.mark.parametrize("is_before", [True, False])
async def test_bytes_and_the_end_behind_them_are_both_read(size, is_before):
    """They may be told at once, and only once."""
    async with polled() as (edge, peer, _), trio.open_nursery() as nursery:
        peer.setblocking(True)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
        data, found = bytes(size), []

        async def read():
            found.append(await all_of(edge))

        if not is_before:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
        await trio.to_thread.run_sync(peer.sendall, data)
        peer.shutdown(socket.SHUT_WR)
        if is_before:
            await wait_all_tasks_blocked(SETTLE_S)
            nursery.start_soon(read)
        await wait_all_tasks_blocked(SETTLE_S)

        assert found == [data]


async def test_a_close_wakes_who_waits():
    async with polled() as (edge, _, _), trio.open_nursery() as nursery:

        async def close():
            await wait_all_tasks_blocked()
            edge.close()

        nursery.start_soon(close)
        for _ in range(2):
            with pytest.raises(trio.ClosedResourceError):
                await edge.receive()


async def test_a_socket_with_the_number_of_one_that_was_closed_is_told_its_own():
    async with polled() as (edge, _, poller):
        numbers = [edge._fd]
        await edge.aclose()
        ours, theirs = trio.socket.socketpair()
        numbers.append(ours.fileno())
        other = PolledEdge(trio.SocketStream(ours), poller)
        await theirs.send(b"other")

        assert numbers[0] == numbers[1]
        assert await other.receive() == b"other"
        await other.aclose()
        theirs.close()


async def test_connections_that_ask_together_share_a_batch():
    async with served() as (_, runtime, port, _):
        clients = await connected(port, 5)
        meter = runtime.shards[0].meter
        before = meter.batches
        for client in clients:
            client.socket._sock.send(WRITE)  # before the server has its turn
        answers = [await client.receive_some() for client in clients]

        assert [answer[:15] for answer in answers] == [b"HTTP/1.1 200 OK"] * 5
        assert meter.batches - before == 1
        assert runtime.engine.topic_state("t").head_seq == 10
        for client in clients:
            await client.aclose()


@pytest.mark.parametrize("settings", [{}, {"compression": "zstd"}], ids=["many", "compressed"])
async def test_what_does_not_go_at_once_is_decoded_once(settings):
    async with served() as (_, runtime, port, _):
        await runtime.submit(PutTopic(topic="t", config=parse_config({"durability": "disk"} | settings)))
        records = ",".join(['{"data":"some text"}'] * (1 if settings else 250))
        request = post(f'{{"records":[{records}]}}'.encode(), path=b"/v0/topics/t")
        client = await trio.open_tcp_stream("127.0.0.1", port)
        decoded = []

        def note(frame, event, _):
            if event == "call" and frame.f_code is decode_write.__code__:
                decoded.append(frame)

        for asked in (1, 2):
            sys.setprofile(note)
            try:
                await client.send_all(request)
                assert (await client.receive_some()).startswith(b"HTTP/1.1 20")
            finally:
                sys.setprofile(None)
            await wait_all_tasks_blocked(SETTLE_S)

            assert len(decoded) == asked
        await client.aclose()


async def begun_request(listener, port, disk):
    """A connection whose write waits for its sync, and its client."""
    (client,) = await connected(port, 1)
    (slot,) = listener._open
    disk.goes.clear()
    client.socket._sock.send(WRITE)
    while not slot.connection._again.is_begun:
        await trio.lowlevel.checkpoint()
    return slot.connection, client


@pytest.mark.parametrize(
    "behind",
    [[WRITE], [get()], [WRITE[:30], WRITE[30:]], [WRITE + get()]],
    ids=["again", "other", "cut", "two"],
)
async def test_requests_behind_one_that_is_begun_are_answered_behind_it(behind):
    async with served(durability="fsync") as (listener, _, port, disk):
        _, client = await begun_request(listener, port, disk)
        for piece in behind:
            client.socket._sock.send(piece)
            await wait_all_tasks_blocked(SETTLE_S)
        disk.goes.set()
        asked, text = re.findall(b"(POST|GET) /", WRITE + b"".join(behind)), b""
        while text.count(b"HTTP/1.1 200") < len(asked):
            text += await client.receive_some()

        answers = text.split(b"HTTP/1.1 200")[1:]
        assert [b'"first_seq"' in answer for answer in answers] == [method == b"POST" for method in asked]
        await client.aclose()


async def test_who_ends_his_side_behind_a_request_has_his_answer():
    async with served() as (listener, _, port, _):
        (client,) = await connected(port, 1)
        client.socket._sock.send(WRITE)
        client.socket._sock.shutdown(socket.SHUT_WR)
        text = b"".join([data async for data in client])

        assert text.startswith(b"HTTP/1.1 200")
        await wait_all_tasks_blocked(SETTLE_S)
        assert listener.connections == 0
        await client.aclose()


async def test_a_request_that_is_begun_when_the_server_drains_is_answered_and_the_last():
    async with served(durability="fsync") as (listener, _, port, disk):
        connection, client = await begun_request(listener, port, disk)
        listener._site.draining = True
        connection.end_if_idle()
        await wait_all_tasks_blocked(SETTLE_S)
        disk.goes.set()
        text = b"".join([data async for data in client])

        assert text.startswith(b"HTTP/1.1 200")
        assert b"\r\nconnection: close\r\n" in text
        await client.aclose()


async def test_who_is_closed_by_force_while_his_request_is_begun_loses_the_answer_only():
    async with served(durability="fsync") as (listener, runtime, port, disk):
        _, client = await begun_request(listener, port, disk)
        (slot,) = listener._open
        slot.force()
        await wait_all_tasks_blocked(SETTLE_S)
        assert (listener.connections, runtime.in_flight) == (0, 1)
        disk.goes.set()
        while runtime.in_flight:
            await trio.lowlevel.checkpoint()

        assert runtime.engine.topic_state("t").head_seq == 2
        assert runtime.in_flight == listener._site.keys.stranger.requests == listener._site.requests.size == 0
        await client.aclose()


POLL = post(b'{"from_seq":0,"wait_ms":30000}', path=b"/v0/topics/t/diff")
BEGIN = post(b'{"topics":{"t":{"from_seq":0}}}', path=b"/v0/watch")


async def waiting(port, listener, request):
    """A client whose request waits for news, and its connection."""
    client = await trio.open_tcp_stream("127.0.0.1", port)
    await client.send_all(request)
    await wait_all_tasks_blocked(SETTLE_S)
    (slot,) = listener._open
    assert slot.connection._link.phase is not Phase.IDLE
    return client


async def test_a_long_poll_whose_peer_ends_his_side_is_answered_at_once():
    async with served() as (listener, _, port, _):
        client = await waiting(port, listener, POLL)
        await client.send_eof()
        text = b"".join([data async for data in client])

        assert text.startswith(b"HTTP/1.1 200")
        await client.aclose()


@pytest.mark.parametrize("before", [b"", get()], ids=["nothing", "a request"])
async def test_a_long_poll_whose_peer_is_gone_ends(before):
    async with served() as (listener, _, port, _):
        client = await waiting(port, listener, POLL)
        client.socket._sock.send(before)
        await wait_all_tasks_blocked(SETTLE_S)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await client.aclose()  # a reset
        while listener.connections:
            await trio.lowlevel.checkpoint()

        assert listener._site.bugs == listener._site.held_bytes == 0


async def test_what_comes_during_a_long_poll_is_kept_and_answered_behind_it():
    async with served() as (listener, _, port, _):
        client = await waiting(port, listener, POLL)
        for piece in (WRITE[:30], WRITE[30:]):
            client.socket._sock.send(piece)
            await wait_all_tasks_blocked(SETTLE_S)
        assert listener._site.held_bytes >= len(WRITE)
        other = await trio.open_tcp_stream("127.0.0.1", port)
        for _ in range(2):
            await other.send_all(WRITE)
            assert (await other.receive_some()).startswith(b"HTTP/1.1 200")
        text = b""
        while text.count(b"HTTP/1.1 200") < 2:
            text += await client.receive_some()

        assert [b'"first_seq"' in answer for answer in text.split(b"HTTP/1.1 200")[1:]] == [False, True]
        assert listener._site.held_bytes == 0
        for stream in (client, other):
            await stream.aclose()


async def test_a_stream_ends_with_its_peers_side_and_by_force():
    async with served() as (listener, _, port, _):
        for end in (
            lambda client, slot: client.socket._sock.shutdown(socket.SHUT_WR),
            lambda _, slot: slot.force(),
        ):
            client = await trio.open_tcp_stream("127.0.0.1", port)
            await client.send_all(BEGIN)
            wid = re.search(b"wid_[-_A-Za-z0-9]+", await client.receive_some())[0]
            await client.aclose()
            client = await waiting(port, listener, get(path=b"/v0/watch/" + wid))
            assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
            (slot,) = listener._open
            end(client, slot)
            while listener.connections:
                await trio.lowlevel.checkpoint()
            await client.aclose()

        assert listener._site.bugs == listener._site.streams.taken == 0


class Steps(trio.abc.Instrument):
    """The names of the tasks that had a turn."""

    def __init__(self):
        self.names = []

    def after_task_step(self, task):
        self.names.append(task.name)


async def socket_peer(port):
    """A WebSocket that has published."""
    peer = SocketPeer(SocketEdge(await trio.open_tcp_stream("127.0.0.1", port)))
    await peer.open(head())
    assert (await peer.ask(op="publish", topic="t", records=[{"data": 1}]))["op"] == "ack"
    return peer


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_a_small_write_wakes_no_task_of_its_connection_nor_of_the_shard(kind):
    async with served() as (_, runtime, port, _):
        if kind == "http":
            (stream,), asked = await connected(port, 1), WRITE
        else:
            peer, asked = await socket_peer(port), publish(2)
            stream = peer.edge.stream
        await wait_all_tasks_blocked(SETTLE_S)
        steps = Steps()
        trio.lowlevel.add_instrument(steps)
        stream.socket._sock.send(asked)
        await wait_all_tasks_blocked(SETTLE_S)
        trio.lowlevel.remove_instrument(steps)

        assert runtime.engine.topic_state("t").head_seq == 2
        assert any("Poller.run" in name for name in steps.names)
        assert [
            name
            for name in steps.names
            if "_run_handler" in name or "TaskPool" in name or "WebSocket" in name or "ShardTask.run" in name
        ] == []
        await stream.aclose()


async def test_commands_of_websockets_that_come_together_are_one_batch_and_each_is_answered():
    async with served() as (_, runtime, port, _):
        peers = [await socket_peer(port) for _ in range(4)]
        meter = runtime.shards[0].meter
        before = meter.batches
        for number, peer in enumerate(peers):
            peer.edge.stream.socket._sock.send(publish(number, request_id=number))
        answers = [await peer.message() for peer in peers]

        assert [(answer["op"], answer["request_id"]) for answer in answers] == [("ack", n) for n in range(4)]
        assert meter.batches - before == 1
        for peer in peers:
            await peer.edge.aclose()


async def test_what_a_websocket_asks_wrongly_is_told_and_the_next_is_served():
    async with served() as (_, _, port, _):
        peer = await socket_peer(port)
        for asked, expected in (
            (text(op="nothing"), "error"),
            (text(op="publish", topic="absent", records=[{"data": 1}], create=False), "error"),
            (publish("ä" * 10), "ack"),
            (publish(1) + publish(2)[:20], "ack"),
            (publish(2)[20:], "ack"),
        ):
            peer.edge.stream.socket._sock.send(asked)
            assert (await peer.message())["op"] == expected
        await peer.edge.aclose()
