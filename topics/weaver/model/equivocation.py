"""Proof that an author equivocated: two intentions it signed, both following the same one (replication 5.2).

It needs no trust in whoever shows it: both signatures are the author's.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import decode, verify


class Proof(NamedTuple):
    """Two envelopes of one author in one store with the same `store_prev`."""

    author: bytes
    store_prev: bytes
    first: Envelope
    second: Envelope

    @property
    def is_whole(self) -> bool:
        """Whether neither side was pruned: half of one proves nothing."""
        return bool(self.first.body and self.second.body)

    def is_valid(self) -> bool:
        """Whether it proves what it says. Raises `Corrupt` if a body is no intention."""
        if self.first.body == self.second.body or not self.is_whole:
            return False
        bodies = (self.first.body, self.second.body)
        one, other = (decode(body) for body in bodies)
        return (
            one.author == other.author == self.author
            and one.store_prev == other.store_prev == self.store_prev
            and one.store_id == other.store_id
            and verify(*self.first)
            and verify(*self.second)
        )
