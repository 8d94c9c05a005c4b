"""Jobs handed out by tasks: leased, their records fetched, and given back where nobody takes them (queues 3, 4)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec
import trio

from topics.calls.call import drive_async
from topics.codec.json_text import with_members
from topics.codec.log.frame import FrameView
from topics.embed.aio.claims import Claims
from topics.embed.aio.events import EventLog
from topics.embed.aio.fetch import NO_BOUND, AnswerRoom, Fetcher, Form
from topics.engine.commands import Ack, Claim, Extend, GiveUp, Nack, Release
from topics.engine.engine import Engine
from topics.engine.queue.control import JobView
from topics.engine.replies import JobsClaimed, JobsSettled, LeasedJob, Reply
from topics.engine.tickets import Ticket
from topics.kernel.ids import LEASE_ID
from topics.log.jobs.transitions import JobState
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.store.records import Found, first_records, size_of

T = TypeVar("T")
_Fetch: TypeAlias = Callable[[RecordsQuery], Awaitable[tuple[RecordsPlan, Sequence[T]]]]
_FORM: Final = Form(include_tags=True)
_LEASED: Final = (
    b'{"lease_id":"%b","deadline":%%d,"deliveries":%%d%%b,%%b' % LEASE_ID
)  # before the rest of its record
_PRIORITY: Final = b',"priority":%d'


class Submitter(Protocol):
    """Who carries commands out."""

    async def submit(self, command: Ack | Nack | Extend) -> Reply: ...


class ClaimedJobs(msgspec.Struct, frozen=True, eq=False):
    """Leased jobs with their entries as JSON objects, in claim order. `ready`: jobs left."""

    jobs: Sequence[LeasedJob]
    entries: Sequence[bytes]
    ready: int
    topic_id: int = 0


class JobDesk:
    """`draining`: nobody waits for jobs any longer."""

    def __init__(
        self, engine: Engine, fetcher: Fetcher, driver: Submitter, claims: Claims, log: EventLog
    ) -> None:
        self._engine = engine
        self._fetcher = fetcher
        self._driver = driver
        self._claims = claims
        self._log = log
        self._waits: set[trio.CancelScope] = set()
        self._begun: dict[Ticket, Callable[[Ticket], None]] = {}
        self.draining = False

    async def claim(
        self, command: Claim, room: AnswerRoom, *, until_s: float = math.inf
    ) -> ClaimedJobs | None:
        """Have jobs leased and fetch their records, which `room` holds from then on. What cannot be fetched is left
        out. None if the wait was ended, for all or at that time of Trio's. Whoever is cancelled has leased nothing.

        Raises:
            Rejected: topic_not_found, not_a_queue, storage_read_only, disk_low; throttled: nothing is leased either.
            Corrupt: the records cannot be read now; nothing is leased.
        """
        reply = await self._leased(command, until_s)
        if reply is None:
            return None
        return self.at_hand(reply, room) or await self.fetch(reply, room, bytes_max=command.bytes_max)

    def begin(self, command: Claim, told: Callable[[Ticket], None]) -> Callable[[], None]:
        """A claim for which no task waits. `told` is called once, with its ticket: it has ended, or it was withdrawn
        because nobody waits any longer. Then `at_hand` or `fetch` is due at once, or jobs are leased for nobody.

        Returns what to call if whoever asked has gone: nothing is claimed for him.

        Raises:
            Rejected: shutting_down.
        """
        ticket = self._claims.begin(command, self._ended)
        self._begun[ticket] = told
        if self.draining:
            self._end(ticket)
        return partial(self._leave, ticket)

    def at_hand(self, reply: JobsClaimed, room: AnswerRoom) -> ClaimedJobs | None:
        """The jobs that were leased with their records, which `room` holds from then on; None unless all of these are
        in memory, and whole.

        Raises:
            Rejected: topic_not_found, throttled; nothing is leased any longer.
        """
        try:
            texts = self._fetcher.texts_nowait(
                self._engine, _query(reply, self._engine), form=_FORM, room=room
            )
        except BaseException:
            self.release(reply.topic, reply.jobs, was_sent=False)
            raise
        return None if texts is None else _claimed(reply, texts)

    async def fetch(self, reply: JobsClaimed, room: AnswerRoom, *, bytes_max: int) -> ClaimedJobs:
        """As `at_hand`, wherever they are, as many of the first as so many bytes hold. What cannot be fetched is left
        out. Whoever is cancelled has nothing leased.

        Raises:
            Rejected: topic_not_found, throttled; nothing is leased any longer.
            Corrupt: the records cannot be read now; nor is it then.
        """
        try:
            seqs = [job.seq for job in reply.jobs]
            texts, left, damaged = await self._texts(reply.topic_id, seqs, room, bytes_max)
        except BaseException:
            self.release(reply.topic, reply.jobs, was_sent=False)
            raise
        self._end_others(reply, left, damaged)
        return _claimed(reply, texts)

    async def claim_records(self, command: Claim) -> Sequence[tuple[FrameView, LeasedJob]] | None:
        """As `claim`, for a caller whose memory nobody bounds: the records as they are stored, decompressed."""
        reply = await self._leased(command, math.inf)
        if reply is None:
            return None
        try:
            seqs = [job.seq for job in reply.jobs]
            views, left, damaged = await self._views(reply.topic_id, seqs, command.bytes_max)
        except BaseException:
            self.release(reply.topic, reply.jobs, was_sent=False)
            raise
        self._end_others(reply, left, damaged)
        return [(views[job.seq], job) for job in reply.jobs if job.seq in views]

    def release(self, topic: str, jobs: Iterable[LeasedJob], *, was_sent: bool) -> None:
        """Nobody has these jobs: they are ready again, and without `was_sent` nobody was ever given them. Where that
        cannot be logged, their leases end in their time.
        """
        self._claims.give_back(partial(Release, was_sent=was_sent), topic, jobs)

    def end_waits(self) -> None:
        """Nobody waits for jobs any longer."""
        self.draining = True
        for scope in self._waits:
            scope.cancel()
        for ticket in list(self._begun):
            self._end(ticket)

    async def wait(self, wait: Callable[[], Awaitable[T]], until_s: float) -> T | None:
        """What comes of it; None if that time of Trio's comes first, or nobody waits any longer."""
        with trio.CancelScope(deadline=-math.inf if self.draining else until_s) as scope:
            self._waits.add(scope)
            try:
                return await wait()
            finally:
                self._waits.discard(scope)
        return None

    async def settle(self, command: Ack | Nack | Extend) -> JobsSettled:
        """What a worker says of its jobs. Raises `Rejected`."""
        reply = await self._driver.submit(command)
        assert isinstance(reply, JobsSettled)
        return reply

    async def peek(
        self, topic: str, wanted: JobState | Sequence[int], limit: int, room: AnswerRoom, *, bytes_max: int
    ) -> Sequence[bytes]:
        """Jobs as they stand, each a JSON object, as many of the first as fit.

        Raises:
            Rejected: topic_not_found, not_a_queue, throttled.
        """
        jobs, topic_id = self._peeked(topic, wanted, limit)
        texts, _, _ = await self._texts(topic_id, [job.seq for job in jobs], room, bytes_max)
        return [with_members(texts[job.seq], _shown(job)) for job in jobs if job.seq in texts]

    async def peek_records(
        self, topic: str, wanted: JobState | Sequence[int], limit: int, *, bytes_max: int
    ) -> Sequence[tuple[FrameView, JobView]]:
        """As `peek`: the records as they are stored, decompressed."""
        jobs, topic_id = self._peeked(topic, wanted, limit)
        views, _, _ = await self._views(topic_id, [job.seq for job in jobs], bytes_max)
        return [(views[job.seq], job) for job in jobs if job.seq in views]

    # Inside.

    def _end_others(self, reply: JobsClaimed, left: Collection[int], damaged: Collection[int]) -> None:
        """Jobs whose records are damaged go to the dead letters; those for which there is no room are ready again."""
        if damaged:
            damaged_jobs = [job for job in reply.jobs if job.seq in damaged]
            self._claims.give_back(GiveUp, reply.topic, damaged_jobs)
        if left:
            self.release(reply.topic, [job for job in reply.jobs if job.seq in left], was_sent=False)

    def _ended(self, ticket: Ticket) -> None:
        self._begun.pop(ticket)(ticket)

    def _end(self, ticket: Ticket) -> None:
        """Nobody waits any longer."""
        if ticket in self._begun and self._claims.withdraw(ticket):
            self._ended(ticket)

    def _leave(self, ticket: Ticket) -> None:
        """Nobody is there to be told."""
        if self._begun.pop(ticket, None) is not None:
            self._claims.leave(ticket)

    async def _leased(self, command: Claim, until_s: float) -> JobsClaimed | None:
        return await self.wait(partial(self._claims.claim, command), until_s)

    def _peeked(
        self, topic: str, wanted: JobState | Sequence[int], limit: int
    ) -> tuple[Sequence[JobView], int]:
        jobs = self._engine.peek(topic, wanted, limit)
        found = self._engine.catalog.find(topic)
        assert found is not None
        return jobs, found.topic_id

    async def _texts(
        self, topic_id: int, seqs: Sequence[int], room: AnswerRoom, bytes_max: int
    ) -> Found[bytes]:
        """As `first_records`: JSON objects."""
        fetch = partial(self._fetcher.texts, self._engine, form=_FORM, room=room)
        return await self._pages(fetch, len, topic_id, seqs, bytes_max)

    async def _views(self, topic_id: int, seqs: Sequence[int], bytes_max: int) -> Found[FrameView]:
        """As `first_records`."""
        fetch = partial(self._fetcher.records, self._engine, room=NO_BOUND)
        return await self._pages(fetch, size_of, topic_id, seqs, bytes_max)

    async def _pages(
        self, fetch: _Fetch[T], size: Callable[[T], int], topic_id: int, seqs: Sequence[int], bytes_max: int
    ) -> Found[T]:
        steps = first_records(
            topic_id, seqs, bytes_max=bytes_max, page_bytes=self._engine.limits.page_bytes, size=size
        )

        async def read(query: RecordsQuery) -> tuple[RecordsPlan, Sequence[T]]:
            plan, records = await fetch(query)
            if plan.damaged:
                self._log.error("jobs.damaged", topic=plan.topic, seqs=plan.damaged[:100])
            return plan, records

        return await drive_async(steps, read)


def _query(reply: JobsClaimed, engine: Engine) -> RecordsQuery:
    """All records of a claim at once."""
    seqs = sorted([job.seq for job in reply.jobs])
    return RecordsQuery(topic_id=reply.topic_id, seqs=seqs, bytes_max=engine.limits.page_bytes)


def _claimed(reply: JobsClaimed, texts: Mapping[int, bytes]) -> ClaimedJobs:
    """The jobs of which there are texts."""
    jobs = reply.jobs
    if len(texts) < len(jobs):
        jobs = [job for job in jobs if job.seq in texts]
    entries = [
        _LEASED
        % (nonce, counter, deadline, deliveries, _PRIORITY % priority if priority else b"", texts[seq][1:])
        for seq, nonce, counter, deadline, deliveries, priority in jobs
    ]
    return ClaimedJobs(jobs, entries, reply.ready, reply.topic_id)


def _shown(job: JobView) -> bytes:
    """What a peek says of a job beside its record."""
    fields: dict[str, object] = {"state": job.state.name.lower(), "deliveries": job.deliveries}
    told = {
        "priority": job.priority, "reason": job.reason.decode(errors="replace"), "node": job.node.decode(),
        "deadline": job.deadline, "ready_at": job.ready_at,
    }  # fmt: skip
    return msgspec.json.encode(fields | {name: value for name, value in told.items() if value})[1:-1]
