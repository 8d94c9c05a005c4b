"""One owner per data directory, and whether the machine restarted since its last recovery (storage 1 and 4).

Theory. `LOCK` is held by flock for as long as its owner lives; the kernel lets go when the process ends, however it
ends. Its one line also remembers: the owner's pid and the URL at which it serves, if it is a server, and the boot id
under which a recovery was last *completed*, with the device and inode of LOCK itself and the mount that the log lies
on. Boot id or mount unknown or another, LOCK copied, new or unreadable: in each case un-synced bytes may be gone, so it
counts as a restart. Wrong in that direction is slow, in the other it loses data.

So the boot id changes late: `acquire` writes the new pid beside the old boot id, and only `confirm`, called when
recovery's cuts are synced, writes the new one. And it leaves early: once a write or sync of the log has failed, the
kernel may drop what it was to write, and `forget_boot` makes the next start one behind a restart. The line has a fixed
size and is written in place by one call, within one sector: a crash leaves the old line or the new one. An earlier
version wrote 256 bytes, which are read as well.

`confirm` says as well which logs have begun: each shard of the generation has its first file by then, durably, and
nothing was acknowledged before. Of a log that is gone with its directory nothing else tells, until a snapshot was taken
in it (`host.absent`). The newest `BEGUN_MAX` generations are named: an older one is in a snapshot, unless that was
refused at each change of shards since.

`OwnerRecord` does no I/O; the simulated disk uses it with a boot id of its own. A forked child closes its copy of the
descriptor, or it would keep the directory locked after its parent is gone.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeGuard

import attrs

from topics.codec.primitives import checksum
from topics.host.boot import BOOT_ID_CHARS_MAX, is_plain, log_mount, machine_boot_id
from topics.host.filetypes import open_file
from topics.host.layout import Format
from topics.host.refusals import told
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import U32_MAX, U64_MAX, WAL_SHARDS_MAX
from topics.kernel.ports import Disk

LOCK_NAME: Final = "LOCK"
RECORD_SIZE: Final = 512
RECORD_SIZE_BEFORE: Final = 256  # of an earlier version
URL_CHARS_MAX: Final = 200
BEGUN_MAX: Final = 3
_OPEN_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
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


@attrs.frozen(kw_only=True)
class OwnerRecord:
    """The line in LOCK. `boot_id` is that of the last completed recovery, None before the first, and once a write or
    sync of the log has failed behind it. `begun`: (generation, shards) of logs that have begun, the newest first; none
    in a line of an earlier version, or if the checksum is wrong. `mount`: that of the log, None if unknown. `url`:
    where its owner serves it, None if it is no server, or does not listen yet.
    """

    pid: int
    boot_id: str | None
    device: int
    inode: int
    begun: tuple[tuple[int, int], ...] = ()
    mount: int | None = None
    url: str | None = None

    def begin(self, logs: Sequence[Format]) -> OwnerRecord:
        """These logs have begun, too."""
        begun = dict(self.begun) | {form.generation: form.shards for form in logs}
        return attrs.evolve(self, begun=tuple(sorted(begun.items(), reverse=True)[:BEGUN_MAX]))

    def encode(self) -> bytes:
        """RECORD_SIZE bytes: JSON, padded with spaces, one newline at the end."""
        line = json.dumps({**attrs.asdict(self), "sum": _sum(self.begun, self.url)}).encode()
        assert len(line) < RECORD_SIZE, "numbers, boot id and URL are bounded"
        return line.ljust(RECORD_SIZE - 1) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> OwnerRecord | None:
        """None for anything that is not such a line: an unreadable owner is no owner."""
        try:
            value = json.loads(data.partition(b"\n")[0])
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        pid, device, inode = (value.get(name) for name in ("pid", "device", "inode"))
        boot_id, mount, url = (value.get(name) for name in ("boot_id", "mount", "url"))
        if not (_is_number(pid, U32_MAX) and _is_number(device, U64_MAX) and _is_number(inode, U64_MAX)):
            return None
        if boot_id is not None and not is_plain(boot_id, BOOT_ID_CHARS_MAX):
            return None
        if not (mount is None or _is_number(mount, U64_MAX)) or not (
            url is None or is_plain(url, URL_CHARS_MAX)
        ):
            return None
        begun = value.get("begun", [])
        if not isinstance(begun, list) or len(begun) > BEGUN_MAX or not all(map(_is_begun, begun)):
            return None
        logs = tuple((generation, shards) for generation, shards in begun)
        if value.get("sum") != _sum(logs, url):
            logs, url = (), None  # one wrong bit would name a log that there never was, or another server
        return cls(pid=pid, boot_id=boot_id, device=device, inode=inode, begun=logs, mount=mount, url=url)


def _sum(begun: Sequence[tuple[int, int]], url: str | None) -> str:
    """XXH3-64 of the list, or of list and URL, as JSON: 16 hex digits."""
    summed = begun if url is None else (begun, url)
    return f"{checksum(json.dumps(summed).encode()):016x}"


def _is_number(value: object, maximum: int) -> TypeGuard[int]:
    """From 0 on. Without a bound it might not fit the line, which the next owner writes again."""
    return type(value) is int and 0 <= value <= maximum


def _is_begun(value: object) -> bool:
    """A generation that there can be, and how many shards it has."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    generation, shards = value
    return _is_number(generation, U32_MAX) and _is_number(shards, WAL_SHARDS_MAX) and shards >= 1


def same_boot(
    previous: OwnerRecord | None, *, boot_id: str | None, device: int, inode: int, mount: int | None
) -> bool:
    """Whether all that was written since `previous` is surely still there, synced or not."""
    if previous is None or boot_id is None or mount is None:
        return False
    found = (boot_id, device, inode, mount)
    return (previous.boot_id, previous.device, previous.inode, previous.mount) == found


def same_boot_at(root: Path) -> bool:
    """The same of a directory as it lies there. Takes no lock."""
    try:
        found = (root / LOCK_NAME).stat()
        root_fd = os.open(root, _ROOT_FLAGS)
    except OSError:
        return False
    try:
        mount = log_mount(root_fd)
    finally:
        os.close(root_fd)
    return same_boot(
        read_owner(root), boot_id=machine_boot_id(), device=found.st_dev, inode=found.st_ino, mount=mount
    )


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
            held.append(os.open(root, _ROOT_FLAGS))
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


def read_owner(root: str | os.PathLike[str]) -> OwnerRecord | None:
    """Who owns the directory, or did last; None if LOCK cannot tell. Takes no lock: whether it is owned now, only
    `acquire` says.
    """
    with suppress(OSError):
        fd = open_file(str(Path(root) / LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(fd)
        finally:
            os.close(fd)
    return None


def owner_on(disk: Disk) -> OwnerRecord | None:
    """The same of a directory that is seen through a `Disk`; None if it has no LOCK, too.

    Raises:
        OSError: the disk failed.
    """
    size = disk.size(LOCK_NAME)
    return None if size is None else OwnerRecord.decode(disk.read(LOCK_NAME, 0, min(size, RECORD_SIZE)))


def check_unowned(root: str | os.PathLike[str]) -> None:
    """Nobody owns the directory now. Writes nothing, so it does for a directory that cannot be written.

    Raises:
        CannotOpen: IN_USE with the owner's pid.
        OSError: the directory cannot be read.
    """
    fd = os.open(root, _ROOT_FLAGS)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _in_use(Path(root) / LOCK_NAME, read_owner(root)) from None
    except OSError:
        pass  # a file system that locks no directory: nobody can own one there
    finally:
        os.close(fd)


def _disown_in_child() -> None:
    for lock in list(_held):
        lock._close()  # noqa: SLF001 -- the module's own; closing leaves the parent's lock alone, unlocking would not


os.register_at_fork(after_in_child=_disown_in_child)


def _read(fd: int) -> OwnerRecord | None:
    return OwnerRecord.decode(os.pread(fd, RECORD_SIZE, 0))


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
        raise _in_use(path, _read(fd)) from None
    return _read(fd)


def _in_use(path: Path, owner: OwnerRecord | None) -> CannotOpen:
    if owner is None:
        who = "another process"
    elif owner.pid == os.getpid():
        who = f"this process ({owner.pid})"
    elif owner.url is not None:
        who = f"process {owner.pid}, a server at {owner.url}"
    else:
        who = f"process {owner.pid}"
    how = "close it there first, or open another directory"
    if owner is not None and owner.url is not None:
        how = "use that (topics.Client, or --url), or end it"
    return CannotOpen(
        Unusable.IN_USE,
        f"{path.parent} is in use by {who}: {how}",
        path=str(path.parent),
        owner_pid=owner.pid if owner else None,
        owner_url=owner.url if owner else None,
    )


def _cannot_open(path: Path, error: OSError) -> CannotOpen:
    reason, why = _REASONS.get(error.errno or 0, (Unusable.UNWRITABLE, ""))
    return CannotOpen(
        reason, f"cannot open {path.parent}: {why or told(error, path.parent)}", path=str(path.parent)
    )
