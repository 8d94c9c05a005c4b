"""One simulated client: it comes, speaks as the seed says, well or badly, and goes, often too early."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Final, Protocol

import trio

from topics.kernel.ports import Clock
from topics.log.reads.diff import DiffQuery
from topics.simulation.clients.http_messages import (
    NONSENSE,
    SimulatedRequest,
    SimulatedResponse,
    Speaker,
    request_of,
    request_of_read,
)
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.job_requests import request_of_jobs
from topics.simulation.queues.job_workload import JobWorkload
from topics.simulation.queues.socket_speaker import SocketSpeaker
from topics.simulation.queues.socket_worker import SocketWorker
from topics.simulation.routers.router_requests import request_of_look, request_of_router
from topics.simulation.routers.router_workload import RouterWorkload
from topics.simulation.workload import Workload
from topics.testing.streams import MemoryEdge

_MANNERS: Final = (
    "polite",
    "pipelined",
    "in pieces",
    "leaves",
    "asks and leaves",
    "never reads",
    "nonsense",
    "stops",
    "works on a socket",
)
_ODDS: Final = (50, 15, 8, 6, 6, 3, 8, 2)
_SOCKETS: Final = 60  # where there are queues
_GOODBYE_S: Final = 60.0


class FrontDoor(Protocol):
    """What a client has of the world that it visits: a way in, what may be known, and somebody who hears its
    answers.
    """

    visits: int
    random: random.Random
    counts: Counter[str]
    workload: Workload

    @property
    def clock(self) -> Clock: ...
    def connect(self) -> MemoryEdge | None: ...
    def heads(self) -> dict[str, int]: ...
    def epoch_of(self, name: str) -> int: ...
    def heard(self, request: SimulatedRequest, response: SimulatedResponse) -> None: ...


class SimulatedClient:
    """Visits of one client, one connection each."""

    def __init__(self, world: FrontDoor) -> None:
        self._world = world
        self._random = world.random

    async def run(self) -> None:
        for _ in range(self._random.randrange(1, self._world.visits)):
            await trio.sleep(self._random.choice((0, 0.001, 0.02, 0.2)))
            edge = self._world.connect()
            if edge is None:
                return
            workload = self._world.workload
            sockets = _SOCKETS if isinstance(workload, JobWorkload) else 0
            manner = self._random.choices(_MANNERS, (*_ODDS, sockets))[0]
            self._world.counts[f"visits: {manner}"] += 1
            try:
                if manner == "works on a socket":
                    assert isinstance(workload, JobWorkload)
                    await SocketWorker(self._world, workload, SocketSpeaker(edge, self._random)).visit()
                else:
                    await self._visit(Speaker(edge, self._random), manner)
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                self._world.counts["connections broken off"] += 1
            finally:
                edge.close()

    async def _visit(self, speaker: Speaker, manner: str) -> None:
        if manner == "nonsense":
            await self._talk_nonsense(speaker)
            return
        wishes = [self._wish() for _ in range(self._random.randrange(1, 9))]
        if manner in ("polite", "in pieces"):
            for wish in wishes:
                await speaker.send(wish.encode(self._random), in_pieces=manner == "in pieces")
                if not await self._hear(speaker, wish):
                    return
        elif manner == "pipelined":
            await self._pipeline(speaker, wishes)
        elif manner == "never reads":
            with trio.move_on_after(_GOODBYE_S):
                for wish in wishes * 3:
                    await speaker.send(wish.encode(self._random))
                await trio.sleep(_GOODBYE_S)
        else:
            await self._leave_early(speaker, wishes[0], manner)

    async def _pipeline(self, speaker: Speaker, wishes: list[SimulatedRequest]) -> None:
        async def send_all() -> None:
            try:
                await speaker.send(b"".join(wish.encode(self._random) for wish in wishes))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_all)
            with suppress(trio.BrokenResourceError):
                for wish in wishes:
                    if not await self._hear(speaker, wish):
                        break
            nursery.cancel_scope.cancel()

    async def _leave_early(self, speaker: Speaker, wish: SimulatedRequest, manner: str) -> None:
        data = wish.encode(self._random)
        if manner == "asks and leaves":
            await speaker.send(data)
            await trio.sleep(self._random.choice((0, 0.001, 0.01)))
            return
        await speaker.send(data[: self._random.randrange(1, len(data))])
        if manner == "stops":  # and is told so, or just let go
            response = await speaker.answer()
            if response is not None and response.status not in (400, 408, 503):
                raise PromiseBroken(f"half a request was answered {response.text[:300]!r}")
        else:
            await trio.sleep(self._random.choice((0, 0.001, 0.01)))

    async def _talk_nonsense(self, speaker: Speaker) -> None:
        data, status = self._random.choice(NONSENSE)
        await speaker.send(data, in_pieces=self._random.random() < 0.3)
        response = await speaker.answer()
        if response is not None and response.status not in (status, 503):
            raise PromiseBroken(f"{data!r} is worth {status}, and was answered {response.text[:300]!r}")

    async def _hear(self, speaker: Speaker, wish: SimulatedRequest) -> bool:
        """The answer to a wish, checked. False if no other can come."""
        response = await speaker.answer()
        if response is None:
            return False
        self._world.heard(wish, response)
        return not response.closes

    # Wishes.

    def _wish(self) -> SimulatedRequest:
        world = self._world
        heads = world.heads()
        if (request := world.workload.request(heads)) is not None:
            return request
        if self._random.random() < 0.45:
            return self._reading(heads)
        while True:
            command = world.workload.command(heads)
            request = request_of(command) or request_of_jobs(command) or request_of_router(command)
            if request is not None:
                return request

    def _reading(self, heads: dict[str, int]) -> SimulatedRequest:
        rng, world = self._random, self._world
        name = rng.choice(world.workload.names)
        if isinstance(world.workload, RouterWorkload) and rng.random() < 0.1:
            return request_of_look(rng.choice(world.workload.routers))
        kind = rng.choices(("diff", "state", "list"), (80, 12, 8))[0]
        if kind == "state":
            return SimulatedRequest(
                method=b"GET", path=f"/v0/topics/{name}".encode(), good=frozenset((200, 404))
            )
        if kind == "list":
            return SimulatedRequest(method=b"GET", path=b"/v0/topics?page_size=3", good=frozenset((200,)))
        epoch = world.epoch_of(name)
        query = world.workload.query(name, heads.get(name, 0), epoch)
        from_ts = None
        if rng.random() < 0.15:
            from_ts = max(0, world.clock.now_ms() - rng.choice((0, 10, 1000, 100_000)))
            query = _from_the_start(query)
        return request_of_read(query, wait_ms=rng.choice((0, 0, 0, 30, 2000)), from_ts=from_ts)


def _from_the_start(query: DiffQuery) -> DiffQuery:
    return DiffQuery(
        topic=query.topic, limit=query.limit, nodes=query.nodes, match=query.match, bytes_max=query.bytes_max,
        epoch=query.epoch,
    )  # fmt: skip
