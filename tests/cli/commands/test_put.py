"""`put`: what it stores, what it says, and how it stops."""

from __future__ import annotations

import gzip
import json
import pathlib
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]


def stored(call: Call, topic: str) -> list[Any]:
    answer = call("get", topic, "--json")
    assert answer.code == 0, answer.err
    return answer.lines


@pytest.mark.rule("O2.4")
@pytest.mark.rule("O2.19")
def test_json_lines_are_stored_byte_for_byte(call: Call) -> None:
    lines = [b'{"b": 1.50, "a":  [ ]}', b'"\\u00e9"', b"1e2"]

    answer = call("put", "t", "-", stdin=b"\n".join([lines[0], b"", lines[1] + b"\r", b"  " + lines[2]]))

    assert answer.code == 0
    assert "3 records stored (seqs 1\u20133)" in answer.text
    page = call("get", "t", "--page").out
    assert all(b'"data":%b}' % line in page for line in lines)
    assert "1 record stored (seq 4), 2 B" in call("put", "t", stdin=b"4\n").text


@pytest.mark.rule("O2.4")
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", b"one\n\n\xc3\xa9 \"\n", ["one", "", 'é "']),
        ("a.csv", b'\xef\xbb\xbfa,b\n1,"x\ny"\n\n2,\n', [{"a": "1", "b": "x\ny"}, {"a": "2", "b": ""}]),
        ("a.tsv", b"a\tb\r\n1\t2\r\n", [{"a": "1", "b": "2"}]),
        ("a.json", b'[{"a": 1},\n 2]', [{"a": 1}, 2]),
        ("b.json", b'{"a":\n1}', [{"a": 1}]),
        ("c.json", b'{"a":1}\n{"a":2}\n', [{"a": 1}, {"a": 2}]),
        ("a.NDJSON", b"1\n2", [1, 2]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_gzip", [False, True])
def test_every_format_is_told_by_the_name(
    call: Call, tmp_path: pathlib.Path, name: str, content: bytes, expected: list[Any], is_gzip: bool
) -> None:
    path = tmp_path / (name + ".gz" if is_gzip else name)
    path.write_bytes(gzip.compress(content[:5]) + gzip.compress(content[5:]) if is_gzip else content)

    answer = call("put", "t", str(path))

    assert answer.code == 0, answer.err
    assert [record["data"] for record in stored(call, "t")] == expected


def test_gzip_that_unpacks_to_much_comes_in_pieces(call: Call, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress(b'"%b"\n' % (b"x" * 1000) * 3000))

    assert call("put", "t", str(path), "--json").lines[0]["count"] == 3000


@pytest.mark.rule("O2.4")
def test_tag_node_and_key_are_of_every_record_or_of_a_field(call: Call) -> None:
    call("put", "t", "--tag", "x", "--node", "n", "--key", "k", stdin=b"1\n2\n")
    call("put", "t", "--tag-field", "a.b", "--key-field", "k", stdin=b'{"a":{"b":"deep"},"k":7}\n{"a":1}\n')

    absent = call(
        "put", "u", "--tag-field", "a.c", "--key-field", "k", stdin=b'{"a":{"b":1}}\n{"k":2}\n{"k":3}\n'
    )
    assert absent.err.splitlines()[-2:] == [
        "topics: 3 of 3 records have no value in field a.c, and so no tag",
        "topics: 1 of 3 records has no value in field k, and so no key",
    ]
    whole = call("put", "u", "--tag-field", "k", "--json", stdin=b'{"k":2}\n')
    assert (absent.code, whole.code, whole.err, len(stored(call, "u"))) == (0, 0, "", 4)

    marks = [(r.get("$tag"), r.get("$node"), r.get("$key")) for r in stored(call, "t")]
    assert marks == [("x", "n", "k"), ("x", "n", "k"), ("deep", None, "7"), (None, None, None)]


@pytest.mark.rule("O2.4")
def test_batches_are_writes_and_share_their_time(call: Call) -> None:
    call("put", "t", "--batch", "2", "--rate", "1000", stdin=b"1\n2\n3\n4\n5\n")

    assert [record["data"] for record in stored(call, "t")] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("form", "content", "message"),
    [
        ("jsonl", b"1\n2\n{bad\n4\n", "line 3: is not JSON"),
        ("jsonl", b'1\n2\n"\xff"\n4\n', "line 3: is not UTF-8"),
        ("jsonl", b"1\n2\n" + b"[" * 300 + b"]" * 300 + b"\n4\n", "line 3: nests deeper than 200"),
        ("jsonl", b"1\n2\n" + b'"%b"\n' % (b"x" * 2**20), "line 3: 1048578 bytes of data"),
        ("jsonl", b"1\n2\n" + b'"%b"\n' % (b"x" * 2**21), "line 3: is longer than the 1048576 bytes"),
        ("jsonl", b"1\n2\n" + b'"%b"\n{bad\n' % (b"x" * 2**20), "line 3: 1048578 bytes of data"),
        ("text", b"1\n2\n\xff\n4\n", "line 3: is not UTF-8"),
        ("csv", b'a\n1\n2\n"3\n3",4\n', "line 4: has 2 fields, the header 1"),
    ],
)
@pytest.mark.parametrize("batch", ["1", "2", "100"])
def test_a_bad_line_is_named_with_what_is_stored_before_it(
    call: Call, form: str, content: bytes, message: str, batch: str
) -> None:
    answer = call("put", "t", "--format", form, "--batch", batch, "--json", stdin=content)

    assert answer.code == 1
    assert message in answer.err
    assert "2 records stored before it" in answer.err
    assert answer.lines[0]["count"] == 2
    assert message.partition(": ")[0] in answer.lines[0]["error"]
    assert len(stored(call, "t")) == 2


def test_what_is_stored_is_said_before_a_refusal_that_wrote_nothing(call: Call) -> None:
    call("create", "t", "cap_records=4", "discard=reject")
    answer = call("put", "t", "--batch", "2", stdin=b"1\n2\n3\n4\n5\n6\n7\n")

    assert answer.code == 1
    begun, _, rest = answer.err.partition(", and then: ")
    assert begun == "topics: 4 records stored (seqs 1\u20134), up to line 4"
    assert rest.startswith("topic 't' is full")
    assert rest.endswith("; go on with --from-line 5\n")


def test_after_a_bad_line_it_goes_on_where_it_stopped(call: Call) -> None:
    call("put", "t", stdin=b"1\n2\n{bad\n4\n")
    answer = call("put", "t", "--from-line", "3", stdin=b"1\n2\n3\n4\n")

    assert answer.code == 0
    assert [record["data"] for record in stored(call, "t")] == [1, 2, 3, 4]


def test_the_same_file_with_the_same_key_is_stored_once(call: Call) -> None:
    content = b"".join(b"%d\n" % i for i in range(25))
    for _ in range(2):
        answer = call("put", "t", "--idempotency-key", "k", "--batch", "10", "--json", stdin=content)
        assert answer.code == 0
    assert (answer.lines[0]["count"], answer.lines[0]["duplicates"]) == (0, 25)
    assert len(stored(call, "t")) == 25

    other = call("put", "t", "--idempotency-key", "k", "--batch", "10", stdin=content[2:])
    assert other.code == 1
    assert "used lately for other records" in other.err
    assert len(stored(call, "t")) == 25


def test_with_a_key_a_bad_line_stores_no_part_of_its_batch(call: Call) -> None:
    """Mended and run again, its batch must be new, or its records would be taken for stored."""
    call("put", "t", "--idempotency-key", "k", "--batch", "2", stdin=b"1\n2\n3\n{bad\n")
    answer = call("put", "t", "--idempotency-key", "k", "--batch", "2", stdin=b"1\n2\n3\n4\n")

    assert answer.code == 0
    assert [record["data"] for record in stored(call, "t")] == [1, 2, 3, 4]


def test_durability_is_that_of_a_topic_it_makes(call: Call) -> None:
    made = call("put", "t", "--durability", "fsync", "--json", stdin=b"1\n")
    again = call("put", "t", "--durability", "fsync", stdin=b"2\n")
    other = call("put", "t", "--durability", "disk", stdin=b"3\n")

    assert made.lines[0]["created"] is True
    assert made.lines[0]["durable_seq"] == 1
    assert (again.code, other.code) == (0, 1)
    assert "durability fsync" in other.err


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_an_empty_file_stores_nothing_and_is_no_error(
    call: Call, tmp_path: pathlib.Path, content: bytes
) -> None:
    (tmp_path / "e.jsonl").write_bytes(content)
    answer = call("put", "t", "e.jsonl")

    assert answer.code == 0
    assert "no records in e.jsonl" in answer.text
    assert "no topics" in call("ls").text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("t", "nowhere.jsonl"), 1, "nowhere.jsonl does not exist"),
        (
            ("t", '{"a":1}'),
            1,
            '{"a":1} does not exist; records are read from a file, or with - from standard input',
        ),
        (("t", "."), 1, "is a directory"),
        (("t", "plain"), 2, "give --format jsonl|json|csv|tsv|text"),
        (("bad name", "plain"), 2, "'bad name' is no topic name"),
        (("t", "plain", "--tag", "a", "--tag-field", "b"), 2, "--tag or --tag-field, not both"),
        (("t", "cut.gz", "--format", "text"), 1, "gzip that ends too early"),
        (("t", "broken.gz", "--format", "text"), 1, "damaged gzip"),
        (("t", "plain", "--format", "jsonl"), 1, "for plain text give --format text; nothing is stored"),
        (
            ("t", "plain", "--format", "text", "--tag", "x" * 300),
            1,
            "300 bytes are more than the limit of 256",
        ),
    ],
)
def test_what_cannot_be_put_is_said_in_one_line(
    call: Call, tmp_path: pathlib.Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    (tmp_path / "plain").write_bytes(b"hello\n")
    packed = gzip.compress(b"hello\n" * 100)
    (tmp_path / "cut.gz").write_bytes(packed[:-9])
    (tmp_path / "broken.gz").write_bytes(packed[:12] + b"\xff\xff\xff" + packed[15:])

    answer = call("put", *arguments)

    assert answer.code == code
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert [line for line in answer.err.splitlines() if "made the data directory" not in line][1:] == []


def test_lines_of_a_pipe_are_stored_when_they_come(
    spawn: Callable[..., subprocess.Popen[bytes]], call: Call
) -> None:
    """Ctrl-C ends it: what came is stored, and the exit code is 130."""
    child = spawn("put", "t", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None
    assert child.stderr is not None
    assert b"made the data directory" in child.stderr.readline()
    child.stdin.write(b"1\n2\n")
    child.stdin.flush()
    child.stdin.write(b"3\n")
    child.stdin.flush()
    wal = pathlib.Path("topics-data")
    while not any(b"2" in path.read_bytes()[64:] for path in wal.rglob("wal-*.log")):
        assert child.poll() is None
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=20)

    assert child.returncode == 130
    assert b"stored" in out
    assert b"Traceback" not in err
    assert [record["data"] for record in stored(call, "t")] in ([1, 2], [1, 2, 3])


def test_a_real_file_comes_back_as_it_is(call: Call, sample: pathlib.Path) -> None:
    call("put", "quakes", str(sample), "--tag-field", "properties.net")

    rows = [json.loads(line) for line in sample.read_bytes().splitlines()]
    assert [record["data"] for record in stored(call, "quakes")] == rows
    of_us = call("get", "quakes", "--match", "us", "--json").lines
    assert [record["data"] for record in of_us] == [row for row in rows if row["properties"]["net"] == "us"]


def test_what_had_no_tag_is_told_if_a_bad_line_ends_it_too(call: Call) -> None:
    stopped = call("put", "u", "--tag-field", "a", stdin=b'{"k":2}\nno json\n')

    assert stopped.code == 1
    assert "topics: 1 of 1 record has no value in field a, and so no tag" in stopped.err.splitlines()
