"""`Producer`: many small puts as few large writes, by a thread of its own. For any number of threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, Self, TypeVar

from topics.calls.call import Steps
from topics.calls.methods import described, with_call_names
from topics.calls.producing.batches import Batches, ProducerBatch, ProducerPut, Rules, deliver, ended
from topics.kernel.errors import Code, Rejected, TopicsError

P = ParamSpec("P")
R = TypeVar("R")


class ProducerStore(Protocol):
    """What a producer asks of a store."""

    where: str

    def do(self, steps: Steps[R]) -> R: ...


class Receipt:
    """For a record that was put: what came of it, once its batch has been answered."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch[threading.Event], index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        return self._batch.done.is_set()

    def result(self, timeout_s: float | None = None) -> int:
        """The record's seq, as soon as it is written as its topic's class asks.

        Raises:
            Rejected: it was not written. `not_ready`: because of what was put before it.
            Fatal, Unreachable: it may be there.
            TimeoutError: not done in time; it is on its way all the same.
        """
        if not self._batch.done.wait(timeout_s):
            raise TimeoutError(f"no answer within {timeout_s} s; the record is still on its way")
        return self._batch.outcome(self._index)


def _putting(put: Callable[P, ProducerPut]) -> Callable[Concatenate[Producer, P], Receipt]:
    def method(producer: Producer, /, *args: P.args, **options: P.kwargs) -> Receipt:
        return producer._take(put(*args, **options))  # noqa: SLF001 -- its own method

    return described(method, put, gives=Receipt)


@with_call_names
class Producer:
    """Records of one topic, written in the order in which they are put, in batches. A context manager; or call `close`.

    One batch is on its way at a time, and repeated where that is safe. A record that is refused for what it is fails
    alone; if anything else goes wrong, what was put behind it by then fails as well, so that the order has no hole.
    """

    def __init__(self, store: ProducerStore, rules: Rules) -> None:
        self.topic = rules.topic
        self._store = store
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # for the thread
        self._room = threading.Condition(self._lock)  # for those who put
        self._batches: Batches[threading.Event] = Batches(rules, threading.Event)
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=f"topics-producer-{self.topic}", daemon=True)
        self._thread.start()

    put = _putting(ProducerPut)

    def flush(self) -> None:
        """Return when all that was put so far is answered.

        Raises:
            Rejected, Fatal, Unreachable: the first failure since the last flush, with a note of how many there were.
        """
        with self._lock:
            last = self._batches.seal()
            self._work.notify()
        if last is not None:
            last.done.wait()
        self._tell()

    def close(self) -> None:
        """`flush`, and take nothing any more. Twice is fine."""
        with self._lock:
            self._batches.closed = True
            self._batches.seal()
            self._work.notify()
            self._room.notify_all()
        self._thread.join()
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            failure = self._batches.failure()
        if failure is not None:
            raise failure

    def _take(self, put: ProducerPut) -> Receipt:
        if os.getpid() != self._pid:
            raise Rejected(
                Code.SHUTTING_DOWN,
                f"topic {self.topic!r}: the producer belongs to process {self._pid}, which forked this one; make"
                " another one here",
            )
        record, size = put.record()
        with self._lock:
            batches = self._batches
            while not (batches.closed or batches.has_room(size)):
                self._room.wait()
            batch, index = batches.add(record, size, time.monotonic())
            if index == 0 or batches.is_due:
                self._work.notify()
        return Receipt(batch, index)

    def _run(self) -> None:
        try:
            while (batch := self._next()) is not None:
                outcomes = self._store.do(deliver(self.topic, batch.records))
                with self._lock:
                    self._batches.end(outcomes)
                    self._room.notify_all()
        except BaseException as unplanned:
            with self._lock:
                self._batches.abandon(ended(self._store.where, f"the producer ended with {unplanned!r}"))
                self._room.notify_all()
            raise

    def _next(self) -> ProducerBatch[threading.Event] | None:
        """The next batch when it is to be sent; None at the end."""
        with self._lock:
            while (due_s := self._batches.due_s(time.monotonic())) != 0:
                if due_s is None and self._batches.closed:
                    return None
                self._work.wait(due_s)
            return self._batches.take()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except TopicsError as failure:
            if error is None:
                raise
            error.add_note(f"and of what was put before: {failure}")

    def __repr__(self) -> str:
        return f"Producer({self.topic!r} at {self._store.where!r})"
