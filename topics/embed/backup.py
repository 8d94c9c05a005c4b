"""A backup of an embedded store, taken by the thread that asks for it, while others read and write (storage 7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from topics.codec.manifest import Written
from topics.embed.compaction import CompactorThread
from topics.embed.driver import LocalEngine
from topics.host.backup.contents import Contents
from topics.host.backup.destination import Destination, unwritable
from topics.host.backup.live_backup import Backup, Link, write_backup
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.cold.segment_stores import SegmentStore
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Corrupt

Tell = Callable[[int, int], None]


def back_up(
    local: LocalEngine,
    compactor: CompactorThread,
    checkpointer: Checkpointer,
    dest: str | os.PathLike[str],
    *,
    cold: SegmentStore | None,
    cold_place: Path | None,
    tell: Tell | None,
) -> Written:
    """Cut, write, rename. If it fails, nothing is left of it. `cold`: copy what is there too. `cold_place`: the
    folder of the cold tier.

    Raises:
        Rejected: something is at `dest`, a shard has failed, or the store was closed meanwhile.
        CannotOpen: `dest` cannot be written.
        Corrupt: the store is damaged, or cannot be read.
    """
    disk = checkpointer.disk
    root = disk.root if isinstance(disk, OsDisk) else None
    target = Destination.claim(dest, source=root, cold=cold_place)
    try:
        with Backup(checkpointer, cold=cold) as backup:
            compactor.carry_out(backup.steps)
            contents = backup.contents()
            total = contents.size
            link = None if root is None else partial(target.link_from, root)
            _check_room(target, contents, root)

            def told(done: int) -> None:
                local.check_open()
                if tell is not None:
                    tell(done, total)

            written = _written(local, target, contents, link, told)
        target.finish()
    except BaseException:
        target.discard()
        raise
    return written


def _written(
    local: LocalEngine,
    target: Destination,
    contents: Contents,
    link: Link | None,
    told: Callable[[int], None],
) -> Written:
    try:
        return write_backup(contents, target.disk, link=link, tell=told)
    except OSError as error:
        raise unwritable(target.path, error) from error
    except Corrupt:
        local.check_open()  # of a store that was closed meanwhile nothing can be read
        raise


def _check_room(target: Destination, contents: Contents, root: Path | None) -> None:
    """Before hours of copying: is there room for what cannot be linked? Segments may lie on a disk of their own."""
    links = False
    if root is not None and any(part.linkable for part in contents.parts):
        links = (root / "topics").stat().st_dev == target.partial.stat().st_dev
    needed = sum(part.size for part in contents.parts if not (links and part.linkable))
    target.check_room(needed)
