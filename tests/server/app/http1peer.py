"""One request over HTTP/1.1 to the second plane, and its answer as h11 reads it."""

import h11

from tests.server.app.h2peer import Served


async def exchange(served: Served, sent: bytes, *, more: bytes = b"", secure: bool = False):
    """The answer to these bytes, as h11 reads it: status, headers, body."""
    edge = served.connect(sent, http2=False, secure=secure)
    if more:
        await edge.send_all(more)
    received = b""
    while data := await edge.receive():
        received += data
    assert edge.unread_bytes == 0
    await edge.aclose()
    client = h11.Connection(h11.CLIENT)
    method = sent.split(b" ")[0] if sent[:1].isalpha() else b"GET"
    client.send(h11.Request(method=method, target="/", headers=[("Host", "a")]))
    client.receive_data(received)
    client.receive_data(b"")
    answer = client.next_event()
    assert isinstance(answer, h11.Response), answer
    body = b""
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage)
    headers = dict(answer.headers.raw_items())
    assert len(headers) == len(answer.headers)
    return answer.status_code, {name.lower(): value for name, value in headers.items()}, body


def get(path: bytes, *fields: bytes, method: bytes = b"GET") -> bytes:
    return b"\r\n".join([method + b" " + path + b" HTTP/1.1", b"Host: localhost:4000", *fields, b"", b""])
