"""Jobs over a WebSocket: as over HTTP, and pushed as fast as they are settled; given back when the connection ends."""

from contextlib import asynccontextmanager

import attrs
import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.server.planes import JSON, Wire
from tests.server.wire.places import alone, begun, new_site, serve_connection
from tests.server.wire.playing import pass_time
from tests.server.wire.sockets import PING, PONG, SocketPeer, close, frame, head, socket_of, text
from topics.embed.aio.runtime import Runtime
from topics.embed.aio.thread import Threads
from topics.kernel.limits import MIB, Limits
from topics.server.api.resources.job_ops import WORKS_MAX
from topics.server.api.site import Site
from topics.store.writer import NOTHING_TOOK
from topics.testing.clock import ManualClock
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio
ROOMY = Limits(body_bytes=4 * MIB, wal_file_first=8 * MIB, wal_reserve=1 * MIB)


@pytest.fixture
def mock_clock():
    return MockClock()


@attrs.frozen
class Place:
    """A site with a queue `q`, its clock under our hand."""

    site: Site
    runtime: Runtime
    clock: ManualClock
    plane: Wire

    async def ask(self, action="", /, topic="q", method=b"POST", **fields):
        """Over HTTP."""
        path = f"/v0/topics/{topic}{action}".encode()
        seen = await self.plane.ask(method, path, msgspec.json.encode(fields), JSON)
        return {name: value for name, value in seen.json.items() if name != "performance"}

    async def put(self, *datas, **fields):
        await self.ask(records=[{"data": data, **fields} for data in datas])

    async def settled(self):
        """Nobody has anything to do, and no thread syncs the log."""
        shards = self.runtime.engine.state.shards
        await wait_all_tasks_blocked()
        while any(shard.in_flight or shard.pending for shard in shards):
            await wait_all_tasks_blocked()

    async def counts(self, topic="q"):
        await self.settled()
        found = self.runtime.engine.topic_state(topic).queue
        return found.ready, found.in_flight

    async def passes(self, ms):
        """Time goes by, for the engine."""
        await self.settled()
        self.clock.advance(ms)
        self.runtime.engine.tick()
        self.runtime._after_call(NOTHING_TOOK)
        await self.settled()

    def socket(self, **more):
        return socket_of(self.site, **more)


@asynccontextmanager
async def queue(*, limits=ROOMY, **config):
    clock, site = ManualClock(), new_site(limits=limits)
    threads = Threads(inline_bytes_max=1 << 20)  # so that who waits is blocked, and nobody else
    async with alone(), begun(site, clock=clock, threads=threads) as runtime, trio.open_nursery() as nursery:
        place = Place(site, runtime, clock, Wire(site, nursery, None))
        await place.ask(method=b"PUT", type="queue", **config)
        yield place
        nursery.cancel_scope.cancel()
        assert (site.bugs, runtime.in_flight, dict(runtime.hands.by_job)) == (0, 0, {})


def ops(messages):
    return [one["op"] for one in messages]


def job(message):
    assert message["op"] == "job", message
    return message["$seq"]


def work(most=1, *, topic="q", node="w", **fields):
    return text(op="work", topic=topic, node=node, max=most, **fields)


def settle(op, *seqs, node="w", **fields):
    return text(op=op, topic="q", node=node, seqs=seqs, **fields)


# As over HTTP.

SCRIPT = [
    ("claim", {"node": "w", "max": 2}),
    ("claim", {"node": "w", "max": 2, "mac": 3}),
    ("claim", {"node": ""}),
    ("claim", {}),
    ("ack", {"node": "w", "seqs": [1, 9]}),
    ("ack", {"node": "w", "seqs": []}),
    ("ack", {"node": "w", "seqs": list(range(1001))}),
    ("nack", {"node": "w", "seqs": [2, 3], "reason": "no", "delay_ms": 5}),
    ("nack", {"node": "w", "seqs": [4], "lease_ids": ["lease_x"]}),
    ("extend", {"node": "w", "seqs": [4, 2], "lease_ms": 9000}),
    ("extend", {"node": "w", "seqs": [4]}),
    ("extend", {"node": "other", "seqs": [4], "lease_ms": 1, "x": 1}),
]
DONE = {"claim": "claimed", "ack": "acked", "nack": "nacked", "extend": "extended"}


@pytest.mark.rule("H10.6")
async def test_what_is_said_of_jobs_has_the_answer_that_it_has_over_http(mock_clock):
    async with queue() as one, queue() as other, one.socket() as (peer, _):
        for place in (one, other):
            await place.put("a", "b", {"c": [1]}, "d")
        for op, fields in SCRIPT:
            theirs = await other.ask(f"/{op}", **fields)
            got = await peer.ask(op=op, topic="q", request_id=[op], **fields)
            assert got.pop("request_id") == [op]
            if "error" in theirs:
                assert got == {"op": "error", **theirs["error"]}
            else:
                assert got.pop("op") == DONE[op]
                assert got.pop("performance").keys() == {"server_total_ms"}
                assert got == theirs


@pytest.mark.rule("Q0.2", "H1.53")
@pytest.mark.parametrize("op", [*DONE, "work"])
async def test_a_log_and_nothing_have_no_jobs(mock_clock, op):
    fields = {"node": "w", "seqs": [1], "lease_ms": 1000} if op in DONE else {"node": "w"}
    async with queue() as place, place.socket() as (peer, _):
        await place.ask(topic="log", records=[{"data": 1}])
        for topic, code in (("log", "not_a_queue"), ("none", "topic_not_found"), (".", "invalid_request")):
            assert (await peer.ask(op=op, topic=topic, **fields))["code"] == code


@pytest.mark.rule("H10.1")
async def test_who_waits_for_jobs_holds_up_nobody_behind_him(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        await place.put(1)
        claims = [text(op="claim", topic="q", node="w", wait_ms=30_000, request_id=i) for i in range(3)]
        await peer.send(*claims, settle("ack", 1), text(op="ping"))
        assert sorted(ops(await peer.messages(3))) == ["acked", "claimed", "pong"]
        await place.put(2, 3)
        found = await peer.messages(2)
        assert {one["request_id"]: one["claimed"][0]["$seq"] for one in found} == {1: 2, 2: 3}


@pytest.mark.rule("H10.1")
async def test_claims_are_served_in_the_order_in_which_they_came(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        await place.put(*range(30))
        await peer.send(
            *[text(op="claim", topic="q", node="w", wait_ms=9 * (i % 2), request_id=i) for i in range(1, 51)]
        )
        await wait_all_tasks_blocked()
        await place.put(*range(20))
        found = await peer.messages(50)
        given = {one["request_id"]: [job["$seq"] for job in one["claimed"]] for one in found}
        waited = iter(range(31, 51))  # the jobs that came later, to those who waited
        assert given == {i: [i] if i <= 30 else [next(waited)] if i % 2 else [] for i in range(1, 51)}


@pytest.mark.rule("Q4.2")
async def test_nothing_is_claimed_for_a_peer_that_is_gone(mock_clock):
    async with queue() as place:
        async with place.socket() as (peer, _):
            await peer.send(text(op="claim", topic="q", node="w", wait_ms=30_000))
            await wait_all_tasks_blocked()
        await place.put(1)
        assert await place.counts() == (1, 0)


async def test_jobs_that_cannot_be_sent_any_more_are_given_back(mock_clock):
    async with queue() as place:
        await place.put("x" * 4000, "y" * 4000, "z")
        async with place.socket(back=1000) as (peer, _):
            await peer.send(*[text(op="claim", topic="q", node="w") for _ in range(3)])
            assert await place.counts() == (0, 3)
            peer.edge.reset()
            assert await place.counts() == (3, 0)


async def test_a_job_whose_answer_goes_alone_and_cannot_is_given_back(mock_clock):
    async with queue() as place:
        await place.put(1)
        async with place.socket() as (peer, _):
            await peer.send(text(op="claim", topic="q", node="w"))
            peer.edge.close()
            assert await place.counts() == (1, 0)
            assert place.site.answers.size == 0


@pytest.mark.rule("A4.3")
async def test_a_drain_answers_whoever_waits_for_jobs(mock_clock):
    async with queue() as place, place.socket() as (peer, connection):
        await peer.send(text(op="claim", topic="q", node="w", wait_ms=30_000, request_id=1), work(3))
        assert ops([await peer.message()]) == ["working"]
        await peer.quiet()
        place.site.draining = True
        place.runtime.end_waits()
        connection.end_if_idle()
        got = await peer.message()
        assert (got["op"], got["request_id"], got["claimed"]) == ("claimed", 1, [])
        assert (await peer.frame()).close[0] == 1001
        await peer.send(close(1001))
        assert await peer.frame() is None


# Work.


@pytest.mark.rule("H10.7")
async def test_jobs_are_pushed_as_those_before_are_settled(mock_clock):
    async with queue(lease_ms=60_000) as place, place.socket() as (peer, _):
        await place.put(*"abcdefgh", priority=3)
        await peer.send(work(2, lease_ms=1000, request_id=7))
        assert await peer.message() == {
            "op": "working", "topic": "q", "max": 2, "lease_ms": 1000, "request_id": 7
        }  # fmt: skip
        first = await peer.message()
        assert first.pop("lease_id").startswith("lease_")
        assert first == {
            "op": "job", "topic": "q", "$seq": 1, "$ts": place.clock.now_ms(), "data": "a", "deliveries": 1,
            "priority": 3, "deadline": place.clock.now_ms() + 1000,
        }  # fmt: skip
        assert job(await peer.message()) == 2
        await peer.quiet()

        await peer.send(settle("ack", 1))
        assert ops([await peer.message()]) == ["acked"]
        assert job(await peer.message()) == 3
        await place.ask("/ack", node="w", seqs=[2])
        assert job(await peer.message()) == 4
        await peer.send(settle("nack", 3, delay_ms=10_000))
        assert ops([await peer.message()]) == ["nacked"]
        assert job(await peer.message()) == 5
        await place.ask("/delete", before_seq=5)
        assert job(await peer.message()) == 6
        await peer.send(settle("extend", 5, lease_ms=5000))
        assert ops([await peer.message()]) == ["extended"]
        await peer.quiet()
        await place.passes(1001)  # 6 runs out, 5 does not; nobody else is there to take it
        again = await peer.message()
        assert (job(again), again["deliveries"]) == (6, 2)
        await peer.quiet()


@pytest.mark.rule("H10.3", "Q6.3")
@pytest.mark.parametrize("how", ["close", "end", "reset", "drain", "nonsense"])
async def test_what_was_pushed_is_given_back_at_the_end_and_what_was_claimed_is_not(mock_clock, how):
    async with queue() as place, place.socket() as (peer, connection):
        await place.put(*range(6))
        await peer.ask(op="claim", topic="q", node="w", max=2)
        await peer.send(work(3))
        await peer.messages(4)
        assert await place.counts() == (1, 5)
        if how == "close":
            await peer.send(close())
        elif how == "end":
            await peer.edge.send_eof()
        elif how == "reset":
            peer.edge.reset()
        elif how == "drain":
            place.runtime.end_waits()
            connection.end_if_idle()
            await peer.send(close())
        else:
            await peer.send(frame(b"", mask=None))
        await pass_time(1.5)
        assert await place.counts() == (4, 2)


async def test_work_that_is_stopped_takes_no_more_and_keeps_what_it_has(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        await place.put(1, 2, 3)
        await peer.send(work(2))
        await peer.messages(3)
        assert await peer.ask(op="stop_work", topic="q") == {"op": "stopped", "topic": "q"}
        await peer.send(settle("ack", 1))
        assert ops([await peer.message()]) == ["acked"]
        await peer.quiet()
        assert await place.counts() == (1, 1)
        assert (await peer.ask(op="stop_work", topic="q", x=1))["ignored"] == ["x"]
        assert (await peer.ask(op="stop_work", topic="other"))["op"] == "stopped"

        await peer.send(work(2))  # job 2 is still in its hand
        assert ops(await peer.messages(2)) == ["working", "job"]
        await peer.quiet()


async def test_jobs_that_leave_in_the_moment_in_which_their_work_is_stopped_have_gone(mock_clock):
    """They were given back as if they had never been sent, so two workers had one."""
    async with queue() as place, place.socket(back=200) as (peer, connection):
        socket, scope, gone = connection._socket, trio.CancelScope(), []

        async def push():
            with scope:
                await socket.push([b"{}"])
                gone.append(True)

        async with trio.open_nursery() as nursery:
            await peer.send(*[text(op="ping", request_id="x" * 100)] * 3)  # the peer does not read
            await place.settled()
            nursery.start_soon(push)
            await place.settled()
            assert len(socket._pushed) == 1
            scope.cancel()
            socket._gather()
        assert gone == [True]
        assert await peer.messages(3)
        assert (await peer.message()) == {}


async def test_work_once_more_is_other_work(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        await place.put(*range(9))
        await peer.send(work(1, node="a"))
        assert ops(await peer.messages(2)) == ["working", "job"]
        await peer.send(work(3, node="b"))
        assert ops(await peer.messages(3)) == ["working", "job", "job"]
        await place.ask("/ack", node="b", seqs=[3])
        assert job(await peer.message()) == 4
        await peer.send(work(1, node="c"))
        assert ops([await peer.message()]) == ["working"]
        await peer.quiet()


async def test_a_paused_queue_and_one_that_goes(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        await place.ask("/pause")
        await place.put(1)
        await peer.send(work(1))
        assert ops([await peer.message()]) == ["working"]
        await peer.quiet()
        await place.ask("/resume")
        assert job(await peer.message()) == 1
        await place.ask(method=b"DELETE")
        got = await peer.message()
        assert (got["op"], got["topic"], got["code"]) == ("error", "q", "topic_not_found")
        await place.ask(method=b"PUT", type="queue")
        await place.put(2)
        await peer.quiet()
        await peer.send(work(1))
        assert ops(await peer.messages(2)) == ["working", "job"]


async def test_a_peer_that_does_not_read_has_what_is_on_its_way_and_no_more(mock_clock):
    async with queue() as place, place.socket(back=500) as (peer, _):
        await place.put(*["x" * 4000] * 8)
        await peer.send(work(1000))
        await wait_all_tasks_blocked()
        await peer.send(text(op="stop_work", topic="q"))
        found = []
        while not found or found[-1]["op"] != "stopped":
            found.append(await peer.message())
        pushed = [one["$seq"] for one in found if one["op"] == "job"]
        assert await place.counts() == (8 - len(pushed), len(pushed))


async def test_pushes_that_were_not_begun_are_given_back_by_a_stop(mock_clock):
    async with queue() as place, place.socket(back=500) as (peer, _):
        await place.put("x" * 4000)
        await peer.send(work(1, node="a"))
        await wait_all_tasks_blocked()  # it is being sent
        await place.ask("/ack", node="a", seqs=[1])
        await place.put("y" * 4000)
        assert await place.counts() == (0, 1)  # waits to be sent
        await peer.send(text(op="stop_work", topic="q"))
        assert await place.counts() == (1, 0)
        assert ops(await peer.messages(3)) == ["working", "job", "stopped"]


async def test_so_many_queues_push_to_a_connection_and_no_more(mock_clock):
    async with queue() as place, place.socket() as (peer, _):
        for i in range(WORKS_MAX):
            await place.ask(topic=f"q{i}", method=b"PUT", type="queue")
            assert (await peer.ask(op="work", topic=f"q{i}", node="w"))["op"] == "working"
        got = await peer.ask(op="work", topic="q", node="w")
        assert (got["code"], got["detail"]) == ("throttled", {"limit": "works", "max": WORKS_MAX})


NONSENSE = [
    ({}, "node"),
    ({"node": ""}, "node"),
    ({"node": 5}, "node"),
    ({"node": "w", "max": -1}, "max"),
    ({"node": "w", "max": "1"}, "max"),
    ({"node": "w", "lease_ms": 1.5}, "lease_ms"),
]


@pytest.mark.parametrize(("fields", "field"), NONSENSE)
async def test_nonsense_is_named(mock_clock, fields, field):
    async with queue() as place, place.socket() as (peer, _):
        got = await peer.ask(op="work", topic="q", **fields)
        assert (got["code"], got["detail"]["field"]) == ("invalid_request", field)
        assert (await peer.ask(op="work", topic="q", node="w", max=10**9))["max"] == 1000


@pytest.mark.rule("Q4.12")
@pytest.mark.parametrize("deliveries", [1, 2])
@pytest.mark.parametrize("most", [1, 2])
async def test_who_lets_a_lease_run_out_takes_no_job_before_he_says_anything(mock_clock, most, deliveries):
    """He may stand still: each job of the queue would be his for a lease, until none is left."""
    config = {"lease_ms": 1000, "max_deliveries": deliveries, "dead_letter": "dead"}
    async with queue(**config) as place, place.socket() as (peer, _):
        await peer.send(work(most))
        assert ops([await peer.message()]) == ["working"]
        await place.put("a")
        assert job(await peer.message()) == 1
        await place.passes(1001)
        asked = await peer.frame()
        assert asked.opcode == PING

        await place.put("b")
        for _ in range(3):
            await place.passes(1001)
        await peer.quiet()
        left = (await place.ask("/claim", node="other", max=2))["claimed"]
        assert [(one["data"], one["deliveries"]) for one in left] == [("a", 2), ("b", 1)][2 - deliveries :]
        assert len(left) == deliveries

        await place.put("c")
        await peer.send(frame(asked.payload, PONG))
        found = await peer.message()
        assert (job(found), found["deliveries"]) == (3, 1)


@pytest.mark.rule("Q3.3", "Q3.2")
async def test_jobs_are_pushed_by_the_same_cohorts(mock_clock):
    async with queue(claim_jitter_ms=50) as place, place.socket() as (peer, _):
        await peer.send(work(2, node="pushed"))
        assert ops([await peer.message()]) == ["working"]
        await place.settled()
        await peer.send(text(op="claim", topic="q", node="claims", max=2, wait_ms=30_000))
        await place.put(*range(6))
        assert await place.counts() == (6, 0)  # the cohort is still gathering
        await place.passes(50)
        found = await peer.messages(3)
        assert [one["$seq"] for one in found if one["op"] == "job"] == [1, 3]
        assert [job["$seq"] for one in found if one["op"] == "claimed" for job in one["claimed"]] == [2, 4]


# Any of it, by a model.


class Worker:
    """A peer with what it was told."""

    def __init__(self, place, peer, number):
        self.place, self.peer, self.node = place, peer, f"w{number}"
        self.most, self.has = 0, set()

    async def read(self):
        """Whatever has come."""
        await self.place.settled()
        while self.peer.client.buffer or self.peer.edge.unread_bytes:
            one = await self.peer.frame()
            if one.opcode == PING:  # a lease ran out
                await self.peer.send(frame(one.payload, PONG))
                await self.place.settled()
                continue
            got = one.fields
            assert got["op"] not in ("error", "claimed"), got
            if got["op"] == "job":
                assert self.most, "a job behind the end of work"
                self.has.add(got["$seq"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("work"), st.integers(0, 2), st.integers(1, 3)),
        st.tuples(st.sampled_from(["stop_work", "reconnect"]), st.integers(0, 2), st.just(0)),
        st.tuples(st.sampled_from(["ack", "nack", "extend", "http"]), st.integers(0, 2), st.integers(1, 9)),
        st.tuples(st.sampled_from(["passes", "delete"]), st.integers(1, 1500), st.just(0)),
        st.tuples(st.sampled_from(["pause", "resume"]), st.just(0), st.just(0)),
    ),
    max_size=40,
)


@pytest.mark.rule("H10.3", "H10.7", "Q4.12")
@given(steps=STEPS, jitter_ms=st.sampled_from([0, 0, 10]))
@settings(max_examples=60, deadline=None)
async def test_hands_are_as_full_as_they_can_be_and_never_fuller(steps, jitter_ms):
    async with queue(lease_ms=1000, claim_jitter_ms=jitter_ms) as place, trio.open_nursery() as nursery:

        async def connect(number):
            ours, theirs = edge_pair(1 << 24)
            nursery.start_soon(serve_connection, theirs, place.site)
            peer = SocketPeer(ours)
            await peer.open(head())
            return Worker(place, peer, number)

        workers = [await connect(number) for number in range(3)]
        paused = False
        for kind, which, what in steps:
            if kind == "put":
                await place.put(*range(which))
            elif kind == "passes":
                await place.passes(which)
            elif kind == "delete":
                await place.ask("/delete", before_seq=which % 10)
            elif kind in ("pause", "resume"):
                paused = kind == "pause"
                await place.ask(f"/{kind}")
            else:
                worker = workers[which]
                if kind == "reconnect":
                    worker.peer.edge.close()
                    workers[which] = await connect(which)
                elif kind == "work":
                    worker.most = what
                    await worker.peer.send(work(what, node=worker.node))
                elif kind == "stop_work":
                    await worker.peer.send(text(op=kind, topic="q"))
                elif kind == "http":
                    await place.ask("/ack", node=worker.node, seqs=[what])
                else:
                    more = {"lease_ms": 1500} if kind == "extend" else {}
                    await worker.peer.send(settle(kind, what, node=worker.node, **more))
            for _ in range(3 if jitter_ms else 0):  # who was dealt too few claims again
                await place.passes(jitter_ms)
            for worker in workers:
                await worker.read()
            if kind == "stop_work":
                workers[which].most = 0
            await check(place, workers, paused=paused)
        for worker in workers:
            worker.peer.edge.close()
        assert (await place.counts())[1] == 0
        nursery.cancel_scope.cancel()


async def check(place, workers, *, paused):
    leased = await place.ask("/peek", state="in_flight", limit=1000)
    held = {worker.node: set() for worker in workers}
    for one in leased["jobs"]:
        held[one["node"]].add(one["$seq"])
    for worker in workers:
        assert held[worker.node] <= worker.has, "leased to a connection that was not told"
    ready, _ = await place.counts()
    working = [worker for worker in workers if worker.most]
    for worker in working:
        assert len(held[worker.node]) <= max(worker.most, 3)
    if ready and not paused:
        assert all(len(held[worker.node]) >= worker.most for worker in working), "somebody has room"
