"""A Weaver node as a simulation runs it: real parts over journals in memory, and a clock that is off."""

from __future__ import annotations

from typing import Final

from topics.crypto.keys import KeyPair
from topics.testing.clock import ManualClock
from topics.testing.journal import MemoryJournal
from topics.weaver.node.exchange import Exchange
from topics.weaver.node.roster import Roster
from topics.weaver.state.projection import open_state
from topics.weaver.store.intention_store import open_store
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import ExchangeOptions
from topics.weaver.weaver import Weaver

STORE_ID: Final = b"\xa7" * 16
GLITCH_MS: Final = 10 * 365 * 24 * 3_600_000


class SkewedClock:
    """The mesh's time, seen by a node whose clock is off."""

    __slots__ = ("_clock", "_glitch_ms", "_skew_ms")

    def __init__(self, clock: ManualClock, skew_ms: int) -> None:
        self._clock = clock
        self._skew_ms = skew_ms
        self._glitch_ms = 0  # what it is ahead for a while

    def now_ms(self) -> int:
        return max(0, self._clock.now_ms() + self._skew_ms + self._glitch_ms)

    def glitch(self) -> bool:
        """Go years ahead, or back if it is there; whether it is ahead now."""
        self._glitch_ms = GLITCH_MS - self._glitch_ms
        return self._glitch_ms > 0

    def correct(self) -> None:
        """Show the right time but for the skew."""
        self._glitch_ms = 0


class MeshNode:
    """One node: what survives a restart, and what is made anew by it."""

    __slots__ = ("backup", "clock", "exchange", "journals", "key", "number", "options", "weaver")

    def __init__(self, number: int, key: KeyPair, clock: SkewedClock, options: ExchangeOptions) -> None:
        self.number: Final = number
        self.key: Final = key
        self.clock: Final = clock
        self.options: Final = options
        self.journals: Final = [MemoryJournal() for _ in range(3)]
        self.backup: list[list[bytes]] | None = None
        self.start()

    def start(self) -> None:
        """Open everything from the journals, as a process does that was killed."""
        log, state, members = self.journals
        store = open_store(log, store_id=STORE_ID, node=self.key, clock=self.clock)
        self.weaver = Weaver(store, open_state(store, state), self.key)
        roster = Roster(
            members, store_id=STORE_ID, key=self.key.public, clock=self.clock, options=self.options
        )
        self.exchange = Exchange(Inventory(store), roster, self.clock, self.key, options=self.options)

    def save(self) -> None:
        """Keep a copy of the journals as they are."""
        self.backup = [list(journal.items) for journal in self.journals]

    def restore(self) -> None:
        """Put the copy in their place: what the node wrote since is forgotten here, and by nobody else."""
        assert self.backup is not None
        for journal, items in zip(self.journals, self.backup, strict=True):
            journal.items[:] = items

    @property
    def roster(self) -> Roster:
        return self.exchange.roster

    def shown(self) -> bytes:
        """What a read of every key shows, as bytes."""
        lines = [
            b"%d:%s=%d:%s" % (len(e.key), e.key, len(e.value), e.value) + (b"!" if e.conflicted else b"")
            for e in self.weaver.list()
        ]
        return b"\n".join(lines)
