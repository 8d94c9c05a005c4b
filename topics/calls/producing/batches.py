"""What a producer does with records, without waiting for anything: they become batches, batches become writes.

Records of one topic go in the order in which they were put, a batch at a time: while one is on its way the next one
grows. A batch goes when it is full, when its first record has lingered, or when somebody flushes. Whoever drives this
(`producer` with a thread, `async_producer` with a task) asks `due_s` when, carries out `deliver`, and tells `end`.

A record that is refused for what it is fails alone. Whatever else goes wrong stops what waits behind it too, so that
the order has no hole, and nobody waits for a server that is gone a batch after the other.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from topics.calls.call import Call
from topics.calls.intake import take_records
from topics.calls.messages import FORMAT_LIMITS
from topics.calls.records import OF_A_RECORD, PutManyCall
from topics.calls.trouble import Trouble, Unreachable
from topics.kernel.checks import whole_number
from topics.kernel.errors import Code, Rejected, TopicsError, invalid
from topics.kernel.ids import check_topic_name
from topics.kernel.limits import MIB

RECORD_OVERHEAD: Final = 256  # bytes that a record takes here beside its own
_OF_RECORDS: Final = frozenset(
    {Code.INVALID_REQUEST, Code.RECORD_TOO_LARGE, Code.BATCH_TOO_LARGE, Code.PAYLOAD_TOO_LARGE}
)

Outcome: TypeAlias = int | TopicsError  # of a record: its seq, or why it has none


class DoneEvent(Protocol):
    """An event, for threads or for tasks."""

    def set(self) -> object: ...


E_co = TypeVar("E_co", bound=DoneEvent, covariant=True)
E = TypeVar("E", bound=DoneEvent)


class _Topic(msgspec.Struct, frozen=True, eq=False):
    topic: str


class Rules(_Topic, frozen=True, eq=False, kw_only=True):
    """Records of one topic, written in batches in the order in which they are put: open it by `with`.

    A batch goes when it has `batch_records` or `batch_bytes`, `linger_ms` after its first record, or by `flush()`; one
    at a time, repeated as any write is. `put` waits while more than `pending_bytes` are put and not answered.

    Raises:
        Rejected: invalid_request.
    """

    linger_ms: int = 5
    batch_records: int = 1000
    batch_bytes: int = 1 * MIB
    pending_bytes: int = 32 * MIB

    def __post_init__(self) -> None:
        check_topic_name(self.topic)
        whole_number("linger_ms", self.linger_ms)
        for field in ("batch_records", "batch_bytes", "pending_bytes"):
            if whole_number(field, getattr(self, field)) == 0:
                raise invalid(field, "must be at least 1")


class ProducerBatch(Generic[E_co]):
    """Records that go together. `done` is set when `outcomes` has one for each."""

    __slots__ = ("born_s", "done", "outcomes", "records", "size")

    def __init__(self, done: E_co, born_s: float) -> None:
        self.done = done
        self.born_s = born_s
        self.records: list[Mapping[str, Any]] = []
        self.size = 0
        self.outcomes: Sequence[Outcome] = ()

    def outcome(self, index: int) -> int:
        """The seq of a record of a batch that is done, or raises why it has none."""
        outcome = self.outcomes[index]
        if isinstance(outcome, TopicsError):
            raise outcome
        return outcome


class Batches(Generic[E]):
    """The records of one producer on their way. Not for two threads at once."""

    def __init__(self, rules: Rules, event: Callable[[], E]) -> None:
        self.topic = rules.topic
        self.rules = rules
        self.closed = False
        self._event = event
        self._open: ProducerBatch[E] | None = None
        self._full: deque[ProducerBatch[E]] = deque()  # bounded by `pending_bytes`
        self._on_its_way: ProducerBatch[E] | None = None
        self._size = 0
        self._failure: TopicsError | None = None
        self._failed = 0

    def has_room(self, size: int) -> bool:
        """True if a record of that size may be added; one that is larger than all may, if it is alone."""
        return self._size == 0 or self._size + size <= self.rules.pending_bytes

    def add(self, record: Mapping[str, Any], size: int, now_s: float) -> tuple[ProducerBatch[E], int]:
        """The batch it goes with, and its place there.

        Raises:
            Rejected: shutting_down, if there is no producer any more.
        """
        if self.closed:
            raise Rejected(
                Code.SHUTTING_DOWN, f"topic {self.topic!r}: the producer is closed; make another one"
            )
        batch = self._open
        if batch is not None and batch.size + size > self.rules.batch_bytes:
            self.seal()
            batch = None
        if batch is None:
            batch = self._open = ProducerBatch(self._event(), now_s)
        batch.records.append(record)
        batch.size += size
        self._size += size
        if len(batch.records) >= self.rules.batch_records or batch.size >= self.rules.batch_bytes:
            self.seal()
        return batch, len(batch.records) - 1

    def seal(self) -> ProducerBatch[E] | None:
        """What there is goes now. Returns the batch that ends last; None if nothing is on its way."""
        if self._open is not None:
            self._full.append(self._open)
            self._open = None
        return self._full[-1] if self._full else self._on_its_way

    @property
    def is_due(self) -> bool:
        """True if a batch lingers for nobody."""
        return bool(self._full)

    def due_s(self, now_s: float) -> float | None:
        """For how long nothing is to be sent; 0 if something is, None if there is nothing."""
        if self.is_due:
            return 0.0
        if self._open is None:
            return None
        return max(self._open.born_s + self.rules.linger_ms / 1000 - now_s, 0.0)

    def take(self) -> ProducerBatch[E]:
        """What is to be sent now. It is ended, or all is given up, before the next one is taken."""
        assert self._on_its_way is None
        self.seal()
        batch = self._on_its_way = self._full.popleft()
        return batch

    def end(self, outcomes: Sequence[Outcome]) -> None:
        """What came of the batch that was taken."""
        batch = self._on_its_way
        assert batch is not None
        self._on_its_way = None
        self._finish(batch, outcomes)
        if stops(outcomes[-1]):
            self._give_up(not_sent(self.topic, outcomes[-1]))

    def abandon(self, error: TopicsError) -> None:
        """Nobody sends any longer. `error`: what is told of the batch that was on its way."""
        self.closed = True
        if self._on_its_way is not None:
            self.end([error] * len(self._on_its_way.records))
        self._give_up(not_sent(self.topic, error))

    def failure(self) -> TopicsError | None:
        """The first one since this was asked, with a note of how many there were."""
        if self._failure is None:
            return None
        told = copy.copy(self._failure)
        told.add_note(f"topic {self.topic!r}: {self._failed} records were put in vain; each receipt says why")
        self._failure, self._failed = None, 0
        return told

    def _give_up(self, error: TopicsError) -> None:
        self.seal()
        while self._full:
            batch = self._full.popleft()
            self._finish(batch, [error] * len(batch.records))

    def _finish(self, batch: ProducerBatch[E], outcomes: Sequence[Outcome]) -> None:
        assert len(outcomes) == len(batch.records)
        self._size -= batch.size
        if not isinstance(outcomes, range):
            failures = [outcome for outcome in outcomes if isinstance(outcome, TopicsError)]
            if failures:
                self._failure = self._failure or failures[0]
                self._failed += len(failures)
        batch.outcomes, batch.records = outcomes, []
        batch.done.set()


class _Data(msgspec.Struct, frozen=True, eq=False):
    data: Any


class ProducerPut(_Data, frozen=True, eq=False, kw_only=True):
    """Hand over one record, with the fields that it has in `Topic.put`; wait while too much is pending.

    Raises:
        Rejected: what no topic takes (what this one does not take its receipt tells); shutting_down, if the producer is
            closed.
    """

    tag: str | None = None
    node: str | None = None
    key: str | None = None
    meta: Mapping[str, str] | None = None
    ttl_ms: int | None = None
    dedup_id: str | None = None
    content_type: str | None = None
    priority: int | None = None
    delay_ms: int | None = None

    def record(self) -> tuple[Mapping[str, Any], int]:
        """As it stays whatever the caller does with the value, and the bytes that it takes."""
        record = {name: value for name in OF_A_RECORD if (value := getattr(self, name)) is not None}
        columns = take_records([{"data": self.data} | record], node=None, limits=FORMAT_LIMITS)
        stored = columns.data[0]
        record["data"] = msgspec.Raw(stored) if columns.content_type is None else stored
        if self.meta is not None:
            record["meta"] = dict(self.meta)
        return record, columns.stored_longest + RECORD_OVERHEAD


def deliver(topic: str, records: Sequence[Mapping[str, Any]]) -> Generator[Call[Any], Any, Sequence[Outcome]]:
    """Write a batch; what came of each record. One that is refused for what it is takes no other along: the batch is
    halved until it is alone.
    """
    try:
        written = yield from PutManyCall(topic, records)
    except TopicsError as error:
        if len(records) == 1 or stops(error):
            return [error] * len(records)
    else:
        return written.seqs
    middle = len(records) // 2
    first = yield from deliver(topic, records[:middle])
    if stops(first[-1]):
        return [*first, *[not_sent(topic, first[-1])] * (len(records) - middle)]
    return [*first, *(yield from deliver(topic, records[middle:]))]


def stops(outcome: Outcome) -> bool:
    """True if it says nothing about the record, so that those behind it had better not be sent."""
    of_records = isinstance(outcome, Rejected) and outcome.code in _OF_RECORDS
    return isinstance(outcome, TopicsError) and not of_records


def not_sent(topic: str, before: Outcome) -> Rejected:
    return Rejected(
        Code.NOT_READY,
        f"topic {topic!r}: not sent, because of what was put before it ({before}); put it again behind that",
    )


def ended(where: str, why: str) -> Unreachable:
    """For what was on its way when nobody waited for the answer any longer."""
    return Unreachable(Trouble.LOST, where, f"{why}; the record may be there", sent=True)
