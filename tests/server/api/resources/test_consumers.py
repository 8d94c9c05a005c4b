"""Consumers over HTTP: reads from where one stands, pages that are given to one reader, and whose keys may do it."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing

from tests.server.api.asking import Here, ask, code, fields_of, said
from tests.server.wire.places import open_site
from topics.engine.commands import DEFAULT_CONFIG, Append, PutTopic
from topics.kernel.columns import RecordColumns
from topics.server.api.message import Head
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys

pytestmark = pytest.mark.trio
T = "/v0/topics/t"
C = f"{T}/consumers/c"


async def with_records(site, count=5, **config):
    await ask(site, "PUT", T, config)
    await ask(site, "POST", T, {"records": [{"data": number} for number in range(1, count + 1)]})
    await ask(site, "PUT", C)


async def read(site, **more):
    status, page = await said(site, "POST", f"{T}/diff", {"consumer": "c", **more})
    assert status == 200
    return [record["data"] for record in page["records"]]


async def read_beside(site, **more):
    """As `read`, while others read: `ask` wants to be alone with the memory for answers."""
    body = msgspec.json.encode({"consumer": "c", **more})
    fields = {b"host": b"localhost", b"content-type": b"application/json"}
    admitted = site.admit(Head(b"POST", f"{T}/diff".encode(), b"", fields, length=len(body)))
    peer = Here(site)
    answer = await site.answer(admitted, body, peer)
    admitted.end()
    peer.room.release()
    assert answer.status == 200
    return [record["data"] for record in fields_of(answer)["records"]]


async def position(site):
    return (await said(site, "GET", C))[1]["from_seq"]


@pytest.mark.rule("H7.2")
async def test_a_consumer_says_where_it_stands():
    async with open_site() as site:
        await with_records(site)
        await ask(site, "POST", f"{C}/commit", {"seq": 3})
        status, state = await said(site, "GET", C)

        assert status == 200
        assert state.pop("updated_ts") > 0
        assert state == {"consumer": "c", "topic": "t", "epoch": 1, "from_seq": 3, "lag": 2}
        await ask(site, "PUT", f"{T}/consumers/b", {"tail": True})
        _, listed = await said(site, "GET", f"{T}/consumers?page_size=1")
        assert [one["consumer"] for one in listed["consumers"]] == ["b"]
        _, rest = await said(site, "GET", f"{T}/consumers?cursor={listed['next_cursor']}")
        assert [(one["consumer"], one["lag"]) for one in rest["consumers"]] == [("c", 2)]
        assert "next_cursor" not in rest


@pytest.mark.rule("H5.2")
async def test_a_read_begins_where_the_consumer_stands_and_does_not_move_it():
    async with open_site() as site:
        await with_records(site)
        await ask(site, "POST", f"{C}/commit", {"seq": 2})

        assert [await read(site, limit=2) for _ in range(2)] == [[3, 4], [3, 4]]
        assert await position(site) == 2


@pytest.mark.rule("H5.2", "H7.5")
async def test_with_auto_commit_each_page_is_read_once():
    async with open_site() as site:
        await with_records(site)

        assert [await read(site, limit=2, auto_commit=True) for _ in range(4)] == [[1, 2], [3, 4], [5], []]
        assert await position(site) == 5


async def test_what_is_left_out_of_a_page_is_committed_too():
    async with open_site() as site:
        await with_records(site)

        assert await read(site, match="none", auto_commit=True) == []
        assert await position(site) == 5


@pytest.mark.rule("H5.2")
@pytest.mark.parametrize("durability", ["ephemeral", "disk", "fsync"])
async def test_readers_of_one_consumer_share_its_records(durability):
    """Each record is given to one of them: the loser of a commit reads the next page."""
    async with open_site() as site:
        await with_records(site, 30, durability=durability)
        seen: list[int] = []

        async def reader():
            while page := await read_beside(site, limit=2, auto_commit=True):
                seen.extend(page)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(reader)

        assert sorted(seen) == list(range(1, 31))
        assert site.unsent_bytes == 0


async def test_one_record_wakes_two_who_wait_and_is_given_to_one():
    async with open_site() as site:
        await with_records(site, 1)
        await ask(site, "POST", f"{C}/commit", {"seq": 1})
        pages: list[list[int]] = []

        async def reader():
            pages.append(await read_beside(site, wait_ms=300, auto_commit=True))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(reader)
            nursery.start_soon(reader)
            await trio.testing.wait_all_tasks_blocked()
            await site.ready_runtime().submit(Append(topic="t", records=RecordColumns([b"2"])))

        assert sorted(pages) == [[], [2]]


async def test_a_consumer_of_a_topic_that_was_made_again_is_gone():
    async with open_site() as site:
        await with_records(site)
        await ask(site, "DELETE", T)
        await ask(site, "PUT", T)

        assert code(await said(site, "POST", f"{T}/diff", {"consumer": "c"})) == (404, "consumer_not_found")
        assert code(await said(site, "GET", C)) == (404, "consumer_not_found")
        assert (await said(site, "GET", f"{T}/consumers"))[1]["consumers"] == []


async def test_a_page_of_another_instance_is_never_committed_nor_given_as_one():
    """A read of another epoch goes on as from 0: what the consumer has read would be given again, and again."""
    async with open_site() as site:
        await with_records(site)
        await ask(site, "POST", f"{C}/commit", {"seq": 3})
        body = {"consumer": "c", "epoch": 9, "limit": 2}

        refused = await said(site, "POST", f"{T}/diff", {**body, "auto_commit": True})
        assert code(refused) == (404, "consumer_not_found")
        assert "epoch 9" in refused[1]["error"]["message"]
        assert (await said(site, "POST", f"{T}/diff", body))[1]["tombstone"]["reason"] == "recreated"
        assert await position(site) == 3
        assert await read(site, limit=2, epoch=1, auto_commit=True) == [4, 5]


@pytest.mark.rule("H2.6", "H2.7")
async def test_auto_commit_takes_the_scope_of_a_commit():
    async with open_site(keys=Keys(parse_keys("r:read,rw:rw,x::other"))) as site:
        bearer = {name: {"authorization": f"Bearer {name}"} for name in ("r", "rw", "x")}
        await site.ready_runtime().submit(PutTopic(topic="t", config=DEFAULT_CONFIG))
        await ask(site, "PUT", C, b"", headers=bearer["rw"])
        body = {"consumer": "c", "auto_commit": True}
        for who, asked, status in (
            ("r", body, 403),
            ("r", {"consumer": "c"}, 200),
            ("rw", body, 200),
            ("x", body, 403),
        ):
            assert (await ask(site, "POST", f"{T}/diff", asked, headers=bearer[who])).status == status
        for method, target in (("PUT", C), ("POST", f"{C}/commit"), ("DELETE", C)):
            body = {"seq": 0} if method == "POST" else b""
            assert (await ask(site, method, target, body, headers=bearer["r"])).status == 403
        assert (await ask(site, "DELETE", C, b"", headers=bearer["rw"])).status == 403


@pytest.mark.rule("H7.6", "H9.3")
async def test_a_watch_begins_where_a_consumer_stands_and_leaves_it_there():
    async with open_site() as site:
        await with_records(site)
        await ask(site, "POST", f"{C}/commit", {"seq": 3})
        answer = fields_of(await ask(site, "POST", "/v0/watch", {"topics": {"t": {"consumer": "c"}}}))

        assert answer["topics"]["t"]["from_seq"] == 3
        assert await position(site) == 3
