"""Snapshots on the wire: how a node behind its peers' frontier gets what they have pruned (replication 5.10).

A snapshot is the items of `prune.snapshot`, each behind its length, and is carried in parts by offset. Nothing of it is
used before all of it is here; `prune.adopt` then judges it. Should the peer prune again meanwhile, its size or its
signatures no longer fit, and the next session starts anew.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from topics.codec.primitives import U32
from topics.crypto.keys import KEY_SIZE
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.ports import Clock
from topics.weaver.state.prune import adopt_snapshot, snapshot
from topics.weaver.store.intention_store import IntentionStore
from topics.weaver.store.settled import Settlement
from topics.weaver.sync.limits import SNAPSHOT_MAX, SNAPSHOT_PART
from topics.weaver.sync.messages import Message, Refusal, SnapshotPart, SnapshotRequest


def pack_items(items: list[bytes]) -> bytes:
    return b"".join([chunk for item in items for chunk in (U32.pack(len(item)), item)])


def unpack_items(data: bytes) -> list[bytes]:
    """Raises `Corrupt` unless the bytes are exactly some items."""
    items: list[bytes] = []
    at = 0
    while at < len(data):
        if at + U32.size > len(data):
            raise Corrupt("snapshot: cut off")
        (size,) = U32.unpack_from(data, at)
        at += U32.size
        if at + size > len(data):
            raise Corrupt("snapshot: cut off")
        items.append(data[at : at + size])
        at += size
    assert at == len(data)
    return items


class SnapshotSource:
    """Serves the store's snapshot, made once a settlement."""

    __slots__ = ("_data", "_of", "_store")

    def __init__(self, store: IntentionStore) -> None:
        self._store = store
        self._of: Settlement | None = None
        self._data = b""

    def part(self, offset: int) -> SnapshotPart:
        assert offset >= 0
        if self._of != self._store.settlement:
            self._of = self._store.settlement
            self._data = pack_items(snapshot(self._store))
        return SnapshotPart(len(self._data), self._data[offset : offset + SNAPSHOT_PART])


class CatchUpStage(Enum):
    """How it stands."""

    GOING = "going"
    ADOPTED = "adopted"
    FAILED = "failed"


class CatchUp:
    """Takes the snapshot of the peer with key `server` into the store."""

    __slots__ = ("_clock", "_parts", "_server", "_size", "_store", "_taken", "brought", "reason", "state")

    def __init__(self, store: IntentionStore, clock: Clock, server: bytes) -> None:
        assert len(server) == KEY_SIZE
        self._store = store
        self._clock = clock
        self._server: Final = server
        self._parts: list[bytes] = []
        self._taken = 0
        self._size: int | None = None
        self.brought = 0
        self.reason = ""
        self.state = CatchUpStage.GOING

    def request(self) -> SnapshotRequest:
        assert self.state is CatchUpStage.GOING
        return SnapshotRequest(self._taken)

    def receive(self, message: Message) -> SnapshotRequest | None:
        """The next request, until all is here; then it is taken in or refused as a whole."""
        assert self.state is CatchUpStage.GOING
        if not isinstance(message, SnapshotPart):
            return self._fail(message.reason if isinstance(message, Refusal) else "no part of a snapshot")
        if self._size is None:
            self._size = message.size
        if message.size != self._size or not 0 < self._size <= SNAPSHOT_MAX or not message.data:
            return self._fail(f"there is no snapshot of {self._size} bytes to be had")
        self._parts.append(message.data)
        self._taken += len(message.data)
        assert self._taken == sum(map(len, self._parts))
        if self._taken < self._size:
            return self.request()
        try:
            items = unpack_items(b"".join(self._parts))
            self.brought = adopt_snapshot(self._store, items, self._server, self._clock.now_ms())
        except (Corrupt, Rejected) as error:
            return self._fail(error.message)
        self.state = CatchUpStage.ADOPTED
        return None

    def _fail(self, reason: str) -> SnapshotRequest | None:
        self.state, self.reason = CatchUpStage.FAILED, reason
        self._parts = []
        return None
