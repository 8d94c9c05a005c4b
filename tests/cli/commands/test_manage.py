"""`create`, `configure`, `state`, `ls`, `rm`, `delete`, `compact`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import topics

Call = Callable[..., Any]


@pytest.mark.rule("O2.7")
@pytest.mark.rule("O2.25")
def test_a_topic_is_made_shown_changed_and_deleted(call: Call) -> None:
    made = call(
        "create", "t", "ttl_ms=1d", "cap_bytes=10MiB", "durability=fsync", "auto_priority=false", "--json"
    )
    config = made.lines[0]["config"]
    assert (config["ttl_ms"], config["cap_bytes"], config["durability"]) == (86_400_000, 10 * 2**20, "fsync")
    assert config["auto_priority"] is False

    changed = call("configure", "t", "cap_records=5", "--json").lines[0]["config"]
    assert changed == config | {"cap_records": 5}
    replaced = call("configure", "t", "--replace", "cap_records=6", "--json").lines[0]["config"]
    assert (replaced["cap_records"], replaced["ttl_ms"], replaced["durability"]) == (6, 0, "disk")

    call("put", "t", stdin=b"1\n2\n3\n")
    state = call("state", "t", "--json").lines[0]
    assert {name: state[name] for name in ("topic", "type", "head_seq", "earliest_seq", "evict_floor", "count")} == {
        "topic": "t", "type": "log", "head_seq": 3, "earliest_seq": 1, "evict_floor": 1, "count": 3,
    }  # fmt: skip
    assert call("ls", "--json").lines[0]["topic"] == "t"
    assert "cap_records" in call("state", "t").text

    assert call("rm", "t", "--yes", "--json").lines == [{"topic": "t", "deleted": True}]
    assert "no topics in topics-data" in call("ls").text


@pytest.mark.rule("S3.33")
def test_create_leaves_a_topic_that_is_there_as_it_is(call: Call) -> None:
    made = call("create", "t", "cap_records=9", "--json").lines
    call("put", "t", stdin=b"1\n2\n3\n")

    assert "is there already" in call("create", "t").text
    assert "is there already" in call("create", "t", "cap_records=9").text
    refused = call("create", "t", "cap_records=1")
    assert (refused.code, refused.out) == (1, b"")
    assert "cap_records: 9 there, 1 asked" in refused.err
    assert "take it as it is (--exist-ok), or change it (topics configure t cap_records=1)" in refused.err
    assert call("create", "t", "cap_records=1", "--exist-ok", "--json").lines == made
    assert call("state", "t", "--json").lines[0]["count"] == 3


def test_what_was_moved_into_range_is_told(call: Call) -> None:
    call("create", "t")
    rules = ("lease_ms=5", "cap_records=10", 'retry_backoff={"base_ms": 1, "factor": 0.5, "max_ms": 9}')
    moved = [
        "topics: config.lease_ms: 5 ms is out of range, and was moved to 100 ms",
        "topics: config.retry_backoff.factor: 0.5 is out of range, and was moved to 1.0",
    ]

    assert call("create", "q", "type=queue", *rules).err.splitlines() == moved
    assert call("create", "q", "type=queue", *rules).err.splitlines() == moved
    assert (
        call("configure", "t", *rules, "--json").err.splitlines()[:-1] == moved
    )  # and that a log has no leases
    assert call("create", "t", "cap_records=20", "--exist-ok").err == ""  # nothing was asked of this one
    assert call("create", "d", "durable=true", "durability=memory").err == ""  # an alias that does not count


def test_durability_and_its_alias_do_not_contradict_each_other(call: Call) -> None:
    call("create", "t", "durable=true")
    assert call("configure", "t", "durability=memory", "--json").lines[0]["config"]["durable"] is False
    assert call("configure", "t", "durable=true", "--json").lines[0]["config"]["durability"] == "fsync"


@pytest.mark.rule("O2.7")
def test_ls_is_by_name_and_prefix(call: Call) -> None:
    with topics.open("topics-data") as store:
        for name in ("b", "ab", "a"):
            store.topic(name).put(1)

    assert [line["topic"] for line in call("ls", "--json").lines] == ["a", "ab", "b"]
    assert [line["topic"] for line in call("ls", "--prefix", "a", "--json").lines] == ["a", "ab"]
    table = call("ls").text.splitlines()
    assert table[0].split()[:2] == ["topic", "type"]
    assert "no topics whose name begins with 'x'" in call("ls", "--prefix", "x").text


@pytest.mark.rule("O2.7")
def test_delete_takes_one_selector_or_both(call: Call) -> None:
    with topics.open("topics-data") as store:
        store.topic("t").put_many([{"data": i, "tag": "ab" if i % 2 else "b"} for i in range(1, 11)])

    positional = call("delete", "t", "6")
    assert (
        positional.code,
        "--before 6 deletes those below that seq, --match 6 deletes" in positional.err,
    ) == (
        2,
        True,
    )
    assert call("delete", "t", "a").err == (
        "topics: say by an option which records: --match a deletes those with that tag\n"
    )
    refused = call("delete", "t", "--before", "6", "--match", "a*")
    assert (refused.code, 'write ["tag", "Glob", "a*"]' in refused.err) == (2, True)
    assert call("delete", "t", "--before", "6", "--match", '["tag", "Glob", "a*"]', "--json").lines[0] == {
        "topic": "t", "deleted": 3, "earliest_seq": 2, "head_seq": 10, "count": 7, "bytes": 8,
    }  # fmt: skip
    assert "2 records deleted, 5 records left" in call("delete", "t", "--before", "5").text
    assert call("get", "t", "--json").lines[0]["$seq"] == 6


def test_rm_asks_and_takes_all_or_none(call: Call) -> None:
    call("put", "t", stdin=b"1\n")

    assert call("rm", "t").code == 2
    assert "so rm cannot ask: pass --yes to delete 't'" in call("rm", "t").err
    assert call("rm", "t", "nope", "--yes").code == 1
    assert call("rm", "t", "--yes", "--if-empty").code == 1
    assert call("ls", "--json").lines[0]["topic"] == "t"


def test_what_ends_with_a_topic_is_told(call: Call) -> None:
    call("create", "t")
    call("create", "other")
    call("router", "put", "copies", "--source", "t", "--dest", "u")
    call("schedule", "put", "tick", "--topic", "t", "--every", "1h")
    call("schedule", "put", "tock", "--topic", "other", "--every", "1h")
    assert "to delete 't' with 0 records, router copies, schedule tick\n" in call("rm", "t").err
    assert call("rm", "t", "--yes").text == "t: deleted, with 0 records, router copies, schedule tick\n"
    assert [row["schedule"] for row in call("schedule", "ls", "--json").lines] == ["tock"]
    assert call("router", "ls", "--json").out == b""


def test_a_delete_that_leaves_nothing_asks_first(call: Call) -> None:
    call("put", "t", stdin=b"1\n2\n3\n")
    assert call("delete", "t", "--before", "3").text == "t: 2 records deleted, 1 record left\n"
    assert call("delete", "t", "--before", "0").text == "t: 0 records deleted, 1 record left\n"
    refused = call("delete", "t", "--before", "4")
    cannot_ask = "topics: stdin is no terminal, so delete cannot ask: pass --yes to "
    assert (refused.code, refused.err) == (
        2,
        f"{cannot_ask}delete every record of 't', 1 up to its head, 3\n",
    )
    assert call("delete", "t", "--before", "99").code == 2
    assert (
        call("delete", "t", "--before", "99", "--match", "a").text == "t: 0 records deleted, 1 record left\n"
    )
    assert call("delete", "t", "--before", "99", "--yes").text == "t: 1 record deleted, none left\n"
    assert call("delete", "t", "--before", "99").code == 0

    call("put", "t", stdin=b"4\n5\n")
    assert call("delete", "t", "--before", "5").code == 0
    call("put", "t", "--tag", "go", stdin=b"6\n")
    call("delete", "t", "--match", "go")
    assert call("delete", "t", "--before", "6").code == 2  # below the head, and the last that lives


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("create", "t", "ttl_ms=1d"), 1, "ttl_ms: 0 there, 86400000 asked"),
        (("configure", "t", "replace=1"), 2, "config.replace: unknown field"),
        (("create", "u", "ttl=1"), 2, "config.ttl: unknown field; did you mean ttl_ms?\n"),
        (("create", "u", "zebra=1"), 2, "config.zebra: unknown field; known are"),
        (
            ("create", "u", "--cap-records", "3"),
            2,
            "--cap-records is a field of the config: write cap_records=VALUE",
        ),
        (("configure", "t", "--ttl"), 2, "No such option '--ttl'"),
        (("create", "u", "ttl_ms=soon"), 2, "config.ttl_ms: 'soon' is not a number with ms"),
        (("create", "u", "cap_bytes=1XB"), 2, "config.cap_bytes"),
        (("create", "u", "cap_records=1O"), 2, "must be a whole number, not a string ('1O')"),
        (("create", "u", "cap_records=1.5"), 2, "must be a whole number, not a decimal number (1.5)"),
        (
            ("create", "u", "retry_backoff=5s"),
            2,
            'base_ms, factor and max_ms, as in {"base_ms": 5000, "factor": 2, "max_ms": 60000}\n',
        ),
        (
            ("create", "u", "dedupe_node=no"),
            2,
            "must be true or false, not a string ('no')",
        ),
        (
            ("create", "u", "rate_limit=5"),
            2,
            'count and per_ms, as in {"count": 10, "per_ms": 1000}\n',
        ),
        (("create", "u", "cap_records=-1"), 2, "config.cap_records: must not be negative"),
        (("create", "u", "discard=new"), 2, "must be one of 'old', 'reject'"),
        (("create", "u", "discard"), 2, "FIELD=VALUE"),
        (("create", "u v"), 2, "is no topic name"),
        (("configure", "t"), 2, "say what to change"),
        (("configure", "t", "type=queue"), 1, "never changes"),
        (("create", "u", "type=heap"), 2, "config.type: must be one of 'log', 'queue'"),
        (
            ("create", "u", "type=queue", "dead_letter=u"),
            2,
            "config.dead_letter: must name another topic: 'u' is this topic itself",
        ),
        (("get", "t", "--from", "x"), 2, "'--from': 'x' is not a whole number (see topics get --help)"),
        (
            ("get", "t", "--from", "1h"),
            2,
            "'--from': '1h' is a time, and this is a seq: --since 1h (see topics get --help)",
        ),
        (
            ("tail", "t", "--from", "2d"),
            2,
            "'--from': '2d' is a time, and this is a seq: --since 2d (see topics tail --help)",
        ),
        (("get", "t", "--since", "5"), 2, "--since: '5' is not a number with ms, s, m, h, d or w, as in 5m"),
        (("configure", "u", "ttl_ms=1"), 1, "topic 'u' does not exist"),
        (("delete", "t"), 2, "say which records"),
        (("state", "u"), 1, "topic 'u' does not exist"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    call: Call, arguments: tuple[str, ...], code: int, message: str
) -> None:
    call("put", "t", stdin=b"1\n")
    answer = call(*arguments)

    assert (answer.code, answer.out) == (code, b"")
    assert message in answer.err
    assert len(answer.err.splitlines()) == 1


def test_what_commands_have_deleted_is_given_back_by_compact(call: Call) -> None:
    """A command ends before a store would do it by itself."""
    config = ("--set", "segment_max_events=1000")
    call("put", "t", *config, stdin=b"".join(b'"%0200d"\n' % i for i in range(3000)))
    assert "0 B of segments given back" in call("compact", *config).text

    def stored() -> int:
        return sum(path.stat().st_size for path in Path("topics-data/topics").rglob("*.data"))

    before = stored()
    assert before > 3000 * 200
    call("delete", "t", "--before", "2001", *config)
    result = call("compact", *config, "--json").lines[0]

    assert result["segments_removed"] == 2
    assert result["bytes_freed"] == before - stored()
    assert call("state", "t", "--json").lines[0]["earliest_seq"] == 2001


def test_compact_tells_the_damage_that_it_finds_and_fails(call: Call) -> None:
    config = ("--set", "segment_max_events=10")
    call("create", "t", *config)
    for start in range(0, 20, 5):
        call("put", "t", "--tag", "stay", *config, stdin=b'"stay %d"\n' % start)
        call("put", "t", "--tag", "go", *config, stdin=b'"go"\n' * 4)
    call("compact", *config)
    data = min(Path("topics-data/topics").rglob("*.data"))
    text = bytearray(data.read_bytes())
    text[text.index(b"stay 0")] ^= 1
    data.write_bytes(text)
    call("delete", "t", "--match", "go", *config)
    result = call("compact", *config, "--json")

    assert result.code == 1
    assert len(result.lines[0]["damages"]) == 1
    assert "topic 't' seqs 1-10" in result.err
    assert "topics fsck" in result.err


def test_compact_fails_for_damage_that_its_start_has_told(call: Call) -> None:
    """Else the second night's run ends with 0 over a segment that the first one's named."""
    call("put", "t", stdin=b'"gone"\n' * 10)
    call("compact")
    min(Path("topics-data/topics").rglob("*.data")).unlink()
    answers = [call("compact", "--json") for _ in range(2)]

    for answer in answers:
        assert answer.code == 1
        assert [damage.partition(":")[0] for damage in answer.lines[0]["damages"]] == ["topic 't' seqs 1-10"]
        assert answer.err.count("DAMAGED: ") == 1
    call("delete", "t", "--before", "11", "--yes")
    assert call("compact").code == 0


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (["lease_ms=5s", "dead_letter=x"], b"t is a log, so lease_ms, dead_letter does nothing"),
        (
            ["type=queue", "max_deliveries=2"],
            b"max_deliveries gives up no job as long as no dead_letter names",
        ),
        (["type=queue", "dead_letter=x"], b"nothing comes to x by itself as long as max_deliveries is 0"),
        (["type=queue", "dead_letter=x", "max_deliveries=2"], b""),
        (["type=queue", "max_deliveries=0"], b""),
        (["ttl_ms=1d", "dead_letter=null"], b""),
    ],
)
def test_what_is_given_and_does_nothing_is_told(call: Call, fields: list[str], told: bytes) -> None:
    done = call("create", "t", *fields)

    assert done.code == 0
    assert told in done.err.encode()
    assert told or "topics: t" not in done.err


def test_a_field_without_a_name_is_told_how_it_is_written(call: Call) -> None:
    refused = call("create", "t", "=5")

    assert (refused.code, "a field of the config is written FIELD=VALUE, not '=5'" in refused.err) == (
        2,
        True,
    )
