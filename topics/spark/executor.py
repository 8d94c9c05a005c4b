"""What an executor does of a validation: it scans files, each to one row.

An executor imports this module and what it needs, and nothing of the checks: so its machine needs fewer packages.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import attrs

from topics.audit.scan.rows import Row, Task
from topics.audit.scan.scan import scan
from topics.host.cold.fsspec_files import without_secrets
from topics.host.cold.fsspec_store import is_url
from topics.host.directory.layout import FORMAT_FILE
from topics.host.system.readonly import WithCold
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.ports import Disk
from topics.spark.directory import open_cold, open_disk


@attrs.frozen
class Scanning:
    """A group of tasks to their rows, in a directory and, if it is named, its cold tier.

    Raises:
        CannotOpen: on this machine there is no such directory. Else all that is in it would pass for lost.
    """

    path: str
    cold_dir: str | None

    def __call__(self, tasks: Sequence[Task]) -> list[Row | None]:
        disk = self.disk()
        return [scan(disk, task) for task in tasks]

    def disk(self) -> Disk:
        disk = open_disk(self.path)
        if disk.size(FORMAT_FILE) is None:
            self._miss(self.path)
        if self.cold_dir is None:
            return disk
        if not is_url(self.cold_dir) and not Path(self.cold_dir).is_dir():
            self._miss(self.cold_dir)
        return WithCold(disk, open_cold(self.cold_dir))

    def _miss(self, place: str) -> NoReturn:
        where, machine = without_secrets(place), socket.gethostname()
        how = "every machine must reach it by the same path or URL"
        raise CannotOpen(
            Unusable.MISSING, f"{where} is not there on the executor {machine}: {how}", path=where
        )
