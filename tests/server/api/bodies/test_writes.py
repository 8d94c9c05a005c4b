"""The body of a write becomes columns, or is refused by name."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.calls.intake import take_records
from topics.kernel.errors import Rejected
from topics.kernel.limits import Limits
from topics.server.api.bodies.writes import decode_write

LIMITS = Limits()


def decode(body: bytes, **limits: int):
    return decode_write("t", body, Limits(**limits) if limits else LIMITS, auto_create=True)


@pytest.mark.rule("H1.15")
def test_data_keeps_its_bytes():
    texts = [
        b'{"b": 1,  "a":1.50}',
        b"1e2",
        b"[ ]",
        b'"\\u00e9"',
        '"é"'.encode(),
        b"null",
    ]
    body = b'{"records":[' + b",".join(b'{"data":' + text + b"}" for text in texts) + b"]}"

    assert list(decode(body).command.records.data) == texts


@pytest.mark.parametrize("others", [b"", b',"tag":"t"', b',"key":"k"'])
def test_bytes_are_stored_as_bytes(others):
    """Whatever else the records of the body have; an object that only looks so stays the JSON that it is."""
    texts = (
        b'{"$bytes":"AP8="}',
        b' { "$bytes" : "" } ',
        b'{"$bytes":"AP8=","n":1}',
        b'[{"$bytes":"AP8="}]',
        b"1",
    )
    body = b'{"records":[' + b",".join(b'{"data":' + text + others + b"}" for text in texts) + b"]}"
    columns = decode(body).command.records

    assert list(columns.data) == [b"\x00\xff", b"", texts[2], texts[3], b"1"]
    assert columns.sizes == [2, 0, len(texts[2]), len(texts[3]), 1]
    assert list(columns.content_type) == [b"application/octet-stream"] * 2 + [b""] * 3


def test_bytes_may_say_what_they_are():
    """By a content type of their own."""
    columns = decode(
        b'{"records":[{"data":{"$bytes":"AP8="},"content_type":"image/png"},{"data":1}]}'
    ).command.records

    assert list(columns.content_type) == [b"image/png", b""]


@pytest.mark.parametrize(
    ("record", "field", "why"),
    [
        (b'{"data":{"$bytes":"*"}}', "records[0].data", "base64"),
        (b'{"data":{"$bytes":7}}', "records[0].data", "base64"),
        (b'{"data":{"$bytes":"\xc3\xa9"}}', "records[0].data", "base64"),
        (
            b'{"data":1,"content_type":"image/png"}',
            "records[0].content_type",
            "goes with a bytes payload only",
        ),
        (b'{"data":{"$bytes":""},"content_type":""}', "records[0].content_type", "empty"),
    ],
)
def test_what_is_wrong_with_bytes_is_named(record, field, why):
    """As the embedded store names it."""
    with pytest.raises(Rejected, match=why) as refused:
        decode(b'{"records":[%b]}' % record)

    assert refused.value.detail["field"] == field


def test_a_large_body_may_hold_bytes():
    """It is decoded in pieces, some of which have bytes and some not."""
    packed = b'{"data":{"$bytes":"%b"}}' % (b"AAAA" * 50_000)
    body = b'{"records":[' + b",".join([b'{"data":1}', *[packed] * 4, b'{"data":2}']) + b"]}"
    columns = decode(body).command.records

    assert [len(data) for data in columns.data] == [1, 150_000, 150_000, 150_000, 150_000, 1]
    assert [bool(kind) for kind in columns.content_type] == [False, True, True, True, True, False]


@pytest.mark.rule("H4.1")
def test_every_field_of_a_record_becomes_a_column():
    record = {
        "data": 1, "tag": "t", "node": "n", "meta": {"k": "v"}, "key": "k", "ttl_ms": 5, "dedup_id": "d",
        "priority": 12, "delay_ms": 7,
    }  # fmt: skip
    columns = decode(
        json.dumps({"records": [record, {"data": 2}], "node": "default"}).encode()
    ).command.records

    assert (list(columns.tag), list(columns.node), list(columns.key)) == (
        [b"t", b""],
        [b"n", b"default"],
        [b"k", b""],
    )
    assert (list(columns.ttl_ms), list(columns.priority), list(columns.delay_ms)) == (
        [5, None],
        [9, None],
        [7, None],
    )
    assert (list(columns.meta), list(columns.dedup_id)) == ([b'{"k":"v"}', b""], [b"d", b""])


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"[]", "body"),
        (b"{}", "records"),
        (b'{"records":{}}', "records"),
        (b'{"records":[{"tag":"x"}]}', "records[0].data"),
        (b'{"records":[{"data":1},{"data":1,"tag":5}]}', "records[1].tag"),
        (b'{"records":[{"data":1,"tag":""}]}', "records[0].tag"),
        (b'{"records":[{"data":1,"ttl_ms":-1}]}', "records[0].ttl_ms"),
        (b'{"records":[{"data":1,"ttl_ms":1.5}]}', "records[0].ttl_ms"),
        (b'{"records":[{"data":1,"ttl_ms":true}]}', "records[0].ttl_ms"),
        (b'{"records":[{"data":1,"meta":{"k":1}}]}', "records[0].meta"),
        (b'{"records":[{"data":1,"meta":{"$k":"v"}}]}', "records[0].meta"),
        (b'{"records":[{"data":1,"dedup_id":"dl:1"}]}', "records[0].dedup_id"),
        (b'{"records":[{"data":1}],"expected_head":-1}', "expected_head"),
        (b'{"records":[{"data":1}],"expected_head":true}', "expected_head"),
        (b'{"records":[{"data":1}],"node":""}', "node"),
        (b'{"records":[{"data":1}],"config":[]}', "config"),
        (b'{"records":[{"data":1}],"config":{"nope":1}}', "config.nope"),
        (b'{"records":[{"data":NaN}]}', "body"),
        (b'{"records":[{"data":"\xff"}]}', "body"),
        (b'{"records":[{"data":"\\ud800"}]}', "body"),
    ],
)
@pytest.mark.rule("H1.5")
@pytest.mark.rule("H1.17")
def test_a_bad_body_is_refused_by_the_name_of_its_field(body: bytes, field: str):
    with pytest.raises(Rejected) as refused:
        decode(body)

    assert refused.value.code.value == "invalid_request"
    assert refused.value.detail["field"] == field


def test_no_body_at_all_is_told_what_a_write_is():
    with pytest.raises(Rejected, match=r'body: is empty: a write is \{"records": '):
        decode(b"")


@pytest.mark.rule("H1.5")
@pytest.mark.parametrize("place", ["data", "unknown"])
def test_nesting_is_bounded_wherever_it_is(place: str):
    def body(depth: int) -> bytes:
        value = b"[" * depth + b"]" * depth
        inner = b'{"data":%b}' % value if place == "data" else b'{"data":1,"unknown":%b}' % value
        return b'{"records":[%b]}' % inner

    assert len(decode(body(200)).command.records) == 1
    with pytest.raises(Rejected, match="deeper"):
        decode(body(201 if place == "data" else 205))
    with pytest.raises(Rejected, match="deeper"):
        decode(body(100_000))


@pytest.mark.rule("H1.38")
@pytest.mark.rule("H1.39")
def test_limits_name_themselves():
    with pytest.raises(Rejected, match="records: 3 records are more than the limit of 2"):
        decode(b'{"records":[{"data":1},{"data":1},{"data":1}]}', records_per_write=2)
    with pytest.raises(
        Rejected, match=r"records\[1\]: 12 bytes of data and meta are more than the limit of 10"
    ):
        decode(b'{"records":[{"data":1},{"data":"0123456789"}]}', record_bytes=10)


def test_unknown_fields_are_ignored_and_null_is_absent():
    wish = decode(
        b'{"records":[{"data":null,"tag":null,"x":[1]}],"y":{"z":1},"node":null,"config":null,"create":null}'
    )

    assert list(wish.command.records.data) == [b"null"]
    assert wish.command.records.plain
    assert wish.command.create


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
records = st.fixed_dictionaries(
    {"data": json_values},
    optional={
        "tag": st.text("ab", min_size=1), "node": st.text("ab", min_size=1), "key": st.text("ab", min_size=1),
        "meta": st.dictionaries(st.text("ab"), st.text("ab")), "ttl_ms": st.integers(0, 2**70),
        "dedup_id": st.text("ab", min_size=1),
    },
)  # fmt: skip


@given(st.lists(records, min_size=1, max_size=5), st.none() | st.just("n"))
def test_server_and_embedded_store_take_the_same_records_in_the_same_way(given_records, node):
    body = json.dumps({"records": given_records, "node": node}).encode()
    ours, theirs = decode(body).command.records, take_records(given_records, node=node, limits=LIMITS)

    assert [json.loads(text) for text in ours.data] == [json.loads(text) for text in theirs.data]
    for name in ("tag", "node", "key", "dedup_id", "ttl_ms"):
        one, other = getattr(ours, name), getattr(theirs, name)
        absent = [None if name == "ttl_ms" else b""] * len(given_records)
        assert list(one or absent) == list(other or absent), name


@pytest.mark.rule("H4.3")
@pytest.mark.parametrize("extra", [b"", b',"tag":"red"'], ids=["plain records", "records with fields"])
def test_a_write_may_bring_the_config_of_the_topic_it_creates(extra: bytes):
    body = b'{"records":[{"data":1%b}],"config":{"durability":"fsync","cap_records":8}}' % extra

    config = decode(body).command.config

    assert (config.durability.value, config.cap_records) == ("fsync", 8)


texts = st.sampled_from([None, "", "a", "b", "é", "x" * 300])
metas = st.sampled_from(
    [
        b"null", b"{}", b'{"a":"b"}', b'{"a": "b"}', b'{"a":"b","a":"c"}', b'{"$a":"b"}', b'{"\\u0024a":"b"}',
        b'{"_topics.a":"b"}', b'{"a":"$b"}', b'{"a":1}', b'"a"', b'{"a":"\\u00e9"}', '{"a":"é"}'.encode(),
        b'{"a":%b}' % (b"[" * 202 + b"]" * 202), b'{"a":%b}' % (b"[" * 198 + b"]" * 198),
        b'{"a":"%b"}' % (b"x" * 300),
    ]
)  # fmt: skip


def outcome(body: bytes) -> object:
    try:
        columns = decode(body, meta_bytes=100).command.records
    except Rejected as refused:
        return refused.message, refused.detail
    return [list(getattr(columns, name) or []) for name in ("data", "tag", "node", "meta")]


@pytest.mark.rule("H4.1")
@given(st.lists(st.tuples(texts, texts, st.none() | metas), min_size=1, max_size=4), st.booleans())
def test_a_field_that_nobody_knows_changes_nothing(rows, with_config):
    """A write with nothing but labels has a decoder of its own; whatever it takes or refuses, the other does too."""

    def body(extra: bytes) -> bytes:
        records = []
        for tag, node, meta in rows:
            labels = json.dumps({"tag": tag, "node": node}, ensure_ascii=False).encode()[1:-1]
            records.append(b'{"data":1,%b%b}' % (labels, b"" if meta is None else b',"meta":' + meta))
        config = b',"config":{}' if with_config else b""
        return b'{"records":[%b]%b%b}' % (b",".join(records), config, extra)

    assert outcome(body(b"")) == outcome(body(b',"unknown":1'))


@pytest.mark.parametrize("place", ["meta", "config"])
def test_nesting_around_labelled_payloads_is_bounded(place: str):
    deep = b'{"a":%b}' % (b"[" * 300 + b"]" * 300)
    inner = b'{"records":[{"data":1,"tag":"t"%b}]%b}'
    with pytest.raises(Rejected, match="body: nests deeper than 200"):
        decode(inner % ((b',"meta":' + deep, b"") if place == "meta" else (b"", b',"config":' + deep)))


names = st.sampled_from(["a", "b", "c", "d", "é", "", "$a", "_topics.a"])
meanings = st.dictionaries(names, names, max_size=3)
spelled = st.tuples(meanings, st.sampled_from([(",", ":"), (", ", ": ")]), st.booleans())


@pytest.mark.rule("H4.1")
@given(st.lists(spelled, min_size=1, max_size=3), st.integers(1, 3), st.integers(4, 60))
@example([({"a": "b", "c": "d"}, (",", ":"), True)], 1, 60)
@example([({"_topics.a": "b"}, (",", ":"), True)], 3, 60)
def test_metas_are_stored_as_the_embedded_store_spells_them(given_metas, keys_max, bytes_max):
    limits = Limits(meta_keys=keys_max, meta_bytes=bytes_max)
    spellings = [json.dumps(meta, separators=by, ensure_ascii=plain) for meta, by, plain in given_metas]
    body = b'{"records":[%b]}' % b",".join(b'{"data":1,"meta":%b}' % text.encode() for text in spellings)

    def taken(take):
        try:
            column = list(take().meta or [])
        except Rejected as refused:
            return refused.message
        return column if any(column) else []

    given_records = [{"data": 1, "meta": meta} for meta, _, _ in given_metas]
    theirs = taken(lambda: take_records(given_records, node=None, limits=limits))
    assert taken(lambda: decode_write("t", body, limits, auto_create=True).command.records) == theirs
