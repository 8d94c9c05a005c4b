"""HTTP/2 requests at once are bounded, a connection's and all together, and cost what each of them costs."""

import sys

import h2.errors
import pytest
import trio
import trio.testing

from tests.server.app.h2peer import HOST, JSON, H2Peer, serving
from tests.server.wire.places import open_site
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.routes import Route
from topics.server.auth.scopes import Names

pytestmark = pytest.mark.trio

REFUSED = h2.errors.ErrorCodes.REFUSED_STREAM


async def long_polls(peer: H2Peer, count: int) -> list[int]:
    """Asked by a client that counts no streams of its own, and looked at by the server."""
    peer.forget_bounds()
    asked = [await peer.ask(b"POST", b"/v0/topics/a/diff", b'{"wait_ms":30000}', JSON) for _ in range(count)]
    await trio.testing.wait_all_tasks_blocked()
    return asked


async def pongs(peer: H2Peer) -> None:
    """Until the server has answered what was sent before."""
    pongs = peer.pongs
    peer.h2.ping(b"12345678")
    await peer.flush()
    while peer.pongs == pongs:
        assert not peer.gone, peer.goodbye
        await peer.receive()


def refused(peer: H2Peer, asked: list[int]) -> list[int]:
    assert {peer.replies[one].reset for one in asked} <= {None, REFUSED}
    return [one for one in asked if peer.replies[one].reset == REFUSED]


@pytest.mark.rule("H1.51")
async def test_streams_beyond_those_that_were_promised_are_refused_and_the_others_go_on():
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        assert peer.h2.remote_settings.max_concurrent_streams == 256
        asked = await long_polls(peer, 300)
        await pongs(peer)

        assert refused(peer, asked) == asked[256:]
        assert site.ready_runtime().hub.readers == 256

        peer.h2.reset_stream(asked[0])
        await pongs(peer)
        again = await long_polls(peer, 2)
        await pongs(peer)
        assert refused(peer, again) == again[1:], "one has gone, so one more is taken"
        await peer.edge.aclose()


@pytest.mark.rule("H1.51")
async def test_requests_of_all_connections_together_are_bounded():
    async with open_site() as site, serving(site, requests_max=10) as served:
        one, other = await served.h2(), await served.h2()
        await one.get(b"PUT", b"/v0/topics/a", b"{}")
        first, second = await long_polls(one, 8), await long_polls(other, 8)
        await pongs(one)
        await pongs(other)
        assert (refused(one, first), refused(other, second)) == ([], second[2:])
        assert served.hand_over.requests == 10

        await one.edge.aclose()
        await trio.testing.wait_all_tasks_blocked()
        third = await long_polls(other, 9)
        await pongs(other)
        assert refused(other, third) == third[8:], "a connection that ends gives back what it held"
        await other.edge.aclose()
        await served.all_ended()
        assert served.hand_over.requests == 0


@pytest.mark.rule("H1.51")
async def test_a_request_that_was_taken_back_counts_until_it_has_ended():
    gate, running = trio.Event(), []

    async def slowly(call: HandlerCall) -> Answer:
        running.append(call)
        await gate.wait()  # as a write waits for its sync: whoever asked may go, it is done all the same
        return Answer(status=200, body=b"")

    route = Route(
        name="slow",
        method=b"GET",
        path="/slow",
        handler=slowly,
        scope="any",
        names=Names.NONE,
        summary="slow",
    )
    async with open_site(more_routes=[route]) as site, serving(site, streams_max=3) as served:
        peer = await served.h2()
        for _ in range(10):
            stream = await peer.ask(b"GET", b"/slow")
            peer.h2.reset_stream(stream)
            await peer.flush()
        await pongs(peer)
        await trio.testing.wait_all_tasks_blocked()
        assert len(running) == 3

        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (await peer.get(b"GET", b"/slow")).status == 200


@pytest.mark.rule("H1.51")
@pytest.mark.parametrize("path", [b"/v0/health", b"/v0/h\xe9alth"], ids=["refused", "malformed"])
async def test_a_request_that_is_taken_back_at_once_is_refused_without_harm(path):
    """Its frames come together: when the server looks at the first, its stream has ended already."""
    async with open_site() as site, serving(site, streams_max=1) as served:
        peer = await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        asked = await long_polls(peer, 1 if path.isascii() else 0)
        stream = peer.h2.get_next_available_stream_id()
        peer.h2.send_headers(
            stream,
            [(b":method", b"GET"), (b":path", path), (b":scheme", b"http"), (b":authority", HOST)],
            end_stream=True,
        )
        peer.h2.reset_stream(stream)
        await peer.flush()
        await pongs(peer)

        assert refused(peer, asked) == []
        assert not peer.gone
        await peer.edge.aclose()


async def test_answers_to_many_streams_at_once_cost_what_each_costs():
    few, many = await calls_to_answer(60), await calls_to_answer(240)
    assert many < 5 * few, (few, many)


async def calls_to_answer(streams: int) -> int:
    """How many Python functions are entered when so many long polls of one connection are answered together."""
    count = 0

    def entered(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event == "call"

    async with open_site() as site, serving(site) as served:
        peer, other = await served.h2(), await served.h2()
        await peer.get(b"PUT", b"/v0/topics/a", b"{}")
        await long_polls(peer, streams)
        before = sys.getprofile()
        sys.setprofile(entered)
        try:
            await other.get(b"POST", b"/v0/topics/a", b'{"records":[{"data":1}]}')
            await trio.testing.wait_all_tasks_blocked()
        finally:
            sys.setprofile(before)
        await peer.edge.aclose()
    return count
