"""Jobs of a server, pushed over a WebSocket as fast as there is room for them (http-api 10; decision 64).

A worker has one connection. What it says of its jobs goes there too, and what several have to say at once goes
together. Leases that a connection was pushed end with it: then the desk is told that all are lost, and another
connection is made.

When a lease began is known in the server's time only. `pong` says what time it was there when it was asked, so that a
lease is lost here no later than there, however long it was on its way or this process stood still. A job that seems to
be of the future, or older than a third of its lease, says that a clock has moved, or that we stood still: `ping` is
asked again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, Final, Generic, TypeVar, cast

import anyio
import msgspec

from topics.calls.messages import MALFORMED
from topics.calls.patience import Absence
from topics.calls.queues.jobs import AckCall, NackCall, SettleCall
from topics.calls.queues.values import Claimant, LeasedRecord, read_pushed, read_settled
from topics.calls.trouble import WORDS, Trouble, Unreachable, error_of_answer, not_topics
from topics.calls.workers.desk import Desk
from topics.calls.workers.leases import LEFT
from topics.client.websocket import ClientWebSocket, Way, connected
from topics.engine.replies import JobsSettled
from topics.kernel.errors import TopicsError
from topics.kernel.limits import Limits

J = TypeVar("J", bound=LeasedRecord)

_ACKS_MAX: Final = Limits().claim_limit  # of one ack
_encode: Final = msgspec.json.encode


class _Head(msgspec.Struct):
    """What is read of every message."""

    op: str
    request_id: int | None = None
    code: str = ""
    message: str = ""
    detail: dict[str, Any] = {}


class _Pong(msgspec.Struct):
    now: int | None = None  # while the server recovers


_head: Final = msgspec.json.Decoder(_Head).decode
_pong: Final = msgspec.json.Decoder(_Pong).decode


class _Asked:
    """Something that is said of jobs, and what is answered."""

    def __init__(self, call: SettleCall) -> None:
        self.call = call
        self.ended = anyio.Event()
        self.reply: JobsSettled | None = None
        self.failure: TopicsError | None = None


class Pushes(Generic[J]):
    """The supply of a worker at a server."""

    def __init__(self, way: Way, queue: Claimant) -> None:
        self._way = way
        self._queue = queue
        self._line: _PushConnection[J] | None = None
        self._absence = Absence(way.url, "topics.worker")

    async def run(self, desk: Desk[J]) -> None:
        while not desk.is_stopping:
            if not desk.wanted:
                await desk.wishes.wait()
                continue
            try:
                async with connected(self._way) as socket:
                    self._line = _PushConnection(socket, self._queue, desk, self._absence)
                    try:
                        await self._line.run()
                    finally:
                        self._line = None
            except TopicsError as error:
                await desk.pause(self._absence.pause_s(error, is_remote=True))
        desk.end()

    async def tell(self, call: SettleCall) -> JobsSettled:
        if self._line is None:
            raise Unreachable(Trouble.LOST, self._way.url, "there is no connection to it now", sent=False)
        return await self._line.tell(call)


class _PushConnection(Generic[J]):
    """What is said on one connection."""

    def __init__(self, socket: ClientWebSocket, queue: Claimant, desk: Desk[J], absence: Absence) -> None:
        self._socket = socket
        self._queue = queue
        self._desk = desk
        self._absence = absence
        self._room = 0  # for so many jobs `work` was asked
        self._works: set[int] = set()  # asked and not answered
        self._has_to_ping = False
        self._pinged_s: float | None = None  # when it was asked, if that is not answered
        self._first_s = math.inf  # when it was first asked
        self._ahead_s = math.inf  # how far the server's clock is ahead of ours, at most
        self._has_gained = False  # as jobs of the future say
        self._refused: TopicsError | None = None
        self._unsent: list[_Asked] = []
        self._asked: dict[int, _Asked] = {}
        self._numbers = count(1)

    async def run(self) -> None:
        """Until the connection ends, which it says by raising, or the server refuses us.

        Raises:
            Unreachable: it has ended.
            TopicsError: what no patience helps against.
        """
        failures: list[TopicsError] = []

        async def follow() -> None:
            try:
                await self._follow()
            except TopicsError as error:
                failures.append(error)
                tasks.cancel_scope.cancel()

        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._socket.write, self._gather)
                tasks.start_soon(follow)
                try:
                    while True:
                        for text in await self._socket.receive():
                            self._take(text)
                except TopicsError as error:
                    failures.append(error)
                tasks.cancel_scope.cancel()
            raise failures[0]
        finally:
            self._desk.lose()
            for asked in (*self._asked.values(), *self._unsent):
                asked.failure = Unreachable(Trouble.LOST, self._socket.url, WORDS[Trouble.LOST], sent=True)
                asked.ended.set()

    async def tell(self, call: SettleCall) -> JobsSettled:
        asked = self._ask(call)
        await asked.ended.wait()
        if asked.reply is None:
            assert asked.failure is not None
            raise asked.failure
        return asked.reply

    def _ask(self, call: SettleCall) -> _Asked:
        """Acks that are not under way yet become one."""
        self._socket.wake()
        if isinstance(call, AckCall):
            jobs = list(cast("Iterable[LeasedRecord]", call.jobs))
            for asked in self._unsent:
                if isinstance(asked.call, AckCall):
                    together = [*cast("list[LeasedRecord]", asked.call.jobs), *jobs]
                    if len(together) <= _ACKS_MAX:
                        asked.call = AckCall(self._queue, together)
                        return asked
            call = AckCall(self._queue, jobs)
        self._unsent.append(_Asked(call))
        return self._unsent[-1]

    async def _follow(self) -> None:
        """See that as many jobs are asked for as there is room for, until there are to be no more."""
        desk = self._desk
        while not (desk.is_stopping and self._room == 0 and not self._works):
            self._socket.wake()
            await desk.wishes.wait()
            if self._refused is not None:
                error, self._refused = self._refused, None
                await desk.pause(self._absence.pause_s(error, is_remote=True))
                self._room = 0
        desk.end()

    def _gather(self) -> Iterator[bytes]:
        """What is to be said. First of all for how many jobs there is room: what is settled makes some there."""
        room = 0 if self._desk.is_stopping else self._desk.wanted
        if room != self._room:
            self._room = room
            yield self._work(room)
        if self._has_to_ping and self._pinged_s is None:
            self._has_to_ping, self._pinged_s = False, time.monotonic()
            yield b'{"op":"ping"}'
        unsent, self._unsent = self._unsent, []
        for asked in unsent:
            number = next(self._numbers)
            self._asked[number] = asked
            yield self._message(*asked.call.message(), number)

    def _work(self, room: int) -> bytes:
        number = next(self._numbers)
        self._works.add(number)
        if not room:
            return self._message("stop_work", b"{}", number)
        self._first_s = min(self._first_s, time.monotonic())
        self._has_to_ping = self._has_to_ping or self._ahead_s == math.inf
        fields = {"node": self._queue.node, "max": room, "lease_ms": self._desk.leases.lease_ms}
        return self._message("work", _encode(fields), number)

    def _message(self, op: str, fields: bytes, number: int) -> bytes:
        head = _encode({"op": op, "request_id": number, "topic": self._queue.name})
        return head[:-1] + (b"," + fields[1:] if len(fields) > 2 else b"}")

    # What comes.

    def _take(self, text: bytes) -> None:
        try:
            head = _head(text)
            if head.op == "job":
                self._bring(cast("J", read_pushed(self._queue, text)))
            elif head.request_id in self._works:
                self._works.discard(head.request_id)
                self._worked(head)
            elif head.op == "pong" and self._pinged_s is not None:
                self._told_time(_pong(text).now, self._pinged_s)
            elif head.request_id in self._asked:
                self._answered(self._asked.pop(head.request_id), head, text)
            elif head.op == "error":  # of no message: it pushes no more
                self._refuse(head)
        except MALFORMED as error:
            raise not_topics(self._socket.url, f"a message is not of its form: {error}") from error

    def _bring(self, job: J) -> None:
        now_s, lease_s = time.monotonic(), self._desk.leases.lease_ms / 1000
        began_s = job.deadline / 1000 - lease_s - self._ahead_s
        self._desk.bring([job], min(began_s if self._ahead_s < math.inf else self._first_s, now_s))
        self._has_gained = self._has_gained or began_s > now_s
        if self._pinged_s is None and not now_s - lease_s / 3 <= began_s <= now_s:
            self._has_to_ping = True
            self._socket.wake()

    def _told_time(self, now_ms: int | None, asked_s: float) -> None:
        self._pinged_s = None
        if now_ms is not None:
            ahead_s = (now_ms + 1) / 1000 - asked_s  # it tells whole ms
            if self._has_gained or ahead_s < self._ahead_s:  # the answer that came fastest says most
                self._ahead_s, self._has_gained = ahead_s, False

    def _worked(self, head: _Head) -> None:
        if head.op == "working":
            self._absence.ended()
        elif head.op == "error":
            self._refuse(head)
        elif not self._desk.is_stopping and (jobs := self._desk.unwanted()):
            self._ask(NackCall(self._queue, jobs, reason=LEFT, delay_ms=0))
        self._desk.wishes.ring()

    def _answered(self, asked: _Asked, head: _Head, text: bytes) -> None:
        if head.op == "error":
            asked.failure = error_of_answer(head.code, head.message, head.detail, writes=True)
        else:
            asked.reply = read_settled(text)
        asked.ended.set()

    def _refuse(self, head: _Head) -> None:
        self._refused = error_of_answer(head.code, head.message, head.detail)
        self._desk.wishes.ring()
