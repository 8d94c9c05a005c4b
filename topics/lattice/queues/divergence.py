"""Two records at one offset: the sign that a queue had two writers (replication 2.4 b).

Replication goes on, because the join decides the same everywhere; but one of the two records is gone, and whoever read
it has to hear of that. So each merge compares the stretch that both sides have, which costs what they do not share.
"""

from __future__ import annotations

import attrs

from topics.lattice.queues.queue_state import LatticeQueueState


@attrs.frozen
class Divergence:
    """From `first_offset` on the copies of a partition differ. `digests`: of the own record there, and of the other."""

    topic: str
    partition: int
    first_offset: int
    digests: tuple[bytes, bytes]

    def __attrs_post_init__(self) -> None:
        assert self.first_offset >= 0
        assert self.partition >= 0


def find_divergence(
    own: LatticeQueueState, other: LatticeQueueState, *, topic: str = "", partition: int = 0
) -> Divergence | None:
    """What a merge of the two has to tell; None if they agree wherever both have a record."""
    first_offset = own.entries.first_difference(other.entries)
    if first_offset is None:
        return None
    mine, theirs = own.entries.at(first_offset), other.entries.at(first_offset)
    assert mine is not None
    assert theirs is not None
    assert mine.digest != theirs.digest
    return Divergence(topic, partition, first_offset, (mine.digest, theirs.digest))
