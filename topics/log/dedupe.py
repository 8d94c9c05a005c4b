"""What a topic remembers of writes, so that a retry appends nothing (semantics 7).

Two tables. `Results`: idempotency key -> what the first write with it did. `DedupIds`: record-level id -> its seq.
Both are functions of the log: entries come from frames, `expires_at` = the frame's ts + the window then in force, and
a frame's ts retires what has expired before it. A lookup counts an entry past its time as absent.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import attrs

from topics.kernel.limits import MOVED_IDS_MAX, RESULTS_PER_TOPIC_MAX

MOVE_PREFIXES: Final = (
    b"dl:",
    b"rd:",
)  # of the ids of dead letters and of redriven records; clients have none


@attrs.frozen
class Result:
    """The first write with a key: its seqs are [first_seq, first_seq + appended), plus those of its duplicates."""

    expires_at: int
    digest: int
    count: int
    first_seq: int
    duplicates: tuple[tuple[int, int], ...] = ()

    @property
    def appended(self) -> int:
        return self.count - len(self.duplicates)

    def seqs(self) -> range | list[int]:
        """One seq an input record, in input order."""
        if not self.duplicates:
            return range(self.first_seq, self.first_seq + self.count)
        return interleave(self.count, self.first_seq, self.duplicates)


def interleave(count: int, first_seq: int, duplicates: Iterable[tuple[int, int]]) -> list[int]:
    """Seqs by input index: duplicates at theirs, the appended ones ascending from `first_seq` in between."""
    named = dict(duplicates)
    assert all(0 <= i < count for i in named)
    seqs = []
    for i in range(count):
        if i in named:
            seqs.append(named[i])
        else:
            seqs.append(first_seq)
            first_seq += 1
    return seqs


class Results:
    """Idempotency key -> `Result`, at most `RESULTS_PER_TOPIC_MAX`; the earliest expiry goes first."""

    __slots__ = ("_by_key", "_expiries")

    def __init__(self) -> None:
        self._by_key: dict[bytes, Result] = {}
        self._expiries: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: bytes, now_ms: int) -> Result | None:
        found = self._by_key.get(key)
        return found if found is not None and now_ms <= found.expires_at else None

    def add(self, key: bytes, result: Result) -> None:
        self._by_key[key] = result
        heapq.heappush(self._expiries, (result.expires_at, key))

    def retire(self, ts: int) -> None:
        """Forget what expired before `ts`, then the earliest expiries above the bound."""
        while self._expiries and (self._expiries[0][0] < ts or len(self._by_key) > RESULTS_PER_TOPIC_MAX):
            expires_at, key = heapq.heappop(self._expiries)
            if (found := self._by_key.get(key)) is not None and found.expires_at == expires_at:
                del self._by_key[key]

    def items(self) -> list[tuple[bytes, Result]]:
        return sorted(self._by_key.items())


class DedupIds:
    """Record-level dedup id -> (seq, expires_at), at most `entries_max`; the earliest expiry goes first.

    Ids of records that were moved here are kept beside them: the newest `MOVED_IDS_MAX`, whatever the window.
    """

    __slots__ = ("_by_id", "_expiries", "_moved")

    def __init__(self) -> None:
        self._by_id: dict[bytes, tuple[int, int]] = {}
        self._expiries: list[tuple[int, int, bytes]] = []
        self._moved: dict[bytes, int] = {}  # seqs ascend

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, dedup_id: bytes, now_ms: int) -> int | None:
        """The seq this id was first appended with, or None."""
        found = self._by_id.get(dedup_id)
        if found is None:
            return self._moved.get(dedup_id)
        return found[0] if now_ms <= found[1] else None

    def until(self, dedup_id: bytes, seq: int) -> int | None:
        """Until when a repeat of this id is answered with that seq; None if it is not known with it."""
        found = self._by_id.get(dedup_id)
        return found[1] if found is not None and found[0] == seq else None

    def add(self, dedup_id: bytes, seq: int, expires_at: int) -> None:
        if dedup_id.startswith(MOVE_PREFIXES):
            self.add_moved(dedup_id, seq)
            return
        self._by_id[dedup_id] = (seq, expires_at)
        heapq.heappush(self._expiries, (expires_at, seq, dedup_id))

    def retire(self, ts: int, entries_max: int) -> None:
        """Forget what expired before `ts`, then the earliest expiries above `entries_max`."""
        while self._expiries and (self._expiries[0][0] < ts or len(self._by_id) > entries_max):
            expires_at, seq, dedup_id = heapq.heappop(self._expiries)
            if self._by_id.get(dedup_id) == (seq, expires_at):
                del self._by_id[dedup_id]

    def add_moved(self, dedup_id: bytes, seq: int) -> None:
        """The id of a record that was moved here, behind those that are known."""
        moved = self._moved
        moved.pop(dedup_id, None)
        moved[dedup_id] = seq
        if len(moved) > MOVED_IDS_MAX:
            del moved[next(iter(moved))]

    def items(self) -> list[tuple[bytes, tuple[int, int]]]:
        return sorted(self._by_id.items())

    def moved(self) -> list[tuple[bytes, int]]:
        """Those of records that were moved here, by seq."""
        return list(self._moved.items())
