"""The projection of a leases log: who holds which job until when, what waits for its time, what is paused (queues 2).

Events are folded into rows, which are a function of the log. What time makes of them is read from a row and the instant
it is looked at, and `advance` only keeps the counts and lists of that moment: it may be called at any time and as often
as one likes, and no frame depends on whether it was. A replay has no need of it.

A job without a row is ready and was never leased.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from topics.codec.log.leases import Claimed, Extended, Released
from topics.codec.log.run import unpack_job
from topics.kernel.config import RateLimit, TopicConfig
from topics.kernel.deadlines import Deadlines
from topics.kernel.limits import U32_MAX
from topics.kernel.whole_numbers import Count
from topics.log.index import LIVE, Index
from topics.log.jobs.backoff import backoff_ms
from topics.log.jobs.rows import JobState, Rows

_READY, _DELAYED, _IN_FLIGHT, _MOVING = (int(state) for state in JobState)
_STALE_DEADLINES_MIN: Final = 4096


class JobImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row as the log tells it. `until`: of a lease its deadline, else the instant the job is ready from."""

    seq: Count
    moving: bool
    leased: bool
    deliveries: Count
    until: Count
    backoff: Count
    nonce: bytes
    counter: Count
    node: bytes
    reason: bytes


class JobsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a snapshot has of a queue's jobs. `tokens` as of `tokens_ms`, in parts of `rate_limit.per_ms`."""

    paused: bool
    dead_lettered: Count
    tokens: int
    tokens_ms: Count
    rows: list[JobImage]


class Jobs:
    """The jobs of one queue. `returned`: those that came back to ready since somebody has last taken the list; `freed`:
    the keys of which a lease or a rest has ended. Both are for who hands jobs out, and None while nobody does. `ended`:
    the jobs of which a lease has ended, None while nobody asks.
    """

    __slots__ = (
        "_index", "counts", "dead_lettered", "due", "ended", "freed", "key_leases", "key_rests", "now_ms", "paused",
        "returned", "rows", "tokens", "tokens_ms",
    )  # fmt: skip

    def __init__(self, index: Index) -> None:
        self._index = index
        assert index.of_queue
        index.on_killed = self._gone
        self.rows = Rows()
        self.counts = [0, 0, 0, 0]  # rows by state
        self.due = Deadlines()  # of deadlines, and of the last ms of rests
        self.now_ms = 0
        self.paused = False
        self.dead_lettered = 0
        self.tokens = self.tokens_ms = 0
        self.key_leases: dict[int, int] = {}  # by the number of a key
        self.key_rests: dict[int, int] = {}  # jobs of it that wait for their retry
        self.returned: list[int] | None = None
        self.freed: list[int] | None = None
        self.ended: list[int] | None = None

    # What is known.

    def row(self, seq: int) -> int:
        """The row of a live job; 0 if it has none, or is not there."""
        at = self._index.find(seq)
        return self._index.job_rows[at] if at >= 0 else 0  # type: ignore[index]  # a queue's index has it

    def state(self, seq: int) -> JobState:
        """Of a live job, as of the last `advance`."""
        return JobState(self.rows.state[self.row(seq)])

    def priority(self, seq: int) -> int:
        index = self._index
        return 0 if index.jobs is None else unpack_job(index.jobs[index.position(seq)])[0] or 0

    def waiting_since(self, seq: int) -> int:
        """From when on a ready job has been ready."""
        row, index = self.row(seq), self._index
        if row:
            return self._ready_at(row)
        at = index.position(seq)
        not_before = 0 if index.jobs is None else unpack_job(index.jobs[at])[1] or 0
        return max(index.ts[at], not_before)

    def reason(self, seq: int) -> bytes:
        """Why its last delivery failed: what the worker said, or that the lease ran out; empty if none has."""
        row, rows = self.row(seq), self.rows
        if not row:
            return b""
        return (
            b"expired" if rows.leased[row] and rows.state[row] != _IN_FLIGHT else rows.reasons.get(row, b"")
        )

    def has_leases(self, now_ms: int) -> bool:
        """True if a job is leased at that instant."""
        rows = self.rows
        return any(leased and rows.until[row] >= now_ms for row, leased in enumerate(rows.leased))

    def tokens_at(self, now_ms: int, limit: RateLimit) -> int:
        """How full the bucket is, in parts of `limit.per_ms` a job."""
        filled = self.tokens + (now_ms - self.tokens_ms) * limit.count
        return min(filled, limit.count * limit.per_ms)

    def leased(self) -> list[int]:
        """The jobs that are leased, as of the last `advance`."""
        return [
            seq for seq, state in zip(self.rows.seqs, self.rows.state, strict=True) if state == _IN_FLIGHT
        ]

    def next_due_ms(self) -> int | None:
        """The first instant at which time alone changes a state; None if there is none. May be early, never late."""
        first = self.due.first_ms()
        return None if first is None else first + 1

    # Folding: each is a function of the log, and an event of a job that is not there does nothing.

    def arrive(self, seq_start: int, jobs: Sequence[int], ts: int) -> None:
        """Records came: those that must not be claimed yet rest. `jobs` as in `Run.jobs`."""
        for seq, job in enumerate(jobs, seq_start):
            if job and (not_before := unpack_job(job)[1] or 0) > ts:
                self._rest(self._new_row(seq, self._index.find(seq)), not_before)

    def claimed(self, event: Claimed, ts: int, config: TopicConfig) -> None:
        rows, backoff, at = self.rows, config.retry_backoff, 0
        nonce = event.nonce.to_bytes(8, "big")
        for node, deadline, count in event.grants:
            held = []
            for counter, seq in enumerate(event.seqs[at : at + count], event.first_lease + at):
                row = self._row_of(seq)
                if not row:
                    continue
                rows.drop_owner(row)
                self._put(row, _IN_FLIGHT)
                deliveries = rows.deliveries[row] = min(rows.deliveries[row] + 1, U32_MAX)
                rows.leased[row], rows.until[row], rows.counters[row] = 1, deadline, counter
                rows.backoffs[row] = backoff_ms(backoff, deliveries, seq) if backoff is not None else 0
                held.append(row)
                self.due.add(deadline, seq)
            owners = rows.worker_names.hold_all((node,) * len(held))
            starts = rows.nonce_names.hold_all((nonce,) * len(held))
            for row, owner, start in zip(held, owners, starts, strict=True):
                rows.nodes[row], rows.nonces[row] = owner, start
            at += count
        if config.rate_limit is not None:
            limit = config.rate_limit
            self.tokens, self.tokens_ms = self.tokens_at(ts, limit) - len(event.seqs) * limit.per_ms, ts
        if len(self.due) > 4 * len(rows) + _STALE_DEADLINES_MIN:
            self.due.keep(lambda seq: bool(self.row(seq)))

    def extended(self, event: Extended) -> None:
        for seq, counter in zip(event.seqs, event.leases, strict=True):
            row = self._leased_row(seq, counter)
            if row:
                self.rows.until[row] = event.deadline
                self._put(row, _IN_FLIGHT)
                self.due.add(event.deadline, seq)

    def released(self, event: Released) -> None:
        for seq, counter, ready_at in zip(event.seqs, event.leases, event.ready_at, strict=True):
            row = self._leased_row(seq, counter)
            if row:
                self._end_lease(row, ready_at, event.reason)

    def released_all(self, reason: bytes, ts: int) -> None:
        rows = self.rows
        for row in rows.held():
            if rows.leased[row] and rows.until[row] >= ts:
                self._end_lease(row, ts, reason)

    def moving(self, seqs: Iterable[int]) -> None:
        """They are going elsewhere, and nobody's until then."""
        for seq in seqs:
            row = self._row_of(seq)
            if row:
                self.rows.leased[row] = 0
                self._put(row, _MOVING)

    def ready_below(self, upto: int, ts: int) -> list[int]:
        """The live jobs up to `upto` that are nobody's at that instant: ready or resting."""
        index, rows = self._index, self.rows
        assert index.job_rows is not None
        found = []
        for at in range(index.start, index.position(upto + 1)):
            row = index.job_rows[at]
            if index.flags[at] & LIVE and (
                not row or (rows.state[row] != _MOVING and not (rows.leased[row] and rows.until[row] >= ts))
            ):
                found.append(index.seq_at(at))
        return found

    # Time.

    def advance(self, now_ms: int) -> None:
        """Leases that have run out end, and rests are over; what that makes ready is in `returned`."""
        rows = self.rows
        self.now_ms = max(self.now_ms, now_ms)
        while (first := self.due.first_ms()) is not None and first < now_ms:
            for seq in self.due.take_due(now_ms):
                row = self.row(seq)
                runs_out = rows.state[row] == _IN_FLIGHT and rows.until[row] < now_ms
                if runs_out or (rows.state[row] == _DELAYED and self._ready_at(row) <= now_ms):
                    self._rest(row, self._ready_at(row))

    # Keeping.

    def image(self) -> JobsImage:
        """What the log says; a job that only waits for its time says so by its record."""
        rows = self.rows
        images = [
            JobImage(
                seq=rows.seqs[row], moving=rows.state[row] == _MOVING, leased=bool(rows.leased[row]),
                deliveries=rows.deliveries[row], until=rows.until[row], backoff=rows.backoffs[row],
                nonce=rows.nonce_names.name(rows.nonces[row]), counter=rows.counters[row],
                node=rows.worker_names.name(rows.nodes[row]), reason=rows.reasons.get(row, b""),
            )
            for row in rows.held()
            if rows.deliveries[row] or rows.state[row] == _MOVING
        ]  # fmt: skip
        return JobsImage(self.paused, self.dead_lettered, self.tokens, self.tokens_ms, images)

    def restore(self, image: JobsImage | None) -> None:
        """Into an index that has all its records."""
        index, rows = self._index, self.rows
        index.job_rows = array("I", bytes(4 * len(index.flags)))
        if image is not None:
            self.paused, self.dead_lettered = image.paused, image.dead_lettered
            self.tokens, self.tokens_ms = image.tokens, image.tokens_ms
        for kept in image.rows if image is not None else ():
            row = self._row_of(kept.seq)
            if not row:
                continue  # its record is damaged and gone
            rows.leased[row], rows.deliveries[row], rows.until[row] = kept.leased, kept.deliveries, kept.until
            rows.backoffs[row], rows.counters[row] = kept.backoff, kept.counter
            (rows.nodes[row],) = rows.worker_names.hold_all((kept.node,))
            (rows.nonces[row],) = rows.nonce_names.hold_all((kept.nonce,))
            if kept.reason:
                rows.reasons[row] = kept.reason
            if kept.moving:
                self._put(row, _MOVING)
            elif kept.leased:
                self._put(row, _IN_FLIGHT)
                self.due.add(kept.until, kept.seq)
            else:
                self._rest(row, kept.until)
        if index.jobs is None:
            return
        for at, job in enumerate(index.jobs[index.start :], index.start):
            if job and index.flags[at] & LIVE and not index.job_rows[at]:
                not_before = unpack_job(job)[1]
                if not_before:
                    self._rest(self._new_row(index.seq_at(at), at), not_before)

    # Inside.

    def _row_of(self, seq: int) -> int:
        """The row of a job, made if it has none; 0 if there is no such job."""
        at = self._index.find(seq)
        if at < 0:
            return 0
        return self._index.job_rows[at] or self._new_row(seq, at)  # type: ignore[index]  # a queue's index has it

    def _new_row(self, seq: int, at: int) -> int:
        index = self._index
        assert index.job_rows is not None
        row = index.job_rows[at] = self.rows.new(seq)
        self.counts[_READY] += 1
        return row

    def _leased_row(self, seq: int, counter: int) -> int:
        """The row of the job if the log says that this lease of it is the last, and not ended; else 0."""
        row = self.row(seq)
        return row if row and self.rows.leased[row] and self.rows.counters[row] == counter else 0

    def _end_lease(self, row: int, ready_at: int, reason: bytes) -> None:
        rows = self.rows
        rows.drop_owner(row)
        rows.leased[row] = rows.counters[row] = rows.backoffs[row] = 0
        rows.until[row] = ready_at
        if reason:
            rows.reasons[row] = reason
        else:
            rows.reasons.pop(row, None)
        self._rest(row, ready_at)

    def _ready_at(self, row: int) -> int:
        """When a job that is not moving is ready, if nothing else happens to it."""
        rows = self.rows
        return rows.until[row] + max(rows.backoffs[row], 1) if rows.leased[row] else rows.until[row]

    def _rest(self, row: int, ready_at: int) -> None:
        """Nobody has the job, and it is ready from that instant on: now, or when `advance` comes to it."""
        rows, seq = self.rows, self.rows.seqs[row]
        if ready_at > self.now_ms:
            if not rows.leased[row]:
                rows.until[row] = ready_at
            self._put(row, _DELAYED)
            self.due.add(ready_at - 1, seq)
            return
        self._put(row, _READY)
        if not rows.deliveries[row]:  # as if it had just come
            assert self._index.job_rows is not None
            self._index.job_rows[self._index.find(seq)] = 0
            self.counts[_READY] -= 1
            rows.free(row)
        if self.returned is not None:
            self.returned.append(seq)

    def _gone(self, positions: Iterable[int]) -> None:
        """These records end, and with them whatever was of them (queues 2)."""
        job_rows = self._index.job_rows
        assert job_rows is not None
        for at in positions:
            row = job_rows[at]
            if row:
                self._put(row, _READY)
                self.counts[_READY] -= 1
                self.rows.free(row)
                job_rows[at] = 0

    def _put(self, row: int, state: int) -> None:
        """A job changes its state; its key is told, and who asks for ends of leases."""
        rows, counts = self.rows, self.counts
        before = rows.state[row]
        if self.ended is not None and before == _IN_FLIGHT != state:
            self.ended.append(rows.seqs[row])
        rows.state[row] = state
        counts[before] -= 1
        counts[state] += 1
        key_ids = self._index.key_ids
        if key_ids is not None and before != state:
            key = key_ids[self._index.find(rows.seqs[row])]
            if key:
                self._put_key(key, rows.deliveries[row], before, state)

    def _put_key(self, key: int, deliveries: int, before: int, state: int) -> None:
        for held, of_state in ((self.key_leases, _IN_FLIGHT), (self.key_rests, _DELAYED)):
            if of_state == _DELAYED and not deliveries:
                continue  # its producer delayed it, which holds nobody back
            if state == of_state:
                held[key] = held.get(key, 0) + 1
            elif before == of_state:
                held[key] -= 1
                if not held[key]:
                    del held[key]
                if self.freed is not None:
                    self.freed.append(key)
