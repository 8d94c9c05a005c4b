"""Values as request bodies, and answers as values. Payloads go both ways byte for byte.

Records are taken in as the embedded store takes them (`intake`), so what is refused there is refused here, in the same
words; how much is too much is the server's to say. An answer is decoded into a type: fields nobody knows are left
out, a missing one means that no topics server answered.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from topics.calls.intake import encode_json, take_records
from topics.calls.page import Page, Record
from topics.codec import why
from topics.codec.log.frame import FrameView
from topics.codec.log.layout import EXT, META, NODE, TAG, Ext
from topics.engine.replies import (
    Appended,
    ConsumerCommitted,
    ConsumerPut,
    ConsumerState,
    QueueState,
    RecordsDeleted,
    TopicState,
)
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, parse_config
from topics.kernel.errors import Rejected
from topics.kernel.limits import BATCH_FRAMES_MAX, DECOMPRESSED_MAX, PASS_JOBS_MAX, U16_MAX, U32_MAX, Limits
from topics.log.floors import Gap
from topics.log.reads.diff import Account

# Lower than any of these is a limit of the server, and its answer names it.
FORMAT_LIMITS: Final = Limits(
    records_per_write=BATCH_FRAMES_MAX, record_bytes=DECOMPRESSED_MAX, meta_bytes=DECOMPRESSED_MAX,
    meta_keys=U16_MAX, tag_bytes=U16_MAX, node_bytes=U16_MAX, key_bytes=U16_MAX, dedup_id_bytes=U16_MAX,
    content_type_bytes=U16_MAX, page_bytes=U32_MAX, claim_limit=PASS_JOBS_MAX,
)  # fmt: skip
NO_DATA: Final = b"null"  # of a record whose data was left out
_CONFIG_FIELDS: Final = frozenset(field.name for field in attrs.fields(TopicConfig)) | {"durable"}
_encode: Final = msgspec.json.Encoder().encode


@attrs.frozen(kw_only=True)
class TopicSummary:
    """A row of the list of topics (http-api 3): the fields of `TopicState` that a list has, and the class."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durability: str
    durable: bool
    # Of a server that does not tell: an older one.
    evict_floor: int = 1
    effective_priority: int = 0


@attrs.frozen(kw_only=True)
class PressureSignals:
    """What pressure comes from, as of the last look."""

    ready_topics: int
    scheduling_latency_ms: float
    busy: float


@attrs.frozen(kw_only=True)
class Pressure:
    """How overloaded a server is, and what it leaves off (docs/operations.md). `pressure`: from 0 to 1;
    `step`: what is left off, with all steps before it; `bands`: topics that wait to be told, by priority.
    """

    pressure: float
    step: str
    signals: PressureSignals
    bands: dict[str, int]
    held_topics: int
    coalesce_ms: float
    commit_ms: float


@attrs.frozen(kw_only=True)
class KeySummary:
    """A key of a server: what it may, where (everywhere, if `prefixes` is empty), and what it does now. `id`: the
    beginning of its digest, as `topics key ls` has it; `asks`: it is the one that asks; `used_ts`: of its last request
    since the server's start; `watches`: sessions of watches.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    prefixes: tuple[str, ...]
    asks: bool
    used_ts: int | None
    requests: int
    streams: int
    watches: int


def summary_of(state: TopicState) -> TopicSummary:
    """Its row."""
    return TopicSummary(
        topic=state.topic, type=state.type, head_seq=state.head_seq, earliest_seq=state.earliest_seq,
        evict_floor=state.evict_floor, count=state.count, bytes=state.bytes, durability=state.config.durability.value,
        durable=state.config.durable,
        effective_priority=state.effective_priority,
    )  # fmt: skip


# Requests.


def write_body(records: Iterable[Any], *, node: str | None, fields: Mapping[str, object]) -> bytes:
    """The body of a write: `fields`, then the records, their payloads as they are.

    Raises:
        Rejected: invalid_request, naming `records[i].field`.
    """
    columns = take_records(records, node=node, limits=FORMAT_LIMITS)
    head = _encode(fields)[:-1]
    return b"".join((head, b"," if fields else b"", b'"records":[', b",".join(_records(columns)), b"]}"))


def _records(columns: RecordColumns) -> Iterable[bytes]:
    data: Iterable[bytes] = columns.data
    if columns.content_type is not None:
        data = (
            b'{"$bytes":"%b"}' % base64.b64encode(plain) if kind else plain
            for plain, kind in zip(columns.data, columns.content_type, strict=True)
        )
    parts: list[Iterable[bytes]] = [[b'{"data":%b' % text for text in data]]
    for name in ("tag", "node", "key", "dedup_id", "content_type"):
        texts: Sequence[bytes] | None = getattr(columns, name)
        if texts is not None:
            parts.append([b',"%b":%b' % (name.encode(), _encode(t.decode())) if t else b"" for t in texts])
    if columns.meta is not None:
        parts.append([b',"meta":%b' % meta if meta else b"" for meta in columns.meta])
    for name in ("ttl_ms", "priority", "delay_ms"):
        numbers: Sequence[int | None] | None = getattr(columns, name)
        if numbers is not None:
            parts.append([b"" if n is None else b',"%b":%d' % (name.encode(), n) for n in numbers])
    return (b"".join(pieces) + b"}" for pieces in zip(*parts, strict=True))


def fields_body(fields: Mapping[str, object], **optional: object) -> bytes:
    """A body of JSON values; what is optional and None is left out.

    Raises:
        Rejected: what JSON cannot say.
    """
    return encode_json("body", {**fields, **{name: one for name, one in optional.items() if one is not None}})


# Answers.


class SentRecord(msgspec.Struct, gc=False):
    """A record as the wire has it."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str = msgspec.field(name="$node", default="")
    tag: str = msgspec.field(name="$tag", default="")
    key: str = msgspec.field(name="$key", default="")
    content_type: str = msgspec.field(name="$content_type", default="")
    data: msgspec.Raw = msgspec.Raw(NO_DATA)
    meta: msgspec.Raw = msgspec.Raw(b"")


class _Bytes(msgspec.Struct):
    encoded: str = msgspec.field(name="$bytes")


class _Page(msgspec.Struct):
    topic: str
    epoch: int
    from_seq: int
    records: list[SentRecord]
    next_from_seq: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    tombstone: Gap | None = None
    account: Account | None = None


class _State(msgspec.Struct):
    topic: str
    type: str
    epoch: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    evict_floor: int
    next_seq: int
    count: int
    bytes: int
    config: dict[str, Any]
    effective_priority: int = 0
    last_write_ts: int | None = None
    last_read_ts: int | None = None
    queue: QueueState | None = None


class _Keys(msgspec.Struct):
    keys: tuple[KeySummary, ...]


class _TopicList(msgspec.Struct):
    topics: list[TopicSummary]
    next_cursor: str | None = None


class _Consumers(msgspec.Struct):
    consumers: list[ConsumerState]
    next_cursor: str | None = None


class _Deleted(msgspec.Struct):
    deleted: bool


class _Configured(msgspec.Struct):
    topic: str
    created: bool
    config: dict[str, Any]


read_written: Final = msgspec.json.Decoder(Appended).decode
_page: Final = msgspec.json.Decoder(_Page).decode
_state: Final = msgspec.json.Decoder(_State).decode
_list: Final = msgspec.json.Decoder(_TopicList).decode
_configured: Final = msgspec.json.Decoder(_Configured).decode
read_deleted: Final = msgspec.json.Decoder(_Deleted).decode
read_records_deleted: Final = msgspec.json.Decoder(RecordsDeleted).decode
read_consumer: Final = msgspec.json.Decoder(ConsumerState).decode
read_consumer_put: Final = msgspec.json.Decoder(ConsumerPut).decode
read_consumer_committed: Final = msgspec.json.Decoder(ConsumerCommitted).decode
_consumers: Final = msgspec.json.Decoder(_Consumers).decode
_keys: Final = msgspec.json.Decoder(_Keys).decode
read_pressure: Final = msgspec.json.Decoder(Pressure).decode
read_why: Final = msgspec.json.Decoder(why.Why).decode
read_why_range: Final = msgspec.json.Decoder(why.WhyRange).decode
read_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_bytes: Final = msgspec.json.Decoder(_Bytes).decode


def read_keys(body: bytes) -> tuple[KeySummary, ...]:
    return _keys(body).keys


def read_page(body: bytes) -> Page:
    found = _page(body)
    fields = msgspec.structs.asdict(found)
    return Page(**fields | {"records": [Record(view_of(sent)) for sent in found.records]})


def view_of(sent: SentRecord) -> FrameView:
    """The record as the store itself has it, as far as the wire carries it: own expiry and ids stay behind."""
    exts: dict[int, bytes] = {}
    if sent.key:
        exts[Ext.KEY] = sent.key.encode()
    data = bytes(sent.data)
    if sent.content_type and data != NO_DATA:
        exts[Ext.CONTENT_TYPE] = sent.content_type.encode()
        data = base64.b64decode(_bytes(data).encoded, validate=True)
    flags = (TAG if sent.tag else 0) | (NODE if sent.node else 0) | (EXT if exts else 0)
    meta = bytes(sent.meta)
    return FrameView(
        sent.seq, sent.ts, flags | (META if meta else 0), 0, sent.node.encode(), sent.tag.encode(), meta, data, exts
    )  # fmt: skip


def read_state(body: bytes) -> TopicState:
    fields = msgspec.structs.asdict(_state(body))
    return TopicState(**fields | {"config": _config(fields["config"])})


def read_list(body: bytes) -> tuple[list[TopicSummary], str | None]:
    found = _list(body)
    return found.topics, found.next_cursor


def read_consumers(body: bytes) -> tuple[list[ConsumerState], str | None]:
    found = _consumers(body)
    return found.consumers, found.next_cursor


def read_configured(body: bytes) -> TopicConfig:
    return _config(_configured(body).config)


def _config(echo: Mapping[str, Any]) -> TopicConfig:
    """What a server echoes; fields that only a newer one knows are left out."""
    known = {name: value for name, value in echo.items() if name in _CONFIG_FIELDS}
    return parse_config(known, record_bytes_max=known.get("max_record_bytes", DECOMPRESSED_MAX))


# What decoding raises for an answer that is not of its type; `Rejected` for a config that is none.
MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError, Rejected)
assert issubclass(UnicodeDecodeError, ValueError)
assert issubclass(binascii.Error, ValueError)
