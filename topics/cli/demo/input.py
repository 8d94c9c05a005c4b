"""The input of the demo: a file of JSON lines, and the field that its records are tagged by."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Final

import attrs
import msgspec

import topics
from topics.cli.core.failure import Failed
from topics.cli.io.feed import field_text, payloads
from topics.cli.io.source import BadLine, InputSource

ROWS_MAX: Final = 200_000
BYTES_MAX: Final = 256 * 1024 * 1024
TAGS_MAX: Final = 64


@attrs.frozen(kw_only=True)
class Input:
    """A file's records as they are, and the tag of each."""

    name: str
    note: str
    topic: str
    tag_field: str
    rows: list[bytes]
    tags: list[str | None]


def read_input(file: str, *, note: str, tag_field: str | None) -> Input:
    """All of a file's JSON lines, up to a bound.

    Raises:
        Failed: no such file, nothing in it, a line that is not JSON.
    """
    source = InputSource(file)
    name = Path(file).name
    rows: list[bytes] = []
    taken = 0
    try:
        for number, row in payloads(source, "jsonl", line_max=topics.Limits().record_bytes):
            rows.append(row)
            taken += len(row)
            _check_line(number, row)
            if len(rows) == ROWS_MAX or taken > BYTES_MAX:
                note = note or f"the first {len(rows):,} of it"
                break
    except BadLine as bad:
        raise Failed(f"{name} line {bad.place}: {bad.why}; the demo takes JSON lines") from None
    finally:
        source.close()
    if not rows:
        raise Failed(f"{name} holds no records; give a file of JSON lines, or none for the bundled one")
    field = tag_field or _fitting_field(rows)
    tags = [
        field_text(number, row, tuple(field.split("."))) if field else None
        for number, row in enumerate(rows, 1)
    ]
    topic = re.sub(r"[^A-Za-z0-9._:-]", "-", name.split(".")[0]).lstrip("._:-")[:64] or "input"
    return Input(name=name, note=note, topic=topic, tag_field=field, rows=rows, tags=tags)


def _check_line(number: int, row: bytes) -> None:
    try:
        msgspec.json.decode(row, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadLine(number, f"is not JSON: {error}") from None


def _fitting_field(rows: list[bytes]) -> str:
    """A field, at most one level deep, with some values that many records share; "" if there is none."""
    counts: dict[str, Counter[str]] = {}
    for row in rows[:: max(len(rows) // 1000, 1)]:
        value = msgspec.json.decode(row)
        for path, leaf in _leaves(value):
            counts.setdefault(path, Counter())[leaf] += 1
    fitting = {path: len(found) for path, found in counts.items() if 2 <= len(found) <= TAGS_MAX}
    return min(fitting, key=lambda path: abs(fitting[path] - 10)) if fitting else ""


def _leaves(value: Any) -> list[tuple[str, str]]:
    if not isinstance(value, dict):
        return []
    found = []
    for name, leaf in value.items():
        inner = leaf.items() if isinstance(leaf, dict) else ()
        for path, each in ((name, leaf), *((f"{name}.{below}", deep) for below, deep in inner)):
            if isinstance(each, str) and each and len(each) <= TAGS_MAX and path.count(".") <= 1:
                found.append((path, each))
    return found
