"""Jobs of a queue done by workers who live on while the server is killed under them; and the proof, from the log alone.

What a job was to its worker is not believed: who had it when, and what became of it, is read from the LEASE frames of
the data directory, as `topics fsck` does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

import topics
from topics.cli.core.failure import Failed
from topics.cli.demo.clients import CAUGHT_UP_S, client_of
from topics.cli.io.quantities import counted

if TYPE_CHECKING:
    from topics.calls.blocking import Job, TopicStore
    from topics.cli.demo.private_server import PrivateServer
    from topics.cli.demo.story import Story

QUEUE: Final = "chores"
LETTERS: Final = "chores-failed"
JOBS: Final = 500
FAILING: Final = range(0, JOBS, 20)  # no worker can do these
KEYED_EVERY: Final = 3
KEYS: Final = 7
DELIVERIES_MAX: Final = 3
WORKERS: Final = 3
AT_ONCE: Final = 4  # jobs of each worker
KILLS: Final = 2
REASON: Final = "this one never works"
_LOOK_S: Final = 0.01


@attrs.frozen
class LoggedWork:
    """What the log says. `claimed`, `acked`: how often each seq was. `failures`: leases that a worker gave back with
    `REASON`. `violations`: what `topics fsck` finds wrong.
    """

    claimed: Counter[int]
    acked: Counter[int]
    failures: int
    violations: int


class Team:
    """Threads that do the jobs, each worker with a client of its own."""

    def __init__(self, server: PrivateServer) -> None:
        self.done = Counter[int]()  # by number: how often a handler came to its end
        self.error: Exception | None = None
        self._lock = threading.Lock()
        self._clients = [client_of(server) for _ in range(WORKERS)]
        self._workers = [
            client.worker(QUEUE, node=f"worker-{number}", concurrency=AT_ONCE)
            for number, client in enumerate(self._clients, 1)
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(worker,), daemon=True) for worker in self._workers
        ]
        logging.getLogger("topics.worker").addHandler(logging.NullHandler())  # the story tells what is lost

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def do(self, wanted: int, tell: Callable[[int], None]) -> None:
        """Return when so many jobs are done. Raises `Failed` as `finish`."""
        deadline = time.monotonic() + CAUGHT_UP_S
        while len(self.done) < wanted:
            self._look(deadline)
            tell(len(self.done))

    def finish(self, store: TopicStore) -> None:
        """Return when no job is left.

        Raises:
            Failed: what a worker ran into, or nothing goes on.
        """
        deadline = time.monotonic() + CAUGHT_UP_S
        while (
            found := store.queue(QUEUE).state().queue
        ) is not None and found.ready + found.in_flight + found.delayed:
            self._look(deadline)

    def _look(self, deadline: float) -> None:
        if self.error is not None:
            raise Failed(f"a worker ended by itself: {self.error}")
        if time.monotonic() > deadline:
            raise Failed(f"the jobs were not done {CAUGHT_UP_S:.0f} s later")
        time.sleep(_LOOK_S)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        for thread in self._threads:
            thread.join(CAUGHT_UP_S)
        for client in self._clients:
            client.close()

    def _run(self, worker: topics.Worker[Job]) -> None:
        try:
            with worker:
                worker.run(self._handle)
        except Exception as error:  # noqa: BLE001 -- told by the thread that waits for it
            self.error = error

    def _handle(self, job: Job) -> None:
        if job.data in FAILING:
            job.nack(reason=REASON)
            return
        with self._lock:
            self.done[job.data] += 1


def work(story: Story, server: PrivateServer, store: TopicStore) -> None:
    """Put jobs, have them done, kill the server meanwhile, and look."""
    story.begin(
        "Work",
        f"{counted(WORKERS, 'worker')} of {AT_ONCE} jobs at once, a WebSocket each, do the {JOBS} jobs of queue"
        f" {QUEUE!r}; {len(FAILING)} of them always fail and go to {LETTERS!r} after {DELIVERIES_MAX} deliveries. The"
        f" server gets SIGKILL, {counted(KILLS, 'time')}; the workers live on. What is proved is read from"
        " the log alone.",
    )
    store.create(
        QUEUE, type="queue", dead_letter=LETTERS, max_deliveries=DELIVERIES_MAX, max_in_flight_per_key=1,
        retry_backoff={"base_ms": 20, "factor": 2, "max_ms": 100},
    )  # fmt: skip
    queue = store.queue(QUEUE)
    queue.put_many(
        [
            {"data": number, **({"key": f"customer-{number % KEYS}"} if number % KEYED_EVERY == 0 else {})}
            for number in range(JOBS)
        ]
    )
    team = Team(server)
    try:
        team.start()
        for life in range(1, KILLS + 1):
            wanted = (JOBS - len(FAILING)) * life // (KILLS + 1)
            with story.bar(f"working, life {life}", wanted) as advance:
                team.do(wanted, advance)
            server.kill()
            server.start()
            story.say(
                f"Killed with {counted(len(team.done), 'job')} done; ready again in {server.ready_ms:.0f} ms."
            )
        team.finish(store)
    finally:
        team.close()
    _prove(story, store, team, _read(server.data))


def _prove(story: Story, store: TopicStore, team: Team, told: LoggedWork) -> None:
    letters = [item for item in store.topic(LETTERS).records() if isinstance(item, topics.Record)]
    whole = {
        letter.data for letter in letters if letter.meta["$dead_letter_deliveries"] == str(DELIVERIES_MAX)
    }
    last = sum(letter.meta["$dead_letter_reason"] == REASON for letter in letters)  # the others by a kill
    story.prove("jobs done by somebody", expected=JOBS - len(FAILING), found=len(team.done))
    once = sum(count == 1 for count in told.acked.values())
    story.prove("jobs acked in the log, each once", expected=JOBS - len(FAILING), found=once)
    story.prove(
        "jobs that never work, in the dead letters", expected=len(FAILING), found=len(whole & set(FAILING))
    )
    story.prove("dead letters", expected=len(FAILING), found=len(letters))
    story.prove(
        "violations that fsck finds (two leases at once, a key out of order)",
        expected=0,
        found=told.violations,
    )
    again = told.claimed.total() - len(told.claimed)
    by_failure = told.failures - last
    story.say(
        f"The log has {told.claimed.total()} leases of {counted(len(told.claimed), 'job')}."
        f" {counted(again, 'time')} a job was handed out again: {by_failure} because it had failed,"
        f" {again - by_failure} because the server was killed under its worker. That is what at-least-once means: make"
        " jobs such that twice does no harm."
    )


def _read(data: Path) -> LoggedWork:
    """What the LEASE frames say, and whether they may."""
    from topics.audit.fsck import Options, fsck
    from topics.audit.queue_items import queue_items
    from topics.codec.log.leases import Acked, Claimed, Released
    from topics.host.system.readonly import ReadOnlyDisk

    claimed, acked, failures = Counter[int](), Counter[int](), 0
    for at in queue_items(ReadOnlyDisk(data), str(data), QUEUE):
        match getattr(at.item, "payload", None):
            case Claimed(seqs=seqs):
                claimed.update(seqs)
            case Acked(seqs=seqs):
                acked.update(seqs)
            case Released(seqs=seqs, reason=reason):
                failures += len(seqs) if reason == REASON.encode() else 0
    report = fsck(ReadOnlyDisk(data), where=str(data), options=Options(agreement=False, journals=False))
    return LoggedWork(claimed, acked, failures, len(report.violations))
