"""Sockets of the wire in an epoll instance of its own (decision 119): one task waits for all of them.

Theory. Each socket is registered once, edge-triggered: the kernel says when something has come, and is not asked again
before it is read. The instance's own descriptor is what the one task waits on. What has come is told in one pass, each
socket in turn; what is proposed meanwhile is one batch, written behind the pass and before anything else is done, so
that connections that ask together share a write, and one that asks alone waits for no other task.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, Protocol

import trio

from topics.server.api.site import Site

HAS_EPOLL: Final = hasattr(select, "epoll")
_EVENTS_MAX: Final = 64  # of a pass; then others have their turn


class Polled(Protocol):
    """A socket's owner."""

    def came(self, *, ended: bool) -> None:
        """Something can be read. `ended`: its peer sends no more, or it is broken. Raises nothing."""
        ...


class Poller:
    """Of one port."""

    def __init__(self, site: Site) -> None:
        assert HAS_EPOLL
        self._site = site
        self._epoll = select.epoll()
        self._by_fd: dict[int, Polled] = {}

    def add(self, fd: int, polled: Polled) -> None:
        """Tell it from here on, first of what is there already. Pair with `drop`, before the socket is closed."""
        assert fd not in self._by_fd
        self._epoll.register(fd, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        self._by_fd[fd] = polled

    def drop(self, fd: int) -> None:
        del self._by_fd[fd]
        if not self._epoll.closed:  # it is, where all is cancelled at once
            self._epoll.unregister(fd)

    async def run(self) -> None:
        """Until it is cancelled, behind the end of the last socket."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._epoll.fileno())
                self._tell()
        finally:
            self._epoll.close()

    def _tell(self) -> None:
        tell_together(self._site, self._tell_each)

    def _tell_each(self) -> None:
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            polled = self._by_fd.get(fd)
            if polled is not None:  # else one that was told before has closed it
                polled.came(ended=events & ~select.EPOLLIN != 0)


def tell_together(site: Site, tell_each: Callable[[], None]) -> None:
    """One pass: what is proposed meanwhile is one batch."""
    if site.runtime is None:  # the log is being recovered
        tell_each()
    else:
        site.runtime.write_together(tell_each)
