"""The body of a write, as the command the engine takes (http-api 4).

Records are decoded once, typed, their payloads left as the text they came in (`Raw`): stored and returned byte for
byte. What a decoder for speed does not look at is checked on the whole body: UTF-8, and nesting. Unknown fields are
ignored; a field that is null is absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, cast

import attrs
import msgspec

from topics.codec.wire import FLAT_BYTES, check_json, depth_fits
from topics.embed.intake import check_sizes, dedup_bytes, key_bytes
from topics.engine.commands import DEFAULT_CONFIG, Append
from topics.kernel.checks import text_bytes
from topics.kernel.columns import RecordColumns, Texts
from topics.kernel.config import FIELDS, TopicConfig, parse_config
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX, KIB, TTL_MS_MAX, U64_MAX, Limits
from topics.server.api.fields import ClosedForm, what_is_wrong
from topics.server.api.known import Known, KnownLabels
from topics.server.api.metas import stored_metas
from topics.server.api.pieces import write_pieces

PIECED_BYTES_MIN: Final = 512 * KIB  # a body above it is decoded in pieces
_PRIORITY_MAX: Final = 9
_WRAP: Final = 3  # levels around a payload: body, records, record
_NO_META: Final = msgspec.Raw(b"")
_NO_CONFIG: Final = msgspec.Raw(b"null")  # `Raw | None` would take nothing but null


class PlainRecordIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record that is data and nothing else."""

    data: msgspec.Raw


class LabelledRecordIn(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record with nothing beside its data but what most writes label theirs with."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    meta: msgspec.Raw = _NO_META


class RecordIn(msgspec.Struct, gc=False):
    """A record as a client writes it."""

    data: msgspec.Raw
    tag: str | None = None
    node: str | None = None
    key: str | None = None
    dedup_id: str | None = None
    ttl_ms: int | None = None
    priority: int | None = None
    delay_ms: int | None = None
    meta: msgspec.Raw = _NO_META


class _WriteIn(msgspec.Struct, kw_only=True):
    node: str | None = None
    idempotency_key: str | None = None
    create: bool | None = None
    config: msgspec.Raw = _NO_CONFIG
    disable_backpressure: bool | None = None
    expected_head: int | None = None
    return_seqs: bool | None = None


class PlainWriteIn(_WriteIn, forbid_unknown_fields=True, kw_only=True):
    """A write of plain records: decoded and checked in half the time, and most writes are."""

    records: list[PlainRecordIn]


class LabelledWriteIn(_WriteIn, forbid_unknown_fields=True, kw_only=True):
    """A write of labelled records: nothing in it but payloads, metas and the config can nest."""

    records: list[LabelledRecordIn]


class WriteIn(_WriteIn, kw_only=True):
    """The body of any write."""

    records: list[RecordIn]


@attrs.frozen
class WriteWish:
    command: Append
    return_seqs: bool


_CONFIG: Final = ClosedForm("Config", FIELDS)
_decoder: Final = msgspec.json.Decoder(WriteIn)
_plain_decoder: Final = msgspec.json.Decoder(PlainWriteIn)
_labelled_decoder: Final = msgspec.json.Decoder(LabelledWriteIn)
_data: Final = attrgetter("data")
_tag: Final = attrgetter("tag")
_node: Final = attrgetter("node")
_meta: Final = attrgetter("meta")
_fields: Final = attrgetter(
    "data", "tag", "node", "meta", "key", "dedup_id", "ttl_ms", "priority", "delay_ms"
)
_AnyWriteIn = PlainWriteIn | LabelledWriteIn | WriteIn
_Columns = tuple[Sequence[bytes], list[int], dict[str, Any]]  # data, sizes, and the others by name
_KNOWN_FIELDS: Final = frozenset(WriteIn.__struct_fields__)
_NUMBERS: Final = frozenset({"ttl_ms", "priority", "delay_ms"})
_RECORD: Final = re.compile(r"^records\[([0-9]+)\]")


def decode_write(
    topic: str, body: bytes, limits: Limits, *, auto_create: bool, known: KnownLabels | None = None
) -> WriteWish:
    """The command of a write's body. `known`: labels that were found good under the same limits.

    Raises:
        Rejected: naming the field or the limit; nothing was written.
    """
    known = known or KnownLabels()
    if len(body) <= PIECED_BYTES_MIN:
        write = _decoded(body)
        if len(write.records) > limits.records_per_write:
            raise _too_many(f"{len(write.records)} records are ", limits)
        data, sizes, optional = _columns(write, body, limits, known)
    else:
        write, (data, sizes, optional) = _in_pieces(body, limits, known)
    if write.node is not None:
        default = text_bytes("node", write.node, bytes_max=limits.node_bytes)
        own = optional.get("node")
        optional["node"] = [default] * len(data) if own is None else [node or default for node in own]
    columns = RecordColumns(data, sizes=sizes, **optional)
    check_sizes(columns, limits)
    head = write.expected_head
    config = DEFAULT_CONFIG
    if write.config is not _NO_CONFIG and bytes(write.config) != b"null":
        config = decode_config(bytes(write.config), limits, field="config")
    elif limits.record_bytes != DEFAULT_CONFIG.max_record_bytes:
        config = parse_config({}, record_bytes_max=limits.record_bytes)
    command = Append(
        topic=topic,
        records=columns,
        idempotency_key=None if write.idempotency_key is None else key_bytes(write.idempotency_key, limits),
        expected_head=None if head is None else min(_natural("expected_head", head), U64_MAX),
        create=auto_create if write.create is None else write.create,
        config=config,
    )
    return WriteWish(command, write.return_seqs is not False)


def decode_config(text: bytes, limits: Limits, *, field: str = "body") -> TopicConfig:
    """A topic's config. `field`: where it stands.

    Raises:
        Rejected: naming the field: unknown, wrong type, or a value outside its set.
    """
    return parse_config(_CONFIG.decode(text, field=field), record_bytes_max=limits.record_bytes)


def _decoded(body: bytes) -> _AnyWriteIn:
    """The narrowest form it has: a narrow decoder gives up at the first field it does not know."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _plain_decoder.decode(body)
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _labelled_decoder.decode(body)
    try:
        return _decoder.decode(body)
    except RecursionError:
        raise invalid("body", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        check_json(body or b"{}")  # is it JSON at all?
        field, what = what_is_wrong(str(error))
        raise invalid(field or "body", what) from None


def _too_many(counted: str, limits: Limits) -> Rejected:
    most = limits.records_per_write
    message = f"records: {counted}more than the limit of {most} a write"
    return Rejected(Code.BATCH_TOO_LARGE, message, limit=most)


def _in_pieces(body: bytes, limits: Limits, known: KnownLabels) -> tuple[_AnyWriteIn, _Columns]:
    """A large body as many small ones, whose records are counted before more are decoded."""
    pieces = write_pieces(body, _KNOWN_FIELDS, limits)
    parts: list[_Columns] = []
    count = 0
    try:
        while (write := _decoded(piece := next(pieces))).records:
            if count + len(write.records) > limits.records_per_write:
                raise _too_many("", limits)
            parts.append(_columns(write, piece, limits, known))
            count += len(write.records)
    except Rejected as refused:
        raise _renumbered(refused, count) from None
    return write, _joined(parts)


def _renumbered(refused: Rejected, before: int) -> Rejected:
    """What is wrong with a record, by its index in the whole body."""

    def moved(text: str) -> str:
        return _RECORD.sub(lambda found: f"records[{before + int(found[1])}]", text)

    detail = dict(refused.detail)
    if isinstance(field := detail.get("field"), str):
        detail["field"] = moved(field)
    return Rejected(refused.code, moved(refused.message), **detail)


def _joined(parts: Sequence[_Columns]) -> _Columns:
    """The columns of one write from those of its pieces."""
    datas = [data for data, _, _ in parts]
    data: Sequence[bytes]
    if all(isinstance(one, Texts) for one in datas):
        data = Texts([raw for one in cast("list[Texts]", datas) for raw in one.raws])
    else:
        data = list(chain.from_iterable(datas))
    optional: dict[str, Any] = {}
    for name in {name for _, _, own in parts for name, column in own.items() if column is not None}:
        absent = None if name in _NUMBERS else b""
        optional[name] = list(
            chain.from_iterable(own.get(name) or repeat(absent, len(sizes)) for _, sizes, own in parts)
        )
    return data, list(chain.from_iterable(sizes for _, sizes, _ in parts)), optional


def _columns(write: _AnyWriteIn, body: bytes, limits: Limits, known: KnownLabels) -> _Columns:
    """The columns that any record uses, each checked."""
    data: Sequence[bytes]
    if isinstance(write, PlainWriteIn) or not write.records:
        data = list(map(bytes, map(_data, write.records)))
        sizes = list(map(len, data))
        _check_text(body, data, sizes)
        if isinstance(write, WriteIn):
            _check_around(body, data, [])
        optional: dict[str, Any] = {}
    elif isinstance(write, LabelledWriteIn):
        data, sizes, optional = _labelled_columns(write, body, limits, known)
    else:
        data, sizes, optional = _any_columns(write.records, body, limits)
    return data, sizes, optional


def _labelled_columns(write: LabelledWriteIn, body: bytes, limits: Limits, known: KnownLabels) -> _Columns:
    datas: list[msgspec.Raw] = []
    tags: list[str | None] = []
    nodes: list[str | None] = []
    raw_metas: list[msgspec.Raw] = []
    for record in write.records:  # sooner than four columns by maps
        datas.append(record.data)
        tags.append(record.tag)
        nodes.append(record.node)
        raw_metas.append(record.meta)
    data, sizes, metas = Texts(datas), list(map(len, datas)), _short_texts(raw_metas)
    _check_text(body, data, sizes)
    stored = known.metas.column(metas)
    if write.config is not _NO_CONFIG or (stored is None and max(map(len, metas)) > FLAT_BYTES):
        _check_around(body, data, metas)
    optional = {
        "tag": _present(_known_texts("tag", tags, limits.tag_bytes, known.tags)),
        "node": _present(_known_texts("node", nodes, limits.node_bytes, known.nodes)),
    }
    if stored is None:
        stored = stored_metas(metas, limits)
        known.metas.learn(metas, stored)
    optional["meta"] = _present(stored)
    return data, sizes, optional


def _short_texts(raws: Sequence[msgspec.Raw]) -> list[bytes]:
    """Each as bytes. No JSON text has a NUL in it, and short ones are cut sooner than they are copied one by one."""
    texts = b"\0".join(raws).split(b"\0")
    return texts if len(texts) == len(raws) else list(map(bytes, raws))


def _any_columns(records: Sequence[RecordIn], body: bytes, limits: Limits) -> _Columns:
    datas, tags, nodes, raw_metas, keys, dedup_ids, ttls, priorities, delays = zip(
        *map(_fields, records), strict=True
    )
    data, metas = list(map(bytes, datas)), list(map(bytes, raw_metas))
    sizes = list(map(len, data))
    _check_text(body, data, sizes)
    _check_around(body, data, metas)
    return (
        data,
        sizes,
        {
            "tag": _present(_texts("tag", tags, limits.tag_bytes)),
            "node": _present(_texts("node", nodes, limits.node_bytes)),
            "key": _present(_texts("key", keys, limits.key_bytes)),
            "dedup_id": _dedup_ids(dedup_ids, limits),
            "ttl_ms": _numbers("ttl_ms", ttls, TTL_MS_MAX),
            "priority": _numbers("priority", priorities, _PRIORITY_MAX),
            "delay_ms": _numbers("delay_ms", delays, TTL_MS_MAX),
            "meta": _present(stored_metas(metas, limits)),
        },
    )


def _check_text(body: bytes, data: Sequence[bytes], sizes: Sequence[int]) -> None:
    """UTF-8, and nesting in each payload: 200 deep, whatever is around it."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise invalid("body", f"is not UTF-8 (byte {error.start})") from None
    if max(sizes, default=0) > FLAT_BYTES:
        for i, text in enumerate(data):
            if not depth_fits(text, JSON_DEPTH_MAX):
                raise invalid(
                    f"records[{i}].data", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX
                )


def _check_around(body: bytes, data: Sequence[bytes], metas: Sequence[bytes]) -> None:
    """Nesting around the payloads: in metas, the config, and fields that nobody knows."""
    inner = b"".join(data)
    openers = body.count(b"{") + body.count(b"[") - inner.count(b"{") - inner.count(b"[")
    around = 2 + 2 * len(data) - metas.count(b"")  # body, list, records, and an object for each meta
    if openers > around and not depth_fits(body, JSON_DEPTH_MAX + _WRAP):
        raise invalid("body", f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX)


def _texts(name: str, texts: Sequence[str | None], bytes_max: int) -> list[bytes]:
    """A column of texts as UTF-8, `b""` for none."""
    with suppress(UnicodeEncodeError, TypeError):  # TypeError: some have none
        column = list(map(str.encode, cast("Sequence[str]", texts)))
        if all(column) and max(map(len, column)) <= bytes_max:
            return column
    return [  # and name the first that is wrong
        b"" if text is None else text_bytes(f"records[{i}].{name}", text, bytes_max=bytes_max)
        for i, text in enumerate(texts)
    ]


def _known_texts(
    name: str, texts: Sequence[str | None], bytes_max: int, known: Known[str | None]
) -> list[bytes]:
    column = known.column(texts)
    if column is None:
        column = _texts(name, texts, bytes_max)
        known.learn(texts, column)
    return column


def _present(column: list[bytes]) -> list[bytes] | None:
    return column if any(column) else None


def _dedup_ids(texts: Sequence[str | None], limits: Limits) -> list[bytes] | None:
    if texts.count(None) == len(texts):
        return None
    return [
        b"" if text is None else dedup_bytes(f"records[{i}].dedup_id", text, limits)
        for i, text in enumerate(texts)
    ]


def _numbers(name: str, numbers: Sequence[int | None], most: int) -> list[int | None] | None:
    if numbers.count(None) == len(numbers):
        return None
    return [
        None if number is None else min(_natural(f"records[{i}].{name}", number), most)
        for i, number in enumerate(numbers)
    ]


def _natural(field: str, number: int) -> int:
    if number < 0:
        raise invalid(field, f"must not be negative, not {number}")
    return number
