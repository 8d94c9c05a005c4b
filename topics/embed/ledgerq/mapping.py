"""An entry of ledgerq as a record, and back (queues 7, decision 86).

    payload                   data: bytes, or JSON if `topics.content_type` says so
    headers                   meta
    low, medium, high         priority 0, 5, 9; and 0-3, 4-6, 7-9 the other way
    expires                   the record's own ttl
    dlq.original_msg_id …     $dead_letter_src_seq …

What a record has and an entry has no field for is in headers that begin with `topics.`; a key of `meta` that begins so,
or with `dlq.`, is put behind `topics.meta.`, so that it comes back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from topics.calls.page import Record
from topics.codec.ledgerq.entries import LedgerqEntry
from topics.codec.ledgerq.layout import NS_A_MS, EntryType, Level
from topics.host.system.compress import compress_if_smaller, decompress
from topics.kernel.limits import TTL_MS_MAX, U64_MAX

PRIORITIES: Final = {Level.LOW: 0, Level.MEDIUM: 5, Level.HIGH: 9}
_JSON: Final = "application/json"
_CONTENT_TYPE: Final = "topics.content_type"
_LABELS: Final = {"topics.tag": "tag", "topics.key": "key", "topics.node": "node"}
_ESCAPED: Final = "topics.meta."
_OURS: Final = ("topics.", "dlq.")
_LAST_FAILURE: Final = "dlq.last_failure"
_LETTERS: Final = {
    "dlq.original_msg_id": "$dead_letter_src_seq",
    "dlq.retry_count": "$dead_letter_deliveries",
    "dlq.failure_reason": "$dead_letter_reason",
    _LAST_FAILURE: "$dead_letter_ts",
    "topics.dead_letter_from": "$dead_letter_from",
}
_HEADERS: Final = {theirs: header for header, theirs in _LETTERS.items()}


def record_of(entry: LedgerqEntry) -> tuple[dict[str, Any], dict[str, str]]:
    """(what `put_many` takes, less its times; where a dead letter came from, as `meta` has it, which no put may say).

    Raises:
        Corrupt, Rejected: its payload cannot be unfolded.
    """
    payload = decompress(entry.payload) if entry.is_compressed else entry.payload
    record: dict[str, Any] = {"data": payload}
    meta, letters = dict[str, str](), dict[str, str]()
    content_type = None
    for name, value in entry.headers.items():
        if name == _CONTENT_TYPE:
            content_type = value
        elif name in _LABELS:
            record[_LABELS[name]] = value
        elif name.startswith(_ESCAPED):
            meta[name.removeprefix(_ESCAPED)] = value
        elif (letter := _letter(name, value)) is not None:
            letters |= letter
        else:
            meta[name] = value
    if content_type == _JSON:
        record["data"] = msgspec.Raw(payload)
    elif content_type is not None:
        record["content_type"] = content_type
    if meta:
        record["meta"] = meta
    if entry.priority:
        record["priority"] = PRIORITIES[entry.priority]
    return record, letters


def ttl_ms(entry: LedgerqEntry, ts_ms: int) -> int | None:
    """Its own ttl from `ts_ms` on, None if it has none; at most 0: it has expired by then."""
    if entry.expires_ns is None:
        return None
    return min(entry.expires_ns // NS_A_MS - ts_ms, TTL_MS_MAX)


def entry_of(record: Record, *, priority: int, compress_from: int | None) -> LedgerqEntry:
    """The entry of a record. `compress_from`: payloads of so many bytes are compressed if that is worth it."""
    payload, packed = record.raw, None
    if compress_from is not None:
        packed = compress_if_smaller("gzip", payload, compress_from)
    expires_at = record.expires_at
    return LedgerqEntry(
        type=EntryType.DATA,
        id=record.seq,
        timestamp_ns=record.ts * NS_A_MS,
        payload=payload if packed is None else packed,
        headers=headers_of(record),
        expires_ns=None if expires_at is None else min(expires_at * NS_A_MS, U64_MAX),
        priority=level_of(priority),
        is_compressed=packed is not None,
    )


def level_of(priority: int) -> Level:
    return Level.HIGH if priority > 6 else Level.MEDIUM if priority > 3 else Level.LOW


def headers_of(record: Record) -> dict[str, str]:
    headers = {_CONTENT_TYPE: record.content_type or _JSON}
    if headers[_CONTENT_TYPE] == "application/octet-stream":
        del headers[_CONTENT_TYPE]  # as a payload is taken that says nothing
    for header, name in _LABELS.items():
        if (value := getattr(record, name)) is not None:
            headers[header] = value
    for name, value in record.meta.items():
        if name in _HEADERS:
            headers |= _header(name, value)
        else:
            headers[_ESCAPED + name if name.startswith(_OURS) else name] = value
    return headers


def _letter(name: str, value: str) -> Mapping[str, str] | None:
    """None if it says nothing of that, or not so that it can be read: then it stays as it came."""
    if name not in _LETTERS:
        return None
    if name != _LAST_FAILURE:
        return {_LETTERS[name]: value}
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        return None
    since = at - datetime.fromtimestamp(0, UTC)
    return {_LETTERS[name]: str((since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000)}


def _header(name: str, value: str) -> Mapping[str, str]:
    """Of a key of `meta` that says where a dead letter came from."""
    if name != _LETTERS[_LAST_FAILURE]:
        return {_HEADERS[name]: value}
    try:
        seconds, ms = divmod(int(value), 1000)
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError):
        return {_ESCAPED + name: value}
    return {_LAST_FAILURE: f"{at:%Y-%m-%dT%H:%M:%S}.{ms:03d}Z"}
