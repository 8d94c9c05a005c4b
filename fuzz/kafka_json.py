"""Lines of a dump of a topic of Kafka: what is taken is a record that a topic takes, or is refused with words."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from topics.calls.intake import take_records
from topics.cli.exchange.kafka import KafkaMessages
from topics.cli.io.source import BadLine
from topics.kernel.errors import Rejected
from topics.kernel.limits import Limits

TOKENS = (
    b'{"topic":"t","partition":0,"offset":1', b',"payload":"', b',"payload":null', b',"value":', b',"key":"k"',
    b',"ts":-1', b',"headers":["a","b","a",null]', b',"headers":[{"key":"a","value":"b"}]', b',"headers":{"a":"b"}',
    b"}", b'"', b"\\", b"\xff\xfe", b"\\ud800", b"\\udc80", b"\\u0000", b"{", b"[" * 201, b"null", b"9" * 30, b"\n",
)  # fmt: skip
LIMITS = Limits()


def check(data: bytes) -> None:
    """A payload that is text says what Python's own parser says of it, and bytes are those of the line."""
    lines = data.split(b"\n")
    read = KafkaMessages().records(enumerate(lines, 1), from_line=1)
    refused = None
    try:
        for number, size, record in read:
            line = lines[number - 1]
            assert size == len(line)
            _same_payload(line, record)
            with suppress(Rejected):
                take_records([record], node=None, limits=LIMITS)
    except BadLine as bad:
        refused = bad
    assert refused is None or (refused.why and 1 <= refused.place <= len(lines))


def _same_payload(line: bytes, record: Any) -> None:
    value = record["data"]
    if isinstance(value, bytes):
        assert value.decode("utf-8", "replace") != value.decode("utf-8", "ignore"), "text came as bytes"
        return
    try:
        said = json.loads(line.decode("utf-8", "surrogateescape"), strict=False)
    except ValueError:
        raise AssertionError("what is no JSON was taken") from None
    payload = said["payload"] if "payload" in said else said.get("value")
    if value is None:
        assert payload is None
    elif isinstance(value, str):
        assert value == payload
    else:
        text = bytes(value).decode()
        assert text == payload or json.loads(text) == payload or "NaN" in text
