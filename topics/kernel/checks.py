"""Checks of values that come from outside. Each names its field; each raises `Rejected(invalid_request)`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from topics.kernel.errors import invalid
from topics.kernel.limits import U64_MAX

_WORDS: Final[Mapping[type, str]] = {
    type(None): "null", bool: "a boolean", int: "a number", float: "a decimal number", str: "a string",
    list: "an array", tuple: "an array", dict: "an object",
}  # fmt: skip


def json_kind(value: object) -> str:
    """What a value is that is refused, in JSON's words: who asks a server need not know Python's."""
    return _WORDS.get(type(value), type(value).__name__)


def whole_number(field: str, value: object) -> int:
    """A non-negative whole number. A bool, a fraction, a negative or anything else is refused, never coerced."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, int)):
        raise invalid(field, f"must be a whole number, not {json_kind(value)}")
    if value < 0:
        raise invalid(field, f"must not be negative, not {value}")
    return value


def clamped(field: str, value: object, *, low: int, high: int) -> int:
    """A whole number, moved into [low, high] if it is outside (semantics 3)."""
    if type(value) is int and low <= value <= high:
        return value
    return min(max(whole_number(field, value), low), high)


def seq_number(field: str, value: object) -> int:
    """A seq or an exclusive lower bound: u64; beyond that it is clamped, no seq is ever as high."""
    return min(whole_number(field, value), U64_MAX)


def seconds(field: str, value: object) -> float:
    """How long, 0 or more; no infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise invalid(field, f"must be a number of seconds, 0 or more, not {value!r:.40}")
    return value


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise invalid(field, f"must be true or false, not {json_kind(value)}")
    return value


def text_bytes(field: str, value: object, *, bytes_max: int) -> bytes:
    """A non-empty string as UTF-8, at most `bytes_max` long."""
    if not isinstance(value, str):
        raise invalid(field, f"must be a string, not {json_kind(value)}")
    if not value:
        raise invalid(field, "must not be empty")
    try:
        encoded = value.encode()
    except UnicodeEncodeError:
        raise invalid(field, "must be valid Unicode (it holds a lone surrogate)") from None
    if len(encoded) > bytes_max:
        raise invalid(field, f"{len(encoded)} bytes are more than the limit of {bytes_max}", limit=bytes_max)
    return encoded
