"""Topics watched over HTTP/2: one route table, so the same events, many streams in one connection (http-api 9)."""

import json

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.api.asking import said
from tests.server.app.h2peer import serving
from tests.server.wire.places import open_site
from tests.server.wire.playing import pass_time

pytestmark = pytest.mark.trio
JSON = (b"content-type", b"application/json")


@pytest.fixture
def mock_clock():
    return MockClock()


def events(reply):
    """What has come whole: (name, data)."""
    found = []
    for one in reply.body.decode().split("\n\n")[:-1]:
        fields = dict(line.partition(": ")[::2] for line in one.split("\n"))
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def until(peer, stream, count):
    with trio.fail_after(60):
        while len(events(peer.replies[stream])) < count:
            await peer.receive()
    return events(peer.replies[stream])


@pytest.mark.rule("H9.6", "H9.11", "H9.13", "H9.14")
async def test_streams_side_by_side_in_one_connection(mock_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await said(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
        wids = []
        for _ in range(2):
            asked = await peer.ask(b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', JSON)
            wids.append((await peer.reply(asked)).json["wid"])
        streams = [await peer.ask(b"GET", f"/v0/watch/{wid}".encode()) for wid in wids]
        for stream in streams:
            assert [name for name, _ in await until(peer, stream, 2)] == ["record", "caught-up"]
            headers = peer.replies[stream].headers
            assert headers[b"content-type"] == b"text/event-stream"
            assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-store", b"no")
            assert peer.replies[stream].body.startswith(b"retry: 2000\nid: ")
        await said(site, "POST", "/v0/topics/t", {"records": [{"data": 2}]})
        for stream in streams:
            assert (await until(peer, stream, 3))[-1][1]["to_seq"] == 2
        assert site.streams.taken == 2
        peer.h2.reset_stream(streams[0])
        await peer.flush()
        await wait_all_tasks_blocked()
        assert (site.streams.taken, site.ready_runtime().hub.topics) == (1, 1)
        again = await peer.ask(b"GET", f"/v0/watch/{wids[1]}".encode())
        assert (await until(peer, streams[1], 4))[-1][1]["reason"] == "superseded"
        assert (await peer.reply(streams[1])).ended
        await said(site, "DELETE", "/v0/topics/t")
        assert (await until(peer, again, 2))[-1][0] == "topic-deleted"
        assert (await peer.reply(again)).ended
        assert (site.streams.taken, site.watch_sessions.taken) == (0, 1)


@pytest.mark.rule("S11.1", "S11.2")
async def test_little_is_held_for_a_window_that_stays_shut(mock_clock):
    """Pieces that were smaller than Hypercorn's buffer were taken without end."""
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await said(site, "PUT", "/v0/topics/t", {"cap_records": 3})
        asked = await peer.ask(b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', JSON)
        wid = (await peer.reply(asked)).json["wid"]
        stream = await peer.ask(b"GET", f"/v0/watch/{wid}".encode())
        await until(peer, stream, 1)
        peer.auto_window = False
        writer = await served.h2()
        for _ in range(60):
            body = json.dumps({"records": [{"data": "x" * 4000}]}).encode()
            assert (await writer.reply(await writer.ask(b"POST", b"/v0/topics/t", body, JSON))).status == 200
            await wait_all_tasks_blocked()
        peer.auto_window = True
        peer.h2.increment_flow_control_window(1 << 20, stream)
        peer.h2.increment_flow_control_window(1 << 20)
        await peer.flush()
        while events(peer.replies[stream])[-1][1]["head_seq"] < 60:
            await peer.receive()
        names = [name for name, _ in events(peer.replies[stream])]
        assert "tombstone" in names  # it went on where it was, with what there was by then
        assert len(peer.replies[stream].body) < 150_000


@pytest.mark.rule("S11.3", "H9.15")
async def test_who_takes_nothing_for_long_is_cut_and_may_come_back(mock_clock):
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        for _ in range(40):
            await said(site, "POST", "/v0/topics/t", {"records": [{"data": "x" * 4000}]})
        asked = await peer.ask(b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', JSON)
        wid = (await peer.reply(asked)).json["wid"]
        peer.auto_window = False
        stream = await peer.ask(b"GET", f"/v0/watch/{wid}".encode())
        while len(peer.replies[stream].body) < 60_000:
            await peer.receive()
        await pass_time(29)
        assert site.streams.taken == 1
        await pass_time(5)
        assert (site.streams.taken, site.watch_sessions.taken, site.slow_consumers) == (0, 1, 1)
        back = await served.h2()
        back.auto_window = False
        stream = await back.ask(b"GET", f"/v0/watch/{wid}".encode())
        while len(back.replies[stream].body) < 60_000:
            await back.receive()
        await pass_time(30.5)  # too long, and there again
        back.auto_window = True
        back.h2.increment_flow_control_window(1 << 20, stream)
        back.h2.increment_flow_control_window(1 << 20)
        await back.flush()
        assert (await back.reply(stream)).ended
        found = events(back.replies[stream])
        assert found[0][1]["records"][0]["$seq"] == 1  # nothing of it had come whole before
        name, told = found[-1]
        assert (name, told["code"], told["reason"]) == ("error", 408, "slow_consumer")
        assert (site.streams.taken, site.watch_sessions.taken, site.slow_consumers) == (0, 1, 2)


@pytest.mark.rule("H9.10")
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_quiet_stream_lasts_as_long_as_its_client_is_there(mock_clock, is_there):
    """He has nothing to say for as long as nothing happens, so he is asked; he answers unless he is gone."""
    async with open_site() as site, serving(site) as served:
        peer = await served.h2()
        await said(site, "PUT", "/v0/topics/t")
        asked = await peer.ask(b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', JSON)
        stream = await peer.ask(b"GET", f"/v0/watch/{(await peer.reply(asked)).json['wid']}".encode())
        await until(peer, stream, 1)
        for _ in range(40):
            await pass_time(10)
            while is_there and peer.edge.unread_bytes:
                await peer.receive()
        assert site.streams.taken == is_there
        assert served.hand_over.connections == is_there
