"""Proposing a write: every check before a seq is assigned, then seqs, reservations and frames in one step.

Order of checks: limits, existence, idempotency key, `expected_head`, dedup, caps, total bytes, space (semantics 7,
2.9): a retry on a full topic succeeds, and whatever is refused is refused before it has a seq.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec

from topics.codec.digest import body_digest
from topics.codec.log.control import WriteResult
from topics.codec.log.frame import Keyed, Run, encode_run
from topics.engine.batch import Entry, Item, frame_control
from topics.engine.commands import DEFAULT_CONFIG, Append
from topics.engine.lane import Lane
from topics.engine.replies import Appended
from topics.engine.routers.following import Copies, Given
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Ticket
from topics.engine.writing import admit
from topics.engine.writing.ceilings import RAISE_BYTES, due_ceiling, raise_of
from topics.engine.writing.creating import propose_create
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Discard, Durability
from topics.kernel.errors import Code, Rejected
from topics.log.dedupe import interleave
from topics.log.reads.waiting import NO_NEWS, News
from topics.log.topic import Topic

_RECORDS: Final = News.RECORDS


def check_append(state: EngineState, lane: Lane | None, ticket: Ticket) -> None:
    """What no topic takes, whichever it is and whenever its turn comes."""
    command = ticket.command
    assert isinstance(command, Append)
    if not command.moved:
        admit.check_limits(command.records, state.limits)
    if command.config is not DEFAULT_CONFIG:
        admit.check_new_config(command.topic, command.config, lane)


def append_absent(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Create the topic, if the command may; the write waits until it stands."""
    command = ticket.command
    assert isinstance(command, Append)
    name = command.topic
    if not command.create:
        raise no_topic(name)
    if command.expected_head:
        absent = f"topic {name!r} does not exist, so its head is 0"
        raise Rejected(Code.SEQ_MISMATCH, absent, topic=name, head_seq=0)
    admit.check_creation(command, state.limits)
    state.total.check(state.lanes.values(), ticket, command.records, state.time.timer_ms)
    state.park(propose_create(state, name, command.config, None, now_ms), ticket)
    ticket.created = True
    state.total.hold(ticket, command.records)


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
    if not command.moved:
        admit.check_topic_limits(topic, command.records, state.limits)
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
            _answer_duplicates(state, lane, topic, ticket, records.dedup_id, duplicates)
            return
        if duplicates:
            records = records.take(kept)
    state.check_writable(lane.shard, lane)
    if topic.config.discard is Discard.REJECT:
        admit.check_caps(lane, topic, records, now_ms)
    state.total.check(state.lanes.values(), ticket, records, state.time.timer_ms)
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
    plain: bool

    def absorb(self, other: Entry) -> bool:
        """Records that are data alone, of the same ms, are one run."""
        if not (self.plain and isinstance(other, _Write) and other.plain):
            return False
        run, more = self.items[0], other.items[0]
        assert isinstance(run, Run)
        assert isinstance(more, Run)
        if run.ts != more.ts:
            return False
        assert run.seq_stop == more.seq_start
        run.lengths.extend(more.lengths)
        run.sizes.extend(more.sizes)
        return True

    def place(self, offset: int) -> None:
        if self.memory is None:
            for item in self.items:
                if isinstance(item, Run):
                    item.offset += offset

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
        lane.release(self.count, self.stored)
        if self.key is not None:
            del lane.keys[self.key]
        if self.dedup_ids is not None:
            for dedup_id in self.dedup_ids:
                if dedup_id:
                    lane.dedup_ids.pop(dedup_id, None)

    def settle(self) -> None:
        lane, last_seq = self.lane, self.first_seq + self.count - 1
        if last_seq > lane.written_seq and self.topic.config.durability is not Durability.EPHEMERAL:
            lane.written_seq = last_seq

    def news(self) -> News:
        return _RECORDS if self.count else NO_NEWS

    def reply(self) -> Appended:
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
    last_seq, synced = first_seq + count - 1, durability is Durability.FSYNC
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
    ceiling = due_ceiling(lane, last_seq) if count and not synced else 0
    copies: Copies | None = None
    needed = size + RAISE_BYTES if ceiling else size
    if state.routes and count and state.routes.leading_from(lane.topic_id):
        copies = Copies(state, now_ms)
        copies.follow(Given(lane, first_seq, records, now_ms))
        shard, together = state.shards[lane.shard], needed + copies.size
        has_room = shard.has_room(together, reserve=state.limits.wal_reserve)
        if has_room or (ticket.asks_room and shard.may_wait(together)):
            needed = together
        else:
            copies = None  # they are late: nothing that a source gets is refused for them
    state.check_space(lane.shard, needed, keep_reserve=True)
    waits = not synced and last_seq > lane.ceiling
    staged = synced or waits or (copies is not None and copies.staged)
    if ceiling:
        lane.ask_ceiling(ceiling)
        state.enqueue(lane.shard, raise_of(lane, ceiling, now_ms))
    if copies is not None:
        copies.raise_ceilings()
    write = _Write(
        lane=lane, items=items, chunks=chunks, size=size, frames=frames, staged=staged,
        must_sync=staged or (ticket.sync and memory is None), ticket=ticket, memory=memory, topic=topic,
        dedup_ids=records.dedup_id, key=key, count=count, stored=stored, first_seq=first_seq,
        duplicates=duplicates, plain=key is None and memory is None and records.plain,
    )  # fmt: skip
    lane.reserve(count, stored)
    state.total.add(stored)
    if key is not None or records.dedup_id is not None:
        write.reserve_names()
    if not synced:
        state.touch(lane)
    state.enqueue(lane.shard, write)
    if copies is not None:
        copies.begin(staged=staged, behind=True)


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


def _answer_by_key(
    state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, digest: int, now_ms: int
) -> bool:  # fmt: skip
    """True if an earlier write with this key answers, now or when it ends."""
    command = ticket.command
    assert isinstance(command, Append)
    assert command.idempotency_key is not None
    first = lane.keys.get(command.idempotency_key)
    if first is not None:  # end as it does, whatever becomes of window and topic meanwhile
        assert isinstance(first.command, Append)
        same_body = digest == _digest(first.command)
        state.ride(ticket, [first], _Again.to(ticket, lane, topic, first=first, same_body=same_body))
        return True
    found = topic.results.find(command.idempotency_key, now_ms)
    if found is None:
        return False
    told = _told(topic, found.seqs(), first_seq=found.first_seq, appended=found.appended)
    state.answer(_Again.to(ticket, lane, topic, told=told, same_body=digest == found.digest))
    return True


def _digest(command: Append) -> int:
    """The digest of the body as the caller gave it, before compression."""
    return body_digest(command.records) if command.digest is None else command.digest


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
    state: EngineState, lane: Lane, topic: Topic, ticket: Ticket, dedup_ids: Sequence[bytes],
    duplicates: Sequence[tuple[int, int]],
) -> None:  # fmt: skip
    """Nothing to append: answer with the first seqs, no earlier than the writes they come from (semantics 7)."""
    again = _Again.to(ticket, lane, topic, told=_told(topic, [seq for _, seq in duplicates]))
    in_flight = {id(t): t for d in dedup_ids if d in lane.dedup_ids for t in (lane.dedup_ids[d][1],)}
    if in_flight:
        state.ride(ticket, list(in_flight.values()), again)
    else:
        state.answer(again)


def _told(topic: Topic, seqs: Sequence[int], *, first_seq: int = 0, appended: int = 0) -> Appended:
    """What the writes of these records were told; `appended` by one, from `first_seq` on, the others duplicates."""
    return Appended(
        topic=topic.name,
        first_seq=first_seq if appended else None,
        last_seq=first_seq + appended - 1 if appended else None,
        seqs=seqs,
        head_seq=topic.head_seq,
        durable_seq=0,
        count=len(seqs),
        duplicates=len(seqs) - appended,
        created=False,
        deduped=True,
    )


class _Again(Entry, eq=False, kw_only=True):
    """The answer of a write that appends nothing: what was told of these records before, and what holds now.

    `first`: the write that was told, if it was still on its way; else `told` says it. `same_body`: None if the write is
    answered for its dedup ids, which are those of several perhaps.
    """

    lane: Lane
    topic: Topic
    ticket: Ticket
    told: Appended | None = None
    first: Ticket | None = None
    same_body: bool | None = None

    @classmethod
    def to(cls, ticket: Ticket, lane: Lane, topic: Topic, **what: Any) -> Self:
        return cls(
            lane=lane, topic=topic, items=(), chunks=(), size=0, frames=0, staged=True, must_sync=True,
            ticket=ticket, **what,
        )  # fmt: skip

    def waits_for_sync(self) -> bool:
        """If the ticket asked for one and the records have none yet."""
        kept = self.topic.config.durability is not Durability.EPHEMERAL
        return self.ticket.sync and kept and max(self._told.seqs) > self.lane.durable_seq

    def reply(self) -> Appended:
        return msgspec.structs.replace(
            self._told, head_seq=self.topic.head_seq, durable_seq=self.lane.durable_seq,
            created=self.same_body is None and self.ticket.created, deduped=True, same_body=self.same_body,
        )  # fmt: skip

    @property
    def _told(self) -> Appended:
        told = self.told if self.first is None else self.first.reply
        assert isinstance(told, Appended)
        return told
