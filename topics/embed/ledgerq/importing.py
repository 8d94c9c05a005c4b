"""A directory of ledgerq into a new topic: seqs are its ids, times are its times (queues 7, decision 87).

The engine's time is the clock's, and here the clock stands where each entry says, so that a record's `ts`, its own
expiry and all that hangs on them come out as if it had been put then. That needs a store whose time is not behind the
first entry, which is a new directory; elsewhere, and at a server, records get the time of the import (`is_now`).

Seqs are passed over by records that stand for the ids between and are deleted at the end: those that are consumed, that
are missing, and that could not be read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import msgspec

from topics.calls.intake import take_records
from topics.codec.ledgerq.entries import BrokenEntry, LedgerqEntry
from topics.codec.ledgerq.layout import NS_A_MS, EntryType
from topics.embed.ledgerq.directory import DEDUP, RETRIES, Directory, NotImported, Survey
from topics.embed.ledgerq.mapping import record_of, ttl_ms
from topics.embed.store import Store
from topics.engine.commands import Append
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.limits import MIB

if TYPE_CHECKING:
    from topics.calls.blocking import Topic, TopicStore

_BATCH: Final = 500
_BATCH_BYTES: Final = 1 * MIB
_RUNS_TOLD: Final = 20
_QUEUE: Final = "queue"
_NO_META: Final = b"{}"
Put: TypeAlias = tuple[dict[str, Any], dict[str, str]]  # a record, and where a dead letter came from


class ImportClock:
    """`kernel.ports.Clock`: stands where it was put, and is the machine's until then."""

    def __init__(self) -> None:
        self._at_ms: int | None = None

    def now_ms(self) -> int:
        return time.time_ns() // NS_A_MS if self._at_ms is None else self._at_ms

    def put_to(self, at_ms: int) -> None:
        self._at_ms = at_ms


@attrs.define(kw_only=True)
class Imported:
    """What an import has done. `records`: that the topic has now; `consumed`: that were left out as such."""

    topic: str
    type: str
    dialect: str
    entries: int
    records: int = 0
    consumed: int = 0
    next_seq: int = 1
    faults: list[NotImported] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)


class Import:
    """One import. `survey` reads everything first; `into` writes."""

    def __init__(
        self, directory: Directory, topic: str, config: dict[str, Any], *, read_id: int | None, is_now: bool
    ) -> None:
        position = directory.position
        self.directory = directory
        self.topic = topic
        self.config = {"type": _QUEUE, **config}
        self.is_queue = self.config["type"] == _QUEUE
        self.is_now = is_now
        self.read_id = read_id if read_id is not None else 1 if position is None else position.read_id
        self.survey: Survey = directory.survey(self.read_id)
        first_ns = self.survey.first_ns
        self.first_ms = 0 if first_ns is None else first_ns // NS_A_MS
        self.clock = ImportClock()
        if not is_now and first_ns is not None:
            self.clock.put_to(min(self.first_ms, self.clock.now_ms()))

    def into(self, store: TopicStore) -> Imported:
        """Write it.

        Raises:
            Rejected: the topic is not new, or the store's time is behind the first entry's.
        """
        config = store.config(self.topic)
        if config is not None and store.topic(self.topic).state().head_seq:
            raise Rejected(
                Code.TOPIC_EXISTS_INCOMPATIBLE,
                f"topic {self.topic!r} has records: an import needs a new one, for its seqs are ledgerq's ids. Name "
                f"another, or delete this one (topics rm {self.topic})",
                topic=self.topic,
            )
        if not self.is_now:
            self._check_time(store)
        store.create(self.topic, **self.config)
        queue = store.queue(self.topic)
        if self.is_queue:
            queue.pause()  # nobody is handed out what stands for an id
        done = _Writing(self, store, store.topic(self.topic)).carried_out()
        if self.is_queue:
            queue.resume()
        if isinstance(store, Store):
            store.sync()
        return done

    def _check_time(self, store: TopicStore) -> None:
        if not isinstance(store, Store):
            raise _no_times(f"{store.where} gives records the time at which they come")
        if self.survey.first_ns is not None and store.stats().time_ms > self.clock.now_ms():
            raise _no_times(
                f"{store.where} was used after the first entry was written, and time does not go back"
            )


def _missing(runs: list[tuple[int, int]]) -> str:
    count = sum(last - first + 1 for first, last in runs)
    told = ", ".join(
        str(first) if first == last else f"{first} to {last}" for first, last in runs[:_RUNS_TOLD]
    )
    more = f" and {len(runs) - _RUNS_TOLD} more runs" if len(runs) > _RUNS_TOLD else ""
    ids = "1 id that is not consumed has" if count == 1 else f"{count} ids that are not consumed have"
    them = "it" if count == 1 else "them"
    return f"{ids} no entry: {told}{more}. Either ledgerq removed {them}, or what had {them} is missing or damaged"


def _no_times(why: str) -> Rejected:
    return Rejected(
        Code.INVALID_REQUEST,
        f"{why}, so entries cannot keep theirs: import into a new directory, or with new timestamps "
        "(--new-timestamps)",
        field="new_timestamps",
    )


class _Writing:
    """What is under way: records of one time are one write."""

    def __init__(self, asked: Import, store: TopicStore, topic: Topic) -> None:
        self.asked = asked
        self.store = store
        self.topic = topic
        self.done = Imported(
            topic=asked.topic, type=asked.config["type"], dialect=asked.directory.dialect.name,
            entries=asked.survey.entries, faults=list(asked.survey.faults),
        )  # fmt: skip
        self.standing_tag = f"ledgerq-{secrets.token_hex(8)}"
        self.started_ms = time.time_ns() // NS_A_MS
        self.next_seq = 1
        self.at_ms = asked.first_ms
        self.batch: list[Put] = []
        self.batch_bytes = 0
        self.has_standing = False
        self.late = self.early = self.expired = self.unranked = self.unletter = 0

    def carried_out(self) -> Imported:
        asked, done = self.asked, self.done
        for name, entry in self._wanted():
            try:
                put = self._put_of(entry)
            except (Corrupt, Rejected) as refused:
                done.faults.append(NotImported(name, entry.offset, refused.message, entry.id))
                continue
            if put is not None:
                self._stand_for(entry.id)
                self._add(put, len(entry.payload))
                done.records += 1
        self._flush()
        next_id = asked.directory.next_id(asked.survey.last_id)
        self._stand_for(max(asked.survey.last_id + 1, next_id or 1))
        if self.has_standing:
            self.topic.delete(match=self.standing_tag)
        done.next_seq = self.next_seq
        done.notes = list(self._notes())
        return done

    def _wanted(self) -> Iterator[tuple[str, LedgerqEntry]]:
        asked = self.asked
        for name, found in asked.directory.entries():
            if isinstance(found, BrokenEntry) or found.type is not EntryType.DATA:
                continue
            if asked.is_queue and found.id < asked.read_id:
                self.done.consumed += 1
            elif found.id not in asked.survey.deleted:
                yield name, found

    def _put_of(self, entry: LedgerqEntry) -> Put | None:
        """None: it has expired. Raises `Corrupt`, `Rejected`."""
        record, letters = record_of(entry)
        if not isinstance(self.store, Store):
            self._leave_out(record, letters)
        at_ms = self._time_of(entry)
        ttl = ttl_ms(entry, at_ms)
        if ttl is not None:
            if ttl <= 0:
                self.expired += 1
                return None
            record["ttl_ms"] = ttl
        put = record, letters
        self._columns([put])  # what no topic takes is told with its place
        if at_ms > self.at_ms:
            self._flush()
            self.at_ms = at_ms
            if not self.asked.is_now:
                self.asked.clock.put_to(at_ms)
        return put

    def _leave_out(self, record: dict[str, Any], letters: dict[str, str]) -> None:
        """What a server does not take."""
        if letters:
            letters.clear()
            self.unletter += 1
        if not self.asked.is_queue and record.pop("priority", None) is not None:
            self.unranked += 1

    def _time_of(self, entry: LedgerqEntry) -> int:
        """When its record is put: no earlier than the one before, no later than now."""
        if self.asked.is_now:
            return time.time_ns() // NS_A_MS
        at_ms = entry.timestamp_ns // NS_A_MS
        if at_ms > self.started_ms:
            self.early += 1
            at_ms = self.started_ms
        if at_ms < self.at_ms:
            self.late += 1
        return max(at_ms, self.at_ms)

    def _columns(self, batch: list[Put]) -> RecordColumns:
        """As the engine takes them, with what no put may say: where dead letters came from."""
        columns = take_records([record for record, _ in batch], node=None, limits=self.store.limits)
        if not any(letters for _, letters in batch):
            return columns
        metas = [msgspec.json.encode(record.get("meta", {}) | letters) for record, letters in batch]
        return msgspec.structs.replace(columns, meta=[b"" if meta == _NO_META else meta for meta in metas])

    def _add(self, put: Put, size: int) -> None:
        self.batch.append(put)
        self.batch_bytes += size
        self.next_seq += 1
        if len(self.batch) >= _BATCH or self.batch_bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self.batch:
            self._write(self.batch)
        self.batch, self.batch_bytes = [], 0

    def _write(self, batch: list[Put]) -> None:
        if isinstance(self.store, Store):  # `moved`: in a log dead letters keep their priority
            append = Append(topic=self.topic.name, records=self._columns(batch), create=False, moved=True)
            reply = self.store.append(append)
        else:
            reply = self.topic.put_many([record for record, _ in batch], create=False)
        assert reply.last_seq is not None
        assert reply.last_seq < self.next_seq

    def _stand_for(self, seq: int) -> None:
        """The next record gets this seq: what stands for those before it is put."""
        if self.next_seq >= seq:
            return
        self._flush()
        standing: Put = {"data": None, "tag": self.standing_tag}, {}
        while self.next_seq < seq:
            count = min(seq - self.next_seq, self.store.limits.records_per_write)
            self.next_seq += count
            self._write([standing] * count)
            if not self.done.records:  # nothing is there yet that stays
                self.topic.delete(before_seq=self.next_seq)
        self.has_standing = self.has_standing or bool(self.done.records)

    def _notes(self) -> Iterator[str]:
        """What could not be kept, and what may surprise."""
        asked = self.asked
        survey, directory = asked.survey, asked.directory
        if survey.missing:
            yield _missing(survey.missing)
        if not survey.entries:
            return
        if asked.is_now:
            yield "records have the time of this import; ledgerq's own times are not kept"
        else:
            yield "times are kept to the millisecond; ledgerq has nanoseconds"
        for count, what in (
            (self.late, "are older than the one before them: they have its time"),
            (self.early, "are of the future: they have the time of this import"),
            (self.expired, "had expired before they could be put, and are left out"),
            (self.unranked, "have a priority, which a log at a server does not take"),
            (self.unletter, "say where they died (dlq.*), which a server does not take"),
            (len(survey.deleted), "are deleted by tombstones"),
            (directory.counted(RETRIES), "have failed before (nack): their counts and reasons are not kept"),
            (directory.counted(DEDUP), "were put with a dedup id; only its hash is there, so it is not kept"),
        ):
            if count:
                yield f"{count} entries {what}"
        if directory.position is not None and directory.next_id(survey.last_id) is None:
            yield f"its next id, {directory.position.next_id}, cannot be: this one goes on with seq {self.next_seq}"
        if not asked.is_queue and directory.position is not None:
            yield f"a log keeps what is consumed: the first entry that was not has seq {directory.position.read_id}"
        if asked.is_queue and survey.overtaken:
            yield (
                f"{survey.overtaken} of the {survey.consumed} entries below the read position {asked.read_id} have a "
                "lower priority than the one just before it. With priorities ledgerq moves its position past what it "
                "has not handed out, and loses it at its next start: some of these may never have been handed out. To "
                "have them, import with another read position (--read-position)"
            )
