"""A server with something planted in it that no user can bring about.

usage: planted.py storage|recovery PORT_FILE

storage: its disk raises an exception that no disk raises when it is asked to write the mark. recovery: it waits, a
quarter of it done, for a line on standard input; the line `fail` makes it fail. Without one it never ends.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from topics.server.main import Announcements, serve
from topics.server.runtime.log import log
from topics.server.settings import ServerSettings
from topics.store.directory import MemoryDirectory
from topics.store.opened import StoreOptions

MARK = b"planted"


class Planted(Exception):
    """Not an OSError, so nobody expects it."""


class BrokenDisk:
    """Raises when it is asked to write the mark."""

    def __init__(self, disk):
        self._disk = disk

    def write(self, path, offset, chunks):
        if any(MARK in bytes(chunk) for chunk in chunks):
            raise Planted("written to the disk")
        self._disk.write(path, offset, chunks)

    def __getattr__(self, name):
        return getattr(self._disk, name)


class WithBrokenDisk(MemoryDirectory):
    def __init__(self):
        super().__init__()
        self.disk = BrokenDisk(self.disk)


class WithSlowRecovery(MemoryDirectory):
    def recover(self, *, options=None, progress=None):
        progress(0.25)
        log.info("recovery.waits")
        line = sys.stdin.readline()
        if not line:  # who waits for the end of this process closes it
            threading.Event().wait()
        if line.strip() == "fail":
            raise Planted("in the recovery")
        return super().recover(options=options, progress=progress)


def main(kind, port_file):
    settings = ServerSettings(port=0)
    told = Announcements(
        storage=lambda _: None,
        listening=lambda _: None,
        ready=lambda port: Path(port_file).write_text(str(port)) and None,
        reread=lambda: (settings, ()),
    )
    claim = {"storage": WithBrokenDisk, "recovery": WithSlowRecovery}[kind]
    serve(settings, StoreOptions(), claim, told)


if __name__ == "__main__":
    main(*sys.argv[1:])
