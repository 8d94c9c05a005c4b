"""Connections at rest have no task: whatever ends the rest is served as it is where a task waits."""

import math
import re
import socket
import struct

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.wire.ports import SETTLE_S, WRITE, connected, served
from tests.transcripts.steps import get, post
from topics.server.api.routes import Route
from topics.server.auth.keys import REVOKED_GRACE_S, Keys
from topics.server.auth.lines import parse_keys
from topics.server.auth.scopes import Names
from topics.server.wire.patience import WireOptions
from topics.server.wire.poller import HAS_EPOLL
from topics.server.wire.tasks import WAITING_MAX, TaskPool

pytestmark = [
    pytest.mark.trio,
    pytest.mark.rule("A5.30"),
    pytest.mark.skipif(not HAS_EPOLL, reason="this system has no epoll"),
]
AUTH = b"Authorization: Bearer mine"


@pytest.fixture
def mock_clock():
    return MockClock()


def living(listener):
    """Tasks, without those that wait for a connection to serve."""
    return trio.lowlevel.current_statistics().tasks_living - len(listener._pool._waiting)


async def all_of(client):
    return b"".join([data async for data in client])


async def settled():
    await wait_all_tasks_blocked(SETTLE_S)


async def test_a_connection_at_rest_has_no_task():
    async with served() as (listener, _, port, _):
        first = await connected(port, 1)
        before = living(listener)
        clients = await connected(port, 5)
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(5)]
        await settled()

        assert (living(listener), listener.connections) == (before, 11)
        for client in (*first, *clients, *silent):
            await client.aclose()
        await settled()
        assert (living(listener), listener.connections) == (before, 0)


async def test_requests_behind_a_rest_are_answered_however_they_come():
    async with served() as (_, runtime, port, _):
        (client,) = await connected(port, 1)
        for pieces in (
            [get()],
            [WRITE],
            [WRITE[:30], WRITE[30:]],
            [WRITE + get(), WRITE],
            [WRITE[:-1], WRITE[-1:]],
        ):
            for piece in pieces:
                client.socket._sock.send(piece)
                await settled()
            text = b""
            while text.count(b"HTTP/1.1 200") < len(re.findall(b"(?:POST|GET) /", b"".join(pieces))):
                text += await client.receive_some()
        assert runtime.engine.topic_state("t").head_seq == 6
        await client.aclose()


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_is_wrong_behind_a_rest_is_refused_and_read_to_its_end(is_known):
    async with served() as (listener, _, port, _):
        client = await trio.open_tcp_stream("127.0.0.1", port)
        if is_known:
            await client.send_all(WRITE)
            await client.receive_some()
        await settled()
        client.socket._sock.send(b"NONSENSE\r\n\r\n")
        text = b""
        while b"invalid_request" not in text:
            text += await client.receive_some()
        await client.send_eof()

        assert text.startswith(b"HTTP/1.1 400")
        assert await all_of(client) == b""
        await settled()
        assert listener.connections == 0
        await client.aclose()


async def test_half_a_request_behind_a_rest_is_waited_for_as_long_as_any(mock_clock):
    async with served(wire=WireOptions(head_s=2, idle_s=9)) as (_, _, port, _):
        (client,) = await connected(port, 1)
        client.socket._sock.send(WRITE[:30])
        await settled()
        mock_clock.jump(2.5)
        text = await all_of(client)

        assert text.startswith(b"HTTP/1.1 408")
        (other,) = await connected(port, 1)  # by the task, or its successor
        for each in (client, other):
            await each.aclose()


async def test_who_is_idle_for_too_long_at_rest_is_let_go_and_who_asks_is_not(mock_clock):
    async with served(wire=WireOptions(idle_s=4)) as (listener, _, port, _):
        idle, asking = await connected(port, 2)
        mock_clock.jump(3)
        await asking.send_all(WRITE)
        await asking.receive_some()
        await settled()
        mock_clock.jump(2)
        await settled()

        assert await all_of(idle) == b""
        assert listener.connections == 1
        mock_clock.jump(3)
        await settled()
        assert await all_of(asking) == b""
        for client in (idle, asking):
            await client.aclose()


async def test_a_drain_ends_connections_at_rest_at_once_and_what_has_just_come_is_answered():
    async with served() as (listener, _, port, _):
        resting, asking = await connected(port, 2)
        asking.socket._sock.send(get())
        listener._poller._tell()  # and the task that serves it has not had its turn
        listener._site.draining = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.drain, trio.CancelScope(deadline=trio.current_time() + 5))
            assert await all_of(resting) == b""
            assert (await all_of(asking)).startswith(b"HTTP/1.1 200")
        for client in (resting, asking):
            await client.aclose()


async def test_a_connection_at_rest_ends_with_its_key(mock_clock):
    async with served(keys=Keys(parse_keys("mine,theirs"))) as (listener, _, port, _):
        client = await trio.open_tcp_stream("127.0.0.1", port)
        await client.send_all(post(b'{"records":[{"data":1}]}', AUTH, path=b"/v0/topics/t"))
        assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
        await settled()
        listener._site.keys.replace(parse_keys("theirs"))

        assert await all_of(client) == b""
        assert listener.connections == len(listener._site.wheel) == 0
        mock_clock.jump(REVOKED_GRACE_S + 1)
        await settled()
        await client.aclose()


async def gone(client, slot, how):
    """The peer goes: what it was still told."""
    told = b""
    if how == "end":
        await client.send_eof()
        told = await all_of(client)
    elif how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    else:
        slot.force()
    await client.aclose()
    await settled()
    return told


@pytest.mark.parametrize("how", ["end", "reset", "force"])
async def test_a_peer_that_goes_at_rest_is_known_no_more(how):
    async with served() as (listener, _, port, _):
        (client,) = await connected(port, 1)
        (slot,) = listener._open
        assert await gone(client, slot, how) == b""

        assert listener.connections == len(listener._site.wheel) == listener._site.bugs == 0


async def here(call):
    return call.ok({"here": True})


def fails(*_):
    raise ValueError("planted")


BUGGY = Route(
    name="here", method=b"GET", path="/here", handler=here, scope="any", names=Names.NONE, summary="", begin=fails
)  # fmt: skip


async def test_a_bug_where_bytes_are_told_ends_their_connection_only():
    async with served(more_routes=[BUGGY]) as (listener, _, port, _):
        (other,) = await connected(port, 1)
        client = await trio.open_tcp_stream("127.0.0.1", port)
        await client.send_all(get(path=b"/here"))
        assert (await client.receive_some()).startswith(b"HTTP/1.1 200")
        await settled()
        await client.send_all(get(path=b"/here"))
        text = await all_of(client)
        await other.send_all(WRITE)

        assert text.startswith(b"HTTP/1.1 500")
        assert (await other.receive_some()).startswith(b"HTTP/1.1 200")
        assert listener._site.bugs == 1
        for each in (client, other):
            await each.aclose()


def failed(bug):
    raise AssertionError from bug


class Once:
    """Served once, as a function says."""

    def __init__(self, serve):
        self._serve = serve
        self.scope = self.task = None

    async def attend(self, scope):
        self.scope, self.task = scope, trio.lowlevel.current_task()
        await self._serve(scope)


async def briefly(_):
    await trio.lowlevel.checkpoint()


async def test_one_task_serves_one_after_another():
    async with trio.open_nursery() as nursery:
        pool, served_ones = TaskPool(nursery, failed), [Once(briefly) for _ in range(3)]
        for one in served_ones:
            pool.start(one)
            await wait_all_tasks_blocked()

        assert len({one.task for one in served_ones}) == 1
        nursery.cancel_scope.cancel()


async def test_no_more_tasks_wait_than_are_kept():
    async with trio.open_nursery() as nursery:
        pool = TaskPool(nursery, failed)
        for _ in range(WAITING_MAX + 3):
            pool.start(Once(briefly))
        await wait_all_tasks_blocked()

        assert len(nursery.child_tasks) == WAITING_MAX
        nursery.cancel_scope.cancel()


async def test_a_bug_in_who_is_served_ends_nobody_else():
    async def stumble(_):
        raise ValueError

    bugs = []
    async with trio.open_nursery() as nursery:
        pool, next_one = TaskPool(nursery, bugs.append), Once(briefly)
        pool.start(Once(stumble))
        await wait_all_tasks_blocked()
        pool.start(next_one)
        await wait_all_tasks_blocked()

        assert [type(bug) for bug in bugs] == [ValueError]
        assert next_one.scope is not None
        assert len(nursery.child_tasks) == 1
        nursery.cancel_scope.cancel()


def cancel(scope):
    scope.cancel()


def be_late(scope):
    scope.deadline = -math.inf


def leave_a_deadline(scope):
    scope.deadline = trio.current_time() + 1


@pytest.mark.parametrize("leave", [cancel, be_late, leave_a_deadline])
async def test_who_is_served_next_is_given_a_scope_as_new(leave, mock_clock):
    async def spoil(scope):
        leave(scope)

    async with trio.open_nursery() as nursery:
        pool, one, next_one = TaskPool(nursery, failed), Once(spoil), Once(briefly)
        pool.start(one)
        await wait_all_tasks_blocked()
        pool.start(next_one)
        mock_clock.jump(2)
        await wait_all_tasks_blocked()

        assert next_one.scope.deadline == math.inf
        assert not next_one.scope.cancel_called
        nursery.cancel_scope.cancel()


# Streams.

BIG = post(b'{"records":[{"data":"%b"}]}' % (b"x" * 7000), path=b"/v0/topics/t")


async def watching(port, *fields, **options):
    """A client whose stream has begun and waits."""
    return (await watch_of(port, *fields, **options))[0]


async def watch_of(port, *fields, body=b'{"topics":{"t":{"tail":true}},"heartbeat_ms":1000}'):
    """The same, and the id of the watch."""
    client = await trio.open_tcp_stream("127.0.0.1", port)
    await client.send_all(post(body, *fields, path=b"/v0/watch"))
    wid = re.search(b"wid_[-_A-Za-z0-9]+", await client.receive_some())[0]
    await client.send_all(get(*fields, path=b"/v0/watch/" + wid))
    await until(client, b"event: caught-up")
    await settled()
    return client, wid


async def until(client, text):
    found = b""
    while text not in found:
        piece = await client.receive_some()
        assert piece, found
        found += piece
    return found


async def test_a_stream_has_no_task_between_its_pieces():
    async with served() as (listener, _, port, _):
        (writer,) = await connected(port, 1)
        first = await watching(port)
        before = living(listener)
        watchers = [await watching(port) for _ in range(5)]
        assert living(listener) == before
        for _ in range(3):
            await writer.send_all(WRITE)
            for client in (first, *watchers):
                await until(client, b"event: record")
            await writer.receive_some()
            await settled()
        assert living(listener) == before
        for client in (writer, first, *watchers):
            await client.aclose()


async def test_a_stream_at_rest_says_that_it_lives(mock_clock):
    async with served() as (_, _, port, _):
        client = await watching(port)
        for _ in range(3):
            mock_clock.jump(1.3)
            assert b": " in await until(client, b"\r\n")
            await settled()
        await client.aclose()


async def test_a_stream_that_ends_as_it_is_superseded_ends_once():
    """Who reconnects has closed the stream before in the same moment: the tasks of both run in any order."""
    async with served() as (listener, _, port, _):
        other = await watching(port)
        for _ in range(20):
            client, wid = await watch_of(port)
            (again,) = await connected(port, 1)
            client.socket.shutdown(socket.SHUT_WR)
            again.socket._sock.send(get(path=b"/v0/watch/" + wid))
            await until(again, b"event: caught-up")
            await client.aclose()
            await settled()
            assert listener._site.streams.taken == listener.connections == 2
            await again.aclose()
            await settled()
        assert listener._site.streams.taken == listener.connections == 1
        await other.aclose()
        assert listener._site.bugs == listener.counts.bugs == 0


@pytest.mark.parametrize("how", ["end", "reset", "force"])
async def test_a_stream_at_rest_whose_peer_goes_is_known_no_more(how):
    async with served() as (listener, runtime, port, _):
        client = await watching(port)
        (slot,) = listener._open
        await gone(client, slot, how)

        site = listener._site
        assert listener.connections == site.streams.taken == runtime.hub.readers == site.bugs == 0


async def test_a_stream_at_rest_whose_peer_says_too_much_ends():
    async with served() as (listener, _, port, _):
        client = await watching(port)
        await client.send_all(bytes(1 << 17))
        await settled()
        await client.aclose()
        await settled()

        assert listener.connections == listener._site.held_bytes == listener._site.bugs == 0


async def test_a_stream_at_rest_ends_when_its_key_has_been_none_for_a_while(mock_clock):
    async with served(keys=Keys(parse_keys("mine,theirs"))) as (listener, _, port, _):
        client = await watching(port, AUTH)
        listener._site.keys.replace(parse_keys("theirs"))
        await settled()
        assert listener.connections == 1
        mock_clock.jump(REVOKED_GRACE_S + 1)
        await all_of(client)

        assert listener.connections == listener._site.streams.taken == 0
        await client.aclose()


async def test_a_stream_at_rest_is_told_of_a_drain():
    async with served() as (_, runtime, port, _):
        client = await watching(port)
        runtime.hub.tell_all()
        text = await all_of(client)

        assert b"shutting_down" in text
        assert text.endswith(b"0\r\n\r\n")
        await client.aclose()


async def test_who_does_not_read_behind_a_rest_misses_nothing_when_he_does():
    async with served() as (listener, runtime, port, _):
        client, (writer,) = await watching(port), await connected(port, 1)
        await until(client, b'"$seq":1')
        for slot in listener._open:
            slot.edge._raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            await writer.send_all(BIG)
            await writer.receive_some()
        await settled()
        assert runtime.engine.topic_state("t").head_seq == 101
        assert listener._site.unsent_bytes >= 7000  # of the piece that did not go at once
        client.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20
        )  # else each 4096 bytes wait for a timer of TCP
        text = await until(client, b'"to_seq":101')

        assert [int(seq) for seq in re.findall(rb'"\$seq":(\d+)', text)] == list(range(2, 102))
        assert len(re.findall(rb"\bx{7000}\b", text)) == 100
        await settled()
        assert listener._site.unsent_bytes == 0
        for each in (client, writer):
            await each.aclose()


# Moments.


@pytest.mark.parametrize("durability", ["memory", "disk"])
async def test_a_revoked_key_cancels_nobody_who_is_served_by_the_same_task(durability):
    mine, theirs = b"Authorization: Bearer mine", b"Authorization: Bearer theirs"
    write = post(b'{"records":[{"data":1}]}', mine, path=b"/v0/topics/t")
    upload = post(b'{"records":[{"data":"%b"}]}' % (b"x" * 5000), theirs, path=b"/v0/topics/t")
    async with served(durability, keys=Keys(parse_keys("mine,theirs"))) as (listener, _, port, _):
        first = await trio.open_tcp_stream("127.0.0.1", port)
        for piece in (write, write[:-1], write[-1:]):  # by a head that is known, then by a task
            await first.send_all(piece)
            await settled()
        second = await trio.open_tcp_stream("127.0.0.1", port)
        for piece in (
            get(theirs, path=b"/v0/topics/t"),
            upload[:-10],
        ):  # by the same task, which waits for the rest
            await second.send_all(piece)
            await settled()
        first.socket._sock.send(write)
        first.socket.shutdown(socket.SHUT_WR)
        listener._poller._tell()
        listener._site.keys.replace(parse_keys("theirs"))
        await settled()
        await second.send_all(upload[-10:])
        await until(second, b'"last_seq":4')

        for client in (first, second):
            await client.aclose()


class Slow:
    """An edge whose peer takes nothing at once, and all when it is let."""

    def __init__(self, edge):
        self.goes = trio.Event()
        self._edge = edge

    def try_send(self, _):
        return 0

    async def send_all(self, data):
        await self.goes.wait()
        await self._edge.send_all(data)


async def test_a_drain_ends_a_connection_whose_answer_is_on_its_way():
    async with served("memory") as (listener, _, port, _):
        (client,) = await connected(port, 1)
        (slot,) = listener._open
        slow = slot.connection._link.outgoing._edge = Slow(slot.edge)
        await client.send_all(WRITE)
        await settled()
        listener._site.draining = True
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listener.drain, trio.CancelScope(deadline=trio.current_time() + 4))
            await settled()
            slow.goes.set()
            assert (await all_of(client)).startswith(b"HTTP/1.1 200")
        assert (listener.connections, listener.counts.forced) == (0, 0)
        await client.aclose()


class Stumbling:
    """A body that cannot end."""

    def __init__(self, body):
        self._body = body
        self.send = body.send

    def close(self):
        self._body.close()
        raise ValueError("planted")


@pytest.mark.parametrize("how", ["end", "reset", "force"])
async def test_a_bug_in_the_end_of_a_connection_at_rest_ends_nobody_else(how):
    async with served() as (listener, _, port, _):
        other, client = await watching(port), await watching(port)
        (slot,) = (
            one for one in listener._open if one.edge._raw.getpeername() == client.socket.getsockname()
        )
        slot.connection._stream = Stumbling(slot.connection._stream)
        await gone(client, slot, how)

        assert listener._site.bugs == 1
        assert listener.connections == 1
        (writer,) = await connected(port, 1)
        await until(other, b"event: record")
        for left in (other, writer):
            await left.aclose()
