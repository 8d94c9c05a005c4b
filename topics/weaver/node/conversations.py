"""What is under way with whom: a machine a stream, found by stream and by peer.

A walk, a snapshot and an invite keep no time of their own, so it is kept here when they last asked. How many machines a
peer makes this node keep is counted by peer, for whoever may open streams can open them without end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from topics.weaver.node.invite import Invite
from topics.weaver.node.outbox import PeerStream
from topics.weaver.sync.bootstrap import Clone
from topics.weaver.sync.catchup import CatchUp
from topics.weaver.sync.fetch import ChainWalk
from topics.weaver.sync.session import SyncSession

Conversation: TypeAlias = SyncSession | Clone | ChainWalk | CatchUp | Invite


class Conversations:
    """The machines of one node."""

    __slots__ = ("_asked_ms", "_by_peer")

    def __init__(self) -> None:
        self._by_peer: dict[bytes, dict[PeerStream, Conversation]] = {}
        self._asked_ms: dict[PeerStream, int] = {}

    def __bool__(self) -> bool:
        return bool(self._by_peer)

    def __contains__(self, stream: PeerStream) -> bool:
        return stream in self._by_peer.get(stream.peer, {})

    def get(self, stream: PeerStream) -> Conversation | None:
        return self._by_peer.get(stream.peer, {}).get(stream)

    def of(self, peer: bytes) -> dict[PeerStream, Conversation]:
        """Those with one peer; a copy."""
        return dict(self._by_peer.get(peer, {}))

    def start(self, stream: PeerStream, machine: Conversation) -> None:
        assert stream not in self
        self._by_peer.setdefault(stream.peer, {})[stream] = machine

    def asked(self, stream: PeerStream, now_ms: int) -> None:
        """A machine without a clock asked something."""
        assert not isinstance(self.get(stream), SyncSession | Clone)
        self._asked_ms[stream] = now_ms

    def end(self, stream: PeerStream) -> Conversation:
        """Take it out."""
        machines = self._by_peer[stream.peer]
        machine = machines.pop(stream)
        if not machines:
            del self._by_peer[stream.peer]
        self._asked_ms.pop(stream, None)
        return machine

    def served(self, peer: bytes) -> int:
        """How many run on streams that the peer opened."""
        return sum(not stream.mine for stream in self._by_peer.get(peer, {}))

    def walks(self, peer: bytes) -> list[ChainWalk]:
        """Gaps that are being closed with the peer."""
        return [each for each in self._by_peer.get(peer, {}).values() if isinstance(each, ChainWalk)]

    def walked(self) -> Iterator[bytes]:
        """What walks were begun for, with whomever."""
        for peer in self._by_peer:
            for walk in self.walks(peer):
                yield walk.target

    def is_syncing(self, peer: bytes) -> bool:
        return any(isinstance(each, SyncSession) for each in self._by_peer.get(peer, {}).values())

    def timed(self) -> list[tuple[PeerStream, SyncSession | Clone]]:
        """Those with deadlines of their own."""
        return [
            (stream, machine)
            for machines in self._by_peer.values()
            for stream, machine in machines.items()
            if isinstance(machine, SyncSession | Clone)
        ]

    def unanswered(self, now_ms: int, wait_ms: int) -> list[tuple[PeerStream, Conversation]]:
        """Those that asked something, and nothing came for so long."""
        return [
            (stream, self._by_peer[stream.peer][stream])
            for stream, asked_ms in self._asked_ms.items()
            if now_ms >= asked_ms + wait_ms
        ]

    def deadlines_ms(self, wait_ms: int) -> list[int]:
        """When each has something to do."""
        timed = [machine.deadline_ms for _, machine in self.timed()]
        asked = [asked_ms + wait_ms for asked_ms in self._asked_ms.values()]
        return [*asked, *(due_ms for due_ms in timed if due_ms is not None)]
