"""Names of files and directories of topics under which something else lies: a pipe, a socket, a link, a directory …

A start ends at the first of these that it needs. A check names all of them, and looks at the rest as if they were not
there: whatever they have taken the place of is told as missing.
"""

from __future__ import annotations

import errno
import re
from typing import Final

from topics.audit.scan.rows import Severity, Violation
from topics.codec.manifest import MANIFEST_FILE
from topics.host.checkpoint.snapshots import META_DIR, SNAPSHOT_NAME
from topics.host.cold.ownership import NOTE_FILE
from topics.host.directory.layout import (
    CURRENT_FILE,
    FORMAT_FILE,
    GENERATION_NAME,
    NEXT_FILE,
    SEGMENT_NAME,
    SHARD_NAME,
    TOPIC_NAME,
    WAL_NAME,
)
from topics.host.directory.owner import LOCK_NAME
from topics.host.directory.restored import RESTORED_FILE
from topics.host.wal.archive import ARCHIVE_DIR
from topics.kernel.ports import Disk

_FILES: Final = re.compile(
    rf"({FORMAT_FILE}|{LOCK_NAME}|{NOTE_FILE}|{RESTORED_FILE}|{re.escape(MANIFEST_FILE)})"
    rf"|{META_DIR}/{SNAPSHOT_NAME}"
    rf"|(wal|{ARCHIVE_DIR})/{GENERATION_NAME}/{SHARD_NAME}/({WAL_NAME}|{CURRENT_FILE}|{re.escape(NEXT_FILE)})"
    rf"|topics/{TOPIC_NAME}/{SEGMENT_NAME}",
    re.ASCII,
)
_DIRECTORIES: Final = re.compile(
    rf"{META_DIR}|(wal|{ARCHIVE_DIR})(/{GENERATION_NAME}(/{SHARD_NAME})?)?|topics(/{TOPIC_NAME})?", re.ASCII
)
_LINK: Final = (
    "it is a link to no directory where one of topics should be: remove it, and put that back from a backup; "
    "or bring back what it leads to"
)


def find_wrong_types(disk: Disk) -> dict[str, str]:
    """What lies there instead, by path. Costs a look at each name."""
    found: dict[str, str] = {}
    pending = [""]
    while pending:
        parent = pending.pop()
        try:
            names = disk.names(parent)
        except NotADirectoryError:  # a link to what is none
            found[parent] = _LINK
            continue
        for name in names:
            path = f"{parent}/{name}".lstrip("/")
            what = None
            if _DIRECTORIES.fullmatch(path):
                what = _no_directory(disk, path)
                pending += [path] if what is None else []
            elif _FILES.fullmatch(path) and disk.size(path) is None:
                what = _no_file(disk, path)
            if what is not None:
                found[path] = what
    return found


def wrong_type_violations(found: dict[str, str]) -> list[Violation]:
    """An error of each: the next start may end there."""
    return [Violation("", path, "leftover", Severity.ERROR, None, None, what) for path, what in found.items()]


def _no_directory(disk: Disk, path: str) -> str | None:
    """What it is instead; None if it is one, or has gone meanwhile. A start follows a link to one."""
    if disk.size(path) is not None:
        return "it is a file where a directory of topics should be: remove it, and put the directory back from a backup"
    try:
        disk.read(path, 0, 0)  # behind a URL nothing is asked for no bytes: there is nothing else there
    except OSError as error:
        fine = error.errno in (errno.EISDIR, errno.ELOOP, errno.ENOENT)
        return None if fine else (error.strerror or str(error)).replace("file", "directory")
    return None


def _no_file(disk: Disk, path: str) -> str | None:
    """What it is instead; None if it is one now, or has gone meanwhile."""
    try:
        disk.read(path, 0, 0)
    except FileNotFoundError:
        return None
    except OSError as error:
        return error.strerror or str(error)
    return None
