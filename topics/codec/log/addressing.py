"""The frames of a run again, for another topic: what a router brings to many is encoded once.

Of a frame only topic id, seq and checksum differ, so all else is cut out of it and joined to new ones.
"""

from __future__ import annotations

from itertools import accumulate, chain, repeat
from operator import add
from struct import Struct
from typing import Final

import msgspec

from topics.codec.log.layout import CHECKSUM_SIZE, FRAME_LEN_SIZE
from topics.codec.log.run import Run
from topics.codec.primitives import U64, checksum

_KIND_SIZE: Final = 2  # type and flags stand in front of topic id and seq
_ADDRESS: Final = Struct(f"<{_KIND_SIZE}sQQ")


class RunFrames:
    """The frames of a run, which other topics may have too. They are cut when the first of those asks. Runs share their
    columns, which nobody changes.
    """

    __slots__ = ("_chunk", "_kinds", "_lengths", "_rests", "_run")

    def __init__(self, chunk: bytes, run: Run) -> None:
        self._chunk, self._run = chunk, run
        self._lengths: list[bytes] = []
        self._kinds: list[bytes] = []
        self._rests: list[bytes] = []

    def of(self, topic_id: int, seq_start: int) -> tuple[bytes, Run]:
        """One chunk with the frames of that topic from that seq on, and their run."""
        if not self._rests:
            self._cut()
        run = msgspec.structs.replace(self._run, topic_id=topic_id, seq_start=seq_start, offset=0)
        addresses = map(_ADDRESS.pack, self._kinds, repeat(topic_id), range(seq_start, run.seq_stop))
        covereds = list(map(add, addresses, self._rests))
        checksums = map(U64.pack, map(checksum, covereds))
        return b"".join(chain.from_iterable(zip(self._lengths, covereds, checksums, strict=True))), run

    def _cut(self) -> None:
        chunk, stops = self._chunk, list(accumulate(self._run.lengths))
        bodies = [at + FRAME_LEN_SIZE for at in (0, *stops[:-1])]
        self._lengths = [chunk[at - FRAME_LEN_SIZE : at] for at in bodies]
        self._kinds = [chunk[at : at + _KIND_SIZE] for at in bodies]
        self._rests = [
            chunk[at + _ADDRESS.size : stop - CHECKSUM_SIZE] for at, stop in zip(bodies, stops, strict=True)
        ]
