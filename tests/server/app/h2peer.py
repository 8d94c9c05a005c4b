"""A client of HTTP/2 for tests: the h2 library over one end of a connection, byte by byte in our hand."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import h2.config
import h2.connection
import h2.events
import h2.settings
import msgspec
import trio

from topics.server.api.edge import Edge
from topics.server.api.site import Site
from topics.server.app.handover import Http2HandOver
from topics.testing.streams import MemoryEdge, edge_pair

JSON = (b"content-type", b"application/json")
HOST = b"127.0.0.1:4000"


class Reply:
    """What came on one stream."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.informational: list[bytes] = []
        self.body = b""
        self.ended = False
        self.reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[b":status"])

    @property
    def json(self):
        assert int(self.headers[b"content-length"]) == len(self.body)
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


class H2Peer:
    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        # What a test sends on purpose is not checked, only what it receives.
        self.h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self.replies: dict[int, Reply] = {}
        self.goodbye: int | None = None
        self.gone = False
        self.pongs = 0
        self.auto_window = True
        self._stream_id = -1

    async def start(self) -> None:
        self.h2.initiate_connection()
        await self.flush()

    def forget_bounds(self) -> None:
        """Open as many streams as a test wants, whatever the server has promised."""
        self.h2.remote_settings = h2.settings.Settings(client=False)

    async def flush(self) -> None:
        data = self.h2.data_to_send()
        if data:
            await self.edge.send_all(data)

    async def ask(
        self,
        method: bytes,
        path: bytes,
        body: bytes | None = None,
        *more: tuple[bytes, bytes],
        authority: bytes | None = HOST,
        ends: bool = True,
    ) -> int:
        """Send a request, its body as far as the window goes; the stream's id."""
        self._stream_id += 2
        stream_id = self._stream_id
        headers = [(b":method", method), (b":path", path), (b":scheme", b"http")]
        if authority is not None:
            headers.append((b":authority", authority))
        headers += more
        self.replies[stream_id] = Reply()
        self.h2.send_headers(stream_id, headers, end_stream=body is None and ends)
        await self.flush()
        if body is not None:
            await self.send_body(stream_id, body, ends=ends)
        return stream_id

    async def send_body(self, stream_id: int, body: bytes, *, ends: bool = True) -> None:
        at = 0
        while at < len(body):
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            if room == 0:
                await self.receive()
                if self.replies[stream_id].reset is not None or self.gone:
                    return
                continue
            self.h2.send_data(stream_id, body[at : at + room])
            at += room
            await self.flush()
        if ends:
            self.h2.end_stream(stream_id)
            await self.flush()

    async def receive(self) -> None:
        """What comes next."""
        try:
            data = await self.edge.receive()
        except trio.BrokenResourceError:
            data = b""
        await self.take(data)

    async def take(self, data: bytes) -> None:
        """This has come; nothing at the end."""
        if not data:
            self.gone = True
            return
        for event in self.h2.receive_data(data):
            self._take(event)
        with suppress(trio.BrokenResourceError):
            await self.flush()

    def _take(self, event: h2.events.Event) -> None:
        reply = self.replies.get(getattr(event, "stream_id", 0) or 0)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goodbye = event.error_code
        elif isinstance(event, h2.events.PingAckReceived):
            self.pongs += 1
        elif reply is None:
            return
        elif isinstance(event, h2.events.ResponseReceived):
            assert len(dict(event.headers)) == len(event.headers), event.headers
            reply.headers = dict(event.headers)
        elif isinstance(event, h2.events.InformationalResponseReceived):
            reply.informational.append(dict(event.headers)[b":status"])
        elif isinstance(event, h2.events.DataReceived):
            reply.body += event.data
            if self.auto_window:
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            reply.ended = True
        elif isinstance(event, h2.events.StreamReset):
            reply.reset = event.error_code

    async def reply(self, stream_id: int) -> Reply:
        reply = self.replies[stream_id]
        while not (reply.ended or reply.reset is not None or self.gone):
            await self.receive()
        return reply

    async def get(
        self, method: bytes, path: bytes, body: bytes | None = None, *more: tuple[bytes, bytes]
    ) -> Reply:
        """Ask and wait for the answer."""
        if body is not None and not any(name == b"content-type" for name, _ in more):
            more = (JSON, *more)
        return await self.reply(await self.ask(method, path, body, *more))

    async def until_gone(self) -> None:
        """Read until the server has closed."""
        while not self.gone:
            await self.receive()


class Served:
    """A hand-over being tested, and the connections it was given."""

    def __init__(self, nursery: trio.Nursery, site: Site, **bounds: int) -> None:
        self.hand_over = Http2HandOver(site, **bounds)
        self.site = site
        self.edges: list[MemoryEdge] = []
        self.clients: list[MemoryEdge] = []
        self._nursery = nursery
        self._served = 0
        self._all_served = trio.Event()

    def connect(self, unread: bytes = b"", *, http2: bool = True, secure: bool = False) -> MemoryEdge:
        """The client's end."""
        client, server = edge_pair()
        self.edges.append(server)
        self.clients.append(client)
        self._all_served = trio.Event()
        self._nursery.start_soon(self._serve, server, unread, http2, secure)
        return client

    async def h2(self) -> H2Peer:
        peer = H2Peer(self.connect())
        await peer.start()
        return peer

    async def _serve(self, edge: MemoryEdge, unread: bytes, http2: bool, secure: bool) -> None:
        await self.hand_over(edge, unread, http2=http2, secure=secure)
        assert edge.closed
        self._served += 1
        if self._served == len(self.edges):
            self._all_served.set()

    async def all_ended(self) -> None:
        """Until every connection has ended."""
        await self._all_served.wait()


@asynccontextmanager
async def serving(site: Site, **bounds: int) -> AsyncIterator[Served]:
    """At the end every connection has ended by itself, and nothing is held."""
    async with trio.open_nursery() as nursery:
        served = Served(nursery, site, **bounds)
        yield served
        await served.hand_over.drain()
        for client in served.clients:
            client.close()
    assert (served.hand_over.connections, served.hand_over.requests) == (0, 0)
    assert (site.held_bytes, site.unsent_bytes) == (0, 0)
