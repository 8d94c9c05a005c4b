"""What a caller gives, as the columns the core takes: the one place where Python values become stored bytes.

A record is a mapping `{"data": …, "tag": …, …}`, or its bare payload: `bytes` (stored as they are, with a content
type) or `topics.Raw` (JSON text already encoded, checked and stored byte for byte). Everything is checked before the
engine sees it; each refusal names the record and the field.

A payload holds what JSON has and nothing else: the encoder would make text of a Decimal, a datetime, a UUID or bytes, a
list of a set, and that is what would come back.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from topics.codec.json_text import check_json, check_json_many, copy_json
from topics.engine.replies import Appended
from topics.kernel.checks import json_kind, text_bytes, whole_number
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.limits import JSON_DEPTH_MAX, READ_NODES_MAX, TTL_MS_MAX, Limits
from topics.log.dedupe import MOVE_PREFIXES

BYTES_CONTENT_TYPE: Final = b"application/octet-stream"
_FIELDS: Final = frozenset(
    {"data", "tag", "node", "key", "meta", "ttl_ms", "priority", "delay_ms", "dedup_id", "content_type"}
)
RESERVED_META: Final = ("$", "_topics")
_RESERVED_DEDUP: Final = (*MOVE_PREFIXES, b"sched:")
_ONLY_RAW: Final = {msgspec.Raw}
_ONLY_DICTS: Final = {dict}
_TEXTS_AND_DATA: Final = frozenset({"data", "tag", "node", "key"})
_VALUES: Final = frozenset({dict, list, str, int, float, bool, type(None)})
_LEAVES: Final = _VALUES - {dict, list}
_CONVERT: Final = {
    "set": "a list, as by list()",
    "frozenset": "a list, as by list()",
    "Decimal": "text, as by str(), or a float",
    "UUID": "text, as by str()",
    "datetime": "text, as by isoformat(), or a number",
    "date": "text, as by isoformat()",
    "time": "text, as by isoformat()",
    "timedelta": "a number, of seconds say",
    **dict.fromkeys(
        ("bytes", "bytearray", "memoryview"), "text, as base64, or put bytes as the whole payload"
    ),
}
_encode: Final = msgspec.json.Encoder().encode


def take_records(records: Iterable[Any], *, node: str | None, limits: Limits) -> RecordColumns:
    """The columns of one write. `node` is the default origin of every record.

    Raises:
        Rejected: naming `records[i].field`, or the limit.
    """
    given = _listed(
        records, limits.records_per_write + 1
    )  # a copy: another thread may change the caller's list
    if len(given) > limits.records_per_write:
        raise Rejected(
            Code.BATCH_TOO_LARGE,
            f"records: more than the limit of {limits.records_per_write} records a write",
            limit=limits.records_per_write,
        )
    default_node = None if node is None else text_bytes("node", node, bytes_max=limits.node_bytes)
    kinds = set(map(type, given))
    columns: RecordColumns | None = None
    if kinds == _ONLY_RAW:
        texts, sizes = copy_json(given)
        columns = RecordColumns(texts, sizes=sizes)
    elif kinds == _ONLY_DICTS:
        columns = _alike(given, limits)
    if columns is None:
        columns = _Intake(given, limits).columns()
    if default_node is not None:
        own = columns.node or [b""] * len(columns)
        columns.node = [name or default_node for name in own]
    check_sizes(columns, limits)
    return columns


def _listed(records: Iterable[Any], count_max: int) -> list[Any]:
    if type(records) is list:
        return records[:count_max]
    if isinstance(records, (str, bytes, Mapping)) or not isinstance(records, Iterable):
        raise invalid("records", f"must be a list of records, not one {type(records).__name__}")
    return list(islice(records, count_max))


def _alike(given: Sequence[dict[str, Any]], limits: Limits) -> RecordColumns | None:
    """The columns of records with one set of fields, `data` a JSON value or Raw and the others text, each column in one
    go.

    None if a record needs a closer look: the way record by record names what is wrong.
    """
    fields = given[0].keys()
    if not _TEXTS_AND_DATA.issuperset(fields) or any(record.keys() != fields for record in given):
        return None
    try:
        values = [record["data"] for record in given]
        kinds = set(map(type, values))
        texts: Sequence[bytes]
        if kinds == _ONLY_RAW:
            texts, _ = copy_json(values)
        elif kinds <= _VALUES:
            texts = list(map(_encode, values))
        else:
            return None
        optional = {name: _encoded_texts(given, name) for name in fields if name != "data"}
    except (
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
        OverflowError,
        msgspec.MsgspecError,
        Rejected,
    ):
        return None
    for name, column in optional.items():
        if not all(column) or max(map(len, column)) > getattr(limits, f"{name}_bytes"):
            return None
    if kinds != _ONLY_RAW and not _checked(texts, values):
        return None
    return RecordColumns(texts, tag=optional.get("tag"), node=optional.get("node"), key=optional.get("key"))


def _checked(texts: Sequence[bytes], values: Sequence[Any]) -> bool:
    """Whether these texts of values are what JSON has."""
    if not _is_plain(values):
        return False
    for text, value in zip(texts, values, strict=True):
        if b"null" in text and not _finite(value):
            return False
    check_json_many(texts)  # a Raw inside a value is spliced in by the encoder as it is, JSON or not
    return True


def _encoded_texts(given: Sequence[dict[str, Any]], name: str) -> list[bytes]:
    texts = [record[name] for record in given]
    if set(map(type, texts)) != {str}:
        raise TypeError(name)
    return list(map(str.encode, texts))


def encode_json(field: str, value: object) -> bytes:
    """A Python value as JSON text.

    Raises:
        Rejected: what JSON cannot say (NaN, Infinity, lone surrogates, other types), or nesting above 200.
    """
    if type(value) is msgspec.Raw:
        text = bytes(value)
        check_json(text, field=field)
        return text
    try:
        text = _encode(value)
    except RecursionError:
        raise invalid(field, f"nests deeper than {JSON_DEPTH_MAX}", limit=JSON_DEPTH_MAX) from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise invalid(field, f"is not JSON: {error}") from None
    if not _is_plain((value,)):
        _check_types(field, value)
    if b"null" in text and not _finite(value):
        raise invalid(field, "NaN and Infinity are not JSON")
    check_json(text, field=field)  # depth; and a Raw inside a value is spliced in by the encoder, JSON or not
    return text


def _is_plain(values: Sequence[Any]) -> bool:
    """True if all are of the very types that JSON has, keys among them; a level at a time, at the speed of C.

    What is asked of the collector is what a container holds; a leaf holds nothing. Nesting is finite: it was encoded.
    """
    while True:
        kinds = set(map(type, values))
        if kinds <= _LEAVES:
            return True
        if not kinds <= _VALUES:
            return False
        values = gc.get_referents(*values)


def _check_types(field: str, value: object) -> None:
    """Refuse the first that is neither of a type that JSON has nor of one derived from it."""
    unseen = [(field, value)]
    while unseen:
        place, item = unseen.pop()
        if isinstance(item, dict):
            for key in item:
                if not isinstance(key, (str, int, float)):
                    raise invalid(
                        place, f"a key of a JSON object is text, not {type(key).__name__}: make it text"
                    )
            unseen.extend((f"{place}.{key!s:.40}", inner) for key, inner in item.items())
        elif isinstance(item, (list, tuple)):
            unseen.extend((f"{place}[{i}]", inner) for i, inner in enumerate(item))
        elif item is not None and not isinstance(item, (str, int, float, msgspec.Raw)):
            name = type(item).__name__
            way = _CONVERT.get(name, "a dict, a list, text, a number, a bool or None")
            raise invalid(
                place, f"JSON has no {name}, and it would come back as something else: make it {way}"
            )


class _Intake:
    """Records of any form, one after another into columns."""

    def __init__(self, given: Sequence[Any], limits: Limits) -> None:
        self.given = given
        self.limits = limits
        self.data: list[bytes] = []
        self.optional: dict[str, list[Any]] = {}

    def columns(self) -> RecordColumns:
        for i, record in enumerate(self.given):
            if isinstance(record, Mapping):
                self._add_mapping(i, record)
            elif isinstance(record, (bytes, bytearray, memoryview)):
                self.data.append(bytes(record))
                self._set(i, "content_type", BYTES_CONTENT_TYPE, b"")
            elif type(record) is msgspec.Raw:
                self.data.append(encode_json(f"records[{i}].data", record))
            else:
                raise invalid(
                    f"records[{i}]",
                    f"must be a mapping with `data`, bytes or topics.Raw, not {type(record).__name__}",
                )
        optional: dict[str, Any] = {name: self._whole(name) for name in self.optional}
        return RecordColumns(self.data, **optional)

    def _add_mapping(self, i: int, record: Mapping[str, Any]) -> None:
        if "data" not in record:
            raise invalid(f"records[{i}].data", "is missing")
        unknown = [name for name in record if name not in _FIELDS]
        if unknown:
            raise invalid(
                f"records[{i}]", f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_FIELDS))}"
            )
        data, content_type = record["data"], record.get("content_type")
        if isinstance(data, (bytes, bytearray, memoryview)):
            self.data.append(bytes(data))
            if content_type is None:
                self._set(i, "content_type", BYTES_CONTENT_TYPE, b"")
        else:
            if content_type is not None:
                raise invalid(f"records[{i}].content_type", "goes with a bytes payload only")
            self.data.append(encode_json(f"records[{i}].data", data))
        for name, value in record.items():
            if name != "data" and value is not None:
                self._add_field(i, name, value)

    def _add_field(self, i: int, name: str, value: object) -> None:
        field, limits = f"records[{i}].{name}", self.limits
        match name:
            case "tag" | "node" | "key" | "content_type":
                bytes_max = getattr(limits, f"{name}_bytes")
                self._set(i, name, text_bytes(field, value, bytes_max=bytes_max), b"")
            case "dedup_id":
                self._set(i, name, dedup_bytes(field, value, limits), b"")
            case "meta":
                self._set(i, name, encode_meta(field, value, limits), b"")
            case "priority":
                self._set(i, name, min(whole_number(field, value), 9), None)
            case _:
                self._set(i, name, min(whole_number(field, value), TTL_MS_MAX), None)

    def _set(self, i: int, name: str, value: object, absent: object) -> None:
        column = self.optional.setdefault(name, [])
        column.extend([absent] * (i - len(column)))
        column.append(value)

    def _whole(self, name: str) -> list[Any]:
        column = self.optional[name]
        absent = None if name in ("ttl_ms", "priority", "delay_ms") else b""
        return column + [absent] * (len(self.data) - len(column))


def dedup_bytes(field: str, value: object, limits: Limits) -> bytes:
    """A dedup id as bytes."""
    dedup_id = text_bytes(field, value, bytes_max=limits.dedup_id_bytes)
    if dedup_id.startswith(_RESERVED_DEDUP):
        raise invalid(field, "ids that start with `dl:`, `rd:` or `sched:` are reserved")
    return dedup_id


def encode_meta(field: str, value: object, limits: Limits) -> bytes:
    """`meta` as JSON text: an object of strings, within its limits, no reserved key."""
    if not isinstance(value, Mapping):
        raise invalid(field, f"must be an object of strings, not {json_kind(value)}")
    if len(value) > limits.meta_keys:
        raise invalid(
            field, f"{len(value)} keys are more than the limit of {limits.meta_keys}", limit=limits.meta_keys
        )
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise invalid(field, "every key and every value must be a string")
        if name.startswith(RESERVED_META):
            raise invalid(field, f"key {name[:64]!r} is reserved: keys do not start with `$` or `_topics`")
    encoded = encode_json(field, dict(value))
    if len(encoded) > limits.meta_bytes:
        raise invalid(
            field,
            f"{len(encoded)} bytes are more than the limit of {limits.meta_bytes}",
            limit=limits.meta_bytes,
        )
    return encoded if value else b""


def check_sizes(columns: RecordColumns, limits: Limits) -> None:
    """The bound of a record, which is of its `data` and `meta` together."""
    if columns.stored_longest <= limits.record_bytes:
        return
    sizes = columns.sizes if columns.meta is None else columns.stored
    for i, size in enumerate(sizes):
        if size > limits.record_bytes:
            raise Rejected(
                Code.RECORD_TOO_LARGE,
                f"records[{i}]: {size} bytes of data and meta are more than the limit of {limits.record_bytes}",
                limit=limits.record_bytes,
            )


def _finite(value: object) -> bool:
    """False if a NaN or an Infinity hides anywhere in the value."""
    unseen = [value]
    while unseen:
        item = unseen.pop()
        if isinstance(item, float) and not math.isfinite(item):
            return False
        if isinstance(item, Mapping):
            unseen.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            unseen.extend(item)
    return True


def key_bytes(key: str, limits: Limits) -> bytes:
    """An idempotency key as bytes; its limit is in characters."""
    encoded = text_bytes("idempotency_key", key, bytes_max=4 * limits.idempotency_key_chars)
    if len(key) > limits.idempotency_key_chars:
        raise invalid(
            "idempotency_key",
            f"{len(key)} characters are more than the limit of {limits.idempotency_key_chars}",
            limit=limits.idempotency_key_chars,
        )
    return encoded


def key_reused(reply: Appended, key: str | None) -> Rejected:
    """For an answer that is of an earlier write of other records: a mistake, unless the caller has said otherwise."""
    seqs = "all of them there before"
    if reply.first_seq is not None:
        seqs = f"seqs {reply.first_seq} to {reply.last_seq}"
    return Rejected(
        Code.IDEMPOTENCY_KEY_REUSED,
        f"topic {reply.topic!r}: the idempotency key {key!r:.80} was used for other records ({seqs}), so these were not"
        " written: give them a key of their own, or say require_same_body=False to be answered as that write was",
        topic=reply.topic,
        idempotency_key=key,
        first_seq=reply.first_seq,
        last_seq=reply.last_seq,
    )


def take_nodes(node: str | Iterable[str] | None, limits: Limits) -> frozenset[bytes]:
    """A reader's own names."""
    if node is None:
        return frozenset()
    if not isinstance(node, Iterable):
        raise invalid("node", f"must be a name or a list of names, not {json_kind(node)}")
    names = [node] if isinstance(node, str) else list(islice(node, READ_NODES_MAX + 1))
    if len(names) > READ_NODES_MAX:
        raise invalid("node", f"more than the limit of {READ_NODES_MAX} nodes", limit=READ_NODES_MAX)
    return frozenset(text_bytes("node", name, bytes_max=limits.node_bytes) for name in names)
