"""The end of a shard's log made good before anything is appended to it. Whatever a crash leaves of that is a torn tail
again (storage 4).
"""

from __future__ import annotations

from topics.engine.judge import State, Verdict
from topics.host.layout import read_hint, wal_path, write_hint
from topics.kernel.limits import ZERO_FILL_CHUNK
from topics.kernel.ports import Disk


def repair_tail(disk: Disk, verdict: Verdict) -> None:
    """Make kept bytes and names durable before any mark may cover them, and the un-synced tail zeros again."""
    if verdict.tail is not None:  # a process that died in a rotation left a name that no sync had covered
        disk.sync_dir(wal_path(verdict.tail.file).rsplit("/", 1)[0])
    for file, start, stop in verdict.rewrite():
        path = wal_path(file)
        for at in range(start, stop, ZERO_FILL_CHUNK):
            kept = disk.read(path, at, min(ZERO_FILL_CHUNK, stop - at))
            disk.write(path, at, [kept])
        disk.sync_data(path)
    if verdict.drop and verdict.tail is not None and read_hint(disk, *verdict.tail.file[:2]) is not None:
        write_hint(disk, verdict.tail.file)  # first: a hint must not name a file that is cut away
    # From the back, so that whatever a crash leaves of it is a torn tail again, in files that follow each other.
    for dropped in reversed(verdict.drop):
        path = wal_path(dropped.file)
        disk.unlink(path)
        disk.sync_dir(path.rsplit("/", 1)[0])
    tail = verdict.tail
    if tail is not None and verdict.state is State.TORN:
        path = wal_path(tail.file)
        for at in reversed(range(tail.end, tail.stop, ZERO_FILL_CHUNK)):
            disk.write(path, at, [bytes(min(ZERO_FILL_CHUNK, tail.stop - at))])
        disk.sync_data(path)
