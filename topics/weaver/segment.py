"""Transitive trust (replication 5.7): a signature on the last intention of a chain speaks for the ones before it.

The last names the one before by hash, and so on down, so who trusts its signature need not check the others'. It
reaches the same author only: a condition says that an intention exists, not that it is true.

A hash does not cover the signature beside it. Who takes a segment this way keeps signatures it has not looked at, and
may hand on one that its peers refuse; that is why it is not the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from topics.kernel.errors import invalid
from topics.weaver.bounds import Bounds
from topics.weaver.envelope import Accepted, Envelope, accept


def accept_segment(segment: Sequence[Envelope], store_id: bytes, bounds: Bounds) -> list[Accepted]:
    """A chain of one author, oldest first: only the last signature is verified.

    Raises:
        Corrupt, Rejected: any link is broken or any item unacceptable. Nothing of the segment may be used.
    """
    accepted = [
        accept(envelope, store_id, bounds, linked=at < len(segment) - 1)
        for at, envelope in enumerate(segment)
    ]
    for before, after in pairwise(accepted):
        if after.intention.store_prev != before.hash:
            raise invalid(
                "segment", f"{after.hash.hex()} does not follow {before.hash.hex()}: the chain is broken"
            )
        if after.intention.author != before.intention.author:
            raise invalid(
                "segment", f"{after.hash.hex()} is another author's; trust does not reach over authors"
            )
    assert all(item.linked for item in accepted[:-1])
    assert not accepted or not accepted[-1].linked
    return accepted
