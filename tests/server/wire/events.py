"""A stream of server-sent events over the data plane, taken apart event by event."""

import json

import trio

from tests.server.wire.places import serve_connection
from tests.server.wire.playing import Client
from topics.testing.streams import edge_pair

HEAD = {
    b"HTTP/1.1 200 OK",
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
        assert set(head.split(b"\r\n")) >= HEAD, head
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
