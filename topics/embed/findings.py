"""What an open store has found out about itself, for whoever runs it."""

from __future__ import annotations

from collections.abc import Sequence

from topics.engine.recovery.recover import CutReport, DamageReport
from topics.kernel.errors import Fatal
from topics.store.damages import known_damages
from topics.store.opened import Opened


class Findings:
    """A store's own properties, whoever drives it."""

    _opened: Opened

    @property
    def read_only(self) -> bool:
        """True if writes are refused: the log was found damaged, or a write failed (see `damages`, `failures`)."""
        return self._opened.read_only or bool(self.failures)

    @property
    def failures(self) -> Sequence[Fatal]:
        """One a shard whose write or sync failed since the store was opened; reopening recovers it."""
        return [writer.failed for writer in self._opened.writers if writer.failed is not None]

    @property
    def damages(self) -> Sequence[DamageReport]:
        """Acknowledged data found damaged when the store was opened, or since by a checkpoint, by compaction or by a
        move to the cold tier: file, offset, topic and seqs.
        """
        return known_damages(self._opened)

    @property
    def cuts(self) -> Sequence[CutReport]:
        """Un-synced tails cut when the store was opened: how many bytes, which topics and seqs were in them."""
        return self._opened.cuts

    @property
    def warnings(self) -> Sequence[str]:
        """What whoever runs the store should know of its opening and is no damage: a snapshot that another one stood in
        for, cold segments without a cold directory, a checkpoint that there was no room for.
        """
        return self._opened.warnings
