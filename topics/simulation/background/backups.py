"""Backups in a simulation: cut in one work, read in a later one, and whatever happens in between is the test.

What was read must be whole and be the state at the cut, topic by topic, to the last slot.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from topics.engine.apply import CatalogView
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.backup.verifying import verify_backup
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.checkpoint.steps import Blocking, ResumeBatches, Steps
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.kernel.errors import Corrupt
from topics.log.image import take_image
from topics.simulation.oracle import PromiseBroken
from topics.testing.simdisk import SimDisk


class Backups:
    """At most one of a store at a time. `counts`: what became of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._held: tuple[Backup, bytes] | None = None

    def work(self, checkpointer: Checkpointer) -> Steps:
        """Begin one, or read the one that was begun."""
        return self._begin(checkpointer) if self._held is None else self._finish()

    def forget(self) -> None:
        """The process has ended, and what it held with it."""
        self._held = None

    def _begin(self, checkpointer: Checkpointer) -> Steps:
        backup, state = Backup(checkpointer), b""
        try:
            for step in backup.steps():
                if isinstance(step, ResumeBatches):
                    state = _images(checkpointer.engine.catalog)
                yield step
            self._held = backup, state
        finally:
            if self._held is None:
                backup.close()

    def _finish(self) -> Steps:
        yield Blocking(self._read)

    def _read(self) -> None:
        assert self._held is not None
        (backup, state), self._held = self._held, None
        target = SimDisk()
        with backup:
            try:
                write_backup(backup.contents(), target)
            except (Corrupt, OSError):
                self.counts["backups that failed"] += 1
                return
        self.counts["backups"] += 1
        form = read_format(target, "the backup")
        findings = verify_backup(target, "the backup").findings
        if findings or form is None:
            raise PromiseBroken(f"a backup is not whole: {findings}")
        if _images(read_state(target, form, same_boot=False).recovered.catalog) != state:
            raise PromiseBroken("a backup is not the state at its cut")


def _images(catalog: CatalogView) -> bytes:
    """The topics as a snapshot has them."""
    return msgspec.msgpack.encode([take_image(topic) for _, topic in sorted(catalog.topics.items())])
