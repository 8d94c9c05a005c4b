"""The payload of `topics bench` in batches, in the forms that sides want."""

from __future__ import annotations

import json
from typing import Any

import topics
from topics.cli.bench.payload import PAYLOAD_BYTES, sensor_reading

BATCH = 100
BESIDE = f"{PAYLOAD_BYTES} B JSON, batch {BATCH}"


def texts(batches: int) -> list[list[str]]:
    """So many batches, as text: what SQLite is given."""
    return [[sensor_reading(number * BATCH + i) for i in range(BATCH)] for number in range(batches)]


def raws(batches: list[list[str]]) -> list[list[topics.Raw]]:
    """The same as `topics.Raw`: JSON text that the store checks and keeps byte for byte."""
    return [[topics.Raw(each.encode()) for each in batch] for batch in batches]


def mappings(batches: list[list[str]]) -> list[list[dict[str, Any]]]:
    """The same as mappings, which the store encodes."""
    return [[{"data": json.loads(each)} for each in batch] for batch in batches]
