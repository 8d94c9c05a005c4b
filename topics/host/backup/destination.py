"""A directory that is to be a backup or a restored store: made under another name, and renamed when it is whole.

    DEST.partial/      while it is being written
    DEST/              renamed there, durably, at the end

So what is broken off is never taken for a whole one, and what was there is never touched. An error removes the partial
directory; a crash leaves it, and the next try names it.

It lies in no directory that topics has made, be it a store's, a backup or a cold tier: whoever owns that would take it
for rubbish, or the other way round.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from topics.codec.manifest import MANIFEST_FILE, Manifest, encode_manifest
from topics.host.directory.nesting import enclosing
from topics.host.system.disk import DIRECTORY_MODE, OsDisk
from topics.host.system.folder import make_folder, sync_names
from topics.host.system.refusals import FULL
from topics.kernel.errors import CannotOpen, Unusable, invalid
from topics.kernel.ports import Disk

PARTIAL: Final = ".partial"
_MANIFEST_TEMPORARY: Final = f"{MANIFEST_FILE}.tmp"
_NOT_LINKED: Final = frozenset(
    {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOENT}
)


class Destination:
    """`disk`: the directory that is being written. End it by `finish` or `discard`."""

    def __init__(self, path: Path, partial: Path) -> None:
        self.path = path
        self.partial = partial
        self.disk = OsDisk(partial)

    @classmethod
    def claim(
        cls, path: str | os.PathLike[str], *, source: Path | None = None, cold: Path | None = None
    ) -> Destination:
        """Make the partial directory. `source`: a directory that it must not lie in; `cold`: that of its cold tier.

        Raises:
            Rejected: something is there already, or it lies inside a directory of topics.
            CannotOpen: it cannot be written there.
        """
        target = Path(os.path.abspath(path))
        if source is not None and _is_inside(target, source):
            raise invalid("dest", f"{path} lies inside {source}: choose a directory beside it")
        if cold is not None and _is_inside(target, cold):
            raise invalid(
                "dest", f"{path} lies inside {cold}, the cold tier: choose a directory that is not in it"
            )
        _check_nesting(target, path)
        if os.path.ismount(target):
            raise invalid(
                "dest", f"{path} is where a disk is mounted, and cannot be replaced: choose a directory in it"
            )
        if os.path.lexists(target) and not _is_empty(target):
            raise invalid("dest", f"{path} is there already: choose another, or remove it")
        partial = target.with_name(target.name + PARTIAL)
        try:
            make_folder(target.parent)
            if os.path.lexists(partial):
                raise invalid(
                    "dest",
                    f"{partial} is left of one that was broken off, or is being written now: remove it first",
                )
            partial.mkdir(mode=DIRECTORY_MODE)
            return cls(target, partial)
        except OSError as error:
            raise why_unwritable(path, error) from error

    def check_room(self, needed: int) -> None:
        """Raises `CannotOpen` if so many bytes will not fit."""
        free = self.disk.free_bytes()
        if needed > free:
            raise CannotOpen(
                Unusable.NO_SPACE,
                f"{self.path}: {needed} bytes are needed and {free} are free: free some, or choose another disk",
                path=str(self.path),
            )

    def link_from(self, root: Path, path: str) -> bool:
        """Give a file below `root` a second name here. False if the file systems cannot."""
        try:
            os.link(root / path, self.partial / path, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NOT_LINKED:
                return False
            raise
        return True

    def finish(self) -> None:
        """Everything in it is durable: give it its name."""
        self.disk.close()
        with suppress(FileNotFoundError):
            self.path.rmdir()  # an empty one was allowed
        self.partial.rename(self.path)
        sync_names(self.path.parent)

    def discard(self) -> None:
        """Remove what was written. What cannot be removed is left under its partial name."""
        self.disk.close()
        with suppress(OSError):
            shutil.rmtree(self.partial)


def why_unwritable(path: str | os.PathLike[str], error: OSError) -> CannotOpen:
    """What went wrong there, in one line."""
    if error.errno in FULL:
        return CannotOpen(
            Unusable.NO_SPACE, f"{path}: no space left on the device; free some", path=str(path)
        )
    why = error.strerror or str(error)
    return CannotOpen(Unusable.UNWRITABLE, f"{path} cannot be written: {why}", path=str(path))


def _check_nesting(target: Path, given: str | os.PathLike[str]) -> None:
    """Raises `Rejected` if it is a directory of topics, or lies inside one."""
    for directory, what in enclosing(target):
        if directory == Path(os.path.realpath(target)):
            raise invalid("dest", f"{given} is there already, and is {what}: choose another place")
        raise invalid("dest", f"{given} lies inside {directory}, which is {what}: choose a place outside it")


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())


def _is_inside(path: Path, directory: Path) -> bool:
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(directory))
    return real == root or root in real.parents


def finish_backup(target: Disk, manifest: Manifest, made: Iterable[str]) -> None:
    """All files are durable: so are the names in `made` now, and then the manifest, with which it is a backup."""
    for directory in made:
        target.sync_dir(directory)
    target.create(_MANIFEST_TEMPORARY, 0)
    target.write(_MANIFEST_TEMPORARY, 0, [encode_manifest(manifest)])
    target.sync_data(_MANIFEST_TEMPORARY)
    target.rename(_MANIFEST_TEMPORARY, MANIFEST_FILE)
    target.sync_dir("")


def make_parents(target: Disk, path: str, made: dict[str, None]) -> None:
    """Make the directories above a file; `made` has them all, each behind its parent."""
    parts = path.split("/")[:-1]
    for depth in range(1, len(parts) + 1):
        directory = "/".join(parts[:depth])
        if directory not in made:
            target.make_dir(directory)
            made[directory] = None
