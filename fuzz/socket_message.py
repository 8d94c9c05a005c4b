"""Messages of a WebSocket, against Python's own parser: what their envelope and a write in them say, or `Rejected`."""

from __future__ import annotations

import json
from typing import Any

import json_check
import msgspec

from topics.kernel.errors import Rejected
from topics.kernel.limits import JSON_DEPTH_MAX, Limits
from topics.server.api.bodies.envelope import FIELDS, MessageFields, _slimmed, decode_envelope, name_in
from topics.server.api.bodies.fields import ABSENT
from topics.server.api.bodies.forms import MESSAGE
from topics.server.api.bodies.writes import decode_write

LIMITS = Limits(records_per_write=50)
TOKENS = (
    b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"\\ud800", b"null", b"1e9", b"NaN", b"9" * 30, b"\n", b"[" * 201,
    b"\xff", b'"op":', b'"topic":', b'"request_id":', b'"publish"', b'"records":[{"data":1}]', b'"op":"ping",' * 99,
    b'"\\u006fp":', b'"key":"k"',
)  # fmt: skip


def check(data: bytes) -> None:
    """An envelope says what the bytes say, in one go or by a walk; so does the write around which it is."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # the peer is let go before
    try:
        envelope = decode_envelope(data, LIMITS)
    except Rejected:
        assert not is_object(data)
        return
    value = loads(data)
    check_fields(envelope, value, data)
    if json_check.depth(value) <= JSON_DEPTH_MAX and len(value) < 500:
        check_fields(msgspec.json.decode(_slimmed(data, LIMITS), type=MessageFields), value, data)
    try:
        wish = decode_write("t", data, LIMITS, auto_create=True, forms=MESSAGE)
    except Rejected:
        return
    assert len(wish.command.records.data) == len(value["records"])
    assert not set(wish.ignored) & set(FIELDS)


def is_object(data: bytes) -> bool:
    return json_check.oracle(data) and isinstance(loads(data), dict)


def check_fields(envelope: MessageFields, value: dict[str, object], data: bytes) -> None:
    for name in FIELDS:
        text = getattr(envelope, name)
        if name not in value:
            assert text is ABSENT, name
            continue
        assert bytes(text) in data, "not the bytes that came"
        assert loads(bytes(text)) == value[name]
        if name == "request_id":
            continue
        try:
            said: object = name_in(name, text)
        except Rejected:
            said = None
        assert said == (value[name] if type(value[name]) is str else None)


def loads(text: bytes) -> Any:
    """Numbers as they are spelled: Python bounds them, JSON does not."""
    return json.loads(text, parse_constant=json_check.refuse, parse_int=Number, parse_float=Number)


class Number(str):
    """The spelling of one, which is no string of JSON."""

    __slots__ = ()
