"""Where the bytes of a topic's records lie: runs of seqs, each in one source.

A source is a WAL file or a segment (opaque ids that the driver understands) or, for an ephemeral topic, a chunk of
memory. The index keeps offsets; this says into what. Records arrive in the WAL; a checkpoint moves a run of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple


class WalFileId(NamedTuple):
    """One WAL file: generation, shard and the number of its first frame."""

    generation: int
    shard: int
    first_frame: int


class SegmentId(NamedTuple):
    """One segment of a topic, named by the first seq it was begun with (storage 1)."""

    topic_id: int
    first_seq: int


Source = WalFileId | SegmentId | bytes
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

    def move(self, first: int, last: int, head: int, source: Source) -> None:
        """Seqs [first, last] lie in `source` from now on; what held `last` goes on behind it, up to `head`."""
        assert first <= last <= head
        start = max(bisect_left(self._firsts, first, self._skip), self._skip)
        stop = bisect_right(self._firsts, last, self._skip)
        firsts, sources = [first], [source]
        if start > self._skip and self._sources[start - 1] == source:
            firsts, sources = [], []
        if last < head and (stop == len(self._firsts) or self._firsts[stop] > last + 1):
            assert stop > self._skip
            firsts.append(last + 1)
            sources.append(self._sources[stop - 1])
        self._firsts[start:stop] = firsts
        self._sources[start:stop] = sources

    def spans(self, stop: int) -> list[tuple[int, int, Source]]:
        """(first seq, seq behind the last, source), ascending; the last one ends at `stop`."""
        firsts = self._firsts[self._skip :]
        return (
            list(zip(firsts, [*firsts[1:], stop], self._sources[self._skip :], strict=True)) if firsts else []
        )

    def clear(self) -> None:
        self._firsts.clear()
        self._sources.clear()
        self._skip = 0
