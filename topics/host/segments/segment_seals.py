"""Whose an `.idx`, `.col` or `.del` is: its checksums begin with store, topic and segment (storage 5, decision 46).

Only `.data` says in every frame whose it is. The files beside it say nothing of that; but the seed of their checksums
is made of the id of the store, which FORMAT has, the topic's id and the segment's first seq. So the file of another
segment fails its checksum as a damaged one does, and is made anew from the data as that is.

Files of format 1 have seed 0. While a store is being raised both count; what is written has its own seed.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeVar

import attrs

from topics.codec.primitives import checksum
from topics.codec.segments.segcolumns import ColumnsBlock, blocks_within
from topics.codec.segments.segdel import ENTRIES_MAX, EndedRecords, decode_del
from topics.codec.segments.segidx import IdxColumns, decode_idx
from topics.host.directory.layout import Identity, read_identity
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk

UNSEALED: Final = 0  # the seed of format 1
_IDENTITY: Final = Struct("<16sQQ")

_T = TypeVar("_T")


@attrs.frozen
class Seal:
    """The seeds that the files of one segment may have; what is written has the first."""

    seeds: tuple[int, ...]

    @property
    def seed(self) -> int:
        return self.seeds[0]

    def idx(self, buffer: bytes) -> IdxColumns:
        """Raises `Corrupt`: it is damaged, or of another segment."""
        return self._whole(lambda seed: decode_idx(buffer, seed))

    def ends(self, buffer: bytes, entries_max: int = ENTRIES_MAX) -> EndedRecords:
        """What a `.del` says. Raises `Corrupt`: it is damaged, or of another segment."""
        return self._whole(lambda seed: decode_del(buffer, seed, entries_max))

    def blocks(self, buffer: bytes, seq: int, seq_stop: int) -> tuple[list[ColumnsBlock], int]:
        """The intact blocks of a `.col`, as `blocks_within`."""
        found = [blocks_within(buffer, seq, seq_stop, seed) for seed in self.seeds]
        return max(found, key=lambda blocks: blocks[1])

    def _whole(self, decode: Callable[[int], _T]) -> _T:
        for seed in self.seeds[:-1]:
            try:
                return decode(seed)
            except Corrupt:
                pass
        return decode(self.seeds[-1])


OF_FORMAT_1: Final = Seal((UNSEALED,))


def seal_of(disk: Disk, topic_id: int, first: int) -> Seal:
    """Of the segment of this disk's store that begins with seq `first`. Raises OSError."""
    return seal_by(read_identity(disk), topic_id, first)


def seal_by(identity: Identity, topic_id: int, first: int) -> Seal:
    """Of the segment of such a store."""
    if identity.store is None:
        return OF_FORMAT_1
    own = checksum(_IDENTITY.pack(identity.store, topic_id, first))
    return Seal((own, UNSEALED) if identity.raising else (own,))
