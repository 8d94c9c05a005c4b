"""A peer that is gone before a wait for it begins."""

from __future__ import annotations

import pytest
import trio

from tests.server.api.asking import ask
from tests.server.wire.places import open_site, serve_connection
from topics.testing.streams import edge_pair

HEAD = b"Host: localhost\r\nContent-Type: application/json\r\n"
STATE = b"GET /v0/topics/a HTTP/1.1\r\n" + HEAD + b"\r\n"
POLL = (
    b"POST /v0/topics/a/diff HTTP/1.1\r\n"
    + HEAD
    + b'Content-Length: 32\r\n\r\n{"from_seq":1, "wait_ms": 30000}'
)


@pytest.mark.trio
@pytest.mark.rule("H5.11", "A4.2")
async def test_a_peer_that_goes_before_its_earlier_answers_is_no_bug_of_the_handler():
    async with open_site() as site:
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        client, server = edge_pair()
        await client.send_all(STATE + POLL)
        client.close()
        with trio.fail_after(5):
            await serve_connection(server, site)

        assert site.bugs == 0
        assert site.held_bytes == 0


@pytest.mark.trio
@pytest.mark.rule("H5.11", "A4.2")
async def test_a_wait_that_ends_while_earlier_answers_are_sent_does_not_cut_them_off(autojump_clock):
    """How much of a send that is cut off has arrived, nobody knows: what is sent behind it would be noise."""
    async with open_site() as site, trio.open_nursery() as nursery:
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": "x" * 4000}]})
        client, server = edge_pair(back=1000)
        page = POLL.replace(b'"from_seq":1', b'"from_seq":0')
        await client.send_all(page + POLL.replace(b"30000", b"   50"))
        nursery.start_soon(serve_connection, server, site)
        await trio.sleep(1)
        answer = b""
        with trio.move_on_after(5):
            while piece := await client.receive():
                answer += piece
        client.close()

        assert (answer.count(b"HTTP/1.1 200"), answer.count(b"x" * 4000)) == (2, 1)
        assert answer.endswith(b"}")
        assert (site.bugs, site.held_bytes) == (0, 0)
