"""The order in which ready jobs are handed out (queues 3): priority, then reclaimed before fresh, then lower seq; the
longest-waiting starved ones take their share; within a key, seq decides.

Most jobs come in order and leave in order, so they are a line of seqs a priority. Those that come back, or were
delayed, are in heaps. An entry may outlive what it says: it counts only if the job is ready when its turn comes.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, islice
from operator import and_, gt, not_
from typing import Final

from topics.codec.log.run import unpack_job
from topics.engine.queue.rank import PRIORITY_MAX, Ranks
from topics.kernel.grouped import values_at
from topics.log.index import IS_LIVE, LIVE, TIMED
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic

_READY: Final = int(JobState.READY)
_SEQ_BITS: Final = 64
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1
_STALE_MIN: Final = 4096
_SHARE_OF: Final = 100
_MANY: Final = 100


class ReadyOrder:
    """Made of the topic as it is; from then on it follows what comes and what comes back. `busy`: seqs that are
    promised to somebody and not yet his, and those that are being settled; `settling`: the latter by key. `exhausted`:
    ready jobs that had all their deliveries. `credit`: what the starved have earned, in hundredths of a job.

    The starved: each job that is handed out earns them `starvation_share` hundredths of one. Once that is a whole one,
    the next is theirs if there is any; what nobody is there for is not saved beyond one.
    """

    __slots__ = (
        "_busy", "_calm_until", "_entries", "_entries_max", "_index", "_jobs", "_key_cap", "_key_lines",
        "_offered", "_offered_keys", "_promised", "_promised_keys", "_ranks", "_seen_seq", "_settling",
        "_starvation_ms", "_starvation_share", "_starved", "_ttl_ms", "_waits", "credit", "deliveries_max", "exhausted",
    )  # fmt: skip

    def __init__(self, topic: Topic, busy: set[int], settling: Mapping[int, Iterable[int]]) -> None:
        assert topic.jobs is not None
        config = topic.config
        self._index, self._jobs = topic.index, topic.jobs
        self._busy, self._settling = busy, settling
        self._starvation_ms, self._starvation_share = config.starvation_ms, config.starvation_share
        self._key_cap, self._ttl_ms = config.max_in_flight_per_key, config.ttl_ms
        self._seen_seq = topic.earliest_seq - 1
        self._ranks = Ranks()
        self._waits: list[int] = []  # (ready since, seq) in one number, of what is in no line
        self._entries, self._entries_max = 0, _STALE_MIN  # of the heaps above
        self.credit = self._calm_until = 0  # nobody is starved before that
        self._starved: list[int] = []  # which of the jobs that were taken last were the starved ones' turn
        self._key_lines: dict[int, list[int]] = {}  # ready seqs of each key, a heap
        self._offered: dict[int, int] = {}  # of each key the one that is in a heap above
        self._offered_keys: dict[int, int] = {}  # and the other way round
        self._promised: dict[int, int] = {}  # of each key how many are busy
        self._promised_keys: dict[int, int] = {}  # the key of each of these
        self.deliveries_max = config.deliveries_max_of(topic.name)
        self.exhausted: list[int] = []  # they have had that many
        self._jobs.freed = []
        self._jobs.returned = self._jobs.rows.jobs_in(JobState.READY)

    # What changes.

    def refresh(self) -> None:
        """Take in what came, what came back, and keys that have room again."""
        jobs = self._jobs
        assert jobs.returned is not None
        assert jobs.freed is not None
        if self._seen_seq < self._index.head_seq:
            self._take_in()
        if jobs.returned:
            back, jobs.returned = jobs.returned, []
            self._put(back)
        if jobs.freed:
            freed, jobs.freed = jobs.freed, []
            for key in dict.fromkeys(freed) if self._key_cap else ():
                self._offer(key)
        if self._entries > self._entries_max:
            self._drop_stale()

    def take(self, count: int, now_ms: int) -> list[int]:
        """The next jobs, at most so many. They are busy from now on."""
        taken: list[int] = []
        self._starved = []
        share, credit = self._starvation_share, self.credit
        while len(taken) < count:
            before_starved = -(-(_SHARE_OF - credit) // share) - 1
            if before_starved <= 0:
                seq = self._longest_waiting(now_ms)
                if seq is not None:
                    credit += share - _SHARE_OF
                    self._promise(seq)
                    self._starved.append(len(taken))
                    taken.append(seq)
                    continue
                before_starved = 1 if self._key_cap else _SHARE_OF  # whose turn it is within a key, changes
            found = self._best(min(count - len(taken), before_starved))
            if not found:
                break
            credit = min(credit + len(found) * share, _SHARE_OF)
            taken += found
        self.credit = credit
        return taken

    def hand_out(self, taken: Sequence[int], count: int, credit: int) -> None:
        """Only the first so many of what was taken are handed out. `credit`: before they were taken."""
        self._give_back(taken[count:])
        for i in range(count):
            credit += self._starvation_share
            credit = credit - _SHARE_OF if i in self._starved else min(credit, _SHARE_OF)
        self.credit = credit

    def peek(self, count: int) -> list[int]:
        """The next jobs, without taking them, and without a share for the starved; behind them ready ones whose turn
        within their key is still to come, by seq.
        """
        found: list[int] = []
        while len(found) < count and (more := self._best(count - len(found))):
            found += more
        behind = list(islice(self._behind_others(), count - len(found)))
        self._give_back(found)
        return found + behind

    def kept(self, seqs: Iterable[int]) -> None:
        """Promises have ended: whoever got these jobs has them, or they are gone."""
        self._busy.difference_update(seqs)
        for seq in seqs if self._promised_keys else ():
            key = self._promised_keys.pop(seq, 0)
            if key:
                self._promised[key] -= 1
                if not self._promised[key]:
                    del self._promised[key]
                assert self._jobs.freed is not None
                self._jobs.freed.append(key)

    # Inside.

    def _take_in(self) -> None:
        """What came since the last time: into the lines, but for what is keyed or was delayed, or is gone already."""
        index = self._index
        start, stop = index.position(self._seen_seq + 1), index.stop
        self._seen_seq = index.head_seq
        assert index.job_rows is not None
        if start < stop:
            self._calm_until = min(self._calm_until, index.ts[start] + self._starvation_ms)
        if stop - start == 1 and index.jobs is None and (not self._key_cap or index.key_ids is None):
            if index.flags[start] & LIVE and not index.job_rows[start]:
                self._ranks.of(0).line.append(index.seq_at(start))
            return
        rows, seqs = index.job_rows[start:stop], index.seqs(start, stop)
        wanted = bytes(index.flags[start:stop]).translate(IS_LIVE)
        if rows.tobytes().strip(b"\0"):
            wanted = bytes(map(and_, wanted, map(not_, rows)))
        if self._key_cap and index.key_ids is not None:
            keys = index.key_ids[start:stop]
            keyed = bytes(map(and_, wanted, map(bool, keys)))
            self._put_keyed(compress(seqs, keyed), compress(keys, keyed))
            wanted = bytes(map(gt, wanted, keyed))
        jobs = index.jobs[start:stop] if index.jobs is not None else None
        if 0 in wanted:  # of a million that rest, none is looked at one by one
            seqs = array("Q", compress(seqs, wanted))
            jobs = array("Q", compress(jobs, wanted)) if jobs is not None else None
        if jobs is None:
            self._ranks.of(0).line.extend(seqs)
            return
        late = {job for job in set(jobs) if unpack_job(job)[1] is not None}
        if late:
            delayed = bytes(map(late.__contains__, jobs))
            self._put(compress(seqs, delayed))
            at_once = bytes(map(not_, delayed))
            seqs, jobs = array("Q", compress(seqs, at_once)), array("Q", compress(jobs, at_once))
        self._ranks.add(seqs, jobs)

    def _put_keyed(self, seqs: Iterable[int], keys: Iterable[int]) -> None:
        """These, of bounded keys, came and never were anything else."""
        of_keys = list(keys)
        for seq, key in zip(seqs, of_keys, strict=True):
            heapq.heappush(self._key_lines.setdefault(key, []), seq)
        for key in dict.fromkeys(of_keys):
            self._offer(key)

    def _behind_others(self) -> Iterator[int]:
        """Ready jobs of bounded keys that are not offered, by seq; those that `_best` has found are not ready."""
        index, jobs = self._index, self._jobs
        keys = index.key_ids[index.start :] if index.key_ids is not None and self._key_lines else ()
        for at in compress(range(index.start, index.stop), keys):
            seq = index.seq_at(at)
            if self._is_ready(seq) and not self._is_exhausted(jobs.row(seq)):
                yield seq

    def _is_exhausted(self, row: int) -> bool:
        """It has had all its deliveries."""
        return bool(row and self.deliveries_max) and self._jobs.rows.deliveries[row] >= self.deliveries_max

    def _put(self, seqs: Iterable[int]) -> None:
        """These are ready, and in no line."""
        jobs, seqs = self._jobs, list(seqs)
        for seq in self._put_late(seqs):
            if self._is_ready(seq):
                key, row = self._key(seq), jobs.row(seq)
                if self._is_exhausted(row):
                    self.exhausted.append(seq)
                elif key:
                    heapq.heappush(self._key_lines.setdefault(key, []), seq)
                    self._offer(key)
                else:
                    self._push(seq)

    def _put_late(self, seqs: Sequence[int]) -> Iterable[int]:
        """If there are many, those that were never handed out, together. Returns the others."""
        if self._key_cap or len(seqs) < max(_MANY, len(self._waits) >> 4):  # all heaps are made anew
            return seqs
        index, late = self._index, array("Q", self._fresh(seqs))
        places = index.find_all(late)
        given = array("Q", values_at(index.jobs, places) if index.jobs is not None else bytes(8 * len(late)))
        self._ranks.add_late(late, given)
        due = {job: unpack_job(job)[1] or 0 for job in set(given)}
        since = [max(ts, due[job]) for ts, job in zip(values_at(index.ts, places), given, strict=True)]
        self._waits += [ms << _SEQ_BITS | seq for ms, seq in zip(since, late, strict=True)]
        heapq.heapify(self._waits)
        self._entries += len(late)
        self._entries_max = max(self._entries_max, 2 * len(late) + _STALE_MIN)
        self._calm_until = min(self._calm_until, min(since, default=self._calm_until) + self._starvation_ms)
        put = set(late)
        return [seq for seq in seqs if seq not in put]

    def _give_back(self, seqs: Sequence[int]) -> None:
        """Nobody gets these after all."""
        self.kept(seqs)
        self._put(seqs)

    def _push(self, seq: int) -> None:
        jobs = self._jobs
        self._entries += 1
        row, rank = jobs.row(seq), self._ranks.of(min(jobs.priority(seq), PRIORITY_MAX))
        heapq.heappush(rank.back if row and jobs.rows.deliveries[row] else rank.late, seq)
        since = jobs.waiting_since(seq)
        heapq.heappush(self._waits, since << _SEQ_BITS | seq)
        self._calm_until = min(self._calm_until, since + self._starvation_ms)

    def _drop_stale(self) -> None:
        """A job that comes back again and again leaves an entry each time, behind those that wait longer."""
        ready = [seq for seq in sorted({wait & _SEQ_MASK for wait in self._waits}) if self._is_due(seq)]
        self._waits.clear()
        self._ranks.clear_heaps()
        self._entries, self._entries_max = 0, 2 * len(ready) + _STALE_MIN
        for seq in self._put_late(ready):
            self._push(seq)

    def _offer(self, key: int) -> None:
        """The lowest ready one of the key, if it has room for it."""
        line = self._key_lines.get(key)
        if line is None:
            return
        while line and not self._is_ready(line[0]):
            heapq.heappop(line)
        if not line:
            del self._key_lines[key]
            return
        jobs = self._jobs
        taken = jobs.key_leases.get(key, 0) + self._promised.get(key, 0)
        counted = {JobState.IN_FLIGHT}
        if self._key_cap == 1:
            taken += jobs.key_rests.get(key, 0)
            counted.add(JobState.DELAYED)
        if key in self._settling:  # leases that have lapsed meanwhile
            taken += sum(jobs.state(seq) not in counted for seq in set(self._settling[key]))
        before = self._offered.get(key)
        if taken < self._key_cap and before != line[0]:
            if before is not None:
                del self._offered_keys[before]
            self._offered[key], self._offered_keys[line[0]] = line[0], key
            self._push(line[0])

    def _best(self, count: int) -> Sequence[int]:
        """Some of the next jobs, at most so many; none only if there is none."""
        for rank in self._ranks:
            back, late = rank.back, rank.late
            while back:
                seq = heapq.heappop(back)
                if self._is_due(seq):
                    self._promise(seq)
                    return [seq]
            while late and not self._is_due(late[0]):
                heapq.heappop(late)
            while taken := rank.take(count):
                if found := self._fresh(taken):
                    self._busy.update(found)
                    return found
            if late:
                seq = heapq.heappop(late)
                self._promise(seq)
                return [seq]
        return []

    def _longest_waiting(self, now_ms: int) -> int | None:
        """The starved job that has waited longest, taken from its line if it is in one; None if there is none."""
        if now_ms <= self._calm_until:
            return None
        index, waits, found = self._index, self._waits, None
        starved, first_since = (now_ms - self._starvation_ms, 0), now_ms
        while waits:
            since, seq = waits[0] >> _SEQ_BITS, waits[0] & _SEQ_MASK
            if self._is_due(seq) and self._jobs.waiting_since(seq) == since:
                first_since = since
                if (since, seq) < starved:
                    starved, found = (since, seq), seq
                break
            heapq.heappop(waits)
        of_line = None
        for rank in self._ranks:
            while first := rank.first:
                if self._is_fresh(first):
                    since = index.ts[index.position(first)]
                    first_since = min(first_since, since)
                    if (since, first) < starved:
                        starved, found, of_line = (since, first), first, rank
                    break
                rank.drop_first()
        if of_line is not None:
            of_line.drop_first()
        if found is None:
            self._calm_until = first_since + self._starvation_ms
        return found

    def _is_ready(self, seq: int) -> bool:
        at = self._index.find(seq)
        if at < 0 or seq in self._busy:
            return False
        row = self._index.job_rows[at]  # type: ignore[index]  # a queue's index has it
        return (not row or self._jobs.rows.state[row] == _READY) and not self._is_over(at)

    def _fresh(self, seqs: Sequence[int]) -> list[int]:
        """Those that are ready, and never were anything else: whoever has a row is not a line's any more."""
        if len(seqs) == 1:
            return list(seqs) if self._is_fresh(seqs[0]) else []
        index, found = self._index, list(seqs)
        places = index.find_all(found)
        rows = self._jobs.rows_at(places)
        if any(rows) or -1 in places:
            found = [seq for seq, at, row in zip(found, places, rows, strict=True) if at >= 0 and not row]
        if not self._busy.isdisjoint(found):
            found = [seq for seq in found if seq not in self._busy]
        if self._ttl_ms or index.expires is not None:
            found = [seq for seq in found if not self._is_over(index.find(seq))]
        return found

    def _is_fresh(self, seq: int) -> bool:
        """As `_fresh`, of one."""
        at, job_rows = self._index.find(seq), self._index.job_rows
        assert job_rows is not None
        return at >= 0 and not job_rows[at] and seq not in self._busy and not self._is_over(at)

    def _is_over(self, at: int) -> bool:
        """Its time has passed, and the frame that says so is to come."""
        index, now_ms = self._index, self._jobs.now_ms
        if self._ttl_ms and index.ts[at] + self._ttl_ms < now_ms:
            return True
        return index.expires is not None and bool(index.flags[at] & TIMED) and index.expires[at] < now_ms

    def _is_due(self, seq: int) -> bool:
        """Ready, and if its key is bounded the one of it whose turn it is."""
        if not self._is_ready(seq):
            self._forget(seq)
            return False
        return not self._key(seq) or seq in self._offered_keys

    def _key(self, seq: int) -> int:
        """The key that bounds it; 0 if none does."""
        key_ids = self._index.key_ids
        if not self._key_cap or key_ids is None:
            return 0
        at = self._index.find(seq)
        return key_ids[at] if at >= 0 else 0

    def _promise(self, seq: int) -> None:
        self._busy.add(seq)
        key = self._offered_keys.get(seq, 0)
        if key:
            self._promised[key] = self._promised.get(key, 0) + 1
            self._promised_keys[seq] = key
            self._forget(seq)

    def _forget(self, seq: int) -> None:
        """It is not the one of its key any more; another one may be."""
        key = self._offered_keys.pop(seq, 0)
        if key:
            del self._offered[key]
            self._offer(key)
