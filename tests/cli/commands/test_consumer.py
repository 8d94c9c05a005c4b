"""`topics consumer …`: the same on a directory and at a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Call = Callable[..., Any]


@pytest.mark.rule("O2.10")
def test_a_consumer_is_made_moved_shown_and_deleted(at: Call) -> None:
    at("put", "quakes", stdin=b"".join(b"%d\n" % number for number in range(10)))
    assert at("consumer", "ls", "quakes").text == "quakes: no consumers\n"
    made = at("consumer", "set", "quakes", "billing").text
    assert made.startswith("quakes: billing made, at seq 0, 10 behind the head, since 20")

    assert at("consumer", "commit", "quakes", "billing", "4").text.startswith(
        "quakes: billing at seq 4, 6 behind"
    )
    back = at("consumer", "commit", "quakes", "billing", "3", "--json").lines[0]
    assert (back["moved"], back["from_seq"]) == (False, 4)
    assert "billing not moved, at seq 4" in at("consumer", "commit", "quakes", "billing", "3").text
    assert "billing at seq 4" in at("consumer", "set", "quakes", "billing").text
    assert "billing at seq 2" in at("consumer", "set", "quakes", "billing", "--from", "2").text
    assert "search made, at seq 10" in at("consumer", "set", "quakes", "search", "--now").text
    assert at("consumer", "set", "quakes", "hour", "--since", "1h", "--json").lines[0]["from_seq"] == 0
    assert at("consumer", "set", "quakes", "hour", "--from-ts", "2222-01-01").text.startswith(
        "quakes: hour at seq 10"
    )

    (shown,) = at("consumer", "show", "quakes", "billing", "--json").lines
    assert {name: shown[name] for name in ("consumer", "topic", "epoch", "from_seq", "lag")} == {
        "consumer": "billing", "topic": "quakes", "epoch": at("state", "quakes", "--json").lines[0]["epoch"],
        "from_seq": 2, "lag": 8,
    }  # fmt: skip
    assert "quakes: billing at seq 2" in at("consumer", "show", "quakes", "billing").text
    assert [row["consumer"] for row in at("consumer", "ls", "quakes", "--json").lines] == [
        "billing",
        "hour",
        "search",
    ]
    assert at("consumer", "ls", "quakes").text.splitlines()[-3].split()[:3] == ["billing", "2", "8"]

    refused = at("consumer", "rm", "quakes", "hour", "search", "none")
    assert (refused.code, refused.out) == (1, b"")  # all are there, or none goes
    assert (
        "topic 'quakes' has no consumer 'none': it has billing, hour, search (topics consumer ls quakes)"
        in (refused.err)
    )
    assert "topics consumer set" not in refused.err
    removed = at("consumer", "rm", "quakes", "hour", "search")
    assert removed.text.splitlines() == ["quakes: hour deleted", "quakes: search deleted"]
    assert at("consumer", "rm", "quakes", "billing", "--json").lines[0]["deleted"] is True


@pytest.mark.rule("O2.10")
def test_the_consumers_of_all_topics_are_listed(at: Call) -> None:
    at("create", "other")
    assert at("consumer", "ls", "--prefix", "all.").text.startswith(
        "no consumers of topics whose name begins with 'all.' in "
    )
    for topic in ("all.quakes", "all.none", "all.news"):
        at("put", topic, stdin=b"1\n2\n3\n")
    at("consumer", "set", "all.quakes", "billing", "--from", "1")
    at("consumer", "set", "all.news", "billing")
    at("consumer", "set", "all.news", "audit", "--now")

    def rows() -> list[list[str]]:
        table = [line.split() for line in at("consumer", "ls", "--prefix", "all.").text.splitlines()]
        return [cells for cells in table if cells and not cells[0].startswith("\u2500")]

    assert rows()[0] == ["topic", "consumer", "seq", "lag", "since"]
    assert [cells[:4] for cells in rows()[1:]] == [
        ["all.news", "audit", "3", "0"], ["all.news", "billing", "0", "3"], ["all.quakes", "billing", "1", "2"],
    ]  # fmt: skip
    listed = at("consumer", "ls", "--json").lines
    mine = [(one["topic"], one["consumer"]) for one in listed if one["topic"].startswith("all.")]
    assert mine == [("all.news", "audit"), ("all.news", "billing"), ("all.quakes", "billing")]
    both = at("consumer", "ls", "all.news", "--prefix", "all.")
    assert (both.code, both.err) == (2, "topics: --prefix goes without TOPIC\n")


@pytest.mark.rule("O2.5", "O2.10")
def test_tail_goes_on_where_a_consumer_stands_and_moves_it(at: Call) -> None:
    def tail(*topics: str) -> list[Any]:
        answer = at("tail", *topics, "--consumer", "c", "--no-follow", "--json")
        assert (answer.code, answer.err) == (0, "")
        return [line.get("data", line.get("tombstone", {}).get("gap_to")) for line in answer.lines]

    def stands(topic: str) -> int:
        seq: int = at("consumer", "show", topic, "c", "--json").lines[0]["from_seq"]
        return seq

    at("put", "a", "--tag", "x", stdin=b"".join(b"%d\n" % number for number in range(1, 2051)))
    at("put", "b", stdin=b'"b1"\n"b2"\n')
    at("consumer", "set", "a", "c", "--from", "2047")
    at("consumer", "set", "b", "c", "--from", "1")
    assert sorted(map(str, tail("a", "b"))) == ["2048", "2049", "2050", "b2"]
    assert (tail("a", "b"), stands("a"), stands("b")) == ([], 2050, 2)

    at("consumer", "set", "a", "c", "--from", "0")
    assert tail("a") == list(range(1, 2051))
    at("put", "a", stdin=b"1\n2\n3\n")
    at("configure", "a", "cap_records=2")
    assert (tail("a"), stands("a")) == ([2051, 2, 3], 2053)
    at("put", "a", "--tag", "x", stdin=b"4\n")
    assert at("tail", "a", "--consumer", "c", "--no-follow", "--match", "y").text == ""
    assert (tail("a"), stands("a")) == ([], 2054)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ("--consumer", "none"),
            1,
            "topic 'quakes' has no consumer 'none'; topics consumer set quakes none makes it",
        ),
        (("--consumer", "c", "--now"), 2, "give one of --from, --since, --consumer, --now and --lines"),
        (("--consumer", "a/b"), 2, "'a/b' is no consumer's name"),
    ],
)
def test_a_consumer_from_which_nothing_is_followed(
    at: Call, arguments: tuple[str, ...], code: int, says: str
) -> None:
    at("put", "quakes", stdin=b"1\n")
    at("consumer", "set", "quakes", "c")
    answer = at("tail", "quakes", "--no-follow", *arguments)

    assert says in answer.err
    assert (answer.code, answer.out) == (code, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ("show", "quakes", "none"),
            1,
            "topic 'quakes' has no consumer 'none': it has c (topics consumer ls quakes)\n",
        ),
        (("commit", "quakes", "none", "1"), 1, "topic 'quakes' has no consumer 'none'"),
        (("commit", "quakes", "c", "2"), 2, "2 is beyond the head of topic 'quakes', which is 1"),
        (("ls", "quake"), 1, "topic 'quake' does not exist"),
        (("set", "quakes", "a/b"), 2, "'a/b' is no consumer's name"),
        (
            ("set", "quakes", "c", "--now", "--from", "1"),
            2,
            "give one of --from, --since, --from-ts and --now",
        ),
        (("set", "quakes", "c", "--since", "1h", "--from", "1"), 2, "one of"),
    ],
)
def test_what_cannot_be_done_is_said(at: Call, arguments: tuple[str, ...], code: int, says: str) -> None:
    at("put", "quakes", stdin=b"1\n")
    at("consumer", "set", "quakes", "c")
    answer = at("consumer", *arguments)

    assert says in answer.err
    assert answer.code == code
