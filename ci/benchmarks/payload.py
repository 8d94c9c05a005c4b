"""The payload of every figure: a JSON object of 200 bytes, like the reading of a sensor, each one different."""

from __future__ import annotations

import json
from typing import Any

import topics

PAYLOAD_BYTES = 200
BATCH = 100
BESIDE = f"{PAYLOAD_BYTES} B JSON, batch {BATCH}"


def text(i: int) -> str:
    fields = {"id": i, "kind": "reading", "station": f"st-{i % 1000:04d}", "value": i * 0.5, "note": ""}
    bare = json.dumps(fields)
    padded = bare[:-2] + "n" * (PAYLOAD_BYTES - len(bare)) + bare[-2:]
    assert len(padded) == PAYLOAD_BYTES
    return padded


def texts(batches: int) -> list[list[str]]:
    """So many batches, as text: what SQLite is given."""
    return [[text(number * BATCH + i) for i in range(BATCH)] for number in range(batches)]


def raws(batches: list[list[str]]) -> list[list[topics.Raw]]:
    """The same as `topics.Raw`: JSON text that the store checks and keeps byte for byte."""
    return [[topics.Raw(each.encode()) for each in batch] for batch in batches]


def mappings(batches: list[list[str]]) -> list[list[dict[str, Any]]]:
    """The same as mappings, which the store encodes."""
    return [[{"data": json.loads(each)} for each in batch] for batch in batches]
