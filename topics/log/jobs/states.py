"""The states of jobs: changed by the table of `transitions` and in no other way, counted, and told to who asks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Final

from topics.kernel.grouped import Group, grouped, scatter, values_at
from topics.log.index import Index
from topics.log.jobs.rows import Rows
from topics.log.jobs.transitions import NEXT, REFUSED, Change, JobState

_DELAYED: Final = int(JobState.DELAYED)
_IN_FLIGHT: Final = int(JobState.IN_FLIGHT)
_GONE: Final = int(JobState.GONE)
_LEASED_ON: Final = (Change.CLAIMED, Change.EXTENDED)


class States:
    """Those of the jobs that have a row. `freed`: the keys of which a lease or a rest has ended, for who hands jobs
    out, and None while nobody does. `ended`: the jobs of which a lease has ended, None while nobody asks.
    """

    __slots__ = ("counts", "ended", "freed", "index", "key_leases", "key_rests", "rows")

    def __init__(self, index: Index) -> None:
        self.index = index
        self.rows = Rows()
        self.counts = [0, 0, 0, 0]  # rows by state
        self.key_leases: dict[int, int] = {}  # by the number of a key
        self.key_rests: dict[int, int] = {}  # jobs of it that wait for their retry
        self.freed: list[int] | None = None
        self.ended: list[int] | None = None

    def open_to(self, change: Change, rows: Sequence[int]) -> Sequence[int]:
        """The same, 0 for those to which it does nothing."""
        after = bytes(values_at(self.rows.state, grouped(rows))).translate(NEXT[change])
        if REFUSED not in after:
            return rows
        return [row if state != REFUSED else 0 for row, state in zip(rows, after, strict=True)]

    def change(self, row: int, change: Change) -> None:
        """A job changes its state; its key is told, and who asks for ends of leases."""
        rows, key_ids, before = self.rows, self.index.key_ids, self.rows.state[row]
        after = NEXT[change][before]
        assert after != REFUSED
        if self.ended is not None and before == _IN_FLIGHT and change not in _LEASED_ON:
            self.ended.append(rows.seqs[row])
        if key_ids is not None and before != after and (key := key_ids[self.index.find(rows.seqs[row])]):
            self._change_key(key, rows.deliveries[row], before, after)
        self.counts[before] -= 1
        if after != _GONE:
            self.counts[after] += 1
        rows.state[row] = after

    def change_all(self, rows: Group, change: Change) -> None:
        """As `change`, of each of these."""
        before = bytes(values_at(self.rows.state, rows))
        after = before.translate(NEXT[change])
        assert REFUSED not in after
        if self.ended is not None and change not in _LEASED_ON:
            self.ended += compress(values_at(self.rows.seqs, rows), map(_IN_FLIGHT.__eq__, before))
        if self.index.key_ids is not None:
            self._change_keys(rows, before, after)
        for state in set(before):
            self.counts[state] -= before.count(state)
        for state in set(after) - {_GONE}:
            self.counts[state] += after.count(state)
        scatter(self.rows.state, rows, after)

    def _change_keys(self, rows: Group, before: bytes, after: bytes) -> None:
        key_ids, deliveries = self.index.key_ids, values_at(self.rows.deliveries, rows)
        assert key_ids is not None
        places = self.index.find_all(values_at(self.rows.seqs, rows))
        for at, times, old, new in zip(places, deliveries, before, after, strict=True):
            if key_ids[at] and old != new:
                self._change_key(key_ids[at], times, old, new)

    def _change_key(self, key: int, deliveries: int, before: int, state: int) -> None:
        for held, of_state in ((self.key_leases, _IN_FLIGHT), (self.key_rests, _DELAYED)):
            if of_state == _DELAYED and not deliveries:
                continue  # its producer delayed it, which holds nobody back
            if state == of_state:
                held[key] = held.get(key, 0) + 1
            elif before == of_state:
                held[key] -= 1
                assert held[key] >= 0
                if not held[key]:
                    del held[key]
                if self.freed is not None:
                    self.freed.append(key)
