"""A WebSocket at rest has no task, and lives and ends as one that is served by a task."""

import socket
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.server.wire.places import alone, begun, new_site
from tests.server.wire.ports import WRITE, connected, served
from tests.server.wire.sockets import CLOSE, PING, PONG, TEXT, SocketPeer, frame, head, publish, text
from tests.server.wire.test_resting import gone, living, settled
from tests.transcripts.steps import post
from topics.engine.commands import PutTopic
from topics.kernel.config import parse_config
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys
from topics.server.wire.edges import SocketEdge
from topics.server.wire.patience import WireOptions
from topics.server.wire.poller import HAS_EPOLL
from topics.server.wire.tasks import ConnectionTasks, TaskPool
from topics.simulation.memory_port import MemoryPort
from topics.testing.streams import edge_pair

pytestmark = [
    pytest.mark.trio,
    pytest.mark.rule("H10.4", "A5.30"),
    pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll"),
]
SUBSCRIBE = text(op="subscribe", topic="t", from_seq=0)
BIG = post(b'{"records":[{"data":"%b"}]}' % (b"x" * 7000), path=b"/v0/topics/t")


@pytest.fixture
def mock_clock():
    return MockClock()


async def opened(port, *fields):
    """One that rests."""
    peer = SocketPeer(SocketEdge(await trio.open_tcp_stream("127.0.0.1", port)))
    await peer.open(head(*fields))
    await settled()
    return peer


async def subscribed(port):
    """One that rests, watches `t`, and has had all there is of it."""
    peer = await opened(port)
    await peer.send(SUBSCRIBE)
    while (await peer.message())["op"] != "caught_up":
        pass
    await settled()
    return peer


async def next_seqs(peer):
    """Of the records of the next message that has any."""
    while (message := await peer.message())["op"] != "record":
        pass
    return [record["$seq"] for record in message["records"]]


async def put(writer, count=1):
    for _ in range(count):
        await writer.send_all(WRITE)
        assert (await writer.receive_some()).startswith(b"HTTP/1.1 20")


async def test_who_watches_has_no_task():
    async with served() as (listener, _, port, _):
        (writer,) = await connected(port, 1)
        first = await subscribed(port)
        before = living(listener)
        peers = [first, *[await subscribed(port) for _ in range(5)]]
        assert living(listener) == before
        for seq in range(2, 5):
            await put(writer)
            for peer in peers:
                assert await next_seqs(peer) == [seq]
        await settled()
        assert living(listener) == before
        for peer in peers:
            await peer.edge.aclose()
        await writer.aclose()


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([publish(1)], ["ack"]),
        ([publish("ä")], ["ack"]),
        ([publish(1) + publish(2)], ["ack", "ack"]),
        ([publish(1)[:9], publish(1)[9:]], ["ack"]),
        ([publish(1) + publish(2)[:9], publish(2)[9:]], ["ack", "ack"]),
        ([frame(b"", PING) + publish(1)], ["ack"]),
        ([text(op="nothing")], ["invalid_request"]),
        ([publish("x" * 3000) * 60], ["ack"] * 60),
    ],
)
async def test_what_comes_at_rest_is_answered_however_it_comes(pieces, expected):
    async with served() as (listener, runtime, port, _):
        peer = await opened(port)
        before = living(listener)
        for piece in pieces:
            await peer.edge.send_all(piece)
            await settled()
        await peer.edge.send_all(frame(b"last", PING))
        got, last = [], 0  # a pong may overtake answers, where this machine is busy
        while len(got) < len(expected) or not last:
            one = await peer.frame()
            last += one.payload == b"last"
            got += [one.short] if one.opcode == TEXT else []
        assert got == expected
        assert runtime.engine.topic_state("t").head_seq == expected.count("ack")
        await settled()
        assert (await peer.ask(op="ping"))["op"] == "pong"
        await settled()
        assert living(listener) == before
        assert listener._site.held_bytes <= 1024  # a little stays there for the next
        await peer.edge.aclose()


async def test_a_silent_peer_is_asked_at_rest_and_then_given_up(mock_clock):
    async with served(wire=WireOptions(ping_s=2)) as (listener, _, port, _):
        silent, living_one = await opened(port), await opened(port)
        for _ in range(4):
            mock_clock.jump(2.3)
            await settled()
            got = await living_one.frame()
            assert got is not None
            assert got.opcode == PING
            await living_one.edge.send_all(frame(b"", PONG))
            await settled()
            mock_clock.jump(2.3)  # it has said something: it is not asked
            await settled()

        assert listener.connections == 1
        got = await silent.rest()
        assert [one.opcode for one in got] == [PING]
        for peer in (silent, living_one):
            await peer.edge.aclose()


async def ready(port):
    """Jobs that wait for a worker."""
    peer = await opened(port)
    answer = await peer.ask(op="claim", topic="q", node="m")
    await peer.edge.aclose()
    return len(answer["claimed"])


@pytest.mark.parametrize("how", ["end", "reset", "force"])
async def test_a_peer_that_goes_at_rest_is_known_no_more(how):
    async with served() as (listener, runtime, port, _):
        await runtime.submit(PutTopic(topic="q", config=parse_config({"type": "queue"})))
        peer = await subscribed(port)
        await peer.ask(op="work", topic="q", max=2, node="n")
        await peer.ask(op="publish", topic="q", records=[{"data": 1}])
        assert (await peer.message())["op"] == "job"
        await peer.send(text(op="claim", topic="q", node="n", wait_ms=9000, request_id=1))
        await settled()
        (slot,) = listener._open
        await gone(peer.edge.stream, slot, how)

        site = listener._site
        assert (listener.connections, site.streams.taken, runtime.hub.readers, site.bugs) == (0, 0, 0, 0)
        assert (site.held_bytes, site.unsent_bytes, len(site.wheel)) == (0, 0, 0)
        assert (await ready(port), site.bugs) == (1, 0)


async def test_who_is_asked_whether_he_lives_needs_no_task(mock_clock):
    async with served(wire=WireOptions(ping_s=2)) as (listener, _, port, _):
        peers = [await opened(port) for _ in range(20)]
        before = len(listener._pool._waiting)
        mock_clock.jump(2.3)
        await settled()
        assert len(listener._pool._waiting) == before
        for peer in peers:
            assert (await peer.frame()).opcode == PING
            await peer.edge.aclose()


async def test_all_is_given_back_if_the_port_is_cancelled_with_the_connection():
    told = []
    async with alone(), begun(site := new_site()):
        for is_told in (True, False):
            ours, theirs = edge_pair()
            async with trio.open_nursery() as nursery:
                port = MemoryPort(site, nursery)
                opened = told.append
                serve = partial(port.serve, theirs, is_told=is_told, opened=opened)
                nursery.start_soon(serve)
                peer = SocketPeer(ours)
                await peer.open(head())
                connection = told.pop()
                connection._socket.at_end(lambda: told.append("given back"))
                await peer.send(text(op="publish", topic="t", records=[{"data": 1}])[:9])
                await settled()
                connection.abort()
                nursery.cancel_scope.cancel()
            assert told == ["given back"]
            assert (site.streams.taken, site.held_bytes) == (0, 0)
            told.clear()


async def test_who_rests_is_closed_with_its_key():
    async with served(keys=Keys(parse_keys("mine,theirs"))) as (listener, _, port, _):
        peer = await opened(port, b"Authorization: Bearer mine")
        listener._site.keys.replace(parse_keys("theirs"))
        got = await peer.frame()
        assert got is not None
        assert got.close == (1008, "the key was revoked")
        await peer.edge.send_all(frame(b"\x03\xf0", CLOSE))
        assert await peer.rest() == []
        await peer.edge.aclose()
        await settled()
        assert listener.connections == listener._site.streams.taken == 0


async def test_who_does_not_read_behind_a_rest_misses_nothing_when_he_does():
    async with served() as (listener, _, port, _):
        peer, (writer,) = await subscribed(port), await connected(port, 1)
        for slot in listener._open:
            slot.edge._raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer.edge.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        before = living(listener)
        for _ in range(20):
            await writer.send_all(BIG)
            await writer.receive_some()
        await settled()
        peer.edge.stream.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20
        )  # else TCP's timer lets each piece in
        seqs = []
        while len(seqs) < 21:
            seqs += await next_seqs(peer)
        assert seqs == list(range(1, 22))
        await settled()
        assert (listener._site.unsent_bytes, living(listener)) == (0, before)
        await peer.edge.aclose()
        await writer.aclose()


async def test_tasks_of_a_group_end_together_and_that_is_told_once():
    ended = []
    async with trio.open_nursery() as nursery:
        pool = TaskPool(nursery, ended.append)
        group = ConnectionTasks(pool.start, ended.append)
        for _ in range(3):
            group.start(trio.sleep_forever)
        await settled()
        group.cancel(lambda: ended.append("all"))
        assert ended == []
        await settled()
        group.start(trio.sleep_forever)  # behind the end: cancelled from its beginning
        await settled()
        assert ended == ["all"]
        assert len(pool._waiting) == len(nursery.child_tasks) == 3
        nursery.cancel_scope.cancel()


async def test_a_bug_in_a_task_of_a_group_is_told_and_the_others_go_on():
    bugs = []

    async def fails():
        raise ValueError("planted")

    async with trio.open_nursery() as nursery:
        group = ConnectionTasks(TaskPool(nursery, bugs.append).start, bugs.append)
        group.start(trio.sleep_forever)
        group.start(fails)
        await settled()
        assert [str(bug) for bug in bugs] == ["planted"]
        assert not group.is_cancelled
        nursery.cancel_scope.cancel()
