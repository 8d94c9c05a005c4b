"""Formats: a source's bytes as payloads, each JSON text with the number of its line.

JSON lines are taken as they are, never written anew; the store checks them. A text line becomes a JSON string, a CSV
row an object of strings by the names of its header: nothing is guessed. A `.json` file is one value, and if that is an
array each of its elements is a record; one that is no single value is read as JSON lines.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Final

import msgspec

from topics.cli.core.failure import USAGE, Failed
from topics.cli.io.quantities import counted
from topics.cli.io.source import STDIN, BadLine, InputSource

FORMATS: Final = ("jsonl", "json", "csv", "tsv", "text")
_BY_SUFFIX: Final = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".geojsonl": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv",
    ".txt": "text", ".text": "text", ".log": "text",
}  # fmt: skip
_encode: Final = msgspec.json.Encoder().encode
_pieces: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_one: Final = msgspec.json.Decoder(msgspec.Raw).decode

Payloads = Iterator[tuple[int, bytes]]


def format_of(name: str) -> str:
    """The format a file's name tells, without `.gz`. Standard input is JSON lines."""
    if name == STDIN:
        return "jsonl"
    path = PurePath(name)
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    found = _BY_SUFFIX.get(path.suffix.lower())
    if found is None:
        raise Failed(
            f"the name of {name} does not tell its format; give --format {'|'.join(FORMATS)}", code=USAGE
        )
    return found


def payloads(source: InputSource, form: str, *, line_max: int) -> Payloads:
    """(line, JSON text) of every record.

    Raises:
        BadLine: what is not of the format. Whether JSON lines are JSON is the store's to say.
    """
    match form:
        case "jsonl":
            return _json_lines(source.lines(line_max=line_max))
        case "json":
            return _json_document(source)
        case "text":
            return _text_lines(source.lines(line_max=line_max))
    return _rows(source, "\t" if form == "tsv" else ",", line_max)


def _json_lines(lines: Payloads) -> Payloads:
    for number, line in lines:
        text = line.strip()
        if text:
            yield number, text


def _json_document(source: InputSource) -> Payloads:
    text = source.whole().strip()
    try:
        pieces = _pieces(text) if text.startswith(b"[") else [_one(text)] if text else []
    except (msgspec.DecodeError, RecursionError):
        yield from _json_lines(enumerate(text.splitlines(), 1))
        return
    for number, piece in enumerate(pieces, 1):
        yield number, bytes(piece)


def _text_lines(lines: Payloads) -> Payloads:
    for number, line in lines:
        yield number, _encode(decoded(number, line))


def _rows(source: InputSource, delimiter: str, line_max: int) -> Payloads:
    texts = (decoded(number, line) + "\n" for number, line in source.lines(line_max=line_max))
    for start, cells in csv_rows(texts, _head, delimiter=delimiter, cell_max=line_max):
        yield start, _encode(cells)


def csv_rows(
    texts: Iterator[str],
    checked: Callable[[int, list[str]], list[str]],
    *,
    delimiter: str = ",",
    cell_max: int,
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, cells by the header's names) of every row. `texts`: lines with their ends; `checked`: a header's line and
    its names to those names, or `BadLine`.

    Raises:
        BadLine: what is not CSV, or not as long as the header.
    """
    csv.field_size_limit(cell_max)
    reader = csv.reader(texts, delimiter=delimiter, strict=True)
    head: list[str] | None = None
    start = 1
    try:
        for row in reader:
            if row and head is None:
                head = checked(start, row)
            elif row and head is not None:
                if len(row) != len(head):
                    raise BadLine(start, f"has {counted(len(row), 'field')}, the header {len(head)}")
                yield start, dict(zip(head, row, strict=True))
            start = reader.line_num + 1
    except csv.Error as error:
        raise BadLine(start, f"is not CSV: {error}") from None


def _head(line: int, row: list[str]) -> list[str]:
    names = [name.strip() for name in row]
    if len(set(names)) != len(names) or "" in names:
        raise BadLine(line, "is the header, and has an empty name or the same name twice")
    return names


def decoded(number: int, line: bytes) -> str:
    """Raises `BadLine`: it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise BadLine(number, f"is not UTF-8 (byte {error.start + 1} of the line)") from None


def field_text(number: int, payload: bytes, path: tuple[str, ...]) -> str | None:
    """The field of a payload that is to be its tag or key; None if it has none."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadLine(number, f"is not JSON: {error}") from None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return _encode(value).decode()
    raise BadLine(
        number, f"its field {'.'.join(path)} is {'an object' if isinstance(value, dict) else 'a list'}"
    )
