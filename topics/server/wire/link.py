"""A connection as bytes: what has come and is not read yet, what goes, and how long its peer is waited for.

Theory. One cancel scope bounds whatever the peer makes us wait for, and its deadline moves. Only a handler and an idle
connection have none there: requests of a connection that is asked again and again move no deadline. The link is the
`Peer` of its handlers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import trio

from topics.server.api.edge import Edge
from topics.server.api.memory import Share
from topics.server.api.site import Site
from topics.server.wire.edges import ToldEdge
from topics.server.wire.patience import Phase, WireOptions
from topics.server.wire.receiving import Incoming
from topics.server.wire.sending import Outgoing
from topics.server.wire.watch import PeerWatch, ToldPeerWatch

Take = Callable[[bytes], bool]
LINGER_S: Final = 1.0
LINGER_BYTES: Final = 64 * 1024


class PeerLink:
    """`held`: what a request has in memory; `room`: what answers have, until they are sent."""

    __slots__ = (
        "_bounded", "_idle_since", "_resting", "_site", "edge", "held", "incoming", "options", "outgoing", "phase",
        "room", "scope",
    )  # fmt: skip

    def __init__(self, edge: Edge, site: Site, options: WireOptions) -> None:
        self.edge = edge
        self.options = options
        self.incoming = Incoming(edge, site.requests)
        self.outgoing = Outgoing(edge)
        self.held = Share(site.requests)
        self.room = Share(site.answers)
        self.phase = Phase.IDLE
        self.scope: trio.CancelScope  # of the task that serves it
        self._site = site
        self._bounded = False
        self._idle_since = 0.0
        self._resting: trio.CancelScope | None = None

    # How long the peer is waited for.

    def idle_until(self) -> float:
        """When it has been idle for too long, as far as can be known now. It is looked at then: a request that moved a
        deadline would cost as much as reading a small body.
        """
        since = self._idle_since if self.phase is Phase.IDLE else trio.current_time()
        return since + self.options.idle_s

    def rest(self) -> None:
        """Between requests, from now on."""
        self._idle_since = trio.current_time()
        self.enter_unbounded(Phase.IDLE)

    def enter(self, phase: Phase, bound_s: float) -> None:
        self.phase = phase
        self._bounded = True
        self.scope.deadline = trio.current_time() + bound_s

    def enter_unbounded(self, phase: Phase) -> None:
        self.phase = phase
        if self._bounded:
            self._bounded = False
            self.scope.deadline = math.inf

    def pace(self, started: float, received: int) -> None:
        """A body of which so much has come since then goes on coming."""
        self.phase = Phase.BODY
        self._bounded = True
        self.scope.deadline = started + self.options.grace_s + received / self.options.byte_rate

    # Bytes.

    async def flush(self) -> None:
        """Send what is gathered, as the peer takes it.

        Raises:
            BrokenResourceError: the peer has gone, or does not read and there is no memory to keep it for him.
        """
        outgoing = self.outgoing
        if not outgoing.pieces:
            return
        if not outgoing.send_nowait():
            self.enter(Phase.SENDING, self.keep_unsent())
            await outgoing.send()
        self.all_sent()

    def keep_unsent(self) -> float:
        """What does not go at once is on the account of answers. How long the peer has to take it, in seconds.

        Raises:
            BrokenResourceError: there is no memory to keep it.
        """
        size = self.outgoing.size
        if not self.room.keep(size):
            self._site.unsent_dropped += 1
            raise trio.BrokenResourceError("no memory is left for a peer that does not read")
        return self.options.grace_s + size / self.options.byte_rate

    def all_sent(self) -> None:
        """Nothing that is gathered is left."""
        if self.room.size:
            self.room.release()
        self.outgoing.unsent.clear()

    async def linger(self, bytes_max: int = LINGER_BYTES) -> None:
        """Half-close and drain (RFC 9112 9.6): a close with bytes unread would take the answer back."""
        await self.edge.send_eof()
        with trio.move_on_after(LINGER_S):
            await self.incoming.drain(bytes_max)

    def give_away(self, text: bytes) -> bytes:
        """Every byte that is not served, from the head that was read on: somebody else's now."""
        self.enter_unbounded(Phase.BUSY)
        unread = text + bytes(self.incoming.buffer)
        self.incoming.buffer.clear()
        return unread

    def let_go(self) -> None:
        """Hold nothing."""
        self.outgoing.drop()
        self.incoming.let_go()
        self.held.release()
        self.room.release()

    async def close(self) -> None:
        """Hold nothing, and close the edge."""
        self.let_go()
        with trio.CancelScope(deadline=trio.current_time() + LINGER_S, shield=True):
            await self.edge.aclose()

    async def rest_until(self, take: Take) -> bytes | None:
        """What comes next and is not taken: `take` is offered it. None if `wake` is called."""
        with trio.CancelScope() as self._resting:
            while True:
                data = await self.edge.receive()
                if not take(data):
                    return data
        return None

    def wake(self) -> None:
        """Whoever rests goes on."""
        if self._resting is not None:
            self._resting.cancel()

    # As the handlers' Peer.

    def watch(self) -> PeerWatch | ToldPeerWatch:
        if isinstance(self.edge, ToldEdge):
            return ToldPeerWatch(self.edge, self.incoming, self.answer_first)
        return PeerWatch(self.incoming, self.answer_first)

    async def answer_first(self) -> None:
        """Answers to requests before the present one go out: nobody waits for them any longer."""
        await self.flush()
        self.enter_unbounded(Phase.BUSY)
