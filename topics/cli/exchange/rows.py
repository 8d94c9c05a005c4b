"""A record as a line of JSON or a row of CSV, both ways.

JSON lines are what `topics get --json` prints: a record as the wire writes it, its payload byte for byte. A row of CSV
has a payload as JSON text in one cell, or as base64 where `content_type` says that it is bytes; an empty cell is none.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topics.cli.exchange.putting import PlacedRecord
from topics.cli.io.feed import csv_rows, decoded
from topics.cli.io.lines import json_line
from topics.cli.io.source import BadLine, InputSource

if TYPE_CHECKING:
    from topics.calls.page import Record
    from topics.cli.exchange.outlet import Sink

COLUMNS: Final = ("seq", "ts", "node", "tag", "key", "content_type", "meta", "data")
# A line may have twice a payload's bytes: quotes are doubled, base64 is longer, names come along.
_LINE_FACTOR: Final = 2
_HINT: Final = (
    "export writes records with seq, ts and data; for messages of Kafka: --kafka-json; for bare values, text or other"
    " tables: topics put"
)


class JsonLinesWriter:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, records: Sequence[Record]) -> None:
        self._sink.write(b"".join(map(json_line, records)))

    def finish(self) -> None:
        pass


class CsvWriter:
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._write_rows([COLUMNS])

    def write(self, records: Sequence[Record]) -> None:
        self._write_rows([_row(record) for record in records])

    def finish(self) -> None:
        pass

    def _write_rows(self, rows: Sequence[Sequence[object]]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text).writerows(rows)  # lines end in CR LF, so that it quotes either of them in a cell
        self._sink.write(text.getvalue().encode())


def _row(record: Record) -> tuple[object, ...]:
    data = base64.b64encode(record.raw) if record.content_type else record.raw
    meta = msgspec.json.encode(record.meta).decode() if record.meta else ""
    return (
        record.seq, record.ts, record.node, record.tag, record.key, record.content_type, meta, data.decode(),
    )  # fmt: skip


def as_put(data: Any, fields: dict[str, Any]) -> Any:
    """A record as `put_many` takes it; a field that is empty is none."""
    given = {name: value for name, value in fields.items() if value}
    return {"data": data, **given} if given else data


class _RecordLine(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A record as the wire has it. Its seq and its ts are the store's to give, so nothing is asked of them."""

    data: msgspec.Raw
    seq: msgspec.Raw = msgspec.field(name="$seq", default=msgspec.Raw())
    ts: msgspec.Raw = msgspec.field(name="$ts", default=msgspec.Raw())
    node: str = msgspec.field(name="$node", default="")
    tag: str = msgspec.field(name="$tag", default="")
    key: str = msgspec.field(name="$key", default="")
    content_type: str = msgspec.field(name="$content_type", default="")
    meta: dict[str, str] | None = None


class _Bytes(msgspec.Struct, forbid_unknown_fields=True):
    encoded: str = msgspec.field(name="$bytes")


_line: Final = msgspec.json.Decoder(_RecordLine).decode
_bytes: Final = msgspec.json.Decoder(_Bytes).decode
_meta: Final = msgspec.json.Decoder(dict[str, str]).decode


def json_records(source: InputSource, *, line_max: int, from_line: int) -> Iterator[PlacedRecord]:
    """Raises `BadLine`: what is no record. Whether a payload is sound is the store's to say."""
    for number, text in source.lines(line_max=_LINE_FACTOR * line_max):
        if number < from_line or not text.strip():
            continue
        try:
            found = _line(text)
            data: Any = found.data
            if found.content_type:
                data = _from_base64(number, _bytes(data).encoded)
        except msgspec.ValidationError as error:
            raise BadLine(number, f"is no record of an export: {error} ({_HINT})") from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise BadLine(number, f"is not JSON: {error}") from None
        fields = {
            "node": found.node, "tag": found.tag, "key": found.key, "content_type": found.content_type,
            "meta": found.meta,
        }  # fmt: skip
        yield number, len(text), as_put(data, fields)


def csv_records(source: InputSource, *, line_max: int, from_line: int) -> Iterator[PlacedRecord]:
    """Raises `BadLine`: what is no record."""
    most = _LINE_FACTOR * line_max
    texts = (decoded(number, line) for number, line in source.lines(line_max=most, with_ends=True))
    for start, cells in csv_rows(texts, _head, cell_max=most):
        if start >= from_line:
            yield start, sum(map(len, cells.values())), _record(start, cells)


def _head(line: int, row: list[str]) -> list[str]:
    if "data" not in row or len(set(row)) != len(row) or not set(COLUMNS).issuperset(row):
        raise BadLine(line, f"is no header of an export, which has {', '.join(COLUMNS)} ({_HINT})")
    return row


def _record(line: int, cells: dict[str, str]) -> Any:
    fields: dict[str, Any] = {name: cells.get(name) for name in ("node", "tag", "key", "content_type")}
    text = cells["data"]
    data = _from_base64(line, text) if fields["content_type"] else msgspec.Raw(text.encode())
    try:
        if cells.get("meta"):
            fields["meta"] = _meta(cells["meta"])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadLine(line, f"has a meta that is no object of strings: {error}") from None
    return as_put(data, fields)


def _from_base64(line: int, text: str) -> bytes:
    """A payload that `content_type` says is bytes."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii's own, or what is not ASCII
        raise BadLine(line, f"has a content type, and data that is not base64: {error}") from None
