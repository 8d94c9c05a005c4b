"""Who waits for jobs of a queue, and what of it is on its way: the queue's part of a lane (architecture 3.1)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

import msgspec

from topics.engine.commands import Claim
from topics.engine.queue.ready import ReadyOrder
from topics.engine.tickets import Ticket
from topics.log.jobs.jobs import Jobs
from topics.log.jobs.transitions import JobState
from topics.log.topic import Topic

_NEWS_MAX: Final = 1 << 14
_DELAYED: Final = int(JobState.DELAYED)
_IN_FLIGHT: Final = int(JobState.IN_FLIGHT)
_MOVING: Final = int(JobState.MOVING)


class Claimer(msgspec.Struct, eq=False):
    """A claim that waits. `until_ms`: of `timer_ms`; None: until it is withdrawn."""

    ticket: Ticket
    asks: Claim
    until_ms: int | None


class QueueLane:
    """`busy`: jobs promised by a claim, or whose lease something ends, each to a ticket in flight. `claiming`: how many
    of them are promised. `settling`: the others, by the number of their key if keys are bounded; a lease that lapses
    meanwhile still has its key's place. `extending`: of each job whose lease is being extended, until when, by each
    ticket in flight: it does not run out meanwhile, and whoever has it may settle it as long as the last one says.
    `window_ms`: when the cohort that is gathering is served, of the engine's time. `turn`: how many passes have served
    somebody.

    What was answered since the store was opened: `claims`, `claimed`, `acked`, `nacked`, the last three in jobs.
    """

    __slots__ = (
        "_ends", "_joined", "acked", "busy", "claimed", "claimers", "claiming", "claims", "extending", "jobs", "nacked",
        "order", "settling", "turn", "window_ms",
    )  # fmt: skip

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.busy: set[int] = set()
        self.extending = jobs.extending = dict[int, list[int]]()
        self.settling: dict[int, list[int]] = {}
        self.claiming = 0
        self.claimers: dict[Ticket, Claimer] = {}
        self.order: ReadyOrder | None = None
        self.window_ms: int | None = None
        self.turn = 0
        self.claims = self.claimed = self.acked = self.nacked = 0
        self._joined = 0
        self._ends: list[tuple[int, int, Ticket]] = []  # a heap of (`until_ms`, who came how manieth, whose)

    def is_leased(self, seq: int, row: int) -> bool:
        """Whether its lease lasts, as of the last `advance`, when what is on its way is written. `row`: its own."""
        jobs, until = self.jobs, self.extending.get(seq)
        return jobs.rows.state[row] == _IN_FLIGHT and (until is None or until[-1] >= jobs.now_ms)

    def ready_order(self, topic: Topic) -> ReadyOrder:
        """The order, up to date."""
        if self.order is None:
            self.order = ReadyOrder(topic, self.busy, self.settling)
        self.order.refresh()
        return self.order

    @property
    def is_still(self) -> bool:
        """True if nobody waits, and nothing has come of a job that is to be told, put in order or given up."""
        jobs, order = self.jobs, self.order
        return not (self.claimers or jobs.ended or jobs.returned or jobs.freed) and (
            order is not None and not order.exhausted
        )

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

    def hold_keys(self, seqs: Sequence[int], keys: Sequence[int]) -> None:
        """These are being settled. `keys`: the number of each one's, 0 without one; none if keys are not bounded."""
        for seq, key in zip(seqs, keys, strict=False):
            if key:
                self.settling.setdefault(key, []).append(seq)

    def let_go_keys(self, seqs: Sequence[int], keys: Sequence[int]) -> None:
        """They are settled."""
        for seq, key in zip(seqs, keys, strict=False):
            if key:
                self.settling[key].remove(seq)
                if not self.settling[key]:
                    del self.settling[key]
                if self.jobs.freed is not None:
                    self.jobs.freed.append(key)

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
        counts = self.jobs.counts
        in_flight, delayed = counts[_IN_FLIGHT] + counts[_MOVING], counts[_DELAYED]
        return topic.index.live_count - in_flight - delayed, in_flight, delayed
