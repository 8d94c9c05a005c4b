"""Payloads of control frames: the first byte is the frame's type."""

from __future__ import annotations

import msgspec

from topics.codec.log.control import TYPES, decode_payload, encode_payload
from topics.codec.log.layout import FrameType
from topics.kernel.errors import Corrupt


def check(data: bytes) -> None:
    """A value that says what the bytes say, or `Corrupt`."""
    kind = FrameType(data[0] % len(FrameType) + 1) if data else FrameType.TOPIC_CREATE
    try:
        payload = decode_payload(kind, data[1:])
    except Corrupt:
        return
    assert TYPES[type(payload)] is kind
    encoded = encode_payload(payload)
    if encoded != data[1:]:
        assert msgspec.json.decode(encoded) == msgspec.json.decode(data[1:]), (
            "the value is not what the bytes say"
        )
    assert decode_payload(kind, encoded) == payload
