"""Messages of Kafka as JSON lines, as tools print them that dump a topic, kcat and rpk (decision 0126).

A payload that is text is a JSON string, unless it is an object or an array: that is stored as it is. kcat writes bytes
that are no text as they are, which makes its line no JSON; they are taken byte for byte.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from topics.cli.exchange.putting import PlacedRecord
from topics.cli.exchange.rows import as_put
from topics.cli.io.source import BadLine
from topics.codec.json_text import check_json
from topics.kernel.errors import Rejected

CONTENT_TYPE: Final = "application/octet-stream"
LINE_FACTOR: Final = 6  # of a line to its payload: a byte is \u0000 at the longest
_ABSENT: Final = msgspec.Raw()
_NULLS: Final = (b"", b"null")
_HINT: Final = "kcat -J and rpk topic consume --pretty-print=false write messages so"


class _Message(msgspec.Struct, gc=False):
    """kcat says `payload` and `ts`; rpk and the REST proxy `value`, rpk `timestamp`. What else is there is not read."""

    partition: msgspec.Raw
    offset: msgspec.Raw
    payload: msgspec.Raw = _ABSENT
    value: msgspec.Raw = _ABSENT  # rpk leaves out what is null or empty
    key: msgspec.Raw = _ABSENT
    headers: msgspec.Raw = _ABSENT
    ts: msgspec.Raw = _ABSENT
    timestamp: msgspec.Raw = _ABSENT


_message: Final = msgspec.json.Decoder(_Message).decode
_string: Final = msgspec.json.Decoder(str).decode
_items: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class KafkaMessages:
    """`encoded`: records whose key or header is no text and came as base64. `repeated`: those in which a header's name
    came twice, and the last was taken.
    """

    def __init__(self) -> None:
        self.encoded = 0
        self.repeated = 0

    def records(self, lines: Iterable[tuple[int, bytes]], *, from_line: int) -> Iterator[PlacedRecord]:
        """Raises `BadLine`: what is no message. Whether a payload is sound is the store's to say."""
        for number, line in lines:
            if number < from_line or not line.strip():
                continue
            try:
                record = self._record(_message(line))
            except msgspec.ValidationError as error:
                raise BadLine(number, f"is no message of Kafka: {error} ({_HINT})") from None
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise BadLine(number, f"is not JSON: {error}") from None
            yield number, len(line), record

    def _record(self, message: _Message) -> Any:
        payload = _payload(message.payload if bytes(message.payload) else message.value)
        key, is_encoded = _as_text(_text(message.key))
        meta, are_encoded, is_repeated = _meta(message)
        self.encoded += is_encoded or are_encoded
        self.repeated += is_repeated
        fields = {"key": key, "meta": meta}
        if isinstance(payload, bytes):
            return as_put(payload, fields | {"content_type": CONTENT_TYPE})
        return as_put(payload, fields)


def _payload(raw: msgspec.Raw) -> Any:
    """None, bytes, text, or JSON: a tool that knows schemas writes that in place of a string."""
    text = _text(raw)
    if not isinstance(text, str):
        return text
    is_json = not bytes(raw).lstrip().startswith(b'"')
    inner = text.strip(" \t\r\n")
    if is_json or inner.startswith(("{", "[")):
        encoded = inner.encode()
        try:
            check_json(encoded)
        except Rejected:
            if is_json:
                raise ValueError("its value is no JSON that a topic takes") from None
        else:
            return msgspec.Raw(encoded)
    return text


def _text(raw: msgspec.Raw) -> str | bytes | None:
    """A string; bytes where it is none; the JSON of what is a number, an object or an array."""
    piece = bytes(raw).strip()
    if piece in _NULLS:
        return None
    if not piece.startswith(b'"'):
        return piece.decode()
    try:
        piece.decode()
    except UnicodeDecodeError:
        found = json.loads(piece.decode("utf-8", "surrogateescape"), strict=False)
        return str(found).encode("utf-8", "surrogateescape")
    return _string(piece)


def _as_text(value: str | bytes | None) -> tuple[str, bool]:
    """Bytes as base64, and whether they were."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode(), True
    return value or "", False


def _meta(message: _Message) -> tuple[dict[str, str], bool, bool]:
    """Headers, and what Kafka itself says of the message; whether a header was encoded, whether one came twice."""
    pairs = [(name, *_as_text(_text(value))) for name, value in _headers(message.headers)]
    own = (
        ("kafka_partition", message.partition), ("kafka_offset", message.offset),
        ("kafka_ts", message.ts if bytes(message.ts) else message.timestamp),
    )  # fmt: skip
    pairs += [(name, *_as_text(_text(value))) for name, value in own if bytes(value)]
    meta = {name: text for name, text, _ in pairs}
    return meta, any(is_encoded for _, _, is_encoded in pairs), len(meta) < len(pairs)


def _headers(raw: msgspec.Raw) -> list[tuple[str, msgspec.Raw]]:
    """Flat (kcat), as pairs of key and value (rpk), or an object."""
    piece = bytes(raw).strip()
    if piece in _NULLS:
        return []
    if piece.startswith(b"{"):
        return list(_members(piece).items())
    items = _items(piece)
    if items and bytes(items[0]).lstrip().startswith(b"{"):
        pairs = [_members(item) for item in items]
        return [(_name(pair.get("key", _ABSENT)), pair.get("value", _ABSENT)) for pair in pairs]
    if len(items) % 2:
        raise msgspec.ValidationError("`headers` has a name without a value")
    return [(_name(items[at]), items[at + 1]) for at in range(0, len(items), 2)]


def _name(raw: msgspec.Raw) -> str:
    return _as_text(_text(raw))[0]
