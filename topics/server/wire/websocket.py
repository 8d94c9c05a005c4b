"""A connection that has become a WebSocket: messages in, their commands carried out in order, answers out.

Theory. Where bytes are told there is no task at rest (decision 137). One reads while something has come, and lets each
command take effect before it looks at the next; another sends (`WebSocketSender`). The wheel has a silent peer asked
whether it lives.

A command is under way from when it came until its answer is sent. So many, and of so many bytes, may be: then nothing
more is read, and TCP holds the peer back. What came of messages is on the account of requests.

Whoever closes is not waited for: a peer's writes go on, their answers are let go. When we close, what is under way
is answered first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final

import trio
from websockets.frames import CloseCode, Opcode

from topics.embed.aio.hands import Work
from topics.embed.aio.watcher import Pushing
from topics.kernel.errors import invalid
from topics.kernel.limits import MIB
from topics.server.api.authorise import unauthorized
from topics.server.api.ops import OpCall
from topics.server.api.site import Site
from topics.server.auth.keys import Key
from topics.server.wire.frames import control_frame, is_utf8, lone_control
from topics.server.wire.link import LINGER_BYTES, PeerLink
from topics.server.wire.resting import RestingConnection
from topics.server.wire.websocket_sender import WebSocketSender

UNDER_WAY_MAX: Final = 256  # commands of a connection that came and whose answers are not sent,
UNDER_WAY_BYTES_MAX: Final = 1 * MIB  # and the bytes of their messages, unless it is a single one
CLOSE_S: Final = 5.0  # for the peer to close too
_PING: Final = control_frame(Opcode.PING, b"")
_SLICE_MESSAGES: Final = 32  # then others have their turn


class WebSocket(WebSocketSender):
    """The connection, from the acceptance on. As `OpsConnection` it is what the ops know."""

    __slots__ = (
        "_asking", "_at_end", "_connection", "_ended", "_is_asked", "_is_over", "_is_reading", "_messages", "_received",
        "_seen", "_was_held_back", "claims", "key", "watch", "works",
    )  # fmt: skip

    def __init__(self, link: PeerLink, site: Site, key: Key, connection: RestingConnection) -> None:
        super().__init__(link, site, connection.start)
        self.key = key
        self.works: dict[str, Work] = {}
        self.claims: dict[OpCall, Callable[[], None]] = {}
        self.watch: Pushing | None = None
        self._connection = connection
        self._is_reading = self._was_held_back = False  # reading: it waits for bytes
        self._received = self._messages = 0
        # Bytes, messages, and whether in the midst of one, when it was last looked over.
        self._seen = (0, 0, False)
        self._is_asked = False  # whether it lives
        self._asking: list[Callable[[], None]] = []  # who is told when it does
        self._ended: tuple[CloseCode, str] | None = None  # what to close with
        self._at_end: list[Callable[[], None]] = [partial(site.end_stream, key)]  # the last comes first
        self._is_over = False  # and nothing is left to be given back

    # As the ops' OpsConnection; also `ready`, `push` and `push_nowait`.

    def start(self, task: Callable[[], Awaitable[object]]) -> None:
        self._tasks.start(task)

    def ask_life(self, heard: Callable[[], None]) -> None:
        self._asking.append(heard)
        if len(self._asking) == 1 and self._frames.is_open:
            self._say(_PING)

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

    async def serve(self, data: bytes | None) -> bool:
        """Take what has come, and what comes until it can rest without a task: then this is True. Else it has ended.
        Raises nothing.
        """
        try:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                if await self._receive(data):
                    return True
                if not self._is_broken:
                    await self._close()
                    self.close()
                    while not self._is_over:  # a task may be in the midst of a send
                        await self._moved.park()
                    await self._link.linger(self._linger_bytes)
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            self._site.failed(bug, "websocket")
        return False

    def close(self) -> None:
        """It has ended: nothing more is begun, and what nobody had is given back when its tasks have ended."""
        if self._is_closed:
            return
        self._is_closed = True
        self._leave_claims()
        if self.watch is not None:
            if self.watch.subscriptions and self._is_slow:
                self._site.told_slow(len(self.watch.subscriptions))
            self._surely(self.watch.close)
        self._tasks.cancel(self._give_back)

    def when_over(self, told: Callable[[], None]) -> None:
        """Call this when all is given back."""
        if self._is_over:
            told()
        else:
            self._at_end.insert(0, told)

    def _give_back(self) -> None:
        for call in (*self._leaving, *self._ready):
            self._surely(call.dropped)
        for give_back in reversed(self._at_end):
            self._surely(give_back)
        self._is_over = True
        self._moved.unpark_all()

    def _leave_claims(self) -> None:
        for leave in list(self.claims.values()):
            self._surely(leave)

    def _surely(self, call: Callable[[], None]) -> None:
        """A bug in it keeps nothing else from its end."""
        try:
            call()
        except Exception as bug:  # noqa: BLE001 -- as in `serve`
            self._site.failed(bug, "websocket")

    @property
    def _linger_bytes(self) -> int:
        """Who sends a message that is too large shall read that it is: much of it is taken in."""
        return 2 * self._site.options.limits.body_bytes if self._frames.is_too_large else LINGER_BYTES

    def _end(self, code: CloseCode, reason: str) -> None:
        """Close with this, when what is under way is answered."""
        if self._ended is None:
            self._ended = code, reason
            self._moved.unpark_all()
            self._connection.wake()

    def _break(self) -> None:
        """Nothing more can be sent, or comes."""
        self._is_broken = True
        self._connection.abort()

    @property
    def _goes_on(self) -> bool:
        return self._ended is None and not self._is_broken and self._frames.is_open

    async def _receive(self, data: bytes | None) -> bool:
        """Commands take effect as they come, until it can rest, or somebody closes: then this is False."""
        self._is_reading = False
        while True:
            if data is not None:
                await self._take(data)
            # Not until it is less: who is pushed more than he takes is heard between one send and the next.
            if self._goes_on and self._link.outgoing.enough:
                await self._held_back()
            if not self._goes_on:
                return False
            if not self._hold():
                self._end(CloseCode.TRY_AGAIN_LATER, "no memory is left for messages on their way")
                return False
            self._is_reading = True
            if self._connection.can_rest:
                return True
            data = await self._link.rest_until(self.begin)
            self._is_reading = False

    def begin(self, data: bytes) -> bool:
        """A lone small command takes effect where its bytes are told, and no task is woken."""
        if self._under_way or self._link.outgoing.pieces or not self._goes_on:
            return False
        message = self._frames.lone(data)
        if message is None or not message.isascii():
            return self._takes_life(data)
        size = len(message)
        self._under_way, self._under_way_bytes = 1, size
        if not self._site.take_now(OpCall(self._site, self, message, size, perf_counter())):
            self._under_way = self._under_way_bytes = 0
            return False
        self._messages += 1
        self._came(len(data))
        if not self._hold():
            self._end(CloseCode.TRY_AGAIN_LATER, "no memory is left for messages on their way")
        return True

    def _came(self, size: int) -> None:
        """So it lives."""
        self._received += size
        if self._asking and size:
            asking, self._asking = self._asking, []
            for heard in asking:
                heard()

    def _takes_life(self, data: bytes) -> bool:
        """What an idle peer says is mostly that it lives, or whether we do."""
        said = None if self._frames.is_partial else lone_control(data)
        if said is None:
            return False
        self._came(len(data))
        opcode, payload = said
        if opcode is Opcode.PING:
            self._say(control_frame(Opcode.PONG, payload))
        return True

    async def _held_back(self) -> None:
        """Nothing more is read before the peer has taken something, or this ends."""
        self._was_held_back = True
        await self._moved.park()

    async def _close(self) -> None:
        """Say so, unless the peer or the protocol has, and let the peer have all that there is to send."""
        link, frames = self._link, self._frames
        if frames.is_open and self._ended is not None:
            while self._under_way:
                await self._moved.park()
            frames.close(*self._ended)
            self._collect()
            with trio.move_on_after(CLOSE_S):
                while not frames.said_eof and self._hold() and (data := await link.edge.receive()):
                    frames.skip(data)
                    self._collect()
                    while link.outgoing.enough:
                        await self._moved.park()
        while link.outgoing.pieces:
            await self._moved.park()

    # What comes.

    async def _take(self, data: bytes) -> None:
        """All that came, or its end."""
        self._came(len(data))
        message = self._frames.lone(data)
        if message is not None:
            await self._take_message(message)
            return
        for one in self._frames.messages(data):
            self._collect()
            await self._take_message(one)
        self._collect()

    async def _take_message(self, message: bytes) -> None:
        """Its command has taken effect behind this, unless we close: then it is only read, up to the peer's close."""
        self._messages += 1
        if self._messages % _SLICE_MESSAGES == 0:
            await trio.lowlevel.checkpoint()
        size = len(message)
        while (
            self._ended is None
            and self._under_way
            and (self._under_way >= UNDER_WAY_MAX or self._under_way_bytes + size > UNDER_WAY_BYTES_MAX)
        ):
            await self._held_back()
        if self._frames.is_text and not message.isascii() and not await is_utf8(message):
            self._end(CloseCode.INVALID_DATA, "a text message is UTF-8")
        if self._ended is not None:  # perhaps meanwhile, and its key may be none any more
            return
        self._under_way += 1
        self._under_way_bytes += size
        call = OpCall(self._site, self, message, size, perf_counter())
        if self._frames.is_text:
            await self._site.take(call)
        else:
            call.refuse(invalid("message", "is binary; a command is JSON in a text message"))

    def look_over(self) -> None:
        """Each `ping_s`: end a connection whose peer is silent though asked, or slow in the midst of a message."""
        every, rate = self._link.options.ping_s, self._link.options.byte_rate
        (received, messages, was_partial), is_partial = self._seen, self._frames.is_partial
        self._seen = self._received, self._messages, is_partial
        was_held_back, self._was_held_back = self._was_held_back, False
        if was_held_back or not self._is_reading:
            self._is_asked = False
            return
        self._frames.forget()
        came = self._received - received
        if was_partial and is_partial and self._messages == messages and came < rate * every:
            self._end(CloseCode.POLICY_VIOLATION, f"a message is slower than {rate} bytes a second")
        elif came or self._link.outgoing.pieces:  # a question lies behind those, and has not been heard
            self._is_asked = False
        elif self._is_asked:
            self._break()
        else:
            self._is_asked = True
            self._say(_PING)
