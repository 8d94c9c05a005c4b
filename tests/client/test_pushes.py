"""What a worker at a server says on its WebSocket, what it makes of what it hears, and of what it does not hear."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

import topics
from tests.client.peer import Peer, answer, error
from tests.client.scripted import Line, Relay, scripted
from tests.support.embedded import wait_until
from topics.calls.awaiting import AsyncJob
from topics.calls.queues.jobs import AckCall, NackCall
from topics.calls.trouble import Trouble, Unreachable
from topics.calls.workers.desk import Desk
from topics.calls.workers.leases import Leases
from topics.cli.demo.private_server import PrivateServer
from topics.client.pushes import Pushes
from topics.client.websocket import Way, connected
from topics.kernel.errors import Code

TLS = Path(__file__).parents[1] / "server" / "tls"
AT_ONCE = {"base_ms": 0, "factor": 1, "max_ms": 0}


class Queue:
    """As supplies know it."""

    name, node, job_type, store = "q", "w", AsyncJob, None


class Place:
    """A desk and its supply, with so many hands."""

    def __init__(self, url: str, silent_s: float) -> None:
        self.desk = Desk(Leases[AsyncJob](60_000))
        self.supply = Pushes[AsyncJob](Way(url, {}, trust=False, silent_s=silent_s), Queue())
        self.failure: topics.TopicsError | None = None

    @asynccontextmanager
    async def working(self, hands: int):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run)
            self.desk.add_hands(hands)
            yield self
            tasks.cancel_scope.cancel()

    async def _run(self) -> None:
        try:
            await self.supply.run(self.desk)
        except topics.TopicsError as error:
            self.failure = error
            self.desk.end(error)

    async def next(self) -> AsyncJob:
        job = await self.desk.next()
        assert job is not None
        return job

    async def ack(self, *jobs: AsyncJob) -> Any:
        reply = await self.supply.tell(AckCall(Queue(), jobs))
        for job in jobs:
            job.is_settled = True
            self.desk.done(job)
        return reply

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            await anyio.lowlevel.checkpoint()


@pytest.fixture(params=["trio", "asyncio"])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Play what connections do against what a worker does there, which is given a place."""

    def run(
        worker: Callable[[Place], Awaitable[None]],
        *lives: Callable[[Line], None],
        hands: int = 1,
        silent_s: float = 25,
    ) -> None:
        async def main(url: str) -> None:
            with anyio.fail_after(30):
                async with Place(url, silent_s).working(hands) as place:
                    await worker(place)

        with scripted(*lives) as url:
            anyio.run(main, url, backend=request.param)

    return run


def test_it_asks_for_as_many_as_there_are_hands_and_acks_that_are_due_together_are_one(play) -> None:
    def live(line: Line) -> None:
        line.begin(3)
        for seq in (1, 2, 3):
            line.push(seq)
        asked = [line.next(), line.next()]  # tasks of Trio begin in any order
        assert sorted((one["op"], sorted(one["seqs"])) for one in asked) == [("ack", [1, 3]), ("nack", [2])]
        for one in reversed(asked):  # answers may overtake each other
            line.settled(one)
        line.stop()

    async def work(place: Place) -> None:
        first, second, third = [await place.next() for _ in range(3)]
        told = dict[int, list[int]]()
        await anyio.wait_all_tasks_blocked()

        async def tell(call: Any) -> None:
            told[call.jobs[0].seq] = sorted((await place.supply.tell(call)).seqs)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell, NackCall(Queue(), [second], reason="no"))
            tasks.start_soon(tell, AckCall(Queue(), [first]))
            tasks.start_soon(tell, AckCall(Queue(), [third]))
        assert told == {1: [1, 3], 2: [2], 3: [1, 3]}
        place.desk.stop()
        await place.desk.ended.wait()
        assert await place.desk.next() is None

    play(work, live, hands=3)


@pytest.mark.parametrize("code", [1001, 1011, 1013])
def test_a_connection_that_is_closed_loses_its_leases_and_another_one_is_made(play, code: int) -> None:
    def first(line: Line) -> None:
        line.begin(1)
        line.push(1)
        line.get("ack")
        line.connection.close(code, "away")

    def second(line: Line) -> None:
        line.begin(1)
        line.push(1)  # which waits for its earlier run to end
        line.settle("ack", 1)

    async def work(place: Place) -> None:
        lost = await place.next()
        with pytest.raises(Unreachable) as told:
            await place.supply.tell(AckCall(Queue(), [lost]))
        assert (told.value.reason, told.value.sent, lost.is_lost, lost.is_settled) == (
            Trouble.LOST,
            True,
            True,
            False,
        )
        place.desk.done(lost)
        again = await place.next()
        assert (again.seq, again.is_lost) == (1, False)
        await place.ack(again)

    play(work, first, second)


def test_what_is_refused_for_good_is_raised(play) -> None:
    def live(line: Line) -> None:
        asked = line.get("work")
        line.say("error", request_id=asked["request_id"], code="not_a_queue", message="topic 'q' is a log")

    async def work(place: Place) -> None:
        with pytest.raises(topics.Rejected, match="is a log"):
            await place.next()
        assert place.failure is not None

    play(work, live)


def test_what_is_refused_for_now_is_asked_again_and_no_lease_is_lost(play) -> None:
    def live(line: Line) -> None:
        asked = line.get("work")
        line.ping(None)
        line.say("error", request_id=asked["request_id"], code="not_ready", message="later")
        line.begin(2)
        line.push(1)
        line.say("error", topic="q", code="disk_low", message="no room")  # of no message: it pushes no more
        line.work(2)
        line.push(2)
        line.settle("ack", 1)

    async def work(place: Place) -> None:
        jobs = [await place.next(), await place.next()]
        assert [(job.seq, job.is_lost) for job in jobs] == [(1, False), (2, False)]
        await place.ack(jobs[0])

    play(work, live, hands=2)


def test_what_comes_when_nobody_is_here_any_more_is_given_back(play) -> None:
    is_asked, is_given_back = threading.Event(), threading.Event()

    def live(line: Line) -> None:
        line.begin(1)
        is_asked.set()
        asked = line.get("stop_work")
        line.push(1)  # before it heard of that
        line.say("stopped", request_id=asked["request_id"], topic="q")
        assert line.settle("nack", 1)["delay_ms"] == 0
        is_given_back.set()
        line.work(1)
        line.push(2)

    async def work(place: Place) -> None:
        await place.until(is_asked.is_set)
        place.desk.add_hands(-1)
        await place.until(is_given_back.is_set)
        place.desk.add_hands(1)
        assert (await place.next()).seq == 2

    play(work, live)


def test_a_server_that_is_silent_holds_up_nobody_who_stops(play) -> None:
    """It was waited for until it was taken for dead, for most of a minute."""
    is_asked, has_stopped = threading.Event(), threading.Event()

    def live(line: Line) -> None:
        line.begin(2)
        is_asked.set()
        assert has_stopped.wait(20)

    async def work(place: Place) -> None:
        await place.until(is_asked.is_set)
        place.desk.stop()
        assert [await place.desk.next() for _ in range(2)] == [None, None]
        has_stopped.set()

    play(work, live, hands=2)


def test_who_still_does_what_is_lost_is_brought_nothing(play) -> None:
    def live(line: Line) -> None:
        line.begin(2)
        line.push(1)
        line.work(1)
        line.work(2)
        line.push(2)
        line.settle("ack", 2)

    async def work(place: Place) -> None:
        lost = await place.next()
        place.desk.leases.extended([lost], (), 0)
        place.desk.goes_on(lost)
        place.desk.goes_on(lost)
        await place.until(lambda: place.supply._line is not None and place.supply._line._room == 1)
        place.desk.done(lost)
        await place.ack(await place.next())

    play(work, live, hands=2)


def test_over_tls_and_a_server_that_is_not_trusted() -> None:
    certificate = TLS / "one.pem"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, TLS / "one.key")

    async def main(url: str, trust: ssl.SSLContext) -> None:
        async with connected(Way(url, {}, trust)) as line:
            assert await line.receive() == [b'{"op": "hello"}']

    with scripted(lambda line: line.say("hello"), tls=context) as url:
        anyio.run(main, url, ssl.create_default_context(cafile=certificate))
        with pytest.raises(Unreachable, match="not trusted") as told:
            anyio.run(main, url, ssl.create_default_context())
        assert told.value.reason is Trouble.TLS


@pytest.mark.rule("Q6.2")
@pytest.mark.parametrize("ahead_ms", [0, 3_600_000, -3_600_000])
def test_a_lease_is_lost_here_no_later_than_there_whatever_the_clocks_say(play, ahead_ms: int) -> None:
    """And a clock that was moved is found out by the next job."""

    def live(line: Line) -> None:
        line.begin(4, ahead_ms=ahead_ms)
        line.push(1, age_ms=-ahead_ms)
        line.push(2, age_ms=61_000 - ahead_ms)  # it was on its way for so long
        line.ping(ahead_ms)
        line.push(3, age_ms=-ahead_ms - 5000)  # of the future: the clock there was set forward
        line.ping(ahead_ms + 5000)
        line.push(4, age_ms=-ahead_ms - 5000)
        line.push(5, age_ms=-ahead_ms + 65_000)  # set back, by more than a lease
        line.ping(ahead_ms - 70_000)
        line.push(6, age_ms=-ahead_ms + 70_000)
        line.settle("ack", 6)

    async def work(place: Place) -> None:
        asked_s = time.monotonic()
        for seq in (1, 3, 4, 6):
            job = await place.next()
            assert job.seq == seq
            assert asked_s - 1 <= job.until_s - 60 <= time.monotonic()
        await place.ack(job)

    play(work, live, hands=4)


# The way.


@pytest.mark.parametrize(
    ("step", "reason", "words"),
    [
        (
            answer(400, b"<html>Bad Request</html>"),
            Trouble.NOT_TOPICS,
            "a proxy in between must let upgrades",
        ),
        (answer(200, b"{}"), Trouble.NOT_TOPICS, "answered 200"),
        (error(426, "upgrade_required"), Trouble.NOT_TOPICS, "answered 426"),
        (answer(502, b"<html>"), Trouble.LOST, "a proxy answered 502"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Trouble.NOT_TOPICS, "no topics server"),
        (None, Trouble.LOST, "the connection was lost"),
    ],
)
def test_who_is_no_server_of_a_websocket_is_told_from_one_that_is_away(
    step, reason: Trouble, words: str
) -> None:
    async def main(url: str) -> None:
        async with connected(Way(url, {"authorization": "Bearer k"}, trust=False)):
            pass

    with Peer(step) as peer, pytest.raises(Unreachable, match=words) as told:
        anyio.run(main, peer.url)
    assert told.value.reason is reason
    lines = peer.requests[0].split(b"\r\n")
    assert lines[0] == b"GET /v0/ws HTTP/1.1"
    assert b"authorization: Bearer k" in lines


def test_what_a_server_answers_instead_is_raised_and_nobody_is_found_out() -> None:
    async def main(url: str) -> None:
        async with connected(Way(url, {}, trust=False)):
            pass

    with Peer(error(403, "forbidden")) as peer, pytest.raises(topics.Rejected) as told:
        anyio.run(main, peer.url)
    assert told.value.code == Code.FORBIDDEN
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable) as gone:
        anyio.run(main, f"http://127.0.0.1:{port}")
    assert gone.value.reason is Trouble.REFUSED


def test_a_peer_of_whom_nothing_comes_is_asked_and_one_that_answers_is_kept(
    play,
) -> None:
    silent = threading.Event()

    def live(line: Line) -> None:
        line.begin(1)
        silent.wait(0.5)
        line.push(1)
        line.settle("ack", 1)

    async def work(place: Place) -> None:
        await place.ack(await place.next())

    play(work, live, silent_s=0.02)


def test_a_peer_that_says_nothing_though_asked_is_given_up() -> None:
    heard: list[Frame] = []

    def mute(listener: socket.socket) -> None:
        here, _ = listener.accept()
        protocol = ServerProtocol()
        with here:
            while data := here.recv(65_536):
                protocol.receive_data(data)
                for event in protocol.events_received():
                    if isinstance(event, Request):
                        protocol.send_response(protocol.accept(event))
                        here.sendall(b"".join(protocol.data_to_send()))
                    else:
                        heard.append(event)

    async def main(url: str) -> None:
        async with (
            connected(Way(url, {}, trust=False, silent_s=0.02)) as line,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(line.write, list)
            with pytest.raises(Unreachable, match="silent") as told:
                await line.receive()
            assert told.value.reason is Trouble.TIMEOUT
            tasks.cancel_scope.cancel()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=mute, args=[listener])
        thread.start()
        anyio.run(main, f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join(20)
    assert [frame.opcode for frame in heard] == [Opcode.PING]


# A real server.


@pytest.fixture
def jobs(client: topics.Client, name: str) -> topics.Queue:
    client.create(name, type="queue", lease_ms=60_000, retry_backoff=AT_ONCE)
    return client.queue(name, node="other")


@pytest.mark.rule("Q4.7", "Q6.2")
@pytest.mark.parametrize("is_heard", [True, False])
def test_an_ack_that_nobody_answers_is_not_done_and_its_job_may_come_again(
    server: PrivateServer, jobs: topics.Queue, is_heard: bool
) -> None:
    """The way is cut while the ack is on it, behind the server, or before it."""
    jobs.put("x")
    begun: list[topics.Job] = []
    with Relay(server.port) as relay, topics.Client(relay.url) as client:

        def cut() -> None:
            relay.held.get(timeout=20)
            relay.hold = None
            relay.cut()

        with client.worker(jobs.name, node="w") as worker:

            def handle(job: topics.Job) -> None:
                begun.append(job)
                if len(begun) == 1:
                    if is_heard:
                        jobs.put("y")
                    relay.hold = "answers" if is_heard else "asked"
                    threading.Thread(target=cut, daemon=True).start()
                else:
                    worker.stop()

            worker.run(handle)
    first, second = begun
    assert (first.is_settled, first.is_lost) == (False, True)
    assert second.is_settled
    assert second.data == ("y" if is_heard else "x")
    assert first.lease_id != second.lease_id
    found = jobs.state().queue
    assert (found.ready, found.in_flight, found.delayed) == (0, 0, 0)


@pytest.mark.rule("Q6.1", "Q6.2")
def test_a_server_that_is_killed_under_its_workers_is_waited_for_and_each_job_comes_again(
    tmp_path: Path,
) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        client.create("q", type="queue", durability="fsync", leases_durable=True, lease_ms=3000)
        queue = client.queue("q", node="other")
        queue.put_many([{"data": i} for i in range(3)])
        begun: list[topics.Job] = []
        all_begun, is_back = threading.Event(), threading.Event()
        with client.worker("q", node="w", concurrency=3) as worker:

            def handle(job: topics.Job) -> None:
                begun.append(job)
                if len(begun) == 3:
                    all_begun.set()
                if not is_back.is_set():
                    assert is_back.wait(20)
                    assert wait_until(lambda: job.is_lost)
                elif len(begun) == 6:
                    worker.stop()

            running = threading.Thread(target=worker.run, args=[handle])
            running.start()
            assert all_begun.wait(20)
            server.kill()
            server.start()
            # A durable lease may outlive the kill, and an ack that comes in its time counts.
            assert wait_until(lambda: queue.state().queue.in_flight == 0)
            is_back.set()
            running.join(20)
            assert not running.is_alive()
        assert sorted(job.seq for job in begun) == [1, 1, 2, 2, 3, 3]
        assert len({job.lease_id for job in begun}) == 6  # none twice
        assert [job.is_settled for job in begun] == [False] * 3 + [True] * 3
        found = queue.state().queue
        assert (found.ready, found.in_flight, found.delayed) == (0, 0, 0)


@pytest.mark.rule("Q6.1")
def test_what_fails_rests_as_the_queue_says_and_without_that_for_a_second(
    client: topics.Client, jobs: topics.Queue, name: str
) -> None:
    client.create(f"{name}-2", type="queue")
    told = []
    for queue in (jobs, client.queue(f"{name}-2", node="other")):
        queue.put("x")
        with client.worker(queue.name) as worker:

            def handle(_: topics.Job, worker: topics.Worker[topics.Job] = worker) -> None:
                worker.stop()
                raise ValueError("no")

            worker.run(handle)
        (job,) = [*queue.peek(), *queue.peek("delayed")]
        told.append((job.state, job.reason, job.deliveries))
    assert told == [("ready", "ValueError: no", 1), ("delayed", "ValueError: no", 1)]
