"""A path leads to its row, decoded once; the error table has a row for every code."""

import pytest

from topics.kernel.errors import Rejected
from topics.server.api.errors import error_answer
from topics.server.api.table import route_table

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
    for _ in range(2):  # looked for, and remembered
        place = TABLE.place(path)

        assert place is not None
        assert (TABLE.route(place, b"GET").name, place.params) == (name, params)


@pytest.mark.parametrize(
    "path", [b"", b"/", b"*", b"/v0", b"/v0/topics/a/b", b"/V0/topics", b"v0/topics", b"/v0/topics/a/diff/"]
)
def test_other_paths_lead_nowhere(path):
    assert TABLE.place(path) is None


@pytest.mark.rule("H1.26")
def test_another_method_is_told_which_there_are():
    place = TABLE.place(b"/v0/topics/a/diff")
    with pytest.raises(Rejected) as refused:
        TABLE.route(place, b"GET")

    answer = error_answer(refused.value)
    assert (answer.status, dict(answer.headers)) == (405, {b"allow": b"POST"})
