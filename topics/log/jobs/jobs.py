"""The projection of a leases log: who holds which job until when, what waits for its time, what is paused (queues 2).

Events are folded into rows, which are a function of the log. What time makes of them is read from a row and the instant
it is looked at, and `advance` only keeps the counts and lists of that moment: it may be called at any time and as often
as one likes, and no frame depends on whether it was. A replay has no need of it.

A job without a row is ready and was never leased.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, repeat
from typing import Final

from topics.codec.log.leases import NOBODY, Claimed, Extended, Grant, Released
from topics.codec.log.run import unpack_job
from topics.kernel.config import RetryBackoff, TopicConfig
from topics.kernel.deadlines import NEVER, Deadlines
from topics.kernel.grouped import Group, fill, grouped, scatter, values_at
from topics.kernel.ids import Lease
from topics.log.index import LIVE, Index
from topics.log.jobs.bucket import Bucket
from topics.log.jobs.image import JobsImage
from topics.log.jobs.rows import EXPIRED, NONCE_SIZE, TOGETHER_MIN
from topics.log.jobs.states import States
from topics.log.jobs.transitions import NEXT, REFUSED, Change, JobState

_READY, _DELAYED, _IN_FLIGHT, _MOVING, _ = (int(state) for state in JobState)
_STALE_DEADLINES_MIN: Final = 4096


class Jobs(States):
    """The jobs of one queue. `returned`: those that came back to ready since somebody has last taken the list, which is
    who hands jobs out, and None while nobody does. `extending`: by jobs of which an extension is on its way; time ends
    none of their leases. `expired`: how many leases it has ended, as far as `advance` has seen it.
    """

    __slots__ = ("bucket", "dead_lettered", "due", "expired", "extending", "now_ms", "paused", "returned")

    def __init__(self, index: Index) -> None:
        super().__init__(index)
        assert index.of_queue
        index.on_killed = self._gone
        self.due = Deadlines()  # of deadlines, and of the last ms of rests
        self.now_ms = 0
        self.paused = False
        self.dead_lettered = 0
        self.bucket = Bucket()
        self.returned: list[int] | None = None
        self.extending: Mapping[int, Sequence[int]] = {}
        self.expired = 0

    # What is known.

    def row(self, seq: int) -> int:
        """The row of a live job; 0 if it has none, or is not there."""
        at = self.index.find(seq)
        return self.index.job_rows[at] if at >= 0 else 0  # type: ignore[index]  # a queue's index has it

    def rows_of(self, seqs: Sequence[int]) -> Sequence[int]:
        """As `row`, of each of these."""
        return self.rows_at(self.index.find_all(seqs))

    def rows_at(self, positions: Group) -> Sequence[int]:
        """As `row`, of what `Index.find_all` has found."""
        job_rows = self.index.job_rows
        assert job_rows is not None
        if isinstance(positions, range):
            return values_at(job_rows, positions)
        return [job_rows[at] if at >= 0 else 0 for at in positions]

    def state(self, seq: int) -> JobState:
        """Of a live job, as of the last `advance`."""
        return JobState(self.rows.state[self.row(seq)])

    def priority(self, seq: int) -> int:
        index = self.index
        return 0 if index.jobs is None else unpack_job(index.jobs[index.position(seq)])[0] or 0

    def priorities(self, seqs: Iterable[int]) -> Iterable[int]:
        """As `priority`, of each of these."""
        return repeat(0) if self.index.jobs is None else map(self.priority, seqs)

    def waiting_since(self, seq: int) -> int:
        """From when on a ready job has been ready."""
        row, index = self.row(seq), self.index
        if row:
            return self.rows.ready_at(row)
        at = index.position(seq)
        not_before = 0 if index.jobs is None else unpack_job(index.jobs[at])[1] or 0
        return max(index.ts[at], not_before)

    def reason(self, seq: int) -> bytes:
        """Why its last delivery failed: what the worker said, or that the lease ran out; empty if none has."""
        row, rows = self.row(seq), self.rows
        if not row:
            return b""
        is_over = rows.leased[row] and rows.state[row] != _IN_FLIGHT
        return EXPIRED if is_over else rows.reasons.get(row, b"")

    def is_leased(self, seq: int, lease: Lease) -> bool:
        """True if that lease of the job lasts, as of the last `advance`."""
        rows, row = self.rows, self.row(seq)
        if not row or rows.state[row] != _IN_FLIGHT or rows.counters[row] != lease[1]:
            return False
        return rows.owner(row)[0] == lease[0].to_bytes(NONCE_SIZE, "big")

    def next_due_ms(self) -> int | None:
        """The first instant at which time alone changes a state; None if there is none. May be early, never late."""
        first_ms = self.due.first_ms
        return None if first_ms == NEVER else first_ms + 1

    # Folding: each is a function of the log, and an event of a job that is not there does nothing.

    def arrive(self, seq_start: int, jobs: Sequence[int], ts: int) -> None:
        """Records came: those that must not be claimed yet rest. `jobs` as in `Run.jobs`."""
        self._delay(enumerate(jobs, seq_start), ts)

    def claimed(self, event: Claimed, ts: int, config: TopicConfig, *, deliveries_max: int = 0) -> None:
        """`deliveries_max`: behind the last of so many a job does not rest, for it is moved then; 0: it never is."""
        first = stop = 0
        grants: list[Grant] = []
        if len(event.seqs) == 1:
            self._lease_one(event, config.retry_backoff, deliveries_max)
        for grant in event.grants if len(event.seqs) > 1 else ():
            grants.append(grant)
            stop += grant.jobs
            if stop - first >= TOGETHER_MIN or stop == len(event.seqs):
                self._lease(event, first, stop, config.retry_backoff, deliveries_max, grants)
                first, grants = stop, []
        if config.rate_limit is not None:
            self.bucket.spend(len(event.seqs), ts, config.rate_limit)

    def extended(self, event: Extended) -> None:
        rows = [row for row in self._leased_rows(event.seqs, event.leases) if row]
        fill(self.rows.until, rows, event.deadline)
        self.change_all(rows, Change.EXTENDED)
        self._look_behind(rows, event.deadline)

    def released(self, event: Released) -> None:
        rows = self._leased_rows(event.seqs, event.leases)
        for row, ready_at in zip(rows, event.ready_at, strict=True):
            if row:
                self._end_lease(row, ready_at, event.reason if event.node != NOBODY else None)

    def released_all(self, reason: bytes, ts: int) -> None:
        rows = self.rows
        for row in rows.by_seq(rows.leased):
            if rows.until[row] >= ts:
                self._end_lease(row, ts, reason)

    def moving(self, seqs: Sequence[int]) -> None:
        """They are going elsewhere, and nobody's until then."""
        rows = [row for row in self.open_to(Change.LEFT, self._rows_of(seqs)) if row]
        fill(self.rows.leased, rows, 0)
        # Of a job that was only delayed time has taken the row, or it has not: a replay reads no clock (I-09).
        fill(self.rows.until, [row for row in rows if not self.rows.deliveries[row]], 0)
        self.change_all(rows, Change.LEFT)

    def ready_below(self, upto: int, ts: int) -> list[int]:
        """The live jobs up to `upto` that are nobody's at that instant: ready or resting."""
        index, rows = self.index, self.rows
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
        if now_ms > self.now_ms:
            self.now_ms = now_ms
        while self.due.first_ms < now_ms:
            rows = self.rows
            seqs = self.due.take_due(now_ms)
            self._let_go(rows.that_came(self.rows_of(seqs), now_ms))
            for row in dict.fromkeys(self.rows_of(seqs)):
                ends = rows.state[row] == _IN_FLIGHT and rows.until[row] < now_ms
                ends = ends and rows.seqs[row] not in self.extending
                self.expired += ends
                if ends or (rows.state[row] == _DELAYED and rows.ready_at(row) <= now_ms):
                    self._rest(row, rows.ready_at(row))

    # Keeping.

    def image(self) -> JobsImage:
        """What the log says; a job that only waits for its time says so by its record."""
        bucket, rows = self.bucket, self.rows.images()
        return JobsImage(self.paused, self.dead_lettered, bucket.tokens, bucket.tokens_ms, rows)

    def restore(self, image: JobsImage | None) -> None:
        """Into an index that has all its records."""
        index, rows = self.index, self.rows
        index.job_rows = array("I", bytes(4 * len(index.flags)))
        if image is not None:
            self.paused, self.dead_lettered = image.paused, image.dead_lettered
            self.bucket = Bucket(image.tokens, image.tokens_ms)
        for kept in image.rows if image is not None else ():
            row = self._row_of(kept.seq)
            if not row:
                continue  # its record is damaged and gone
            rows.restore(row, kept)
            if kept.moving:
                self.change(row, Change.LEFT)
            elif kept.leased:
                self.change(row, Change.CLAIMED)
                self._look_at(row, kept.until)
            else:
                self._rest(row, kept.until)
        if index.jobs is None:
            return
        with_job = compress(range(index.start, index.stop), index.jobs[index.start :])
        new = (at for at in with_job if index.flags[at] & LIVE and not index.job_rows[at])
        self._delay(((index.seq_at(at), index.jobs[at]) for at in new), 0)

    # Inside.

    def _delay(self, jobs: Iterable[tuple[int, int]], ts: int) -> None:
        """Jobs that nobody ever had, as (seq, job), rest until they may be claimed if that is behind `ts`."""
        together: dict[int, list[int]] = {}
        for seq, job in jobs:
            if job and (not_before := unpack_job(job)[1] or 0) > max(ts, self.now_ms):
                together.setdefault(not_before, []).append(seq)
        for not_before, seqs in together.items():
            rows = grouped(self._rows_of(seqs))
            fill(self.rows.until, rows, not_before)
            self.change_all(rows, Change.RESTED)
            self._look_behind(rows, not_before - 1)

    def _let_go(self, rows: Sequence[int]) -> None:
        """These, which were never delivered, rest no longer: each is as if it had just come."""
        seqs = values_at(self.rows.seqs, group := grouped(rows))
        self.change_all(group, Change.RETURNED)
        assert self.index.job_rows is not None
        fill(self.index.job_rows, self.index.find_all(seqs), 0)
        self.counts[_READY] -= len(rows)
        self.rows.free(group)
        if self.returned is not None:
            self.returned += seqs

    def _rows_of(self, seqs: Sequence[int]) -> Sequence[int]:
        """The row of each of these jobs, made if it has none; 0 if there is no such job."""
        job_rows, positions = self.index.job_rows, self.index.find_all(seqs)
        assert job_rows is not None
        found = self.rows_at(positions)
        if 0 not in found:
            return found
        fresh: Group = positions
        if -1 in positions or any(found):
            is_fresh = [at >= 0 and not row for at, row in zip(positions, found, strict=True)]
            seqs, fresh = list(compress(seqs, is_fresh)), grouped(list(compress(positions, is_fresh)))
        if seqs:
            made = self.rows.new(seqs)
            scatter(job_rows, fresh, array("I", made))
            self.counts[_READY] += len(made)
            if len(made) == len(found):
                return made
        return self.rows_at(positions)

    def _row_of(self, seq: int) -> int:
        """As `_rows_of`, of one job."""
        at, job_rows = self.index.find(seq), self.index.job_rows
        assert job_rows is not None
        if at < 0:
            return 0
        if not job_rows[at]:
            job_rows[at] = self.rows.add(seq)
            self.counts[_READY] += 1
        return job_rows[at]

    def _leased_rows(self, seqs: Sequence[int], leases: Sequence[int]) -> list[int]:
        """The row of each job of which the log says that this lease is the last, and not ended; else 0."""
        leased, counters = self.rows.leased, self.rows.counters
        return [
            row if leased[row] and counters[row] == counter else 0
            for row, counter in zip(self.rows_of(seqs), leases, strict=True)
        ]

    def _lease(
        self, event: Claimed, first: int, stop: int, backoff: RetryBackoff | None, deliveries_max: int,
        grants: Sequence[Grant],
    ) -> None:  # fmt: skip
        """The leases [first, stop) of an event, which are those of some grants."""
        held, found = self.rows, self.open_to(Change.CLAIMED, self._rows_of(event.seqs[first:stop]))
        counters = array("Q", range(event.first_lease + first, event.first_lease + stop))
        if 0 in found:  # some have gone, or are going
            counters = array("Q", compress(counters, found))
        rows = grouped([row for row in found if row] if 0 in found else found)
        if not rows:
            return
        held.drop_owners(rows)
        self.change_all(rows, Change.CLAIMED)
        held.lease(rows, counters, backoff, deliveries_max)
        first = 0
        for node, deadline, count in grants:
            its = found[first : first + count]
            if rows := grouped([row for row in its if row] if 0 in its else its):
                held.own(rows, event.nonce.to_bytes(NONCE_SIZE, "big"), node)
                fill(held.until, rows, deadline)
                self._look_behind(rows, deadline)
            first += count

    def _lease_one(self, event: Claimed, backoff: RetryBackoff | None, deliveries_max: int) -> None:
        """As `_lease`, of an event with one lease: most workers take one job at a time, and columns are dear."""
        assert len(event.seqs) == 1
        rows, row = self.rows, self._row_of(event.seqs[0])
        if not row or NEXT[Change.CLAIMED][rows.state[row]] == REFUSED:
            return
        ((node, deadline, _),) = event.grants
        rows.drop_owner(row)
        self.change(row, Change.CLAIMED)
        rows.lease_one(row, event.first_lease, backoff, deliveries_max)
        rows.own_one(row, event.nonce.to_bytes(NONCE_SIZE, "big"), node)
        rows.until[row] = deadline
        self._look_at(row, deadline)

    def _end_lease(self, row: int, ready_at: int, reason: bytes | None) -> None:
        """`reason`: None if nobody was given the job, which then is as it was before."""
        rows = self.rows
        rows.drop_owner(row)
        rows.leased[row] = rows.counters[row] = rows.backoffs[row] = 0
        rows.until[row] = ready_at
        if reason is None:
            self.change(row, Change.RETURNED)  # its key has counted the delivery
            rows.deliveries[row] -= rows.deliveries[row] > 0
        elif reason:
            rows.reasons[row] = reason
        else:
            rows.reasons.pop(row, None)
        self._rest(row, ready_at)

    def _rest(self, row: int, ready_at: int) -> None:
        """Nobody has the job, and it is ready from that instant on: now, or when `advance` comes to it."""
        rows, seq = self.rows, self.rows.seqs[row]
        if ready_at > self.now_ms:
            if not rows.leased[row]:
                rows.until[row] = ready_at
            self.change(row, Change.RESTED)
            self._look_at(row, ready_at - 1)
            return
        if not rows.deliveries[row]:
            self._let_go([row])
            return
        self.change(row, Change.RETURNED)
        if self.returned is not None:
            self.returned.append(seq)

    def _look_behind(self, rows: Group, instant: int) -> None:
        """`advance` is to come to these when that instant has passed: what has changed by then it passes over."""
        self._drop_stale()
        self.due.add_all(instant, values_at(self.rows.seqs, rows))

    def _look_at(self, row: int, instant: int) -> None:
        """As `_look_behind`, of one."""
        self._drop_stale()
        self.due.add(instant, self.rows.seqs[row])

    def _drop_stale(self) -> None:
        if self.due.count > 4 * self.rows.count + _STALE_DEADLINES_MIN:
            self.due = Deadlines()
            for last_ms, seq in self.rows.ends():
                self.due.add(last_ms, seq)

    def _gone(self, positions: Iterable[int]) -> None:
        """These records end, and with them whatever was of them (queues 2)."""
        job_rows, key_ids = self.index.job_rows, self.index.key_ids
        assert job_rows is not None
        places = grouped(list(positions))
        if len(places) == 1:
            self._one_gone(places[0])
            return
        found = [row for row in values_at(job_rows, places) if row]
        if found:
            rows = grouped(found)
            self.change_all(rows, Change.GONE)
            self.rows.free(rows)
            fill(job_rows, places, 0)
        if self.freed is not None and key_ids is not None:  # another one of the key is the next
            self.freed += [key for key in values_at(key_ids, places) if key]

    def _one_gone(self, at: int) -> None:
        """As `_gone`, of the record at one position."""
        job_rows, key_ids = self.index.job_rows, self.index.key_ids
        assert job_rows is not None
        if row := job_rows[at]:
            self.change(row, Change.GONE)
            self.rows.free_one(row)
            job_rows[at] = 0
        if self.freed is not None and key_ids is not None and key_ids[at]:
            self.freed.append(key_ids[at])
