"""An embedded store of small segments on a simulated disk, and waiting for what its threads do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

PATIENCE_S = 5
SMALL = StoreOptions(
    limits=Limits(wal_file_first=8192, wal_file_max=65_536, wal_reserve=1024),
    segments=SegmentRules(records_max=50, bytes_max=20_000),
    min_free_bytes=4096,
)


def wait_until(holds: Callable[[], bool]) -> bool:
    """Look again and again, without sleeping, for as long as patience lasts."""
    until = time.monotonic() + PATIENCE_S
    while not holds() and time.monotonic() < until:
        os.sched_yield()
    return holds()


def simulated(disk=None, port=None, options=SMALL):
    disk = disk or SimDisk(1)
    opened = open_simulated(disk, ManualClock(), SeededEntropy(1), options, port=port)
    return Store(opened, port or disk, housekeeping=False), disk


class Sly:
    """A disk under which something happens just before a read, or before a directory is made."""

    def __init__(self, disk):
        self._disk = disk
        self.before_read = None
        self.before_make_dir = None

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def read(self, path, offset, size):
        act, self.before_read = self.before_read, None
        if act is not None:
            act()
        return self._disk.read(path, offset, size)

    def make_dir(self, path):
        act, self.before_make_dir = self.before_make_dir, None
        if act is not None:
            act()
        self._disk.make_dir(path)
