"""Whose a data directory is: the line in LOCK, read without taking it (storage 1 and 4).

The line remembers the owner's pid and the URL at which it serves, if it is a server, and the boot id under which a
recovery was last *completed*, with the device and inode of LOCK itself and the mount that the log lies on. Boot id or
mount unknown or another, LOCK copied, new or unreadable: in each case un-synced bytes may be gone, so it counts as a
restart. Wrong in that direction is slow, in the other it loses data.

It says as well which logs have begun: each shard of the generation had its first file by then, durably, and nothing was
acknowledged before. Of a log that is gone with its directory nothing else tells, until a snapshot was taken in it
(`host.directory.missing_logs`). The newest `BEGUN_MAX` generations are named: an older one is in a snapshot, unless
that was refused at each change of shards since.

The line has a fixed size; an earlier version wrote 256 bytes, which are read as well. `OwnerRecord` does no I/O; the
simulated disk uses it with a boot id of its own. Who writes it is `host.directory.lock`.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeGuard

import attrs

from topics.codec.primitives import checksum
from topics.host.directory.layout import Format
from topics.host.system.boot import BOOT_ID_CHARS_MAX, is_plain, log_mount, machine_boot_id
from topics.host.system.filetypes import open_file
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import U32_MAX, U64_MAX, WAL_SHARDS_MAX
from topics.kernel.ports import Disk

LOCK_NAME: Final = "LOCK"
RECORD_SIZE: Final = 512
RECORD_SIZE_BEFORE: Final = 256  # of an earlier version
URL_CHARS_MAX: Final = 200
BEGUN_MAX: Final = 3
ROOT_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


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
        root_fd = os.open(root, ROOT_FLAGS)
    except OSError:
        return False
    try:
        mount = log_mount(root_fd)
    finally:
        os.close(root_fd)
    return same_boot(
        read_owner(root), boot_id=machine_boot_id(), device=found.st_dev, inode=found.st_ino, mount=mount
    )


def read_owner(root: str | os.PathLike[str]) -> OwnerRecord | None:
    """Who owns the directory, or did last; None if LOCK cannot tell. Takes no lock: whether it is owned now, only
    `acquire` says.
    """
    with suppress(OSError):
        fd = open_file(str(Path(root) / LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return owner_in(fd)
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


def owner_in(fd: int) -> OwnerRecord | None:
    """The same by an open LOCK."""
    return OwnerRecord.decode(os.pread(fd, RECORD_SIZE, 0))


def check_unowned(root: str | os.PathLike[str]) -> None:
    """Nobody owns the directory now. Writes nothing, so it does for a directory that cannot be written.

    Raises:
        CannotOpen: IN_USE with the owner's pid.
        OSError: the directory cannot be read.
    """
    fd = os.open(root, ROOT_FLAGS)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise in_use(Path(root) / LOCK_NAME, read_owner(root)) from None
    except OSError:
        pass  # a file system that locks no directory: nobody can own one there
    finally:
        os.close(fd)


def in_use(path: Path, owner: OwnerRecord | None) -> CannotOpen:
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
