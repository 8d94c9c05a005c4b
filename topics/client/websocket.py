"""A WebSocket to a server: text messages, both ways. websockets knows the protocol, anyio has the stream (decision 64).

One task reads, another one writes, so neither waits for the other. A peer of whom nothing comes is asked whether it
lives; that, and what the protocol answers by itself, is written with the messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import attrs
import httpx
from anyio.abc import ByteStream
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from topics.calls.trouble import WORDS, Trouble, Unreachable, answered, not_topics
from topics.calls.workers.desk import Bell
from topics.client.transport import ANSWER_BYTES_MAX, ANSWER_S, CONNECT_S, failures_told
from topics.kernel.errors import Code

PATH: Final = "/v0/ws"
SUBPROTOCOL: Final = Subprotocol("topics.v0")
SILENT_S: Final = 25.0  # then the peer is asked; more than after what a server asks, so one of both does
_GATEWAY: Final = (502, 503, 504)
_NO_UPGRADE: Final = (
    f"a worker needs a WebSocket ({PATH}), and to that it answered {{status}}: a proxy in between must let upgrades"
    " through (nginx: proxy_http_version 1.1, and the headers Upgrade and Connection), or name the server itself"
)


@attrs.frozen
class Way:
    """To a server. `trust`: an ssl.SSLContext, and False where there is no TLS. `silent_s`: see `SILENT_S`."""

    url: str
    headers: dict[str, str]
    trust: Any
    silent_s: float = SILENT_S


class ClientWebSocket:
    """A connection, from the acceptance on."""

    def __init__(self, way: Way, stream: ByteStream, protocol: ClientProtocol) -> None:
        self.url = way.url
        self._silent_s = way.silent_s
        self._stream = stream
        self._protocol = protocol
        self._fragments: list[bytes] = []
        self._bell = Bell()

    def wake(self) -> None:
        """There is something to write."""
        self._bell.ring()

    async def write(self, gather: Callable[[], Iterable[bytes]]) -> None:
        """What `gather` has each time, and what the protocol has to say. Until it ends, which who reads is told."""
        protocol = self._protocol
        try:
            while True:
                if protocol.state is State.OPEN:
                    for text in gather():
                        protocol.send_text(text)
                if data := b"".join(protocol.data_to_send()):
                    await self._stream.send(data)
                else:
                    await self._bell.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            await anyio.aclose_forcefully(self._stream)

    async def receive(self) -> list[bytes]:
        """The next messages, one at least.

        Raises:
            Unreachable: it was closed, or is broken, or its peer is silent.
        """
        messages: list[bytes] = []
        while not messages:
            if self._protocol.state is not State.OPEN:
                raise self._closed()
            try:
                self._protocol.receive_data(await self._read())
            except anyio.EndOfStream:
                self._protocol.receive_eof()
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                raise self._closed() from None
            messages = [text for event in self._protocol.events_received() for text in self._whole(event)]
            self.wake()
        return messages

    async def _read(self) -> bytes:
        for is_asked in (False, True):
            with anyio.move_on_after(self._silent_s):
                return await self._stream.receive()
            if not is_asked:
                self._protocol.send_ping(b"")
                self.wake()
        raise Unreachable(
            Trouble.TIMEOUT, self.url, f"silent for {2 * self._silent_s:.0f} s, though asked", sent=True
        )

    def _whole(self, event: object) -> Iterable[bytes]:
        """The message of which this is the last frame. Control frames are the protocol's."""
        assert isinstance(event, Frame)
        if event.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._fragments.append(bytes(event.data))
            if event.fin:
                yield b"".join(self._fragments)
                self._fragments.clear()

    def _closed(self) -> Unreachable:
        told = self._protocol.close_rcvd
        why = WORDS[Trouble.LOST] if told is None else f"it closed the connection ({told.code} {told.reason})"
        return Unreachable(Trouble.LOST, self.url, why, sent=True)


@asynccontextmanager
async def connected(way: Way) -> AsyncIterator[ClientWebSocket]:
    """A WebSocket to the server, which ends with the block.

    Raises:
        Unreachable: nobody is there, or no WebSocket of ours.
        Rejected: what the server answered instead.
    """
    uri = parse_uri("ws" + way.url.removeprefix("http") + PATH)
    protocol = ClientProtocol(uri, subprotocols=[SUBPROTOCOL], max_size=ANSWER_BYTES_MAX)
    request = protocol.connect()
    request.headers.update(way.headers)
    protocol.send_request(request)
    with failures_told(way.url, lambda: False):
        stream = await _stream(uri.host, uri.port, way.trust)
    try:
        with failures_told(way.url, lambda: False):
            await _shake_hands(stream, protocol)
        _check(protocol, way.url)
        yield ClientWebSocket(way, stream, protocol)
    finally:
        await anyio.aclose_forcefully(stream)


async def _stream(host: str, port: int, trust: Any) -> ByteStream:
    try:
        with anyio.fail_after(CONNECT_S):
            if not trust:
                return await anyio.connect_tcp(host, port)
            return await anyio.connect_tcp(host, port, ssl_context=trust, tls_standard_compatible=False)
    except TimeoutError as error:
        raise httpx.ConnectTimeout(str(error)) from error
    except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        raise httpx.ConnectError(str(error)) from error


async def _shake_hands(stream: ByteStream, protocol: ClientProtocol) -> None:
    """Ask, and have the whole answer."""
    try:
        with anyio.fail_after(ANSWER_S):
            await stream.send(b"".join(protocol.data_to_send()))
            while protocol.state is State.CONNECTING and protocol.handshake_exc is None:
                protocol.receive_data(await stream.receive())
    except TimeoutError as error:
        raise httpx.ReadTimeout(str(error)) from error
    except anyio.EndOfStream:
        protocol.receive_eof()
    except (OSError, anyio.BrokenResourceError) as error:
        raise httpx.ReadError(str(error)) from error


def _check(protocol: ClientProtocol, url: str) -> None:
    """Raises what was answered, if it is no acceptance."""
    response = next(iter(protocol.events_received()), None)
    if not isinstance(response, Response):
        why = protocol.handshake_exc and protocol.handshake_exc.__cause__
        if why is None or isinstance(why, EOFError):
            raise Unreachable(Trouble.LOST, url, WORDS[Trouble.LOST], sent=False)
        raise not_topics(url, str(why))
    if protocol.handshake_exc is None:
        return
    status = response.status_code
    error = answered(status, bytes(response.body), url=url, writes=False)
    if not isinstance(error, Unreachable) and error.code != Code.UPGRADE_REQUIRED:
        raise error
    if status in _GATEWAY:
        raise Unreachable(Trouble.LOST, url, f"a proxy answered {status}: it has no server now", sent=False)
    raise Unreachable(Trouble.NOT_TOPICS, url, _NO_UPGRADE.format(status=status), sent=False)
