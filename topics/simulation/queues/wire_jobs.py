"""What workers were told of jobs over the wire, held against what the engine had promised before it was sent.

`JobClaims` checks a promise at the instant it is made. Here: a lease that crosses the wire is one that was given, told
once, with the job as it was put; an answer to an ack, a nack or an extend is the engine's to that very command; and
when a connection ends, whatever was leased for it and never sent on it, or was pushed, is given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import msgspec

from topics.engine.commands import Claim, Settle
from topics.engine.replies import JobsClaimed, JobsSettled, LeasedJob
from topics.kernel.ids import Lease
from topics.simulation.clients.http_messages import SimulatedResponse
from topics.simulation.ledger import Ledger
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.job_requests import SETTLEMENTS, lease_in, lease_text
from topics.testing.streams import MemoryEdge


class OverheardEdge(MemoryEdge):
    """An end of the server's. `sent`: what it has sent."""

    def __init__(self, edge: MemoryEdge) -> None:
        self.__dict__ = edge.__dict__
        self.sent = bytearray()

    def _send(self, data: bytes | memoryview) -> int:
        count = super()._send(data)
        self.sent += data[:count]
        return count


@attrs.frozen
class _Grant:
    """A lease. `edge`: the connection for which it was given."""

    command: Claim
    topic_id: int
    job: LeasedJob
    edge: OverheardEdge | None


class _WireJob(msgspec.Struct, rename={"seq": "$seq"}):
    seq: int
    data: msgspec.Raw
    lease_id: str
    deadline: int
    deliveries: int
    priority: int = 0


class WireJobs:
    """Of one server's life; `begin` starts the next."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._granted: dict[Lease, _Grant] = {}
        self._heard: set[Lease] = set()
        self._settled: dict[object, list[JobsSettled]] = {}
        self._gone: list[OverheardEdge] = []  # connections that have ended

    def begin(self) -> None:
        self._granted.clear()
        self._heard.clear()
        self._settled.clear()
        self._gone.clear()

    # What the engine has promised.

    def granted(self, command: Claim, reply: JobsClaimed, edge: OverheardEdge | None) -> None:
        for job in reply.jobs:
            lease = job.nonce, job.counter
            self._granted[lease] = _Grant(command, reply.topic_id, job, edge)

    def settled(self, command: Settle, reply: JobsSettled) -> None:
        self._settled.setdefault(_said(command), []).append(reply)

    # What came over the wire.

    def heard_claimed(
        self, command: Claim, response: SimulatedResponse
    ) -> Sequence[tuple[bytes, int, Lease]]:
        """The leases that a worker has from now on: (its name, seq, lease)."""
        heard = []
        fields = msgspec.json.decode(response.text[4:], type=dict[str, msgspec.Raw])
        entries = msgspec.json.decode(fields["claimed"], type=list[_WireJob])
        if response.fields["count"] != len(entries) or response.fields["ready"] < 0:
            raise PromiseBroken(f"counts of {len(entries)} jobs: {response.text[:300]!r}")
        for entry in entries:
            lease = lease_in(entry.lease_id)
            grant = self._granted.get(lease)
            if grant is None or not _answers(grant.command, command):
                raise PromiseBroken(f"{command!r:.200} was given {entry!r:.200}, and the lease is {grant}")
            job = LeasedJob(entry.seq, *lease, entry.deadline, entry.deliveries, entry.priority)
            if job != grant.job:
                raise PromiseBroken(f"the wire says {job}, and the engine has given {grant.job}")
            if lease in self._heard:
                raise PromiseBroken(f"{job} was told twice")
            self._heard.add(lease)
            claims = self._ledger.claims.get(grant.topic_id)
            told = None if claims is None else claims.acked.get(entry.seq)
            if told is not None and told.data != bytes(entry.data):
                raise PromiseBroken(f"{job} was put as {told.data!r}, and comes as {bytes(entry.data)!r}")
            heard.append((grant.command.node, entry.seq, lease))
        return heard

    def heard_settled(self, command: Settle, fields: dict[str, Any]) -> None:
        """One answer of the engine's to just this."""
        counted = fields[SETTLEMENTS[type(command)]]
        deadlines = fields.get("deadlines", {})
        for reply in self._settled.get(_said(command), ()):
            same = (list(reply.seqs), list(reply.skipped), reply.ready, reply.in_flight) == (
                counted, fields["skipped"], fields["ready"], fields["in_flight"]
            )  # fmt: skip
            if same and all(deadlines.get(str(seq)) == reply.deadline for seq in counted):
                return
        raise PromiseBroken(
            f"the wire says what the engine has not answered: {command!r:.200} {fields!r:.300}"
        )

    # Ends.

    def ended(self, edge: OverheardEdge, now_ms: int) -> None:
        """A connection has ended: of what was leased for it nobody has more than what came over the wire. Nor of what
        was on its way when others ended, and leased for them since then.
        """
        self._gone.append(edge)
        for lease, grant in self._granted.items():
            claims = self._ledger.claims.get(grant.topic_id)
            if claims is None or grant.edge not in self._gone:
                continue
            held = claims.jobs.held.get(grant.job.seq)
            if (
                held is None
                or held.lease != lease
                or held.deadline < now_ms
                or lease in claims.jobs.given_back
            ):
                continue
            if grant.command.told_end:
                raise PromiseBroken(f"a connection has ended, and keeps {held}, which it was pushed")
            if lease_text(lease).encode() not in grant.edge.sent:
                raise PromiseBroken(f"a connection has ended, and keeps {held}, which was never sent")


def _answers(given: Claim, asked: Claim) -> bool:
    """Whether jobs of a claim may come to who has asked for this. Of pushed ones a `work` may have come between."""
    pushed = given.told_end
    same = (given.topic, given.told_end) == (asked.topic, asked.told_end)
    return same and (pushed or (given.node, given.count_max) == (asked.node, asked.count_max))


def _said(command: Settle) -> object:
    leases = None if command.leases is None else tuple(command.leases)
    return type(command), command.topic, command.node, tuple(command.seqs), leases
