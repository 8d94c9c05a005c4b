"""A connection that Hypercorn's protocols speak: this carries their bytes, their time and their tasks.

Theory. It stands where Hypercorn has its `TCPServer`, because that one needs a socket, cannot begin with bytes that
were read before, and loses frames when a task is cancelled while it sends. What holds here:

- One task sends, from one buffer: bytes leave in the order the protocol made them, and a request that is cancelled
  while it waits for its own to leave cuts no frame and loses none. That task ends with the connection, when the edge is
  closed, or when the peer takes nothing for a while; nothing is shielded.
- The reader takes small slices, so that a flood of tiny frames is handled in steps (style 21).
- Time: a connection at rest ends after `keep_alive_timeout`, whatever but requests it sends. One from which nothing
  comes for `read_timeout` is asked whether it lives, for who reads a stream has nothing to say, and ends if nothing
  comes for as long again. Any ends behind its last answer when the server drains.
- An answer given before all was read: half-close, drain a little, then close, so that TCP does not reset it away.
- The connection is of all keys that were used on it. When none is left that is not revoked it ends, behind answers
  that are there soon.
- A bug in a protocol or in a request ends that connection or that request, is logged, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ConnectionState

from topics.server.api.edge import Edge
from topics.server.app.http1 import Http1
from topics.server.app.http2 import Http2
from topics.server.app.tasks import Requests, Tasks
from topics.server.auth.keys import REVOKED_GRACE_S, Key
from topics.server.runtime.log import log

SEND_S: Final = 75.0  # a peer that takes nothing for so long is gone
LINGER_S: Final = 1.0
LINGER_BYTES: Final = 64 * 1024
_SLICE: Final = 1024


class Http2Connection:
    """One connection, from its first unread byte to its end. `requests`: what its requests are counted among."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        requests: Requests,
        edge: Edge,
        *,
        http2: bool,
        secure: bool,
    ) -> None:
        self._config = config
        self._context = context
        self._requests = requests
        self._edge = edge
        self._begin = partial(Http2 if http2 else Http1, app, config, context)
        self._secure = secure
        self._protocol: Http1 | Http2
        self._outgoing = bytearray()
        self._queued_bytes = 0  # ever
        self._sent_bytes = 0
        self._queued, self._sent = trio.lowlevel.ParkingLot(), trio.lowlevel.ParkingLot()
        self._sending = trio.CancelScope()
        self._over = trio.Event()  # nothing more comes of it
        self._reading: trio.CancelScope | None = None
        self._rests = True  # no request is being served
        self._rested_at = trio.current_time()
        self._ending = False  # nothing more is handled
        self._broken = False  # nothing more can be sent
        self._answered = trio.Event()
        self._keys: set[Key] = set()
        self._nursery: trio.Nursery

    async def run(self, unread: bytes) -> None:
        """Serve it to its end. `unread`: what was received before."""
        try:
            async with trio.open_nursery() as self._nursery:
                self._nursery.start_soon(self._send_queued)
                tasks = Tasks(self._nursery, self._requests, self.end, self._belong_to)
                state = ConnectionState({})
                self._protocol = self._begin(tasks, state, self._secure, None, None, self._send)
                try:
                    await self._serve(unread)
                finally:
                    self._belong_to_nobody()
        finally:
            with trio.move_on_after(0):
                await self._edge.aclose()

    async def _serve(self, unread: bytes) -> None:
        try:
            await self._protocol.initiate()
            await self._read(unread)
        except Exception as bug:  # noqa: BLE001 -- ends that connection only
            log.exception("app.connection_bug", exc_info=bug)
        await self._protocol.handle(Closed())
        await self._close()
        self._sending.cancel()

    def end_at_rest(self) -> None:
        """The server drains: end now, or behind the last answer."""
        if self._rests:
            self.end()

    def end(self) -> None:
        """Handle nothing more."""
        self._ending = True
        self._answered.set()
        if self._reading is not None:
            self._reading.cancel()

    # Whose it is.

    def _belong_to(self, key: Key) -> None:
        if key not in self._keys and not self._over.is_set():
            self._keys.add(key)
            key.bind(self._look_at_keys)

    def _belong_to_nobody(self) -> None:
        """It ends by itself, and takes no more tasks soon."""
        self._over.set()
        for key in self._keys:
            key.unbind(self._look_at_keys)

    def _look_at_keys(self) -> None:
        """One of its keys was revoked."""
        self._keys = {key for key in self._keys if not key.revoked}
        if not self._keys:
            self._nursery.start_soon(self._end_revoked)

    async def _end_revoked(self) -> None:
        with trio.move_on_after(REVOKED_GRACE_S):
            await self._over.wait()
        self.end()
        with trio.move_on_after(REVOKED_GRACE_S):
            await self._over.wait()
        with trio.move_on_after(0):
            await self._edge.aclose()

    # Coming in.

    async def _read(self, unread: bytes) -> None:
        data = unread
        while True:
            for piece in _slices(data):
                await self._protocol.handle(RawData(piece))
                if self._ending:
                    break
            if self._ending or (self._rests and self._context.terminated.is_set()):
                break
            data = await self._receive()
            if not data:
                break
        if isinstance(self._protocol, Http2):
            await self._protocol.farewell()
        elif not self._ending:  # the peer has ended its side, and may still wait for its answer
            await self._protocol.handle(RawData(b""))
            with trio.move_on_after(SEND_S):
                await self._answered.wait()

    async def _receive(self) -> bytes:
        """Some bytes; `b""` at the end, the peer's or ours."""
        is_asked = False
        while not self._ending:
            with trio.CancelScope(deadline=self._deadline()) as self._reading:
                try:
                    return await self._edge.receive()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self._broken = self._ending = True
            if is_asked or self._rests or not isinstance(self._protocol, Http2):
                self._ending = True
            elif not self._ending:
                await self._protocol.ask_whether_it_lives()
                is_asked = True
        return b""

    def _deadline(self) -> float:
        if self._rests:
            return self._rested_at + self._config.keep_alive_timeout
        return trio.current_time() + (self._config.read_timeout or inf)

    # Going out.

    async def _send(self, event: Event) -> None:
        """What the protocol calls."""
        if isinstance(event, RawData):
            self._outgoing += event.data
            self._queued_bytes += len(event.data)
            self._queued.unpark_all()
            await self._wait_sent(self._queued_bytes)
        elif isinstance(event, Closed):
            self.end()
        elif isinstance(event, Updated):
            self._rest(event.idle)

    async def _wait_sent(self, queued_bytes: int) -> None:
        """Until so many of the bytes ever queued have left, or nothing can be sent any more."""
        while self._sent_bytes < queued_bytes and not self._broken:
            await self._sent.park()

    async def _send_queued(self) -> None:
        with self._sending:
            while not self._broken:
                if self._outgoing:
                    await self._send_outgoing()
                    self._sent.unpark_all()
                else:
                    await self._queued.park()
        self._broken = True
        self._sent.unpark_all()
        self.end()

    async def _send_outgoing(self) -> None:
        data = bytes(self._outgoing)
        self._outgoing.clear()
        with trio.move_on_after(SEND_S) as patience:
            try:
                await self._edge.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self._broken = True
        self._broken = self._broken or patience.cancelled_caught
        self._sent_bytes += len(data)

    def _rest(self, rests: bool) -> None:  # noqa: FBT001 -- one flag is all there is
        if rests and not self._rests:
            self._rested_at = trio.current_time()
        self._rests = rests
        if rests and self._context.terminated.is_set():
            self.end()
        elif self._reading is not None:
            self._reading.deadline = self._deadline()

    # The end.

    async def _close(self) -> None:
        """Half-close and drain a little, so that what was sent arrives; then close."""
        ends = (trio.BrokenResourceError, trio.ClosedResourceError)
        with suppress(*ends), trio.move_on_after(LINGER_S):
            await self._wait_sent(self._queued_bytes)
            if not self._broken:
                await self._edge.send_eof()
                drained = 0
                while drained < LINGER_BYTES and (data := await self._edge.receive()):
                    drained += len(data)
        with suppress(*ends):
            await self._edge.aclose()


def _slices(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _SLICE):
        yield data[at : at + _SLICE]
