"""Bodies and answers: payloads byte for byte, and nothing believed that is not of its form."""

from __future__ import annotations

import msgspec
import pytest

from topics import Raw, Rejected
from topics.calls import messages

PAGE = (
    b'{"topic":"t","epoch":2,"from_seq":0,"records":[%b],"next_from_seq":3,"head_seq":9,"durable_seq":8,'
    b'"earliest_seq":1,"caught_up":false,"tombstone":null,"lag":6,"new":{"er":[1]}}'
)


def body(*records: object, **fields: object) -> bytes:
    return messages.write_body(records, node=None, fields=fields)


def test_a_body_holds_the_payloads_as_they_are() -> None:
    texts = [b'{"a" : 1.50e1,\n "a":2}', '"\u20ac"'.encode(), b"[ 1,2 ]", b"null"]
    made = body(*[Raw(text) for text in texts], create=False)

    assert made == b'{"create":false,"records":[%b]}' % b",".join(b'{"data":%b}' % text for text in texts)


def test_every_field_of_a_record_has_its_place() -> None:
    made = body(
        {"data": 1},
        {"data": 2, "tag": 't"', "node": "n", "key": "k", "dedup_id": "d", "ttl_ms": 5, "meta": {"m": "v"}},
    )

    assert msgspec.json.decode(made) == {
        "records": [
            {"data": 1},
            {
                "data": 2,
                "tag": 't"',
                "node": "n",
                "key": "k",
                "dedup_id": "d",
                "meta": {"m": "v"},
                "ttl_ms": 5,
            },
        ]
    }


def test_a_default_node_is_that_of_every_record_without_one() -> None:
    made = messages.write_body([{"data": 1}, {"data": 2, "node": "own"}], node="n", fields={})

    assert [record["node"] for record in msgspec.json.decode(made)["records"]] == ["n", "own"]


def test_bytes_are_sent_as_base64() -> None:
    made = messages.write_body(
        [b"\xff", {"data": b"", "content_type": "image/png"}, {"data": 1}], node=None, fields={}
    )

    assert msgspec.json.decode(made)["records"] == [
        {"data": {"$bytes": "/w=="}, "content_type": "application/octet-stream"},
        {"data": {"$bytes": ""}, "content_type": "image/png"},
        {"data": 1},
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"data": 1, "content_type": "image/png"}, "goes with a bytes payload only"),
        ({"data": float("nan")}, r"records\[0\]\.data: NaN and Infinity are not JSON"),
        (Raw(b"{]"), r"records\[0\]\.data: is not JSON"),
        ({"datum": 1}, r"records\[0\]\.data: is missing"),
        ({"data": 1, "tags": "x"}, "unknown field 'tags'"),
        ({"data": 1, "tag": 7}, r"records\[0\]\.tag: must be a string"),
        ({"data": 1, "meta": {"$x": "y"}}, "is reserved"),
        (7, "must be a mapping"),
    ],
)
def test_what_the_embedded_store_refuses_is_refused_before_it_is_sent(record: object, message: str) -> None:
    with pytest.raises(Rejected, match=message):
        body(record)


def test_a_page_has_its_records_byte_for_byte() -> None:
    text = b'{"z" : 1.0,\t"z":\n[1e400] }'
    plain = b'{"$seq":1,"$ts":5,"data":%b}' % text
    full = b'{"$seq":2,"$ts":6,"$node":"n","$tag":"t","$key":"k","data":0,"meta":{"a": "b"}}'
    packed = b'{"$seq":3,"$ts":7,"$content_type":"image/png","data":{"$bytes":"AP8="}}'
    page = messages.read_page(PAGE % b",".join((plain, full, packed)))

    first, second, third = page.records
    assert (first.seq, first.ts, first.raw, first.tag, first.meta) == (1, 5, text, None, {})
    assert (second.node, second.tag, second.key, second.data, second.meta) == ("n", "t", "k", 0, {"a": "b"})
    assert (third.content_type, third.data) == ("image/png", b"\x00\xff")
    assert [record.json() for record in page.records] == [plain, full, packed]
    assert (page.epoch, page.lag, page.caught_up, page.account) == (2, 6, False, None)


def test_a_config_of_a_newer_server_is_read_as_far_as_it_is_known() -> None:
    config = messages.read_configured(
        b'{"topic":"t","created":true,"config":{"ttl_ms":5,"durability":"fsync","durable":true,"max_record_bytes":9000000,'
        b'"shiny":[1]}}'
    )

    assert (config.ttl_ms, config.durability.value, config.max_record_bytes) == (5, "fsync", 9_000_000)


@pytest.mark.parametrize(
    "records",
    [
        b"7",
        b'{"$seq":"1","$ts":2,"data":0}',
        b'{"$ts":2}',
        b'{"$seq":1,"$ts":2,"$content_type":"a/b","data":0}',
        b'{"$seq":1,"$ts":2,"$content_type":"a/b","data":{"$bytes":"*"}}',
    ],
)
def test_what_is_no_page_is_malformed(records: bytes) -> None:
    with pytest.raises(messages.MALFORMED):
        messages.read_page(PAGE % records)
