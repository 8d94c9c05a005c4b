"""What workers were told of the jobs of a queue, and whether it still holds. Knows commands and replies only.

Events are kept in the order in which they were told, with how much of the log must survive for each to hold. What a
crash takes is forgotten; what is left says who has which job, and what is done for good (queues 2, 5).
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.engine.commands import Ack, Extend, Purge, Release, Settle
from topics.engine.replies import JobsClaimed, JobsSettled
from topics.kernel.ids import Lease
from topics.simulation.oracle import PromiseBroken

Place = tuple[int, int]  # (shard, how many of its writes must survive)
DURABLE: Final = (0, 0)


@attrs.frozen
class Held:
    """A job in the hands of a worker, live up to `deadline` (ms, included)."""

    node: bytes
    lease: Lease
    deadline: int


@attrs.frozen
class _Told:
    """`held`: of a job that was leased or extended; None: its lease was ended; `done`: for good."""

    seq: int
    held: Held | None
    place: Place
    done: bool = False


class JobClaims:
    """Of one queue."""

    def __init__(self) -> None:
        self.held: dict[int, Held] = {}
        self.done: set[int] = set()
        self._perhaps_done: set[int] = set()  # an ack was asked for
        self._purges: set[int] = set()  # those that were asked for, and not answered
        self._purged_upto = 0  # the head when one was answered
        self._perhaps: dict[int, Held] = {}  # unless a settlement that a crash left unanswered has ended them
        self._asked: set[int] = set()  # settlements were asked for, and not answered
        self._leases: set[Lease] = set()
        self._told: list[_Told] = []

    def asking(self, command: Settle | Release) -> None:
        """From now on its jobs may be done, or somebody else's; which of it is known when it is answered."""
        self._asked.update(command.seqs)
        if isinstance(command, Ack):
            self._perhaps_done.update(command.seqs)

    def purging(self, command: Purge) -> None:
        """From now on whatever nobody has may be gone, and all that comes before it is answered."""
        self._purges.add(id(command))

    def purged(self, command: Purge, head_seq: int) -> None:
        self._purges.discard(id(command))
        self._purged_upto = max(self._purged_upto, head_seq)

    def claimed(self, node: bytes, reply: JobsClaimed, lease_ms: int, place: Place) -> None:
        """One live lease a job, none of what is done, and no lease twice."""
        for job in reply.jobs:
            lease = (job.nonce, job.counter)
            if lease in self._leases:
                raise PromiseBroken(f"lease {lease} of seq {job.seq} was given before")
            self._leases.add(lease)
            if job.seq in self.done:
                raise PromiseBroken(f"seq {job.seq} was acked, and is handed out again")
            held = self.held.get(job.seq)
            if held is not None and held.deadline >= job.deadline - lease_ms:
                raise PromiseBroken(f"seq {job.seq} is leased to {node!r}, and still is to {held}")
            self._tell(_Told(job.seq, Held(node, lease, job.deadline), place))

    def settled(self, command: Settle | Release, reply: JobsSettled, asked_ms: int, place: Place) -> None:
        """Only who has the live lease of a job is believed."""
        meant = dict(zip(command.seqs, command.leases or [None] * len(command.seqs), strict=True))
        self._asked.difference_update(meant)
        for seq in reply.seqs:
            held, lease = self.held.get(seq), meant[seq]
            known = held is not None and held.deadline >= asked_ms
            if held is None:
                held = self._perhaps.get(seq)
                known = held is not None  # until when, the crash knows
            known = known and held is not None and lease in (None, held.lease)
            if not known or (isinstance(command, Settle) and held is not None and held.node != command.node):
                raise PromiseBroken(f"{command!r:.200} counted for seq {seq}, whose last lease is {held}")
            assert held is not None
            if isinstance(command, Extend):
                assert reply.deadline is not None
                self._tell(_Told(seq, attrs.evolve(held, deadline=reply.deadline), place))
            else:
                self._tell(_Told(seq, None, place, done=isinstance(command, Ack)))
        if sorted({*reply.seqs, *reply.skipped}) != sorted(meant):
            raise PromiseBroken(f"{command!r:.200}, and the answer has {reply!r:.200}")

    def may_be_gone(self, seq: int) -> bool:
        """Whether somebody has asked for its end."""
        return seq in self._perhaps_done or bool(self._purges) or seq <= self._purged_upto

    # Restarts.

    def void(self, shard: int, kept: int) -> None:
        """A crash left so many writes of a shard: what was told of later ones never was."""
        told = [one for one in self._told if one.place[0] != shard or one.place[1] <= kept]
        self.held, self.done, self._told = {}, set(), []
        for one in told:
            self._tell(one)
        for seq in self._asked & self.held.keys():
            self._perhaps[seq] = self.held.pop(seq)
        self._asked.clear()

    def restarted(self, *, leases_end: bool, head_seq: int) -> None:
        """A recovery is complete, and all that is left is durable."""
        if self._purges:
            self._purged_upto = head_seq
            self._purges.clear()
        if leases_end:
            self.held.clear()
            self._perhaps.clear()
        self._told = [_Told(seq, held, DURABLE) for seq, held in self.held.items()]
        self._told += [_Told(seq, None, DURABLE, done=True) for seq in self.done]

    def _tell(self, one: _Told) -> None:
        self._told.append(one)
        self._perhaps.pop(one.seq, None)
        if one.held is not None:
            self.held[one.seq] = one.held
            return
        self.held.pop(one.seq, None)
        if one.done:
            self.done.add(one.seq)
