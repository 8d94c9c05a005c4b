"""What an attack on a running server has found, each held by the smallest request that shows it."""

import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import open_site, serve_connection
from topics.cli.config.settings import TABLE
from topics.server.api.bodies.encoding import gunzip
from topics.server.api.memory import Share
from topics.server.api.message import Answer, Head
from topics.server.api.site import Site
from topics.server.wire.sending import GATHERED_MAX
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio


class Busy:
    """A peer who has earlier answers to take before the wait begins; meanwhile something happens."""

    def __init__(self, site: Site, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._meanwhile = meanwhile
        self.room = Share(site.answers)

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[None]:
        await self._meanwhile()
        yield


async def poll(site: Site, body: bytes, meanwhile: Callable[[], Awaitable[object]]) -> Answer:
    fields = {b"host": b"localhost", b"content-type": b"application/json"}
    head = Head(b"POST", b"/v0/topics/a/diff", b"", fields, length=len(body))
    return await site.answer(site.admit(head), body, Busy(site, meanwhile))


async def write(site: Site, *records: dict[str, object]) -> None:
    answer = await ask(site, "POST", "/v0/topics/a", {"records": list(records)})
    assert answer.status in (200, 201)


async def until_waiting(site: Site) -> None:
    assert site.runtime is not None
    with trio.fail_after(5):
        while site.runtime.hub.readers == 0:
            await trio.lowlevel.checkpoint()


async def test_a_long_poll_hears_what_is_written_before_it_waits():
    async with open_site() as site:
        await write(site, {"data": 1})
        with trio.fail_after(10):
            answer = await poll(site, b'{"from_seq":1,"wait_ms":30000}', lambda: write(site, {"data": 2}))
        assert [record["data"] for record in fields_of(answer)["records"]] == [2]


async def test_a_drain_ends_long_polls_at_once():
    async with open_site() as site, trio.open_nursery() as nursery:
        await write(site, {"data": 1})
        found: list[Answer] = []

        async def reader() -> None:
            found.append(
                await ask(site, "POST", "/v0/topics/a/diff", {"from_seq": 1, "wait_ms": 30_000}),
            )

        nursery.start_soon(reader)
        await until_waiting(site)
        assert site.runtime is not None
        site.draining = True
        site.runtime.hub.tell_all()
        with trio.fail_after(5):
            while not found:
                await trio.lowlevel.checkpoint()
        assert (found[0].status, fields_of(found[0])["caught_up"]) == (200, True)


async def test_the_account_of_a_long_poll_is_of_the_topic_created_anew():
    async with open_site() as site:
        await write(site, *({"data": n, "node": "me"} for n in range(3)))

        async def create_anew() -> None:
            await ask(site, "DELETE", "/v0/topics/a")
            await write(site, {"data": 4})

        with trio.fail_after(10):
            answer = await poll(site, b'{"node":"me","wait_ms":30000,"account":true}', create_anew)
        page = fields_of(answer)
        assert (page["epoch"], page["from_seq"], page["tombstone"]["reason"]) == (2, 0, "recreated")
        assert sum(page["account"].values()) == page["next_from_seq"]


async def test_many_small_members_of_a_gzip_body_do_not_cost_their_square():
    member = gzip.compress(b"")
    started = time.process_time()
    assert gunzip(member * 400_000, 100) == b""
    assert time.process_time() - started < 20  # 40 s and more when the rest was copied for each


async def test_a_gzip_body_is_held_at_the_size_it_unfolds_to():
    body = gzip.compress(b'{"records":[{"data":1}],"x":"' + b"a" * 7000 + b'"}')
    assert len(body) < 100
    async with open_site(held_bytes_max=5000) as site:
        answer = await ask(site, "POST", "/v0/topics/a", body, headers={"Content-Encoding": "gzip"})
        assert (answer.status, fields_of(answer)["error"]["code"]) == (429, "throttled")
        assert site.held_bytes == 0
    async with open_site() as site:
        answer = await ask(site, "POST", "/v0/topics/a", body, headers={"Content-Encoding": "gzip"})
        assert (answer.status, site.held_bytes) == (201, 0)


async def test_a_burst_of_requests_leaves_the_others_their_turn():
    burst, turns = 800, 0
    ours, theirs = edge_pair(capacity=1 << 22)
    async with open_site() as site, trio.open_nursery() as nursery:
        await ours.send_all(b"GET /v0/health HTTP/1.1\r\nHost: localhost\r\n\r\n" * burst)
        nursery.start_soon(serve_connection, theirs, site)
        while site.counts["health", 200] < burst:
            turns += 1
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert turns >= burst / GATHERED_MAX


async def test_a_page_size_of_any_length_is_clamped():
    async with open_site() as site:
        for size in ("9" * 30, "9" * 6000, "0" * 30 + "1", "0"):
            assert (await ask(site, "GET", f"/v0/topics?page_size={size}")).status == 200, size[:40]
        for size in ("-1", "1.0", "x", ""):
            assert (await ask(site, "GET", f"/v0/topics?page_size={size}")).status == 400, size


async def test_a_rate_of_bodies_is_at_least_a_byte_a_second():
    assert (
        TABLE["body_bytes_per_s"].low == 1
    )  # the bound is a division: by 0, every body in two pieces was a 500
