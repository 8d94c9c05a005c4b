"""The feed of a `Watch` at a server: requests as any, and a stream of events on a connection of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx

from topics.calls.retry import HttpAnswer, Line, Request, Send, Sleep
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rules import Asked
from topics.calls.watching.session import SILENT_S, Receive, RemoteWatch
from topics.client.transport import BodyPieces, Transport, build, check_events, closed, failures_told


class EventStream:
    """Of one connection after another. What breaks one is no error: its reader goes on by the next."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._http: httpx.Client | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._turn = threading.Lock()  # of who waits for something
        transport.streams.add(self)

    def open(self, request: Request) -> HttpAnswer:
        """Its answer; what comes of a good one is received.

        Raises:
            Unreachable: there is no answer, or none of ours.
            Rejected: the client is closed.
        """
        with self._turn:
            return self._opened(request)

    def _opened(self, request: Request) -> HttpAnswer:
        self.close()
        if self._transport.is_closed:
            raise closed()
        self._http = http = self._transport.connect()
        url = self._transport.url
        with failures_told(url, lambda: self._is_cut):
            found = http.send(build(http, url, request), stream=True)
            if found.is_success:
                check_events(found, url)
                self._socket = found.extensions["network_stream"].get_extra_info("socket")
                self._pieces = found.iter_raw()
                body = b""
            else:
                whole = BodyPieces(url)
                for piece in found.iter_raw():
                    whole.add(piece)
                body = whole.whole
        if self._is_cut:  # while it was opened, when there was nothing to cut
            self._shut()
        return HttpAnswer(found.status_code, body, found.headers.get("retry-after"))

    def receive(self) -> bytes:
        """The next bytes; none if it has ended, or is broken, or silent for too long."""
        with self._turn, suppress(httpx.TransportError):
            return next(self._pieces, b"")
        return b""

    def cut(self) -> None:
        """Whoever waits for something is let go; if nobody does, it is closed."""
        self._is_cut = True
        self._shut()
        if self._turn.acquire(blocking=False):
            try:
                self.close()
            finally:
                self._turn.release()

    def _shut(self) -> None:
        """To close a socket wakes nobody."""
        if self._socket is not None:
            with suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # of TLS, too, without its farewell

    def close(self) -> None:
        """Nobody waits for it."""
        self._socket, self._pieces = None, iter(())
        http, self._http = self._http, None
        if http is not None:
            http.close()


class SessionFeed:
    """`Feed` of a client. `silent_s`: a stream from which so long nothing comes is broken."""

    def __init__(self, asked: Asked, line: Line, transport: Transport, *, silent_s: float = SILENT_S) -> None:
        self.cursors = Cursors(asked.starts)
        self.steps = RemoteWatch(self.cursors, asked, line, silent_s=silent_s).steps()
        self._line = line
        self._transport = transport
        self._stream = EventStream(transport)

    def answer(self, step: Any) -> Any:
        match step:
            case Send(request) if request.silent_s is None:
                return self._transport.send(request)
            case Send(request):
                return self._stream.open(request)
            case Receive():
                return self._stream.receive()
        assert isinstance(step, Sleep)
        self._line.pace.sleep(step.seconds)
        return None

    def cut(self) -> None:
        self._stream.cut()

    def close(self) -> None:
        self._stream.close()
