"""Bad input gets the stated error naming the field, nothing is written, and the store goes on (reliability 6)."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import os
import subprocess
import sys
import uuid
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.embed.conftest import OpenSim
from topics.calls import messages
from topics.kernel.errors import Unusable
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk

DEEP: Any = []
for _ in range(250):
    DEEP = [DEEP]

BAD_RECORDS = [
    (object(), "records"),
    ("text", "records: must"),
    ([], "at least one"),
    ([1], r"records\[0\]: must be a mapping"),
    ([{}], r"records\[0\]\.data: is missing"),
    ([{"data": 1, "tga": "x"}], "unknown field 'tga'"),
    ([{"data": 1, "tag": 1}], r"records\[0\]\.tag"),
    ([{"data": 1, "tag": ""}], r"records\[0\]\.tag"),
    ([{"data": 1, "tag": "x" * 257}], r"records\[0\]\.tag.*256"),
    ([{"data": 1, "node": "x" * 129}], r"records\[0\]\.node.*128"),
    ([{"data": 1, "key": "x" * 257}], r"records\[0\]\.key.*256"),
    ([{"data": 1, "dedup_id": "x" * 257}], r"records\[0\]\.dedup_id.*256"),
    ([{"data": 1, "dedup_id": "dl:1"}], r"records\[0\]\.dedup_id.*reserved"),
    ([{"data": 1, "ttl_ms": -1}], r"records\[0\]\.ttl_ms"),
    ([{"data": 1, "ttl_ms": True}], r"records\[0\]\.ttl_ms"),
    ([{"data": 1, "ttl_ms": 1.5}], r"records\[0\]\.ttl_ms"),
    ([{"data": 1, "priority": 3}], "priority.*only a queue"),
    ([{"data": 1, "delay_ms": 3}], "delay_ms.*only a queue"),
    ([{"data": 1, "meta": []}], r"records\[0\]\.meta"),
    ([{"data": 1, "meta": {"a": 1}}], r"records\[0\]\.meta"),
    ([{"data": 1, "meta": {"$a": "1"}}], r"records\[0\]\.meta.*reserved"),
    ([{"data": 1, "meta": {"_topicsx": "1"}}], r"records\[0\]\.meta.*reserved"),
    ([{"data": 1, "meta": {str(i): "1" for i in range(65)}}], r"records\[0\]\.meta.*64"),
    ([{"data": 1, "meta": {"a": "x" * 20_000}}], r"records\[0\]\.meta.*16384"),
    ([{"data": float("nan")}], r"records\[0\]\.data.*NaN"),
    ([{"data": [1, {"a": float("-inf")}]}], r"records\[0\]\.data.*NaN"),
    ([{"data": "\ud800"}], r"records\[0\]\.data"),
    ([{"data": {1, object()}}], r"records\[0\]\.data"),
    ([{"data": DEEP}], r"records\[0\]\.data.*200"),
    ([{"data": 1, "content_type": "text/plain"}], r"records\[0\]\.content_type"),
    ([{"data": {"x": topics.Raw(b"}{")}}], r"records\[0\]\.data"),
    ([{"data": [topics.Raw(b"\xff")]}], r"records\[0\]\.data"),
    ([{"data": 1}, {"data": {"x": topics.Raw(b"")}}], r"records\[1\]\.data"),
    ([{"data": 1, "key": "k"}, {"data": {"x": topics.Raw(b"1,2")}}], r"records\[1\]\.data"),
    ([topics.Raw(b"{")], r"records\[0\]\.data"),
    ([topics.Raw(b'"a\nb"')], r"records\[0\]\.data"),
    ([topics.Raw(b"1,2")], r"records\[0\]\.data"),
    ([{"data": 0}, topics.Raw(b"nan")], r"^records\[1\]\.data"),
    ([{"data": 0}, {"data": topics.Raw(b"nan")}], r"^records\[1\]\.data"),
    ([b"x", {"data": topics.Raw(b"1")}, topics.Raw(b"nan")], r"^records\[2\]\.data"),
    ([{"data": "x" * (1024 * 1024 + 1)}], r"records\[0\].*1048576"),
    ([{"data": 1}] * 10_001, "10000"),
]


@pytest.mark.parametrize(("records", "message"), BAD_RECORDS)
def test_a_bad_record_is_refused_by_name(store: topics.Store, records: Any, message: str) -> None:
    topic = store.create("t")

    with pytest.raises(topics.Rejected, match=message):
        topic.put_many(records)

    assert topic.state().head_seq == 0
    assert topic.put(1).first_seq == 1


BAD_READS: list[tuple[dict[str, Any], str]] = [
    ({"from_seq": -1}, "from_seq"),
    ({"from_seq": "1"}, "from_seq"),
    ({"from_seq": True}, "from_seq"),
    ({"from_ts": 1.5}, "from_ts"),
    ({"from_seq": 1, "from_ts": 1}, "not both"),
    ({"limit": -1}, "limit"),
    ({"match": 1}, "match"),
    ({"match": ["tag", "Glob", "a*b"]}, "Glob"),
    ({"match": ["tag", "Glob", "ab"]}, "Glob"),
    ({"match": ["tag", "Like", "ab"]}, "operator"),
    ({"match": ["key", "Eq", "ab"]}, "match"),
    ({"node": ["n"] * 65}, "64"),
    ({"node": [1]}, "node"),
    ({"epoch": -1}, "epoch"),
    ({"account": 1}, "account"),
    ({"max_bytes": -5}, "max_bytes"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_READS)
def test_a_bad_read_is_refused_by_name(store: topics.Store, arguments: dict[str, Any], message: str) -> None:
    topic = store.create("t")

    with pytest.raises(topics.Rejected, match=message) as refused:
        topic.read(**arguments)

    assert refused.value.code == "invalid_request"


@pytest.mark.parametrize("name", ["", ".a", "$x", "a/b", "../x", "a b", "é", "x" * 256, "a\n", 7, None, b"a"])
def test_a_bad_name_is_refused(store: topics.Store, name: Any) -> None:
    with pytest.raises(topics.Rejected, match="topic"):
        store.topic(name)
    with pytest.raises(topics.Rejected, match="topic"):
        store.create(name)


def test_what_is_not_there_is_said_so(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match="'nope' does not exist") as refused:
        store.topic("nope").read()
    assert refused.value.code == "topic_not_found"
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.topic("nope").state()
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.topic("nope").delete(before_seq=1)
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.topic("nope").put(1, create=False)
    assert list(store.list()) == []


@pytest.mark.rule("S2.14")
def test_a_creating_write_that_is_refused_leaves_no_topic(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match="priority"):
        store.topic("t").put(1, priority=3)
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.topic("t").put(1, expected_head=4)

    assert list(store.list()) == []


def test_a_full_disk_refuses_before_a_seq_and_accepts_again(store: topics.Store, disk: SimDisk) -> None:
    topic = store.create("t")
    topic.put_many([{"data": "x" * 1000}] * 100)
    free, disk.free = disk.free, 0

    with pytest.raises(topics.Rejected, match="disk space") as refused:
        for _ in range(2000):
            topic.put_many([{"data": "x" * 1000}] * 100)
    head_seq = topic.state().head_seq
    assert refused.value.code == "disk_low"
    with pytest.raises(topics.Rejected, match="disk space"):
        store.create("other")
    assert topic.delete(before_seq=50).deleted == 49

    disk.free = free
    assert topic.put("again").first_seq == head_seq + 1


@pytest.mark.rule("H1.36")
def test_a_full_disk_is_told_with_its_path_what_is_free_and_what_is_needed(
    open_sim: OpenSim, disk: SimDisk
) -> None:
    store = open_sim(min_free_bytes=5000)
    topic = store.create("t")
    disk.free = 700

    with pytest.raises(topics.Rejected) as refused:
        for _ in range(2000):
            topic.put_many([{"data": "x" * 1000}] * 100)
    size = refused.value.detail["needed_free_bytes"] - 5000
    assert (
        "sim/wal/gen-0/shard-00 has not enough disk space: 700 bytes are free, "
        f"{size + 5000} are needed ({size} for the next log file, and min_free_bytes 5000 beside it)"
    ) in refused.value.message
    assert refused.value.detail["path"] == "sim/wal/gen-0/shard-00"
    assert (refused.value.detail["free_bytes"], refused.value.detail["min_free_bytes"]) == (700, 5000)
    store.close()


@pytest.mark.rule("H1.36", "T3.24")
def test_no_descriptor_for_the_next_file_is_a_refusal_that_recovers(
    store: topics.Store, disk: SimDisk
) -> None:
    topic = store.create("t")
    for kind, words in (
        (FaultKind.EMFILE, "too many files are open: allow more"),
        (FaultKind.EIO, "the disk does not"),
    ):
        disk.inject("create", kind, times=None)
        with pytest.raises(topics.Rejected, match=words) as refused:
            for _ in range(2000):
                topic.put_many([{"data": "x" * 1000}] * 1000)
        assert refused.value.code == "disk_low"
        assert "the next log file" in refused.value.message
        head_seq = topic.state().head_seq

        disk.heal()
        assert topic.put("again").first_seq == head_seq + 1
    assert not store.read_only


@pytest.mark.rule("Q7.2")
def test_a_second_opener_is_told_the_owner(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        with pytest.raises(topics.CannotOpen, match=str(os.getpid())) as refused:
            topics.open(tmp_path)
        assert refused.value.reason is Unusable.IN_USE
        assert store.topic("t").put(1).first_seq == 1


def test_a_foreign_directory_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"x")

    with pytest.raises(topics.CannotOpen, match=r"holiday\.jpg") as refused:
        topics.open(tmp_path)

    assert refused.value.reason is Unusable.FOREIGN
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


def test_a_newer_format_is_refused_by_number(tmp_path: Path) -> None:
    topics.open(tmp_path).close()
    (tmp_path / "FORMAT").write_text(json.dumps({"format": 3, "shards": 1, "generation": 0}))

    with pytest.raises(topics.CannotOpen, match=r"format 3.*newer topics") as refused:
        topics.open(tmp_path)

    assert refused.value.reason is Unusable.NEWER_FORMAT


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": "x"}', b'{"format": 1}', b'{"format":1,"shards":0}']
)
def test_a_nonsense_format_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "FORMAT").write_bytes(content)

    with pytest.raises(topics.CannotOpen, match="FORMAT"):
        topics.open(tmp_path)


def test_a_file_and_a_missing_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(topics.CannotOpen, match="not a directory"):
        topics.open(tmp_path / "file")
    with pytest.raises(topics.CannotOpen, match="does not exist"):
        topics.open(tmp_path / "absent", create=False)
    assert not (tmp_path / "absent").exists()


def test_an_unwritable_directory_is_refused(tmp_path: Path) -> None:
    """As a child process of an ordinary user, for root may write anywhere."""
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    script = (
        "import os, sys, topics\n"
        "if os.getuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: topics.open(sys.argv[1])\n"
        "except topics.CannotOpen as refused: print(refused.reason.value, refused)\n"
    )
    script = "import topics.embed.store\n" + script  # imported before the user changes

    done = subprocess.run(
        [sys.executable, "-c", script, str(shut)], capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith("unwritable ") or "Permission" in done.stderr
    assert str(shut) in done.stdout


def test_a_bare_tag_with_a_star_is_taken_neither_way(store: topics.Store) -> None:
    """The wire has it as the very tag, and the command line had it as a glob: in Python one of them was a surprise."""
    topic = store.topic("t")
    topic.put_many([{"data": i, "tag": tag} for i, tag in enumerate(("us", "us-1", "us*", "eu"))])

    for call in (
        lambda: topic.read(match="us*"), lambda: topic.delete(match="us*"), lambda: next(topic.records(match="us*")),
    ):  # fmt: skip
        with pytest.raises(topics.Rejected, match="may mean this tag or all that begin so") as refused:
            call()
        assert 'write ["tag", "Glob", "us*"] for every tag that begins with \'us\'' in refused.value.message
        assert (refused.value.code, refused.value.detail["field"]) == ("invalid_request", "match")
    assert [record.data for record in topic.read(match=["tag", "Glob", "us*"]).records] == [0, 1, 2]
    assert [record.data for record in topic.read(match=("tag", "Eq", "us*")).records] == [2]
    assert topic.delete(match=["tag", "Eq", "us*"]).deleted == 1


@pytest.mark.parametrize(
    ("value", "where", "kind", "hint"),
    [
        ({"a": {1, 2}}, r"data\.a", "set", r"list\(\)"),
        (frozenset({1}), "data", "frozenset", r"list\(\)"),
        ({"price": decimal.Decimal("1.50")}, r"data\.price", "Decimal", r"str\(\)"),
        (
            [1, {"at": dt.datetime(2026, 11, 22, tzinfo=dt.UTC)}],
            r"data\[1\]\.at",
            "datetime",
            r"isoformat\(\)",
        ),
        ({"on": dt.date(2026, 11, 22)}, r"data\.on", "date", r"isoformat\(\)"),
        ({"for": dt.timedelta(1)}, r"data\.for", "timedelta", "number"),
        ({"id": uuid.UUID(int=7)}, r"data\.id", "UUID", r"str\(\)"),
        (uuid.UUID(int=7), "data", "UUID", r"str\(\)"),
        ({"raw": b"\0"}, r"data\.raw", "bytes", "base64"),
        ({"of": {uuid.UUID(int=7): 1}}, r"data\.of: a key", "UUID", "make it text"),
        ({"o": object}, "data", "type", ""),
    ],
)
def test_what_json_does_not_have_is_refused_and_not_made_something_else(
    store: topics.Store, value: Any, where: str, kind: str, hint: str
) -> None:
    topic = store.create("t")
    calls = (
        lambda: topic.put(value),
        lambda: topic.put(value, ttl_ms=5),
        lambda: topic.put_many([{"data": 1}, {"data": value}]),
        lambda: messages.write_body([{"data": value}], node=None, fields={}),
    )
    for call in calls:
        with pytest.raises(
            topics.Rejected, match=rf"records\[[01]\]\.{where}.*\b{kind}\b.*{hint}"
        ) as refused:
            call()
        assert refused.value.code == "invalid_request"
    assert topic.state().head_seq == 0


def test_subclasses_of_json_types_are_what_they_derive_from(store: topics.Store) -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    value = OrderedDict(a=Colour.RED, b=(1, 2), c=enum.IntEnum("N", "ONE").ONE, d=topics.Raw(b"[ 1]"))
    store.topic("t").put_many([{"data": value}, {"data": {"n": [value, None, True, 0.5]}, "ttl_ms": 5}])

    first, second = store.topic("t").read().records
    assert first.raw == b'{"a":"red","b":[1,2],"c":1,"d":[ 1]}'
    assert second.raw == b'{"n":[%b,null,true,0.5]}' % first.raw
