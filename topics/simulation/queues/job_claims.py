"""What workers were told of the jobs of a queue, and whether it still holds. Knows commands and replies only.

Events are kept in the order in which they were told, with how much of the log must survive for each to hold. What a
crash takes is forgotten; what is left says who has which job, and what is done for good (queues 2, 5).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import attrs

from topics.engine.commands import Ack, Claim, Extend, Purge, Redrive, Release, Settle
from topics.engine.replies import JobsClaimed, JobsSettled, LeasedJob
from topics.kernel.config import TopicConfig
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
class PutJob:
    """A job as it was put: not to be handed out before `due_ms`."""

    key: bytes
    due_ms: int


@attrs.frozen
class _ToldClaim:
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
        self._perhaps_at_restart: dict[int, Held] = {}
        self._asked: dict[int, Settle | Release] = {}  # and not answered, by identity
        self._leases: set[Lease] = set()
        self._told: list[_ToldClaim] = []
        self._put: dict[int, PutJob] = {}
        self._moved: set[int] = set()  # on their way to another topic, or there
        self._may_move = False  # without a word of it beforehand
        self.given_back: set[Lease] = set()  # or it was tried

    def put(self, seq: int, job: PutJob) -> None:
        """It was acknowledged."""
        self._put[seq] = job

    def asking(self, command: Settle | Release | Redrive) -> None:
        """From now on its jobs may be done, or somebody else's; which of it is known when it is answered."""
        if isinstance(command, Redrive):
            self._may_move = True
            return
        self._asked[id(command)] = command
        if isinstance(command, Ack):
            self._perhaps_done.update(command.seqs)
        if isinstance(command, Release):
            self.given_back.update(command.leases)

    def moving(self, seq: int, now_ms: int) -> None:
        """It is being written to another topic, for which its intent is durable: nobody is handed it again."""
        if seq in self.done:
            raise PromiseBroken(f"seq {seq} was acked, and goes to another topic")
        held = self.held.get(seq)
        if held is not None and held.deadline >= now_ms and held.lease not in self.given_back:
            raise PromiseBroken(f"seq {seq} goes to another topic, and is leased to {held}")
        self._moved.add(seq)

    def purging(self, command: Purge) -> None:
        """From now on whatever nobody has may be gone, and all that comes before it is answered."""
        self._purges.add(id(command))

    def purged(self, command: Purge, head_seq: int) -> None:
        self._purges.discard(id(command))
        self._purged_upto = max(self._purged_upto, head_seq)

    def claimed(self, command: Claim, reply: JobsClaimed, config: TopicConfig, place: Place) -> None:
        """One live lease a job, none of what is done, and no lease twice."""
        lease_ms = command.lease_ms or config.lease_ms
        self._may_move = self._may_move or bool(config.max_deliveries)
        if len(reply.jobs) > command.count_max:
            raise PromiseBroken(f"{command!r:.200} is answered by {reply!r:.200}")
        for job in reply.jobs:
            lease, granted_ms = (job.nonce, job.counter), job.deadline - lease_ms
            if lease in self._leases:
                raise PromiseBroken(f"lease {lease} of seq {job.seq} was given before")
            self._leases.add(lease)
            if job.seq in self.done or job.seq in self._moved:
                raise PromiseBroken(f"seq {job.seq} was acked or has gone elsewhere, and is handed out again")
            held = self.held.get(job.seq)
            if held is not None and held.deadline >= granted_ms:
                raise PromiseBroken(f"seq {job.seq} is leased to {command.node!r}, and still is to {held}")
            self._check_turn(job, granted_ms, config)
            self._tell(_ToldClaim(job.seq, Held(command.node, lease, job.deadline), place))

    def _check_turn(self, job: LeasedJob, granted_ms: int, config: TopicConfig) -> None:
        """It is due, its queue does not give it up by now, and of its key no more are leased than may be."""
        if config.max_deliveries and config.dead_letter and job.deliveries > config.max_deliveries:
            raise PromiseBroken(f"{job!r} is delivered more often than {config.max_deliveries} times")
        put, cap = self._put.get(job.seq), config.max_in_flight_per_key
        if put is None:
            return
        if put.due_ms > granted_ms:
            raise PromiseBroken(f"{job!r} is leased at {granted_ms}, and was put for {put.due_ms}")
        if not cap or not put.key:
            return
        of_key = {seq: other for seq, other in self._put.items() if other.key == put.key and seq != job.seq}
        leased = [seq for seq in of_key if seq in self.held and self.held[seq].deadline >= granted_ms]
        if len(leased) >= cap:
            raise PromiseBroken(f"{job!r} is leased, and of its key {put.key!r} so were {leased}")
        for seq, other in of_key.items() if cap == 1 and not self._may_move else ():
            if (
                seq < job.seq
                and other.due_ms <= granted_ms
                and seq not in self.done
                and not self.may_be_gone(seq)
            ):
                raise PromiseBroken(f"{job!r} is leased before seq {seq} of the same key {put.key!r}")

    def settled(self, command: Settle | Release, reply: JobsSettled, asked_ms: int, place: Place) -> None:
        """Only who has the live lease of a job is believed."""
        meant = dict(zip(command.seqs, command.leases or [None] * len(command.seqs), strict=True))
        self._asked.pop(id(command), None)
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
                self._tell(_ToldClaim(seq, attrs.evolve(held, deadline=reply.deadline), place))
            else:
                self._tell(_ToldClaim(seq, None, place, done=isinstance(command, Ack)))
        if sorted({*reply.seqs, *reply.skipped}) != sorted(meant):
            raise PromiseBroken(f"{command!r:.200}, and the answer has {reply!r:.200}")

    def may_be_gone(self, seq: int) -> bool:
        """Whether somebody has asked for its end."""
        return (
            seq in self._perhaps_done or seq in self._moved or bool(self._purges) or seq <= self._purged_upto
        )

    # Restarts.

    def void(self, shard: int, kept: int) -> None:
        """A crash left so many writes of a shard: what was told of later ones never was."""
        told = [one for one in self._told if one.place[0] != shard or one.place[1] <= kept]
        self.held, self.done, self._told = {}, set(), []
        self._perhaps = dict(self._perhaps_at_restart)  # what ended one since then may have gone, too
        for one in told:
            self._tell(one)
        asked = {seq for command in self._asked.values() for seq in command.seqs}
        for seq in asked & self.held.keys():
            self._perhaps[seq] = self.held.pop(seq)

    def restarted(self, *, leases_end: bool, head_seq: int, acked: Container[int]) -> None:
        """A recovery is complete, and all that is left is durable. `acked`: jobs that were put, and are not lost."""
        self._put = {seq: job for seq, job in self._put.items() if seq in acked}
        if self._purges:
            self._purged_upto = head_seq
            self._purges.clear()
        if leases_end:
            self.held.clear()
            self._perhaps.clear()
        self._perhaps_at_restart = dict(self._perhaps)
        self._asked.clear()
        self._told = [_ToldClaim(seq, held, DURABLE) for seq, held in self.held.items()]
        self._told += [_ToldClaim(seq, None, DURABLE, done=True) for seq in self.done]

    def _tell(self, one: _ToldClaim) -> None:
        self._told.append(one)
        self._perhaps.pop(one.seq, None)
        if one.held is not None:
            self.held[one.seq] = one.held
            return
        self.held.pop(one.seq, None)
        if one.done:
            self.done.add(one.seq)
