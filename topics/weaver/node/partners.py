"""With whom to sync, and when (replication 5.9).

A peer is wanted when it connects, when gossip to or from it was missed, when a session with it failed, and in its turn:
each `anti_entropy_ms` the connected peer whose last session is longest ago, so that what was missed unnoticed is found.
"""

from __future__ import annotations

from typing import Final

from topics.crypto.keys import KEY_SIZE
from topics.kernel.ports import Clock
from topics.weaver.sync.limits import ExchangeOptions


class Elapsed:
    """Time for waits and bounds. It goes on as the `clock` does, from where it was when that is set back: a session
    must not wait for a time that the clock will see again in ten years.
    """

    __slots__ = ("_lead_ms", "_newest_ms", "clock")

    def __init__(self, clock: Clock) -> None:
        self.clock: Final = clock
        self._lead_ms = 0
        self._newest_ms = clock.now_ms()

    def now_ms(self) -> int:
        """The clock, and what it was ever set back."""
        clock_ms = self.clock.now_ms()
        self._lead_ms = max(self._lead_ms, self._newest_ms - clock_ms)
        self._newest_ms = clock_ms + self._lead_ms
        return self._newest_ms

    def lead_ms(self) -> int:
        """How far ahead of the clock it is now."""
        self.now_ms()
        return self._lead_ms


class Partners:
    """The connected peers, in the order of their last session, and those that are wanted."""

    __slots__ = ("_connected", "_looked_ms", "_options", "_retry_ms", "_wanted")

    def __init__(self, options: ExchangeOptions, now_ms: int) -> None:
        self._options = options
        self._connected: dict[bytes, None] = {}
        self._wanted: dict[bytes, None] = {}
        self._retry_ms: dict[bytes, int] = {}
        self._looked_ms = now_ms

    def __contains__(self, peer: bytes) -> bool:
        """Whether it is connected."""
        return peer in self._connected

    def connected(self) -> list[bytes]:
        return list(self._connected)

    def wanted(self) -> list[bytes]:
        """Connected or not."""
        return list(self._wanted)

    def came(self, peer: bytes) -> None:
        """A connection is there; what held a session back before is past."""
        assert len(peer) == KEY_SIZE
        self._connected[peer] = None
        self._retry_ms.pop(peer, None)

    def went(self, peer: bytes) -> None:
        self._connected.pop(peer, None)

    def want(self, peer: bytes) -> None:
        self._wanted[peer] = None

    def want_all(self) -> None:
        """What one peer could not give, another may."""
        self._wanted |= self._connected
        assert len(self._wanted) >= len(self._connected)

    def postpone(self, peer: bytes, now_ms: int) -> None:
        """A session failed: another one, but not at once."""
        self._retry_ms[peer] = now_ms + self._options.idle_ms
        self.want(peer)
        assert peer not in self.ready(now_ms)

    def synced(self, peer: bytes) -> None:
        """A session ended well: the peer's turn is last."""
        if peer in self._connected:
            self._connected[peer] = self._connected.pop(peer)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._looked_ms + self._options.anti_entropy_ms:
            self._looked_ms = now_ms
            stalest = next(iter(self._connected), None)
            if stalest is not None:
                self.want(stalest)

    def ready(self, now_ms: int) -> list[bytes]:
        """Those to start with now; they are taken when they are started (`started`)."""
        return [p for p in self._wanted if p in self._connected and now_ms >= self._retry_ms.get(p, 0)]

    def started(self, peer: bytes) -> None:
        assert peer in self._connected
        del self._wanted[peer]

    @property
    def deadline_ms(self) -> int:
        """When `tick` or `ready` next has something to say."""
        retries = [self._retry_ms.get(peer, 0) for peer in self._wanted if peer in self._connected]
        return (
            min(self._looked_ms + self._options.anti_entropy_ms, *retries)
            if retries
            else (self._looked_ms + self._options.anti_entropy_ms)
        )
