"""The note that the sink keeps in the checkpoint of a stream: when the batch that is being written began (decision 28).

After a restart Spark runs the last batch that was not committed again, after seconds or after days, and tells nobody
when it was run before. So the driver writes it down when it plans a batch for the first time, durably, before a task of
it can post; planned again, the batch is found in the note. Which batch it is, Spark's own offsets say: it writes those
of a batch before it plans the write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final, Literal

import msgspec

from topics.host.disk import OsDisk
from topics.host.fsspec_files import open_files, without_secrets
from topics.host.fsspec_store import is_url
from topics.kernel.errors import Corrupt, invalid
from topics.kernel.ports import Disk
from topics.spark.directory import open_disk

NOTE_FILE: Final = "topics-sink.json"
_ASIDE: Final = f"{NOTE_FILE}.tmp"


class Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`batch` of the run `write_id` began at `began_ms`; the topic knew keys for `window_ms` then, None if no option
    names it.
    """

    version: Literal[1] = 1
    batch: int
    write_id: str | None
    began_ms: int
    window_ms: int | None


def keep_note(
    checkpoint: str, write_id: str | None, *, now_ms: Callable[[], int], window_ms: Callable[[], int | None]
) -> Note:
    """The note of the batch that is being planned, left in the checkpoint if it is new. Only of a new one the time and
    the window are asked for.

    Raises:
        Rejected: this is no checkpoint, or its files cannot be reached from Python.
        Corrupt: what is there is no note.
        OSError: it cannot be read or written.
    """
    disk, where = open_disk(checkpoint), without_secrets(checkpoint)
    batches = [int(name) for name in disk.names("offsets") if name.isdecimal()]
    if not batches:
        how = "give the whole URL of the folder, as file:///… or s3://…, and install what fsspec needs for it"
        raise invalid("checkpointLocation", f"{where} has no offsets of a stream: {how}")
    held = _read(disk, where)
    if held is not None and (held.batch, held.write_id) == (max(batches), write_id):
        return held
    began_ms = now_ms()
    note = Note(batch=max(batches), write_id=write_id, began_ms=began_ms, window_ms=window_ms())
    _write(checkpoint, msgspec.json.encode(note))
    return note


def _read(disk: Disk, where: str) -> Note | None:
    size = disk.size(NOTE_FILE)
    if size is None:
        return None
    try:
        return msgspec.json.decode(disk.read(NOTE_FILE, 0, size), type=Note)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(
            f"{where}/{NOTE_FILE} is no note of the sink ({error}), so nobody knows when the batch was written first; "
            "remove it only if its rows are not in the topic"
        ) from error


def _write(checkpoint: str, data: bytes) -> None:
    """The whole of it or nothing, whenever the machine fails."""
    if is_url(checkpoint):
        open_files(checkpoint, "checkpointLocation").write(NOTE_FILE, data)
        return
    with closing(OsDisk(checkpoint)) as disk:
        disk.create(_ASIDE, 0)
        disk.write(_ASIDE, 0, [data])
        disk.sync_data(_ASIDE)
        disk.rename(_ASIDE, NOTE_FILE)
        disk.sync_dir("")
