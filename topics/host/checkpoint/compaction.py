"""Compaction that somebody asks for: what dead records hold is given back now, not a slice a second (storage 5).

Two rounds, for only what is dead in both kept snapshots may go; then every segment of which half is dead is rewritten.
"""

from __future__ import annotations

import attrs

from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Steps


@attrs.frozen(kw_only=True)
class CompactionResult:
    """`segments_removed`: wholly. `bytes_freed`: of `.data` files in the data directory, removed or made smaller."""

    segments_removed: int
    bytes_freed: int


class Compaction:
    """One compaction, run by a driver. `result`: when its steps have ended."""

    def __init__(self, checkpointer: Checkpointer) -> None:
        self.result: CompactionResult | None = None
        self._checkpointer = checkpointer

    def steps(self) -> Steps:
        """As of a round."""
        checkpointer = self._checkpointer
        before = self._counts()
        yield from checkpointer.round_with_room()  # on a full disk, too: it is what makes room
        yield from checkpointer.round_with_room()
        yield from checkpointer.reclaimer.everything(checkpointer.kept)
        after = self._counts()
        self.result = CompactionResult(
            segments_removed=after[0] - before[0], bytes_freed=after[1] - before[1]
        )

    def _counts(self) -> tuple[int, int]:
        one = self._checkpointer
        return one.removal.segments, one.removal.bytes + one.reclaimer.freed_bytes
