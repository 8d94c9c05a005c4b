"""`topics export` to a file and `topics import` of it: what comes back, what is told, what becomes of the file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pathlib
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings

import topics
from tests.cli.conftest import Call
from topics.cli.core.failure import Failed
from topics.cli.exchange.exporting import Exported, export_to
from topics.cli.exchange.importing import ImportedFile
from topics.cli.exchange.outlet import opened
from topics.cli.exchange.putting import BATCH_BYTES_MAX, PutRules, Putting
from topics.cli.io.interrupts import Interrupts

pytestmark = pytest.mark.rule("O2.14")

FILES = ("out.jsonl", "out.jsonl.gz", "out.ndjson", "out.csv", "out.csv.gz", "out.parquet")

_words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), _words)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
_metas = st.dictionaries(
    _words.filter(lambda name: not name.startswith(("$", "_topics"))), _words, max_size=3
)
_labels = {"tag": _words, "node": _words, "key": _words, "meta": _metas}
_json_records = st.fixed_dictionaries({"data": _values}, optional=_labels)
_raw_records = st.fixed_dictionaries(
    {"data": st.binary(max_size=20)}, optional=_labels | {"content_type": st.just("image/png")}
)
_records = st.lists(_json_records | _raw_records, min_size=1, max_size=16)


def fields_of(record: topics.Record) -> tuple[Any, ...]:
    """All that an import brings back; the payload byte for byte."""
    return (record.raw, record.node, record.tag, record.key, record.content_type, record.meta)


def stored(root: pathlib.Path | str, topic: str = "t") -> list[topics.Record]:
    with topics.open(root) as store:
        return [one for one in store.topic(topic).records() if isinstance(one, topics.Record)]


def seqs_in(file: str) -> list[int]:
    return [json.loads(line)["$seq"] for line in pathlib.Path(file).read_bytes().splitlines()]


@given(records=_records)
@example(
    records=[
        {"data": "a\rb", "tag": "a\rb", "key": "a\nb", "node": '"', "meta": {"m": "\r\n"}},
        {"data": b""},
    ]
)
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("file", ["out.jsonl", "out.csv.gz", "out.parquet"])
def test_what_is_exported_comes_back(
    call: Call, tmp_path_factory: Any, file: str, records: list[Any]
) -> None:
    """Every field, and each payload byte for byte: unicode, floats, nesting, bytes; there and in one more round."""
    home = tmp_path_factory.mktemp("round")
    with topics.open(home / "first") as store:
        store.create("t")
        store.topic("t").put_many(records)
    for source, target in (("first", "second"), ("second", "third")):
        out = call("export", "t", str(home / source / file), "--data", str(home / source))
        back = call("import", "t", str(home / source / file), "--data", str(home / target))

        assert (out.code, back.code) == (0, 0), out.err + back.err

    before = stored(home / "first")
    after = stored(home / "third")

    assert [fields_of(record) for record in before] == [fields_of(record) for record in after]
    assert len(before) == len(records)


@pytest.mark.parametrize("file", FILES)
def test_every_format_at_a_directory_and_at_a_server(at: Call, sample: pathlib.Path, file: str) -> None:
    """Out, back in under another name, out again: the same records."""
    at("put", "quakes", str(sample), "--tag-field", "properties.net", "--key-field", "properties.net")
    out = at("export", "quakes", file, "--json")
    back = at("import", "again", file, "durability=memory", "--json")
    there = at("get", "again", "--json").lines

    assert (out.code, back.code) == (0, 0), out.err + back.err
    assert out.lines[0]["records"] == back.lines[0]["count"] == 1707
    assert (out.lines[0]["first_seq"], out.lines[0]["last_seq"], out.lines[0]["lost"]) == (1, 1707, {})
    assert at("state", "again", "--json").lines[0]["config"]["durability"] == "memory"
    for was, now in zip(at("get", "quakes", "--json").lines, there, strict=True):
        assert was | {"$ts": 0} == now | {"$ts": 0}


def test_json_lines_are_those_of_get(call: Call, sample: pathlib.Path) -> None:
    """So whatever reads one reads the other, and `import` takes both."""
    call("put", "t", str(sample), "--tag-field", "properties.net")

    assert call("export", "t", "-").out == call("get", "t", "--json").out


def test_a_row_of_csv_has_a_cell_a_field(call: Call) -> None:
    """Meta and payload as JSON text; bytes as base64, under their content type."""
    with topics.open("topics-data") as store:
        store.topic("t").put({"a": 'x "y"\n'}, tag="r\r\ng", meta={"m": "1"})
        store.topic("t").put(b"\x00\xff")
    first, second = csv.DictReader(io.StringIO(call("export", "t", "-", "--csv").text, newline=""))

    assert (first["seq"], first["tag"], first["meta"]) == ("1", "r\r\ng", '{"m":"1"}')
    assert json.loads(first["data"]) == {"a": 'x "y"\n'}
    assert (second["content_type"], second["data"], second["key"]) == ("application/octet-stream", "AP8=", "")


def test_parquet_has_types(call: Call) -> None:
    """Times, a map, text for JSON and binary for bytes; what is absent is null."""
    with topics.open("topics-data") as store:
        store.topic("t").put({"a": 1}, meta={"m": "1"})
        store.topic("t").put(b"\x00\xff", key="k")
        ts = store.topic("t").read().records[0].ts
    call("export", "t", "t.parquet")
    table = pq.read_table("t.parquet")
    first, second = table.to_pylist()

    assert (first["seq"], round(first["ts"].timestamp() * 1000), first["data"]) == (1, ts, '{"a":1}')
    assert (dict(first["meta"]), first["bytes"], first["tag"]) == ({"m": "1"}, None, None)
    assert (second["data"], second["bytes"], second["key"], second["meta"]) == (None, b"\x00\xff", "k", None)
    assert str(table.schema.field("ts").type) == "timestamp[ms, tz=UTC]"


def test_what_is_lost_is_told_and_counted(at: Call) -> None:
    """On stderr, which and why; with --json in the summary, too. The file has the rest."""
    at("create", "t", "cap_records=3")
    at("put", "t", "-", stdin=b"".join(b"%d\n" % n for n in range(10)))
    told = at("export", "t", "out.jsonl")
    summed = at("export", "t", "out.csv", "--json").lines[0]

    assert told.text == "t: 3 records (seqs 8–10) written to out.jsonl\n"
    assert "∅ LOST seqs 1–7 [cap] 7 records: evicted by the topic's cap, or gone before\n" in told.err
    assert "LOST: 7 records of t before these or between (7 cap)\n" in told.err
    assert seqs_in("out.jsonl") == [8, 9, 10]
    assert summed["lost"] == {"cap": 7}
    assert [(one["gap_from"], one["gap_to"]) for one in summed["tombstones"]] == [(1, 7)]


def test_a_part_of_a_topic(call: Call) -> None:
    """By seq and by tag."""
    call("put", "t", "-", "--tag-field", "n", stdin=b'{"n":"a"}\n{"n":"b"}\n{"n":"a"}\n')
    call("export", "t", "tagged.jsonl", "--match", "a")
    call("export", "t", "later.jsonl", "--from", "2")

    assert seqs_in("tagged.jsonl") == [1, 3]
    assert seqs_in("later.jsonl") == [3]


def test_standard_streams(at: Call) -> None:
    """JSON lines unless a flag says otherwise; what is said of it goes to stderr."""
    at("put", "t", "-", stdin=b"1\n2\n")
    out = at("export", "t", "-", "--csv")
    back = at("import", "u", "-", "--csv", stdin=out.out)
    packed = at("import", "u", "-", stdin=gzip.compress(at("export", "t", "-").out))

    assert out.err.endswith("t: 2 records (seqs 1–2) written to standard output\n")
    assert "(seq 2) written" in at("export", "t", "-", "--from", "1").err
    assert (back.code, packed.code) == (0, 0), back.err + packed.err
    assert [row["data"] for row in at("get", "u", "--json").lines] == [1, 2, 1, 2]


def test_parquet_to_a_pipe_but_not_from_one(call: Call) -> None:
    call("put", "t", "-", stdin=b"1\n")
    out = call("export", "t", "-", "--parquet")
    back = call("import", "u", "-", "--parquet", stdin=out.out)

    assert pq.read_table(io.BytesIO(out.out)).num_rows == 1
    assert back.code == 2
    assert "not from a pipe" in back.err


def test_what_broke_off_leaves_the_file_that_was_there(call: Call) -> None:
    """Nothing else either: a damaged record ends an export, which says how to go on behind it."""
    call("put", "t", "-", stdin=b"".join(b'"record %d"\n' % n for n in range(5)))
    with topics.open("topics-data") as store:
        store.checkpoint()
    (segment,) = pathlib.Path("topics-data").rglob("seg-*.data")
    segment.write_bytes(segment.read_bytes().replace(b"record 2", b"record 7"))
    for file in FILES:
        pathlib.Path(file).write_text("what was there")
    names = set(pathlib.Path().iterdir())
    for file in FILES:
        answer = call("export", "t", file, "--force")

        assert answer.code == 1
        assert "(--from 3)" in answer.err
        assert pathlib.Path(file).read_text() == "what was there"
    assert set(pathlib.Path().iterdir()) == names
    assert call("export", "t", "rest.csv", "--from", "3").code == 0


@pytest.mark.parametrize("is_there", [False, True])
def test_an_interrupt_leaves_the_folder_as_it_was(tmp_path: pathlib.Path, is_there: bool) -> None:
    target = tmp_path / "out.csv"
    if is_there:
        target.write_text("before")
    with pytest.raises(KeyboardInterrupt), opened(str(target)) as file:
        file.write(b"half")
        raise KeyboardInterrupt

    assert [path.name for path in tmp_path.iterdir()] == (["out.csv"] if is_there else [])
    assert not is_there or target.read_text() == "before"


def test_a_file_that_is_there_is_overwritten_only_by_force(at: Call) -> None:
    at("put", "t", "-", stdin=b"1\n")
    pathlib.Path("out.csv").write_text("before")
    refused = at("export", "t", "out.csv")

    assert (refused.code, refused.out) == (2, b"")
    assert refused.err == "topics: FILE: out.csv is there already: name another file, or pass --force\n"
    assert pathlib.Path("out.csv").read_text() == "before"
    assert at("export", "t", "out.csv", "--force").code == 0
    assert pathlib.Path("out.csv").read_text().startswith("seq,")
    pathlib.Path("empty.csv").touch()
    assert at("export", "t", "empty.csv").code == 0


def test_a_file_that_standard_output_leads_to_is_gone_on_with(call: Call, tmp_path: pathlib.Path) -> None:
    """By each of its names, and what the shell has put in it before stays."""
    call("put", "t", "-", stdin=b"1\n")
    for name in ("-", "/dev/stdout"):
        out = tmp_path / "out"
        out.write_bytes(b"head\n")
        with out.open("ab") as file:
            command = [sys.executable, "-m", "topics", "export", "t", name, "--jsonl"]
            subprocess.run(command, stdout=file, check=True)
            file.write(b"foot\n")

        head, *lines, foot = out.read_bytes().splitlines()
        assert (head, len(lines), foot) == (b"head", 1, b"foot")


def test_a_file_by_the_name_of_a_descriptor_is_one_that_is_there(at: Call) -> None:
    at("put", "t", "-", stdin=b"1\n")
    path = pathlib.Path("out.csv")
    path.write_text("before")
    with path.open("ab") as file:
        refused = at("export", "t", f"/dev/fd/{file.fileno()}", "--csv")

    assert refused.code == 2
    assert path.read_text() == "before"


def test_a_file_keeps_its_mode_and_a_link_stays_one(call: Call, tmp_path: pathlib.Path) -> None:
    """Who may read what is there may be few; and a link names the place where it is to be."""
    call("put", "t", "-", stdin=b"1\n")
    real = tmp_path / "real.csv"
    real.write_text("before")
    real.chmod(0o600)
    (tmp_path / "link.csv").symlink_to(real)

    assert call("export", "t", "link.csv", "--force").code == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert real.read_bytes().startswith(b"seq,")


@pytest.mark.parametrize("form", ["--jsonl", "--csv", "--parquet"])
def test_a_pipe_that_nobody_reads_and_a_device(call: Call, form: str) -> None:
    """Neither is waited for, nor replaced by a file."""
    call("put", "t", "-", stdin=b"1\n")
    os.mkfifo("pipe")
    refused = call("export", "t", "pipe", form)
    fd = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert call("export", "t", "pipe", form).code == 0
        assert b"1" in os.read(fd, 1 << 16)
    finally:
        os.close(fd)

    assert refused.code == 1
    assert "is a pipe that nobody reads" in refused.err
    assert call("export", "t", "/dev/null", form).code == 0
    assert stat.S_ISFIFO(pathlib.Path("pipe").stat().st_mode)
    assert stat.S_ISCHR(pathlib.Path("/dev/null").stat().st_mode)


def test_a_pipe_that_has_no_name_but_its_descriptors(call: Call) -> None:
    """As the shell's `>(gzip > file)` and /dev/stdout are. What is said is not in it."""
    call("put", "t", "-", stdin=b"1\n")
    command = [sys.executable, "-m", "topics", "export", "t", "/dev/stdout", "--csv"]
    said = subprocess.run(command, capture_output=True, check=True)
    assert said.stdout.count(b"\r\n") == said.stdout.count(b"\n") == 2
    assert b"1 record (seq 1)" in said.stderr
    reads, writes = os.pipe()
    try:
        done = call("export", "t", f"/dev/fd/{writes}", "--jsonl")
        assert (done.code, done.err) == (0, "")
        assert b'"data":1}' in os.read(reads, 1 << 16)
    finally:
        os.close(reads)
        os.close(writes)


@pytest.mark.parametrize("form", ["--jsonl", "--csv", "--parquet"])
def test_a_device_that_is_full_and_a_reader_that_goes_away(call: Call, form: str) -> None:
    """Both are told, with exit code 1: not everything is where it was to go."""
    call("put", "t", "-", stdin=b"1\n")
    full = call("export", "t", "/dev/full", form)
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(Failed, match="pipe cannot be written: Broken pipe"), opened("pipe") as sink:
        os.close(reader)
        sink.write(b"to nobody")

    assert full.code == 1
    assert full.err.endswith("FILE: /dev/full cannot be written: No space left on device\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export", "t"), "say where to"),
        (("import", "t"), "say where from"),
        (("export", "t", "out.xlsx"), "does not tell its format"),
        (("export", "t", "out.parquet.gz"), "leave .gz off"),
        (("export", "t", ".", "--csv"), "is a directory"),
        (("export", "t", "mm.jsonl.gz", "--csv"), "the name of mm.jsonl.gz says jsonl and --format csv"),
        (("import", "t", "."), "--ledgerq ."),
        (("export", "t", "out.csv", "--ledgerq", "dir"), "instead of a file"),
        (("bench", "--html", "full"), "--html: full is there already"),
        (("fsck", "topics-data", "--out", "full"), "--out: full is there already"),
        (("spark", "report", "t", "--out", "full"), "--out: full is there already"),
        (("import", "t", "--ledgerq", "dir", "--csv"), "no flag of files"),
        (("import", "t", "in.csv", "--new-timestamps"), "go with --ledgerq only"),
        (("import", "t", "in.csv", "--from-line", "2", "--idempotency-key", "k"), "does not go with"),
    ],
)
def test_what_is_asked_wrongly(call: Call, arguments: tuple[str, ...], said: str) -> None:
    """One line that says what to do, and exit code 2."""
    call("put", "t", "-", stdin=b"1\n")
    pathlib.Path("full").write_text("before")
    answer = call(*arguments)

    assert (answer.code, answer.out) == (2, b"")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_a_folder_that_is_not_there(call: Call) -> None:
    call("put", "t", "-", stdin=b"1\n")
    answer = call("export", "t", "nowhere/out.csv")

    assert answer.code == 1
    assert "out.csv cannot be written: No such file or directory" in answer.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.jsonl", b'{"data":1}\n{"data":2,"tag":"x"}\n', "line 2: is no record of an export: Object"),
        ("in.jsonl", b'{"data":1}\n{"tombstone":{}}\n', "line 2: is no record of an export"),
        ("in.jsonl", b'{"data":1}\n\n17\n', "line 3: is no record of an export"),
        ("in.jsonl", b'{"data":1}\n{"data":\n', "line 2: is not JSON"),
        ("in.jsonl", b'{"data":1}\n{"data":{"$bytes":"?"},"$content_type":"x"}\n', "line 2: has a content type"),
        ("in.jsonl", b'{"data":1}\n{"data":{"$bytes":"\xc3\xa4"},"$content_type":"x"}\n', "line 2: has a content"),
        ("in.jsonl", b'{"data":1}\n{"data":1,"$tag":"\xff"}\n', "line 2: is not JSON"),
        ("in.jsonl", b'{"data":1}\n{"data":"\xff"}\n', "line 2: is not UTF-8"),
        ("in.jsonl", b'{"data":1}\n{"data":1,"$tag":"%b"}\n' % (b"x" * 300), "line 2: tag"),
        ("in.csv", b"data,tag\r\n1,a\r\n2\r\n", "line 3: has 1 field, the header 2"),
        ("in.csv", b"data,meta\r\n1,\r\n2,{\r\n", "line 3: has a meta that is no object"),
        ("in.csv", b"data,content_type\r\n1,\r\n\xc3\xa4,x\r\n", "line 3: has a content type, and data that is not"),
        ("in.csv", b"data\r\n1\r\nword\r\n", "line 3: is not JSON"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_named(call: Call, name: str, content: bytes, said: str) -> None:
    """With its line; what is before it is stored, and how to go on is said."""
    pathlib.Path(name).write_bytes(content)
    answer = call("import", "t", name)

    assert answer.code == 1
    assert said in answer.err
    assert "1 record stored before it" in answer.err
    assert [row["data"] for row in call("get", "t", "--json").lines] == [1]


@pytest.mark.parametrize("head", [b"a,b\r\n", b"seq,ts\r\n", b"data,data\r\n"])
def test_a_table_that_is_no_export(call: Call, head: bytes) -> None:
    pathlib.Path("in.csv").write_bytes(head + b"1,2\r\n")
    answer = call("import", "t", "in.csv")

    assert answer.code == 1
    assert "line 1: is no header of an export" in answer.err
    assert "topics put" in answer.err


def test_parquet_that_is_no_export(call: Call) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"data": ["1"], "colour": ["red"]}), "other.parquet")
    pq.write_table(
        pa.table({"data": ["1", None], "bytes": pa.array([None, None], pa.binary())}), "hole.parquet"
    )
    no_text = pa.StringArray.from_buffers(
        1, pa.py_buffer(bytes([0, 0, 0, 0, 1, 0, 0, 0])), pa.py_buffer(b"\xff")
    )
    pq.write_table(pa.table({"data": no_text}), "bytes.parquet")
    pathlib.Path("text.parquet").write_text("no parquet")

    assert "has the column 'colour'" in call("import", "t", "other.parquet").err
    assert "row 2: has neither data nor bytes" in call("import", "t", "hole.parquet").err
    assert "bytes.parquet cannot be read as Parquet" in call("import", "t", "bytes.parquet").err
    assert "cannot be read as Parquet" in call("import", "t", "text.parquet").err


def test_an_import_is_gone_on_with_or_done_once(at: Call) -> None:
    """From a line on, and by a key: twice the same file is stored once."""
    pathlib.Path("in.jsonl").write_bytes(b"".join(b'{"data":%d}\n' % n for n in range(5)))
    at("import", "t", "in.jsonl", "--from-line", "4")
    once = at("import", "u", "in.jsonl", "--idempotency-key", "k", "--json").lines[0]
    again = at("import", "u", "in.jsonl", "--idempotency-key", "k", "--json").lines[0]

    assert [row["data"] for row in at("get", "t", "--json").lines] == [3, 4]
    assert (once["count"], again["count"], again["duplicates"]) == (5, 0, 5)


def test_what_only_a_store_may_say_is_left_out_and_told(call: Call) -> None:
    """A copy by a router says so in its meta; imported, it is a record as any."""
    call("create", "source")
    call("router", "put", "copy", "--source", "source", "--dest", "dest", "--exactly-once")
    call("put", "source", "-", stdin=b"1\n")
    call("export", "dest", "dest.jsonl")
    answer = call("import", "again", "dest.jsonl")

    assert b"_topics_router" in pathlib.Path("dest.jsonl").read_bytes()
    assert answer.code == 0
    assert "note: 1 record came by a router or as dead letters; where from is left out\n" in answer.err
    assert "meta" not in call("get", "again", "--json").lines[0]


def test_large_records_go_in_several_writes() -> None:
    """No write is larger than 8 MiB and a record, whatever a file holds."""
    count = 2 * BATCH_BYTES_MAX // 1_000_002 + 1
    pathlib.Path("in.jsonl.gz").write_bytes(gzip.compress(b'{"data":"%b"}\n' % (b"x" * 1_000_000) * count))
    file = ImportedFile("in.jsonl.gz", "jsonl")
    with topics.open("topics-data") as store:
        records = file.records(line_max=store.limits.record_bytes)
        putting = Putting(store, store.topic("t"), records, file.origin, PutRules(batch=5000), Interrupts())

        assert [putting.stored for _ in putting.steps()] == [9, 17]
    file.close()


def test_what_comes_during_an_export_is_not_in_it() -> None:
    """It goes up to the head as it was; a topic that was made anew meanwhile is another one."""

    def pages(store: topics.Store) -> Iterator[topics.Page]:
        store.topic("t").put(2)
        yield store.topic("t").read()
        store.delete("t")
        store.topic("t").put(3)
        yield store.topic("t").read()

    with topics.open("topics-data") as store:
        store.topic("t").put(1)
        epoch = store.topic("t").state().epoch
        done = Exported(topic="t", file="t.jsonl", format="jsonl", epoch=epoch, head_seq=1)
        first = next(pages(store))
        export_to("t.jsonl", [first], done, lambda _: None)
        with pytest.raises(Failed, match="deleted and created again"):
            export_to("u.jsonl", pages(store), done, lambda _: None)

    assert len(first.records) == 2
    assert seqs_in("t.jsonl") == [1]
    assert not pathlib.Path("u.jsonl").exists()


def test_without_pyarrow_the_extra_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other formats need nothing."""
    for name in (
        "topics.cli.exchange.parquet",
        *(name for name in sys.modules if name.startswith("pyarrow")),
    ):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    call("put", "t", "-", stdin=b"1\n")
    answer = call("export", "t", "t.parquet")

    assert answer.code == 1
    assert "pip install 'topics-log[parquet]'" in answer.err
    assert call("export", "t", "t.csv").code == 0


def test_a_file_that_breaks_off_is_stored_so_far_and_goes_on_from_there(call: Call) -> None:
    """As a download does that was cut: what is whole is stored, and with a whole file the rest."""
    lines = [b'{"data":"%s"}\n' % os.urandom(20).hex().encode() for _ in range(20_000)]
    whole = gzip.compress(b"".join(lines))
    pathlib.Path("in.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    cut = call("import", "t", "in.jsonl.gz")
    told = re.search(r"gzip that ends too early.*with a whole file go on with --from-line (\d+)", cut.err)

    assert cut.code == 1
    assert told is not None, cut.err
    assert len(stored("topics-data")) == int(told[1]) - 1 > 1000

    pathlib.Path("in.jsonl.gz").write_bytes(whole)
    call("import", "t", "in.jsonl.gz", "--from-line", told[1])

    assert [b'{"data":%b}\n' % record.raw for record in stored("topics-data")] == lines


def test_what_a_killed_export_left_goes_with_the_next_one(call: Call) -> None:
    """Of that file, and not what another export is writing."""
    call("put", "t", "-", stdin=b"1\n")
    script = (
        "import sys, topics.cli.exchange.outlet as o\n"
        "with o.opened(sys.argv[1]) as f: f.write(b'x'); print(flush=True); sys.stdin.read()"
    )
    others = {}
    for name in ("out.jsonl", "other.jsonl"):
        process = subprocess.Popen(
            [sys.executable, "-c", script, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        others[name] = process
    begun = set(pathlib.Path().glob(".topics-export-*"))
    try:
        assert len(begun) == 2
        assert call("export", "t", "out.jsonl").code == 0
        assert set(pathlib.Path().glob(".topics-export-*")) == begun
        for process in others.values():
            process.kill()
            process.wait()
        kept = {path.with_name(f"{path.name}.bak") for path in begun}  # nothing that an export has made
        for path in kept:
            path.touch()
        assert call("export", "t", "out.jsonl", "--force").code == 0
        assert len(set(pathlib.Path().glob(".topics-export-*")) - kept) == 1
        assert call("export", "t", "other.jsonl").code == 0
        assert set(pathlib.Path().glob(".topics-export-*")) == kept
    finally:
        for process in others.values():
            process.kill()
            process.communicate()


def test_an_export_is_not_taken_for_abandoned_when_its_file_gets_its_name(call: Call) -> None:
    call("put", "t", "-", stdin=b"1\n")
    others = [b"another"]  # written right before the first gets its name

    def export_meanwhile(event: str, _: object) -> None:
        if event == "os.rename" and others:
            data = others.pop()
            with opened("out.jsonl") as file:
                file.write(data)

    sys.addaudithook(export_meanwhile)
    assert call("export", "t", "out.jsonl").code == 0
    assert not others
    assert json.loads(pathlib.Path("out.jsonl").read_bytes())["data"] == 1
