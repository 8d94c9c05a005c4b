"""Many threads offering to one replicated topic (replication 2.6).

Each partition has an inbox with a bound and one worker with a fork of the topic for itself. A worker takes what is in
its inbox, at most a batch, brings the fork up to date (somebody may have acquired the partition, or renewed its lease),
offers the batch to its partition there, and syncs once. So a batch becomes visible whole and
costs one join (and, inside a signed slot, one signature). Workers touch different partitions, so their forks never
diverge. An offer waits while its inbox is full; that is the back-pressure.

Nothing offered is lost in silence: an offer before `start` or after `close` is refused, `flush` and `close` raise what
stopped a worker, and what could not be appended is in `undelivered`.

Who writes to the same topic besides gives its root a lock as guard. Waits go through `Condition` and a monotonic clock
that can be passed in, so a test waits for events and never for time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from types import TracebackType
from typing import Final, Self, TypeAlias

import attrs

from topics.codec.cell import Cell
from topics.kernel.errors import Code, Rejected, TopicsError, WrongState, invalid
from topics.lattice.queues.lattice_queue import OFFER_ROWS_MAX, Row
from topics.lattice.queues.lattice_topic import LatticeTopic
from topics.lattice.queues.record import is_whole, make_record
from topics.lattice.queues.routing import Rerouted, partition_of

Wakeup: TypeAlias = threading.Condition

THREADS_MAX: Final = 256


@attrs.frozen(kw_only=True)
class WriterOptions:
    """Bounds of a concurrent writer."""

    inbox_records: int = 4096
    batch_records: int = 1000
    poll_ms: int = 100
    join_timeout_ms: int = 5000

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(WriterOptions):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise invalid(field.name, f"must be a whole number above 0, not {value!r:.40}")
        if self.batch_records > OFFER_ROWS_MAX:
            raise invalid("batch_records", f"at most {OFFER_ROWS_MAX}")


@attrs.frozen
class WriterStats:
    """What has been done, and what waits in each partition's inbox."""

    total_records: int
    total_syncs: int
    queue_depths: tuple[int, ...]

    @property
    def num_partitions(self) -> int:
        return len(self.queue_depths)


class WriterStage(Enum):
    """Where a writer is in its life."""

    NEW = "not started yet"
    OPEN = "open"
    CLOSED = "closed"


class _Inbox:
    """What waits for one worker: rows, and marks of who wants to know when all before is visible."""

    def __init__(self, options: WriterOptions, changed: Wakeup) -> None:
        self._options: Final = options
        self._poll_s: Final = options.poll_ms / 1000
        self._changed: Final = changed
        self._items: deque[Row | threading.Event] = deque()
        self._rows = 0
        self._stage = WriterStage.NEW
        self._failure: TopicsError | None = None
        self._failed_at: TracebackType | None = None

    @property
    def depth(self) -> int:
        return self._rows

    def open(self) -> None:
        with self._changed:
            self._stage = WriterStage.OPEN

    def close(self) -> None:
        """Take nothing more; the worker ends when it has taken the rest."""
        with self._changed:
            self._stage = WriterStage.CLOSED
            self._changed.notify_all()

    def put(self, row: Row) -> None:
        """Behind the others, once there is room."""
        with self._changed:
            self._check()
            while self._rows >= self._options.inbox_records:
                self._changed.wait(self._poll_s)
                self._check()
            self._items.append(row)
            self._rows += 1
            self._changed.notify_all()

    def mark(self) -> threading.Event:
        """An event that is set when all that is here now is visible, or the worker has failed."""
        reached = threading.Event()
        with self._changed:
            if self._stage is not WriterStage.OPEN:
                raise _refused("flush", self._stage)
            if self._failure is None:
                self._items.append(reached)
                self._changed.notify_all()
            else:
                reached.set()
        return reached

    def take(self) -> tuple[list[Row], list[threading.Event]] | None:
        """The next batch and the marks right behind it; waits for something, None when nothing will come any more."""
        with self._changed:
            while not self._items:
                if self._stage is WriterStage.CLOSED:
                    return None
                self._changed.wait(self._poll_s)
            rows: list[Row] = []
            marks: list[threading.Event] = []
            while self._items and len(rows) < self._options.batch_records:
                item = self._items[0]
                if isinstance(item, threading.Event):
                    marks.append(item)
                elif marks:
                    break  # a mark stands for what came before it
                else:
                    rows.append(item)
                self._items.popleft()
            self._rows -= len(rows)
            self._changed.notify_all()
        return rows, marks

    def fail(self, error: TopicsError, rows: list[Row], marks: list[threading.Event]) -> None:
        """The worker has ended: give back what it could not append, and let nobody wait for it."""
        with self._changed:
            self._failure, self._failed_at = error, error.__traceback__
            waiting = [item for item in self._items if isinstance(item, threading.Event)]
            left = [item for item in self._items if not isinstance(item, threading.Event)]
            self._items = deque([*rows, *left])
            self._rows = len(self._items)
            for mark in (*marks, *waiting):
                mark.set()
            self._changed.notify_all()

    def left(self) -> list[Row]:
        """What is still here."""
        with self._changed:
            return [item for item in self._items if not isinstance(item, threading.Event)]

    def raise_failure(self) -> None:
        """Raise what stopped the worker, from where it happened: each raise would add to the error's traceback."""
        if self._failure is not None:
            raise self._failure.with_traceback(self._failed_at)

    def _check(self) -> None:
        self.raise_failure()
        if self._stage is not WriterStage.OPEN:
            raise _refused("offer", self._stage)


class _Worker:
    """Moves one inbox into its partition, a batch and a sync at a time."""

    def __init__(self, topic: LatticeTopic, partition: int, inbox: _Inbox, primary: threading.Lock) -> None:
        self._primary: Final = primary
        self._partition: Final = partition
        self._topic: Final = topic
        self._inbox: Final = inbox
        self.records = 0
        self.syncs = 0
        self.thread: Final = threading.Thread(
            target=self.work, name=f"topics-writer-{topic.name}-{partition}", daemon=True
        )

    def work(self) -> None:
        """Until the inbox is closed and empty, or something refuses."""
        with self._primary:
            fork = self._topic.fork()
        while self.work_once(fork):
            pass

    def work_once(self, fork: LatticeTopic) -> bool:
        """One batch; False when there will be no other."""
        taken = self._inbox.take()
        if taken is None:
            return False
        rows, marks = taken
        try:
            if rows:
                with self._primary:
                    fork.sync()
                    fork.partition(self._partition).offer_all(rows)
                    fork.sync()
                    self.records += len(rows)
                    self.syncs += 1
        except TopicsError as refused:
            self._inbox.fail(refused, rows, marks)
            return False
        except BaseException as bug:
            self._inbox.fail(TopicsError(f"writer of partition {self._partition}: {bug!r:.200}"), rows, marks)
            raise
        for mark in marks:
            mark.set()
        return True


class ConcurrentTopic:
    """A topic that any number of threads may offer to at once. Use it in a `with`, or `start` and `close` it."""

    def __init__(
        self,
        topic: LatticeTopic,
        *,
        partitions: int,
        options: WriterOptions | None = None,
        condition: Callable[[], Wakeup] = threading.Condition,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Sets the topic's number of partitions; `rerouted` warns if that moved keys."""
        if is_whole(partitions) and partitions > THREADS_MAX:
            raise invalid("partitions", f"at most {THREADS_MAX}: each has a thread")
        self.rerouted: Final[Rerouted | None] = topic.set_num_partitions(partitions)
        self.topic: Final = topic
        self._options: Final = WriterOptions() if options is None else options
        self._monotonic: Final = monotonic
        primary = threading.Lock()
        self._inboxes: Final = [_Inbox(self._options, condition()) for _ in range(partitions)]
        self._workers: Final = [
            _Worker(topic, index, inbox, primary) for index, inbox in enumerate(self._inboxes)
        ]
        self._primary: Final = primary
        self._stage = WriterStage.NEW
        self._staging: Final = threading.Lock()  # held while the stage changes

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the workers. If one cannot be started, the writer is closed."""
        with self._staging:
            if self._stage is not WriterStage.NEW:
                raise _refused("start", self._stage)
            self._stage = WriterStage.OPEN
            try:
                for inbox, worker in zip(self._inboxes, self._workers, strict=True):
                    inbox.open()
                    worker.thread.start()
            except BaseException:
                self._close_inboxes()
                raise

    def offer(self, key: Cell, value: Cell, headers: Mapping[Cell, Cell] | None = None) -> int:
        """Hand a record to the partition of its key; waits while that inbox is full. Returns the partition."""
        partition = partition_of(key, len(self._inboxes))
        self.offer_to(partition, value, key=key, headers=headers)
        return partition

    def offer_to(
        self,
        partition: int,
        value: Cell,
        *,
        key: Cell = None,
        headers: Mapping[Cell, Cell] | None = None,
    ) -> None:
        """Hand a record to a partition; waits while its inbox is full.

        Raises:
            Rejected: what cannot be stored.
            WrongState: before `start` or after `close`.
            NotLeader: somebody else leads the partition, so its worker has stopped.
        """
        if not is_whole(partition) or not 0 <= partition < len(self._inboxes):
            raise invalid("partition", f"must be from 0 to {len(self._inboxes) - 1}, not {partition!r:.40}")
        record = make_record(value, key=key, headers=headers, timestamp=0)  # refused here, not in the worker
        self._inboxes[partition].put((record.key, record.value, record.headers))

    def flush(self) -> None:
        """Wait until all that was offered before is visible in the topic. Raises what stopped a worker."""
        for mark in [inbox.mark() for inbox in self._inboxes]:
            mark.wait()
        self._raise_failures()

    def close(self) -> None:
        """Take no more, append what is there, stop the workers. Raises what stopped one before.

        Raises:
            Rejected: `not_ready` if they have not ended in time; nothing is lost, call it again.
        """
        with self._staging:
            if self._stage is not WriterStage.CLOSED:
                self._close_inboxes()
        ends = self._monotonic() + self._options.join_timeout_ms / 1000
        started = [worker.thread for worker in self._workers if worker.thread.ident is not None]
        for thread in started:
            thread.join(max(ends - self._monotonic(), 0))
        slow = sum(thread.is_alive() for thread in started)
        if slow:
            raise Rejected(
                Code.NOT_READY,
                f"close: {slow} workers of topic {self.topic.name} were still appending after"
                f" {self._options.join_timeout_ms} ms; call close again to wait on",
            )
        self._raise_failures()

    def undelivered(self) -> list[list[Row]]:
        """By partition, what was taken and is not in the topic: (key, value, headers). Empty after a clean close."""
        return [inbox.left() for inbox in self._inboxes]

    def stats(self) -> WriterStats:
        with self._primary:
            records = sum(worker.records for worker in self._workers)
            syncs = sum(worker.syncs for worker in self._workers)
        return WriterStats(records, syncs, tuple(inbox.depth for inbox in self._inboxes))

    def _close_inboxes(self) -> None:
        assert self._staging.locked()
        self._stage = WriterStage.CLOSED
        for inbox in self._inboxes:
            inbox.close()

    def _raise_failures(self) -> None:
        for inbox in self._inboxes:
            inbox.raise_failure()


def _refused(call: str, stage: WriterStage) -> WrongState:
    hint = {
        WriterStage.NEW: "start it first",
        WriterStage.OPEN: "it runs",
        WriterStage.CLOSED: "make another one for the topic",
    }[stage]
    return WrongState(f"{call}: the writer is {stage.value}; {hint}")
