"""Who wants to hear of keys (replication 5.5): the winner of a key, after it is committed.

A watch is read by its owner when it likes. Until then it keeps the newest event a key, so it is bounded by the keys it
has not read; when even those are too many it lets go of all and says so, and its owner lists the prefix again.
"""

from __future__ import annotations

from typing import NamedTuple


class KeyEvent(NamedTuple):
    """What a read of the key gives now; `hash` is the intention that wrote it, `value` None if that was a delete."""

    key: bytes
    value: bytes | None
    conflicted: bool
    hash: bytes


class KeyWatch:
    """Events of keys that start with `prefix`."""

    __slots__ = ("_keys_max", "_lagged", "_pending", "prefix")

    def __init__(self, prefix: bytes, keys_max: int) -> None:
        assert keys_max >= 1
        self.prefix = prefix
        self._keys_max = keys_max
        self._lagged = False
        self._pending: dict[bytes, KeyEvent] = {}

    def push(self, event: KeyEvent) -> None:
        """Keep the event, in the place of an unread one of the same key."""
        if not event.key.startswith(self.prefix):
            return
        self._pending.pop(event.key, None)
        self._pending[event.key] = event
        if len(self._pending) > self._keys_max:
            self._pending.clear()
            self._lagged = True
        assert len(self._pending) <= self._keys_max

    def take(self) -> tuple[KeyEvent, ...]:
        """The events since the last call, oldest first."""
        events = tuple(self._pending.values())
        self._pending = {}
        return events

    def take_lagged(self) -> bool:
        """Whether events were let go since the last call: then the prefix must be listed again."""
        lagged, self._lagged = self._lagged, False
        return lagged
