"""Workers in processes of their own: stopped, killed, told to end, and their server restarted under them (queues 6)."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

import topics
from tests.support.embedded import wait_until
from topics.cli.demo.private_server import PrivateServer

LEASE_MS = 600
SCRIPT = Path(__file__).with_name("worker_process.py")


class Process:
    """A worker, and what it says."""

    def __init__(self, kind: str, url: str, queue: str) -> None:
        self.child = subprocess.Popen(
            [
                sys.executable,
                str(SCRIPT),
                kind,
                url,
                queue,
                f"node of {queue}",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        self.expect("working")
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self.child.communicate()

    def expect(self, *lines: str) -> None:
        assert self.child.stdout is not None
        for line in lines:
            assert self.child.stdout.readline().strip() == line


@pytest.fixture(params=["tasks", "threads"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(client: topics.Client, name: str) -> topics.Queue:
    client.create(name, type="queue", lease_ms=LEASE_MS)
    return client.queue(name, node="other")


def counts(queue: topics.Queue) -> tuple[int, int]:
    """(ready, in flight)."""
    found = queue.state().queue
    assert found is not None
    return found.ready, found.in_flight


Begin = Callable[..., Process]


@pytest.fixture
def begin(kind: str, server: PrivateServer, name: str, queue: topics.Queue) -> Iterator[Begin]:
    with ExitStack() as children:
        yield lambda **options: children.enter_context(Process(kind, server.url, name, **options))


@pytest.mark.rule("Q6.2")
def test_a_process_that_is_stopped_loses_its_lease_and_knows_it_when_it_wakes(
    queue: topics.Queue, begin: Begin
) -> None:
    seq = queue.put("endless").first_seq
    assert seq is not None
    worker = begin()
    worker.expect(f"begun {seq}")
    worker.child.send_signal(signal.SIGSTOP)
    queue.put(0)  # mostly pushed to it while it stands still
    assert wait_until(lambda: [job.seq for job in queue.peek("ready")] == [seq, seq + 1])
    jobs = [queue.get(timeout=20, lease_ms=60_000) for _ in range(2)]
    assert [job and job.seq for job in jobs] == [seq, seq + 1]
    assert jobs[0] is not None
    assert jobs[0].deliveries == 2  # it was not pushed again
    worker.child.send_signal(signal.SIGCONT)
    worker.expect("cancelled True False")
    assert [job and job.ack() for job in jobs] == [True, True]
    queue.put(0)
    worker.expect("begun 3", "done 3")  # and not what it was pushed


@pytest.mark.rule("Q6.2")
def test_what_a_killed_process_had_is_done_by_another(queue: topics.Queue, begin: Begin) -> None:
    seq = queue.put("endless").first_seq
    first = begin()
    first.expect(f"begun {seq}")
    second = begin()
    first.child.kill()
    second.expect(f"begun {seq}")


@pytest.mark.rule("Q6.2")
def test_at_sigterm_it_finishes_what_it_has_and_takes_no_more(queue: topics.Queue, begin: Begin) -> None:
    queue.put(LEASE_MS * 3 / 1000)
    worker = begin()
    worker.expect("begun 1")
    worker.child.send_signal(signal.SIGTERM)
    worker.expect("done 1", "drained")
    assert worker.child.wait(20) == 0
    queue.put(0)
    assert counts(queue) == (1, 0)


@pytest.mark.rule("Q6.2")
def test_it_goes_on_when_its_server_has_come_back(kind: str, tmp_path: Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        queue = client.create("jobs", type="queue", durability="fsync") and client.queue("jobs")
        queue.put(0)
        with Process(kind, server.url, "jobs") as worker:
            worker.expect("begun 1", "done 1")
            assert wait_until(lambda: counts(queue) == (0, 0))
            server.stop()
            server.start()
            queue.put(0)
            worker.expect("begun 2", "done 2")
