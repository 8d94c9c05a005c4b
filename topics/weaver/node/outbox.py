"""What waits to be carried to peers: messages in order, bounded by bytes a peer (replication 5.9).

Gossip that finds no room is dropped, for a sync makes it good. Answers are asked for by the peer; one that asks without
reading is told so. A clone can be long, so its batches are made only when everything before them has been carried away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from topics.weaver.sync.messages import Message
from topics.weaver.sync.wire import encode

GOSSIP: Final = 0  # the number of the stream that is there while a connection is


class PeerStream(NamedTuple):
    """A stream with a peer; `mine`: opened by this node. Both sides of a connection count for themselves."""

    peer: bytes
    mine: bool
    number: int


class Sending(NamedTuple):
    """Bytes of one message; `ends`: nothing of this node comes behind them on that stream."""

    stream: PeerStream
    data: bytes
    ends: bool


class Outbox:
    """By peer, first in, first out."""

    __slots__ = ("_boxes", "_bytes", "_bytes_max", "_feeds")

    def __init__(self, bytes_max: int) -> None:
        assert bytes_max > 0
        self._bytes_max = bytes_max
        self._boxes: dict[bytes, deque[Sending]] = {}
        self._bytes: dict[bytes, int] = {}
        self._feeds: dict[PeerStream, Iterator[Message]] = {}

    def __len__(self) -> int:
        """Messages, and feeds that have more."""
        return sum(map(len, self._boxes.values())) + len(self._feeds)

    def has_room(self, peer: bytes) -> bool:
        """Whether the peer has carried away enough to be sent more."""
        return self._bytes.get(peer, 0) < self._bytes_max

    def send(self, stream: PeerStream, messages: Sequence[Message], *, ends: bool = False) -> None:
        """Put them behind what waits; `ends` with the last of them."""
        assert not ends or stream.number != GOSSIP, "gossip ends with the connection"
        box = self._boxes.setdefault(stream.peer, deque())
        for at, message in enumerate(messages, 1):
            data = encode(message)
            box.append(Sending(stream, data, ends and at == len(messages)))
            self._bytes[stream.peer] = self._bytes.get(stream.peer, 0) + len(data)

    def feed(self, stream: PeerStream, messages: Iterator[Message]) -> None:
        """Send these, each when the peer has nothing else to read."""
        assert not stream.mine, "a feed answers what a peer asked"
        self._feeds[stream] = messages

    def feeds(self, peer: bytes) -> int:
        """How many of the peer's streams are being fed."""
        return sum(stream.peer == peer for stream in self._feeds)

    def end_feed(self, stream: PeerStream) -> None:
        self._feeds.pop(stream, None)

    def forget(self, peer: bytes) -> None:
        """The connection is gone."""
        self._boxes.pop(peer, None)
        self._bytes.pop(peer, None)
        for stream in [stream for stream in self._feeds if stream.peer == peer]:
            del self._feeds[stream]

    def take(self, limit: int) -> list[Sending]:
        """Up to `limit` messages; those left are kept."""
        assert limit > 0
        for stream, messages in list(self._feeds.items()):
            if not self._boxes.get(stream.peer):
                message = next(messages, None)
                if message is None:
                    del self._feeds[stream]
                else:
                    self.send(stream, [message])
        taken: list[Sending] = []
        for peer in list(self._boxes):
            box = self._boxes[peer]
            while box and len(taken) < limit:
                taken.append(box.popleft())
                self._bytes[peer] -= len(taken[-1].data)
            assert self._bytes[peer] >= len(box), "no message is empty"
            if len(taken) == limit:
                # The others come first next time, however much this one asks for.
                self._boxes[peer] = self._boxes.pop(peer)
                break
        assert len(taken) <= limit
        return taken
