"""Edges that are told when something has come, and those over the operating system: a TCP socket, and TLS over one."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

import outcome
import trio

from topics.server.wire.poller import Poller

RECEIVE_BYTES: Final = 64 * 1024


class _Sending:
    """Of a socket that does not block."""

    __slots__ = ()
    _raw: socket.socket

    def try_send(self, data: bytes | memoryview) -> int:
        try:
            return self._raw.send(data)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error


class SocketEdge(_Sending):
    """A connected TCP socket."""

    __slots__ = ("_raw", "stream")

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        # Trio's sockets are non-blocking underneath; theirs can only be awaited, and at twice the price.
        self._raw = stream.socket._sock  # type: ignore[attr-defined]  # noqa: SLF001 -- a contract test holds it

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

    async def send_eof(self) -> None:
        await self.stream.send_eof()

    async def aclose(self) -> None:
        await self.stream.aclose()

    def close(self) -> None:
        self.stream.socket.close()


class ToldEdge(ABC):
    """An `Edge` that is told when there is something to receive, by a call. Only one task receives from it, and one
    sends. `is_readable`: as far as is known.
    """

    __slots__ = ("_has_ended", "_is_closed", "_task", "_told", "is_readable")

    def __init__(self) -> None:
        self.is_readable = self._has_ended = self._is_closed = False
        self._task: trio.lowlevel.Task | None = None  # it waits until something comes
        self._told: Callable[[], None] | None = None

    @abstractmethod
    def try_send(self, data: bytes | memoryview) -> int:
        """As an `Edge`."""

    @abstractmethod
    async def send_all(self, data: bytes | memoryview) -> None:
        """As an `Edge`."""

    @abstractmethod
    async def send_eof(self) -> None:
        """As an `Edge`."""

    @abstractmethod
    def _recv(self) -> bytes:
        """`RECEIVE_BYTES` at most; `b""` at the end. Raises `BlockingIOError`; `BrokenResourceError`."""

    @abstractmethod
    def _close(self) -> None:
        """What is beneath it."""

    async def receive(self) -> bytes:
        """Some bytes, as any edge."""
        while True:
            if self._is_closed:
                raise trio.ClosedResourceError("this end is closed")
            if self.is_readable:
                await trio.lowlevel.checkpoint()  # whoever sends without pause has no more than his turn
            else:
                await self._wait()
            data = self.receive_nowait()
            if data is not None:
                return data

    def receive_nowait(self) -> bytes | None:
        """Some bytes, as `receive`; None if nothing is there yet."""
        if self._is_closed:
            raise trio.ClosedResourceError("this end is closed")
        try:
            data = self._recv()
        except BlockingIOError:
            self.is_readable = False
            return None
        # Less than there was room for is all that there was, and what comes then is told anew; but an end that was told
        # with it is told once.
        self.is_readable = self._has_ended or len(data) == RECEIVE_BYTES
        return data

    def tell(self, told: Callable[[], None] | None) -> None:
        """Call this from here on whenever something can be read, while nobody receives: now, if something can."""
        self._told = told
        if told is not None and self.is_readable:
            told()

    def came(self, *, ended: bool) -> None:
        """Something can be read. `ended`: its peer sends no more, or it is broken. Raises nothing."""
        self.is_readable = True
        self._has_ended = self._has_ended or ended
        if self._told is not None:
            self._told()
        if self._task is not None:
            self._wake(outcome.Value(None))

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """Whoever receives or sends goes on at once."""
        if self._is_closed:
            return
        self._is_closed = self.is_readable = True  # it is told, as an error
        self._close()
        if self._told is not None:
            self._told()
        self._wake(outcome.Error(trio.ClosedResourceError("this end is closed")))

    async def _wait(self) -> None:
        assert self._task is None
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _wake(self, result: outcome.Outcome[None]) -> None:
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task, result)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


class PolledEdge(_Sending, ToldEdge):
    """A socket whose bytes are told by a `Poller`. It takes the socket out of the stream: an edge at rest needs no
    more.
    """

    __slots__ = ("_fd", "_poller", "_raw")

    def __init__(self, stream: trio.SocketStream, poller: Poller) -> None:
        super().__init__()
        family, kind, proto = stream.socket.family, stream.socket.type, stream.socket.proto
        self._fd = stream.socket.detach()
        self._raw = socket.socket(family, kind, proto, fileno=self._fd)
        self._raw.settimeout(0)
        self._poller = poller
        poller.add(self._fd, self)

    async def send_all(self, data: bytes | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        with memoryview(data) as left:
            at = 0
            while (at := at + self.try_send(left[at:])) < len(left):
                await trio.lowlevel.wait_writable(self._raw)

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        try:
            self._raw.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    def _recv(self) -> bytes:
        try:
            return self._raw.recv(RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            raise BlockingIOError from None
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    def _close(self) -> None:
        self._poller.drop(self._fd)
        trio.lowlevel.notify_closing(self._raw)
        self._raw.close()


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

    def close(self) -> None:
        self.stream.transport_stream.socket.close()
