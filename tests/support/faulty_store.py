"""A cold store that goes wrong as it is told: it fails, gives back other bytes, forgets some of its list, or waits.

It stands in front of a real one. What goes wrong is set by the test between calls, so a run repeats; `calls` says what
was asked. `waits` is called at each call, in the thread of the call: to block it there until the test lets it go.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping

from topics.host.cold.segment_stores import SegmentStore
from topics.log.regions import SegmentId


class FaultyStore:
    """`fails`: operations that fail. `tears`: a failing put has kept its first part. `lies`: reads are off by a bit.
    `forgets`: what a list leaves out.
    """

    def __init__(self, store: SegmentStore) -> None:
        self.store = store
        self.calls: list[str] = []
        self.fails: set[str] = set()
        self.tears = False
        self.lies = False
        self.forgets: set[SegmentId] = set()
        self.waits: Callable[[str], None] = _nothing

    @property
    def where(self) -> str:
        return self.store.where

    def put(self, segment: SegmentId, parts: Mapping[str, bytes]) -> None:
        if "put" in self.fails and self.tears:
            part = next(iter(parts))
            self.store.put(segment, {part: parts[part][: len(parts[part]) // 2]})
        self._called("put")
        self.store.put(segment, parts)

    def read_range(self, segment: SegmentId, part: str, offset: int, size: int) -> bytes:
        self._called("read_range")
        data = self.store.read_range(segment, part, offset, size)
        return data[:-1] + bytes((data[-1] ^ 1,)) if self.lies and data else data

    def delete(self, segment: SegmentId) -> None:
        self._called("delete")
        self.store.delete(segment)

    def list(self) -> list[SegmentId]:
        self._called("list")
        return [segment for segment in self.store.list() if segment not in self.forgets]

    def exists(self, segment: SegmentId, part: str) -> bool:
        self._called("exists")
        return self.store.exists(segment, part)

    def len(self, segment: SegmentId, part: str) -> int:
        self._called("len")
        return self.store.len(segment, part)

    def read_owner(self) -> bytes | None:
        self._called("read_owner")
        return self.store.read_owner()

    def write_owner(self, note: bytes) -> None:
        self._called("write_owner")
        self.store.write_owner(note)

    def close(self) -> None:
        self.store.close()

    def _called(self, operation: str) -> None:
        self.calls.append(operation)
        self.waits(operation)
        if operation in self.fails:
            raise OSError(errno.EIO, f"{operation} was made to fail", self.where)


def _nothing(operation: str) -> None:
    """Nobody waits."""
