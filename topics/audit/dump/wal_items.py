"""A file of the log as items: its header, every frame, and what is damaged between them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from topics.codec.log.control import Control, decode_control
from topics.codec.log.frame import FrameView, decode_frame
from topics.codec.log.layout import APPEND, FRAME_HEAD, FRAME_LEN_SIZE, Defect, Ext, Flag, check_frame
from topics.codec.log.newer import is_newer
from topics.codec.log.resync import find_frames, plausible_head
from topics.codec.log.walheader import HEADER_SIZE, decode_header
from topics.kernel.errors import Corrupt

DATA_SHOWN: Final = 200  # characters of a value
Item = dict[str, Any]


def damaged(offset: int, size: int, why: str, **fields: object) -> Item:
    return {"offset": offset, "what": "DAMAGED", "size": size, "why": why, **fields}


def unknown(offset: int, size: int, why: str, **fields: object) -> Item:
    """Of a newer version: whole, and nobody here can say what it means."""
    return {"offset": offset, "what": "UNKNOWN", "size": size, "why": why, **fields}


def log_items(buffer: bytes) -> Iterator[Item]:
    """What a WAL file holds, in its order."""
    if not buffer.strip(b"\0"):
        yield {"offset": 0, "what": "zeros", "size": len(buffer)}
        return
    try:
        header = decode_header(buffer)
        yield {
            "offset": 0, "what": "header", "version": header.version, "generation": header.generation,
            "shard": header.shard, "first_frame": header.first_frame, "file_id": header.file_id.hex(),
        }  # fmt: skip
    except Corrupt as damage:
        yield damaged(0, min(HEADER_SIZE, len(buffer)), damage.message)
    at = min(HEADER_SIZE, len(buffer))
    stop = max(len(buffer.rstrip(b"\0")), at)
    for offset, length in find_frames(buffer, at, len(buffer)):
        if offset > at:
            yield _gap(buffer, at, offset)
        yield frame_item(buffer, offset, length)
        at = offset + length
    if at < stop:
        yield _gap(buffer, at, stop)
    if max(at, stop) < len(buffer):
        yield {"offset": max(at, stop), "what": "zeros", "size": len(buffer) - max(at, stop)}


def _gap(buffer: bytes, start: int, stop: int) -> Item:
    """Bytes that are no frame."""
    defect = check_frame(buffer, start, len(buffer))
    head = plausible_head(buffer, start, len(buffer))
    claims = {} if head is None else {"claims": head[2].name, "topic_id": head[0], "seq": head[1]}
    why = defect.value if isinstance(defect, Defect) else "a frame that overlaps the next one"
    return damaged(start, stop - start, why, **claims)


def frame_item(buffer: bytes, offset: int, length: int) -> Item:
    """A whole frame: a record, or what a control frame says."""
    stop = offset + length
    try:
        if buffer[offset + FRAME_LEN_SIZE] == APPEND:
            fields = record_fields(decode_frame(buffer, offset, stop))
            return {"offset": offset, "what": "APPEND", "length": length, **fields}
        control = decode_control(buffer, offset, stop)
    except Corrupt as damage:
        if not is_newer(buffer, offset, stop):
            return damaged(offset, length, damage.message)
        _, kind, _, topic_id, seq, ts, _, _, _ = FRAME_HEAD.unpack_from(buffer, offset)
        return unknown(offset, length, damage.message, type=kind, topic_id=topic_id, seq=seq, ts=ts)
    return {"offset": offset, "what": control.type.name, "length": length, **_said(control)}


def _said(control: Control) -> Item:
    fields = {name: as_json_value(value) for name, value in msgspec.structs.asdict(control.payload).items()}
    head: Item = {"topic_id": control.topic_id, "ts": control.ts, "durable": control.durable}
    if control.write_frames > 1:
        head["write_frames"] = control.write_frames
    return {**head, **fields}


def record_fields(view: FrameView) -> Item:
    item: Item = {"topic_id": view.topic_id, "seq": view.seq, "ts": view.ts, "flags": flag_names(view.flags)}
    for name in ("node", "tag", "meta"):
        if value := getattr(view, name):
            item[name] = as_json_value(value)
    for kind, value in view.exts.items():
        name = Ext(kind).name.lower()
        item[name] = as_json_value(value) if kind in _TEXTS else int.from_bytes(value, "little")
    item["data"] = as_json_value(view.data)
    return item


_TEXTS: Final = frozenset({Ext.KEY, Ext.DEDUP_ID, Ext.IDEMPOTENCY_KEY, Ext.CONTENT_TYPE})


def flag_names(flags: int) -> str:
    return "|".join(flag.name or "" for flag in Flag if flags & flag)


def as_json_value(value: object) -> object:
    """A value as JSON can hold it."""
    if isinstance(value, bytes | bytearray):
        return _text(bytes(value))
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple | array):
        return [as_json_value(one) for one in value]
    if isinstance(value, Mapping):
        return {str(key): as_json_value(one) for key, one in value.items()}
    return value


def _text(value: bytes) -> str:
    """Text if it is text, else hex; the beginning of what is long."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "0x" + value[:DATA_SHOWN].hex()
    return text if len(text) <= DATA_SHOWN else f"{text[:DATA_SHOWN]}… ({len(value)} bytes)"
