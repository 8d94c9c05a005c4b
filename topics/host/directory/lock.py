"""One owner per data directory (storage 1 and 4).

Theory. `LOCK` is held by flock for as long as its owner lives; the kernel lets go when the process ends, however it
ends. What its one line says is in `host.directory.owner`; here it is written.

The boot id in it changes late: `acquire` writes the new pid beside the old boot id, and only `confirm`, called when
recovery's cuts are synced, writes the new one. And it leaves early: once a write or sync of the log has failed, the
kernel may drop what it was to write, and `forget_boot` makes the next start one behind a restart. The line is written
in place by one call, within one sector: a crash leaves the old line or the new one.

A forked child closes its copy of the descriptor, or it would keep the directory locked after its parent is gone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs

from topics.host.directory.layout import Format
from topics.host.directory.owner import (
    LOCK_NAME,
    RECORD_SIZE,
    ROOT_FLAGS,
    URL_CHARS_MAX,
    OwnerRecord,
    in_use,
    owner_in,
    same_boot,
)
from topics.host.system.boot import is_plain, log_mount, machine_boot_id
from topics.host.system.filetypes import open_file
from topics.host.system.refusals import refusal_line
from topics.kernel.errors import CannotOpen, Unusable

_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_REASONS: Final = {
    errno.ENOENT: (Unusable.MISSING, "the directory does not exist"),
    errno.ENOTDIR: (Unusable.NOT_A_DIRECTORY, "not a directory"),
    errno.ENOSPC: (Unusable.NO_SPACE, "the disk is full"),
    errno.EDQUOT: (Unusable.NO_SPACE, "the disk quota is used up"),
    errno.ELOOP: (Unusable.FOREIGN, "its LOCK is a symbolic link: remove it"),
    errno.EISDIR: (Unusable.FOREIGN, "its LOCK is a directory: remove it"),
    errno.ESPIPE: (Unusable.FOREIGN, "its LOCK is a pipe: remove it"),
    errno.ENXIO: (Unusable.FOREIGN, "its LOCK is a socket: remove it"),
    errno.ENODEV: (Unusable.FOREIGN, "its LOCK is a device: remove it"),
    errno.ENOLCK: (Unusable.UNWRITABLE, "the file system cannot lock files"),
    errno.EOPNOTSUPP: (Unusable.UNWRITABLE, "the file system cannot lock files"),
}


class DirectoryLock:
    """Held from `acquire` to `release` or the end of the process."""

    def __init__(
        self,
        fd: int,
        previous: OwnerRecord | None,
        boot_id: str | None,
        *,
        root_fd: int,
        find_mount: Callable[[int], int | None],
    ) -> None:
        status = os.fstat(fd)
        self.previous = previous
        self.inode = status.st_ino
        self.machine_restarted = not same_boot(
            previous,
            boot_id=boot_id,
            device=status.st_dev,
            inode=status.st_ino,
            mount=find_mount(root_fd),
        )
        self._fd = fd
        self._root_fd = root_fd
        self._device = status.st_dev
        self._boot_id = boot_id
        self._find_mount = find_mount
        self._line = attrs.evolve(previous or _NOBODY, pid=os.getpid(), url=None)
        self._writing = threading.Lock()
        self._doubtful = False

    @classmethod
    def acquire(
        cls,
        root: str | os.PathLike[str],
        *,
        find_boot_id: Callable[[], str | None] = machine_boot_id,
        find_mount: Callable[[int], int | None] = log_mount,
    ) -> DirectoryLock:
        """Become the owner. The old boot id stays in LOCK until `confirm`.

        Raises CannotOpen: IN_USE with the owner's pid, and its URL if it is a server (`owner_pid`, `owner_url`), or why
        the directory cannot be locked.
        """
        path = Path(root) / LOCK_NAME
        held: list[int] = []
        try:
            held.append(os.open(root, ROOT_FLAGS))
            held.append(open_file(str(path), _OPEN_FLAGS, 0o600))
            previous = _take(held[1], held[0], path)
            lock = cls(held[1], previous, find_boot_id(), root_fd=held[0], find_mount=find_mount)
            lock._change(lambda line: line)  # the old boot id, this pid
        except BaseException as error:
            for fd in held:
                os.close(fd)
            if isinstance(error, OSError):
                raise _cannot_open(path, error) from error
            raise
        _held.add(lock)
        return lock

    @property
    def held(self) -> bool:
        """False after `release`, and in a forked child."""
        return self._fd >= 0

    @property
    def remembered(self) -> int:
        """The inode of LOCK when a recovery was last completed, 0 if it does not tell; another one is a copy's."""
        return 0 if self.previous is None else self.previous.inode

    def confirm(self, logs: Sequence[Format], *, sync: Callable[[int], None] = os.fsync) -> None:
        """Recovery is complete and synced, and so is the first file of each shard of these logs, or a snapshot of them:
        from now on this boot's un-synced bytes can be trusted to be there, and logs that are not are missed.

        Raises OSError; the next opener then sees a restart, which is safe.
        """
        mount = self._find_mount(self._root_fd)  # there is a log now
        self._change(
            lambda line: attrs.evolve(
                line, boot_id=self._boot_id, device=self._device, inode=self.inode, mount=mount
            ).begin(logs)
        )
        sync(self._fd)

    def forget_boot(self, *, sync: Callable[[int], None] = os.fsync) -> None:
        """A write or sync of the log has failed, so what was written and not synced need not be there next time.
        Raises OSError: the next start may know nothing of it. `release` tries again.
        """
        self._doubtful = True
        self._change(lambda line: attrs.evolve(line, boot_id=None))
        sync(self._fd)
        self._doubtful = False

    def remember_place(self) -> None:
        """This directory goes on, the operator says, so this LOCK is no copy's. Raises OSError."""
        self._change(lambda line: attrs.evolve(line, boot_id=None, inode=self.inode))
        os.fsync(self._fd)

    def note_url(self, url: str) -> None:
        """The owner is a server and listens: who finds the directory in use can go there. A URL that does not fit the
        line is left out. Raises OSError; nothing depends on it.
        """
        if is_plain(url, URL_CHARS_MAX):
            self._change(lambda line: attrs.evolve(line, url=url))

    def _change(self, change: Callable[[OwnerRecord], OwnerRecord]) -> None:
        """Write the line anew. Any thread may; nothing is synced."""
        assert self.held, "LOCK is written after release, or in a forked child"
        with self._writing:
            line = change(self._line)
            _write(self._fd, line)
            self._line = line

    def release(self) -> None:
        """Let go. Twice is fine; in a forked child it does nothing."""
        if self.held:
            if self._doubtful:
                with suppress(OSError):  # it was told when it failed first
                    self.forget_boot()
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            fcntl.flock(self._root_fd, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        """Drop this process's descriptor. The lock itself lives on if another process shares it."""
        fd, self._fd = self._fd, -1
        _held.discard(self)
        os.close(fd)
        os.close(self._root_fd)


_NOBODY: Final = OwnerRecord(pid=0, boot_id=None, device=0, inode=0)
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _disown_in_child() -> None:
    for lock in list(_held):
        lock._close()  # noqa: SLF001 -- the module's own; closing leaves the parent's lock alone, unlocking would not


os.register_at_fork(after_in_child=_disown_in_child)


def _write(fd: int, record: OwnerRecord) -> None:
    written = os.pwrite(fd, record.encode(), 0)
    if written != RECORD_SIZE:
        raise OSError(errno.ENOSPC, f"short write of {LOCK_NAME}: {written} of {RECORD_SIZE} bytes")


def _take(fd: int, root_fd: int, path: Path) -> OwnerRecord | None:
    """The locks, and what LOCK says. Raises CannotOpen, OSError."""
    try:
        fcntl.flock(root_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a LOCK that somebody removes frees nothing
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise in_use(path, owner_in(fd)) from None
    return owner_in(fd)


def _cannot_open(path: Path, error: OSError) -> CannotOpen:
    reason, why = _REASONS.get(error.errno or 0, (Unusable.UNWRITABLE, ""))
    return CannotOpen(
        reason, f"cannot open {path.parent}: {why or refusal_line(error, path.parent)}", path=str(path.parent)
    )
