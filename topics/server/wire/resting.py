"""A connection as to who serves it: a task while there is something to serve, and at rest nobody (decision 130).

Theory. At rest, where bytes are told, what comes is told by a call. What the call cannot serve is kept, and a
task started that goes on from it; one that finds nothing more to do leaves the connection at rest. What ends a
connection at rest is a call, too. Where nothing is told, as over TLS, a task waits where it would leave.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import trio

from topics.server.api.message import Answer, PeerGone
from topics.server.wire.edges import ToldEdge
from topics.server.wire.link import LINGER_S, PeerLink
from topics.server.wire.patience import Phase
from topics.server.wire.tasks import Attended


class RestingConnection(ABC):
    """`start`: serves it, or one of its other tasks, as `TaskPool.start` does. `ended`: called when it has ended."""

    __slots__ = (
        "_bug", "_ended", "_has_risen", "_is_at_rest", "_is_over", "_leaves", "_link", "_told", "_told_edge", "start",
    )  # fmt: skip

    def __init__(
        self, link: PeerLink, start: Callable[[Attended], None], ended: Callable[[], None] | None
    ) -> None:
        self._link = link
        self.start = start
        self._ended = ended
        self._told_edge = link.edge if isinstance(link.edge, ToldEdge) else None
        self._is_at_rest = False  # without a task
        self._leaves = False  # the task, for there is nothing more to do
        self._is_over = False
        self._has_risen = False  # for this, which it was told at rest, and perhaps a bug there
        self._told: bytes | None = None
        self._bug: Exception | None = None

    # What a connection is about.

    @abstractmethod
    async def _serve(self) -> None:
        """Until it ends, or `_leaves`."""

    @abstractmethod
    async def _timed_out(self) -> None:
        """The peer was too slow."""

    @abstractmethod
    async def _broken(self, bug: Exception) -> None:
        """It ends by a bug. Raises nothing."""

    @abstractmethod
    def _failed(self, bug: Exception) -> Answer:
        """Tell of a bug: the answer to who asked, if he can be answered."""

    @abstractmethod
    def _look(self, edge: ToldEdge) -> None:
        """Something has come while it rests: read what there is, and serve it, `_rise` or `_end_at_rest`."""

    @abstractmethod
    def _let_go(self) -> None:
        """It has ended: nobody shall know it any more."""

    # With a task.

    async def serve(self) -> None:
        """Until the connection ends, which closes the edge, or rests without a task. Nothing that a peer or a handler
        does is raised.
        """
        with trio.CancelScope() as scope:
            await self.attend(scope)

    async def attend(self, scope: trio.CancelScope) -> None:
        self._link.scope = scope
        goes_on = False
        try:
            if self._bug is not None:
                raise self._bug
            await self._serve()
            goes_on = self._leaves
        except trio.Cancelled:
            if scope.cancel_called:  # else all is
                with trio.CancelScope(deadline=trio.current_time() + LINGER_S, shield=True):
                    await self._give_up()
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError, PeerGone):
            pass
        except Exception as bug:  # noqa: BLE001 -- a bug ends this connection only (architecture 4)
            await self._broken(bug)
        finally:
            if not goes_on:
                self._forget()
                await self._link.close()
                self._has_ended()
        if goes_on:
            assert self._told_edge is not None
            self._leaves = False
            self._is_at_rest = True
            self._told_edge.tell(self._came)

    async def _give_up(self) -> None:
        try:
            await self._timed_out()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except Exception as bug:  # noqa: BLE001 -- as there
            self._failed(bug)

    # At rest.

    def _came(self) -> None:
        """Something has come, or the edge was closed. Raises nothing."""
        assert self._told_edge is not None
        try:
            self._look(self._told_edge)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._end_at_rest()
        except Exception as bug:  # noqa: BLE001 -- it ends this connection, and is not raised in who tells
            self._bug = bug
            if self._is_at_rest:
                self._rise()

    def _rise(self, told: bytes | None = None) -> None:
        """A task goes on from this."""
        assert self._is_at_rest
        assert self._told_edge is not None
        self._told_edge.tell(None)
        self._is_at_rest = False
        self._has_risen, self._told = True, told
        self._link.phase = Phase.BUSY  # it is not let go of before it is looked at
        self.start(self)

    @property
    def can_rest(self) -> bool:
        """True if what comes is told by calls, so that no task need wait for it."""
        return self._told_edge is not None

    def wake(self) -> None:
        """There is more to do: for the task that serves it, or for one from now on."""
        if self._is_at_rest:
            self._rise()
        else:
            self._link.wake()

    def abort(self) -> None:
        """It is broken: the task that serves it is cancelled, or one is started and finds it so."""
        if self._is_at_rest:
            self._rise()
        elif not self._has_risen and not self._is_over:  # else the scope is another's
            self._link.scope.cancel()

    def _take_told(self) -> bytes | None:
        """What it has risen for, if that was bytes."""
        told, self._has_risen, self._told = self._told, False, None
        return told

    def _end_idle(self) -> None:
        """At rest, or while its task waits for bytes."""
        if self._is_at_rest:
            self._end_at_rest()
        else:
            self._link.scope.cancel()

    def _end_at_rest(self) -> None:
        assert self._told_edge is not None
        self._told_edge.tell(None)
        self._is_at_rest = False
        self._forget()
        self._link.let_go()
        self._told_edge.close()
        self._has_ended()

    def _forget(self) -> None:
        self._is_over = True
        try:
            self._let_go()
        except Exception as bug:  # noqa: BLE001 -- the connection has ended, and nobody else shall
            self._failed(bug)

    def _has_ended(self) -> None:
        if self._ended is not None:
            self._ended()
