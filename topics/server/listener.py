"""The port: connections in, each served by a task while there is something to serve, all of them known until they end
(architecture 4).

The listener owns a registry of raw streams. Draining: nothing more is accepted, connections between requests end at
once, those with a request under way behind its answer; when the time is up every raw stream left is closed by force,
which ends even a send to a peer who never reads. Above the bound on connections a caller is told so and let go. What
goes wrong with one connection is logged, counted, and ends that connection only.
"""

from __future__ import annotations

import errno
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import attrs
import trio

from topics.kernel.errors import Code, Rejected
from topics.server.api.edge import Edge, HandOver
from topics.server.api.site import Site
from topics.server.runtime.figures import PortCounts
from topics.server.runtime.log import log
from topics.server.tls import shake_hands
from topics.server.wire.answers import AnswerWriter
from topics.server.wire.connection import WireConnection
from topics.server.wire.edges import PolledEdge, SocketEdge, TlsEdge
from topics.server.wire.patience import WireOptions
from topics.server.wire.poller import HAS_EPOLL, Poller
from topics.server.wire.tasks import TaskPool

BACKLOG: Final = 1024
REBIND_TRIES: Final = 20
# Of bytes sent and not acknowledged, on Linux. Who does not read counts as well, from when his side is full; ours is
# full later, and we let go of him first, for then it is counted and told.
USER_TIMEOUT_MS: Final = 90_000
REFUSALS_MAX: Final = 64  # told at the same time that there are too many connections
_REFUSAL_LINGER_S: Final = 0.5
_REFUSAL_BYTES_MAX: Final = 64 * 1024
_FORCED_S: Final = 1.0  # for the tasks of streams closed by force to notice


class CannotListen(Exception):
    """The address cannot be bound; the message says what to do."""


async def bind(host: str, port: int) -> list[trio.SocketListener]:
    """Listening sockets, one an address that the host stands for, all on one port. 0 is any free one.

    Raises:
        CannotListen: in use, not allowed, no address of this machine.
    """
    name = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        for _ in range(REBIND_TRIES):
            listeners = await trio.open_tcp_listeners(port, host=name, backlog=BACKLOG)
            if len({port_of(listener) for listener in listeners}) == 1:
                return listeners
            free = port_of(
                listeners[0]
            )  # port 0 gave each address a port of its own: ask for one of these for all
            for listener in listeners:
                await listener.aclose()
            with suppress(OSError):
                return await trio.open_tcp_listeners(free, host=name, backlog=BACKLOG)
    except OSError as error:
        raise CannotListen(_why(host, port, error)) from error
    raise CannotListen(f"{host}: found no port that is free for each of its addresses; give --port")


def port_of(listener: trio.SocketListener) -> int:
    return int(listener.socket.getsockname()[1])


def _why(host: str, port: int, error: OSError) -> str:
    where = f"{host}:{port}"
    if isinstance(error, socket.gaierror):
        return f"host: {host!r} is no address and no name that can be looked up ({error.strerror}); try 127.0.0.1"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} of {host} is in use: stop who uses it, or give another --port (0 = any free)"
        case errno.EACCES | errno.EPERM:
            return f"{where}: this user may not listen there; ports below 1024 are often reserved: give another --port"
        case errno.EADDRNOTAVAIL:
            return f"host: {host!r} is no address of this machine; try 127.0.0.1, or see `ip address`"
    return f"{where}: cannot listen there: {error.strerror or error}"


@attrs.frozen(kw_only=True)
class ListenerOptions:
    """Bounds of the port."""

    connections_max: int = 10_000
    refusals_max: int = REFUSALS_MAX
    handshake_s: float = 10.0
    wire: WireOptions = attrs.field(factory=WireOptions)


@attrs.define(eq=False)
class _Slot:
    """A connection's place in the registry. Without a `connection` its handshake is under way."""

    stream: trio.SocketStream
    handshake: trio.CancelScope | None = None
    edge: Edge | None = None
    connection: WireConnection | None = None

    def force(self) -> None:
        """Close it: whoever sends or receives goes on at once."""
        if self.edge is None:
            self.stream.socket.close()
        else:
            self.edge.close()


class Listener:
    """`context`: TLS, None for clear text; it may be replaced at any time, for connections to come."""

    def __init__(
        self,
        site: Site,
        listeners: Sequence[trio.SocketListener],
        *,
        options: ListenerOptions | None = None,
        context: ssl.SSLContext | None = None,
        hand_over: HandOver | None = None,
    ) -> None:
        self.context = context
        self.counts = PortCounts()
        self.ended = trio.Event()  # no more is accepted and every connection has ended
        self._site = site
        self.listeners = listeners
        self._options = options or ListenerOptions()
        self._hand_over = hand_over
        self._accepting = trio.CancelScope()
        self._shut = trio.Event()
        self._open: set[_Slot] = set()
        self._refusing = 0
        self._writer = AnswerWriter(time.time)
        self._poller = Poller(site) if HAS_EPOLL else None
        self._pool: TaskPool | None = None  # while it runs
        self._one_less = trio.lowlevel.ParkingLot()  # who waits for the end of connections

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._open)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and serve, until `drain` and the end of the last connection. Survives running out of descriptors."""
        async with trio.open_nursery() as beneath:
            beneath.start_soon(self._site.wheel.run)
            if self._poller is not None:
                beneath.start_soon(self._poller.run)
            self._pool = TaskPool(beneath, self._failed)
            try:
                async with trio.open_nursery() as connections:
                    try:
                        with self._accepting:
                            task_status.started()
                            await trio.serve_listeners(
                                self._serve, list(self.listeners), handler_nursery=connections
                            )
                    finally:
                        self._shut.set()
                while self._open:
                    await self._one_less.park()
            finally:
                for slot in list(self._open):  # all is cancelled, but those at rest have no task for that
                    slot.force()
            beneath.cancel_scope.cancel()
        self.ended.set()

    async def refuse_more(self) -> None:
        """Close the listening sockets: from here on nobody is let in."""
        self._accepting.cancel()
        await self._shut.wait()

    async def drain(self, bound: trio.CancelScope) -> None:
        """End every connection: gently until the scope's deadline, or its cancellation, then by force."""
        await self.refuse_more()
        for slot in list(self._open):
            if slot.connection is not None:
                slot.connection.end_if_idle()
            elif slot.handshake is not None:
                slot.handshake.cancel()
        with bound:
            await self.ended.wait()
        if not self.ended.is_set():
            await self._force()

    async def _force(self) -> None:
        """Close the raw streams: whoever sends or receives on one goes on at once, shielded or not."""
        left = list(self._open)
        self.counts.forced += len(left)
        log.warning("drain.forced", connections=len(left))
        for slot in left:
            slot.force()
        with trio.move_on_after(_FORCED_S):
            await self.ended.wait()

    # One connection.

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Whatever happens in it stays in it."""
        self.counts.accepted += 1
        if len(self._open) >= self._options.connections_max:
            await self._refuse(stream)
            return
        slot = _Slot(stream)
        self._open.add(slot)
        self.counts.open = len(self._open)
        is_served = False
        try:
            _set_up(stream)
            is_served = await self._serve_slot(slot)
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            self._failed(bug)
        finally:
            if not is_served:
                self._ended(slot)

    def _failed(self, bug: Exception) -> None:
        self.counts.bugs += 1
        log.exception("connection.bug", exc_info=bug)

    def _ended(self, slot: _Slot) -> None:
        self._open.discard(slot)
        self.counts.open = len(self._open)
        slot.force()
        if not self._open:
            self._one_less.unpark_all()

    async def _serve_slot(self, slot: _Slot) -> bool:
        """False if its handshake failed. Else it is known until it has ended, and may rest behind this."""
        context = self.context
        if context is not None:
            try:
                with trio.CancelScope() as slot.handshake:
                    stream = await shake_hands(slot.stream, context, timeout_s=self._options.handshake_s)
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError) as error:
                self.counts.handshakes_failed += 1
                log.debug("tls.handshake_failed", error=str(error.__cause__ or error))
                return False
            if slot.handshake.cancelled_caught:
                return False
            edge: Edge = TlsEdge(stream)
        elif self._poller is not None:
            edge = PolledEdge(slot.stream, self._poller)
        else:
            edge = SocketEdge(slot.stream)
        slot.edge = edge
        secure = context is not None
        assert self._pool is not None
        slot.connection = WireConnection(
            edge,
            self._site,
            options=self._options.wire,
            hand_over=self._hand_over,
            secure=secure,
            start=self._pool.start,
            ended=partial(self._ended, slot),
        )
        await slot.connection.serve()
        return True

    async def _refuse(self, stream: trio.SocketStream) -> None:
        """Say that there are too many connections, cheaply, and never for many at once."""
        self.counts.refused += 1
        try:
            if self.context is None and self._refusing < self._options.refusals_max:
                self._refusing += 1
                try:
                    with trio.move_on_after(_REFUSAL_LINGER_S):
                        await self._tell_refusal(stream)
                finally:
                    self._refusing -= 1
        finally:
            await trio.aclose_forcefully(stream)

    async def _tell_refusal(self, stream: trio.SocketStream) -> None:
        bound = self._options.connections_max
        refused = Rejected(
            Code.THROTTLED,
            f"connections: {bound} are open, and no more are taken; retry, or raise TOPICS_MAX_CONNECTIONS, and the"
            " limit on open files (ulimit -Hn) with it",
            limit="connections",
            max=bound,
        )
        answer = self._writer.encode(self._site.refuse(refused), without_body=False, closes=True, old=False)
        left = _REFUSAL_BYTES_MAX
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_all(answer)
            await stream.send_eof()
            while left > 0 and (
                data := await stream.receive_some(left)
            ):  # or the close would take the answer back
                left -= len(data)


def _set_up(stream: trio.SocketStream) -> None:
    """Trio has set TCP_NODELAY. A peer that vanished is noticed while we send and while we wait."""
    with suppress(OSError):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
