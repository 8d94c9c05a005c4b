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
from topics.engine.admit import check_caps, check_topic_limits
from topics.engine.batch import Entry, Item, Step, step
from topics.engine.commands import Append
from topics.engine.lane import Lane
from topics.engine.replies import Appended, Reply
from topics.engine.state import EngineState, frame_control
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Discard, Durability
from topics.kernel.errors import Code, Rejected
from topics.log.dedupe import Result, interleave
from topics.log.topic import Topic


def propose_append(state: EngineState, lane: Lane, ticket: Ticket, now_ms: int) -> None:
    """Propose onto a published, unblocked topic. Raises `Rejected` with nothing changed."""
    command = ticket.command
    assert isinstance(command, Append)
    topic = lane.topic
    assert topic is not None
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
                topic=topic.name,
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
    if topic.config.discard is Discard.REJECT:
        check_caps(lane, topic, records, now_ms)
    _write(state, lane, topic, ticket, records, duplicates, digest, now_ms)


class _Write(Entry, eq=False, kw_only=True):
    """One accepted write. `stored`: bytes that caps count; what it reserves is given back when it ends."""

    lane: Lane
    topic: Topic
    dedup_ids: Sequence[bytes] | None
    key: bytes | None
    count: int
    stored: int
    first_seq: int
    duplicates: tuple[tuple[int, int], ...]

    def reserve_names(self) -> None:
        """Key and dedup ids: whoever comes with one of them meanwhile is told of this write."""
        lane, key, dedup_ids = self.lane, self.key, self.dedup_ids
        assert self.ticket is not None
        if key is not None:
            lane.keys[key] = self.ticket
        if dedup_ids is not None:
            for seq, dedup_id in enumerate(dedup_ids, self.first_seq):
                if dedup_id:
                    lane.dedup_ids[dedup_id] = (seq, self.ticket)

    def release(self) -> None:
        lane = self.lane
        lane.reserved_records -= self.count
        lane.reserved_bytes -= self.stored
        assert lane.reserved_records >= 0
        assert lane.reserved_bytes >= 0
        if self.key is not None:
            del lane.keys[self.key]
        if self.dedup_ids is not None:
            for dedup_id in self.dedup_ids:
                if dedup_id:
                    lane.dedup_ids.pop(dedup_id, None)

    def settle(self, outcome: int) -> None:  # noqa: ARG002 -- of deletes
        lane, last_seq = self.lane, self.first_seq + self.count - 1
        if last_seq > lane.written_seq and self.topic.config.durability is not Durability.EPHEMERAL:
            lane.written_seq = last_seq

    def reply(self) -> Reply:
        count, first_seq, duplicates = self.count, self.first_seq, self.duplicates
        topic, last_seq, ticket = self.topic, first_seq + count - 1, self.ticket
        head_seq = topic.index.head_seq
        assert ticket is not None
        assert head_seq >= last_seq
        seqs: Sequence[int] = range(first_seq, last_seq + 1)
        if duplicates:
            seqs = interleave(count + len(duplicates), first_seq, duplicates)
        return Appended(
            topic=topic.name,
            first_seq=first_seq if count else None,
            last_seq=last_seq if count else None,
            seqs=seqs,
            head_seq=head_seq,
            durable_seq=self.lane.durable_seq,
            count=count + len(duplicates),
            duplicates=len(duplicates),
            created=ticket.created,
            deduped=count == 0,
        )


def _write(
    state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, records: RecordColumns,
    duplicates: tuple[tuple[int, int], ...], digest: int, now_ms: int,
) -> None:  # fmt: skip
    """Every check has passed: frames, the last check of all, which is of the space they take, and reservations."""
    command, durability = ticket.command, topic.config.durability
    assert isinstance(command, Append)
    count, first_seq, key = len(records.data), lane.next_seq, command.idempotency_key
    last_seq = first_seq + count - 1
    assert lane.topic is topic
    assert len(duplicates) + count == len(command.records.data)
    items: Sequence[Item]
    chunks: Sequence[bytes]
    if key is None:
        chunk, run = encode_run(
            lane.topic_id, first_seq, now_ms, records,
            durable=topic.config.durable, keyed=None, write_frames=count,
        )  # fmt: skip
        items, chunks, frames, size = (run,), (chunk,), count, len(chunk)
    else:
        items, chunks = _keyed_frames(lane, topic, records, Keyed(key, digest), duplicates, now_ms)
        frames, size = count + len(items) - (1 if count else 0), sum(map(len, chunks))
    stored = records.stored_total
    memory: bytes | None = None
    if durability is Durability.EPHEMERAL:
        memory, chunks, frames, size = b"".join(chunks), (), 0, 0
    ceiling = _due_ceiling(lane, last_seq) if count and durability is not Durability.FSYNC else 0
    raised = _raise(lane, ceiling, now_ms) if ceiling else None
    state.check_space(lane.shard, size if raised is None else size + raised.size, keep_reserve=True)
    waits = durability is not Durability.FSYNC and last_seq > lane.ceiling
    staged = durability is Durability.FSYNC or waits
    if raised is not None:
        assert not waits or raised.staged
        lane.ask_ceiling(ceiling)
        state.enqueue(lane.shard, raised)
    write = _Write(
        lane=lane, items=items, chunks=chunks, size=size, frames=frames, staged=staged,
        must_sync=staged or (ticket.sync and memory is None), ticket=ticket, memory=memory, topic=topic,
        dedup_ids=records.dedup_id, key=key, count=count, stored=stored, first_seq=first_seq,
        duplicates=duplicates,
    )  # fmt: skip
    lane.next_seq += count
    lane.reserved_records += count
    lane.reserved_bytes += stored
    if key is not None or records.dedup_id is not None:
        write.reserve_names()
    state.touch(lane)
    state.enqueue(lane.shard, write)


def _keyed_frames(
    lane: Lane, topic: Topic, records: RecordColumns, keyed: Keyed,
    duplicates: tuple[tuple[int, int], ...], ts: int,
) -> tuple[Sequence[Item], Sequence[bytes]]:  # fmt: skip
    """A run, and before it the WriteResult of an idempotent write that has duplicates."""
    count, first_seq = len(records.data), lane.next_seq
    if not duplicates:
        assert count > 0
        chunk, run = encode_run(
            lane.topic_id, first_seq, ts, records,
            durable=topic.config.durable, keyed=keyed, write_frames=count,
        )  # fmt: skip
        return (run,), (chunk,)
    result = WriteResult(
        keyed.key, keyed.digest, count + len(duplicates), first_seq if count else 0, list(duplicates)
    )
    control, told = frame_control(result, topic_id=lane.topic_id, ts=ts, write_frames=count + 1)
    if not count:
        return (control,), (told,)
    chunk, run = encode_run(
        lane.topic_id, first_seq, ts, records, durable=topic.config.durable, keyed=None, write_frames=0
    )
    run.offset = len(told)
    return (control, run), (told, chunk)


def _due_ceiling(lane: Lane, last_seq: int) -> int:
    """The ceiling this write needs, or that is due because half the step is used; 0 for neither (storage 3)."""
    asked, held = lane.ceiling_asked, lane.ceiling
    if last_seq > asked or (asked == held and held - last_seq < lane.ceiling_step // 2):
        return lane.next_ceiling(last_seq)
    return 0


def _raise(lane: Lane, ceiling: int, ts: int) -> Step:
    control, chunk = frame_control(HeadWatermark(ceiling), topic_id=lane.topic_id, ts=ts)
    raised = step(lane, [control], [chunk], staged=True, must_sync=True, ordered=False)
    raised.on_settle = lambda _: lane.raise_ceiling()
    return raised


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
    entry = step(lane, [], [], staged=True, must_sync=True, ticket=ticket)
    entry.on_reply = lambda: reply
    state.enqueue(lane.shard, entry)
