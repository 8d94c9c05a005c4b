"""What a key has under way: it ends within a second of the key's end, and it is bounded while the key lives."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.app.h2peer import H2Peer, serving
from tests.server.planes import JSON
from tests.server.wire.places import alone, begun, new_site, open_site, serve_connection
from tests.server.wire.playing import Client, pass_time
from tests.server.wire.sockets import SocketPeer, head, socket_of, text
from topics.embed.aio.thread import Threads
from topics.kernel.errors import Rejected
from topics.server.api.message import Head
from topics.server.auth.keys import KeyCaps, Keys
from topics.server.auth.lines import parse_keys
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio
POLL = b"/v0/topics/t/diff"
WAITING = b'{"wait_ms":30000}'
WORK = b"/v0/topics/q/work?node=n"
MINE, THEIRS = (b"authorization", b"Bearer mine"), (b"authorization", b"Bearer theirs")


@pytest.fixture
def mock_clock():
    return MockClock()


def two_keys(**caps):
    return Keys(parse_keys("mine,theirs"), KeyCaps(**caps))


@asynccontextmanager
async def place(**caps):
    """A site with a log `t`, a queue `q` with a job, and how to connect to it."""
    async with begun_site(**caps) as site, trio.open_nursery() as nursery:
        there = Place(site, nursery)
        setup = await there.client()
        for method, path, body in [
            (b"PUT", b"/v0/topics/t", b"{}"), (b"PUT", b"/v0/topics/q", b'{"type":"queue"}'),
            (b"POST", b"/v0/topics/q", b'{"records":[{"data":1}]}'),
        ]:  # fmt: skip
            await send(setup, method, path, body, THEIRS)
            assert (await setup.answer()).status < 300
        await setup.edge.aclose()
        yield there
        for edge in there.edges:
            await edge.aclose()


class Place:
    def __init__(self, site, nursery):
        self.site, self.nursery = site, nursery
        self.edges = {}  # the server's, by ours

    async def client(self, capacity=1 << 16):
        ours, theirs = edge_pair(back=capacity)
        self.edges[ours] = theirs
        self.nursery.start_soon(serve_connection, theirs, self.site)
        return Client(ours)

    async def socket(self, field=b"Authorization: Bearer mine", **how):
        peer = SocketPeer((await self.client(**how)).edge)
        await peer.open(head(field))
        return peer

    def revoke(self, left="theirs"):
        return self.site.keys.replace(parse_keys(left))

    def ended(self, *clients):
        """Of each whether the server has ended its connection."""
        return [self.edges[client.edge].closed for client in clients]

    @property
    def ready(self):
        return self.site.ready_runtime().engine.topic_state("q").queue.ready

    @property
    def readers(self):
        return self.site.ready_runtime().hub.readers


async def send(client, method, path, body=b"", *fields):
    lines = [b"host: localhost", b"content-length: %d" % len(body)]
    lines += [b"%b: %b" % field for field in ((JSON, *fields) if body else fields)]
    await client.send(b"%b %b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, path, b"\r\n".join(lines), body))


@pytest.mark.rule("H2.23")
async def test_a_head_that_came_before_its_key_was_revoked_lets_nobody_in(mock_clock):
    async with place() as there:
        again = Head(b"GET", b"/v0/topics/t", headers={b"host": b"localhost", MINE[0]: MINE[1]})
        there.site.admit(again).end()
        there.site.admit(again).end()
        there.revoke()

        with pytest.raises(Rejected) as refused:
            there.site.admit(again)
        assert refused.value.code.value == "unauthorized"


@pytest.mark.rule("H2.23")
@pytest.mark.parametrize("left", ["theirs", "theirs,mine:read", "theirs,mine::t"])
async def test_an_idle_connection_of_a_key_that_is_gone_or_changed_ends_and_others_go_on(mock_clock, left):
    async with place() as there:
        one, other = await there.client(), await there.client()
        for client, field in [(one, MINE), (other, THEIRS)]:
            await send(client, b"GET", b"/v0/topics/t", b"", field)
            assert (await client.answer()).status == 200
        there.revoke(left)
        await wait_all_tasks_blocked()

        await one.end()
        await send(other, b"GET", b"/v0/topics/t", b"", THEIRS)
        assert (await other.answer()).status == 200


@pytest.mark.rule("H2.23")
async def test_what_waits_over_http1_ends_within_a_second(mock_clock):
    async with place() as there:
        poll, work, slow = await there.client(), await there.client(), await there.client()
        await send(poll, b"POST", POLL, WAITING, MINE)
        await send(work, b"GET", WORK, b"", MINE)
        await slowly(slow)
        await wait_all_tasks_blocked()
        assert (there.readers, there.ready) == (1, 0)
        there.revoke()
        await pass_time(1)

        assert (there.readers, there.ready) == (0, 1)
        assert there.ended(poll, work, slow) == [True, True, True]


@pytest.mark.rule("H2.23")
async def test_a_websocket_is_told_and_its_claims_end(mock_clock):
    async with place() as there:
        peer, silent = await there.socket(), await there.socket(capacity=1 << 10)
        await peer.send(text(op="work", topic="q", node="n", max=1))
        assert [one["op"] for one in await peer.messages(2)] == ["working", "job"]
        await peer.send(text(op="claim", topic="q", node="n", wait_ms=30_000, request_id=1))
        for i in range(300):  # and it never reads
            await silent.send(text(op="ping", request_id=i))
        await wait_all_tasks_blocked()
        there.revoke()
        await wait_all_tasks_blocked()

        claimed, closed = await peer.message(), await peer.frame()
        assert (claimed["op"], claimed["code"], claimed["request_id"]) == ("error", "unauthorized", 1)
        assert closed.close == (1008, "the key was revoked")
        await pass_time(1)
        assert there.ready == 1
        assert there.ended(peer, silent) == [True, True]


@pytest.mark.rule("H2.23")
async def test_what_waits_over_http2_ends_within_a_second(mock_clock):
    async with begun_site() as site, serving(site) as served:
        peer, queue = await served.h2(), site.ready_runtime().engine
        await made(peer)
        alone_, both = await served.h2(), await served.h2()
        polled = await alone_.ask(b"POST", POLL, WAITING, JSON, MINE)
        work = await alone_.ask(b"GET", WORK, None, MINE)
        mine = await both.ask(b"POST", POLL, WAITING, JSON, MINE)
        theirs = await both.ask(b"POST", POLL, WAITING, JSON, THEIRS)
        await wait_all_tasks_blocked()
        assert (site.ready_runtime().hub.readers, queue.topic_state("q").queue.ready) == (3, 0)
        site.keys.replace(parse_keys("theirs"))
        await wait_all_tasks_blocked()

        assert (await alone_.reply(polled)).status == 401
        assert (await alone_.reply(work)).reset is not None
        assert (await both.reply(mine)).status == 401
        await pass_time(1)
        await alone_.until_gone()
        assert alone_.goodbye == 0
        assert (site.ready_runtime().hub.readers, queue.topic_state("q").queue.ready) == (1, 1)
        await peer.get(b"POST", b"/v0/topics/t", b'{"records":[{"data":1}]}', JSON, THEIRS)
        assert (await both.reply(theirs)).status == 200
        assert not both.gone


@asynccontextmanager
async def begun_site(**caps):
    site = new_site(keys=two_keys(**caps))
    threads = Threads(inline_bytes_max=1 << 20)  # so that who waits is blocked, and nobody else
    async with alone(), begun(site, threads=threads):
        yield site


async def made(peer: H2Peer) -> None:
    for method, path, body in [
        (b"PUT", b"/v0/topics/t", b"{}"), (b"PUT", b"/v0/topics/q", b'{"type":"queue"}'),
        (b"POST", b"/v0/topics/q", b'{"records":[{"data":1}]}'),
    ]:  # fmt: skip
        assert (await peer.get(method, path, body, JSON, THEIRS)).status < 300


# Bounds.


@pytest.mark.rule("H11.17", "H11.13")
async def test_requests_of_a_key_are_bounded_and_make_room_when_they_end(mock_clock):
    async with place(requests=2) as there:
        first, second, other = await there.client(), await there.client(), await there.client()

        async def asked(field=MINE):
            await send(other, b"GET", b"/v0/topics/t", b"", field)
            return await other.answer()

        await send(first, b"POST", POLL, WAITING, MINE)
        await slowly(second)  # one that does not come whole counts, too
        await wait_all_tasks_blocked()
        refused = await asked()
        assert (refused.status, refused.error["detail"]) == (429, {"limit": "requests_per_key", "max": 2})
        assert (await asked(THEIRS)).status == 200
        for client in (first, second):
            await client.edge.aclose()  # its peer goes
            await pass_time(0.1)
            assert (await asked()).status == 200
        assert there.site.keys.find(b"mine").requests == 0
        for method, path, body in [(b"POST", b"/v0/topics/t", b"{"), (b"PUT", b"/v0/topics/-", b"{}")]:
            client = await there.client()
            await send(client, method, path, body, MINE)
            assert (await client.answer()).status == 400
        assert there.site.keys.find(b"mine").requests == 0


async def slowly(client):
    """A write whose body does not come."""
    await client.send(b"POST /v0/topics/t HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer mine\r\n")
    await client.send(b"content-type: application/json\r\ncontent-length: 50\r\n\r\n{")


@pytest.mark.rule("H11.17", "H11.13")
async def test_streams_of_a_key_are_bounded_and_make_room_when_they_end(mock_clock):
    async with place(streams=2, requests=1) as there:
        work, socket, third = await there.client(), await there.socket(), await there.client()
        await send(work, b"GET", WORK, b"", MINE)
        await wait_all_tasks_blocked()
        await send(third, b"GET", WORK, b"", MINE)
        refused = await third.answer()
        assert (refused.status, refused.error["detail"]) == (429, {"limit": "streams_per_key", "max": 2})
        await third.send(head(b"Authorization: Bearer mine"))
        assert (await third.answer()).status == 429

        await socket.edge.aclose()
        await pass_time(0.1)
        again = await there.socket()
        await work.edge.aclose()
        await pass_time(0.1)
        await there.socket()
        assert there.site.keys.find(b"mine").streams == 2
        await again.edge.aclose()
        await pass_time(0.1)
        assert there.site.keys.find(b"mine").streams == 1


@pytest.mark.rule("H11.17", "H11.13")
async def test_over_http2_they_are_the_same(mock_clock):
    async with begun_site(streams=1, requests=1) as site, serving(site) as served:
        peer = await served.h2()
        await made(peer)
        work = await peer.ask(b"GET", WORK, None, MINE)
        poll = await peer.ask(b"POST", POLL, WAITING, JSON, MINE)
        await wait_all_tasks_blocked()
        assert (await peer.get(b"GET", b"/v0/topics/t", None, MINE)).json["error"]["detail"][
            "limit"
        ] == "requests_per_key"
        for stream in (poll, work):
            peer.h2.reset_stream(stream)
        await peer.flush()
        await pass_time(0.1)
        mine = site.keys.find(b"mine")
        assert (mine.requests, mine.streams) == (0, 0)
        work = await peer.ask(b"GET", WORK, None, MINE)
        await wait_all_tasks_blocked()
        assert (await peer.get(b"GET", WORK, None, MINE)).json["error"]["detail"][
            "limit"
        ] == "streams_per_key"
        assert mine.streams == 1
        await peer.edge.aclose()
        await pass_time(0.1)
        assert (mine.requests, mine.streams) == (0, 0)


async def test_a_socket_is_no_request_under_way(mock_clock):
    request = head(b"Authorization: Bearer mine")
    async with open_site(keys=two_keys(requests=1)) as site, socket_of(site, request=request) as (peer, _):
        assert (await peer.ask(op="ping"))["op"] == "pong"
        assert site.keys.find(b"mine").requests == 0


@pytest.mark.rule("H2.23", "H9.5", "H9.10")
async def test_a_watch_is_its_keys_and_ends_with_it(mock_clock):
    async with place(sessions=1) as there:
        mine, theirs = await there.client(), await there.client()
        await send(mine, b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', MINE)
        wid = (await mine.answer()).json["wid"].encode()
        await send(theirs, b"GET", b"/v0/watch/" + wid, b"", THEIRS)
        assert (await theirs.answer()).status == 404
        await send(mine, b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', MINE)
        refused = await mine.answer()
        assert (refused.status, refused.error["detail"]) == (
            429,
            {"limit": "watch_sessions_per_key", "max": 1},
        )

        await send(mine, b"GET", b"/v0/watch/" + wid, b"", MINE)
        await wait_all_tasks_blocked()
        assert there.site.streams.taken == 1
        there.revoke()
        await pass_time(1)
        assert there.ended(mine, theirs) == [True, False]
        assert (there.site.streams.taken, there.site.watch_sessions.taken) == (0, 0)
        there.site.keys.replace(parse_keys("mine,theirs"))
        again = await there.client()
        await send(again, b"GET", b"/v0/watch/" + wid, b"", MINE)
        assert (await again.answer()).status == 404


@pytest.mark.rule("H2.23")
async def test_who_lags_ends_as_soon_and_nothing_of_him_is_held(mock_clock):
    async with place() as there:
        stream, writer = await there.client(capacity=500), await there.client()
        await send(stream, b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', MINE)
        wid = (await stream.answer()).json["wid"].encode()
        await send(stream, b"GET", b"/v0/watch/" + wid, b"", MINE)
        socket = await there.socket(capacity=700)
        await socket.send(text(op="subscribe", topic="t"))
        for _ in range(4):
            await send(
                writer, b"POST", b"/v0/topics/t", b'{"records":[{"data":"%b"}]}' % (b"x" * 4000), THEIRS
            )
            assert (await writer.answer()).status == 200
        for _ in range(5):  # the first waits for what is being pushed, the others behind it
            await socket.send(text(op="unsubscribe", topic="t"), text(op="subscribe", topic="t"))
        await wait_all_tasks_blocked()
        site, mine = there.site, there.site.keys.find(b"mine")
        assert (mine.streams, mine.sessions, site.answers.size > 8000) == (2, 1, True)
        there.revoke()
        await pass_time(1)

        assert there.ended(stream, socket, writer) == [True, True, False]
        assert (mine.streams, mine.sessions, site.streams.taken, site.watch_sessions.taken) == (0, 0, 0, 0)
        assert (site.answers.size, site.held_bytes, site.unsent_bytes, site.bugs) == (0, 0, 0, 0)
        assert (there.readers, site.ready_runtime().hub.topics, len(site.ready_runtime().wheel)) == (0, 0, 0)
