"""HTTP/2 over connections in memory: the same answers as everywhere, and what a bad client can do."""

from functools import partial

import h2.errors
import pytest
import trio
import trio.testing

from tests.server.app.h2peer import HOST, JSON, H2Peer, Reply, serving
from tests.server.wire.places import open_site
from topics.kernel.limits import KIB, Limits
from topics.server.api.call import HandlerCall
from topics.server.api.memory import STEP_BYTES
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.app.exchange import ANSWER_GRACE_S
from topics.server.app.handover import Http2HandOver
from topics.server.auth.scopes import Names
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio


async def test_topics_are_created_written_read_and_deleted():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()

        created = await peer.get(b"PUT", b"/v0/topics/a", b'{"cap_records":10}')
        wrote = await peer.get(b"POST", b"/v0/topics/a", b'{"records":[{"data": [1,  2]}]}')
        read = await peer.get(b"POST", b"/v0/topics/a/diff", b"{}")
        deleted = await peer.get(b"DELETE", b"/v0/topics/a")

        assert [r.status for r in (created, wrote, read, deleted)] == [201, 200, 200, 200]
        assert b'"data":[1,  2]' in read.body
        assert read.json["next_from_seq"] == wrote.json["last_seq"]
        assert read.headers[b"content-type"] == b"application/json"
        assert read.headers.keys() == {b":status", b"content-type", b"content-length", b"date"}


async def test_streams_are_served_side_by_side():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        assert peer.h2.remote_settings.max_concurrent_streams >= 100
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        assert peer.h2.remote_settings.max_concurrent_streams == 256

        waiting = await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)
        ids = [await peer.ask(b"GET", b"/v0/topics/a") for _ in range(255)]
        assert [(await peer.reply(i)).status for i in ids] == [200] * 255
        assert not peer.replies[waiting].ended

        await peer.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}')
        assert len((await peer.reply(waiting)).json["records"]) == 1


@pytest.mark.rule("H1.1")
async def test_all_the_promised_streams_may_wait_at_once():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        ids = [await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON) for _ in range(255)]

        await peer.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}')

        assert {(await peer.reply(i)).status for i in ids} == {200}


async def test_head_leaves_the_body_out():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        reply = await peer.get(b"HEAD", b"/v0/health")

        assert reply.status == 200
        assert int(reply.headers[b"content-length"]) > 0
        assert reply.body == b""


async def test_errors_are_those_of_the_table():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()

        async def code(method: bytes, path: bytes, body: bytes | None = None, *more: tuple[bytes, bytes]):
            reply = await peer.get(method, path, body, *more)
            return reply.status, reply.code

        assert await code(b"GET", b"/nowhere") == (404, "not_found")
        assert await code(b"GET", b"/v0//topics") == (404, "not_found")
        assert await code(b"GET", b"*") == (404, "not_found")
        assert await code(b"GET", b"/v0/topics/none") == (404, "topic_not_found")
        assert await code(b"GET", b"/v0/topics/a%2Fb") == (400, "invalid_request")
        assert await code(b"OPTIONS", b"/v0/topics/a") == (405, "method_not_allowed")
        assert await code(b"get", b"/v0/health") == (405, "method_not_allowed")
        assert await code(b"POST", b"/", b"x") == (405, "method_not_allowed")
        assert await code(b"POST", b"/v0/topics/a", b"{}", (b"content-type", b"text/plain")) == (
            415,
            "unsupported_media_type",
        )
        assert await code(b"POST", b"/v0/topics/a", b"{") == (400, "invalid_request")
        assert await code(b"GET", b"/v0/health", None, (b"expect", b"cake")) == (417, "expectation_failed")
        assert await code(b"GET", b"/v0/health", None, (b"origin", b"http://evil.example")) == (
            403,
            "forbidden",
        )
        assert await code(b"GET", b"/", None, (b"origin", b"http://evil.example")) == (403, "forbidden")
        assert await code(
            b"GET", b"/v0/health", None, (b"origin", b"http://a"), (b"origin", b"http://b")
        ) == (
            400,
            "invalid_request",
        )


async def test_the_host_is_the_authority():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        stream = await peer.ask(b"GET", b"/v0/health", authority=b"rebound.example")
        assert (await peer.reply(stream)).code == "misdirected_request"
        stream = await peer.ask(b"GET", b"/", authority=b"rebound.example")
        assert (await peer.reply(stream)).code == "misdirected_request"

        stream = await peer.ask(b"GET", b"/v0/health", None, (b"host", HOST), authority=None)
        assert (await peer.reply(stream)).status == 200
        stream = await peer.ask(b"GET", b"/v0/health", None, (b"origin", b"http://" + HOST))
        assert (await peer.reply(stream)).status == 200


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"authority": None}, id="none"),
        pytest.param({"authority": HOST, "more": (b"host", b"other.example")}, id="two that differ"),
    ],
)
async def test_a_request_without_one_host_ends_its_connection(fields):
    async with open_site() as site, serving(site) as served:
        other, peer = await served.h2(), await served.h2()
        more = [fields["more"]] if "more" in fields else []
        await peer.ask(b"GET", b"/v0/health", None, *more, authority=fields["authority"])
        await peer.until_gone()

        assert peer.goodbye == h2.errors.ErrorCodes.PROTOCOL_ERROR
        assert (await other.get(b"GET", b"/v0/health")).status == 200


@pytest.mark.rule("H10.9")
async def test_connect_and_websocket_are_not_implemented():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        for headers in (
            [(b":method", b"CONNECT"), (b":authority", HOST)],
            [
                (b":method", b"CONNECT"),
                (b":protocol", b"websocket"),
                (b":scheme", b"http"),
                (b":path", b"/v0/ws"),
                (b":authority", HOST),
                (b"sec-websocket-version", b"13"),
            ],
        ):
            stream = await peer.ask(b"GET", b"/v0/health")
            await peer.reply(stream)
            peer._stream_id += 2
            peer.replies[peer._stream_id] = Reply()
            peer.h2.send_headers(peer._stream_id, headers)
            await peer.flush()
            reply = await peer.reply(peer._stream_id)
            assert (reply.status, reply.code) == (501, "not_implemented")
        reply = await peer.get(b"GET", b"/v0/ws")
        assert (reply.status, reply.code) == (501, "not_implemented")
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


async def test_repeated_headers_are_joined():
    seen = []

    async def handler(call: HandlerCall) -> Answer:
        seen.append({name: call.head.headers.get(name) for name in (b"x-a", b"cookie", b"host")})
        return Answer(200, b"{}")

    route = Route(
        name="see", method=b"GET", path="/see", handler=handler, scope="any", names=Names.NONE, summary="see"
    )
    async with open_site(more_routes=[route]) as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(
            b"GET", b"/see", None, (b"x-a", b"1"), (b"x-a", b"2"), (b"cookie", b"a=1"), (b"cookie", b"b=2")
        )

    assert seen == [{b"x-a": b"1, 2", b"cookie": b"a=1; b=2", b"host": HOST}]


async def test_a_bug_in_a_handler_ends_its_request_only():
    async def handler(call: HandlerCall) -> Answer:
        raise RuntimeError("planted")

    route = Route(
        name="bug", method=b"GET", path="/bug", handler=handler, scope="any", names=Names.NONE, summary="bug"
    )
    async with open_site(more_routes=[route]) as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        waiting = await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)

        reply = await peer.get(b"GET", b"/bug")
        assert (reply.status, reply.code) == (500, "internal")
        assert "planted" not in reply.json["error"]["message"]

        await peer.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}')
        assert (await peer.reply(waiting)).status == 200


# Bodies.


async def test_a_body_larger_than_the_limit_is_refused_before_it_is_read(autojump_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        stream = await peer.ask(
            b"POST", b"/v0/topics/a", None, JSON, (b"content-length", b"100000000"), ends=False
        )
        reply = await peer.reply(stream)
        assert (reply.status, reply.code) == (413, "payload_too_large")
        while reply.reset is None:
            await peer.receive()
        assert reply.reset == h2.errors.ErrorCodes.NO_ERROR
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


@pytest.mark.parametrize("declared", [True, False])
async def test_a_client_that_sends_on_is_stopped(declared, autojump_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        size = 1 << 20
        more = [(b"content-length", b"%d" % size)] if declared else []
        stream = await peer.ask(b"POST", b"/v0/topics/a", b" " * size, JSON, *more)
        reply = await peer.reply(stream)

        assert (reply.status, reply.code) == (413, "payload_too_large")
        assert reply.reset == h2.errors.ErrorCodes.NO_ERROR
        assert (await peer.get(b"GET", b"/v0/health")).status == 200


async def test_a_body_in_frames_of_one_byte_is_read():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        stream = await peer.ask(b"POST", b"/v0/topics/a", None, JSON, ends=False)
        for byte in b'{"records":[{"data":1}]}':
            await peer.send_body(stream, bytes([byte]), ends=False)
        await peer.send_body(stream, b"")
        assert (await peer.reply(stream)).status == 201


async def test_a_slow_body_is_timed_out(autojump_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        stream = await peer.ask(b"POST", b"/v0/topics/a", b'{"rec', JSON, ends=False)
        reply = await peer.reply(stream)
        assert (reply.status, reply.code) == (408, "request_timeout")


async def test_bodies_and_answers_are_as_fast_as_the_settings_say(autojump_clock):
    async with open_site(bytes_per_s=100) as site, serving(site) as served:
        peer = await served.h2()
        began = trio.current_time()
        stream = await peer.ask(b"POST", b"/v0/topics/a", b" " * 1000, JSON, ends=False)
        reply = await peer.reply(stream)
        assert (reply.status, reply.code) == (408, "request_timeout")
        assert b"slower than the limit of 100 bytes a second" in reply.body
        assert 19 < trio.current_time() - began < 21, "10 s, and 10 more for 1000 bytes"

        lazy = await served.h2()
        size = len((await lazy.get(b"GET", b"/v0/openapi.json")).body)
        lazy.auto_window = False
        began = trio.current_time()
        streams = [await lazy.ask(b"GET", b"/v0/openapi.json") for _ in range(5)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_awake, lazy)
            assert (await lazy.reply(streams[-1])).reset == h2.errors.ErrorCodes.CANCEL
            nursery.cancel_scope.cancel()
        late_s = trio.current_time() - began - (ANSWER_GRACE_S + size / 100)
        assert 0 <= round(late_s, 6) < 1  # seconds are floats: 2050.32 - 20 is a little less than 2030.32


async def keep_awake(peer):
    """A connection from which nothing comes for two minutes is ended."""
    while True:
        await trio.sleep(60)
        peer.h2.ping(b"12345678")
        await peer.flush()


async def test_bytes_held_are_bounded_and_given_back():
    async with open_site(held_bytes_max=4000) as site, serving(site) as served:
        peer = await served.h2()
        slow = await peer.ask(b"POST", b"/v0/topics/a", b"", JSON, (b"content-length", b"3000"), ends=False)
        reply = await peer.get(b"POST", b"/v0/topics/a", b" " * 2000, (b"content-length", b"2000"))
        assert (reply.status, reply.code) == (429, "throttled")
        assert reply.headers[b"retry-after"] == b"1"
        peer.h2.reset_stream(slow)
        await peer.flush()
        await peer.get(b"GET", b"/v0/health")
        assert site.held_bytes == 0


async def test_a_body_is_held_as_it_comes_and_refused_in_the_middle_if_it_does_not_fit():
    length = (b"content-length", b"%d" % (4 * STEP_BYTES))
    async with (
        open_site(limits=Limits(), held_bytes_max=3 * STEP_BYTES) as site,
        serving(site) as served,
    ):
        peer = await served.h2()
        stream = await peer.ask(b"POST", b"/v0/topics/a", b"{", JSON, length, ends=False)
        await peer.get(b"GET", b"/v0/health")
        assert site.held_bytes == STEP_BYTES
        await peer.send_body(stream, b" " * (3 * STEP_BYTES), ends=False)

        reply = await peer.reply(stream)
        assert (reply.status, reply.code) == (429, "throttled")
        assert (await peer.get(b"GET", b"/v0/health")).status == 200
        assert site.held_bytes == 0


async def test_expect_is_answered_with_continue():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        expect = (b"expect", b"100-continue")
        stream = await peer.ask(b"POST", b"/v0/topics/a", None, JSON, expect, ends=False)
        while not peer.replies[stream].informational:
            await peer.receive()
        await peer.send_body(stream, b'{"records":[{"data":1}]}')
        reply = await peer.reply(stream)
        assert (reply.informational, reply.status) == ([b"100"], 201)

        stream = await peer.ask(b"POST", b"/nowhere", None, JSON, expect, ends=False)
        reply = await peer.reply(stream)
        assert (reply.informational, reply.status) == ([], 404)


# Ends.


async def test_a_long_poll_ends_with_its_stream_or_its_connection():
    async with open_site() as site, serving(site) as served:
        peer, lost = await served.h2(), await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        wait = b'{"wait_ms":30000}'
        first = await peer.ask(b"POST", b"/v0/topics/a/diff", wait, JSON)
        await lost.ask(b"POST", b"/v0/topics/a/diff", wait, JSON)
        await lost.get(b"GET", b"/v0/health")
        await peer.get(b"GET", b"/v0/health")
        assert site.ready_runtime().hub.readers == 2

        peer.h2.reset_stream(first)
        await peer.flush()
        await lost.edge.aclose()
        await peer.get(b"GET", b"/v0/health")
        await trio.testing.wait_all_tasks_blocked()

        assert site.ready_runtime().hub.readers == 0
        assert served.hand_over.connections == 1
        assert (await peer.get(b"GET", b"/v0/health")).status == 200
        await peer.edge.aclose()
        await served.all_ended()


async def test_requests_that_are_taken_back_leave_nothing_in_their_connection():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        tasks = trio.lowlevel.current_statistics().tasks_living
        for _ in range(100):
            for ask in (
                peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON),
                peer.ask(b"POST", b"/v0/topics/a", b"{", JSON, ends=False),
                peer.ask(b"GET", b"/v0/openapi.json"),
            ):
                peer.h2.reset_stream(await ask)
                await peer.flush()
            refused = await peer.ask(b"POST", b"/nowhere", b"{", JSON, ends=False)
            await peer.reply(refused)
            peer.h2.reset_stream(refused)
            await peer.flush()
        await peer.get(b"GET", b"/v0/health")
        await trio.testing.wait_all_tasks_blocked()

        (connection,) = served.hand_over._live
        protocol = connection._protocol
        assert protocol.resting
        for kept in (protocol.streams, protocol.stream_buffers, protocol._receiving, protocol._unwanted):
            assert len(kept) == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert site.held_bytes == 0


async def test_an_answer_nobody_takes_is_given_up(autojump_clock):
    async with open_site(bytes_per_s=16 * KIB) as site, serving(site) as served:
        peer = await served.h2()
        peer.auto_window = False
        await peer.get(b"GET", b"/v0/openapi.json")
        streams = [await peer.ask(b"GET", b"/v0/openapi.json") for _ in range(20)]
        await peer.until_gone()

        assert peer.replies[streams[-1]].reset == h2.errors.ErrorCodes.CANCEL


async def test_answers_that_nobody_takes_are_bounded_together():
    async with open_site(limits=Limits(), unsent_bytes_max=250_000) as site, serving(site) as served:
        lazy, peer = await served.h2(), await served.h2()
        lazy.auto_window = False
        await peer.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":"%b"}]}' % (b"a" * 100_000))
        waiting = [await lazy.ask(b"POST", b"/v0/topics/a/diff", b"{}", JSON) for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        assert 200_000 < site.unsent_bytes < 250_000

        refused = await peer.get(b"POST", b"/v0/topics/a/diff", b"{}")
        assert (refused.status, refused.code) == (429, "throttled")
        assert refused.json["error"]["detail"] == {"limit": "unsent_answer_bytes", "max": 250_000}
        dropped = await peer.ask(b"GET", b"/v0/openapi.json")
        assert (await peer.reply(dropped)).reset == h2.errors.ErrorCodes.CANCEL
        assert (await peer.get(b"GET", b"/v0/health")).status == 200
        assert site.unsent_dropped == 1

        lazy.h2.reset_stream(waiting[0])
        await lazy.flush()
        await trio.testing.wait_all_tasks_blocked()
        assert (await peer.get(b"POST", b"/v0/topics/a/diff", b"{}")).status == 200
        await lazy.edge.aclose()


async def test_a_connection_at_rest_ends_after_its_time(autojump_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(b"GET", b"/v0/health")
        began = trio.current_time()
        await peer.until_gone()

        assert peer.goodbye == h2.errors.ErrorCodes.NO_ERROR
        assert 74 < trio.current_time() - began < 80


async def test_pings_do_not_keep_a_connection_at_rest_alive(autojump_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        began = trio.current_time()
        while not peer.gone:
            peer.h2.ping(b"12345678")
            with trio.move_on_after(10):
                await peer.flush()
                while True:
                    await peer.receive()
                    if peer.gone:
                        break
        assert trio.current_time() - began < 85


async def test_a_drain_lets_requests_end_and_takes_no_new_ones():
    async with open_site() as site, serving(site) as served:
        resting, busy = await served.h2(), await served.h2()
        await resting.get(b"GET", b"/v0/health")
        await busy.get(b"PUT", b"/v0/topics/a", b"{}")
        waiting = await busy.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)
        await trio.testing.wait_all_tasks_blocked()

        await served.hand_over.drain()
        await resting.until_gone()
        assert resting.goodbye == h2.errors.ErrorCodes.NO_ERROR
        late = await busy.ask(b"GET", b"/v0/health")
        assert (await busy.reply(late)).reset == h2.errors.ErrorCodes.REFUSED_STREAM

        site.ready_runtime().hub.tell_all()
        site.ready_runtime().closing = True
        assert (await busy.reply(waiting)).status == 200
        await busy.until_gone()
        assert busy.goodbye == h2.errors.ErrorCodes.NO_ERROR


async def test_a_cancelled_server_does_not_wait_for_a_peer_that_reads_nothing():
    async with open_site() as site:
        hand_over = Http2HandOver(site)
        client, server = edge_pair()
        peer = H2Peer(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(hand_over, server, b"", http2=True))
            await peer.start()
            peer.h2.ping(b"12345678")
            await peer.edge.send_all(peer.h2.data_to_send() * 1500)
            for _ in range(40):
                await peer.ask(b"GET", b"/v0/openapi.json")
            await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            nursery.cancel_scope.cancel()
        assert trio.current_time() - began < 1
        assert server.closed
        assert hand_over.connections == site.held_bytes == 0


async def test_requests_of_a_cancelled_server_are_given_no_answer_that_nobody_would_send():
    async with open_site() as site:
        hand_over = Http2HandOver(site)
        client, server = edge_pair()
        peer = H2Peer(client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(hand_over, server, b"", http2=True))
            await peer.start()
            await peer.get(b"PUT", b"/v0/topics/a", b"{}")
            for _ in range(40):
                await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON)
            await trio.testing.wait_all_tasks_blocked()
            (connection,) = hand_over._live
            nursery.cancel_scope.cancel()
        assert not connection._outgoing


async def test_a_forced_close_ends_a_send_that_nobody_takes():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        for _ in range(200):  # more than the pipe holds
            peer.h2.ping(b"12345678")
        for _ in range(40):
            await peer.ask(b"GET", b"/v0/openapi.json")
        await trio.testing.wait_all_tasks_blocked()
        await served.hand_over.drain()
        await trio.testing.wait_all_tasks_blocked()
        assert served.hand_over.connections == 1

        served.edges[0].close()
        await served.all_ended()
        assert served.hand_over.connections == 0
