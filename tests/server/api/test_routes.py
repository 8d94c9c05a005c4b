"""A path leads to its row, decoded once; the error table has a row for every code."""

import pytest

from topics.kernel.errors import Rejected
from topics.server.api.errors import error_answer
from topics.server.api.ops import Op
from topics.server.api.routes import Route, RouteTable
from topics.server.api.table import route_table
from topics.server.auth.scopes import Names

TABLE = route_table()


@pytest.mark.rule("H1.10")
@pytest.mark.parametrize(
    ("path", "name", "params"),
    [
        (b"/v0/topics", "list_topics", ()),
        (b"/v0/topics/a", "get_topic", (b"a",)),
        (b"/v0/topics/a%2Fb", "get_topic", (b"a/b",)),
        (b"/v0/topics/a%252Fb", "get_topic", (b"a%2Fb",)),
        (b"/v0/topics/", "get_topic", (b"",)),
        (b"/healthz", "healthz", ()),
    ],
)
def test_a_path_leads_to_its_row(path, name, params):
    place = TABLE.place(path)

    assert place is not None
    assert (TABLE.route(place, b"GET").name, place.params) == (name, params)


@pytest.mark.parametrize(
    "path", [b"", b"/", b"*", b"/v0", b"/v0/topics/a/b", b"/V0/topics", b"v0/topics", b"/v0/topics/a/diff/"]
)
def test_other_paths_lead_nowhere(path):
    assert TABLE.place(path) is None


def test_a_segment_that_a_row_spells_out_is_no_parameter():
    def row(name, path):
        return Route(
            name=name, method=b"GET", path=path, handler=None, scope="any", names=Names.NONE, summary=""
        )

    table = RouteTable(
        [row("any", "/v0/{a}/x/{b}"), row("one", "/v0/one/x"), row("two", "/v0/one/{c}/y")], {}
    )
    found = {
        path: place and (place.routes[b"GET"].name, place.params)
        for path in (b"/v0/q/x/1%2F2", b"/v0/one/x", b"/v0/one/z/y", b"/v0/one/x/y", b"/v0/q/x", b"/v0/q/y/1")
        for place in (table.place(path),)
    }

    assert found == {
        b"/v0/q/x/1%2F2": ("any", (b"q", b"1/2")),
        b"/v0/one/x": ("one", ()),
        b"/v0/one/z/y": ("two", (b"z",)),
        b"/v0/one/x/y": None,  # `x` is spelled out, and nothing is behind it
        b"/v0/q/x": None,
        b"/v0/q/y/1": None,
    }


@pytest.mark.rule("H1.26")
def test_another_method_is_told_which_there_are():
    place = TABLE.place(b"/v0/topics/a/diff")
    with pytest.raises(Rejected) as refused:
        TABLE.route(place, b"GET")

    answer = error_answer(refused.value)
    assert (answer.status, dict(answer.headers)) == (405, {b"allow": b"POST"})


def test_a_row_without_a_scope_or_names_is_none():
    row = {"method": b"GET", "handler": None, "summary": ""}
    with pytest.raises(AssertionError, match="new: its row does not say which names it speaks of"):
        Route(name="new", path="/v0/new", scope="read", **row)
    with pytest.raises(TypeError, match="scope"):
        Route(name="new", path="/v0/topics/{topic}/new", **row)
    for scope in ("", "reed", "read write"):
        with pytest.raises(ValueError, match="is not a valid Scope"):
            Route(name="new", path="/v0/topics/{topic}/new", scope=scope, **row)
        with pytest.raises(ValueError, match="is not a valid Scope"):
            Op(name="new", answer="new", scope=scope, take=None)
