"""A disk in memory that knows what was synced, and can fail and crash on demand (`kernel.ports.Disk`).

Theory. What is on the disk is `simstore`'s (content by `simfile`, names by `simtree`); a crash draws what survives
from `survival`; errors come from `faults`. This module is the machine: it counts calls, strikes faults, springs the
crash trap, and keeps what outlives a process: boot id, device, and who holds the lock.

Three ends are different. After `process_death()` everything written is still there, un-synced changes included, and the
boot id stays; what a failed write or sync gave up goes with `drop_caches()`. After `power_loss()` only what was synced
is sure, the rest is any part a file system could have kept, and the boot id is new. After `mount_again()` the same is
sure, and only the mount's id is new. Everything is drawn from one seed.

Threads may share it. The monitor runs outside the mutex, in the thread of the call, after the call took effect.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NoReturn, TypeVar

import attrs

from topics.kernel.ports import check_path
from topics.testing.faults import MUTATING, SIZED, DiskCall, Fault, FaultKind, Landed, SimCrash
from topics.testing.simfile import SimFile
from topics.testing.simstore import SimStore
from topics.testing.simtree import PATHS_KEPT
from topics.testing.survival import Shape

CALLS_KEPT: Final = 1 << 16
CAPACITY: Final = 1 << 40
_ON_ROOT: Final = ("sync_dir", "names", "free_bytes")

_check_path = lru_cache(maxsize=PATHS_KEPT)(check_path)
T = TypeVar("T")


@attrs.frozen(eq=False)
class SimSnapshot:
    """State of a disk between two calls; what it holds is nobody else's."""

    store: SimStore
    boots: int
    device: int
    mount: int
    owner: int | None
    random_state: tuple[object, ...]  # as random.Random gives it


class SimDisk:
    """One simulated data directory. `mounts`: its folders that are file systems of their own, each of `free` bytes."""

    def __init__(
        self,
        seed: int = 0,
        *,
        free: int = CAPACITY,
        mounts: Sequence[str] = (),
        monitor: Callable[[DiskCall], None] | None = None,
    ) -> None:
        self.calls: deque[DiskCall] = deque(maxlen=CALLS_KEPT)
        self.counts: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()  # of these, by a fault
        self.mutations = 0
        self._calls_made = 0
        self.monitor = monitor
        self.owner: int | None = None  # stands for flock: who holds the directory; a crash lets go of it
        self.device = 1
        self.mount = 1
        self._seed = seed
        self._random = random.Random(seed)
        self._lock = threading.RLock()
        self._store = SimStore(free, mounts)
        self._boots = 0
        self._faults: list[Fault] = []
        self._trap: tuple[int, Landed] | None = None
        self._down = False

    # The port.

    def read(self, path: str, offset: int, size: int) -> bytes:
        assert offset >= 0, offset
        assert size >= 0, size
        return self._do(DiskCall("read", path, offset, size), self._store.read)

    def read_nowait(self, path: str, offset: int, size: int) -> bytes | None:
        data = self.read(path, offset, size)
        return data if len(data) == size else None

    def write(self, path: str, offset: int, chunks: Sequence[bytes]) -> None:
        assert offset >= 0, offset
        data = b"".join(chunks)
        self._do(DiskCall("write", path, offset, len(data)), lambda call: self._store.write(call, data))

    def sync_data(self, path: str) -> None:
        self._do(DiskCall("sync_data", path), self._store.sync_data)

    def sync_dir(self, path: str) -> None:
        self._do(DiskCall("sync_dir", path), self._store.sync_dir)

    def sync_many(self, files: Sequence[str], directories: Sequence[str]) -> None:
        for path in files:
            self.sync_data(path)
        for path in directories:
            self.sync_dir(path)

    def create(self, path: str, size: int) -> None:
        assert size >= 0, size
        self._do(DiskCall("create", path, 0, size), self._store.create)

    def extend(self, path: str, size: int) -> None:
        assert size >= 0, size
        self._do(DiskCall("extend", path, 0, size), self._store.extend)

    def truncate(self, path: str, size: int) -> None:
        assert size >= 0, size
        self._do(DiskCall("truncate", path, 0, size), self._store.truncate)

    def rename(self, source: str, target: str) -> None:
        _check_path(target)
        assert source != target
        self._do(DiskCall("rename", source, target=target), self._store.rename)

    def unlink(self, path: str) -> None:
        self._do(DiskCall("unlink", path), self._store.unlink)

    def make_dir(self, path: str) -> None:
        self._do(DiskCall("make_dir", path), self._store.make_dir)

    def remove_dir(self, path: str) -> None:
        self._do(DiskCall("remove_dir", path), self._store.remove_dir)

    def links(self, path: str) -> int:
        return self._do(DiskCall("links", path), self._store.links)

    def names(self, path: str) -> list[str]:
        return self._do(DiskCall("names", path), self._store.names)

    def size(self, path: str) -> int | None:
        return self._do(DiskCall("size", path), self._store.size)

    def free_bytes(self, path: str = "") -> int:
        return self._do(DiskCall("free_bytes", path), lambda call: self._store.free(call.path))

    def share(self, path: str, names: int = 2) -> None:
        """Something outside has the file under other names too: `links` says how many there are."""
        with self._lock:
            self._store.tree.file(path).links = names

    # The machine: ends and beginnings.

    @property
    def boot_id(self) -> str:
        """A new one after each power loss."""
        return f"boot-{self._seed}-{self._boots}"

    @property
    def down(self) -> bool:
        """Whether a crash has happened and no restart yet."""
        return self._down

    def crash_at(self, n: int, landed: Landed = Landed.NONE) -> None:
        """The n-th mutating call from now (0 = the next one) raises SimCrash; a part of it, or all, takes effect."""
        assert n >= 0, n
        self._trap = (self.mutations + n, landed)

    def process_death(self) -> str:
        """The process is gone, the machine is not. Returns the boot id, which stays."""
        with self._lock:
            self._restart()
        return self.boot_id

    def power_loss(self, shape: Shape = Shape.RANDOM_PAGES, seed: int | None = None) -> str:
        """The machine is gone; what no sync covered survives as `shape` says. Returns the new boot id."""
        with self._lock:
            rng = self._random if seed is None else random.Random(seed)
            self._store.lose_power(shape, rng)
            self._boots += 1
            self._restart()
        return self.boot_id

    def mount_again(self, shape: Shape = Shape.RANDOM_PAGES, seed: int | None = None) -> None:
        """The process is gone, and its file system was taken away with what no sync covered, repaired, and mounted.

        Boot id, device and inodes stay, and the mount's id is new.
        """
        with self._lock:
            self._store.lose_power(shape, self._random if seed is None else random.Random(seed))
            self.mount += 1
            self._restart()

    def drop_caches(self) -> None:
        """Clean pages leave memory: behind a failed write or sync the lost ones read as the platter has them."""
        with self._lock:
            for file in self._store.tree.files():
                file.drop_caches()

    # Faults.

    def inject(
        self,
        op: str | None,
        kind: FaultKind = FaultKind.EIO,
        *,
        at: int | None = None,
        times: int | None = 1,
        shift: int = 4096,
    ) -> Fault:
        """Let calls [at, at + times) of `op` fail; `at` counts from the disk's birth, None is the next call."""
        if at is None:
            at = self.counts[op] if op is not None else self._calls_made
        fault = Fault(op=op, kind=kind, at=at, times=times, shift=shift)
        self._faults.append(fault)
        return fault

    def heal(self, fault: Fault | None = None) -> None:
        """Take back one fault, or all."""
        self._faults = [] if fault is None else [other for other in self._faults if other is not fault]

    def flip(self, path: str, bit: int) -> None:
        """Turn one bit of a file over, on the platter and in the cache. Bit 0 is the lowest of byte 0."""
        with self._lock:
            self._store.tree.file(path).flip(bit)

    @property
    def free(self) -> int:
        """Free space; set it to simulate a full disk."""
        with self._lock:
            return self._store.free()

    @free.setter
    def free(self, size: int) -> None:
        self.set_free(size)

    def set_free(self, size: int, mount: str = "") -> None:
        """The same of a mount."""
        assert size >= 0, size
        with self._lock:
            self._store.set_free(size, mount)

    # Looking in from outside; none of it counts as a call.

    def content(self, path: str) -> bytes:
        """What a reader would see now."""
        with self._lock:
            return bytes(self._store.tree.file(path).data)

    def synced_bytes(self, path: str) -> bytes:
        """What a power loss that keeps nothing unsynced would leave under this name; empty if not even the name."""
        with self._lock:
            node = self._store.tree.find_durable(path)
            return bytes(node.durable) if isinstance(node, SimFile) else b""

    def is_durable(self, path: str, start: int, stop: int) -> bool:
        """Whether [start, stop) of the file survives any crash as it reads now, under this name."""
        assert start <= stop
        with self._lock:
            node = self._store.tree.find(path)
            if not isinstance(node, SimFile) or self._store.tree.find_durable(path) is not node:
                return False
            return node.is_durable(start, stop)

    def inode(self, path: str) -> int | None:
        """Stays with a file through renames and crashes."""
        with self._lock:
            node = self._store.tree.find(path)
            return node.inode if isinstance(node, SimFile) else None

    def snapshot(self) -> SimSnapshot:
        """Everything on the disk, synced and not. Faults, traps, counters and the monitor are not part of it."""
        with self._lock:
            assert not self._down
            return SimSnapshot(
                store=self._store.copy(),
                boots=self._boots,
                device=self.device,
                mount=self.mount,
                owner=self.owner,
                random_state=self._random.getstate(),
            )

    def restore(self, snapshot: SimSnapshot) -> None:
        """Back to the snapshot, as often as one likes. Faults and traps are cleared."""
        with self._lock:
            self._store = snapshot.store.copy()
            self._boots = snapshot.boots
            self.device = snapshot.device
            self.mount = snapshot.mount
            self._random.setstate(snapshot.random_state)
            self._faults = []
            self._restart()
            self.owner = snapshot.owner

    # A call, from outside in.

    def _do(self, call: DiskCall, act: Callable[[DiskCall], T]) -> T:
        """Count, then crash, fail or act; tell the monitor what took effect."""
        op = call.op
        if call.path or op not in _ON_ROOT:
            _check_path(call.path)
        with self._lock:
            if self._down:
                raise SimCrash(f"{op} after a crash: restart the disk first")
            op_index, index = self.counts[op], self._calls_made
            self.counts[op] = op_index + 1
            self._calls_made = index + 1
            self.calls.append(call)
            if op in MUTATING:
                self.mutations += 1
                if self._trap is not None and self._trap[0] == self.mutations - 1:
                    self._crash(call, act, self._trap[1])
            for fault in self._faults:
                if fault.strikes(op, op_index=op_index, index=index):
                    call = self._strike(fault, call, act)
                    break
            result = act(call)
        if self.monitor is not None:
            self.monitor(call)
        return result

    def _crash(self, call: DiskCall, act: Callable[[DiskCall], object], landed: Landed) -> NoReturn:
        self._down = True
        with suppress(OSError):  # the caller will never know
            if landed is Landed.ALL:
                act(call)
            elif landed is Landed.PART:
                self._act_partly(call, act)
        raise SimCrash(f"crashed in {call.op} {call.path!r}, {landed.value} of it took effect")

    def _act_partly(self, call: DiskCall, act: Callable[[DiskCall], object]) -> None:
        """Some of the bytes; calls that cannot be halved happen or do not."""
        if call.op in SIZED:
            if call.size:
                act(call._replace(size=self._random.randrange(call.size)))
        elif self._random.random() < 0.5:
            act(call)

    def _strike(self, fault: Fault, call: DiskCall, act: Callable[[DiskCall], object]) -> DiskCall:
        """Raise the fault's error, or answer with the call it turned this one into."""
        if fault.kind is FaultKind.MISDIRECTED:
            return call._replace(offset=max(0, call.offset + fault.shift))
        self.failed[call.op] += 1
        if fault.kind in (FaultKind.ENOSPC, FaultKind.EMFILE):
            raise _error(getattr(errno, fault.kind.value), call.path)
        if fault.kind is FaultKind.SHORT:
            self._act_partly(call, act)
        elif fault.kind is FaultKind.DROPS_PAGES:
            self._store.tree.file(call.path).fail_sync()
        raise _error(errno.EIO, call.path)

    def _restart(self) -> None:
        self._down = False
        self._trap = None
        self.owner = None


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
