"""Bodies of a write, against Python's own parser: a command with the same values in it, or `Rejected`."""

from __future__ import annotations

import json

import json_check

from topics.kernel.errors import Rejected
from topics.kernel.limits import JSON_DEPTH_MAX, Limits
from topics.server.api.bodies.writes import decode_write

LIMITS = Limits(
    records_per_write=50, record_bytes=5000, meta_bytes=500, tag_bytes=40, node_bytes=40, key_bytes=40
)
TOKENS = (
    b"[", b"]", b"{", b"}", b'"', b"\\", b",", b":", b"\\ud800", b"\\u0000", b"null", b"true", b"1e9", b"-1", b"NaN",
    b"9" * 30, b"\n", b"[" * 199, b"[" * 201, b"\xff", b"\xef\xbb\xbf", b'"data":', b'"tag":', b'"meta":{', b'"key":',
    b'{"data":1},' * 60, b'"config":', b'"ttl_ms":', b"a" * 41,
)  # fmt: skip


def check(data: bytes) -> None:
    """What is taken says what the bytes say."""
    try:
        wish = decode_write("t", data, LIMITS, auto_create=True)
    except Rejected:
        return
    value = json.loads(data.decode(), parse_constant=json_check.refuse)
    records = value["records"]
    columns = wish.command.records
    assert 0 <= len(columns.data) == len(records) <= LIMITS.records_per_write
    for i, record in enumerate(records):
        text = bytes(columns.data[i])
        assert text in data, "not the bytes that came"
        assert text == text.strip()
        assert json_check.depth(json.loads(text, parse_int=str)) <= JSON_DEPTH_MAX
        assert json.loads(text) == record["data"] or "NaN" in repr(record["data"])
        node = record.get("node") if record.get("node") is not None else value.get("node")
        for name, expected in (("tag", record.get("tag")), ("key", record.get("key")), ("node", node)):
            column = getattr(columns, name)
            found = column[i] if column else b""
            assert bytes(found).decode() == (expected or "")
    assert wish.command.create is (True if value.get("create") is None else value["create"])
    assert wish.return_seqs is (value.get("return_seqs") is not False)
