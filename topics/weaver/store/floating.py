"""Intentions that wait for others (replication 5.2): accepted, kept, and of no effect.

Each waits for the hashes it names that are not witnessed; the buffer is indexed by what is waited for, so an arrival
finds its waiters without a search. It is bounded by author, in all, by bytes, and by age: the oldest goes first, and
can be fetched again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from topics.weaver.model.bounds import Bounds
from topics.weaver.model.envelope import Accepted
from topics.weaver.model.intention import ZERO_HASH


class DependencyKind(Enum):
    """How a missing intention is named."""

    PREV = "prev"
    CONDITION = "condition"


class MissingDep(NamedTuple):
    """An intention that somebody waits for. `author` is that of the waiting one, and so of the missing one if `link`
    is PREV; `since` is that author's tip here, zero for none.
    """

    hash: bytes
    since: bytes
    author: bytes
    link: DependencyKind


class Float:
    """One that waits. `missing`: the hashes it waits for, in the order it names them."""

    __slots__ = ("accepted", "missing", "received_ms")

    def __init__(self, accepted: Accepted, missing: Iterable[bytes], received_ms: int) -> None:
        self.accepted: Final = accepted
        self.missing: Final = dict.fromkeys(missing)
        self.received_ms: Final = received_ms


class Floating:
    """The buffer. Dicts keep the order of arrival, so the first key is the oldest."""

    __slots__ = ("_authors", "_bounds", "_bytes", "_floats", "_waiters")

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._bytes = 0
        self._floats: dict[bytes, Float] = {}
        self._waiters: dict[bytes, dict[bytes, None]] = {}  # hash waited for -> who waits
        self._authors: dict[bytes, dict[bytes, None]] = {}

    def __len__(self) -> int:
        return len(self._floats)

    def __contains__(self, name: bytes) -> bool:
        return name in self._floats

    def __iter__(self) -> Iterator[Float]:
        """Oldest first."""
        return iter(self._floats.values())

    def get(self, name: bytes) -> Float | None:
        return self._floats.get(name)

    def waiters(self, name: bytes) -> list[bytes]:
        """Who waits for an intention."""
        return list(self._waiters.get(name, ()))

    def add(self, accepted: Accepted, missing: Iterable[bytes], received_ms: int) -> None:
        """Let one wait for `missing`, of which there is at least one."""
        float_ = Float(accepted, missing, received_ms)
        assert float_.missing
        assert accepted.hash not in self._floats
        assert ZERO_HASH not in float_.missing  # it is always there
        self._floats[accepted.hash] = float_
        self._bytes += len(accepted.envelope.body)
        self._authors.setdefault(accepted.intention.author, {})[accepted.hash] = None
        for name in float_.missing:
            self._waiters.setdefault(name, {})[accepted.hash] = None

    def remove(self, name: bytes) -> Float:
        """Take one out, whatever it waits for."""
        float_ = self._floats.pop(name)
        assert float_.accepted.hash == name
        self._bytes -= len(float_.accepted.envelope.body)
        assert self._bytes >= 0
        author = float_.accepted.intention.author
        del self._authors[author][name]
        if not self._authors[author]:
            del self._authors[author]
        for missing in float_.missing:
            waiters = self._waiters[missing]
            del waiters[name]
            if not waiters:
                del self._waiters[missing]
        return float_

    def arrived(self, name: bytes) -> list[Float]:
        """`name` is witnessed: take out whoever waited for nothing else."""
        assert name not in self._floats  # what is witnessed does not float
        ready = []
        for waiter in self._waiters.pop(name, ()):
            float_ = self._floats[waiter]
            assert name in float_.missing
            del float_.missing[name]
            if not float_.missing:
                ready.append(self.remove(waiter))
        return ready

    def overdue(self, now_ms: int) -> list[bytes]:
        """Those past their age. The clock may have stepped back, then the ones behind wait for the one before them."""
        found = []
        for name, float_ in self._floats.items():
            if float_.received_ms + self._bounds.float_age_ms >= now_ms:
                break
            found.append(name)
        return found

    def crowded_out(self, author: bytes) -> bytes | None:
        """The one that must go after `author` got another: the author's oldest, or the oldest of all; else None."""
        own = self._authors.get(author, {})
        assert len(own) <= len(self._floats)
        if len(own) > self._bounds.floats_per_author:
            return next(iter(own))
        if len(self._floats) > self._bounds.floats or self._bytes > self._bounds.float_bytes:
            return next(iter(self._floats))
        return None

    def missing_deps(self, name: bytes, since: bytes) -> list[MissingDep]:
        """What one waits for and nobody has sent: what floats itself is here already."""
        float_ = self._floats[name]
        assert float_.missing
        intention = float_.accepted.intention
        return [
            MissingDep(missing, since, intention.author, DependencyKind.PREV)
            if missing == intention.store_prev
            else MissingDep(missing, ZERO_HASH, intention.author, DependencyKind.CONDITION)
            for missing in float_.missing
            if missing not in self._floats
        ]
