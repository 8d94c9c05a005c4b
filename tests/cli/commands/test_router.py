"""`topics router …`: the same on a directory and at a server."""

from __future__ import annotations

import pytest

import topics
from tests.cli.conftest import Call


@pytest.mark.rule("O2.10")
def test_a_router_is_put_looked_at_and_ended(at: Call) -> None:
    made = at(
        "router", "put", "quakes->us", "--source", "quakes", "--dest", "quakes.us", "--filter", "us*",
        "--drop-node", "--exactly-once", "--json",
    ).lines[0]  # fmt: skip
    assert (made["router"], made["source"], made["dest"]) == ("quakes->us", "quakes", "quakes.us")
    assert (made["filter"], made["guarantee"]) == (["tag", "Glob", "us*"], "exactly_once")
    assert (made["preserve_node"], made["preserve_tag"], made["allow_cycle"]) == (False, True, False)
    assert (made["cursor"], made["lag"], made["forwarded_total"]) == (0, 0, 0)
    assert at("router", "put", "all", "--source", "quakes", "--dest", "kept").code == 0

    assert [row["router"] for row in at("router", "ls", "--json").lines] == ["all", "quakes->us"]
    assert at("router", "ls", "--dest", "quakes.us", "--json").lines == [made]
    table = " ".join(at("router", "ls", "--source", "quakes").text.split())
    assert "all quakes kept - 0 0" in table
    assert 'quakes->us quakes quakes.us ["tag","Glob","us*"] 0 0' in table
    assert "no such routers" in at("router", "ls", "--prefix", "x").text
    assert "exactly_once" in at("router", "show", "quakes->us").text
    assert at("router", "show", "quakes->us", "--json").lines[0] == made

    assert at("router", "rm", "all", "absent").code == 1
    assert len(at("router", "ls", "--json").lines) == 2
    assert at("router", "rm", "all", "quakes->us").text == "all: ended\nquakes->us: ended\n"
    assert "no routers" in at("router", "ls").text
    gone = at("router", "show", "all")
    assert (gone.code, "'all' does not exist" in gone.err) == (1, True)


@pytest.mark.parametrize(
    ("kind", "command", "puts"),
    [
        *[("router", name, "--source t --dest u") for name in ("show", "rm")],
        *[("schedule", name, "--topic t --every 1h") for name in ("show", "rm", "next")],
    ],
)
def test_for_one_that_is_not_there_those_are_named_that_are(
    at: Call, kind: str, command: str, puts: str
) -> None:
    at("create", "t")
    assert f" holds no {kind}s yet\n" in at(kind, command, "copys").err
    at(kind, "put", "copies", *puts.split())
    meant = at(kind, command, "copys")
    assert (meant.code, meant.err) == (
        1,
        f"topics: {kind} 'copys' does not exist; did you mean copies?\n",
    )
    assert at(kind, command, "x").err.endswith(f"; `topics {kind} ls` lists what there is\n")


def test_what_cannot_be_is_said_in_a_line(at: Call) -> None:
    at("router", "put", "r", "--source", "a", "--dest", "b")
    for arguments, said in (
        (("r", "--source", "a", "--dest", "c"), "keeps its topics"),
        (("s", "--source", "c", "--dest", "b"), "one source"),
        (("s", "--source", "b", "--dest", "a"), "b > a > b"),
        (("s", "--source", "a", "--dest", "c", "--existing"), "'c' does not exist"),
        (("s", "--source", "a", "--dest", "a"), "another topic"),
        (("s", "--source", "a", "--dest", "c", "--filter", "x*y"), "Glob"),
        (
            ("s", "--source", "a", "--dest", "c", "--filter", '["tag", "Eq", "x"]'),
            "--filter: is a tag, as in us, or how",
        ),
        ((">s", "--source", "a", "--dest", "c"), "no router's name"),
    ):
        answer = at("router", "put", *arguments)
        assert answer.code != 0
        assert said in answer.err
    assert [row["router"] for row in at("router", "ls", "--json").lines] == ["r"]


def test_that_what_is_there_already_is_not_copied_is_told(call: Call) -> None:
    with topics.open("data") as store:
        store.create("a").put_many([{"data": n} for n in range(3)])
    made = call("router", "put", "r", "--source", "a", "--dest", "b", "--data", "data")
    other = call("router", "put", "other", "--source", "empty", "--dest", "c", "--data", "data")

    assert (made.code, other.code) == (0, 0)
    assert "a has records up to seq 3 already: they are not copied" in made.err
    assert "already" not in other.err


def test_where_a_router_is_in_the_way_the_command_that_ends_it_is_named(at: Call) -> None:
    at("router", "put", "a->b", "--source", "a", "--dest", "b")
    at("router", "put", "plain", "--source", "a", "--dest", "c")
    for arguments, named in (
        (("configure", "b", "durability=ephemeral"), "'a->b'"),
        (("configure", "a", "durability=ephemeral"), "'a->b' plain"),
        (("router", "put", "a->b", "--source", "a", "--dest", "d"), "'a->b'"),
        (("router", "put", "other", "--source", "d", "--dest", "b"), "'a->b'"),
    ):
        answer = at(*arguments)
        assert answer.code == 1
        assert answer.err.endswith(f"; `topics router rm {named}` ends {'them' if ' ' in named else 'it'}\n")
    at("router", "rm", "a->b")
    assert at("configure", "b", "durability=ephemeral").code == 0
    refused = at(
        "router", "put", "a->b", "--source", "a", "--dest", "b"
    )  # no router is in the way of this one
    assert refused.code == 1
    assert "router rm" not in refused.err
