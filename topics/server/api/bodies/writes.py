"""The body of a write, as the command the engine takes (http-api 4).

Records are decoded once, typed, their payloads left as the text they came in (`Raw`): stored and returned byte for
byte. What a decoder for speed does not look at is checked on the whole body: UTF-8, and nesting. Unknown fields are
ignored, and named in the answer; a field that is null is absent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, Final, cast

import msgspec

from topics.calls.intake import check_sizes, dedup_bytes, key_bytes
from topics.codec.json_text import FLAT_BYTES, depth_fits
from topics.engine.commands import DEFAULT_CONFIG, Append, PutMode, PutTopic
from topics.kernel.checks import text_bytes
from topics.kernel.columns import RecordColumns, Texts
from topics.kernel.config import FIELDS, TopicConfig, parse_config
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX, TTL_MS_MAX, U64_MAX, Limits
from topics.server.api.bodies.fields import IGNORED_MAX, ClosedForm
from topics.server.api.bodies.forms import (
    BODY,
    NO_CONFIG,
    AnyWriteIn,
    LabelledWriteIn,
    PlainWriteIn,
    RecordIn,
    WriteForms,
    WriteIn,
)
from topics.server.api.bodies.known import KnownLabels, KnownTexts
from topics.server.api.bodies.metas import stored_metas
from topics.server.api.bodies.packed import MARK, unpacked
from topics.server.api.bodies.pieces import PIECED_BYTES_MIN, WRAP, write_pieces

_PRIORITY_MAX: Final = 9


class WriteWish(msgspec.Struct, frozen=True, eq=False):
    """`gives_config`: of a topic, should it create one. `skips_pressure`: it is not refused for that. `ignored`: names
    in the body that nobody knows.
    """

    command: Append
    return_seqs: bool
    gives_config: bool
    skips_pressure: bool
    ignored: Sequence[str] = ()


_CONFIG: Final = ClosedForm("Config", FIELDS)
_data: Final = attrgetter("data")
_tag: Final = attrgetter("tag")
_node: Final = attrgetter("node")
_meta: Final = attrgetter("meta")
_fields: Final = attrgetter(
    "data", "tag", "node", "meta", "key", "dedup_id", "ttl_ms", "priority", "delay_ms", "content_type"
)
_Columns = tuple[Sequence[bytes], list[int], dict[str, Any]]  # data, sizes, and the others by name
_NUMBERS: Final = frozenset({"ttl_ms", "priority", "delay_ms"})
_RECORD: Final = re.compile(r"^records\[([0-9]+)\]")


def decode_write(
    topic: str,
    body: bytes,
    limits: Limits,
    *,
    auto_create: bool,
    known: KnownLabels | None = None,
    forms: WriteForms = BODY,
) -> WriteWish:
    """The command of a write's body. `known`: labels that were found good under the same limits; `forms`: what the body
    may look like.

    Raises:
        Rejected: naming the field or the limit; nothing was written.
    """
    known = known or KnownLabels()
    if len(body) <= PIECED_BYTES_MIN:
        write = forms.decoded(body)
        if len(write.records) > limits.records_per_write:
            raise _too_many(f"{len(write.records)} records are ", limits)
        data, sizes, optional = _columns(write, body, limits, known)
        ignored = forms.ignored(body, write)
    else:
        write, (data, sizes, optional), ignored = _in_pieces(body, limits, known, forms)
    if write.node is not None:
        default = text_bytes("node", write.node, bytes_max=limits.node_bytes)
        own = optional.get("node")
        optional["node"] = [default] * len(data) if own is None else [node or default for node in own]
    columns = RecordColumns(data, sizes=sizes, **optional)
    check_sizes(columns, limits)
    head = write.expected_head
    config = DEFAULT_CONFIG
    gives_config = write.config is not NO_CONFIG and bytes(write.config) != b"null"
    if gives_config:
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
    skips_pressure = write.disable_backpressure is True
    return WriteWish(command, write.return_seqs is not False, gives_config, skips_pressure, ignored)


def decode_config(text: bytes, limits: Limits, *, field: str) -> TopicConfig:
    """A topic's config. `field`: where it stands.

    Raises:
        Rejected: naming the field: unknown, wrong type, or a value outside its set.
    """
    return parse_config(_CONFIG.decode(text, field=field), record_bytes_max=limits.record_bytes)


def decode_put(topic: str, body: bytes, limits: Limits, *, mode: PutMode) -> PutTopic:
    """The command of a topic's config as a body.

    Raises:
        Rejected: as `decode_config`.
    """
    return PutTopic.of(
        topic, _CONFIG.decode(body, field="body"), mode=mode, record_bytes_max=limits.record_bytes
    )


def _too_many(counted: str, limits: Limits) -> Rejected:
    most = limits.records_per_write
    message = f"records: {counted}more than the limit of {most} a write"
    return Rejected(Code.BATCH_TOO_LARGE, message, limit=most)


def _in_pieces(
    body: bytes, limits: Limits, known: KnownLabels, forms: WriteForms
) -> tuple[AnyWriteIn, _Columns, Sequence[str]]:
    """A large body as many small ones, whose records are counted before more are decoded; and what is ignored in it."""
    pieces = write_pieces(body, forms.known, limits)
    parts: list[_Columns] = []
    ignored: list[str] = []
    count = 0
    try:
        while (write := forms.decoded(piece := next(pieces))).records:
            if count + len(write.records) > limits.records_per_write:
                raise _too_many("", limits)
            parts.append(_columns(write, piece, limits, known))
            if len(ignored) < IGNORED_MAX:
                ignored += [_moved(name, count) for name in forms.ignored(piece, write)]
            count += len(write.records)
    except Rejected as refused:
        raise _renumbered(refused, count) from None
    names = [*forms.ignored(piece, write), *ignored][:IGNORED_MAX]
    return write, _joined(parts), names


def _renumbered(refused: Rejected, before: int) -> Rejected:
    """What is wrong with a record, by its index in the whole body."""
    detail = dict(refused.detail)
    if isinstance(field := detail.get("field"), str):
        detail["field"] = _moved(field, before)
    return Rejected(refused.code, _moved(refused.message, before), **detail)


def _moved(text: str, before: int) -> str:
    """What begins with the index of a record in its piece, with that in the whole body."""
    return _RECORD.sub(lambda found: f"records[{before + int(found[1])}]", text)


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


def _columns(write: AnyWriteIn, body: bytes, limits: Limits, known: KnownLabels) -> _Columns:
    """The columns that any record uses, each checked."""
    data, sizes, optional = _columns_as_sent(write, body, limits, known)
    content_types = optional.pop("content_type", None)
    if content_types is None and MARK not in body:
        return data, sizes, optional
    plain, kinds = unpacked(data, content_types or [None] * len(data), limits)
    optional["content_type"] = _present(kinds)
    return plain, list(map(len, plain)), optional


def _columns_as_sent(write: AnyWriteIn, body: bytes, limits: Limits, known: KnownLabels) -> _Columns:
    """What is bytes still as the text that it came in."""
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
    if write.config is not NO_CONFIG or (stored is None and max(map(len, metas)) > FLAT_BYTES):
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
    datas, tags, nodes, raw_metas, keys, dedup_ids, ttls, priorities, delays, content_types = zip(
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
            "content_type": None if content_types.count(None) == len(content_types) else content_types,
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
    if openers > around and not depth_fits(body, JSON_DEPTH_MAX + WRAP):
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
    name: str, texts: Sequence[str | None], bytes_max: int, known: KnownTexts[str | None]
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
