"""The store on another machine, or in another process, over HTTP (operations 5): `topics.Client`, which blocks, and
`topics.AsyncClient`, which is awaited.

Method names and results are those of the embedded store, so code moves between them by changing one line. What the
wire cannot carry is refused before anything is sent: payloads of bytes, and `sync`.

    address          a server's URL: checked once, so that later messages can name it, and never with a secret in it
    key              the key that a server may ask for
    client           `Client`: a server's topics, under the names the embedded store has for its own
    transport        HTTP by httpx: connections that are kept, time bounds, and what a failure of theirs means
    async_client     `AsyncClient`: the same for tasks
    async_transport  its connections
    session_feed     what a watch is told by a server: sessions, and streams of events
    async_session_feed  the same for tasks
    websocket        text messages, both ways, by websockets' sans-IO protocol
    pushes           the jobs of a worker, pushed over a WebSocket
"""

from topics.calls.blocking import Topic
from topics.calls.trouble import Trouble, Unreachable
from topics.client.client import Client

__all__ = ["Client", "Topic", "Trouble", "Unreachable"]
