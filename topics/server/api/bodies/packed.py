"""Payloads that are bytes: `{"$bytes": BASE64}` in a body, stored as the bytes (queues 7).

Which payload is one is told by its text: an object with that one member. A body without the word, which is nearly
every one, is not looked at.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from topics.calls.intake import BYTES_CONTENT_TYPE
from topics.kernel.checks import text_bytes
from topics.kernel.errors import invalid
from topics.kernel.limits import Limits

MARK: Final = b'"$bytes"'


class _Packed(msgspec.Struct, forbid_unknown_fields=True):
    encoded: Any = msgspec.field(name="$bytes")


_packed: Final = msgspec.json.Decoder(_Packed).decode


def unpacked(
    data: Sequence[bytes], content_types: Sequence[str | None], limits: Limits
) -> tuple[list[bytes], list[bytes]]:
    """The payloads as they are stored, and their content types, `b""` of JSON.

    Raises:
        Rejected: no base64, or a content type beside JSON; naming `records[i].field`.
    """
    stored: list[bytes] = []
    kinds: list[bytes] = []
    for i, (text, content_type) in enumerate(zip(data, content_types, strict=True)):
        plain = _plain(i, text) if MARK in text else None
        if plain is None and content_type is not None:
            raise invalid(f"records[{i}].content_type", "goes with a bytes payload only")
        field = f"records[{i}].content_type"
        stored.append(text if plain is None else plain)
        if plain is None:
            kinds.append(b"")
        elif content_type is None:
            kinds.append(BYTES_CONTENT_TYPE)
        else:
            kinds.append(text_bytes(field, content_type, bytes_max=limits.content_type_bytes))
    return stored, kinds


def _plain(i: int, text: bytes) -> bytes | None:
    """The bytes that it says; None if it is another JSON value."""
    try:
        encoded = _packed(text).encoded
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise invalid(f"records[{i}].data", "`$bytes` must be bytes as base64") from None
