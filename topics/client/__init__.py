"""The store on another machine, or in another process: `topics.Client`, blocking, over HTTP (operations 5).

Method names and results are those of the embedded store, so code moves between the two by changing one line. What the
wire cannot carry is refused before anything is sent: payloads of bytes, and `sync`.

| module | what it holds |
|---|---|
| `address` | a server's URL, taken apart and checked |
| `transport` | one request over httpx: connections, time bounds |
| `client` | what a caller opens; its methods are those of `calls` |

    address    a server's URL: checked once, so that every later message can name it, and never with a secret in it
    client     `Client`: a server's topics, under the names the embedded store has for its own
    transport  HTTP by httpx: connections that are kept, time bounds, and what a failure of theirs means
"""

from topics.calls.blocking import Topic
from topics.calls.trouble import Trouble, Unreachable
from topics.client.client import Client

__all__ = ["Client", "Topic", "Trouble", "Unreachable"]
