"""Frames as Arrow record batches: the shape in which Spark, and whoever else reads columns, gets records.

A batch has the columns that are asked for and no others: what is not asked for is neither cut out nor decoded, and that
is all the column pruning there is. The types are exactly those that Spark takes from Python (int64, string, binary,
timestamp in microseconds of UTC, list of struct); the names and their order are those of Spark's Kafka source, so that
its users' code works unchanged (spec: spark 3).

It knows bytes and columns, and neither Spark nor an engine. It is imported only where pyarrow and numpy are installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from topics.audit.columnar.frame_heads import (
    Bytes,
    Flags,
    FrameHeads,
    Longs,
    check_sums,
    damage_of,
    gather_heads,
)
from topics.codec.log.frame import FrameView
from topics.codec.log.layout import CHECKSUM_SIZE, COMPRESSED, EXT, FRAME_HEAD, META, NODE, TAG, parse_region
from topics.host.system.compress import decompress
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.limits import MIB

CONTENT_TYPE_HEADER: Final = "$content_type"  # as on the wire; a client's own meta keys never begin with $
LOG_APPEND_TIME: Final = 1  # what Kafka calls a timestamp that the log gave
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
UNFOLDED_BYTES: Final = 16 * MIB  # of decompressed payloads in a batch, unless one is longer
_US: Final = 1000  # microseconds in a millisecond
_meta: Final = msgspec.json.Decoder(dict[str, str]).decode


class Verify(StrEnum):
    """What becomes of a record that fails its checksum. FLAG: it comes with `damaged` true and nothing in it. OFF: no
    checksum is computed, which is for files that were verified before.
    """

    FAIL = "fail"
    FLAG = "flag"
    OFF = "off"


class RecordState(StrEnum):
    """The column `state`: whether a record is live, or how it ended."""

    LIVE = "live"
    DELETED = "deleted"
    EXPIRED = "expired"


STATES: Final = tuple(RecordState)


def full_schema(*, headers: bool, internal: bool, flagged: bool) -> pa.Schema:
    """Every column, in order: those of Kafka, ours, and what only the options bring."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        *([pa.field("headers", HEADERS)] if headers else []),
        pa.field("node", pa.string()),
        pa.field("tag", pa.string()),
        *([pa.field("state", pa.string())] if internal else []),
        *([pa.field("damaged", pa.bool_())] if flagged else []),
    ]
    return pa.schema(fields)


def frames_batches(frames: FrameHeads, schema: pa.Schema, verify: Verify) -> Iterator[pa.RecordBatch]:
    """The records with the columns of `schema`: one batch, or more where they unfold to more than `UNFOLDED_BYTES`.

    Raises:
        Corrupt: a frame is not whole, or another one than the index says, and `verify` is not FLAG. It is raised by
            the call: once there are batches, only a payload that was never sound when it was written is an error.
    """
    assert len(frames.offsets) == len(frames.lengths) == len(frames.seqs)
    heads, sound = gather_heads(frames)
    if verify is not Verify.OFF:
        sound = check_sums(frames, sound)
    if verify is not Verify.FLAG and not sound.all():
        raise damage_of(frames, int(np.flatnonzero(~sound)[0]))
    gathered = _Gathered(frames, heads, sound)
    parts = gathered.fitting() if "value" in schema.names else iter([gathered])
    return (_batch(part, schema) for part in parts)


def views_batch(topic: str, views: Sequence[FrameView], schema: pa.Schema) -> pa.RecordBatch:
    """The same of records that are decoded already."""
    return _batch(_Decoded(topic, views), schema)


# What a batch is made of.


class _Columns(Protocol):
    """Columns of `count` records, each computed when asked for. None stands for what a record lacks, or all of them."""

    topic: str
    count: int

    def offset(self) -> Longs: ...

    def ts_ms(self) -> Longs: ...

    def states(self) -> Bytes | None: ...

    def damaged(self) -> Flags: ...

    def value(self) -> Sequence[bytes | None]: ...

    def key(self) -> Sequence[bytes | None] | None: ...

    def node(self) -> Sequence[bytes | None] | None: ...

    def tag(self) -> Sequence[bytes | None] | None: ...

    def headers(self) -> Sequence[list[tuple[str, bytes]] | None] | None: ...


class _Decoded:
    def __init__(self, topic: str, views: Sequence[FrameView]) -> None:
        self.topic = topic
        self.count = len(views)
        self._views = views

    def offset(self) -> Longs:
        return np.array([view.seq for view in self._views], dtype=np.int64)

    def ts_ms(self) -> Longs:
        return np.array([view.ts for view in self._views], dtype=np.int64)

    def states(self) -> Bytes | None:
        return None

    def damaged(self) -> Flags:
        return np.zeros(self.count, dtype=np.bool_)

    def value(self) -> Sequence[bytes | None]:
        return [_plain(view, self.topic) for view in self._views]

    def key(self) -> Sequence[bytes | None]:
        return [view.key or None for view in self._views]

    def node(self) -> Sequence[bytes | None]:
        return [view.node or None for view in self._views]

    def tag(self) -> Sequence[bytes | None]:
        return [view.tag or None for view in self._views]

    def headers(self) -> Sequence[list[tuple[str, bytes]] | None]:
        return [_headers(view) for view in self._views]


class _Gathered:
    """Columns of frames whose heads are gathered. Only records that are more than data are decoded one by one."""

    def __init__(self, frames: FrameHeads, heads: npt.NDArray[np.void], sound: Flags) -> None:
        self.topic = frames.topic
        self.count = len(frames)
        self._frames = frames
        self._heads = heads
        self._sound = sound
        self._flags: Bytes = np.where(sound, heads["flags"], 0)

    @cached_property
    def _views(self) -> dict[int, FrameView]:
        """Those that are more than data, by place."""
        return {at: self._view(at) for at in self._which(META | EXT | COMPRESSED)}

    def fitting(self) -> Iterator[_Gathered]:
        """The same in parts that are small enough: the compressed payloads are decompressed one after the other."""
        start = size = 0
        for at in self._which(COMPRESSED):
            view = self._views[at]
            plain = self._views[at] = view.with_data(_plain(view, self.topic))
            size += len(plain.data)
            if size > UNFOLDED_BYTES:
                yield self._part(start, at + 1)
                start, size = at + 1, 0
        if start < self.count or not self.count:
            yield self._part(start, self.count) if start else self

    def _part(self, start: int, stop: int) -> _Gathered:
        """The records from one place to another. They are its own from now on."""
        part = _Gathered(self._frames.part(start, stop), self._heads[start:stop], self._sound[start:stop])
        part._views = {at - start: self._views.pop(at) for at in [*self._views] if start <= at < stop}
        return part

    def offset(self) -> Longs:
        return self._frames.seqs

    def ts_ms(self) -> Longs:
        return np.where(self._sound, self._heads["ts"].astype(np.int64), 0)

    def states(self) -> Bytes | None:
        return self._frames.states

    def damaged(self) -> Flags:
        return ~self._sound

    def value(self) -> Sequence[bytes | None]:
        buffer, heads = self._frames.buffer, self._heads
        stops = self._frames.offsets + self._frames.lengths - CHECKSUM_SIZE
        starts = stops - np.where(self._sound, heads["data_len"], 0)
        values: list[bytes | None] = [
            buffer[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        for at, view in self._views.items():
            values[at] = _plain(view, self.topic)
        for at in np.flatnonzero(~self._sound).tolist():
            values[at] = None
        return values

    def key(self) -> Sequence[bytes | None] | None:
        return self._of_views(lambda view: view.key or None)

    def headers(self) -> Sequence[list[tuple[str, bytes]] | None] | None:
        return self._of_views(_headers)

    def node(self) -> Sequence[bytes | None] | None:
        return self._names(NODE, np.zeros_like(self._frames.offsets), self._heads["node_len"])

    def tag(self) -> Sequence[bytes | None] | None:
        return self._names(TAG, self._heads["node_len"].astype(np.int64), self._heads["tag_len"])

    def _names(self, flag: int, skip: Longs, sizes: npt.NDArray[Any]) -> Sequence[bytes | None] | None:
        which = self._which(flag)
        if not which:
            return None
        buffer = self._frames.buffer
        starts = self._frames.offsets + FRAME_HEAD.size + skip
        stops = starts + sizes
        names: list[bytes | None] = [None] * self.count
        for at in which:
            names[at] = buffer[int(starts[at]) : int(stops[at])]
        return names

    def _which(self, flags: int) -> list[int]:
        found: list[int] = np.flatnonzero(self._flags & flags).tolist()
        return found

    def _view(self, at: int) -> FrameView:
        """The record, whose checksum was looked at before, if it was to be."""
        head, topic_id, seq = self._heads[at], self._frames.topic_id, int(self._frames.seqs[at])
        node_at = int(self._frames.offsets[at]) + FRAME_HEAD.size
        tag_at = node_at + int(head["node_len"])
        data_at = tag_at + int(head["tag_len"])
        buffer, flags = self._frames.buffer, int(head["flags"])
        parsed = parse_region(buffer[data_at : data_at + int(head["data_len"])], flags)
        if parsed is None:
            raise damage_of(self._frames, at)
        meta, exts, data = parsed
        node, tag = buffer[node_at:tag_at], buffer[tag_at:data_at]
        return FrameView(seq, int(head["ts"]), flags, topic_id, node, tag, meta, data, exts)

    def _of_views(self, part: Callable[[FrameView], Any]) -> list[Any] | None:
        if not self._views:
            return None
        parts: list[Any] = [None] * self.count
        for at, view in self._views.items():
            parts[at] = part(view)
        return parts


def _batch(columns: _Columns, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [_ARRAYS[field.name](columns, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _constant(value: object, columns: _Columns, kind: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), columns.count)


def _optional(values: Sequence[Any] | None, columns: _Columns, kind: pa.DataType) -> pa.Array:
    if values is None:
        return pa.nulls(columns.count, kind)
    if pa.types.is_string(kind):
        return pa.array([None if name is None else name.decode("utf-8", "replace") for name in values], kind)
    return pa.array(values, kind)


def _times(columns: _Columns, kind: pa.DataType) -> pa.Array:
    return pa.array(columns.ts_ms() * _US, pa.int64(), mask=columns.damaged()).view(kind)


def _states(columns: _Columns, kind: pa.DataType) -> pa.Array:
    states = columns.states()
    if states is None:
        return _constant(RecordState.LIVE.value, columns, kind)
    return pa.array([STATES[state].value for state in states.tolist()], kind)


_ARRAYS: Final[dict[str, Callable[[_Columns, pa.DataType], pa.Array]]] = {
    "key": lambda columns, kind: _optional(columns.key(), columns, kind),
    "value": lambda columns, kind: _optional(columns.value(), columns, kind),
    "topic": lambda columns, kind: _constant(columns.topic, columns, kind),
    "partition": lambda columns, kind: _constant(0, columns, kind),
    "offset": lambda columns, kind: pa.array(columns.offset(), kind),
    "timestamp": _times,
    "timestampType": lambda columns, kind: _constant(LOG_APPEND_TIME, columns, kind),
    "headers": lambda columns, kind: _optional(columns.headers(), columns, kind),
    "node": lambda columns, kind: _optional(columns.node(), columns, kind),
    "tag": lambda columns, kind: _optional(columns.tag(), columns, kind),
    "state": _states,
    "damaged": lambda columns, kind: pa.array(columns.damaged(), kind),
}


# What a record that is more than data has.


def _plain(view: FrameView, topic: str) -> bytes:
    if not view.compressed:
        return view.data
    try:
        return decompress(view.data)
    except (Corrupt, Rejected) as damage:
        raise Corrupt(
            f"topic {topic!r} seq {view.seq}: {damage.message}", topic=topic, seq=view.seq
        ) from damage


def _headers(view: FrameView) -> list[tuple[str, bytes]] | None:
    """The meta of a record as Kafka's headers; None if there are none."""
    pairs = [(name, text.encode()) for name, text in _meta(view.meta).items()] if view.meta else []
    if view.content_type:
        pairs.append((CONTENT_TYPE_HEADER, view.content_type))
    return pairs or None


def narrowed(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """The columns of these names, in their order. Raises KeyError for a name that there is not."""
    return pa.schema([schema.field(name) for name in names])
