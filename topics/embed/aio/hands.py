"""Jobs pushed to whoever works on a queue: as many as he takes at a time (queues 4).

A `Hand` has what one connection was pushed of one queue and has not settled. The engine tells when a lease ends,
however it does: by what anybody says of the job, by time, or with the job itself. That makes room, and the hand claims
again. When the connection ends, what is in the hand is ready for others.

A lease that runs out may be that of a process which stands still while its connection lives. It would be handed the job
again and again, until that is a dead letter nobody has worked on. So behind such a lease the holder is asked whether he
lives, where he can be, and takes no job before he has said anything.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec
import trio

from topics.embed.aio.fetch import AnswerRoom
from topics.embed.aio.jobs import ClaimedJobs, JobDesk
from topics.engine.commands import Claim
from topics.engine.engine import Engine
from topics.engine.replies import LeasedJob
from topics.log.jobs.rows import EXPIRED

_Key = tuple[int, int]  # the queue's id, the job's seq


class Hands:
    """Whose hand a job is in."""

    def __init__(self, engine: Engine, desk: JobDesk) -> None:
        self.engine = engine
        self.desk = desk
        self.by_job: dict[_Key, Hand] = {}

    def tell_ended(self, ended: Mapping[int, Iterable[int]]) -> None:
        """Leases of these jobs have ended, by queue."""
        for topic_id, seqs in ended.items():
            topic = self.engine.catalog.topics.get(topic_id)
            for seq in seqs:
                hand = self.by_job.pop((topic_id, seq), None)
                if hand is not None:
                    hand.free((topic_id, seq))
                    if topic is not None and topic.jobs is not None and topic.jobs.reason(seq) == EXPIRED:
                        hand.doubt()


class Hand:
    """`asked`: the claim that is made whenever there is room; its `count_max` is how many jobs the hand takes.
    `ask_life`: asks the holder whether he lives, and calls what it is given at his next word; None if nobody can.
    """

    def __init__(
        self, hands: Hands, asked: Claim, *, ask_life: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        assert asked.wait_ms is None
        assert asked.told_end
        self.asked = asked
        self._hands = hands
        self._held: dict[_Key, LeasedJob] = {}
        self._ask_life = ask_life
        self._is_doubted = False
        self._freed = trio.lowlevel.ParkingLot()

    def __len__(self) -> int:
        return len(self._held)

    async def claim(self, room: AnswerRoom, *, until_s: float = math.inf) -> ClaimedJobs | None:
        """The next jobs, as soon as there is room in the hand and there are some. They are in it from then on. None if
        the wait was ended, at that time of Trio's or because the server drains.

        Raises:
            Rejected: topic_not_found, not_a_queue, storage_read_only, disk_low, throttled; nothing is leased.
            Corrupt: the records cannot be read now; nothing is leased.
        """
        desk = self._hands.desk
        while True:
            if not self._takes:
                await desk.wait(self._until_it_takes, until_s)
            if not self._takes:
                return None
            asked = msgspec.structs.replace(self.asked, count_max=self.asked.count_max - len(self))
            claimed = await desk.claim(asked, room, until_s=until_s)
            if claimed is None:
                return None
            self._take(claimed)
            if not self._is_doubted:
                return claimed
            self.give_back(claimed.jobs)
            room.settle(0)

    @property
    def _takes(self) -> bool:
        return len(self) < self.asked.count_max and not self._is_doubted

    async def _until_it_takes(self) -> None:
        while not self._takes:
            await self._freed.park()

    def _take(self, claimed: ClaimedJobs) -> None:
        topic = self._hands.engine.catalog.topics.get(claimed.topic_id)
        if topic is None:
            return
        assert topic.jobs is not None
        for job in claimed.jobs:
            if topic.jobs.is_leased(
                job.seq, (job.nonce, job.counter)
            ):  # else it has ended, and nobody will tell
                key = claimed.topic_id, job.seq
                self._held[key] = job
                self._hands.by_job[key] = self

    def free(self, key: _Key) -> None:
        """The lease has ended."""
        del self._held[key]
        self._freed.unpark_all()

    def doubt(self) -> None:
        """A lease ran out: no job is taken before the holder says anything."""
        if self._ask_life is not None and not self._is_doubted:
            self._is_doubted = True
            self._ask_life(self._heard)

    def _heard(self) -> None:
        self._is_doubted = False
        self._freed.unpark_all()

    def give_back(self, jobs: Iterable[LeasedJob] | None = None) -> None:
        """Others may have these jobs, which were never sent; or all of the hand, whose holder has gone."""
        if jobs is None:
            given = self._held
            self._held = {}
        else:
            seqs = {job.seq for job in jobs}
            given = {key: job for key, job in self._held.items() if key[1] in seqs}
            for key in given:
                del self._held[key]
        for key in given:
            del self._hands.by_job[key]
        self._hands.desk.release(self.asked.topic, given.values(), was_sent=jobs is None)


class Work:
    """A hand that a task keeps full: what it claims is pushed. `begin`, then `run` once, then `stop`; and again."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand

    def begin(self, asked: Claim) -> None:
        self.hand.asked = asked
        self._scope = trio.CancelScope()
        self._ended = trio.Event()

    async def run(self, push: Callable[[Sequence[bytes]], Awaitable[None]], room: AnswerRoom) -> None:
        """Push entries of jobs until this is stopped, or the server drains. `push` returns when they are on their way;
        cancelled, or raising `BrokenResourceError`, they never are. `room` holds them until then.

        Raises:
            TopicsError: as `Hand.claim`.
        """
        try:
            with self._scope:
                while (claimed := await self.hand.claim(room)) is not None:
                    try:
                        await push(claimed.entries)
                    except (trio.Cancelled, trio.BrokenResourceError):
                        self.hand.give_back(claimed.jobs)
                        raise
                    finally:
                        room.settle(0)
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Nothing is pushed behind this. What was pushed stays in the hand."""
        self._scope.cancel()
        await self._ended.wait()
