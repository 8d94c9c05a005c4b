"""The archive of the log: WAL files that a checkpoint has absorbed, kept for restores to a moment (storage 1 and 7).

    archive/gen-N/shard-NN/wal-<20-digit frame number>.log      as they lay in wal/

A file is moved there instead of being removed: by one rename, so it is in one of the two places whatever happens, or,
between two file systems, by a copy, so it may be in both (`moving`); a restore takes it from either.
Nothing of a store reads the archive; `topics restore` does. It may be bounded, by bytes and by age: then the oldest
files go, from the front of each shard, so that what is left has no holes. How old a file is, is said by the first
frame of the one behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Final

import attrs

from topics.codec.log.layout import FRAME_HEAD
from topics.codec.log.walheader import HEADER_SIZE
from topics.host.directory.layout import find_wal_files_in, shards_in, wal_path
from topics.host.system.moving import move
from topics.host.system.refusals import FULL
from topics.kernel.checks import whole_number
from topics.kernel.limits import U64_MAX
from topics.kernel.ports import Disk
from topics.log.regions import WalFileId

ARCHIVE_DIR: Final = "archive"
_WAL_DIR: Final = "wal"


@attrs.frozen(kw_only=True)
class ArchiveRules:
    """How much is kept. 0: no bound."""

    bytes_max: int = 0
    age_ms: int = 0

    def __attrs_post_init__(self) -> None:
        whole_number("archive.bytes_max", self.bytes_max)
        whole_number("archive.age_ms", self.age_ms)


class ArchiveFull(OSError):
    """There is no room for a log file in the archive. It stays in the log, and the next round tries again."""

    def __init__(self, directory: str, full: OSError) -> None:
        super().__init__(full.errno, full.strerror, directory)

    def __str__(self) -> str:
        return (
            f"no space for the log in {self.filename}/ of the data directory: free some on its disk (the oldest files "
            "first), bound it with wal_archive_bytes or wal_archive_age_ms, or give it a larger disk; meanwhile reads, "
            "writes and checkpoints go on, and the log that belongs there stays in wal/ and grows"
        )


def archive_path(file: WalFileId) -> str:
    return ARCHIVE_DIR + wal_path(file).removeprefix(_WAL_DIR)


class Archive:
    """That of one data directory. Every call blocks."""

    def __init__(self, disk: Disk, rules: ArchiveRules) -> None:
        self._disk = disk
        self._rules = rules

    def take(self, files: Sequence[WalFileId]) -> None:
        """Move WAL files of one shard here, durably. The caller syncs the directory they leave.

        Raises:
            ArchiveFull: those for which there was no room are where they were.
            OSError: the disk failed.
        """
        if not files:
            return
        directory = archive_path(files[0]).rpartition("/")[0]
        try:
            self._take(files, directory)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise ArchiveFull(directory, error) from error

    def _take(self, files: Sequence[WalFileId], directory: str) -> None:
        if not self._disk.names(directory):
            self._disk.make_dir(directory)
            for parent in (directory.rpartition("/")[0], ARCHIVE_DIR, ""):
                self._disk.sync_dir(parent)
        for file in files:
            move(self._disk, wal_path(file), archive_path(file), partial(self._disk.sync_dir, directory))
        self._disk.sync_dir(directory)

    def trim(self, now_ms: int) -> None:
        """Remove what the rules no longer keep. The newest file of a shard stays."""
        if not self._rules.bytes_max and not self._rules.age_ms:
            return
        found = [
            find_wal_files_in(self._disk, ARCHIVE_DIR, *key) for key in shards_in(self._disk, ARCHIVE_DIR)
        ]
        dated = sorted((self._first_ts(behind), file) for files in found for file, behind in pairwise(files))
        sizes = {file: self._disk.size(archive_path(file)) or 0 for files in found for file in files}
        held = sum(sizes.values())
        for until_ms, file in dated:
            too_many = bool(self._rules.bytes_max) and held > self._rules.bytes_max
            too_old = bool(self._rules.age_ms) and until_ms < now_ms - self._rules.age_ms
            if not too_many and not too_old:
                break
            self._disk.unlink(archive_path(file))
            held -= sizes[file]

    def _first_ts(self, file: WalFileId) -> int:
        """When the file was begun: the ts of its first frame. One without a frame was begun by whoever was killed then:
        nothing says when, so what is before it counts as new, and goes behind all that is known to be older.
        """
        head = self._disk.read(archive_path(file), HEADER_SIZE, FRAME_HEAD.size)
        ts: int = FRAME_HEAD.unpack(head)[5] if len(head) == FRAME_HEAD.size else 0
        return ts or U64_MAX
