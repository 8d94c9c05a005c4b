"""The store on another machine, or in another process: `topics.Client`, blocking, over HTTP (operations 5).

Method names and results are those of the embedded store, so code moves between the two by changing one line. What the
wire cannot carry is refused before anything is sent: payloads of bytes, and `sync`.

| module | what it holds |
|---|---|
| `address` | a server's URL, taken apart and checked |
| `trouble` | what went wrong between here and the server, and errors it answered |
| `patience` | when to try again, how long to wait, when to give up |
| `messages` | values as request bodies, answers as values; payloads byte for byte |
| `transport` | one request: connections, time bounds, repeating |
| `client`, `topic` | what a caller sees |
"""

from topics.client.client import Client
from topics.client.topic import Topic
from topics.client.trouble import Trouble, Unreachable

__all__ = ["Client", "Topic", "Trouble", "Unreachable"]
