"""A connection that has become a WebSocket: messages in, their commands carried out in order, answers out.

Theory. `websockets` knows the protocol and does no I/O: what comes is fed to it, what it and we have to say is taken
from it. One task reads, and lets each command take effect before it looks at the next; one sends all that is ready in
one call; one asks a silent peer whether it lives.

A command is under way from when it came until its answer is sent. So many, and of so many bytes, may be: then nothing
more is read, and TCP holds the peer back. An answer is made when it is its turn, so a peer that does not read has
little kept for it; what is, and what came of messages, is on the accounts of the site.

Whoever closes is not waited for: a peer's writes go on, their answers are let go. When we close, what is under way
is answered first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import perf_counter
from typing import Final

import trio
from websockets.frames import CloseCode, Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

from topics.embed.aio.hands import Work
from topics.embed.aio.watcher import Pushing
from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import KIB, MIB
from topics.server.api.authorise import unauthorized
from topics.server.api.message import STUCK_S
from topics.server.api.ops import OpCall
from topics.server.api.site import Site
from topics.server.auth.keys import Key
from topics.server.wire.fragments import Fragments
from topics.server.wire.link import PeerLink
from topics.server.wire.patience import Phase
from topics.server.wire.text_frames import is_between_frames, is_utf8, lone_text, text_frame

UNDER_WAY_MAX: Final = 256  # commands of a connection that came and whose answers are not sent,
UNDER_WAY_BYTES_MAX: Final = 1 * MIB  # and the bytes of their messages, unless it is a single one
CLOSE_S: Final = 5.0  # for the peer to close too
_SLICE_MESSAGES: Final = 32  # then others have their turn
_FED_BYTES: Final = 8 * KIB  # at once: small frames take thirty times their bytes as values
_GATHERED_BYTES: Final = 256 * KIB  # of answers, made before they are sent
_KEPT_BYTES: Final = 1 * KIB  # on the account, from one command to the next


class WebSocket:
    """The connection, from the acceptance on. As `OpsConnection` it is what the ops know."""

    def __init__(self, link: PeerLink, site: Site, protocol: ServerProtocol, key: Key) -> None:
        self.key = key
        self._link = link
        self._site = site
        self._protocol = protocol
        self._tasks: trio.Nursery
        self._moved = trio.lowlevel.ParkingLot()  # who waits for commands to be answered, or for the end
        self._reading = trio.CancelScope()
        self._is_reading = self._was_held_back = self._said_eof = False  # reading: it waits for bytes
        self._received = self._messages = 0
        self._fragments = Fragments()
        self._ready: deque[OpCall] = deque()
        self._leaving: list[OpCall] = []  # answers that are being sent
        self._pushed: deque[Sequence[bytes]] = deque()
        self._takes = trio.lowlevel.ParkingLot()  # who waits for what he pushed to be taken
        self.works: dict[str, Work] = {}
        self.claims: dict[OpCall, Callable[[], None]] = {}
        self.watch: Pushing | None = None
        self._under_way = self._under_way_bytes = 0
        self._resting = trio.lowlevel.ParkingLot()  # the task that sends
        self._ended: tuple[CloseCode, str] | None = None  # what to close with
        self._at_end: list[Callable[[], None]] = []

    # As the ops' OpsConnection.

    def ready(self, call: OpCall) -> None:
        if not self._resting or self._under_way != 1 or self._protocol.state is not State.OPEN:
            self._ready.append(call)
            self._resting.unpark_all()
            return
        self._link.outgoing.pieces.append(self._frame(call))  # to wake who sends costs much
        self._leaving.append(call)  # if the connection is broken, it is dropped with the others
        if self._send_now():
            self._let_go()

    def start(self, task: Callable[[], Awaitable[object]]) -> None:
        self._tasks.start_soon(task)

    async def push(self, messages: Sequence[bytes]) -> None:
        pushed = list(messages)  # which is like no other
        self._pushed.append(pushed)
        self._resting.unpark_all()
        try:
            while any(one is pushed for one in self._pushed):
                await self._takes.park()
        except trio.Cancelled:
            if not any(one is pushed for one in self._pushed):
                return  # they went in the same moment, and nobody takes them back
            self._pushed = deque(one for one in self._pushed if one is not pushed)
            raise

    def push_nowait(self, make: Callable[[], Sequence[bytes]]) -> bool:
        if not self._resting or self._protocol.state is not State.OPEN:
            return False
        self._link.outgoing.pieces += map(text_frame, make())
        self._send_now()  # or have it sent
        return True

    def at_end(self, give_back: Callable[[], None]) -> None:
        self._at_end.append(give_back)

    # Its life.

    def go_away(self) -> None:
        """The server drains: what is under way is answered, then the connection is closed."""
        self._end(CloseCode.GOING_AWAY, "the server is shutting down")

    def revoke(self) -> None:
        """Its key is none any more: claims wait no longer, what is under way is answered, then it is closed."""
        self._end(CloseCode.POLICY_VIOLATION, "the key was revoked")
        self._leave_claims()
        for call in list(self.claims):
            del self.claims[call]
            call.refuse(unauthorized(given=True))

    async def serve(self) -> None:
        """Until either side has closed, or is gone. Raises nothing."""
        self._site.counts["websocket", 101] += 1
        self._link.enter_unbounded(Phase.BUSY)
        self._collect()
        try:
            async with trio.open_nursery() as self._tasks:
                try:
                    self._tasks.start_soon(self._send)
                    self._tasks.start_soon(self._watch_over)
                    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                        await self._receive()
                        await self._close()
                    self._tasks.cancel_scope.cancel()
                finally:
                    self._leave_claims()
                    if self.watch is not None:  # while tasks can still be started, for news starts one
                        if self.watch.subscriptions and self._link.is_given_up:
                            self._site.told_slow(len(self.watch.subscriptions))
                        self.watch.close()
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await self._link.linger()
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            self._site.failed(bug, "websocket")
        finally:
            for call in (*self._leaving, *self._ready):
                call.dropped()
            for give_back in reversed(self._at_end):
                give_back()

    def _leave_claims(self) -> None:
        for leave in list(self.claims.values()):
            leave()

    async def _receive(self) -> None:
        """Commands take effect as they come, until somebody closes."""
        link, bytes_max = self._link, self._site.options.limits.body_bytes
        data = bytes(link.incoming.buffer)
        link.incoming.buffer.clear()
        with self._reading:
            while True:
                message = lone_text(data, bytes_max)
                if message is None or self._is_partial:
                    await self._take(data)
                else:
                    self._fragments.is_text = True
                    await self._take_message(message)
                while link.outgoing.pieces and self._goes_on and link.outgoing.size > _GATHERED_BYTES:
                    await self._held_back()
                if not self._goes_on:
                    return
                if not self._hold():
                    self._end(CloseCode.TRY_AGAIN_LATER, "no memory is left for messages on their way")
                    return
                self._is_reading = True
                data = await link.rest_until(self._begin) or b""
                self._is_reading = False
                self._received += len(data)
                if not data:
                    self._protocol.receive_eof()
                    return

    def _begin(self, data: bytes) -> bool:
        """A lone small command takes effect where its bytes are told, and the task that reads goes on waiting."""
        if self._under_way or self._link.outgoing.pieces or self._is_partial or not self._goes_on:
            return False
        message = lone_text(data, self._site.options.limits.body_bytes)
        if message is None or not message.isascii():
            return False
        size = len(message)
        self._under_way, self._under_way_bytes = 1, size
        if not self._site.take_now(OpCall(self._site, self, message, size, perf_counter())):
            self._under_way = self._under_way_bytes = 0
            return False
        self._messages += 1
        self._received += len(data)
        if not self._hold():
            self._end(CloseCode.TRY_AGAIN_LATER, "no memory is left for messages on their way")
        return True

    @property
    def _goes_on(self) -> bool:
        return self._ended is None and self._protocol.state is State.OPEN

    async def _held_back(self) -> None:
        """Nothing more is read before the peer has taken something, or this ends."""
        self._was_held_back = True
        await self._moved.park()

    async def _close(self) -> None:
        """Say so, unless the peer or the protocol has, and let the peer have all that there is to send."""
        self._is_reading = False
        link, protocol = self._link, self._protocol
        if protocol.state is State.OPEN and self._ended is not None:
            while self._under_way:
                await self._moved.park()
            protocol.send_close(*self._ended)
            self._collect()
            with trio.move_on_after(CLOSE_S):
                while not self._said_eof and self._hold() and (data := await link.edge.receive()):
                    protocol.receive_data(data)
                    protocol.events_received()
                    self._collect()
        while link.outgoing.pieces:
            await self._moved.park()

    def _end(self, code: CloseCode, reason: str) -> None:
        """Close with this, when what is under way is answered."""
        if self._ended is None:
            self._ended = code, reason
            if self._is_reading:
                self._reading.cancel()
            self._moved.unpark_all()

    # What comes.

    async def _take(self, data: bytes) -> None:
        for at in range(0, len(data), _FED_BYTES):
            self._protocol.receive_data(data[at : at + _FED_BYTES])
            self._collect()
            for frame in self._protocol.events_received():
                assert isinstance(frame, Frame)
                message = self._fragments.whole(frame)
                if message is not None:
                    await self._take_message(message)
                if self._ended is not None:
                    return
            if self._protocol.state is not State.OPEN:
                return

    async def _take_message(self, message: bytes) -> None:
        """Its command has taken effect behind this."""
        self._messages += 1
        if self._messages % _SLICE_MESSAGES == 0:
            await trio.lowlevel.checkpoint()
        size = len(message)
        while self._under_way and (
            self._under_way >= UNDER_WAY_MAX or self._under_way_bytes + size > UNDER_WAY_BYTES_MAX
        ):
            if self._ended is not None:
                return
            await self._held_back()
        if self._fragments.is_text and not message.isascii() and not await is_utf8(message):
            self._end(CloseCode.INVALID_DATA, "a text message is UTF-8")
            return
        self._under_way += 1
        self._under_way_bytes += size
        call = OpCall(self._site, self, message, size, perf_counter())
        if self._fragments.is_text:
            await self._site.take(call)
        else:
            call.refuse(invalid("message", "is binary; a command is JSON in a text message"))

    @property
    def _is_partial(self) -> bool:
        """True in the midst of a message: something of what it says has come."""
        return bool(self._fragments) or not is_between_frames(self._protocol)

    def _hold(self) -> bool:
        """Have what came, and is not answered yet, on the account of requests. False if there is no room for it.

        A little stays there while it is answered: mostly the next command is as large.
        """
        size = self._under_way_bytes + len(self._protocol.reader.buffer) + self._fragments.size
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

    async def _watch_over(self) -> None:
        """Ends a connection whose peer is silent though asked, or slow in the midst of a message."""
        every, rate = self._link.options.ping_s, self._link.options.byte_rate
        is_asked = False
        while True:
            received, messages, was_partial = self._received, self._messages, self._is_partial
            self._was_held_back = False
            await trio.sleep(every)
            if self._was_held_back or not self._is_reading:
                is_asked = False
                continue
            came = self._received - received
            if was_partial and self._is_partial and self._messages == messages and came < rate * every:
                self._end(CloseCode.POLICY_VIOLATION, f"a message is slower than {rate} bytes a second")
            elif came:
                is_asked = False
            elif not is_asked:
                is_asked = True
                self._protocol.send_ping(b"")
                self._collect()
            else:
                self._tasks.cancel_scope.cancel()

    # What goes.

    async def _send(self) -> None:
        """What is ready, all together, as the peer takes it."""
        link = self._link
        try:
            while True:
                self._gather()
                if link.outgoing.pieces:
                    await link.flush(grace_s=STUCK_S)
                    link.enter_unbounded(Phase.BUSY)
                elif not self._leaving:
                    await self._resting.park()
                    continue
                self._let_go()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._tasks.cancel_scope.cancel()

    def _send_now(self) -> bool:
        """While who sends rests: what there is. He is woken for what does not go at once."""
        try:
            if self._link.outgoing.send_nowait():
                return True
            self._resting.unpark_all()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._tasks.cancel_scope.cancel()
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
        if self._moved:
            self._moved.unpark_all()

    def _gather(self) -> None:
        """Make some of the messages that are to be sent. Whoever closes is sent none."""
        protocol = self._protocol
        size = 0
        while self._ready and size < _GATHERED_BYTES:
            call = self._ready.popleft()
            self._leaving.append(call)
            if protocol.state is not State.OPEN:
                call.dropped()
            else:
                frame = self._frame(call)
                self._link.outgoing.pieces.append(frame)
                size += len(frame)
        while self._pushed and size < _GATHERED_BYTES and protocol.state is State.OPEN:
            frames = list(map(text_frame, self._pushed.popleft()))
            self._link.outgoing.pieces += frames
            size += sum(map(len, frames))
            self._takes.unpark_all()

    def _collect(self) -> None:
        """What the protocol has to say is what is to be sent."""
        pieces = self._protocol.data_to_send()
        if pieces:
            self._said_eof = self._said_eof or b"" in pieces
            self._link.outgoing.pieces += filter(None, pieces)
            self._resting.unpark_all()
