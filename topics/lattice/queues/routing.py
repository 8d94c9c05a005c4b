"""Which partition a key belongs to: a hash of its canonical bytes that every machine and version agrees on.

The hash is unsigned, so no key falls outside (the sources take the absolute value of a signed one, and the smallest
long has none). More partitions send keys elsewhere: the order of one key is kept within a number of partitions, and
whoever changes the number is told.
"""

from __future__ import annotations

from typing import Final, TypeGuard

import attrs
from xxhash import xxh3_64_intdigest

from topics.codec.cell import Cell
from topics.kernel.errors import invalid
from topics.lattice.queues.record import encode_field, is_whole

PARTITIONS_MAX: Final = 4096


@attrs.frozen
class Rerouted:
    """A warning: keyed records go to other partitions than before, and what was offered earlier stays where it is."""

    partitions_before: int
    partitions_now: int

    def __attrs_post_init__(self) -> None:
        assert self.partitions_before > 0
        assert self.partitions_now > 0
        assert self.partitions_before != self.partitions_now

    def __str__(self) -> str:
        return (
            f"num-partitions went from {self.partitions_before} to {self.partitions_now}: keys are routed anew, so the "
            "order of one key holds only within what was offered before the change and what comes after it"
        )


def partition_of(key: Cell, partition_count: int) -> int:
    """The partition of a key among [0, partition_count)."""
    assert 0 < partition_count <= PARTITIONS_MAX
    if key is None:
        raise invalid("key", "must not be None: a record without a key goes to a partition that you name")
    index: int = xxh3_64_intdigest(encode_field("key", key)) % partition_count
    assert 0 <= index < partition_count
    return index


def is_partition_id(cell: object) -> TypeGuard[int]:
    return is_whole(cell) and 0 <= cell < PARTITIONS_MAX
