"""World through the front door: the real runtime and data plane over the simulated disk, and clients that speak HTTP.

Theory. One Trio run in virtual time, its order of tasks drawn from the seed, holds the whole server: connections are
byte streams in memory, blocking calls run on the loop when the seed says (`beneath`). The ledger sees each promise as
it is made; what a client reads off the wire must be one of them. A round ends in a crash at a disk call, in the death
of process or machine in the middle of anything, or in a drain, behind which nothing may be left: no request, no waiting
reader, no held byte, no reservation. Then the next round recovers, as in `World`. Watchers live through all rounds; in
a last one, in which nothing is written, each comes to the heads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from typing import Final, cast

import attrs
import trio

from topics.embed.aio.runtime import Runtime
from topics.engine.commands import Append, Claim, Settle
from topics.engine.replies import JobsClaimed, JobsSettled
from topics.engine.tickets import Stage, Ticket
from topics.host.directory.layout import path_of
from topics.host.segments.reading import ExtentReader
from topics.kernel.errors import Fatal, Rejected
from topics.kernel.ports import Disk
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.frames import Extent, assemble
from topics.server.api.resources.state import SiteOptions
from topics.server.api.table import route_table
from topics.server.wire.connection import WireConnection
from topics.server.wire.patience import WireOptions
from topics.simulation.background.checkpoint import choose_work
from topics.simulation.clients.client import SimulatedClient
from topics.simulation.clients.http_messages import SimulatedRequest, SimulatedResponse
from topics.simulation.clients.wire_claims import WireClaims
from topics.simulation.machine import COLD_FOLDER
from topics.simulation.memory_port import MemoryPort
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.job_workload import JobWorkload
from topics.simulation.queues.queue_history import check_queue_history
from topics.simulation.queues.waiting_claims import check_waiting
from topics.simulation.queues.wire_jobs import OverheardEdge, WireJobs
from topics.simulation.scheduling import LoopClock, innermost, run_seeded
from topics.simulation.simulated_threads import Doubtful, SeededThreads, SteadySite, watch_claims, watched
from topics.simulation.watches.simulated_watcher import SimulatedWatcher
from topics.simulation.watches.wire_watches import WireWatches
from topics.simulation.workload import Workload
from topics.simulation.world import World, WorldReport
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import CAPACITY, SimDisk
from topics.testing.streams import MemoryEdge, edge_pair

_WIRE: Final = WireOptions(head_s=2.0, idle_s=4.0, grace_s=2.0, byte_rate=1 << 20, now_s=lambda: 0.0)
_DRAIN_S: Final = 10.0
_CLIENTS: Final = 7
_TIDY: Final = 0.4
_SERVED: Final[ContextVar[OverheardEdge | None]] = ContextVar("_SERVED", default=None)  # of a task


class ServedWorld(World):
    """One run. `runtime`, `site`: the types that are served (for planting faults that the checkers must find)."""

    runtime: Runtime
    site: SteadySite
    _server: trio.Nursery
    _port: MemoryPort

    def __init__(
        self, seed: int, *, rounds: int = 5, visits: int = 5, port: Callable[[SimDisk], Disk] | None = None,
        runtime: type[Runtime] = Runtime, site: type[SteadySite] = SteadySite,
        asking: type[Workload] = Workload, watchers: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed, rounds=rounds, port=port, asking=asking)
        self.clock = LoopClock()
        self.wire = WireClaims(self.ledger)
        self.wire_jobs = WireJobs(self.ledger)
        self._askers: dict[int, OverheardEdge | None] = {}  # of claims, by ticket
        self.visits = visits
        self._runtime_type, self._site_type = runtime, site
        self._dead = False
        self._broken: PromiseBroken | None = None
        self._life = trio.CancelScope()
        self._one_less = trio.Event()
        self._open_connections: dict[MemoryEdge, WireConnection] = {}
        self.wire_watches = WireWatches()
        self.watchers = [SimulatedWatcher(self, self.wire_watches) for _ in range(watchers)]

    def run(self) -> WorldReport:
        """All rounds. Raises what broke, out of the groups of the tasks around it."""
        try:
            return run_seeded(self._run_rounds, self.seed)
        except BaseExceptionGroup as group:
            raise innermost(group) from group

    async def _run_rounds(self) -> WorldReport:
        try:
            for number in range(self._rounds):
                self._note(f"round {number}")
                self._open()
                end = self.random.choices(("crash", "kill", "drain", "quiet"), (40, 15, 25, 20))[0]
                await self._serve_round(end)
                self.disk.heal()
                self.disk.free = CAPACITY
                self._crash()
            while self.watchers and not self.counts["watched to heads"]:
                self._open()  # which may leave a crash behind for the life that follows
                await self._serve_round("watched")
                self._crash()
            self._open()
            self._read_everything()
            check_queue_history(self.disk)
        except Exception as error:
            tail = "\n".join(list(self.lines)[-60:])
            error.add_note(
                f"ServedWorld(seed={self.seed}, rounds={self._rounds}, visits={self.visits})\n{tail}"
            )
            raise
        return WorldReport(seed=self.seed, trace=self._trace.hexdigest(), counts=dict(self.counts))

    # A round.

    async def _serve_round(self, end: str) -> None:
        """Serve clients until the round's end, whichever it is."""
        self._note(f"served until {end}")
        assert self.opened is not None
        self.opened = watched(self.opened, self)
        self._dead, self._life = False, trio.CancelScope()
        for wire in (self.wire, self.wire_jobs, self.wire_watches):
            wire.begin()
        self._askers.clear()
        threads = SeededThreads(self.random, self._die)
        doubtful = cast(ExtentReader, Doubtful(self.opened.reader, self.random))
        self.runtime = self._runtime_type(attrs.evolve(self.opened, reader=doubtful), threads=threads)
        watch_claims(self.runtime.claims, lambda ticket: self._askers.update({id(ticket): _SERVED.get()}))
        options = SiteOptions(limits=self._options.limits, entropy=self.entropy)
        self.site = self._site_type(route_table(), options)
        if end == "crash":
            self.disk.crash_at(self.random.randrange(80), self.random.choice(list(Landed)))
        try:
            with self._life:
                await self._live(end)
        except* SimCrash:
            self._dead = True  # in a call on the loop, which told nobody
        if self._dead:
            self._tell_the_end()
        self._check_end(clean=not self._dead)
        if not self._dead:
            self.counts["clean ends"] += 1
            self._check_clean()
        else:
            self.counts["crashed while serving"] += 1

    async def _live(self, end: str) -> None:
        async with self.runtime.running(), trio.open_nursery() as beneath:
            self.site.begin(self.runtime)
            beneath.start_soon(self.site.wheel.run)
            self._port = MemoryPort(self.site, beneath, cast(Callable[[MemoryEdge], object], _SERVED.set))
            async with trio.open_nursery() as self._server:
                if end == "watched":
                    await self._watch_to_heads()
                else:
                    await self._serve_clients(end)
                if not self.site.draining:
                    await self._let_go()
            beneath.cancel_scope.cancel()

    async def _serve_clients(self, end: str) -> None:
        async with trio.open_nursery() as around:
            for watcher in self.watchers:
                around.start_soon(watcher.run)
            around.start_soon(self._weather)
            if self.random.random() < _TIDY:
                around.start_soon(self._tidy)
            if end == "kill":
                around.start_soon(self._after_a_while, self._kill)
            elif end == "drain":
                around.start_soon(self._after_a_while, self._let_go)
            async with trio.open_nursery() as clients:
                for _ in range(_CLIENTS):
                    clients.start_soon(SimulatedClient(self).run)
            around.cancel_scope.cancel()

    async def _watch_to_heads(self) -> None:
        """Nothing is written any more: each watcher has come to the same end."""
        async with trio.open_nursery() as watching:
            for watcher in self.watchers:
                watching.start_soon(watcher.run_to_heads)
        states = [self.engine.topic_state(name) for name in self.engine.names()]
        for watcher in self.watchers:
            watcher.check_at(states)
            self.counts += watcher.history.counts
        self.counts["watched to heads"] += 1

    async def _weather(self) -> None:
        """Time that jumps, errors of the disk, a disk that fills."""
        while True:
            await trio.sleep(self.random.choice((0.01, 0.05, 0.3)))
            with self._checking():
                check_waiting(self.engine, [ticket for ticket, _, _ in self.asked.values()])
            kind = self.random.choices(("time", "fault", "space", "nothing"), (10, 1.5, 2, 20))[0]
            if kind == "time":
                self._pass_time()
            elif kind == "fault":
                self._inject()
            elif kind == "space":
                self.disk.free = self.random.choice((0, CAPACITY, CAPACITY))

    async def _tidy(self) -> None:
        """Background work far more often than once a second, so that reads and writes meet all of it."""
        assert self.opened is not None
        compactor, checkpointer = self.runtime.compactor, self.opened.checkpointer
        assert compactor is not None
        assert checkpointer is not None
        while True:
            await trio.sleep(self.random.choice((0.001, 0.01, 0.05)))
            with suppress(Rejected, Fatal):
                await compactor.carry_out(partial(choose_work, checkpointer, self.random))

    async def _after_a_while(self, act: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(self.random.choice((0.005, 0.05, 0.2, 1.0)))
        await act()

    async def _kill(self) -> None:
        """SIGKILL, or the plug is pulled: from here on nothing reaches the disk."""
        self._note("killed")
        self.disk.crash_at(0, Landed.NONE)
        self._die()

    def _die(self) -> None:
        self._dead = True
        self._life.cancel()

    def _tell_the_end(self) -> None:
        """For what was begun no task waits, so the end of all tasks says nothing of it."""
        for ticket, _, _ in list(self.asked.values()):
            if ticket.waiter is not None and ticket.stage is Stage.PENDING:
                ticket.error = Fatal("the process has died")
                ticket.move(Stage.DONE)
                ticket.waiter()

    async def _let_go(self) -> None:
        """As the listener does it: idle connections end, busy ones behind their answer, the rest by force."""
        self._note("drain")
        self.site.draining = True
        for connection in list(self._open_connections.values()):
            connection.end_if_idle()
        with trio.move_on_after(_DRAIN_S):
            while self._open_connections:
                await self._one_less.wait()
        for edge in list(self._open_connections):
            edge.close()
            self.counts["connections closed by force"] += 1

    # What clients find.

    def connect(self) -> MemoryEdge | None:
        """A new connection; None if nobody listens any more."""
        if self.site.draining:
            return None
        ours, theirs = edge_pair(self.random.choice((64, 1024, 1 << 16)))
        self._server.start_soon(self._serve, OverheardEdge(theirs))
        return ours

    async def _serve(self, edge: OverheardEdge) -> None:
        opened = partial(self._open_connections.__setitem__, edge)
        try:
            await self._port.serve(edge, is_told=self.seed % 3 > 0, opened=opened, options=_WIRE)
        finally:
            del self._open_connections[edge]
            self._one_less.set()
            self._one_less = trio.Event()
            if not self._dead and not self.disk.down:  # the task that met the crash has told nobody yet
                with self._checking():
                    self.wire_jobs.ended(edge, self.engine.now_ms())

    def heard(self, request: SimulatedRequest, response: SimulatedResponse) -> None:
        """A client has read a whole answer."""
        self._note(f"heard {response.text[:200]!r}")
        self.counts["heard"] += 1
        self.counts[f"status {response.status}"] += 1
        if self._dead:
            return
        self.wire.answered(request, response)
        command = request.command
        if isinstance(command, Claim) and response.status == 200 and "claimed" in response.fields:
            assert isinstance(self.workload, JobWorkload)
            for node, seq, lease in self.wire_jobs.heard_claimed(command, response):
                self.workload.leased(command.topic, node, seq, lease)
        elif isinstance(command, Settle) and response.status == 200:
            self.wire_jobs.heard_settled(command, response.fields)

    def epoch_of(self, name: str) -> int:
        try:
            return self.engine.topic_state(name).epoch
        except Rejected:
            return 1

    # What the engine tells (`beneath.Watcher`).

    def asked_for(self, ticket: Ticket, asked_ms: int, acked: Sequence[int]) -> None:
        self._note(f"proposed {type(ticket.command).__name__} sync={ticket.sync}")
        self.asked[id(ticket)] = (ticket, asked_ms, list(acked))
        self.ledger.looked(self.engine)

    def ended(self, tickets: Sequence[Ticket]) -> None:
        if self._dead:
            return
        with self._checking():
            self.ledger.looked(self.engine)
            for ticket in tickets:
                self._end(ticket)

    def _end(self, ticket: Ticket) -> None:
        _, asked_ms, acked = self.asked.pop(id(ticket), (ticket, 0, []))
        edge = self._askers.pop(id(ticket), None)
        if ticket.error is not None:
            self.ledger.ended_badly(ticket)
            return
        self._note(f"answered {ticket.result()!r:.160}")
        self.counts["answers"] += 1
        self.ledger.answered(self.engine, ticket, acked, asked_ms=asked_ms)
        command, reply = ticket.command, ticket.result()
        if isinstance(command, Append) and not command.moved:
            self.wire.told(command, reply)
        elif isinstance(command, Claim) and isinstance(reply, JobsClaimed):
            self.wire_jobs.granted(command, reply, edge)
        elif isinstance(command, Settle) and isinstance(reply, JobsSettled):
            self.wire_jobs.settled(command, reply)

    def planned(self, query: DiffQuery, plan: DiffPlan) -> None:
        """A page is decided: at this instant it is held against everything that was promised."""
        if self._dead:
            return
        views = assemble(plan, [self._look_at(extent) for extent in plan.extents])
        state = self.engine.topic_state(query.topic)
        with self._checking():
            self.ledger.read(self.engine, query, plan, views, state)
        self.wire.planned(plan, views)
        self.wire_watches.planned(query, plan, views)
        self.counts["pages"] += 1

    @contextmanager
    def _checking(self) -> Iterator[None]:
        """A broken promise is kept: the server takes it for a bug of its own, and goes on."""
        try:
            yield
        except PromiseBroken as violation:
            self._broken = self._broken or violation
            raise

    def _look_at(self, extent: Extent) -> bytes:
        source = extent.source
        if isinstance(source, bytes):
            return source[extent.offset : extent.offset + extent.size]
        path = path_of(source)
        if self.disk.inode(path) is None:
            path = f"{COLD_FOLDER}/{path}"  # the tidying moves segments there
        return self.disk.content(path)[extent.offset : extent.offset + extent.size]

    # Ends.

    def _check_end(self, *, clean: bool) -> None:
        """Nothing is left of the requests, however the round ended."""
        if self._broken is not None:
            raise self._broken
        left = {
            "requests in flight": self.runtime.in_flight,
            "waiting readers": self.runtime.hub.readers + self.runtime.hub.topics,
            "held bytes": self.site.held_bytes + self.site.unsent_bytes,
            "connections": len(self._open_connections),
            "bugs": self.site.bugs,
        }
        if any(left.values()):
            raise PromiseBroken(f"left behind at the end of a round (clean: {clean}): {left}")

    def _check_clean(self) -> None:
        """A drain leaves nothing in memory that is not on the disk, and no reservation."""
        engine, opened = self.engine, self.opened
        assert opened is not None
        if any(writer.failed is not None for writer in opened.writers):
            return
        for shard, log in enumerate(self.ledger.logs):
            if log.durable(self.ledger.watch) != len(log.units):
                raise PromiseBroken(f"shard {shard} is closed, and a power cut now would take some of it")
            if not engine.rested(shard, 0):  # else every call has checked that nothing is reserved (verify)
                raise PromiseBroken(f"shard {shard} is closed, and something waits to be written")
        self.ledger.quiet(engine)

    def heads(self) -> dict[str, int]:
        """What clients may know."""
        heads = {}
        for name in self.engine.names():
            with suppress(Rejected):
                heads[name] = self.engine.topic_state(name).head_seq
        return heads
