"""Nothing is claimed for a client that is gone: while it waits, when its jobs are on their way, when they are sent."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.api.asking import ask
from tests.server.wire.places import alone, begun, new_site, serve_connection
from tests.server.wire.playing import Client
from topics.testing.clock import ManualClock
from topics.testing.streams import edge_pair

pytestmark = [pytest.mark.trio, pytest.mark.rule("Q4.2")]
Q = "/v0/topics/q"


def claiming(**fields) -> bytes:
    body = msgspec.json.encode({"node": "w", **fields})
    head = b"POST /v0/topics/q/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


class Place:
    """A site with an empty queue, and clients over streams in memory."""

    def __init__(self, site, runtime, clock, nursery):
        self.site, self.runtime, self.clock, self._nursery = site, runtime, clock, nursery

    def connect(self, **more):
        ours, theirs = edge_pair(**more)
        self._nursery.start_soon(serve_connection, theirs, self.site)
        return Client(ours)

    async def put(self, *datas):
        await ask(self.site, "POST", Q, {"records": [{"data": data} for data in datas]})

    async def counts(self):
        await wait_all_tasks_blocked()
        while self.runtime.in_flight or not self.runtime.engine.rested(0, 0):  # a thread writes
            await wait_all_tasks_blocked(0.001)
        found = self.runtime.engine.topic_state("q").queue
        return found.ready, found.in_flight


@asynccontextmanager
async def queue(**config):
    clock, site = ManualClock(), new_site()
    async with alone(), begun(site, clock=clock) as runtime, trio.open_nursery() as nursery:
        await ask(site, "PUT", Q, {"type": "queue", **config})
        yield Place(site, runtime, clock, nursery)
        assert (site.bugs, site.held_bytes, site.unsent_bytes, runtime.in_flight) == (0, 0, 0, 0)


async def test_a_client_that_goes_while_it_waits():
    async with queue() as place:
        client = place.connect()
        await client.edge.send_all(claiming(wait_ms=30_000))
        await wait_all_tasks_blocked()
        client.edge.close()
        await wait_all_tasks_blocked()
        await place.put("x")
        assert await place.counts() == (1, 0)


@pytest.mark.rule("A5.23")
async def test_a_client_that_ends_its_side_is_answered_with_what_there_is():
    async with queue() as place:
        client = place.connect()
        await client.edge.send_all(claiming(wait_ms=30_000))
        await wait_all_tasks_blocked()
        await client.edge.send_eof()
        answer = await client.receive()
        assert answer.startswith(b"HTTP/1.1 200")
        assert b'"claimed":[],"count":0' in answer
        await place.put("x")
        assert await place.counts() == (1, 0)


async def test_clients_that_go_while_their_jobs_are_on_their_way():
    async with queue(claim_jitter_ms=5000) as place:
        await place.put(1, 2)
        clients = [place.connect() for _ in range(2)]
        for client in clients:
            await client.edge.send_all(claiming(wait_ms=30_000))
        await wait_all_tasks_blocked()
        place.clock.advance(5000)
        place.runtime.engine.tick()  # a frame for both, which nobody has written yet
        assert place.runtime.engine.topic_state("q").queue.in_flight == 0
        for client in clients:
            client.edge.close()
        await wait_all_tasks_blocked()
        assert place.runtime.in_flight == 0  # nobody waits for what is on its way
        place.runtime.ring_all()
        assert await place.counts() == (2, 0)


@pytest.mark.parametrize("wait_ms", [0, 30_000])
async def test_a_client_that_goes_before_its_jobs_are_sent(wait_ms):
    async with queue() as place:
        await place.put("x" * 4000, "y" * 4000)
        client = place.connect(back=1000)
        await client.edge.send_all(claiming(max=2, wait_ms=wait_ms))
        assert await place.counts() == (0, 2)
        client.edge.close()
        assert await place.counts() == (2, 0)


async def test_jobs_that_are_sent_stay_leased_when_the_client_goes():
    async with queue() as place:
        await place.put("x")
        client = place.connect()
        await client.edge.send_all(claiming())
        await client.receive()
        client.edge.close()
        assert await place.counts() == (0, 1)
