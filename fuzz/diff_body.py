"""Bodies of a diff: a query within its limits that says what the bytes say, or `Rejected`."""

from __future__ import annotations

import json

from topics.kernel.errors import Rejected
from topics.kernel.limits import READ_LIMIT_DEFAULT, READ_NODES_MAX, U64_MAX, Limits
from topics.server.api.resources.reads import decode_reading

LIMITS = Limits()
TOKENS = (
    b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"\\ud800", b"null", b"true", b"false", b"1e9", b"1.0", b"-1",
    b"NaN", b"9" * 30, b"9" * 5000, b"[" * 201, b"\xff", b'"limit":', b'"from_seq":', b'"from_ts":', b'"match":',
    b'"tags":', b'"node":', b'"wait_ms":', b'"epoch":', b'"a",' * 65, b"*", b"?",
)  # fmt: skip


def check(data: bytes) -> None:
    """Every field is checked, none is taken for another."""
    try:
        reading = decode_reading("t", data, LIMITS)
    except Rejected:
        return
    value = json.loads(data.decode()) if data else {}
    query, limits = reading.query, LIMITS
    assert 1 <= query.limit <= limits.read_limit
    assert query.limit == min(value.get("limit") or READ_LIMIT_DEFAULT, limits.read_limit)
    assert 1 <= query.bytes_max <= limits.page_bytes
    assert query.from_seq == min(value.get("from_seq") or 0, U64_MAX)
    given = value.get("from_ts")
    assert query.from_ts == (None if given is None else min(given, U64_MAX))
    assert len(query.nodes or ()) <= READ_NODES_MAX
    assert 0 <= reading.wait_ms <= 30_000
    assert reading.account is (value.get("account") or False)
    assert (query.match is None) == (value.get("match") is None)
