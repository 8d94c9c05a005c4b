"""Whose turn it must be: a list of who waits, walked from the beginning each time.

Bands, ages and credits as semantics 10 says them; of aging only that nobody looks at it more often than every 50 ms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BANDS = {
    "top": (750, 8),
    "high": (500, 4),
    "middle": (250, 2),
    "low": (0, 1),
    "below": (-10_000, 1),
}  # floor, weight
PUT_OFF = {"top": 0, "high": 1, "middle": 2, "low": 3, "below": 4}  # fourths of the window
SLICE = 64


def name_of_band(priority: int) -> str:
    return next(name for name, (floor, _) in BANDS.items() if priority >= floor)


@dataclass
class Waiter:
    topic: str
    priority: int
    since_us: int
    band: str = ""


@dataclass
class Fairness:
    waiting: list[Waiter] = field(default_factory=list)  # in the order in which they came
    held: list[Waiter] = field(default_factory=list)
    credit: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BANDS, 0))
    looked_us: int = 0
    is_holding: bool = False

    def mark(self, topic: str, priority: int, now_us: int) -> None:
        one = Waiter(topic, priority, now_us, name_of_band(priority))
        (self.held if self.is_holding and priority < 0 else self.waiting).append(one)

    def look(self, now_us: int) -> None:
        """At ages: once in 50 ms."""
        if now_us - self.looked_us >= 50_000:
            self.looked_us = now_us
            for one in self.waiting:
                one.band = name_of_band(one.priority + min((now_us - one.since_us) // 10_000, 1000))

    def whose_turn(self, now_us: int, window_us: int) -> str | None:
        self.look(now_us)
        oldest = {one.band: one for one in reversed(self.waiting)}
        due = {
            band: one
            for band, one in oldest.items()
            if one.since_us + window_us * PUT_OFF[band] // 4 <= now_us
        }
        if not due:
            return None
        if all(self.credit[band] <= 0 for band in due):  # the round is over
            for band, (_, weight) in BANDS.items():
                self.credit[band] = min(self.credit[band], 0) + weight * SLICE
        return next(due[band].topic for band in BANDS if band in due and self.credit[band] > 0)

    def served(self, topic: str, cost: int) -> None:
        self.credit[self.find(topic).band] -= max(cost, 1)

    def done(self, topic: str) -> None:
        self.waiting = [one for one in self.waiting if one.topic != topic]
        self.held = [one for one in self.held if one.topic != topic]

    def hold(self) -> None:
        self.is_holding = True
        self.held = [one for one in self.waiting if one.priority < 0]
        self.waiting = [one for one in self.waiting if one.priority >= 0]

    def let_go(self, now_us: int) -> None:
        self.is_holding = False
        for one in self.held:
            self.mark(one.topic, one.priority, now_us)
        self.held = []

    def find(self, topic: str) -> Waiter:
        return next(one for one in self.waiting if one.topic == topic)
