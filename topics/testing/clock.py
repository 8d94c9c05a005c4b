"""A clock that moves only when it is told to. It may step back, as real ones do (semantics 4)."""

from __future__ import annotations


class ManualClock:
    """`kernel.ports.Clock` under the test's hand."""

    __slots__ = ("_now_ms",)

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        assert now_ms >= 0, now_ms
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def advance(self, ms: int) -> int:
        """Move forward; returns the new time."""
        assert ms >= 0, ms
        self._now_ms += ms
        return self._now_ms

    def set(self, now_ms: int) -> None:
        """Jump anywhere, backwards too."""
        assert now_ms >= 0, now_ms
        self._now_ms = now_ms
