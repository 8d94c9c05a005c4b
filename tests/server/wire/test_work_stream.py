"""Jobs as server-sent events: as many at a time as were asked for, given back when the stream ends (queues 4)."""

import json
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from tests.server.planes import JSON
from tests.server.wire.places import serve_connection
from tests.server.wire.playing import Client, pass_time
from tests.server.wire.test_websocket_jobs import queue
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio
HEAD = (
    b"HTTP/1.1 200 OK",
    b"content-type: text/event-stream",
    b"cache-control: no-store",
    b"x-accel-buffering: no",
)


@pytest.fixture
def mock_clock():
    return MockClock()


class Stream:
    """The body of a stream, event by event."""

    def __init__(self, client):
        self.client, self.body = client, b""

    async def open(self, query):
        await self.client.send(b"GET /v0/topics/q/work?%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % query)
        while b"\r\n\r\n" not in self.client.buffer:
            self.client.buffer += await self.client.receive()
        head, _, self.client.buffer = self.client.buffer.partition(b"\r\n\r\n")
        assert set(HEAD) <= set(head.split(b"\r\n"))
        assert await self.event() == "retry: 2000"

    async def event(self):
        """The next, or "" at the end."""
        while b"\n\n" not in self.body:
            while b"\r\n" not in self.client.buffer:
                self.client.buffer += await self.client.receive()
            size, _, rest = self.client.buffer.partition(b"\r\n")
            while len(rest) < int(size, 16) + 2:
                rest += await self.client.receive()
            self.body += rest[: int(size, 16)]
            self.client.buffer = rest[int(size, 16) + 2 :]
            if size == b"0":
                return ""
        one, _, self.body = self.body.partition(b"\n\n")
        return one.decode()

    async def told(self):
        """(the event's name, its id, its data)"""
        fields = [line.partition(": ")[::2] for line in (await self.event()).split("\n")]
        named = dict(fields)
        data = "\n".join(value for name, value in fields if name == "data")
        return named["event"], named.get("id"), json.loads(data)


@asynccontextmanager
async def stream(place, query=b"node=w&max=2", *, back=1 << 20):
    ours, theirs = edge_pair(1 << 20, back=back)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve_connection, theirs, place.site)
        found = Stream(Client(ours))
        await found.open(query)
        yield found
        await ours.aclose()


@pytest.mark.rule("Q4.12", "Q4.22")
async def test_jobs_come_as_those_before_are_settled(mock_clock):
    async with queue() as place:
        await place.put("a", "b", "c", "d")
        await place.ask("/claim", node="w")
        async with stream(place, b"node=w&max=2&lease_ms=1000") as jobs:
            name, number, job = await jobs.told()
            assert (name, number) == ("job", "2")
            assert job.pop("lease_id").startswith("lease_")
            now = place.clock.now_ms()
            assert job == {
                "topic": "q", "$seq": 2, "$ts": now, "data": "b", "deliveries": 1, "deadline": now + 1000,
            }  # fmt: skip
            assert (await jobs.told())[1] == "3"
            assert await place.counts() == (1, 3)
            await place.ask("/ack", node="w", seqs=[2])
            assert (await jobs.told())[1] == "4"
        assert await place.counts() == (2, 1)  # what was claimed stays


@pytest.mark.rule("Q3.3")
async def test_streams_have_their_parts_of_a_cohort(mock_clock):
    async with (
        queue(claim_jitter_ms=50) as place,
        stream(place) as one,
        stream(place, b"node=x&max=2") as other,
    ):
        await place.settled()
        await place.put(*range(6))
        assert await place.counts() == (6, 0)  # the cohort is still gathering
        await place.passes(50)
        assert [[(await jobs.told())[1] for _ in range(2)] for jobs in (one, other)] == [
            ["1", "3"],
            ["2", "4"],
        ]


@pytest.mark.parametrize(("asked", "lease_ms"), [(b"", 5000), (b"&lease_ms=0", 100), (b"&lease_ms=1", 100)])
async def test_a_lease_is_as_long_as_a_claims(mock_clock, asked, lease_ms):
    async with queue(lease_ms=5000) as place:
        await place.put("a")
        async with stream(place, b"node=w" + asked) as jobs:
            _, _, job = await jobs.told()
            assert job["deadline"] == place.clock.now_ms() + lease_ms


async def test_a_payload_of_several_lines_is_one(mock_clock):
    async with queue() as place, stream(place) as jobs:
        body = b'{"records":[{"data":{"a":\n[1,\r\n2\r]}}]}'
        assert (await place.plane.ask(b"POST", b"/v0/topics/q", body, JSON)).status == 200
        assert (await jobs.told())[2]["data"] == {"a": [1, 2]}


@pytest.mark.rule("Q4.22")
async def test_a_sign_of_life_where_there_is_nothing_to_say(mock_clock):
    async with queue() as place, stream(place, b"node=w") as jobs:
        await pass_time(15.5)
        assert await jobs.event() == f": hb {place.clock.now_ms()}"
        await place.put(1)
        assert (await jobs.told())[1] == "1"
        await pass_time(15.5)  # full
        assert (await jobs.event()).startswith(": hb ")


@pytest.mark.rule("A4.3")
async def test_a_drain_ends_the_stream_and_says_so(mock_clock):
    async with queue() as place:
        await place.put(1)
        async with stream(place, b"node=w") as full, stream(place) as waiting:
            assert (await full.told())[0] == "job"
            place.runtime.end_waits()
            for jobs in (full, waiting):
                name, _, said = await jobs.told()
                assert (name, said["code"]) == ("error", "shutting_down")
                assert await jobs.event() == ""
        assert await place.counts() == (1, 0)


async def test_the_end_of_the_queue_is_the_end_of_the_stream(mock_clock):
    async with queue() as place, stream(place) as jobs:
        await place.ask(method=b"DELETE")
        name, _, said = await jobs.told()
        assert (name, said["code"], said["detail"]) == ("error", "topic_not_found", {"topic": "q"})
        assert await jobs.event() == ""


@pytest.mark.rule("A5.23")
async def test_the_end_of_the_clients_side_is_the_end_of_the_stream(mock_clock):
    async with queue() as place:
        await place.put(1)
        async with stream(place, b"node=w") as jobs:
            assert (await jobs.told())[1] == "1"
            await jobs.client.edge.send_eof()
            assert await place.counts() == (1, 0)


async def test_who_does_not_read_is_given_no_more(mock_clock):
    async with queue() as place:
        await place.put(*["x" * 4000] * 3)
        async with stream(place, b"node=w&max=1", back=600) as jobs:
            assert await place.counts() == (2, 1)
            assert (await jobs.told())[1] == "1"
            await place.ask("/ack", node="w", seqs=[1])
            assert await place.counts() == (1, 1)
            await place.ask("/ack", node="w", seqs=[2])  # while it is being sent
            assert await place.counts() == (1, 0)
        assert await place.counts() == (1, 0)


REFUSED = [
    (b"q/work", (), 400, "invalid_request"),
    (b"q/work?node=", (), 400, "invalid_request"),
    (b"q/work?node=w&max=x", (), 400, "invalid_request"),
    (b"none/work?node=w", (), 404, "topic_not_found"),
    (b"log/work?node=w", (), 409, "not_a_queue"),
    (b"q/work?node=w", ((b"accept", b"application/json"),), 406, "not_acceptable"),
]


@pytest.mark.rule("H1.53")
@pytest.mark.parametrize(("path", "fields", "status", "code"), REFUSED)
async def test_what_is_wrong_is_answered_before_the_stream(mock_clock, path, fields, status, code):
    async with queue() as place:
        await place.ask(topic="log", records=[{"data": 1}])
        seen = await place.plane.ask(b"GET", b"/v0/topics/" + path, None, *fields)
        assert (seen.status, seen.code) == (status, code)
