"""What is due when: one heap of (instant, kind, id), for one clock.

There is one of the engine's time, which stands still while a clock that was set back catches up, and one of `timer_ms`,
which goes on meanwhile; no instant of the one says when the other comes to it.

Setting an instant anew is a write in a dict, for what moves is put off: a topic rests anew with each write. The heap
keeps the earliest entry of each (kind, id), and one that comes to the top too early goes down to where it belongs.
"""

from __future__ import annotations

import heapq
from typing import Final

# Kinds of what is due; with it goes the id of a topic or the number of a shard. No enum: each write sets one.
RETIRE: Final = 0  # a topic: a record of it ends by time alone
REST: Final = 1  # a topic: it has rested, so its exact head is logged
SYNC: Final = 2  # a shard: what was written waits for its sync
SERVE: Final = (
    3  # a queue: a lease runs out, a rest is over, a cohort has gathered, or the rate lets a job go
)
WAITED: Final = 4  # a queue: a claim has waited long enough
MOVE: Final = 5  # records on their way to another topic
FIRE: Final = 6  # a schedule: its time has come, or it is tried again
FORWARD: Final = 7  # a router that is late and was refused
OF_TOPICS: Final = (RETIRE, REST, SERVE, WAITED)  # these end with their topic

Key = tuple[int, int]


class Timers:
    """The next instant of each (kind, id). `moved`: the first one may be earlier than `first_ms` last said."""

    __slots__ = ("_due", "_heap", "_queued", "moved")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}  # the instant of its entry in the heap; others of it are stale
        self._heap: list[tuple[int, Key]] = []
        self.moved = False

    def set(self, kind: int, number: int, at_ms: int) -> None:
        key = (kind, number)
        self._due[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._queued[key] = at_ms
            heapq.heappush(self._heap, (at_ms, key))
            self.moved = self.moved or self._heap[0][1] is key

    def at_ms(self, kind: int, number: int) -> int | None:
        """The instant that was set; None: it is not due ever."""
        return self._due.get((kind, number))

    def drop(self, kind: int, number: int) -> None:
        """It is not due any more. Its entry stays until its turn comes, or serves the next instant."""
        if self._due:
            self._due.pop((kind, number), None)

    def first_ms(self) -> int | None:
        """The earliest instant; None if nothing is due ever."""
        heap = self._heap
        self.moved = False
        while heap:
            at_ms, key = heap[0]
            due_ms = self._due.get(key)
            if due_ms == at_ms:
                return at_ms
            if self._queued.get(key) != at_ms:
                heapq.heappop(heap)
            elif due_ms is None:
                heapq.heappop(heap)
                del self._queued[key]
            else:
                assert due_ms > at_ms
                heapq.heapreplace(heap, (due_ms, key))
                self._queued[key] = due_ms
        return None

    def take_due(self, now_ms: int, count_max: int) -> list[Key]:
        """Take what is due, the earliest first; whoever is given one sets its next instant."""
        taken: list[Key] = []
        while len(taken) < count_max and (first := self.first_ms()) is not None and first <= now_ms:
            _, key = heapq.heappop(self._heap)
            self._queued.pop(key, None)
            del self._due[key]
            taken.append(key)
        return taken
