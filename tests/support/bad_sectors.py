"""A disk of which some bytes cannot be read: each read that touches them fails, as long as they are bad. A file of it
may not be synced.
"""

from __future__ import annotations

import errno
import os


class BadSectors:
    """`bad`: [start, stop) of files, by path. `reads`: of which files. `unsyncable`: a file."""

    def __init__(self, disk):
        self._disk = disk
        self.bad = {}
        self.errno = errno.EIO
        self.reads = []
        self.unsyncable = None

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def spoil(self, path, start=0, stop=1 << 40):
        self.bad[path] = (start, stop)

    def sync_data(self, path):
        if path == self.unsyncable:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        self._disk.sync_data(path)

    def read(self, path, offset, size):
        self.reads.append(path)
        start, stop = self.bad.get(path, (0, 0))
        if offset < stop and start < offset + size:
            raise OSError(self.errno, os.strerror(self.errno), path)
        return self._disk.read(path, offset, size)

    def read_nowait(self, path, offset, size):
        data = self.read(path, offset, size)
        return data if len(data) == size else None
