"""The payload of every figure: a JSON object of 200 bytes, like the reading of a sensor, each one different."""

from __future__ import annotations

import json
import random
from typing import Final

PAYLOAD_BYTES: Final = 200
_NUMBER_MAX: Final = 10**9


def sensor_reading(number: int) -> str:
    fields = {
        "id": number,
        "kind": "reading",
        "station": f"st-{number % 1000:04d}",
        "value": number * 0.5,
        "note": "",
    }
    bare = json.dumps(fields)
    padded = bare[:-2] + "n" * (PAYLOAD_BYTES - len(bare)) + bare[-2:]
    assert len(padded) == PAYLOAD_BYTES
    return padded


def payloads(count: int, *, seed: int) -> list[bytes]:
    """The same seed gives the same payloads."""
    first = random.Random(seed).randrange(_NUMBER_MAX)  # noqa: S311 -- no secret
    return [sensor_reading(first + number).encode() for number in range(count)]
