"""RESTORED: how far each topic went when the data directory was made of a backup (storage 7).

A restore writes it, once. What had been written behind that before has left no trace in the directory, and its seqs are
given again. So whoever is asked what became of a record looks here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

import msgspec

from topics.host.directory.layout import with_sum
from topics.host.directory.size_limits import bytes_max, read_most
from topics.host.system.temporary import write_file
from topics.kernel.ports import Disk

RESTORED_FILE: Final = "RESTORED"


class RestoreNote(msgspec.Struct, frozen=True, kw_only=True):
    """`ts`: when it was restored, in ms; `as_of`: to how it was at that moment. `heads`: of each topic then, by its id
    in 16 hex digits.
    """

    ts: int
    as_of: int
    heads: dict[str, int]

    @classmethod
    def of(cls, *, ts: int, as_of: int, heads: Mapping[int, int]) -> Self:
        named = {_name_of(topic_id): head for topic_id, head in sorted(heads.items())}
        return cls(ts=ts, as_of=as_of, heads=named)

    def head_of(self, topic_id: int) -> int | None:
        """None of a topic that was made later."""
        return self.heads.get(_name_of(topic_id))


def write_restored(disk: Disk, note: RestoreNote) -> None:
    """Make the file, durably. Raises OSError."""
    write_file(disk, RESTORED_FILE, with_sum(note))
    disk.sync_dir("")


def read_restored(disk: Disk) -> RestoreNote | None:
    """None if the directory was not restored, or if the file is damaged. Raises OSError."""
    if disk.size(RESTORED_FILE) is None:
        return None
    data = read_most(disk, RESTORED_FILE, bytes_max(RESTORED_FILE))
    try:
        note = msgspec.json.decode(data, type=RestoreNote)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return note if with_sum(note) == data else None


def _name_of(topic_id: int) -> str:
    return f"{topic_id:016x}"
