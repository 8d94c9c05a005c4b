"""What a snapshot has of a queue's jobs: what the log says of them, and nothing that time alone has made."""

from __future__ import annotations

import msgspec

from topics.kernel.whole_numbers import Count


class JobImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A row as the log tells it. `until`: of a lease its deadline, else the instant the job is ready from."""

    seq: Count
    moving: bool
    leased: bool
    deliveries: Count
    until: Count
    backoff: Count
    nonce: bytes
    counter: Count
    node: bytes
    reason: bytes


class JobsImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a snapshot has of a queue's jobs. `tokens` as of `tokens_ms`, in parts of `rate_limit.per_ms`."""

    paused: bool
    dead_lettered: Count = 0
    tokens: int = 0
    tokens_ms: Count = 0
    rows: list[JobImage] = []
