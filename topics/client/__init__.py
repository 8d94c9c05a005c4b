"""The store on another machine, or in another process: `topics.Client`, blocking, over HTTP (operations 5).

Method names and results are those of the embedded store, so code moves between the two by changing one line. What the
wire cannot carry is refused before anything is sent: payloads of bytes, and `sync`.

| module | what it holds |
|---|---|
| `address` | a server's URL, taken apart and checked |
| `transport` | one request over httpx: connections, time bounds |
| `client` | what a caller opens; its methods are those of `calls` |
"""

from topics.calls.blocking import Topic
from topics.calls.trouble import Trouble, Unreachable
from topics.client.client import Client

__all__ = ["Client", "Topic", "Trouble", "Unreachable"]
