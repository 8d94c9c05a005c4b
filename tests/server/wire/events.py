"""A stream of server-sent events over either plane, taken apart event by event."""

import json

import trio

from tests.server.app.h2peer import H2Peer
from tests.server.wire.places import serve_connection
from tests.server.wire.playing import Client
from topics.testing.streams import edge_pair

STATUS_LINE = b"HTTP/1.1 200 OK"
HEAD = {
    STATUS_LINE,
    b"content-type: text/event-stream",
    b"cache-control: no-store",
    b"x-accel-buffering: no",
}


class Events:
    """The body of a stream. `path`: what is asked for."""

    def __init__(self, site, nursery, *, back=1 << 20):
        ours, self.theirs = edge_pair(1 << 20, back=back)
        self.client, self._body = Client(ours), b""
        nursery.start_soon(serve_connection, self.theirs, site)

    async def open(self, path, *fields):
        lines = b"".join(b"%b: %b\r\n" % field for field in ((b"host", b"localhost"), *fields))
        await self.client.send(b"GET %b HTTP/1.1\r\n%b\r\n" % (path, lines))
        while b"\r\n\r\n" not in self.client.buffer:
            self.client.buffer += await self.client.receive()
        head, _, self.client.buffer = self.client.buffer.partition(b"\r\n\r\n")
        self.head = set(head.split(b"\r\n"))
        assert self.head >= HEAD, head
        retry, _, self.first_id = (await self.text()).partition("\nid: ")
        assert retry == "retry: 2000"
        return self

    async def text(self):
        """The next event as it is written, "" at the end."""
        while b"\n\n" not in self._body:
            if not await self._chunk():
                return ""
        one, _, self._body = self._body.partition(b"\n\n")
        return one.decode()

    async def told(self):
        """(the event's name, its id, its data)"""
        fields = [line.partition(": ")[::2] for line in (await self.text()).split("\n")]
        named = dict(fields)
        data = "\n".join(value for name, value in fields if name == "data")
        return named["event"], named.get("id"), json.loads(data)

    def has_more(self):
        """Something has come, and was not looked at."""
        return bool(self._body or self.client.buffer or self.client.edge.unread_bytes)

    has_ended = False  # for good: over HTTP/1.1 with its connection, which we close

    async def leave(self):
        await self.client.edge.aclose()

    async def _chunk(self):
        """One more into the body; False at the end."""
        client = self.client
        while b"\r\n" not in client.buffer:
            if not await self._more():
                return False
        size, _, rest = client.buffer.partition(b"\r\n")
        while len(rest) < int(size, 16) + 2:
            if not await self._more():
                return False
            rest = client.buffer.partition(b"\r\n")[2]
        self._body += rest[: int(size, 16)]
        client.buffer = rest[int(size, 16) + 2 :]
        return size != b"0"

    async def _more(self):
        try:
            data = await self.client.receive()
        except trio.BrokenResourceError:
            data = b""
        self.client.buffer += data
        return bool(data)


class Http2Events(Events):
    """The same over HTTP/2, on a connection of its own."""

    def __init__(self, served):
        self.client, self._body = Client(served.connect()), b""
        self._peer, self._stream, self._taken = H2Peer(self.client.edge), 0, 0

    async def open(self, path, *fields):
        await self._peer.start()
        self._stream = await self._peer.ask(b"GET", path, None, *fields)
        reply = self._peer.replies[self._stream]
        while not reply.headers:
            await self._more()
        self.head = head = {b"%b: %b" % field for field in reply.headers.items()}
        assert head >= {b":status: 200", *HEAD} - {STATUS_LINE}, head
        retry, _, self.first_id = (await self.text()).partition("\nid: ")
        assert retry == "retry: 2000"
        return self

    @property
    def has_ended(self):
        return self._peer.replies[self._stream].ended

    async def leave(self):
        if not self.has_ended:
            self._peer.h2.reset_stream(self._stream)
            await self._peer.flush()

    async def _chunk(self):
        reply = self._peer.replies[self._stream]
        while len(reply.body) == self._taken:
            assert reply.reset is None
            if reply.ended:
                return False
            await self._more()
        self._body += reply.body[self._taken :]
        self._taken = len(reply.body)
        return True

    async def _more(self):
        await self._peer.take(await self.client.receive())
