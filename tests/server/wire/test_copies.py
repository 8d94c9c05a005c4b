"""Who begins to watch a dest is at the head that it has with the copies of every write that was answered."""

from __future__ import annotations

import msgspec
import pytest
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.api.asking import ask
from tests.server.wire.sockets import frame, socket_of
from tests.server.wire.watching import place

pytestmark = pytest.mark.trio
DESTS = [f"d{n}" for n in range(6)]  # some of them in another shard than their source


@pytest.fixture
def mock_clock():
    return MockClock()


async def routed(here):
    for dest in DESTS:
        await ask(here.site, "PUT", f"/v0/routers/{dest}", {"source": "s", "dest": dest})
    here.clock.advance(50)


async def write(here):
    await wait_all_tasks_blocked()  # and nothing is on its way to anybody
    here.clock.advance(50)
    await ask(here.site, "POST", "/v0/topics/s", {"records": [{"data": 1}]})


@pytest.mark.rule("S8.26")
async def test_a_socket_that_subscribes(mock_clock):
    async with place(shards=3) as here, socket_of(here.site) as (peer, _):
        await routed(here)
        for head, dest in enumerate(DESTS, 1):
            await write(here)
            await peer.send(
                frame(
                    msgspec.json.encode({"op": "subscribe", "topic": dest, "tail": True, "request_id": head})
                )
            )
            told = (await peer.frame()).fields
            while "topics" not in told:
                told = (await peer.frame()).fields

            assert told["topics"][dest]["head_seq"] == head


@pytest.mark.rule("S8.26")
async def test_a_stream_that_is_attached(mock_clock):
    async with place(shards=3) as here:
        await routed(here)
        begun = await here.watch(topics={dest: {} for dest in DESTS})
        await write(here)
        events = await here.stream(wid=begun["wid"])
        heads = {}
        while len(heads) < len(DESTS):
            name, _, data = await events.told()
            if name == "caught-up":
                heads.setdefault(data["topic"], data["head_seq"])

        assert heads == dict.fromkeys(DESTS, 1)
        await here.gone(events)
