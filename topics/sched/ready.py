"""Topics with news to tell, each once, and whose turn it is (semantics 10, I-13, decision 98).

A topic comes in when it has something to tell, with its priority of then, and stays until all of it is told. What is
drawn is a slice of one topic: the oldest of the highest band that has credit left in this round. A round gives each
band its weight in slices; when no band has both work and credit, the next one begins. What a slice took beyond its
band's credit is owed in the next round, what is left over is dropped.

Waiting lifts a topic from band to band. When it crosses is known when it comes in, so nothing walks through the set: a
heap of instants is looked at every so often. In a band it stands by when it came in, also if it has come up.

Held are topics that are below 0 by configuration: they wait beside the set, grow no older, and come in anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from topics.sched.bands import BANDS, FLOORS, TOP, WEIGHTS, band_of
from topics.sched.priority import AGE_MAX, AGE_STEP_US, age_boost

SLICE: Final = 64  # what one turn may cost: followers told
AGING_US: Final = 50_000  # between two looks at who has come up
_TOP_DOWN: Final = range(TOP, -1, -1)


class _WaitingTopic:
    """A topic that waits. `number`: of its coming in, so that of two at one instant the first is the older."""

    __slots__ = ("band", "number", "priority", "since_us")

    def __init__(self, priority: int, since_us: int, number: int) -> None:
        self.priority = priority
        self.since_us = since_us
        self.number = number
        self.band = band_of(priority)


class ReadySet:
    """Of one loop. Times are of any clock that never goes back."""

    __slots__ = (
        "_aged_us", "_bands", "_counts", "_credit", "_entries", "_held", "_number", "_risings", "is_holding",
    )  # fmt: skip

    def __init__(self) -> None:
        self._entries: dict[str, _WaitingTopic] = {}
        # Heaps; some in them have left.
        self._bands: list[list[tuple[int, int, str]]] = [[] for _ in range(BANDS)]
        self._counts = [0] * BANDS
        self._credit = [0] * BANDS
        self._risings: list[tuple[int, int, str]] = []  # a heap: when who reaches the next band
        self._held: dict[str, int] = {}  # their priorities
        self._number = 0
        self._aged_us = 0
        self.is_holding = False

    def __len__(self) -> int:
        """Topics that wait for their turn; those that are held do not."""
        return len(self._entries)

    def __contains__(self, topic: str) -> bool:
        return topic in self._entries or topic in self._held

    def mark(self, topic: str, priority: int, now_us: int) -> None:
        """It has something to tell. Once: whoever is in the set is not marked."""
        assert topic not in self
        if self.is_holding and priority < 0:
            self._held[topic] = priority
            return
        self._number += 1
        entry = self._entries[topic] = _WaitingTopic(priority, now_us, self._number)
        self._put(topic, entry)

    def next(self, now_us: int, window_us: int = 0) -> str | None:
        """Whose turn it is, among those that have waited for their window; None if nobody's. It stays until `done`.

        `window_us`: of the lowest band; the higher one is, the shorter, and of the top band there is none.
        """
        assert window_us >= 0
        self._age(now_us)
        while True:
            heads = [self._head(band) for band in range(BANDS)]
            due = [
                head is not None and head[0] + _window(window_us, band) <= now_us
                for band, head in enumerate(heads)
            ]
            if not any(due):
                return None
            for band in _TOP_DOWN:
                if due[band] and self._credit[band] > 0:
                    head = heads[band]
                    assert head is not None
                    return head[2]
            self._credit = [
                min(left, 0) + weight * SLICE for left, weight in zip(self._credit, WEIGHTS, strict=True)
            ]

    def served(self, topic: str, cost: int) -> None:
        """Its turn is over, and took so much."""
        assert 0 <= cost <= SLICE
        band = self._entries[topic].band
        assert self._credit[band] > 0
        self._credit[band] -= max(cost, 1)  # no turn is free, or one band could have all of them

    def has_next_turn(self, priority: int, now_us: int) -> bool:
        """Whether a topic that came in now would be next for sure: the top band is its, has credit, and nobody waits
        there.
        """
        self._age(now_us)
        return self._credit[TOP] > 0 and not self._counts[TOP] and band_of(priority) == TOP

    def served_at_once(self, cost: int) -> None:
        """Such a topic had its turn without coming in, and took so much."""
        assert 0 <= cost <= SLICE
        assert self._credit[TOP] > 0
        self._credit[TOP] -= max(cost, 1)

    def done(self, topic: str) -> None:
        """It has nothing more to tell."""
        assert topic in self
        if self._held.pop(topic, None) is None:
            self._counts[self._entries.pop(topic).band] -= 1

    def hold(self) -> None:
        """Topics below 0 get no turn until `let_go`."""
        assert not self.is_holding
        self.is_holding = True
        for topic in [topic for topic, entry in self._entries.items() if entry.priority < 0]:
            self._held[topic] = self._entries[topic].priority
            self._counts[self._entries.pop(topic).band] -= 1

    def let_go(self, now_us: int) -> None:
        """Those that were held come in now."""
        assert self.is_holding
        self.is_holding = False
        held, self._held = self._held, {}
        assert held.keys().isdisjoint(self._entries)
        for topic, priority in held.items():
            self.mark(topic, priority, now_us)

    # What is asked of it.

    @property
    def by_band(self) -> Sequence[int]:
        """How many wait, the lowest band first."""
        assert sum(self._counts) == len(self._entries)
        return tuple(self._counts)

    @property
    def held(self) -> int:
        return len(self._held)

    def due_us(self, topic: str, window_us: int) -> int:
        """When it had waited, or will have waited, for its window."""
        entry = self._entries[topic]
        return entry.since_us + _window(window_us, entry.band)

    def age_boost(self, topic: str, now_us: int) -> int:
        """What waiting adds to its priority; 0 if it does not wait."""
        entry = self._entries.get(topic)
        return 0 if entry is None else age_boost(now_us - entry.since_us)

    def first_due_us(self, window_us: int) -> int | None:
        """When the first of all has waited for its window; None if nobody waits."""
        heads = [self._head(band) for band in range(BANDS)]
        return min(
            (head[0] + _window(window_us, band) for band, head in enumerate(heads) if head is not None),
            default=None,
        )

    # Inside.

    def _put(self, topic: str, entry: _WaitingTopic) -> None:
        """Into its band, and into the heap if waiting takes it further."""
        self._counts[entry.band] += 1
        heappush(self._bands[entry.band], (entry.since_us, entry.number, topic))
        if entry.band < TOP:
            missing = FLOORS[entry.band] - entry.priority
            if missing <= AGE_MAX:
                heappush(self._risings, (entry.since_us + missing * AGE_STEP_US, entry.number, topic))

    def _age(self, now_us: int) -> None:
        if now_us - self._aged_us < AGING_US:
            return
        self._aged_us = now_us
        while self._risings and self._risings[0][0] <= now_us:
            _, number, topic = heappop(self._risings)
            entry = self._entries.get(topic)
            if entry is not None and entry.number == number:
                assert entry.band < TOP
                self._counts[entry.band] -= 1
                entry.band += 1
                self._put(topic, entry)

    def _head(self, band: int) -> tuple[int, int, str] | None:
        """The oldest of a band; who has left it is dropped here."""
        heap = self._bands[band]
        while heap:
            _, number, topic = heap[0]
            entry = self._entries.get(topic)
            if entry is not None and entry.number == number and entry.band == band:
                return heap[0]
            heappop(heap)
        return None


def _window(window_us: int, band: int) -> int:
    return window_us * (TOP - band) // TOP
