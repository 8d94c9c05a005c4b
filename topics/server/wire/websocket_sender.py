"""A WebSocket as to what goes: answers, pushed messages and what the protocol says, all that is ready in one call.

Theory. What is alone goes from where it was made. For the rest a task is started, which sends until nothing is ready.
An answer is made when it is its turn, so a peer that does not read has little kept for it; that is on the account of
answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final

import trio
from websockets.frames import CloseCode

from topics.kernel.errors import Rejected
from topics.kernel.limits import KIB
from topics.server.api.message import PART_BYTES, STUCK_S
from topics.server.api.ops import OpCall
from topics.server.api.site import Site
from topics.server.wire.frames import SocketFrames, text_frame
from topics.server.wire.link import PeerLink
from topics.server.wire.tasks import Attended, ConnectionTasks

GATHERED_BYTES: Final = 256 * KIB  # of answers, made before they are sent
_KEPT_BYTES: Final = 1 * KIB  # of requests, on their account from one command to the next


class WebSocketSender(ABC):
    """`start`: has a task of it served, as a `TaskPool` does."""

    __slots__ = (
        "_frames", "_is_broken", "_is_closed", "_is_sending", "_is_slow", "_leaving", "_link", "_moved", "_pushed",
        "_ready", "_site", "_tasks", "_under_way", "_under_way_bytes",
    )  # fmt: skip

    def __init__(self, link: PeerLink, site: Site, start: Callable[[Attended], None]) -> None:
        self._link = link
        self._site = site
        self._tasks = ConnectionTasks(start, self._failed)
        self._frames = SocketFrames(site.options.limits.body_bytes)
        self._moved = trio.lowlevel.ParkingLot()  # who waits for something to be sent, or for the end
        self._ready: list[OpCall] = []
        self._leaving: list[OpCall] = []  # answers that are being sent
        self._pushed: list[Sequence[bytes]] = []
        self._under_way = self._under_way_bytes = 0
        self._is_sending = False  # by a task
        self._is_broken = self._is_slow = self._is_closed = False

    @abstractmethod
    def _end(self, code: CloseCode, reason: str) -> None:
        """Close with this, when what is under way is answered."""

    @abstractmethod
    def _break(self) -> None:
        """Nothing more can be sent."""

    def _failed(self, bug: Exception) -> None:
        """In one of its tasks."""
        self._site.failed(bug, "websocket")
        self._break()

    def ready(self, call: OpCall) -> None:
        if self._is_closed:
            call.dropped()
        elif self._is_sending or self._under_way != 1 or not self._frames.is_open:
            self._ready.append(call)
            self._have_sent()
        else:
            self._link.outgoing.pieces.append(self._frame(call))  # to start a task costs much
            self._leaving.append(call)  # if the connection is broken, it is dropped with the others
            if self._send_now():
                self._let_go()

    async def push(self, messages: Sequence[bytes]) -> None:
        pushed = list(messages)  # which is like no other
        self._pushed.append(pushed)
        self._have_sent()
        try:
            while any(one is pushed for one in self._pushed):
                if not self._frames.is_open:
                    raise trio.BrokenResourceError("the connection is being closed")
                await self._moved.park()
        except (trio.Cancelled, trio.BrokenResourceError):
            if not any(one is pushed for one in self._pushed):
                return  # they went in the same moment, and nobody takes them back
            self._pushed = [one for one in self._pushed if one is not pushed]
            raise

    def push_nowait(self, make: Callable[[], Sequence[bytes]]) -> bool:
        if self._is_sending or self._link.outgoing.pieces or not self._frames.is_open:
            return False
        self._link.outgoing.pieces += map(text_frame, make())
        self._send_now()  # or have it sent
        return True

    def _have_sent(self) -> None:
        """What there is, by a task."""
        if not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send)

    async def _send(self) -> None:
        """What is ready, all together, as the peer takes it, until there is nothing more."""
        try:
            while not self._is_closed:  # what is dropped then has not gone
                self._gather()
                if self._link.outgoing.pieces:
                    await self._flush()
                elif not self._leaving:
                    break
                self._let_go()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._break()
        finally:
            self._is_sending = False

    async def _flush(self) -> None:
        link = self._link
        if not link.outgoing.send_nowait():
            link.keep_unsent()
            try:
                await link.outgoing.send(PART_BYTES, STUCK_S)
            except trio.TooSlowError:
                self._is_slow = True
                raise trio.BrokenResourceError("the peer does not read") from None
        link.all_sent()

    def _send_now(self) -> bool:
        """While no task sends: what there is. One is started for what does not go at once."""
        try:
            if self._link.outgoing.send_nowait():
                return True
            self._have_sent()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._break()
        return False

    def _frame(self, call: OpCall) -> bytes:
        frame = text_frame(self._site.message(call))
        if call.is_bug:
            self._end(CloseCode.INTERNAL_ERROR, "an internal error")
        return frame

    def _let_go(self) -> None:
        """What was gathered is on its way."""
        for call in self._leaving:
            self._under_way_bytes -= call.size
            if call.room is not None:
                call.taken()
        self._under_way -= len(self._leaving)
        self._leaving.clear()
        if self._link.held.size > _KEPT_BYTES:
            self._hold()
        if self._moved:
            self._moved.unpark_all()

    def _gather(self) -> None:
        """Make some of the messages that are to be sent. Whoever closes is sent none."""
        size, is_open = 0, self._frames.is_open
        while self._ready and size < GATHERED_BYTES:
            call = self._ready.pop(0)
            self._leaving.append(call)
            if not is_open:
                call.dropped()
            else:
                frame = self._frame(call)
                self._link.outgoing.pieces.append(frame)
                size += len(frame)
        while self._pushed and size < GATHERED_BYTES and is_open:
            frames = list(map(text_frame, self._pushed.pop(0)))
            self._link.outgoing.pieces += frames
            size += sum(map(len, frames))
            self._moved.unpark_all()
        if self._pushed and not is_open:
            self._moved.unpark_all()  # for they never go

    def _hold(self) -> bool:
        """Have what came, and is not answered yet, on the account of requests. False if there is no room for it.

        A little stays there while it is answered: mostly the next command is as large.
        """
        size = self._under_way_bytes + self._frames.size
        held = self._link.held
        if size <= held.size <= _KEPT_BYTES:
            return True
        if size > held.size:
            try:
                held.cover(size, most=size)
            except Rejected:
                return False
        elif size < held.size:
            held.settle(size)
        return True

    def _collect(self) -> None:
        """What the protocol has to say is sent."""
        self._say(self._frames.said())

    def _say(self, frames: bytes) -> None:
        """Behind what is being sent, if anything is."""
        if frames:
            self._link.outgoing.pieces.append(frames)
            if not self._is_sending:
                self._send_now()
