"""A backup of a store in this process, taken by a thread, while others read and write (storage 7)."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from topics.codec.manifest import Written
from topics.host.backup.contents import Contents
from topics.host.backup.destination import Destination, why_unwritable
from topics.host.backup.live_backup import Backup, write_backup
from topics.host.checkpoint.checkpointer import Checkpointer
from topics.host.cold.cold_tier import ColdTier
from topics.host.cold.fsspec_store import is_url
from topics.host.system.disk import OsDisk
from topics.kernel.errors import Corrupt

Tell = Callable[[int, int], None]


def back_up(
    checkpointer: Checkpointer,
    tier: ColdTier,
    dest: str | os.PathLike[str],
    *,
    with_cold: bool,
    cut: Callable[[Backup], object],
    check: Callable[[], None],
    tell: Tell | None,
) -> Written:
    """Cut, write, rename. If it fails, nothing is left of it. Blocks. `cut`: carry out the steps of the backup. `check`
    raises what ends it.

    Raises:
        Rejected: something is at `dest`, a shard has failed, or the store was closed meanwhile.
        CannotOpen: `dest` cannot be written.
        Corrupt: the store is damaged, or cannot be read.
    """
    disk = checkpointer.disk
    root = disk.root if isinstance(disk, OsDisk) else None
    cold_place = None if tier.store is None or is_url(tier.where) else Path(tier.where)
    target = Destination.claim(dest, source=root, cold=cold_place)
    try:
        with Backup(checkpointer, cold=tier.store if with_cold else None) as backup:
            cut(backup)
            contents = backup.contents()
            total = contents.size
            link = None if root is None else partial(target.link_from, root)
            _check_room(target, contents, root)

            def told(done: int) -> None:
                check()
                if tell is not None:
                    tell(done, total)

            try:
                written = write_backup(contents, target.disk, link=link, tell=told)
            except OSError as error:
                raise why_unwritable(target.path, error) from error
            except Corrupt:
                check()  # of a store that was closed meanwhile nothing can be read
                raise
        target.finish()
    except BaseException:
        target.discard()
        raise
    return written


def _check_room(target: Destination, contents: Contents, root: Path | None) -> None:
    """Before hours of copying: is there room for what cannot be linked? Segments may lie on a disk of their own."""
    links = False
    if root is not None and any(part.linkable for part in contents.parts):
        links = (root / "topics").stat().st_dev == target.partial.stat().st_dev
    needed = sum(part.size for part in contents.parts if not (links and part.linkable))
    target.check_room(needed)
