"""What is in one file of a data directory, item by item, damaged places too: what `topics inspect` shows.

An item is a mapping: `offset` where there is one, `what` it is, and its fields, numbers and text only. Bytes are shown
as text where they are text, else as hex, cut to a bound. Nothing here raises for what a file holds: damage is an item.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from topics.audit.dump.segment_items import col_items, data_items, del_items, idx_items
from topics.audit.dump.wal_items import Item, as_json_value, damaged, log_items
from topics.codec.manifest import MANIFEST_FILE, decode_manifest
from topics.codec.snapshot import SNAPSHOT_HEAD, check_head, decode_snapshot
from topics.engine import image
from topics.host.cold.ownership import NOTE_FILE
from topics.host.cold.segment_stores import OWNER_FILE
from topics.host.directory.layout import CURRENT_FILE, FORMAT_FILE, NEXT_FILE
from topics.host.directory.owner import LOCK_NAME, OwnerRecord
from topics.host.directory.restored import RESTORED_FILE
from topics.host.directory.size_limits import bytes_max, read_most
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Corrupt, invalid
from topics.log.facts import OF_RECORDS

Dumper = Callable[[bytes, Path], Iterator[Item]]
_SEGMENT: Final = re.compile(r"seg-([0-9]{20})\.(data|idx|col|del)(\.tmp)?", re.ASCII)
_WAL: Final = re.compile(r"wal-[0-9]+\.log|" + re.escape(NEXT_FILE), re.ASCII)
_SNAPSHOT: Final = re.compile(r"snapshot\.([0-9]+\.bin|tmp)", re.ASCII)


def dump(path: Path) -> Iterator[Item]:
    """The items of a file.

    Raises:
        Rejected: nothing that topics writes has such a name.
        OSError: it cannot be read.
    """
    dumper = _dumper(path.name)
    if dumper is None:
        raise invalid(
            "file", f"{path} has no name that topics gives: wal-….log, seg-….data, .idx, .col or .del, "
            "snapshot.….bin, next.tmp, CURRENT, LOCK, FORMAT, COLD, OWNER or BACKUP.json",
        )  # fmt: skip
    return _items(dumper, path)


def _items(dumper: Dumper, path: Path) -> Iterator[Item]:
    """Of what is read of the file: neither more than one of its kind can have, nor many zeros behind it."""
    disk, size = ReadOnlyDisk(path.parent), path.stat().st_size
    most = bytes_max(path.name)
    if dumper is _snapshot:
        try:
            check_head(disk.read(path.name, 0, SNAPSHOT_HEAD.size), size)
        except Corrupt as damage:
            yield damaged(0, size, damage.message)
            return
    buffer = read_most(disk, path.name, most)
    yield from dumper(buffer, path)
    if size > most:
        yield damaged(most, size - most, f"a file of this name can have no more than {most} bytes")
    elif size > len(buffer) and dumper is not _log:
        yield damaged(len(buffer), size - len(buffer), "zeros, where nothing is written")


def _dumper(name: str) -> Dumper | None:
    segment = _SEGMENT.fullmatch(name)
    if segment is not None:
        return _SEGMENT_PARTS[segment[2]]
    if _SNAPSHOT.fullmatch(name):
        return _snapshot
    return _log if _WAL.fullmatch(name) else _SMALL.get(name)


def _log(buffer: bytes, path: Path) -> Iterator[Item]:  # noqa: ARG001 -- as every dumper
    return log_items(buffer)


# Snapshots.


def _snapshot(buffer: bytes, path: Path) -> Iterator[Item]:  # noqa: ARG001 -- as every dumper
    try:
        number, body = decode_snapshot(buffer)
        snapshot = image.decode(body)
    except Corrupt as damage:
        yield damaged(0, len(buffer), damage.message)
        return
    state = snapshot.state
    yield {
        "what": "snapshot", "number": number, "ts": state.ts, "high_ts": state.high_ts,
        "next_topic_id": state.next_topic_id, "names": len(state.epochs), "topics": len(state.topics),
    }  # fmt: skip
    for place in snapshot.places:
        yield {"what": "place", **msgspec.structs.asdict(place)}
    for topic in state.topics:
        fields = msgspec.structs.asdict(topic)
        segments, slots = fields.pop("segments"), fields.pop("slots")
        for fact in OF_RECORDS:
            fields[fact.name] = len(fields[fact.name])
        yield {"what": "topic", **_plain(fields)}
        for segment in segments:
            yield {"what": "segment", "topic_id": topic.topic_id, **msgspec.structs.asdict(segment)}
        for run in slots:
            last = run.first_seq + len(run) - 1
            yield {"what": "slots", "topic_id": topic.topic_id, "seq": run.first_seq, "last": last}


def _plain(fields: dict[str, Any]) -> Item:
    return {name: as_json_value(value) for name, value in fields.items()}


# Small files.


def _lock(buffer: bytes, path: Path) -> Iterator[Item]:  # noqa: ARG001 -- as every dumper
    owner = OwnerRecord.decode(buffer)
    if owner is None:
        yield damaged(0, len(buffer), "no owner's line")
        return
    yield {
        "what": "owner", "pid": owner.pid, "boot_id": owner.boot_id, "device": owner.device, "inode": owner.inode,
        "begun": [{"generation": generation, "shards": shards} for generation, shards in owner.begun],
        "mount": owner.mount, "url": owner.url,
    }  # fmt: skip


def _json(buffer: bytes, path: Path) -> Iterator[Item]:
    try:
        found = msgspec.json.decode(buffer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        yield damaged(0, len(buffer), f"no JSON: {error}")
        return
    yield {
        "what": path.name,
        **(_plain(found) if isinstance(found, dict) else {"value": as_json_value(found)}),
    }


def _hint(buffer: bytes, path: Path) -> Iterator[Item]:
    yield {"what": path.name, "text": as_json_value(buffer.strip(b"\0\n"))}


def _manifest(buffer: bytes, path: Path) -> Iterator[Item]:  # noqa: ARG001 -- as every dumper
    try:
        manifest = msgspec.to_builtins(decode_manifest(buffer))
    except Corrupt as damage:
        yield damaged(0, len(buffer), damage.message)
        return
    lists = {name: value for name, value in manifest.items() if isinstance(value, list)}
    yield {"what": "backup", **_plain({name: value for name, value in manifest.items() if name not in lists})}
    for name, entries in lists.items():
        for entry in entries:
            yield {"what": name, **(entry if isinstance(entry, dict) else {"value": as_json_value(entry)})}


_SMALL: Final[dict[str, Dumper]] = {
    LOCK_NAME: _lock, FORMAT_FILE: _json, NOTE_FILE: _json, RESTORED_FILE: _json, OWNER_FILE: _json,
    CURRENT_FILE: _hint, MANIFEST_FILE: _manifest,
}  # fmt: skip
_SEGMENT_PARTS: Final[dict[str, Dumper]] = {
    "data": data_items, "idx": idx_items, "col": col_items, "del": del_items
}  # fmt: skip
