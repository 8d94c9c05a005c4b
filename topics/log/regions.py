"""Where the bytes of a topic's records lie: runs of seqs, each in one source.

A source is a WAL file (an opaque id the driver understands) or, for an ephemeral topic, a chunk of memory. The
index keeps offsets; this says into what.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple


class WalFileId(NamedTuple):
    """One WAL file: generation, shard and the number of its first frame."""

    generation: int
    shard: int
    first_frame: int


Source = WalFileId | bytes
COMPACT_MIN: Final = 256


class Regions:
    """Ascending (first seq, source). Trimmed lazily from the front."""

    __slots__ = ("_firsts", "_skip", "_sources")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._sources: list[Source] = []
        self._skip = 0

    def __len__(self) -> int:
        return len(self._firsts) - self._skip

    def extend(self, seq_start: int, source: Source) -> None:
        """Seqs from `seq_start` on lie in `source`."""
        assert not self._firsts or seq_start > self._firsts[-1]
        if self._sources and isinstance(source, WalFileId) and self._sources[-1] == source:
            return
        self._firsts.append(seq_start)
        self._sources.append(source)

    def source_until(self, seq: int) -> tuple[Source, int]:
        """The source of `seq`, and the first seq that lies in another one (0 = none)."""
        i = bisect_right(self._firsts, seq, self._skip) - 1
        assert i >= self._skip
        return self._sources[i], self._firsts[i + 1] if i + 1 < len(self._firsts) else 0

    def drop_below(self, seq: int) -> None:
        """Forget the regions that end below `seq`."""
        keep = bisect_right(self._firsts, seq, self._skip) - 1
        if keep <= self._skip:
            return
        for i in range(self._skip, keep):
            self._sources[i] = b""  # free the memory of an ephemeral chunk at once
        self._skip = keep
        if keep > COMPACT_MIN and keep * 2 > len(self._firsts):
            del self._firsts[:keep], self._sources[:keep]
            self._skip = 0

    def clear(self) -> None:
        self._firsts.clear()
        self._sources.clear()
        self._skip = 0
