"""A worker on a WebSocket: it has jobs pushed, claims, settles, answers late, and goes, well or badly."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Final, Protocol

import msgspec
import trio

from topics.engine.commands import Claim, Command
from topics.simulation.clients.http_messages import SimulatedRequest, SimulatedResponse, fields_of
from topics.simulation.oracle import PromiseBroken
from topics.simulation.queues.job_requests import message_of_jobs
from topics.simulation.queues.job_workload import LETTERS, JobWorkload
from topics.simulation.queues.socket_speaker import SocketSpeaker

_MANNERS: Final = ("closes", "drops", "breaks off", "never reads", "stays")
_ODDS: Final = (30, 32, 15, 1, 22)
_PATIENCE_S: Final = 40.0  # longer than a server waits for a peer that does not read
_TRIES: Final = 50


class Backdoor(Protocol):
    """What a worker has of the world that it visits."""

    random: random.Random
    counts: Counter[str]

    def heads(self) -> dict[str, int]: ...
    def heard(self, request: SimulatedRequest, response: SimulatedResponse) -> None: ...


class SocketWorker:
    """One connection."""

    def __init__(self, world: Backdoor, workload: JobWorkload, speaker: SocketSpeaker) -> None:
        self._world, self._workload, self._speaker = world, workload, speaker
        self._random = world.random
        self._asked: dict[int, SimulatedRequest] = {}
        self._pushing: dict[str, int] = {}  # the last `work` of each queue that has not ended

    async def visit(self) -> None:
        if not await self._speaker.open():
            return
        rng = self._random
        manner = rng.choices(_MANNERS, _ODDS)[0]
        self._world.counts[f"sockets: {manner}"] += 1
        with trio.move_on_after(_PATIENCE_S):
            async with trio.open_nursery() as nursery:
                if manner != "never reads":
                    nursery.start_soon(self._listen)
                await self._talk()
                if manner == "breaks off":
                    await self._speaker.break_off(self._message())
                elif manner == "closes":
                    await self._speaker.close()
                if manner != "drops":
                    await trio.sleep(
                        _PATIENCE_S if manner == "never reads" else rng.choice((0, 0.1, 1.0, 3.0))
                    )
                nursery.cancel_scope.cancel()

    async def _talk(self) -> None:
        rng = self._random
        for _ in range(rng.randrange(1, 14)):
            messages = [self._message() for _ in range(rng.choice((1, 1, 1, 3, 8)))]
            await self._speaker.say(messages, in_pieces=rng.random() < 0.1, in_fragments=rng.random() < 0.2)
            await trio.sleep(rng.choice((0, 0.001, 0.02, 0.15, 0.7)))

    async def _listen(self) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while (text := await self._speaker.hear()) is not None:
                self._heard(text)

    # What it says.

    def _message(self) -> bytes:
        """The next one."""
        rng, request_id = self._random, len(self._asked) + 1
        name = rng.choice(list(LETTERS))
        kind = rng.choices(("work", "stop", "wish"), (20, 5, 75))[0]
        if kind == "stop":
            body = b'{"op":"stop_work","topic":"%b","request_id":%d}' % (name.encode(), request_id)
            request = SimulatedRequest(
                method=b"SAY", path=b"stop_work", body=body, good=frozenset((200, 400))
            )
        else:
            command = self._working(name, request_id) if kind == "work" else self._wish()
            found = message_of_jobs(command, request_id)
            assert found is not None
            request = found
        self._asked[request_id] = request
        assert request.body is not None
        return request.body

    def _working(self, name: str, request_id: int) -> Claim:
        self._pushing[name] = request_id
        return msgspec.structs.replace(self._workload.claim(name), wait_ms=None, told_end=True)

    def _wish(self) -> Command:
        for _ in range(_TRIES):
            command = self._workload.of_queues(self._world.heads())
            if message_of_jobs(command, 0) is not None:
                return command
        return self._workload.claim(next(iter(LETTERS)))

    # What it hears.

    def _heard(self, text: bytes) -> None:
        fields = fields_of(text)
        op, topic = fields["op"], fields.get("topic", "")
        if op == "job":
            if topic not in self._pushing:
                raise PromiseBroken(
                    f"a job is pushed that nobody has asked for, or behind `stopped`: {text!r:.200}"
                )
            command = Claim(topic=topic, node=b"", count_max=1, wait_ms=None, told_end=True)
            request = SimulatedRequest(method=b"SAY", path=b"job", command=command, good=frozenset((200,)))
            entry = b'{"claimed":[%b],"count":1,"ready":0}' % text
            self._world.heard(
                request, SimulatedResponse(200, fields_of(entry), b"200 " + entry, closes=False)
            )
            return
        request_id: int | None = fields.get("request_id")
        if request_id is None:  # an error that answers none ends a `work`
            self._pushing.pop(topic, None)
            return
        request = self._asked[request_id]
        if op == "stopped" and self._pushing.get(topic, 0) < request_id:
            self._pushing.pop(topic, None)
        if op == "error":
            fields = {"error": {name: fields[name] for name in ("code", "message")}}
        status = 400 if op == "error" else 200
        self._world.heard(request, SimulatedResponse(status, fields, b"%d " % status + text, closes=False))
