"""The order in which ready jobs are handed out (queues 3): priority, then reclaimed before fresh, then lower seq; the
longest-waiting starved ones take their share; within a key, seq decides.

Most jobs come in order and leave in order, so they are a line of seqs a priority. Those that come back, or were
delayed, are in heaps. An entry may outlive what it says: it counts only if the job is ready when its turn comes.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Final

from topics.log.index import IS_LIVE
from topics.log.jobs.rows import JobState
from topics.log.topic import Topic

_PRIORITIES: Final = range(9, -1, -1)
_READY: Final = int(JobState.READY)
_SEQ_BITS: Final = 64
_SEQ_MASK: Final = (1 << _SEQ_BITS) - 1
_COMPACT_MIN: Final = 4096
_SHARE_OF: Final = 100


class _Line:
    """Seqs that ascend, taken from the front."""

    __slots__ = ("at", "seqs")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.at = 0

    def take(self, count: int) -> Sequence[int]:
        taken = self.seqs[self.at : self.at + count]
        self.at += len(taken)
        if self.at > _COMPACT_MIN and self.at * 2 > len(self.seqs):
            del self.seqs[: self.at]
            self.at = 0
        return taken


class ReadyOrder:
    """Made of the topic as it is; from then on it follows what comes and what comes back. `busy`: seqs that are
    promised to somebody and not yet his, and those that are being settled. `exhausted`: ready jobs that had all
    their deliveries.
    """

    __slots__ = (
        "_back", "_busy", "_credit", "_index", "_jobs", "_key_cap", "_key_lines", "_late", "_lines", "_offered",
        "_offered_keys", "_promised", "_promised_keys", "_seen_seq", "_starvation_ms", "_starvation_share", "_waits",
        "deliveries_max", "exhausted",
    )  # fmt: skip

    def __init__(self, topic: Topic, busy: set[int]) -> None:
        assert topic.jobs is not None
        config = topic.config
        self._index, self._jobs, self._busy = topic.index, topic.jobs, busy
        self._starvation_ms, self._starvation_share = config.starvation_ms, config.starvation_share
        self._key_cap = config.max_in_flight_per_key
        self._seen_seq = topic.earliest_seq - 1
        self._lines = [_Line() for _ in _PRIORITIES]
        self._late: list[list[int]] = [[] for _ in _PRIORITIES]  # never handed out, and not in their line
        self._back: list[list[int]] = [[] for _ in _PRIORITIES]  # handed out before
        self._waits: list[int] = []  # (ready since, seq) in one number, of what is in no line
        self._credit = 0
        self._key_lines: dict[int, list[int]] = {}  # ready seqs of each key, a heap
        self._offered: dict[int, int] = {}  # of each key the one that is in a heap above
        self._offered_keys: dict[int, int] = {}  # and the other way round
        self._promised: dict[int, int] = {}  # of each key how many are busy
        self._promised_keys: dict[int, int] = {}  # the key of each of these
        has_letters = config.dead_letter not in (None, topic.name)  # an earlier build took its own name
        self.deliveries_max = config.max_deliveries if has_letters else 0
        self.exhausted: list[int] = []  # they have had that many
        self._jobs.freed = []
        self._jobs.returned = [
            seq
            for row in self._jobs.rows.held()
            if self._jobs.rows.state[row] == _READY and (seq := self._jobs.rows.seqs[row]) not in busy
        ]

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
            self.put(back)
        if jobs.freed:
            freed, jobs.freed = jobs.freed, []
            for key in dict.fromkeys(freed) if self._key_cap else ():
                self._offer(key)

    def put(self, seqs: Iterable[int]) -> None:
        """These are ready, and in no line."""
        jobs = self._jobs
        for seq in seqs:
            if self._is_ready(seq):
                key, row = self._key(seq), jobs.row(seq)
                if row and self.deliveries_max and jobs.rows.deliveries[row] >= self.deliveries_max:
                    self.exhausted.append(seq)
                elif key:
                    heapq.heappush(self._key_lines.setdefault(key, []), seq)
                    self._offer(key)
                else:
                    self._push(seq)

    def take(self, count: int, now_ms: int) -> list[int]:
        """The next jobs, at most so many. They are busy from now on."""
        taken: list[int] = []
        while len(taken) < count:
            before_starved = -(-(_SHARE_OF - self._credit) // self._starvation_share) - 1
            if before_starved <= 0:
                seq = self._longest_waiting(now_ms)
                if seq is not None:
                    self._credit += self._starvation_share - _SHARE_OF
                    self._promise(seq)
                    taken.append(seq)
                    continue
                before_starved = _SHARE_OF
            found = self._best(min(count - len(taken), before_starved))
            if not found:
                break
            self._credit = min(self._credit + len(found) * self._starvation_share, _SHARE_OF)
            taken += found
        return taken

    def peek(self, count: int) -> list[int]:
        """The next jobs, without taking them, and without a share for the starved."""
        found: list[int] = []
        while len(found) < count and (more := self._best(count - len(found))):
            found += more
        self.give_back(found)
        return found

    def give_back(self, seqs: Iterable[int]) -> None:
        """Nobody gets these after all."""
        for seq in seqs:
            self.kept(seq)
            self.put((seq,))

    def kept(self, seq: int) -> None:
        """A promise has ended: whoever got the job has it, or it is gone."""
        self._busy.discard(seq)
        key = self._promised_keys.pop(seq, 0)
        if key:
            self._promised[key] -= 1
            if not self._promised[key]:
                del self._promised[key]
            assert self._jobs.freed is not None
            self._jobs.freed.append(key)

    # Inside.

    def _take_in(self) -> None:
        index = self._index
        start, stop = index.position(self._seen_seq + 1), index.stop
        self._seen_seq = index.head_seq
        assert index.job_rows is not None
        fresh = [not row for row in index.job_rows[start:stop]]
        live = bytes(index.flags[start:stop]).translate(IS_LIVE)
        wanted = bytes(map(int.__and__, live, fresh))
        seqs = index.seqs(start, stop)
        if self._key_cap and index.key_ids is not None:
            keyed = index.key_ids[start:stop]
            self.put(compress(seqs, map(int.__and__, wanted, map(bool, keyed))))
            wanted = bytes(map(int.__and__, wanted, (not key for key in keyed)))
        if index.jobs is None:
            self._lines[0].seqs.extend(array("Q", compress(seqs, wanted)))
            return
        highs = index.jobs[start:stop].tobytes()[7::8]  # the byte of `pack_job` that has the priority
        for high in sorted(set(compress(highs, wanted))):
            of_high = bytes(map(int.__and__, wanted, (one == high for one in highs)))
            line = self._lines[min(max(high - 1, 0), len(_PRIORITIES) - 1)]
            line.seqs.extend(array("Q", compress(seqs, of_high)))

    def _push(self, seq: int) -> None:
        jobs = self._jobs
        row, priority = jobs.row(seq), min(jobs.priority(seq), len(_PRIORITIES) - 1)
        heapq.heappush((self._back if row and jobs.rows.deliveries[row] else self._late)[priority], seq)
        heapq.heappush(self._waits, jobs.waiting_since(seq) << _SEQ_BITS | seq)

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
        if self._key_cap == 1:
            taken += jobs.key_rests.get(key, 0)
        before = self._offered.get(key)
        if taken < self._key_cap and before != line[0]:
            if before is not None:
                del self._offered_keys[before]
            self._offered[key], self._offered_keys[line[0]] = line[0], key
            self._push(line[0])

    def _best(self, count: int) -> list[int]:
        """Some of the next jobs, at most so many; none only if there is none."""
        for priority in _PRIORITIES:
            back, late, line = self._back[priority], self._late[priority], self._lines[priority]
            while back:
                seq = heapq.heappop(back)
                if self._is_due(seq):
                    self._promise(seq)
                    return [seq]
                self._forget(seq)
            while late and not self._is_due(late[0]):
                self._forget(heapq.heappop(late))
            while line.at < len(line.seqs):
                if late and late[0] < line.seqs[line.at]:
                    break
                taken = line.take(1 if late else count)
                found = [seq for seq in taken if self._is_ready(seq)]
                if found:
                    self._busy.update(found)
                    return found
            if late:
                seq = heapq.heappop(late)
                self._promise(seq)
                return [seq]
        return []

    def _longest_waiting(self, now_ms: int) -> int | None:
        """The starved job that has waited longest; None if there is none, or it is a line's turn anyway."""
        index, waits = self._index, self._waits
        found, since = None, max(now_ms - self._starvation_ms, 0)
        while waits:
            seq = waits[0] & _SEQ_MASK
            if self._is_due(seq) and self._jobs.waiting_since(seq) == waits[0] >> _SEQ_BITS:
                if waits[0] >> _SEQ_BITS < since:
                    found, since = seq, waits[0] >> _SEQ_BITS
                break
            heapq.heappop(waits)
        of_line = None
        for line in self._lines:
            while line.at < len(line.seqs) and not self._is_ready(line.seqs[line.at]):
                line.take(1)
            if line.at < len(line.seqs):
                seq = line.seqs[line.at]
                ts = index.ts[index.position(seq)]
                if ts < since:
                    found, since, of_line = seq, ts, line
        if of_line is not None:
            of_line.take(1)
        return found

    def _is_ready(self, seq: int) -> bool:
        at = self._index.find(seq)
        if at < 0 or seq in self._busy:
            return False
        row = self._index.job_rows[at]  # type: ignore[index]  # a queue's index has it
        return not row or self._jobs.rows.state[row] == _READY

    def _is_due(self, seq: int) -> bool:
        """Ready, and if its key is bounded the one of it whose turn it is."""
        if not self._is_ready(seq):
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
        """It is in no heap any more. If it was the one of its key, another one may be."""
        key = self._offered_keys.pop(seq, 0)
        if key:
            del self._offered[key]
            self._offer(key)
