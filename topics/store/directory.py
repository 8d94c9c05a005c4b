"""A data directory on its way to being a store: claimed first, then recovered (storage 1 and 4).

Two steps, because they differ: `claim` is quick and says at once that a directory is in use, foreign or unwritable;
`recover` reads the whole log and may take minutes. A server tells its callers in between that it is not ready. Each
either does what it says or leaves nothing held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from topics.host.cold.ownership import settle_place
from topics.host.directory.layout import Format, read_format
from topics.host.directory.lock import DirectoryLock
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.host.system.folder import make_folder
from topics.host.system.memory import MemoryDisk
from topics.kernel.errors import Fatal
from topics.kernel.ports import Clock
from topics.store.inline import bring_over_alone
from topics.store.opened import Opened, StoreOptions
from topics.store.opening import open_store
from topics.store.viewing import cannot_open, check_folder, check_there


class ClaimedDirectory:
    """A directory that this process owns, until `release`."""

    def __init__(self, root: Path, disk: OsDisk, lock: DirectoryLock) -> None:
        self.root = root
        self.disk = disk
        self.lock = lock

    @classmethod
    def claim(cls, path: str | os.PathLike[str], *, create: bool = True) -> Self:
        """Become the owner; make the directory if it is not there and `create` is true.

        Raises:
            CannotOpen: in use, foreign, newer, unwritable, missing; the message says what to do.
        """
        root = Path(path)
        if create:
            _make(root)
            check_folder(root)
        else:
            check_there(root)
        try:
            disk = OsDisk(root)
        except OSError as error:
            raise cannot_open(root, error) from error
        try:
            read_format(disk, str(root))  # before LOCK is made: a foreign directory is not touched
            return cls(root, disk, DirectoryLock.acquire(root))
        except BaseException as error:
            disk.close()
            if isinstance(error, OSError):
                raise cannot_open(root, error) from error
            raise

    def recover(
        self,
        *,
        clock: Clock | None = None,
        options: StoreOptions | None = None,
        progress: Callable[[float], None] | None = None,
        machine_restarted: bool | None = None,
    ) -> Opened:
        """Read the log, repair its tail, go on; routers that a crash has left behind catch up. If it fails, the
        directory is released. `machine_restarted`: whether something that was not synced may be gone, if somebody
        knows better than LOCK.

        Raises:
            CannotOpen: the disk failed; the message says what to do.
        """
        try:
            settle_place(self.disk, inode=self.lock.inode, remembered=self.lock.remembered)
            opened = open_store(
                self.disk,
                clock or SystemClock(),
                SystemEntropy(),
                where=str(self.root),
                machine_restarted=self.lock.machine_restarted
                if machine_restarted is None
                else machine_restarted,
                confirm=self.lock.confirm,
                forget_boot=self.lock.forget_boot,
                options=options,
                progress=progress,
            )
            bring_over_alone(opened.engine, opened.reader.read, opened.writers)
            return opened
        except BaseException as error:
            self.release()
            cause = error.__cause__ if isinstance(error, Fatal) else error
            if isinstance(cause, OSError):
                raise cannot_open(self.root, cause) from error
            raise

    def note_url(self, url: str) -> None:
        """Whoever finds it in use is told that a server has it, and where. Raises OSError; nothing depends on it."""
        self.lock.note_url(url)

    def release(self) -> None:
        """Give it free. Twice is fine."""
        self.disk.close()
        self.lock.release()


def _make(root: Path) -> None:
    try:
        make_folder(Path(os.path.abspath(root)))
    except FileExistsError:
        pass  # said better by the next check
    except OSError as error:
        raise cannot_open(root, error) from error


class MemoryDirectory:
    """What `ClaimedDirectory` is, of memory: nothing to claim, nothing to find, nothing left."""

    def __init__(self, capacity: int | None = None) -> None:
        self.disk = MemoryDisk(capacity)

    def recover(
        self, *, options: StoreOptions | None = None, progress: Callable[[float], None] | None = None
    ) -> Opened:
        return open_store(
            self.disk,
            SystemClock(),
            SystemEntropy(),
            where="memory",
            machine_restarted=False,
            confirm=_nothing_to_confirm,
            options=options,
            progress=progress,
        )

    def note_url(self, url: str) -> None:
        """Nobody else finds it."""

    def release(self) -> None:
        self.disk.close()


def _nothing_to_confirm(logs: Sequence[Format]) -> None:
    """There is no LOCK, and nothing of it outlives the process."""
    assert logs
