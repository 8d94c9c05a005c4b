"""A head that comes again with its whole body in one piece has a way of its own: the answers are those of the other."""

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.server.wire.places import alone, open_site, serve_connection
from tests.server.wire.playing import Client
from tests.transcripts.steps import get, post
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio


@pytest.fixture
def mock_clock():
    return MockClock()


def write(letter: str, *fields: bytes) -> bytes:
    request = post(b'{"records":[{"data":"%b"}]}' % letter.encode(), path=b"/v0/topics/t")
    return request.replace(b"\r\n\r\n", b"\r\n" + b"".join(f + b"\r\n" for f in fields) + b"\r\n", 1)


READ = post(b"{}", path=b"/v0/topics/t/diff")
REFUSED = get(b"Expect: nothing", path=b"/v0/topics/t")


@asynccontextmanager
async def connected():
    ours, theirs = edge_pair(1 << 20)
    async with open_site() as site, alone(), trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, theirs, site)
        yield Client(ours)
        ours.close()


async def ask(client: Client, *pieces: bytes) -> int:
    for piece in pieces:
        await client.send(piece)
    answer = await client.answer()
    assert answer is not None
    return answer.status


async def written(client: Client) -> str:
    await client.send(READ)
    answer = await client.answer()
    assert answer is not None
    return "".join(record["data"] for record in answer.json["records"])


def halves(request: bytes, at: int) -> tuple[bytes, bytes]:
    return request[:at], request[at:]


async def test_each_body_is_its_own_however_it_comes():
    """Whole, cut anywhere, whole again: what is set aside for one request is never the body of another."""
    size = len(write("a"))
    async with connected() as client:
        statuses = [await ask(client, write("a")), await ask(client, write("b"))]
        for at in (1, size - 30, size - 28, size - 27, size - 26, size - 1):
            statuses += [await ask(client, *halves(write("c"), at)), await ask(client, write("d"))]
        assert statuses == [201] + [200] * (len(statuses) - 1)
        assert await written(client) == "ab" + "cd" * 6


async def test_what_follows_the_body_in_its_piece_is_the_next_request():
    async with connected() as client:
        await ask(client, write("a"))
        await client.send(write("b") + write("c"))
        assert [(await client.answer()).status for _ in range(2)] == [200, 200]
        assert await written(client) == "abc"


async def test_a_refused_request_leaves_no_body_behind():
    async with connected() as client:
        assert [await ask(client, REFUSED), await ask(client, REFUSED)] == [417, 417]
        assert [await ask(client, write("a")), await ask(client, REFUSED)] == [201, 417]
        assert await ask(client, REFUSED) == 417
        assert await ask(client, write("b")) == 200
        assert await written(client) == "ab"


async def test_who_has_sent_the_body_is_not_asked_for_it():
    async with connected() as client:
        for _ in range(3):
            assert await ask(client, write("a", b"Expect: 100-continue")) in (200, 201)
        assert await written(client) == "aaa"
