"""Values as request bodies, and answers as values. Payloads go both ways byte for byte.

Records are taken in as the embedded store takes them (`embed.intake`), so what is refused there is refused here, in the
same words; how much is too much is the server's to say. An answer is decoded into a type: fields nobody knows are left
out, a missing one means that no topics server answered.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import msgspec

from topics.codec.frame import FrameView
from topics.codec.layout import EXT, META, NODE, TAG, Ext
from topics.embed.intake import encode_json, take_records
from topics.embed.page import Page, Record
from topics.engine.replies import Appended, RecordsDeleted, TopicState
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, parse_config
from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import BATCH_FRAMES_MAX, DECOMPRESSED_MAX, U16_MAX, U32_MAX, Limits
from topics.log.diff import Account
from topics.log.floors import Gap, Reason

# Lower than any of these is a limit of the server, and its answer names it.
_FORMAT_LIMITS: Final = Limits(
    records_per_write=BATCH_FRAMES_MAX, record_bytes=DECOMPRESSED_MAX, meta_bytes=DECOMPRESSED_MAX,
    meta_keys=U16_MAX, tag_bytes=U16_MAX, node_bytes=U16_MAX, key_bytes=U16_MAX, dedup_id_bytes=U16_MAX,
    content_type_bytes=U16_MAX, page_bytes=U32_MAX,
)  # fmt: skip
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


# Requests.


def write_body(records: Iterable[Any], *, node: str | None, fields: Mapping[str, object]) -> bytes:
    """The body of a write: `fields`, then the records, their payloads as they are.

    Raises:
        Rejected: invalid_request, naming `records[i].field`.
    """
    columns = take_records(records, node=node, limits=_FORMAT_LIMITS)
    if columns.content_type is not None:
        i = next(i for i, kind in enumerate(columns.content_type) if kind)
        raise invalid(
            f"records[{i}].data",
            "bytes have no form in JSON, so only an embedded store takes them; encode them as text",
        )
    head = _encode(fields)[:-1]
    return b"".join((head, b"," if fields else b"", b'"records":[', b",".join(_records(columns)), b"]}"))


def _records(columns: RecordColumns) -> Iterable[bytes]:
    parts: list[Iterable[bytes]] = [[b'{"data":%b' % data for data in columns.data]]
    for name in ("tag", "node", "key", "dedup_id"):
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


def fields_body(fields: Mapping[str, object], *, field: str = "body") -> bytes:
    """A body of JSON values.

    Raises:
        Rejected: what JSON cannot say.
    """
    return encode_json(field, dict(fields))


# Answers.


class _Written(msgspec.Struct):
    topic: str
    first_seq: int | None
    last_seq: int | None
    head_seq: int
    durable_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] = []
    duplicates: int = 0
    same_body: bool | None = None


class _Sent(msgspec.Struct, gc=False):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str = msgspec.field(name="$node", default="")
    tag: str = msgspec.field(name="$tag", default="")
    key: str = msgspec.field(name="$key", default="")
    content_type: str = msgspec.field(name="$content_type", default="")
    data: msgspec.Raw = msgspec.Raw(b"null")
    meta: msgspec.Raw = msgspec.Raw(b"")


class _Bytes(msgspec.Struct):
    encoded: str = msgspec.field(name="$bytes")


class _Tombstone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str
    earliest_seq: int
    head_seq: int


class _Account(msgspec.Struct):
    delivered: int
    lost: int
    deleted: int
    expired: int
    own_node: int
    filtered: int


class _Page(msgspec.Struct):
    topic: str
    epoch: int
    from_seq: int
    records: list[_Sent]
    next_from_seq: int
    head_seq: int
    durable_seq: int
    earliest_seq: int
    tombstone: _Tombstone | None = None
    account: _Account | None = None


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
    last_write_ts: int | None = None
    last_read_ts: int | None = None


class _Row(msgspec.Struct):
    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durability: str
    durable: bool


class _List(msgspec.Struct):
    topics: list[_Row]
    next_cursor: str | None = None


class _Configured(msgspec.Struct):
    topic: str
    created: bool
    config: dict[str, Any]


class _TopicGone(msgspec.Struct):
    topic: str
    deleted: bool


class _RecordsGone(msgspec.Struct):
    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int


_written: Final = msgspec.json.Decoder(_Written).decode
_page: Final = msgspec.json.Decoder(_Page).decode
_state: Final = msgspec.json.Decoder(_State).decode
_list: Final = msgspec.json.Decoder(_List).decode
_configured: Final = msgspec.json.Decoder(_Configured).decode
_topic_gone: Final = msgspec.json.Decoder(_TopicGone).decode
_records_gone: Final = msgspec.json.Decoder(_RecordsGone).decode
_object: Final = msgspec.json.Decoder(dict[str, Any]).decode
_bytes: Final = msgspec.json.Decoder(_Bytes).decode


def read_written(body: bytes, *, own_key: bool) -> Appended:
    """`own_key`: the key was made for this one call, so an earlier write with it is this call's own first attempt."""
    found = _written(body)
    deduped, same_body = found.deduped, found.same_body
    if own_key and same_body is not None:
        deduped, same_body = found.first_seq is None, None
    return Appended(
        topic=found.topic, first_seq=found.first_seq, last_seq=found.last_seq, seqs=found.seqs,
        head_seq=found.head_seq, durable_seq=found.durable_seq, count=found.count, duplicates=found.duplicates,
        created=found.created, deduped=deduped, same_body=same_body,
    )  # fmt: skip


def read_page(body: bytes) -> Page:
    found = _page(body)
    lost, sums = found.tombstone, found.account
    return Page(
        topic=found.topic, epoch=found.epoch, from_seq=found.from_seq, next_from_seq=found.next_from_seq,
        records=[Record(_view(sent)) for sent in found.records], head_seq=found.head_seq,
        durable_seq=found.durable_seq, earliest_seq=found.earliest_seq,
        tombstone=None if lost is None else Gap(
            gap_from=lost.gap_from, gap_to=lost.gap_to, reason=Reason(lost.reason), earliest_seq=lost.earliest_seq,
            head_seq=lost.head_seq,
        ),
        account=None if sums is None else Account(**msgspec.structs.asdict(sums)),
    )  # fmt: skip


def _view(sent: _Sent) -> FrameView:
    """The record as the store itself has it, as far as the wire carries it: own expiry and ids stay behind."""
    exts: dict[int, bytes] = {}
    if sent.key:
        exts[Ext.KEY] = sent.key.encode()
    data = bytes(sent.data)
    if sent.content_type:
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
    return [TopicSummary(**msgspec.structs.asdict(row)) for row in found.topics], found.next_cursor


def read_configured(body: bytes) -> TopicConfig:
    return _config(_configured(body).config)


def read_topic_deleted(body: bytes) -> bool:
    return _topic_gone(body).deleted


def read_records_deleted(body: bytes) -> RecordsDeleted:
    return RecordsDeleted(**msgspec.structs.asdict(_records_gone(body)))


def read_object(body: bytes) -> dict[str, Any]:
    return _object(body)


def _config(echo: Mapping[str, Any]) -> TopicConfig:
    """What a server echoes; fields that only a newer one knows are left out."""
    known = {name: value for name, value in echo.items() if name in _CONFIG_FIELDS}
    return parse_config(known, record_bytes_max=known.get("max_record_bytes", DECOMPRESSED_MAX))


# What decoding raises for an answer that is not of its type; `Rejected` for a config that is none.
MALFORMED: Final = (msgspec.MsgspecError, ValueError, RecursionError, Rejected)
assert issubclass(UnicodeDecodeError, ValueError)
assert issubclass(binascii.Error, ValueError)
