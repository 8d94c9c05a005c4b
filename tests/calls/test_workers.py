"""Workers over a store in this process and over a server: by threads, and by tasks on Trio and on asyncio."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import topics
from tests.support.embedded import wait_until
from topics.calls.awaiting import AsyncTopicStore
from topics.calls.blocking import TopicStore
from topics.calls.call import Call, Steps, drive
from topics.calls.queues.jobs import AckCall, ClaimCall, ExtendCall
from topics.calls.trouble import Trouble, Unreachable
from topics.cli.demo.private_server import PrivateServer
from topics.kernel.errors import Code

JOBS, CONCURRENCY, LEASE_MS = 40, 8, 300
AT_ONCE = {"base_ms": 0, "factor": 1, "max_ms": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    home = tmp_path_factory.mktemp("server")
    with PrivateServer(home / "data", home) as running:
        yield running


@pytest.fixture(params=["store", "client"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TopicStore]:
    if request.param == "store":
        with topics.open(tmp_path / "data") as opened:
            yield opened
    else:
        with topics.Client(request.getfixturevalue("server").url) as client:
            yield client


@pytest.fixture
def jobs(store: TopicStore, request: pytest.FixtureRequest) -> topics.Queue:
    name = f"q{abs(hash(request.node.nodeid))}"
    store.create(name, type="queue", lease_ms=LEASE_MS, retry_backoff=AT_ONCE)
    return store.queue(name, node="w")


Main = Callable[[AsyncTopicStore, topics.AsyncQueue], Any]


@pytest.fixture(params=["open_trio", "client on trio", "client on asyncio"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Main], Any]:
    """Run it with a store and a queue of it."""

    def opened() -> AbstractAsyncContextManager[AsyncTopicStore]:
        if request.param == "open_trio":
            return topics.open_trio(tmp_path / "data")
        return topics.AsyncClient(request.getfixturevalue("server").url)

    async def whole(main: Main) -> Any:
        name = f"q{abs(hash(request.node.nodeid))}"
        with anyio.fail_after(30):
            async with opened() as store:
                await store.create(name, type="queue", lease_ms=LEASE_MS, retry_backoff=AT_ONCE)
                return await main(store, store.queue(name, node="w"))

    server = request.getfixturevalue("server")
    assert server.url
    return lambda main: anyio.run(whole, main, backend=request.param.rpartition(" ")[2].replace("open_", ""))


async def counts(queue: topics.AsyncQueue) -> tuple[int, int, int]:
    found = (await queue.state()).queue
    assert found is not None
    return found.ready, found.in_flight, found.delayed


def counts_of(queue: topics.Queue) -> tuple[int, int, int]:
    found = queue.state().queue
    assert found is not None
    return found.ready, found.in_flight, found.delayed


@pytest.mark.rule("Q6.1")
def test_each_job_is_done_once_and_several_at_once(jobs: topics.Queue) -> None:
    jobs.put_many([{"data": i} for i in range(JOBS)])
    done, together = list[int](), threading.Barrier(CONCURRENCY)

    with jobs.store.worker(jobs.name, node="w", concurrency=CONCURRENCY) as worker:

        def handle(job: topics.Job) -> None:
            together.wait(20)
            done.append(job.data)
            if len(done) == JOBS:
                worker.stop()

        worker.run(handle)
    assert sorted(done) == list(range(JOBS))
    assert counts_of(jobs) == (0, 0, 0)


def test_until_it_is_empty_and_what_fails_meanwhile_is_done_too(jobs: topics.Queue) -> None:
    jobs.put_many([{"data": i} for i in range(5)])
    seen: list[int] = []

    def handle(job: topics.Job) -> None:
        seen.append(job.data)
        if job.data == 3 and job.deliveries == 1:
            raise ValueError("once more")

    with jobs.store.worker(jobs.name, concurrency=2, until_empty=True) as worker:
        worker.run(handle)
        worker.run(handle)  # there is nothing left to do
    assert sorted(seen) == [0, 1, 2, 3, 3, 4]
    assert counts_of(jobs) == (0, 0, 0)


@pytest.mark.rule("Q6.1")
def test_each_job_is_done_once_and_several_at_once_by_tasks(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put_many([{"data": i} for i in range(JOBS)])
        done, here = list[int](), set[int]()
        full = anyio.Event()
        async with store.worker(queue.name, concurrency=CONCURRENCY) as worker:

            async def handle(job: topics.AsyncJob) -> None:
                here.add(job.seq)
                if len(here) == CONCURRENCY:
                    full.set()
                await full.wait()
                assert len(here) <= CONCURRENCY
                here.remove(job.seq)
                done.append(job.data)
                if len(done) == JOBS:
                    worker.stop()

            await worker.run(handle)
        assert sorted(done) == list(range(JOBS))
        assert await counts(queue) == (0, 0, 0)

    run(main)


@pytest.mark.rule("Q6.2")
def test_a_handler_that_takes_ten_leases_keeps_its_job(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put("long")
        seen = []
        async with store.worker(queue.name, node="w") as worker:

            async def handle(job: topics.AsyncJob) -> None:
                begun_s = anyio.current_time()
                while anyio.current_time() - begun_s < 10 * LEASE_MS / 1000:
                    assert await store.queue(queue.name, node="other").get(timeout=0.1) is None
                assert not job.is_lost
                seen.append((job.data, job.deliveries))
                worker.stop()

            await worker.run(handle)
        assert seen == [("long", 1)]
        assert await counts(queue) == (0, 0, 0)

    run(main)


@pytest.mark.rule("Q6.2")
def test_a_loop_that_takes_ten_leases_for_a_job_keeps_it(jobs: topics.Queue) -> None:
    jobs.put("long")
    other = jobs.store.queue(jobs.name, node="other")
    with jobs.store.worker(jobs.name, node="w") as worker:
        for job in worker:
            for _ in range(10):
                assert other.get(timeout=LEASE_MS / 1000) is None
            assert not job.is_lost
            worker.stop()
    assert counts_of(jobs) == (0, 0, 0)


@pytest.mark.rule("Q1.14")
def test_a_worker_names_the_lease_of_every_job(jobs: topics.Queue) -> None:
    jobs.configure(require_lease_id=True)
    jobs.put_many([{"data": what} for what in ("returns", "raises", "settles itself")])

    def handle(job: topics.Job) -> None:
        if job.data == "settles itself":
            assert job.extend(60_000)
            assert job.ack()
        elif job.data == "raises" and job.deliveries == 1:
            raise ValueError

    with jobs.store.worker(jobs.name, until_empty=True) as worker:
        worker.run(handle)
    jobs.put("of a loop")
    with jobs.store.worker(jobs.name, until_empty=True) as worker:
        assert [job.data for job in worker] == ["of a loop"]
    assert counts_of(jobs) == (0, 0, 0)


@pytest.mark.rule("Q6.1")
def test_what_a_handler_raises_is_the_reason_and_the_job_comes_again(jobs: topics.Queue) -> None:
    jobs.put("x")
    seen: list[int] = []
    with jobs.store.worker(jobs.name) as worker:

        def handle(job: topics.Job) -> None:
            seen.append(job.deliveries)
            if job.deliveries == 1:
                raise ValueError("é" * 2000)
            worker.stop()

        worker.run(handle)
    assert seen == [1, 2]
    assert counts_of(jobs) == (0, 0, 0)


@pytest.mark.rule("Q6.1")
def test_what_a_handler_in_a_task_raises_is_the_reason(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> str:
        await queue.put("x")
        async with store.worker(queue.name) as worker:

            async def handle(_: topics.AsyncJob) -> None:
                worker.stop()
                raise ValueError("no such place")

            await worker.run(handle)
        (job,) = await queue.peek()
        return job.reason

    assert run(main) == "ValueError: no such place"


@pytest.mark.rule("Q6.2")
def test_a_handler_whose_lease_is_lost_is_cancelled(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> list[object]:
        await queue.put("x")
        told: list[object] = []
        async with store.worker(queue.name, node="w") as worker:

            async def handle(job: topics.AsyncJob) -> None:
                await queue.ack([job.seq])  # by somebody else, without a token
                try:
                    await anyio.sleep_forever()
                finally:
                    told.append(job.is_lost)
                    worker.stop()

            await worker.run(handle)
        return told

    assert run(main) == [True]


@pytest.mark.rule("Q6.2")
def test_what_was_finished_too_late_is_told(
    run: Callable[[Main], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put("x")
        async with store.worker(queue.name, node="w", lease_ms=60_000) as worker:

            async def handle(job: topics.AsyncJob) -> None:
                worker.stop()
                assert await queue.nack([job.seq], delay_ms=0)  # by somebody else, without a token

            await worker.run(handle)
        assert await counts(queue) == (1, 0, 0)

    run(main)
    said = [message for message in caplog.messages if "job 1" in message]
    assert [message.partition(": ")[2] for message in said] == [
        "job 1 was finished and does not count: its lease had ended; it may be done again"
    ]


def test_who_settles_his_job_himself_goes_on(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put("x")
        async with store.worker(queue.name) as worker:

            async def handle(job: topics.AsyncJob) -> None:
                assert await job.extend(5000)
                assert await job.nack("later", delay_ms=60_000)
                await anyio.sleep(2 * LEASE_MS / 1000)
                worker.stop()

            await worker.run(handle)
        assert await counts(queue) == (0, 0, 1)

    run(main)


@pytest.mark.rule("Q6.2")
def test_a_loop_has_done_a_job_when_it_asks_for_the_next(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put_many([{"data": i} for i in range(3)])
        async with store.worker(queue.name) as worker:
            async for job in worker:
                if job.data == 1:
                    break
        assert await counts(queue) == (2, 0, 0)
        with pytest.raises(KeyError, match="broken"):
            async with store.worker(queue.name) as worker:
                async for _ in worker:
                    raise KeyError("broken")
        assert [job.reason for job in await queue.peek() if job.deliveries == 2] == ["KeyError: 'broken'"]
        async with store.worker(queue.name) as worker:
            with pytest.raises(KeyError):
                async for _ in worker:
                    raise KeyError("caught")
            async for _ in worker:  # the one that was left comes again
                if await counts(queue) == (0, 1, 0):
                    worker.stop()
        assert await counts(queue) == (0, 0, 0)

    run(main)


@pytest.mark.rule("Q6.2")
def test_a_loop_in_a_thread_has_done_a_job_when_it_asks_for_the_next(jobs: topics.Queue) -> None:
    jobs.put_many([{"data": i} for i in range(3)])
    with jobs.store.worker(jobs.name) as worker:
        for job in worker:
            if job.data == 1:
                break
    assert counts_of(jobs) == (2, 0, 0)
    with pytest.raises(KeyError, match="broken"), jobs.store.worker(jobs.name) as worker:
        for _ in worker:
            raise KeyError("broken")
    assert [job.reason for job in jobs.peek() if job.deliveries == 2] == ["KeyError: 'broken'"]
    with jobs.store.worker(jobs.name) as worker:
        for _ in worker:
            if counts_of(jobs) == (0, 1, 0):
                worker.stop()
    assert counts_of(jobs) == (0, 0, 0)


def test_a_block_that_is_cancelled_gives_its_jobs_back(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        await queue.put("x")
        with anyio.CancelScope() as scope:
            async with store.worker(queue.name) as worker:

                async def handle(_: topics.AsyncJob) -> None:
                    scope.cancel()
                    await anyio.sleep_forever()

                await worker.run(handle)
        assert await counts(queue) == (1, 0, 0)

    run(main)


def test_without_the_queue_it_says_so_and_in_no_group(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        with pytest.raises(topics.Rejected) as refused:
            async with store.worker("absent"):
                pass
        assert refused.value.code == Code.TOPIC_NOT_FOUND
        with pytest.raises(topics.Rejected) as refused:
            async with store.worker(queue.name, concurrency=3) as worker:
                await store.delete(queue.name)
                await worker.run(lambda _: anyio.lowlevel.checkpoint())
        assert refused.value.code == Code.TOPIC_NOT_FOUND

    run(main)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency: must be 1 to 1000, not 0"),
        ({"concurrency": 1001}, "concurrency"),
        ({"lease_ms": 99}, "lease_ms: must be 100 to 86400000, not 99"),
        ({"handle_signals": 1}, "handle_signals"),
        ({"until_empty": 1}, "until_empty"),
        ({"node": ""}, "node: must not be empty"),
    ],
)
def test_what_is_wrong_is_refused_by_name(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with topics.open(tmp_path) as store, pytest.raises(topics.Rejected, match=message):
        store.worker("jobs", **options)


class Failing(TopicStore):
    """A store whose calls of a kind fail for the first few times: some are not heard, of others the answer is lost."""

    is_remote = True

    def __init__(self, store: TopicStore, kind: type[Call[Any]], times: int) -> None:
        self.where, self.limits, self.store = store.where, store.limits, store
        self.kind, self.times = kind, times

    def do(self, steps: Steps[Any]) -> Any:
        return drive(iter(steps), self._answer)

    def _answer(self, call: Call[Any]) -> Any:
        fails = isinstance(call, self.kind) and self.times > 0
        is_heard = not fails or (self.kind is not ClaimCall and self.times % 2 == 0)
        found = self.store.do(call) if is_heard else None
        if fails:
            self.times -= 1
            raise Unreachable(Trouble.LOST, "http://there", "gone", sent=True)
        return found

    def feed(self, asked: Any) -> Any:
        raise NotImplementedError

    def backup(self, dest: Any, **options: Any) -> Any:
        raise NotImplementedError

    def close(self) -> None:
        pass


@pytest.mark.rule("Q6.2")
@pytest.mark.parametrize("kind", [ClaimCall, AckCall, ExtendCall])
def test_what_fails_on_the_way_is_done_again(
    tmp_path: Path, kind: type[Call[Any]], caplog: pytest.LogCaptureFixture
) -> None:
    done: list[int] = []
    with topics.open(tmp_path) as opened:
        queue = opened.create("jobs", type="queue", lease_ms=2000) and opened.queue("jobs", node="w")
        queue.put_many([{"data": i} for i in range(3)])
        failing = Failing(opened, kind, 3)
        with failing.worker("jobs", node="w", concurrency=2) as worker:

            def handle(job: topics.Job) -> None:
                while kind is ExtendCall and failing.times:
                    assert opened.queue("jobs").get(timeout=0.05) is None
                done.append(job.data)
                if len(done) == 3:
                    worker.stop()

            worker.run(handle)
        assert sorted(done) == [0, 1, 2]
        assert counts_of(queue) == (0, 0, 0)
        away = ["http://there: gone; trying again until it is there", f"{opened.where} is there again"]
        said = [message for message in caplog.messages if "there" in message]
        assert said == (away if kind is ClaimCall else [])


def test_a_store_that_is_closed_ends_its_worker(tmp_path: Path) -> None:
    store = topics.open(tmp_path)
    store.create("jobs", type="queue")
    with pytest.raises(topics.Rejected) as refused, store.worker("jobs", concurrency=2) as worker:
        closing = threading.Thread(target=store.close)
        closing.start()
        worker.run(print)
    closing.join()
    assert refused.value.code == Code.SHUTTING_DOWN


def test_a_sigterm_that_wakes_nobody_stops_a_worker_all_the_same(jobs: topics.Queue) -> None:
    """Its handler is run by the main thread, once that does something again."""
    jobs.put(1)
    main = threading.main_thread().ident
    assert main is not None
    with jobs.store.worker(jobs.name) as worker:

        def handle(_job: topics.Job) -> None:
            assert wait_until(lambda: sys._current_frames()[main].f_code.co_filename == threading.__file__)
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        worker.run(handle)

    assert counts_of(jobs) == (0, 0, 0)


@pytest.mark.rule("Q6.2")
def test_a_sigterm_stops_every_worker_of_the_main_thread(run: Callable[[Main], Any]) -> None:
    async def main(store: AsyncTopicStore, queue: topics.AsyncQueue) -> None:
        async with store.worker(queue.name) as one, store.worker(queue.name, node="later") as other:
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # a second one ends the process
            for worker in (one, other):
                assert [job async for job in worker] == []

    run(main)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.rule("Q6.2")
def test_a_worker_leaves_a_programs_own_handler_alone_and_is_content_with_any_thread(
    jobs: topics.Queue,
) -> None:
    def own(*_: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        with jobs.store.worker(jobs.name):
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)

    def elsewhere() -> None:
        jobs.put(1)
        with jobs.store.worker(jobs.name, until_empty=True) as worker:
            worker.run(lambda job: seen.append(job.data))

    seen: list[int] = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [1]
    with jobs.store.worker(jobs.name, handle_signals=False):
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_sigterm_that_wakes_nobody_stops_a_loop_all_the_same(jobs: topics.Queue) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def waits_for_a_job() -> bool:
        is_asked = worker._tasks.desk.waiting == 1
        return is_asked and sys._current_frames()[main].f_code.co_filename == threading.__file__

    def interrupt() -> None:
        assert wait_until(waits_for_a_job)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with jobs.store.worker(jobs.name) as worker:
        interrupting = threading.Thread(target=interrupt)
        interrupting.start()
        for _ in worker:
            raise AssertionError
    interrupting.join()


def test_a_task_of_asyncio_that_is_cancelled_while_a_worker_leaves_ends(
    topics_client: topics.Client, topics_server: Any
) -> None:
    """No shield of anyio holds off a task's own `cancel`: once it came while jobs were given back, nothing ended."""
    topics_client.create("jobs", type="queue")
    topics_client.queue("jobs").put(1)

    async def leaves() -> None:
        async with (
            topics.AsyncClient(topics_server.url) as client,
            client.worker("jobs", handle_signals=False) as worker,
        ):
            await anext(aiter(worker))
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)

    async def main() -> None:
        task = asyncio.create_task(leaves())
        done, _ = await asyncio.wait({task}, timeout=10)
        assert done

    asyncio.run(main())
