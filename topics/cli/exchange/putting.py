"""Records into a topic, in batches, each of them all or nothing.

A record that cannot be stored ends it; everything before it is stored, nothing after it. With an idempotency key the
batches must be the same on every run, so then only whole batches are stored.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs
import click

from topics.cli.core.failure import USAGE, Failed, as_typed, code_of
from topics.cli.io.interrupts import Interrupts
from topics.cli.io.quantities import counted, rate, seqs, size
from topics.cli.io.source import BadLine
from topics.cli.io.terminal import has_bar, json_line, progress
from topics.kernel.limits import DECOMPRESSED_MAX, MIB

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore
    from topics.engine.replies import Appended
    from topics.kernel.errors import TopicsError

BATCH_DEFAULT: Final = 500
BATCH_BYTES_MAX: Final = 8 * MIB  # and one record more
_SLEEP_MAX: Final = 3600.0
_KEY_SUFFIX: Final = len("/999999999")  # the number of the batch, which makes the key of each batch its own
_BLAMED: Final = re.compile(r"records\[(\d+)\](?:\.data)?:? ?(.*)", re.DOTALL)

PlacedRecord = tuple[
    int, int, Any
]  # the number of its line, how many bytes, and it itself as `put_many` takes it


class RecordSource(Protocol):
    """What records are read from."""

    name: str
    bytes_read: int
    bytes_total: int | None

    @property
    def is_waiting(self) -> bool:
        """True if what was there is handed out, and the next bytes are not there yet."""
        ...


def line_max(store: TopicStore) -> int:
    """How long a line may be. What a server takes only that can say; nowhere is a record above `DECOMPRESSED_MAX`."""
    return DECOMPRESSED_MAX if store.is_remote else store.limits.record_bytes


@attrs.frozen(kw_only=True)
class PutRules:
    """How records are put. `unit`: what a place in the file is called."""

    batch: int = BATCH_DEFAULT
    rate: float = 0
    node: str | None = None
    idempotency_key: str | None = None
    from_line: int = 1
    unit: str = "line"


def check_key(rules: PutRules, chars_max: int) -> None:
    """Before anything is made. The number of the batch that is put behind the key needs room too. Raises `Failed`."""
    key = rules.idempotency_key
    if key is None:
        return
    if key == "":
        raise Failed("--idempotency-key is empty; give a key, or leave it out", code=USAGE)
    if rules.from_line > 1:
        raise Failed("--idempotency-key needs the whole file, so it does not go with --from-line", code=USAGE)
    room = max(chars_max - _KEY_SUFFIX, 0)
    if len(key) > room:
        raise Failed(
            f"--idempotency-key takes at most {room} characters ({chars_max}, less what the number of the batch takes),"
            f" not {len(key)}",
            code=USAGE,
        )


class Putting:
    """One run: gathers batches, puts them, and keeps count."""

    def __init__(
        self, store: TopicStore, topic: Topic, records: Iterable[PlacedRecord], origin: RecordSource, rules: PutRules,
        gently: Interrupts,
    ) -> None:  # fmt: skip
        self.topic = topic
        self.records = records
        self.origin = origin
        self.rules = rules
        self.gently = gently
        self.batch_max = min(rules.batch, store.limits.records_per_write)
        self.stored = self.duplicates = self.bytes = self.batches = 0
        self.is_created = False
        self.typed: Callable[[str], str] = str  # how the user wrote a field that an error names
        self.hint = ""  # where the first line is not JSON
        self.first_seq: int | None = None
        self.last: Appended | None = None
        self.started = time.monotonic()
        self._batch: list[Any] = []
        self._places: list[int] = []
        self.next_place = rules.from_line  # behind the last that is stored

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def steps(self) -> Iterator[None]:
        """Put everything; one step a batch.

        Raises:
            BadLine: that line, with everything before it stored.
            Failed: the file breaks off, likewise.
        """
        try:
            gathered = 0
            for place, bytes_count, record in self.records:
                if place < self.rules.from_line:
                    continue
                self._batch.append(record)
                self._places.append(place)
                gathered += bytes_count
                if (
                    len(self._batch) >= self.batch_max
                    or gathered >= BATCH_BYTES_MAX
                    or (not self.rules.idempotency_key and self.origin.is_waiting)
                ):
                    self._put()
                    gathered = 0
                    yield
        except (BadLine, Failed):
            if self._batch and not self.rules.idempotency_key:
                self._put()
            raise
        if self._batch:
            self._put()
            yield

    def _put(self) -> None:
        from topics.kernel.errors import Rejected

        batch, places = self._batch, self._places
        self._batch, self._places = [], []
        self.gently.check()
        bad: BadLine | None = None
        while batch:
            try:
                self._put_many(batch)
                break
            except Rejected as refused:
                blamed = _BLAMED.match(refused.message)
                if blamed is None:
                    raise
                index = int(blamed[1])
                assert index < len(batch)
                bad = BadLine(places[index], blamed[2].removeprefix("."))
                batch = (
                    [] if self.rules.idempotency_key else batch[:index]
                )  # what is before it, if that is good
        if bad is not None:
            raise bad
        self.next_place = places[-1] + 1
        self.gently.check()
        while self.rules.rate and (left := self.stored / self.rules.rate - self.seconds) > 0:
            time.sleep(min(left, _SLEEP_MAX))

    def _put_many(self, batch: list[Any]) -> None:
        key = self.rules.idempotency_key
        batch_key = None if key is None else f"{key}/{self.batches}"
        with self.gently.busy():
            reply = self.topic.put_many(
                batch, node=self.rules.node, idempotency_key=batch_key, require_same_body=False
            )
        if reply.same_body is False:
            raise Failed(
                f"the key {key!r} was used lately for other records; nothing of this batch is stored: choose another"
            )
        self.batches += 1
        self.is_created = self.is_created or reply.created
        self.last = reply
        if not reply.deduped:
            self.stored += len(batch)
            self.first_seq = self.first_seq or reply.first_seq
        else:
            self.duplicates += len(batch)


def put_all(putting: Putting, *, as_json: bool) -> None:
    """All steps, under a bar if somebody looks, then what became of it."""
    error: BaseException | None = None
    try:
        _watched(putting)
    except BaseException as raised:  # noqa: BLE001 -- raised again below, once it is told what is stored
        error = raised
    failure = _failure(putting, error)
    if as_json:
        _print_json(putting, failure)
    elif putting.stored or error is None:
        _print_summary(putting)
    if failure is not None:
        raise failure


def _watched(putting: Putting) -> None:
    if not has_bar():
        for _ in putting.steps():
            pass
        return
    origin, topic = putting.origin, putting.topic.name
    with progress(total=origin.bytes_total, what=topic) as bar:
        task = bar.task_ids[0]
        for _ in putting.steps():
            total = f"/{size(origin.bytes_total)}" if origin.bytes_total else ""
            bar.update(
                task,
                completed=origin.bytes_read,
                bytes=f"{size(origin.bytes_read)}{total}",
                records=counted(putting.stored, "record"),
                rate=rate(putting.stored, putting.seconds, "record"),
            )


def _failure(putting: Putting, error: BaseException | None) -> BaseException | None:
    from topics.kernel.errors import TopicsError

    stored = (
        f"{counted(putting.stored, 'record')} stored before it" if putting.stored else "nothing is stored"
    )
    if isinstance(error, BadLine):
        where = putting.rules.unit
        is_new_start = putting.rules.idempotency_key or not putting.stored
        again = "run it again" if is_new_start else f"go on with --from-line {error.place}"
        hint = f"; {putting.hint}" if putting.hint and not putting.stored and "not JSON" in error.why else ""
        return Failed(
            f"{putting.origin.name} {where} {error.place}: {error.why}{hint};"
            f" {stored}: mend the {where} and {again}"
        )
    if isinstance(error, Failed):
        if putting.stored and not putting.rules.idempotency_key:
            stored += f": with a whole file go on with --from-line {putting.next_place}"
        return Failed(f"{error}; {stored}", code=error.code)
    if isinstance(error, TopicsError):
        failure = Failed(_broken_off(putting, error), code=code_of(error))
        failure.__cause__ = error
        return failure
    return error


def _broken_off(putting: Putting, error: TopicsError) -> str:
    """What is stored comes first: an error that says "nothing was written" is about what follows."""
    from topics.kernel.errors import Rejected

    is_unknown = not isinstance(error, Rejected) and getattr(error, "sent", True)
    unknown = "whether the batch behind it is stored cannot be told" if is_unknown else ""
    message = as_typed(error, putting.typed)
    if not putting.stored:
        return f"{message}; {unknown or 'nothing is stored'}"
    unit, next_place = putting.rules.unit, putting.next_place
    again = "run it again" if putting.rules.idempotency_key else f"go on with --from-line {next_place}"
    begun = f"{counted(putting.stored, 'record')} stored{_seqs(putting)}, up to {unit} {next_place - 1}"
    return f"{begun}, and then: {message}; {unknown or again}"


def _seqs(putting: Putting) -> str:
    if putting.last is None or putting.first_seq is None:
        return ""
    assert putting.last.last_seq is not None
    return f" ({seqs(putting.first_seq, putting.last.last_seq)})"


def _print_summary(putting: Putting) -> None:
    name, seconds = putting.topic.name, putting.seconds
    if putting.last is None:
        click.echo(f"{name}: no records in {putting.origin.name}, nothing stored")
        return
    parts = [f"{counted(putting.stored, 'record')} stored{_seqs(putting)}"]
    if putting.duplicates:
        parts.append(f"{counted(putting.duplicates, 'record')} had been stored before with this key")
    parts.append(f"{size(putting.origin.bytes_read)} in {seconds:.2f} s")
    if putting.stored > BATCH_DEFAULT:
        parts.append(rate(putting.stored, seconds, "record"))
    click.echo(f"{name}: {', '.join(parts)}")


def _print_json(putting: Putting, failure: BaseException | None) -> None:
    last = putting.last
    result: dict[str, Any] = {
        "topic": putting.topic.name,
        "count": putting.stored,
        "duplicates": putting.duplicates,
        "first_seq": putting.first_seq,
        "last_seq": last.last_seq if last is not None and putting.stored else None,
        "head_seq": last.head_seq if last is not None else None,
        "durable_seq": last.durable_seq if last is not None else None,
        "created": putting.is_created,
        "bytes": putting.origin.bytes_read,
        "seconds": round(putting.seconds, 6),
    }
    if failure is not None:
        result["error"] = str(failure) or type(failure).__name__
    sys.stdout.buffer.write(json_line(result))
