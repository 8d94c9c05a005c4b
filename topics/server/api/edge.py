"""The one port a connection is spoken through: a socket, TLS over one, or memory (architecture 5)."""

from __future__ import annotations

from typing import Protocol


class Edge(Protocol):
    """A byte stream. Calls raise `trio.BrokenResourceError` or `trio.ClosedResourceError` when it has ended."""

    async def receive(self) -> bytes:
        """Some bytes, at least one; `b""` when the peer has ended its side."""
        ...

    async def send_all(self, data: bytes | memoryview) -> None: ...

    def try_send(self, data: bytes | memoryview) -> int:
        """Send what goes without waiting and return how much that was. Only while no `send_all` runs."""
        ...

    async def send_eof(self) -> None:
        """End our side; the peer may go on. On TLS this does nothing."""
        ...

    async def aclose(self) -> None: ...

    def close(self) -> None:
        """By force and without waiting: whoever sends or receives goes on at once."""
        ...


class HandOver(Protocol):
    """Takes a connection that is not served here, with every byte that was not, to its end."""

    async def __call__(self, edge: Edge, unread: bytes, *, http2: bool, secure: bool) -> None: ...
