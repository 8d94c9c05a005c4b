"""Proposing a write: every check before a seq is assigned, then seqs, reservations and frames in one step.

Order of checks: limits, existence, idempotency key, `expected_head`, dedup, caps, space (semantics 7, 2.9): a retry
on a full topic succeeds, and whatever is refused is refused before it has a seq.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from topics.codec.control import HeadWatermark, WriteResult
from topics.codec.digest import body_digest
from topics.codec.frame import Keyed, encode_run
from topics.engine.admit import check_caps, check_topic_limits, stored_size
from topics.engine.batch import Entry, Item
from topics.engine.commands import Append
from topics.engine.lane import Lane
from topics.engine.replies import Appended, Reply
from topics.engine.state import EngineState, frame_control
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability
from topics.kernel.errors import Code, Rejected
from topics.log.dedupe import Result, interleave
from topics.log.topic import Topic


def propose_append(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Propose onto a published, unblocked topic. Raises `Rejected` with nothing changed."""
    command = ticket.command
    assert isinstance(command, Append)
    topic = lane.topic
    assert topic is not None
    assert not lane.blocked
    digest = 0
    if command.idempotency_key is not None:
        digest = _digest(command)
        if _answer_by_key(state, lane, topic, ticket, digest, now_ms):
            return
    check_topic_limits(topic, command.records, state.limits)
    if command.expected_head is not None and not ticket.head_checked:
        if lane.next_seq - 1 != command.expected_head:
            raise Rejected(
                Code.SEQ_MISMATCH,
                f"topic {topic.name!r}: the last assigned seq is {lane.next_seq - 1}, not {command.expected_head}",
                head_seq=lane.next_seq - 1,
            )
        ticket.head_checked = True
    records = command.records
    duplicates: tuple[tuple[int, int], ...] = ()
    if records.dedup_id is not None:
        kept, duplicates = _leave_out_duplicates(lane, topic, records.dedup_id, now_ms)
        if not kept and command.idempotency_key is None:
            _answer_duplicates(state, lane, ticket, records, duplicates)
            return
        if duplicates:
            records = records.take(kept)
    state.check_writable(lane.shard, lane)
    check_caps(lane, topic, records, now_ms)
    _Write(state, lane, topic, ticket, records, duplicates, digest, now_ms).enqueue()


class _Write:
    """One accepted write on its way into frames."""

    __slots__ = (
        "command", "count", "digest", "duplicates", "first_seq", "lane", "last_seq", "records", "size", "state",
        "ticket", "topic", "ts",
    )  # fmt: skip

    def __init__(
        self, state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, records: RecordColumns,
        duplicates: tuple[tuple[int, int], ...], digest: int, now_ms: int,
    ) -> None:  # fmt: skip
        assert isinstance(ticket.command, Append)
        self.state, self.lane, self.topic, self.ticket, self.records = state, lane, topic, ticket, records
        self.command = ticket.command
        self.duplicates, self.digest, self.ts = duplicates, digest, now_ms
        self.count = count = len(records.data)
        self.first_seq = lane.next_seq
        self.last_seq = lane.next_seq + count - 1
        self.size = stored_size(records)
        assert lane.topic is topic
        assert len(duplicates) + count == len(self.command.records.data)

    def enqueue(self) -> None:
        state, lane, topic = self.state, self.lane, self.topic
        durability = topic.config.durability
        items, chunks = self._frames()
        ephemeral = durability is Durability.EPHEMERAL
        ceiling = self._due_ceiling(durability)
        raised = self._raise(ceiling) if ceiling else None
        wal_size = (0 if ephemeral else sum(map(len, chunks))) + (raised.size if raised is not None else 0)
        state.check_space(lane.shard, wal_size, keep_reserve=True)
        waits = durability is not Durability.FSYNC and self.last_seq > lane.ceiling
        staged = durability is Durability.FSYNC or waits
        if raised is not None:
            assert not waits or raised.staged
            lane.ask_ceiling(ceiling)
            state.enqueue(lane.shard, raised)
        entry = Entry(
            lane,
            items,
            [] if ephemeral else chunks,
            frames=0 if ephemeral else self.count + len(items) - (1 if self.count else 0),
            staged=staged,
            must_sync=staged or (self.ticket.sync and not ephemeral),
            ticket=self.ticket,
            memory=b"".join(chunks) if ephemeral else None,
        )
        entry.release, entry.settle, entry.reply = self._release, self._settle, self._reply
        self._reserve()
        state.enqueue(lane.shard, entry)

    def _frames(self) -> tuple[list[Item], list[bytes]]:
        key = self.command.idempotency_key
        lane = self.lane
        items: list[Item] = []
        chunks: list[bytes] = []
        write_frames = self.count
        keyed = None if key is None else Keyed(key, self.digest)
        if key is not None and self.duplicates:
            result = WriteResult(
                key, self.digest, self.count + len(self.duplicates), self.first_seq if self.count else 0,
                list(self.duplicates),
            )  # fmt: skip
            control, chunk = frame_control(
                result, topic_id=lane.topic_id, ts=self.ts, write_frames=self.count + 1
            )
            items.append(control)
            chunks.append(chunk)
            keyed, write_frames = None, 0
        if self.count:
            chunk, run = encode_run(
                lane.topic_id, self.first_seq, self.ts, self.records,
                durable=self.topic.config.durable, keyed=keyed, write_frames=write_frames,
            )  # fmt: skip
            run.offset = sum(map(len, chunks))
            items.append(run)
            chunks.append(chunk)
        return items, chunks

    def _due_ceiling(self, durability: Durability) -> int:
        """The ceiling this write needs, or that is due because half the step is used; 0 for neither (storage 3)."""
        lane = self.lane
        if durability is Durability.FSYNC or not self.count:
            return 0
        needed = self.last_seq > lane.ceiling_asked
        half_used = (
            lane.ceiling_asked == lane.ceiling and lane.ceiling - self.last_seq < lane.ceiling_step // 2
        )
        return lane.next_ceiling(self.last_seq) if needed or half_used else 0

    def _raise(self, ceiling: int) -> Entry:
        lane = self.lane
        control, chunk = frame_control(HeadWatermark(ceiling), topic_id=lane.topic_id, ts=self.ts)
        raised = Entry(lane, [control], [chunk], frames=1, staged=True, must_sync=True, ordered=False)
        raised.settle = lambda _: lane.raise_ceiling()
        return raised

    def _reserve(self) -> None:
        lane = self.lane
        lane.next_seq += self.count
        lane.reserved_records += self.count
        lane.reserved_bytes += self.size
        if self.command.idempotency_key is not None:
            lane.keys[self.command.idempotency_key] = self.ticket
        if self.records.dedup_id is not None:
            for seq, dedup_id in enumerate(self.records.dedup_id, self.first_seq):
                if dedup_id:
                    lane.dedup_ids[dedup_id] = (seq, self.ticket)
        self.state.touch(lane)

    def _release(self) -> None:
        lane = self.lane
        lane.reserved_records -= self.count
        lane.reserved_bytes -= self.size
        assert lane.reserved_records >= 0
        assert lane.reserved_bytes >= 0
        if self.command.idempotency_key is not None:
            del lane.keys[self.command.idempotency_key]
        if self.records.dedup_id is not None:
            for dedup_id in self.records.dedup_id:
                if dedup_id:
                    lane.dedup_ids.pop(dedup_id, None)

    def _settle(self, _: int) -> None:
        lane = self.lane
        if self.topic.config.durability is not Durability.EPHEMERAL:
            lane.written_seq = max(lane.written_seq, self.last_seq)

    def _reply(self) -> Reply:
        assert self.topic.head_seq >= self.last_seq
        seqs: Sequence[int] = range(self.first_seq, self.last_seq + 1)
        if self.duplicates:
            seqs = interleave(self.count + len(self.duplicates), self.first_seq, self.duplicates)
        return Appended(
            topic=self.topic.name,
            first_seq=self.first_seq if self.count else None,
            last_seq=self.last_seq if self.count else None,
            seqs=seqs,
            head_seq=self.topic.head_seq,
            durable_seq=self.lane.durable_seq,
            count=self.count + len(self.duplicates),
            duplicates=len(self.duplicates),
            created=self.ticket.created,
            deduped=self.count == 0,
        )


def _answer_by_key(
    state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, digest: int, now_ms: int
) -> bool:  # fmt: skip
    """True if an earlier write with this key answers, now or when it ends."""
    command = ticket.command
    assert isinstance(command, Append)
    assert command.idempotency_key is not None
    first = lane.keys.get(command.idempotency_key)
    if first is not None:
        _ride_write(state, lane, topic, ticket, first, digest)
        return True
    found = topic.results.find(command.idempotency_key, now_ms)
    if found is None:
        return False
    reply = _reply_again(lane, topic, found, digest)
    highest = max(found.seqs(), default=0)
    _answer_when_durable(state, lane, ticket, reply, highest)
    return True


def _digest(command: Append) -> int:
    """The digest of the body as the caller gave it, before compression."""
    return body_digest(command.records) if command.digest is None else command.digest


def _ride_write(
    state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, first: Ticket, digest: int
) -> None:  # fmt: skip
    """Await the write with the same key and end as it does, whatever becomes of window and topic meanwhile."""
    assert isinstance(first.command, Append)
    same_body = digest == _digest(first.command)

    def answer() -> None:
        assert isinstance(first.reply, Appended)
        reply = msgspec.structs.replace(
            first.reply, head_seq=topic.head_seq, durable_seq=lane.durable_seq,
            created=False, deduped=True, same_body=same_body,
        )  # fmt: skip
        _answer_when_durable(state, lane, ticket, reply, max(reply.seqs))

    state.ride(ticket, [first], answer)


def _reply_again(lane: Lane, topic: Topic, found: Result, digest: int) -> Appended:
    return Appended(
        topic=topic.name,
        first_seq=found.first_seq if found.appended else None,
        last_seq=found.first_seq + found.appended - 1 if found.appended else None,
        seqs=found.seqs(),
        head_seq=topic.head_seq,
        durable_seq=lane.durable_seq,
        count=found.count,
        duplicates=len(found.duplicates),
        created=False,
        deduped=True,
        same_body=digest == found.digest,
    )


def _leave_out_duplicates(
    lane: Lane, topic: Topic, dedup_ids: Sequence[bytes], now_ms: int
) -> tuple[Sequence[int], tuple[tuple[int, int], ...]]:
    """(indexes to append, (index, seq of the first) of the others). A duplicate may be inside the write itself."""
    kept: list[int] = []
    duplicates: list[tuple[int, int]] = []
    here: dict[bytes, int] = {}
    for i, dedup_id in enumerate(dedup_ids):
        seq: int | None = None
        if dedup_id:
            seq = here.get(dedup_id)
            if seq is None and dedup_id in lane.dedup_ids:
                seq = lane.dedup_ids[dedup_id][0]
            if seq is None:
                seq = topic.dedup_ids.find(dedup_id, now_ms)
        if seq is not None:
            duplicates.append((i, seq))
            continue
        if dedup_id:
            here[dedup_id] = lane.next_seq + len(kept)
        kept.append(i)
    return kept, tuple(duplicates)


def _answer_duplicates(
    state: EngineState,
    lane: Lane,
    ticket: Ticket,
    records: RecordColumns,
    duplicates: Sequence[tuple[int, int]],
) -> None:
    """Nothing to append: answer with the first seqs, no earlier than the writes they come from (semantics 7)."""
    assert lane.topic is not None
    assert records.dedup_id is not None
    topic, seqs = lane.topic, [seq for _, seq in duplicates]

    def answer() -> None:
        reply = Appended(
            topic=topic.name,
            first_seq=None,
            last_seq=None,
            seqs=seqs,
            head_seq=topic.head_seq,
            durable_seq=lane.durable_seq,
            count=len(seqs),
            duplicates=len(seqs),
            created=ticket.created,
            deduped=True,
        )
        _answer_when_durable(state, lane, ticket, reply, max(seqs))

    in_flight = {id(t): t for d in records.dedup_id if d in lane.dedup_ids for t in (lane.dedup_ids[d][1],)}
    if in_flight:
        state.ride(ticket, list(in_flight.values()), answer)
    else:
        answer()


def _answer_when_durable(
    state: EngineState, lane: Lane, ticket: Ticket, reply: Appended, highest: int
) -> None:
    """Answer at once, or behind a sync if the ticket asked for one and these seqs have none yet."""
    assert lane.topic is not None
    kept = lane.topic.config.durability is not Durability.EPHEMERAL
    if not (ticket.sync and kept and highest > lane.durable_seq):
        state.finish(ticket, reply)
        return
    state.check_writable(lane.shard, lane)
    entry = Entry(lane, [], [], frames=0, staged=True, must_sync=True, ticket=ticket)
    entry.reply = lambda: reply
    state.enqueue(lane.shard, entry)
