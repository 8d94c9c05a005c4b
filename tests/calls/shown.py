"""Results as plain values, to be compared."""

from __future__ import annotations

from typing import Any

import attrs
import msgspec

import topics

NOT_COMPARED = {
    "ts",
    "last_write_ts",
    "last_read_ts",
    "effective_priority",
    "expires_at",
    "durable_seq",
    "deadline",
    "updated_ts",
    "created_ts",
    "since",
    "until",
    "since_ts",
    "bytes_read",
    "ready_at",
    "lease_id",
    "offset",
    "idempotency_key",
    "repeats_until",
}  # of the clock, or of the moment, or made up by a client
SYNCED = "synced"  # an event of `why` that comes when a second is over
OF_JOBS = ("deliveries", "priority", "state", "reason", "worker")


def shown(value: Any) -> Any:
    """A result as plain values, without what time decides."""
    match value:
        case topics.Record():
            job = {name: getattr(value, name) for name in OF_JOBS if hasattr(value, name)}
            return job | {
                "seq": value.seq, "raw": value.raw, "tag": value.tag, "node": value.node, "key": value.key,
                "meta": value.meta, "content_type": value.content_type,
            }  # fmt: skip
        case msgspec.Struct():
            return shown(msgspec.structs.asdict(value))
        case topics.TopicConfig():
            return value.echo()
        case dict():
            return {name: shown(one) for name, one in value.items() if name not in NOT_COMPARED}
        case list() | tuple() | range():
            return [shown(one) for one in value if getattr(one, "event", "") != SYNCED]
        case topics.AsyncTopic() | topics.AsyncConsumer():
            return type(value).__name__.removeprefix("Async")
    if attrs.has(type(value)):
        return {"type": type(value).__name__} | shown(attrs.asdict(value, recurse=False))
    return value if value is None or isinstance(value, str | int | float | bytes) else type(value).__name__
