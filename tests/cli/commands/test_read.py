"""`get` and `tail`: which records, in which form, and that no loss is silent."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

import topics

Call = Callable[..., Any]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def make(name: str = "t", count: int = 10, **config: Any) -> None:
    with topics.open("topics-data") as store:
        topic = store.create(name, **config)
        topic.put_many(
            [
                {"data": i, "tag": "even" if i % 2 == 0 else "odd", "node": f"n{i % 3}"}
                for i in range(1, count + 1)
            ]
        )


def data(answer: Any) -> list[Any]:
    return [line["data"] for line in answer.lines if "data" in line]


@pytest.mark.rule("O2.7")
@pytest.mark.rule("O2.25")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (("--from", "7"), [8, 9, 10]),
        (("--limit", "2"), [1, 2]),
        (("--match", "odd"), [1, 3, 5, 7, 9]),
        (("--match", '["tag", "Glob", "e*"]'), [2, 4, 6, 8, 10]),
        (("--match", '["tag","Glob","*"]', "--limit", "1"), [1]),
        (("--match", '["tag", "Eq", "odd"]', "--limit", "1"), [1]),
        (("--match", '["tag", "Eq", "e*"]'), []),
        (("--node", "n0", "--node", "n1"), [2, 5, 8]),
        (("--from-time", "0"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (("--from-ts", "0"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (("--from-ts", "2999-01-01T00:00"), []),
        (("--since", "1h"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_get_selects(call: Call, arguments: tuple[str, ...], expected: list[int]) -> None:
    make()
    assert data(call("get", "t", "--json", *arguments)) == expected


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5"])
def test_get_of_no_records_is_refused_and_prints_none(call: Call, limit: str) -> None:
    make()
    answer = call("get", "t", "--json", "--limit", limit)
    assert (answer.code, answer.out) == (2, b"")
    assert "--limit" in answer.err


def test_get_reads_to_the_head_over_many_pages(call: Call) -> None:
    make(count=2500)
    answer = call("get", "t", "--json", "--account", "--match", "odd")

    assert len(data(answer)) == 1250
    assert answer.lines[-1] == {
        "account": {"delivered": 1250, "lost": 0, "deleted": 0, "expired": 0, "own_node": 0, "filtered": 1250}
    }


@pytest.mark.rule("O2.5")
def test_no_loss_is_silent_in_any_form(call: Call) -> None:
    make(cap_records=3)
    gap = {
        "gap_from": 1,
        "gap_to": 7,
        "reason": "cap",
        "missed_estimate": 7,
        "earliest_seq": 8,
        "head_seq": 10,
    }

    assert call("get", "t", "--json").lines[0] == {"tombstone": gap}
    assert call("tail", "t", "--no-follow", "--json").lines[0] == {"tombstone": gap}
    assert call("tail", "t", "--no-follow", "--from", "0", "--json", "--match", "none").lines == [
        {"tombstone": gap}
    ]
    assert call("get", "t", "--page").lines[0]["tombstone"] == gap
    for command in (("get",), ("tail", "--no-follow")):
        assert (
            call(*command, "t").text.splitlines()[0].startswith("\u2205 LOST seqs 1\u20137 [cap] 7 records")
        )


def test_a_page_goes_on_from_its_cursor(call: Call) -> None:
    make()
    page = call("get", "t", "--page", "--limit", "4", "--account").lines[0]

    assert [record["data"] for record in page["records"]] == [1, 2, 3, 4]
    assert (page["next_from_seq"], page["caught_up"], page["account"]["delivered"]) == (4, False, 4)


@pytest.mark.rule("O2.5")
def test_tail_without_following_prints_up_to_the_head(call: Call) -> None:
    make(count=25)

    def tail(*arguments: str) -> list[object]:
        answer = call("tail", "t", "--no-follow", "--json", *arguments)
        assert (answer.code, answer.err) == (0, "")
        return data(answer)

    assert tail() == list(range(16, 26))
    assert tail("-n", "2") == [24, 25]
    assert tail("--from", "23") == [24, 25]
    assert len(tail("--since", "5m")) == 25
    assert tail("--now") == []


def test_tail_ends_with_who_reads_it(spawn: Spawn) -> None:
    """As in `topics tail t | head -1`, on a topic of which nothing more comes."""
    make(count=3)
    child = spawn("tail", "t", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.readline()
        child.stderr.readline()  # it follows
        child.stdout.close()
        with child.stderr as err:
            assert err.read() == b""
        assert child.wait(timeout=20) == 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.rule("O2.5")
@pytest.mark.rule("O2.23")
def test_tail_of_a_directory_follows_until_ctrl_c(call: Call, spawn: Spawn) -> None:
    make(count=3)
    child = spawn("tail", "t", "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stderr is not None
        first = [json.loads(child.stdout.readline())["data"] for _ in range(3)]
        said = child.stderr.readline()
        beside = call("put", "t", stdin=b"1\n")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=20)
    finally:
        child.kill()
        child.communicate()

    assert first == [1, 2, 3]
    assert b"nobody else can write to" in said
    assert (beside.code, str(child.pid) in beside.err) == (1, True)
    assert (child.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    assert call("put", "t", stdin=b"1\n").code == 0


@pytest.mark.rule("O2.5")
def test_tail_merges_topics_by_time(call: Call) -> None:
    with topics.open("topics-data") as store:
        for i, name in enumerate(("a", "b", "a", "b")):
            before = store.topic(name).put(i)
            ts = store.topic(name).state().last_write_ts
            while time.time_ns() // 1_000_000 == ts:
                assert before.count == 1

    lines = call("tail", "b", "a", "--no-follow", "--json").lines
    assert [(line["topic"], line["data"]) for line in lines] == [("a", 0), ("b", 1), ("a", 2), ("b", 3)]


def test_a_line_for_people_has_seq_time_marks_and_payload(call: Call) -> None:
    with topics.open("topics-data") as store:
        store.topic("t").put({"a": "\u20ac"}, tag="x", key="k", node="n")
        store.topic("t").put(b"\x00raw")
        store.topic("t").put(topics.Raw(b'{"a":\n 1}'), tag="\x1b[31m")

    first, second, third = call("get", "t").text.splitlines()
    assert first.split("Z  ")[1] == 'x key=k node=n  {"a":"\u20ac"}'
    assert "4 bytes of application/octet-stream" in second
    assert third.split("Z  ")[1] == '\\x1b[31m  {"a":  1}'
    assert call("get", "t", "--json").lines[2]["data"] == {"a": 1}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("get", "tt"), 1, "topic 'tt' does not exist; did you mean t"),
        (("get", "zzz"), 1, "`topics ls` lists what there is"),
        (("get", "t", "--match", '["tag", "Glob", "a*b"]'), 2, "exactly one `*`, at its end"),
        (("get", "t", "--match", "a*"), 2, 'write ["tag", "Glob", "a*"] for every tag that begins with'),
        (("get", "t", "--match", "*"), 2, 'write ["tag", "Glob", "*"] for every tag'),
        (("tail", "t", "--match", "a*b"), 2, '["tag", "Eq", "a*b"] for this very tag'),
        (("get", "t", "--match", "[tag, Glob, a*]"), 2, "--match: '[tag, Glob, a*]' is not JSON"),
        (("get", "t", "--match", ""), 2, "match: must not be empty"),
        (("get", "t", "--from", "-1"), 2, "--from"),
        (("get", "t", "--from", "1", "--since", "1s"), 2, "give one of --from, --since and --from-ts"),
        (("get", "t", "--since", "soon"), 2, "a number with ms, s, m, h, d or w"),
        (("get", "t", "--from-ts", "soon"), 2, "milliseconds since 1970"),
        (("get", "$t"), 2, "is no topic name"),
        (("tail", "t", "nope"), 1, "topic 'nope' does not exist"),
        (("tail", "t", "--now", "-n", "3"), 2, "give one of"),
        (("tail",), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(
    call: Call, arguments: tuple[str, ...], code: int, message: str
) -> None:
    make()
    answer = call(*arguments)

    assert (answer.code, answer.out) == (code, b"")
    assert message in answer.err
    assert answer.err.startswith("topics: ")
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize("command", [["get"], ["tail", "--no-follow"]])
def test_a_position_of_another_topic_is_said_to_be_that_and_nothing_that_follows_is_called_lost(
    call: Call, command: list[str]
) -> None:
    anew = (
        "\u2205 [recreated] 99 is beyond the head ({}), so it is not of this topic as it is now, "
        "which is read from its beginning; "
    )
    call("create", "t", "cap_records=2")
    assert call(*command, "t", "--from", "99").text == f"{anew.format(0)}it is empty\n"
    call("put", "t", stdin=b"1\n2\n3\n")
    first, *records = call(*command, "t", "--from", "99").text.splitlines()

    assert first == f"{anew.format(3)}what does not follow of seqs 1\u20133 is gone"
    assert [line.split()[0] for line in records] == ["2", "3"]


def test_a_year_alone_is_no_time(call: Call) -> None:
    with topics.open("data") as store:
        store.create("t").put(1)
    refused = call("get", "t", "--from-ts", "2026", "--data", "data")

    assert refused.code == 2
    assert "for the year: 2026-01-01" in refused.err


def test_a_tombstone_of_a_cap_that_reaches_over_what_was_deleted_says_so(call: Call) -> None:
    """What lies in its range is lost to the reader, whatever had become of it."""
    with topics.open("data") as store:
        orders = store.create("orders", cap_records=3)
        orders.put_many([{"data": n} for n in range(4)])
        orders.delete(before_seq=5)
    assert (
        b"LOST seqs 1\xe2\x80\x934 [cap] 4 records: evicted by the topic's cap, or gone before"
        in call("get", "orders", "--data", "data").out
    )
