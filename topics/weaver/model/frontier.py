"""A stability frontier: below it history is settled and may be pruned (replication 5.10).

A frontier is named by tips, an author each (more after an equivocation): everything at or below one of them is stable.
It is causally closed by that definition. Its id is the hash of its tips, so two nodes learn from 32 bytes whether they
have pruned the same history.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from topics.crypto.hashing import blake3
from topics.weaver.model.intention import ZERO_HASH


class Frontier(NamedTuple):
    """(author, tip) ascending."""

    tips: tuple[tuple[bytes, bytes], ...]

    @property
    def id(self) -> bytes:
        """Zero if nothing was pruned."""
        assert list(self.tips) == sorted(set(self.tips)), "one spelling of a frontier, and so one id"
        return blake3(b"".join([author + tip for author, tip in self.tips])) if self.tips else ZERO_HASH


NO_FRONTIER: Final = Frontier(())
