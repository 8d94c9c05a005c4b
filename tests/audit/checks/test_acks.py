"""What clients were told is read from their own logs, whatever a killed one left of it."""

from __future__ import annotations

import pytest

from topics.audit.checks.acks import ANY_EPOCH, NO_DIGEST, load_acks
from topics.kernel.errors import Rejected


def columns(acks):
    return {topic: list(zip(*both, strict=True)) for (topic, _), both in acks.by_topic.items()}


def test_json_lines_with_and_without_digests(tmp_path):
    file = tmp_path / "acks.jsonl"
    file.write_text(
        '{"topic":"t","seq":1,"digest":"00000000000000ff"}\n{"topic":"t","seq":2,"digest":7}\n'
        '{"topic":"u","seq":3,"more":"is fine"}\n\n{"topic":"u","se'
    )
    acks = load_acks(file)

    assert columns(acks) == {"t": [(1, 255), (2, 7)], "u": [(3, NO_DIGEST)]}
    assert len(acks) == 3


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        '{"topic":"t"}',
        '{"topic":"t","seq":0}',
        '{"topic":"t","seq":1,"digest":"xyz"}',
        "nonsense",
        '{"topic":"t","seq":1,"sent_ms":"noon"}',
        '{"topic":"t","seq":1,"epoch":0}',
    ],
)
def test_a_line_that_says_something_else_is_refused_with_its_number(tmp_path, line):
    file = tmp_path / "acks.jsonl"
    file.write_text(f'{{"topic":"t","seq":1}}\n{line}\n')
    with pytest.raises(Rejected, match="line 2"):
        load_acks(file)


def test_a_line_may_say_which_topic_of_that_name_it_means(tmp_path):
    file = tmp_path / "acks.jsonl"
    file.write_text('{"topic":"t","seq":1,"epoch":2}\n{"topic":"t","seq":1}\n')

    assert load_acks(file).by_topic.keys() == {("t", 2), ("t", ANY_EPOCH)}


def test_parquet_says_the_same(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "acks.parquet"
    parquet.write_table(pa.table({"topic": ["t", "u"], "seq": [1, 3], "digest": [-1, None]}), file)

    assert columns(load_acks(file)) == {"t": [(1, 2**64 - 1)], "u": [(3, NO_DIGEST)]}
    parquet.write_table(pa.table({"topic": ["t"]}), file)
    with pytest.raises(Rejected, match="topic and seq are needed"):
        load_acks(file)


@pytest.mark.rule("P4.3")
def test_parquet_that_is_damaged_or_names_no_topic_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "acks.parquet"
    for topics in ([7], [b"t"], pa.array([None], pa.string())):
        parquet.write_table(pa.table({"topic": topics, "seq": [1]}), file)
        with pytest.raises(Rejected, match=r"line 1: .* is no name of a topic"):
            load_acks(file)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(Rejected, match="begins as Parquet, and is none that can be read"):
        load_acks(file)


@pytest.mark.rule("P4.12")
def test_a_line_may_say_when_the_write_was_sent_and_acknowledged(tmp_path):
    file = tmp_path / "acks.jsonl"
    file.write_text(
        '{"topic":"t","seq":1,"sent_ms":1700000000000.5,"acked_ms":1700000000002}\n'
        '{"topic":"t","seq":2,"sent_ms":7,"acked_ms":7}\n'
        '{"topic":"u","seq":1,"sent_ms":7,"acked_ms":6.5}\n'  # its clock was set back
        '{"topic":"u","seq":2,"sent_ms":7}\n{"topic":"u","seq":3,"acked_ms":null,"digest":1}\n'
    )
    acks = load_acks(file)

    assert {topic: list(took) for topic, took in acks.took_ms.items()} == {"t": [1.5, 0.0]}
    assert acks.fell == {"u": 1}
    assert len(acks) == 5


@pytest.mark.rule("P4.12")
def test_parquet_may_have_the_times_too(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "acks.parquet"
    rows = {"topic": ["t", "t", "t"], "seq": [1, 2, 3]}
    parquet.write_table(pa.table({**rows, "sent_ms": [10, 20, None], "acked_ms": [10.25, 24.0, 30.0]}), file)

    assert list(load_acks(file).took_ms["t"]) == [0.25, 4.0]
    for wrong in ([1.0, float("nan"), 2.0], ["noon", "1", "2"]):
        parquet.write_table(pa.table({**rows, "sent_ms": wrong}), file)
        with pytest.raises(Rejected, match=r"sent_ms is .*, and must be a number of ms"):
            load_acks(file)
