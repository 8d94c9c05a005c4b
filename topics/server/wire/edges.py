"""Edges over the operating system: a TCP socket, and TLS over one."""

from __future__ import annotations

import socket
from typing import Final

import trio

RECEIVE_BYTES: Final = 64 * 1024


class SocketEdge:
    """A connected TCP socket."""

    __slots__ = ("_raw", "stream")

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        # Trio's sockets are non-blocking underneath; theirs can only be awaited, and at twice the price.
        self._raw: socket.socket = stream.socket._sock  # type: ignore[attr-defined]  # noqa: SLF001 -- a contract test holds it

    async def receive(self) -> bytes:
        """Waits first: whoever has just been answered has not asked again yet."""
        while True:
            try:
                await trio.lowlevel.wait_readable(self._raw)
                return self._raw.recv(RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            except ValueError:
                raise trio.ClosedResourceError("this end is closed") from None

    async def send_all(self, data: bytes | memoryview) -> None:
        await self.stream.send_all(data)

    def try_send(self, data: bytes | memoryview) -> int:
        try:
            return self._raw.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()


class TlsEdge:
    """TLS over a socket. Nothing is sent without waiting: a record may need the peer to go on."""

    __slots__ = ("stream",)

    def __init__(self, stream: trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream

    async def receive(self) -> bytes:
        try:
            return bytes(await self.stream.receive_some(RECEIVE_BYTES))
        except trio.BrokenResourceError:
            return b""  # an end without TLS's goodbye is an end too: lengths say whether a message is whole

    async def send_all(self, data: bytes | memoryview) -> None:
        await self.stream.send_all(data)

    def try_send(self, data: bytes | memoryview) -> int:  # noqa: ARG002 -- the port has it
        return 0

    async def send_eof(self) -> None:
        """TLS has no half-close."""

    async def aclose(self) -> None:
        await self.stream.aclose()
