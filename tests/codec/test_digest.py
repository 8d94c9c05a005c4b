"""The body digest: equal for what the page calls equal, different for any difference it names."""

import struct

import pytest
import xxhash
from hypothesis import given

from tests.support.frames import columns
from topics.codec.digest import body_digest
from topics.kernel.columns import RecordColumns


def spelled_out(records):
    """The page's definition, word for word."""
    out = []
    for i, data in enumerate(records.data):
        kind = records.content_type[i] if records.content_type else b""
        out += [struct.pack("<I", len(data) | (0x80000000 if kind else 0)), data]
        for column in (records.node, records.tag, records.key, records.meta, records.dedup_id):
            value = column[i] if column else b""
            out += [struct.pack("<I", len(value)), value]
        for column in (records.ttl_ms, records.priority, records.delay_ms):
            number = column[i] if column else None
            out += [struct.pack("<I", 0)] if number is None else [struct.pack("<IQ", 8, number)]
        out += [struct.pack("<I", len(kind)), kind] if kind else []
    return xxhash.xxh3_64_intdigest(b"".join(out))


@pytest.mark.rule("S7.6")
@given(columns())
def test_the_digest_is_the_one_of_the_page(records):
    assert body_digest(records) == spelled_out(records)


@pytest.mark.rule("S7.6")
def test_a_column_of_nothing_is_no_column():
    nothing = RecordColumns(
        [b"1", b"2"], node=[b""] * 2, tag=[b""] * 2, key=[b""] * 2, meta=[b""] * 2, content_type=[b""] * 2,
        dedup_id=[b""] * 2, ttl_ms=[None] * 2, priority=[None] * 2, delay_ms=[None] * 2, compressed=[False] * 2,
    )  # fmt: skip

    assert body_digest(nothing) == body_digest(RecordColumns([b"1", b"2"]))


@pytest.mark.rule("S7.6")
def test_every_field_and_every_border_counts():
    bodies = [
        RecordColumns([b"12"]), RecordColumns([b"1", b"2"]), RecordColumns([b"2", b"1"]), RecordColumns([b"", b"12"]),
        *(RecordColumns([b"12"], **{name: [b"x"]}) for name in ("node", "tag", "key", "meta", "dedup_id")),
        RecordColumns([b"12"], content_type=[b"x"]),
        *(RecordColumns([b"12"], **{name: [0]}) for name in ("ttl_ms", "priority", "delay_ms")),
        RecordColumns([b"12"], ttl_ms=[1]), RecordColumns([b"1"], node=[b"2"]),
    ]  # fmt: skip

    assert len({body_digest(body) for body in bodies}) == len(bodies)


@given(columns(), columns())
def test_equal_digests_mean_equal_bodies(one, other):
    def body(records):
        count = len(records)
        numbers = (
            (column or [None] * count) for column in (records.ttl_ms, records.priority, records.delay_ms)
        )
        texts = (records.node, records.tag, records.key, records.meta, records.dedup_id, records.content_type)
        return [list(records.data), *(list(c or [b""] * count) for c in texts), *map(list, numbers)]

    assert (body_digest(one) == body_digest(other)) == (body(one) == body(other))
