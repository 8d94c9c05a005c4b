"""Who waits for jobs of a queue, and what of it is on its way: the queue's part of a lane (architecture 3.1)."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from topics.engine.queue.ready import ReadyOrder
from topics.engine.tickets import Ticket
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic

_NEWS_MAX: Final = 1 << 14


class Claimer(msgspec.Struct, eq=False):
    """A claim that waits. `until_ms`: of `timer_ms`; None: until it is withdrawn."""

    ticket: Ticket
    until_ms: int | None


class QueueLane:
    """`busy`: jobs promised by a claim or being settled, each to a ticket in flight. `claiming`: how many of them are
    promised. `window_ms`: when the cohort that is gathering is served, of the engine's time. `turn`: how many passes
    have served somebody.
    """

    __slots__ = ("_ends", "_joined", "busy", "claimers", "claiming", "jobs", "order", "turn", "window_ms")

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.busy: set[int] = set()
        self.claiming = 0
        self.claimers: dict[Ticket, Claimer] = {}
        self.order: ReadyOrder | None = None
        self.window_ms: int | None = None
        self.turn = 0
        self._joined = 0
        self._ends: list[tuple[int, int, Ticket]] = []  # a heap of (`until_ms`, who came how manieth, whose)

    def ready_order(self, topic: Topic) -> ReadyOrder:
        """The order, up to date."""
        if self.order is None:
            self.order = ReadyOrder(topic, self.busy)
        self.order.refresh()
        return self.order

    def settle(self, seqs: Iterable[int]) -> None:
        """These are busy: they are being settled."""
        if self.order is None:
            self.busy.update(seqs)
        else:
            self.order.settle(seqs)

    def settled(self, seqs: Iterable[int]) -> None:
        if self.order is None:
            self.busy.difference_update(seqs)
        else:
            self.order.kept(seqs)

    def forget_order(self) -> None:
        """Another config: the order is made anew when it is asked for. Nothing is on its way."""
        assert not self.busy
        self.order, self.jobs.returned, self.jobs.freed = None, None, None

    def forget_old_news(self) -> None:
        """Nobody waits, so nobody has looked at what came back; it must not become more and more."""
        jobs = self.jobs
        if (
            self.order is not None
            and not self.busy
            and len(jobs.returned or ()) + len(jobs.freed or ()) > _NEWS_MAX
        ):
            self.forget_order()

    def join(self, claimer: Claimer) -> None:
        self.claimers[claimer.ticket] = claimer
        if claimer.until_ms is not None:
            self._joined += 1
            heapq.heappush(self._ends, (claimer.until_ms, self._joined, claimer.ticket))

    def first_end_ms(self) -> int | None:
        """When the first wait ends, of `timer_ms`."""
        while self._ends and self._ends[0][2] not in self.claimers:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def take_ended(self, timer_ms: int) -> Sequence[Ticket]:
        """Those whose wait is over leave."""
        ended = []
        while (first := self.first_end_ms()) is not None and first <= timer_ms:
            ticket = heapq.heappop(self._ends)[2]
            del self.claimers[ticket]
            ended.append(ticket)
        return ended

    def counts(self, topic: Topic) -> tuple[int, int, int]:
        """(ready, in flight, delayed) as of the last `advance`; a job that moves counts as in flight."""
        in_flight = self.jobs.counts[JobState.IN_FLIGHT] + self.jobs.counts[JobState.MOVING]
        delayed = self.jobs.counts[JobState.DELAYED]
        return topic.index.live_count - in_flight - delayed, in_flight, delayed
