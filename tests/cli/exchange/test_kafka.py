"""`topics import --kafka-json`: dumps of a topic of Kafka, as kcat and rpk write them."""

from __future__ import annotations

import base64
import json
import pathlib
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

import topics
from tests.cli.conftest import Call

pytestmark = pytest.mark.rule("O2.33")

KCAT = pathlib.Path(__file__).parents[3] / "fuzz" / "corpus" / "kafka_json" / "kcat"
RPK = KCAT.with_name("rpk")
_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
    lambda name: not name.startswith(("$", "_topics", "kafka_"))
)
_bytes = st.binary(max_size=12) | _names.map(str.encode)
_messages = st.lists(
    st.tuples(
        st.none() | _bytes | st.sampled_from([b'{"a": [1]}', b" [\n1.0]", b"{", b"null", b"5", b'"x"']),
        st.none() | _bytes.filter(bool),
        st.lists(st.tuples(_names, _bytes), max_size=3, unique_by=lambda pair: pair[0]),
    ),
    min_size=1,
    max_size=8,
)


def stored(root: pathlib.Path | str, topic: str = "t") -> list[topics.Record]:
    with topics.open(root) as store:
        return [one for one in store.topic(topic).records() if isinstance(one, topics.Record)]


def kcat_string(value: bytes | None) -> bytes:
    """As kcat writes it: control characters and quotes escaped, any other byte as it is."""
    if value is None:
        return b"null"
    named = {0x22: b'\\"', 0x5C: b"\\\\", 0x0A: b"\\n"}
    return b'"' + b"".join(named.get(b) or (b"\\u%04x" % b if b < 0x20 else bytes([b])) for b in value) + b'"'


def kcat_line(at: int, payload: bytes | None, key: bytes | None, headers: list[tuple[str, bytes]]) -> bytes:
    flat = b",".join(kcat_string(text) for name, value in headers for text in (name.encode(), value))
    told = b'"headers":[%b],' % flat if headers else b""
    form = b'{"topic":"o","partition":%d,"offset":%d,"tstype":"create","ts":%d,"broker":1,%b"key":%b,"payload":%b}\n'
    return form % (
        at % 3, at // 3, 1_764_200_000_000 + at, told, kcat_string(key), kcat_string(payload),
    )  # fmt: skip


def as_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def as_stored(payload: bytes | None) -> tuple[bytes, str]:
    """A payload's bytes in the topic, and its content type."""
    if payload is None:
        return b"null", ""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return payload, "application/octet-stream"
    try:
        if isinstance(json.loads(text), dict | list):
            return payload.strip(), ""
    except ValueError:
        pass
    return text.encode(), "a string"


@given(messages=_messages)
@example(messages=[(b"\xff\xed\xa0\x80", b"\x00\x00\x00\x05", [("trace", b"\xfe")])])
@settings(
    max_examples=10,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_each_message_comes_with_its_value_key_and_headers(
    call: Call, tmp_path_factory: Any, messages: list[Any]
) -> None:
    """Byte for byte, in the order of the file; with its partition, offset and time in meta."""
    home = tmp_path_factory.mktemp("kafka")
    file = home / "dump"
    file.write_bytes(b"".join(kcat_line(at, *message) for at, message in enumerate(messages)))
    done = call("import", "t", str(file), "--kafka-json", "--data", str(home / "data"))
    assert done.code == 0, done.err
    records = stored(home / "data")

    assert len(records) == len(messages)
    for at, (record, (payload, key, headers)) in enumerate(zip(records, messages, strict=True)):
        data, kind = as_stored(payload)
        if kind == "a string":
            assert record.data == data.decode()
        else:
            assert (record.raw, record.content_type or "") == (data, kind)
        assert (record.key or "") == ("" if key is None else as_text(key))
        own = {
            "kafka_partition": f"{at % 3}", "kafka_offset": f"{at // 3}", "kafka_ts": f"{1_764_200_000_000 + at}",
        }  # fmt: skip
        assert record.meta == {name: as_text(value) for name, value in headers} | own


def test_what_is_not_as_it_was_is_told(call: Call) -> None:
    done = call("import", "t", str(KCAT), "--kafka-json")
    records = stored("topics-data")

    assert [record.data for record in records] == [{"order": 1}, "plain \0 😀", None, b"\0\xfe\xff\n"]
    assert [record.key for record in records] == ["ann", None, "ann", base64.b64encode(b"\xff\0").decode()]
    assert records[0].meta is not None
    assert records[0].meta["trace"] == ""
    assert "note: 1 record had a key or headers that are no text: they are base64 now" in done.err
    assert "note: 1 record had a header twice: the last of a name is kept" in done.err


def test_rpk_leaves_out_what_is_empty_and_values_by_a_schema_are_json(call: Call) -> None:
    done = call("import", "t", str(RPK), "--format", "kafka-json", "type=log")
    with_meta = [(record.data, record.key, record.meta) for record in stored("topics-data")]

    assert with_meta == [
        ({"a": [1, 2]}, "k", {"trace": "a1", "kafka_partition": "0", "kafka_offset": "7", "kafka_ts": "1764200000000"}),
        (None, None, {"kafka_partition": "0", "kafka_offset": "8", "kafka_ts": "1764200000001"}),
        ({"name": "x"}, '{"id":5}', {"kafka_partition": "2", "kafka_offset": "9"}),
    ]  # fmt: skip
    assert "note" not in done.err


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b'{"$seq":1,"data":5}', "is no message of Kafka: Object missing required field `partition`"),
        (b'{"partition":0,"offset":9,"payload":"', "is not JSON: "),
        (b'{"partition":0,"offset":9,"headers":["a"],"payload":"x"}', "has a name without a value"),
        (b'{"partition":0,"offset":9,"payload":"\\ud800"}', "is not JSON: "),
        (b'{"partition":0,"offset":9,"payload":%b}' % (b"[" * 300 + b"]" * 300), "is no JSON that a topic takes"),
        (b'{"partition":0,"offset":9,"key":"%b","payload":"x"}' % (b"k" * 300), "key"),
        (b'\xff{"partition":0}', "is not JSON: "),
    ],
)  # fmt: skip
def test_a_line_that_is_no_message_is_named_and_behind_it_it_goes_on(
    call: Call, tmp_path: pathlib.Path, line: bytes, told: str
) -> None:
    good = [kcat_line(at, b"%d" % at, None, []) for at in range(3)]
    file = tmp_path / "dump"
    file.write_bytes(good[0] + good[1] + line + b"\n" + good[2])
    failed = call("import", "t", str(file), "--kafka-json")
    assert failed.code == 1
    assert told in failed.err
    assert "2 records stored before it: mend the line and go on with --from-line 3" in failed.err

    call("import", "t", str(file), "--kafka-json", "--from-line", "4")
    assert [record.data for record in stored("topics-data")] == ["0", "1", "2"]


def test_a_file_that_looks_like_a_dump_is_told_the_way(call: Call, tmp_path: pathlib.Path) -> None:
    (tmp_path / "dump.jsonl").write_bytes(kcat_line(0, b"1", None, []))
    assert "for messages of Kafka: --kafka-json" in call("import", "t", f"{tmp_path}/dump.jsonl").err
    assert "--format jsonl|csv|parquet|kafka-json" in call("import", "t", f"{tmp_path}/dump").err
