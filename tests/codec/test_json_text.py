"""JSON in is checked once and whole; JSON out is the stored bytes."""

import base64
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.frames import TS
from topics.codec.json_text import check_json, check_json_many, copy_json, depth_fits, page_json, records_json
from topics.codec.log.frame import decode_payloads, encode_run
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import JSON_DEPTH_MAX

GOOD = [
    b"null", b" 1 ", b"-0", b"1e400", b"123456789012345678901234567890", b'"\x7f"', b'{"a":1,"a":2}',
    b'[1,\n 2,\t{"x": "\\n"}]\r\n', '"\u00e9\U0001f600"'.encode(), b"[]", b"{}", b'"[[[{{{\\"]"', b"false",
]  # fmt: skip
BAD = [
    b'"\\ud800"', b'"\\udc00x"', b'"\\ud83d\\u0041"',
    b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"01", b"1.", b"-", b"1e", b".5", b"+1", b"tru", b"[1,]", b'{"a":1,}',
    b'{"a" 1}', b"{1:2}", b"1 2", b"1,2", b'"a', b'a"', b"[", b"]", b'"\\q"', b'"\\u12zz"', b'"a\nb"', b'"a\x00"',
    b'{"a\tb":1}', b'"\xff"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'{"\xff":1}', b"\xef\xbb\xbf1", b"'a'", b"\x0b1",
    b"[1 2]",
]  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def nested(depth, open_="[", close="]"):
    return (open_ * depth + close * depth).encode()


@pytest.mark.parametrize("body", GOOD)
def test_json_is_taken(body):
    check_json(body)
    check_json_many([body, b"1", body])


@pytest.mark.parametrize("body", BAD)
def test_what_is_no_json_is_refused(body):
    with pytest.raises(Rejected, match="payload") as caught:
        check_json(body, field="payload")
    assert caught.value.code is Code.INVALID_REQUEST
    assert caught.value.detail["field"] == "payload"
    with pytest.raises(Rejected, match=r"records\[1\]\.data"):
        check_json_many([b"1", body, b"2"])


@pytest.mark.parametrize(
    "pieces", [[b"1,2", b"3"], [b'"a', b'b"'], [b"[1", b"2]"], [b"1", b"2],[3"], [b'{"a":1', b'"b":2}']]
)
def test_pieces_that_are_json_only_together_are_refused(pieces):
    with pytest.raises(Rejected, match=r"records\[[01]\]"):
        check_json_many(pieces)


@pytest.mark.parametrize("body", GOOD)
@pytest.mark.parametrize("others", [lambda body: body, lambda body: b"[%b]" % body], ids=["even", "uneven"])
def test_texts_are_copied_byte_for_byte(body, others):
    pieces = [body, others(body), body]

    texts, sizes = copy_json([msgspec.Raw(memoryview(bytearray(piece))) for piece in pieces])

    assert pieces == list(texts)
    assert [len(piece) for piece in pieces] == sizes


@pytest.mark.parametrize("body", BAD)
@pytest.mark.parametrize("pad", [0, 1], ids=["even", "uneven"])
def test_what_is_no_json_is_not_copied(body, pad):
    other = b"1".ljust(len(body) + pad)
    with pytest.raises(Rejected, match=r"records\[[01]\]\.data"):
        copy_json([msgspec.Raw(other), msgspec.Raw(body), msgspec.Raw(other)])


@pytest.mark.parametrize("position", range(70))
def test_no_control_character_passes_in_a_string_wherever_it_stands(position):
    for byte in range(32):
        text = bytearray(b'"' + b"a" * 70 + b'"')
        text[1 + position] = byte
        with pytest.raises(Rejected):
            check_json(bytes(text))
        with pytest.raises(Rejected):
            check_json_many([b"1", bytes(text)])


DEEP = [
    nested, lambda n: b'{"a":' * n + b"1" + b"}" * n, lambda n: b'["]",' * (n - 1) + b"[]" + b',"["]' * (n - 1),
    lambda n: b'["\\"[",' * (n - 1) + b"[]" + b"]" * (n - 1), lambda n: b'["\\\\",' * (n - 1) + b"[]" + b"]" * (n - 1),
    lambda n: b"[[]," * (n - 1) + b"[]" + b"]" * (n - 1), lambda n: b'[{"a":[]},' * (n - 2) + b"[[]]" + b"]" * (n - 2),
]  # fmt: skip


@pytest.mark.parametrize("shape", DEEP)
def test_nesting_is_bounded_exactly(shape):
    fits, too_deep = shape(JSON_DEPTH_MAX), shape(JSON_DEPTH_MAX + 1)
    check_json(fits)
    check_json_many([b"1", fits, b"2"])
    with pytest.raises(Rejected, match="deeper than 200"):
        check_json(too_deep)
    with pytest.raises(Rejected, match=r"records\[1\].*deeper than 200"):
        check_json_many([b"1", too_deep])


@pytest.mark.invariant("I-18")
@pytest.mark.parametrize("depth", [999, 1001, 100_000])
def test_any_depth_is_refused_not_followed(depth):
    for body in (nested(depth), b"[" * depth, b'{"a":' * depth):
        with pytest.raises(Rejected):
            check_json(body)


def test_breadth_is_no_depth():
    check_json(b"[" + b",".join([b'{"a":[1,{"b":[]}],"c":"]]]"}'] * 5000) + b"]")


@given(JSON, st.integers(4, 9))
def test_depth_is_counted_as_python_counts_it(value, depth_max):
    def depth(value):
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert depth_fits(text.encode("utf-8", "surrogatepass"), depth_max) == (depth(value) <= depth_max)


@pytest.mark.invariant("I-18")
@given(st.lists(st.binary(max_size=12) | st.sampled_from(GOOD + BAD), max_size=5))
def test_many_are_taken_iff_each_is(pieces):
    def taken(check, argument):
        try:
            check(argument)
        except Rejected:
            return False
        return True

    assert taken(check_json_many, pieces) == all(taken(check_json, piece) for piece in pieces)


@given(st.lists(st.text('[]{}",:0\\ a', max_size=12).map(str.encode), max_size=4))
def test_the_check_agrees_with_python(pieces):
    for piece in pieces:
        try:
            json.loads(piece)
        except ValueError:
            with pytest.raises(Rejected):
                check_json(piece)
        else:
            check_json(piece)


def views(records):
    chunk, run = encode_run(1, 1, TS, records, durable=True, keyed=None, write_frames=len(records))
    offsets = [sum(run.lengths[:i]) for i in range(len(run))]
    return decode_payloads(chunk, offsets, run.lengths, topic_id=1, seqs=range(1, len(run) + 1))


def test_data_goes_out_byte_for_byte():
    data = b'{"z" : 1.00, "a":1e2,\n "\\u0041":"/"}'
    out = records_json(views(RecordColumns([data, b"null"])))

    assert out == b'[{"$seq":1,"$ts":%d,"data":%b},{"$seq":2,"$ts":%d,"data":null}]' % (TS, data, TS)


@pytest.mark.rule("S9.7")
def test_fields_are_there_when_they_are_asked_for_and_present():
    records = RecordColumns(
        [b"1", b"\x00raw"], node=[b"n", b""], tag=['"é'.encode(), b""], key=[b"k\n", b""], meta=[b'{"m":"x"}', b""],
        content_type=[b"", b"image/png"], ttl_ms=[5, None],
    )  # fmt: skip
    every = json.loads(records_json(views(records), include_tags=True))
    first = {"$seq": 1, "$ts": TS, "$node": "n", "$tag": '"é', "$key": "k\n", "data": 1, "meta": {"m": "x"}}
    raw = {"$bytes": base64.b64encode(b"\x00raw").decode()}

    assert every == [first, {"$seq": 2, "$ts": TS, "$content_type": "image/png", "data": raw}]
    assert list(every[0]) == ["$seq", "$ts", "$node", "$tag", "$key", "data", "meta"]
    bare = json.loads(records_json(views(records), include_meta=False, include_data=False))
    assert bare[0] == {"$seq": 1, "$ts": TS, "$node": "n", "$key": "k\n"}
    assert json.loads(records_json(views(RecordColumns([b"1"])), include_data=False)) == [
        {"$seq": 1, "$ts": TS}
    ]


def test_a_page_is_the_answer_of_the_wire():
    seqs = {
        "epoch": 2,
        "from_seq": 3,
        "next_from_seq": 9,
        "head_seq": 12,
        "durable_seq": 11,
        "earliest_seq": 5,
    }
    tombstone = {
        "gap_from": 4,
        "gap_to": 4,
        "reason": "cap",
        "missed_estimate": 1,
        "earliest_seq": 5,
        "head_seq": 12,
    }
    account = {"delivered": 1, "lost": 1, "deleted": 0, "expired": 0, "own_node": 0, "filtered": 4}
    page = json.loads(
        page_json(views(RecordColumns([b"1"])), topic="a.b", tombstone=tombstone, account=account, **seqs)
    )

    assert list(page) == [
        "topic", "epoch", "from_seq", "records", "next_from_seq", "head_seq", "durable_seq", "earliest_seq",
        "caught_up", "tombstone", "lag", "account",
    ]  # fmt: skip
    assert page == {
        "topic": "a.b", "records": [{"$seq": 1, "$ts": TS, "data": 1}], "caught_up": False, "lag": 3,
        "tombstone": tombstone, "account": account, **seqs,
    }  # fmt: skip
    empty = json.loads(page_json([], topic="t", **(seqs | {"next_from_seq": 12})))
    assert (empty["records"], empty["caught_up"], empty["lag"], empty["tombstone"]) == ([], True, 0, None)
    assert "account" not in empty


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (rb'{"a":"\ud800"}', "half of a surrogate pair (byte 6)"),
        (rb'{"a":"\ud83d\ude00\uD8FFx"}', "half of a surrogate pair (byte 18)"),
        (rb'{"a":"\ud83d\ude00"', "truncated"),
    ],
)
def test_half_of_a_surrogate_pair_at_the_end_is_not_called_a_truncated_text(text: bytes, why: str) -> None:
    with pytest.raises(Rejected) as refused:
        check_json(text)
    assert why in refused.value.message


@pytest.mark.parametrize("text", [b"", b" ", b"\r\n"])
def test_a_text_that_is_empty_is_called_that(text: bytes) -> None:
    with pytest.raises(Rejected, match="body: is empty: JSON is expected"):
        check_json(text)
