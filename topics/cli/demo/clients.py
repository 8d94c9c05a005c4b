"""Writers and followers of the demo, who live on while the server is killed under them.

Each writer is a thread that puts as fast as it is answered. When the server dies in the middle of a write, the client
repeats that write under its idempotency key until the restarted server answers: so in the end every write has an
answer, and each of them must be there exactly once. A follower reads along from the beginning, over every crash.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import attrs

import topics
from topics.calls.patience import Pace, Patience
from topics.cli.core.failure import Failed
from topics.cli.demo.proof import (
    WRITERS,
    AckedWrite,
    TopicProof,
    WriterThread,
    demo_payload,
    examine,
    records_in_write,
)
from topics.cli.io.quantities import counted

if TYPE_CHECKING:
    from topics.cli.demo.input import Input
    from topics.cli.demo.private_server import PrivateServer
    from topics.cli.demo.story import Story

LIFE_S: Final = 3.0  # a slow disk gets no further than this before the kill
AFTERWARDS: Final = 60  # writes that the last life answers, so that it is seen to live
CAUGHT_UP_S: Final = 30.0
_LOOK_S: Final = 0.01


def client_of(server: PrivateServer, pace: Pace | None = None) -> topics.Client:
    """A client that is patient enough for a restart, and looks often whether it is over."""
    return topics.Client(
        server.url, patience=Patience(total_ms=60_000, longest_ms=250, attempts_max=1000), pace=pace
    )


class TailThread:
    """A thread that follows a topic from its beginning by server-sent events, and keeps what it was given."""

    def __init__(self, server: PrivateServer, name: str) -> None:
        self.seqs: list[int] = []
        self.raws: list[bytes] = []
        self.gaps = 0
        self.error: Exception | None = None
        self._closing = ExitStack()
        client = self._closing.enter_context(client_of(server))
        self._watch = self._closing.enter_context(client.watch(name))  # begun: from here on a kill is borne
        self._name = name
        logging.getLogger("topics.watch").addHandler(logging.NullHandler())  # the story tells of each kill
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for value in self._watch:
                match value:
                    case topics.WatchedRecord():
                        self.seqs.append(value.seq)
                        self.raws.append(value.raw)
                    case topics.Tombstone():
                        self.gaps += 1
        except Exception as error:  # noqa: BLE001 -- told by the thread that waits for it
            self.error = error

    def read_to(self, head_seq: int) -> None:
        """Wait until it has the record at the head, then end it.

        Raises:
            Failed: what it ran into.
        """
        deadline = time.monotonic() + CAUGHT_UP_S
        while self._thread.is_alive() and (not self.seqs or self.seqs[-1] < head_seq):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        self.close()
        if self.error is not None:
            raise Failed(f"the follower of {self._name} ended by itself: {self.error}")

    def close(self) -> None:
        self._watch.close()
        self._thread.join(CAUGHT_UP_S)
        self._closing.close()

    def told_once(self, rows: list[bytes]) -> int:
        """How many of the rows it was given at their seq, exactly once, in order."""
        return told_once(self.seqs, self.raws, rows)


def told_once(seqs: list[int], raws: list[bytes], rows: list[bytes]) -> int:
    """How many rows stand at their seq, counted from 1; what comes beyond them is taken off."""
    expected = zip(range(1, len(rows) + 1), rows, strict=True)
    same = sum(one == other for one, other in zip(zip(seqs, raws, strict=True), expected, strict=False))
    return same - max(len(seqs) - len(rows), 0)


class Writers:
    """A thread each of `WRITERS`, writing through one client."""

    def __init__(self, server: PrivateServer, rows: list[bytes]) -> None:
        self.acks: list[AckedWrite] = []
        self.repeats = 0
        self.error: Exception | None = None
        self._rows = rows
        self._stopping = threading.Event()
        self._client = client_of(server, Pace(sleep=self._sleep))
        for writer in WRITERS:
            self._client.create(writer.topic, durability=writer.durability)
        self._threads = [
            threading.Thread(target=self._run, args=(writer,), daemon=True) for writer in WRITERS
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def write(self, count: int, watch: Callable[[int], None]) -> None:
        """Return when so many more writes are answered, or a life has been long enough.

        Raises:
            Failed: what one of them ran into.
        """
        before, deadline = len(self.acks), time.monotonic() + LIFE_S
        while len(self.acks) - before < count and time.monotonic() < deadline:
            self._check()
            watch(len(self.acks) - before)
            time.sleep(_LOOK_S)

    def finish(self) -> None:
        """Every write that was begun is answered.

        Raises:
            Failed: one of them ran into something, or never ended.
        """
        self._stopping.set()
        for thread in self._threads:
            thread.join(CAUGHT_UP_S)
        self._check()
        if any(thread.is_alive() for thread in self._threads):
            raise Failed(f"a write had no answer {CAUGHT_UP_S:.0f} s after the server was up again")

    def close(self) -> None:
        self._stopping.set()
        self._client.close()

    def _check(self) -> None:
        if self.error is not None:
            raise Failed(f"a writer ended by itself: {self.error}")

    def _sleep(self, seconds: float) -> None:
        self.repeats += 1
        time.sleep(seconds)

    def _run(self, writer: WriterThread) -> None:
        topic = self._client.topic(writer.topic)
        number = 0
        try:
            while not self._stopping.is_set():
                parts = [
                    topics.Raw(demo_payload(self._rows, writer=writer.number, number=number, part=part))
                    for part in range(records_in_write(number))
                ]
                written = topic.put_many(parts)
                first_seq, last_seq = written.first_seq or 0, written.last_seq or 0
                self.acks.append(AckedWrite(writer.number, number, first_seq, last_seq))
                number += 1
        except Exception as error:  # noqa: BLE001 -- told by the thread that waits for it
            self.error = error


@attrs.frozen
class Survived:
    """What is there in the end, beside what was answered."""

    findings: list[TopicProof]
    tail: TailThread
    stored: list[bytes]


def crash(
    story: Story, server: PrivateServer, given: Input, *, rows: int, kills: int, acks: Callable[[], int]
) -> Survived:
    """Kill the server in mid-write, several times, and read what is there."""
    followed = WRITERS[0].topic
    writers = Writers(server, given.rows[:rows])
    tail = TailThread(server, followed)
    try:
        writers.start()
        for life in range(1, kills + 1):
            wanted, before = acks(), len(writers.acks)
            with story.bar(f"writing, life {life}", wanted) as advance:
                writers.write(wanted, advance)
            server.kill()
            died = len(writers.acks) - before
            server.start()
            story.say(
                f"Killed after {counted(died, 'acknowledged write')}; ready again in {server.ready_ms:.0f} ms."
            )
        writers.write(AFTERWARDS, lambda _done: None)
        writers.finish()
        story.say(
            f"{counted(writers.repeats, 'time')} a request was repeated; every write got its answer in the end."
        )
        with client_of(server) as client:
            findings = examine(client, given.rows[:rows], writers.acks)
            stored = [
                item.raw for item in client.topic(followed).records() if isinstance(item, topics.Record)
            ]
        tail.read_to(len(stored))
    finally:
        writers.close()
        tail.close()
    return Survived(findings, tail, stored)
