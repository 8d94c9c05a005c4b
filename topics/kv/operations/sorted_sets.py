"""Sorted sets: members with a score, that of the latest add (replication 3.2, 3.3).

A range is by rank, as positions with negatives from the end and both ends included, or by score. Equal scores are in
the order of the members' canonical bytes.
"""

from __future__ import annotations

from math import isnan
from typing import Final, Literal

from topics.codec.cell import Cell, digest_of
from topics.kernel.errors import invalid
from topics.kv.entries.entry import Ranked, Tag
from topics.kv.operations.keys import ranked_of
from topics.kv.operations.keyspace import Keyspace
from topics.kv.operations.lists import clipped

BY: Final = ("rank", "score")


class SortedSetOperations(Keyspace):
    """The sorted-set table of the seed."""

    def zadd(self, key: str, score: float, member: Cell) -> int:
        """Add a member or give it another score: 1 if it is new, 0 if it was there."""
        number = _number("score", score)
        stored = self._arguments("member", [member])[0]
        digest = digest_of(stored)
        looked = self._look(key, Tag.ZSET)
        edit = self._begin(looked, Tag.ZSET, 1)
        known = looked.find(Tag.ZSET, digest)
        rem = known.rem if isinstance(known, Ranked) else 0
        assert rem < edit.stamp  # so that it is there
        edit.put(Tag.ZSET, digest, Ranked(stored, number, edit.stamp, rem))
        self._commit(looked, edit)
        return 0 if looked.has(Tag.ZSET, digest) else 1

    def zrem(self, key: str, *members: Cell) -> int:
        """Remove members: how many were there."""
        given = {digest_of(member) for member in self._arguments("members", members)}
        looked = self._look(key, Tag.ZSET)
        present = [digest for digest in sorted(given) if looked.has(Tag.ZSET, digest)]
        if present:
            edit = self._edit(looked)
            for digest in present:
                known = looked.find(Tag.ZSET, digest)
                assert isinstance(known, Ranked)
                assert known.add < edit.stamp  # so that it is gone
                edit.put(Tag.ZSET, digest, Ranked(known.value, known.score, known.add, edit.stamp))
            self._commit(looked, edit)
        return len(present)

    def zscore(self, key: str, member: Cell) -> float | None:
        """The member's score, None if it is not there."""
        looked, digest = self._look(key, Tag.ZSET), digest_of(member)
        found = looked.find(Tag.ZSET, digest)
        return found.score if isinstance(found, Ranked) and looked.has(Tag.ZSET, digest) else None

    def zrange(
        self, key: str, start: float, stop: float, *, by: Literal["rank", "score"] = "rank"
    ) -> list[Cell]:
        """The members from `start` to `stop`, both included, ascending by score: positions, or scores."""
        if by not in BY:
            raise invalid("by", f"must be rank or score, not {by!r:.40}")
        if by == "score":
            return self.zrangebyscore(key, start, stop)
        ranked = self._ranked(key)
        first, last = clipped(start, stop, len(ranked))
        assert first >= 0
        return [found.value for found in ranked[first:last]]

    def zrangebyscore(self, key: str, low: float, high: float) -> list[Cell]:
        """The members whose score is from `low` to `high`, both included, ascending by score."""
        least, most = _number("low", low), _number("high", high)
        return [found.value for found in self._ranked(key) if least <= found.score <= most]

    def zcard(self, key: str) -> int:
        return len(self._ranked(key))

    def _ranked(self, key: str) -> list[Ranked]:
        looked = self._look(key, Tag.ZSET)
        return ranked_of(looked.view.tree) if looked.live else []


def _number(field: str, value: float) -> float:
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise invalid(field, f"must be a number, not {given!r:.40}")
    try:
        number = float(given) + 0.0  # -0.0 becomes 0.0, as in canonical bytes
    except OverflowError:
        raise invalid(field, "does not fit a double; use inf") from None
    if isnan(number):
        raise invalid(field, "must be a number, not NaN")
    return number
