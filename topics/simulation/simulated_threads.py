"""What the server stands on in a simulated run: threads that are none, an engine and writers under watch, a site whose
answers are the same whenever they are made.

The runtime is the real one. Its blocking calls run on the loop, each at a moment drawn from the seed, whole; between
two of them everything else may happen. The engine's calls are told to the ledger as they are made, so that a promise
is checked at the very instant it is given, and not when the answer has crossed the wire.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

import attrs
import msgspec
import trio

from topics.embed.aio.claims import Claims
from topics.embed.aio.thread import Threads
from topics.engine.commands import Append, Claim, Command, DeleteRecords
from topics.engine.engine import Engine
from topics.engine.state import Effects
from topics.engine.tickets import Ticket
from topics.host.cold.cold_tier import ColdTier
from topics.host.segments.reading import ExtentReader
from topics.kernel.columns import RecordColumns
from topics.kernel.limits import INLINE_BYTES_MAX
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.frames import Extent
from topics.server.api.message import Answer, Peer
from topics.server.api.ops import OpCall
from topics.server.api.site import Admitted, Site
from topics.simulation.ledger import Ledger
from topics.simulation.shard_stepper import WatchedWriter
from topics.store.opened import Opened
from topics.testing.faults import SimCrash

T = TypeVar("T")
_PERFORMANCE: Final = re.compile(rb'"performance":\{[^}]*\}')
_DELAYS_S = (0.0, 0.0, 0.0002, 0.001, 0.004, 0.02)


class Observer(Protocol):
    """Who is told."""

    ledger: Ledger

    def asked_for(self, ticket: Ticket, asked_ms: int, acked: Sequence[int]) -> None: ...

    def ended(self, tickets: Sequence[Ticket]) -> None: ...

    def planned(self, query: DiffQuery, plan: DiffPlan) -> None: ...


class SeededThreads(Threads):
    """Each job at a moment of the seed's. `died` is called when one meets the end of the process or the machine."""

    def __init__(self, rng: random.Random, died: Callable[[], None]) -> None:
        # A write on the loop has its moment, too. In the run's own time it takes none: how busy this machine is must
        # not send the next ones to a thread.
        super().__init__(inline_bytes_max=rng.choice((0, INLINE_BYTES_MAX)), now_s=trio.current_time)
        self._random = rng
        self._died = died

    def dedicated(self, name: str) -> _Dedicated:
        return _Dedicated(self)

    async def run(self, job: Callable[[], T]) -> T:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await self.run_to_its_end(job)

    async def run_cold(self, job: Callable[[], T], *, limit_s: float) -> T:
        return await self.run(job)

    async def run_to_its_end(self, job: Callable[[], T]) -> T:
        with trio.CancelScope(shield=True):
            await trio.sleep(self._random.choice(_DELAYS_S))
            try:
                result = job()
            except SimCrash:
                self._died()
                raise
            await trio.sleep(self._random.choice(_DELAYS_S))
        return result


class _Dedicated:
    def __init__(self, threads: SeededThreads) -> None:
        self._threads = threads

    async def run(self, job: Callable[[], T]) -> T:
        """A failure of the disk comes as late as an end."""
        result = await self._threads.run_to_its_end(partial(_tried, job))
        if isinstance(result, OSError):
            raise result
        return result

    def close(self) -> None: ...


def _tried(job: Callable[[], T]) -> T | OSError:
    try:
        return job()
    except OSError as error:
        return error


class WatchedEngine(Engine):
    """The engine itself, its state shared; calls that clients cause are told to the watcher."""

    def __init__(self, engine: Engine, watcher: Observer) -> None:
        self.__dict__ = engine.__dict__
        self._watcher = watcher
        self._records: dict[
            int, RecordColumns
        ] = {}  # the runtime lets go of them; the watcher asks at the end

    def propose(self, command: Command, *, sync: bool = False, asks_room: bool = False) -> Ticket:
        watcher = self._watcher
        acked = watcher.ledger.asking(self, command) if isinstance(command, DeleteRecords) else []
        watcher.ledger.asking_of_jobs(self, command)
        asked_ms = self.now_ms()
        if isinstance(command, Append):  # the server lets go of the records of its own
            command = msgspec.structs.replace(command, records=copy.copy(command.records))
        ticket = super().propose(command, sync=sync, asks_room=asks_room)
        if isinstance(command, Append):
            self._records[id(ticket)] = copy.copy(command.records)
        watcher.asked_for(ticket, asked_ms, acked)
        return ticket

    def propose_all(self, tickets: Sequence[Ticket]) -> None:
        asked_ms = self.now_ms()
        for ticket in tickets:
            self._watcher.asked_for(ticket, asked_ms, ())
        super().propose_all(tickets)

    def take_effects(self) -> Effects:
        effects = super().take_effects()
        for ticket in effects.finished:
            if isinstance(ticket.command, Append):
                ticket.command = msgspec.structs.replace(
                    ticket.command, records=self._records.pop(id(ticket))
                )
        self._watcher.ended(effects.finished)
        return effects

    def plan_diff(self, query: DiffQuery) -> DiffPlan:
        plan = super().plan_diff(query)
        self._watcher.planned(query, plan)
        return plan


class WatchedClaims(Claims):
    """A runtime's claims, of which somebody is told while the task runs that claims."""

    began: Callable[[Ticket], None]

    def begin(self, command: Claim, ended: Callable[[Ticket], None]) -> Ticket:
        ticket = super().begin(command, ended)
        self.began(ticket)
        return ticket


def watch_claims(claims: Claims, began: Callable[[Ticket], None]) -> None:
    """They stay the object that all parts of the runtime have."""
    claims.__class__ = WatchedClaims
    assert isinstance(claims, WatchedClaims)
    claims.began = began


def watched(opened: Opened, watcher: Observer) -> Opened:
    """The same store, under watch."""
    engine = WatchedEngine(opened.engine, watcher)
    writers = [WatchedWriter(writer, watcher.ledger) for writer in opened.writers]
    for writer in writers:
        writer.engine = engine
    return attrs.evolve(opened, engine=engine, writers=writers)


@attrs.frozen
class Doubtful:
    """A reader that says of half of what is at hand in memory that it is not, so that both ways are gone."""

    reader: ExtentReader
    random: random.Random

    @property
    def cold(self) -> ColdTier | None:
        return self.reader.cold

    def is_cold(self, extent: Extent) -> bool:
        return self.reader.is_cold(extent)

    def read(self, extent: Extent) -> bytes:
        return self.reader.read(extent)

    def read_hot(self, extent: Extent) -> bytes:
        return self.reader.read_hot(extent)

    def nowait(self, extent: Extent) -> bytes | None:
        return None if self.random.random() < 0.5 else self.reader.nowait(extent)


class SteadySite(Site):
    """Its answers tell no time that the wall clock had a part in, so that a slow machine moves no byte on the wire."""

    async def answer(self, admitted: Admitted, body: bytes, peer: Peer) -> Answer:
        answer = await super().answer(admitted, body, peer)
        if isinstance(answer.body, bytes):
            answer.body = _PERFORMANCE.sub(b'"performance":{}', answer.body)
        return answer

    def message(self, call: OpCall) -> bytes:
        return _PERFORMANCE.sub(b'"performance":{}', super().message(call))
