"""What clients were told and saw, and whether it still holds. Knows commands, replies and pages; nothing of the engine.

Three ledgers a topic: what was acknowledged (seq -> record), what was observed (every seq a page or a reply named),
and what is gone (deleted, acknowledged). A page is held against all three and against its own account.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from topics.codec.log.frame import FrameView
from topics.engine.commands import Append, DeleteRecords
from topics.engine.replies import Appended, TopicState
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability, TopicConfig
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.simulation.oracle import Facts, PromiseBroken
from topics.simulation.queues.job_claims import DURABLE, JobClaims, Place, PutJob

PerhapsGone = dict[
    int, tuple[DeleteRecords, int | None]
]  # deletes of a name, with the head behind their reply


@attrs.frozen
class ToldRecord:
    """One acknowledged record."""

    data: bytes
    tag: bytes
    node: bytes
    timed: bool
    place: Place


class TopicClaims:
    """Of one topic instance. `plain`: it never had a cap or a TTL, so only deletes take its records."""

    def __init__(self, config: TopicConfig, perhaps_gone: PerhapsGone) -> None:
        self.acked: dict[int, ToldRecord] = {}
        self.seen: dict[int, bytes] = {}
        self.seen_head = 0
        self.floors = (1, 1)
        self.gone: dict[int, Place] = {}
        self.perhaps_gone = perhaps_gone
        self.lost: list[tuple[int, int, str]] = []
        self.was_dest = False
        self.results: dict[bytes, tuple[Sequence[int], int, Place]] = {}
        self.dedup_ids: dict[bytes, tuple[int, int, Place]] = {}
        self.plain, self.ephemeral = True, False
        self.jobs = JobClaims()
        self.note_config(config)

    def note_config(self, config: TopicConfig) -> None:
        self.plain = self.plain and not (config.ttl_ms or config.cap_records or config.cap_bytes)
        ephemeral = config.durability is Durability.EPHEMERAL
        if self.ephemeral is not ephemeral:  # what is remembered ends with the log, and with having none
            self.results.clear()
            self.dedup_ids.clear()
        self.ephemeral = ephemeral

    # Acknowledgements.

    def appended(
        self,
        command: Append,
        reply: Appended,
        config: TopicConfig,
        *,
        asked_ms: int,
        now_ms: int,
        place: Place,
    ) -> None:
        """A write was acknowledged: its seqs are new, unless it says they are not. Windows count from `asked_ms`."""
        records = command.records
        if reply.same_body is not False and not len(reply.seqs) == len(records) == reply.count:
            raise PromiseBroken(f"{len(records)} records, yet the answer names {reply.seqs!r}")
        self._check_repeat(command, reply, now_ms)
        self.seen_head = max(self.seen_head, reply.head_seq, *reply.seqs)
        fresh = set() if reply.first_seq is None or reply.deduped else _between(reply)
        for i, seq in enumerate(reply.seqs):
            if seq in fresh:  # the first that names it brought it; the others are its duplicates
                fresh.discard(seq)
                self._append(seq, told_record(records, i, place))
                self.jobs.put(seq, put_of(records, i, asked_ms))
        if command.idempotency_key is not None and not (reply.deduped and reply.same_body is not None):
            expires = asked_ms + config.idempotency_window_ms
            self.results[command.idempotency_key] = (list(reply.seqs), expires, place)
        if records.dedup_id is not None and not reply.deduped:
            for dedup_id, seq in zip(records.dedup_id, reply.seqs, strict=True):
                if dedup_id and seq >= (reply.first_seq or seq + 1):
                    self.dedup_ids[dedup_id] = (seq, asked_ms + config.dedup_window_ms, place)

    def _append(self, seq: int, told: ToldRecord) -> None:
        before = self.acked.get(seq)
        if before is not None and before.data != told.data:
            raise PromiseBroken(f"seq {seq} was acknowledged for {before.data!r}, and now for {told.data!r}")
        seen = self.seen.get(seq)
        if seen is not None and seen != told.data:
            raise PromiseBroken(f"seq {seq} was read as {seen!r}, and is now acknowledged for {told.data!r}")
        self.acked[seq] = told

    def _check_repeat(self, command: Append, reply: Appended, now_ms: int) -> None:
        """Within the window a key, or a dedup id, names the first seqs again (semantics 7)."""
        key = command.idempotency_key
        if key is not None and key in self.results:
            seqs, expires, _ = self.results[key]
            if now_ms <= expires and list(reply.seqs) != list(seqs):
                raise PromiseBroken(f"key {key!r} gave {seqs}, and within its window {reply.seqs!r}")
            if now_ms > expires:
                del self.results[key]
        elif (key is None or not reply.deduped) and command.records.dedup_id is not None:
            for dedup_id, seq in zip(command.records.dedup_id, reply.seqs, strict=True):
                known = self.dedup_ids.get(dedup_id)
                if dedup_id and known is not None and now_ms <= known[1] and known[0] != seq:
                    raise PromiseBroken(
                        f"dedup id {dedup_id!r} is seq {known[0]}, and within its window {seq}"
                    )

    def deleted(
        self, command: DeleteRecords, head_seq: int, seqs_before: Iterable[int], place: Place
    ) -> None:
        """It was acknowledged: everything it selects that had been acknowledged when it was asked for is gone."""
        self.perhaps_gone[id(command)] = (command, head_seq)
        for seq in seqs_before:
            if seq in self.acked and selects(command, seq, self.acked[seq].tag):
                self.gone.setdefault(seq, place)

    # Observations.

    def state(self, state: TopicState) -> None:
        """Floors never fall (semantics 2.3)."""
        floors = (state.evict_floor, state.earliest_seq)
        if not 1 <= state.evict_floor <= state.earliest_seq <= state.head_seq + 1:
            raise PromiseBroken(f"floors out of order: {state!r}")
        if floors[0] < self.floors[0] or floors[1] < self.floors[1] or state.head_seq < self.seen_head:
            raise PromiseBroken(f"floors {self.floors}, head {self.seen_head} moved back: {state!r}")
        self.floors = floors
        self.seen_head = state.head_seq

    def page(self, query: DiffQuery, plan: DiffPlan, records: Sequence[FrameView], state: TopicState) -> None:
        """A page was read, and the state at the same instant."""
        recreated = (query.epoch not in (None, plan.epoch)) or query.from_seq > plan.head_seq
        start = 0 if recreated else plan.from_seq
        self._check_account(query, plan, records, start)
        self._check_gap(plan, state, recreated=recreated)
        behind = plan.gap.gap_to if plan.gap is not None and not recreated else start
        previous = start
        for record in records:
            if not previous < record.seq <= plan.next_from_seq:
                raise PromiseBroken(
                    f"seq {record.seq} behind {previous} in a page up to {plan.next_from_seq}"
                )
            previous = record.seq
            self._check_record(record, query)
        if not recreated:
            self._check_nothing_missing(query, behind, plan.next_from_seq, {r.seq for r in records})
        self.seen_head = max(self.seen_head, plan.head_seq)

    def _check_account(
        self, query: DiffQuery, plan: DiffPlan, records: Sequence[FrameView], start: int
    ) -> None:
        account = plan.account
        if account.delivered != len(records) or account.total != plan.next_from_seq - start:
            raise PromiseBroken(
                f"the account does not add up over ({start}, {plan.next_from_seq}]: {account}"
            )
        end_seq = plan.durable_seq if query.durable_only and not self.ephemeral else plan.head_seq
        if plan.caught_up != (plan.next_from_seq >= end_seq) or plan.next_from_seq > plan.head_seq:
            raise PromiseBroken(f"caught_up is not next_from_seq >= {end_seq}: {plan!r:.200}")

    def _check_gap(self, plan: DiffPlan, state: TopicState, *, recreated: bool) -> None:
        """A tombstone iff the read starts below the floor, at a lost range or in another epoch (I-06)."""
        first = plan.from_seq + 1
        lost = next((r for r in self.lost if r[0] <= first <= r[1]), None)
        due = recreated or first < state.evict_floor or lost is not None
        if due != (plan.gap is not None):
            raise PromiseBroken(
                f"from_seq {plan.from_seq}, floor {state.evict_floor}, lost {self.lost}: {plan.gap!r}"
            )
        if plan.gap is None:
            return
        if recreated:
            expected = (1, state.head_seq)
        elif first < state.evict_floor:
            expected = (first, state.earliest_seq - 1)
        else:
            assert lost is not None
            expected = (first, lost[1])
        if (plan.gap.gap_from, plan.gap.gap_to) != expected:
            raise PromiseBroken(f"a tombstone over {expected} is due: {plan.gap!r}")

    def _check_record(self, record: FrameView, query: DiffQuery) -> None:
        seq, data = record.seq, record.data
        if (acked := self.acked.get(seq)) is not None and acked.data != data:
            raise PromiseBroken(f"seq {seq} was acknowledged for {acked.data!r} and reads as {data!r}")
        if self.seen.setdefault(seq, data) != data:
            raise PromiseBroken(f"seq {seq} was read as {self.seen[seq]!r} and reads as {data!r} (I-08)")
        if seq in self.gone or seq in self.jobs.done:
            raise PromiseBroken(f"seq {seq} was deleted and is back")
        if any(first <= seq <= last for first, last, _ in self.lost):
            raise PromiseBroken(f"seq {seq} is delivered out of a lost range")
        if query.match is not None and not query.match.accepts(record.tag):
            raise PromiseBroken(f"seq {seq} with tag {record.tag!r} passed the filter {query.match}")

    def _check_nothing_missing(self, query: DiffQuery, after: int, upto: int, delivered: set[int]) -> None:
        """In a plain topic an acknowledged record is delivered, unless a delete, a filter or its own TTL took it."""
        if not self.plain or self.ephemeral:
            return
        for seq in range(after + 1, upto + 1):
            told = self.acked.get(seq)
            if told is None or seq in delivered or seq in self.gone or told.timed:
                continue
            if told.node and told.node in query.nodes:
                continue
            if query.match is not None and not query.match.accepts(told.tag):
                continue
            if any(selects(c, seq, told.tag, upto) for c, upto in self.perhaps_gone.values()):
                continue
            if self.jobs.may_be_gone(seq):
                continue
            raise PromiseBroken(
                f"acknowledged seq {seq} is neither delivered nor accounted for in ({after}, {upto}]"
            )

    # Restarts.

    def void(self, shard: int, kept: int) -> None:
        """A crash left `kept` writes of a shard: claims whose writes it took are void. What was seen stays seen."""

        def survives(place: Place) -> bool:
            return place[0] != shard or place[1] <= kept

        self.acked = {seq: told for seq, told in self.acked.items() if survives(told.place)}
        self.gone = {seq: place for seq, place in self.gone.items() if survives(place)}
        self.results = {key: result for key, result in self.results.items() if survives(result[2])}
        self.dedup_ids = {key: entry for key, entry in self.dedup_ids.items() if survives(entry[2])}
        self.jobs.void(shard, kept)

    def restarted(self, topic: Facts, *, whole: bool) -> None:
        """A recovery is complete, and all that is left is durable: nothing seen is above the head.

        `whole`: nothing was taken, so the floors have not moved back either (semantics 2.7).
        """
        head_seq, floors = topic["head_seq"], (topic["evict_floor"], topic["base_seq"])
        if head_seq < self.seen_head:
            raise PromiseBroken(
                f"seq {self.seen_head} was seen and the head is {head_seq}: it comes again (I-08)"
            )
        if whole and (floors[0] < self.floors[0] or floors[1] < self.floors[1]):
            raise PromiseBroken(f"floors moved back from {self.floors} to {floors} without a loss")
        if self.ephemeral:
            for ledger in (self.acked, self.gone, self.results, self.dedup_ids):
                ledger.clear()
        leases_end = self.ephemeral or not topic["config"].get("leases_durable", False)
        self.jobs.restarted(leases_end=leases_end, head_seq=head_seq, acked=self.acked)
        self.acked = {seq: attrs.evolve(told, place=DURABLE) for seq, told in self.acked.items()}
        self.gone = dict.fromkeys(self.gone, DURABLE)
        self.results = {key: (seqs, expires, DURABLE) for key, (seqs, expires, _) in self.results.items()}
        self.dedup_ids = {key: (seq, expires, DURABLE) for key, (seq, expires, _) in self.dedup_ids.items()}
        self.floors, self.seen_head = floors, head_seq
        self.lost = [(first, last, reason) for first, last, reason, _ in topic["lost"]]
        for key, (command, upto) in self.perhaps_gone.items():
            self.perhaps_gone[key] = (command, head_seq if upto is None else upto)


def told_record(records: RecordColumns, i: int, place: Place) -> ToldRecord:
    return ToldRecord(
        data=records.data[i],
        tag=b"" if records.tag is None else records.tag[i],
        node=b"" if records.node is None else records.node[i],
        timed=records.ttl_ms is not None and records.ttl_ms[i] is not None,
        place=place,
    )


def put_of(records: RecordColumns, i: int, asked_ms: int) -> PutJob:
    delay_ms = 0 if records.delay_ms is None else records.delay_ms[i] or 0
    return PutJob(b"" if records.key is None else records.key[i], asked_ms + delay_ms)


def selects(command: DeleteRecords, seq: int, tag: bytes, upto: int | None = None) -> bool:
    """Whether a delete takes this record, if it was published before."""
    if upto is not None and seq > upto:
        return False
    if command.before_seq is not None and seq >= command.before_seq:
        return False
    return command.match is None or command.match.accepts(tag)


def _between(reply: Appended) -> set[int]:
    assert reply.first_seq is not None
    assert reply.last_seq is not None
    return set(range(reply.first_seq, reply.last_seq + 1))
