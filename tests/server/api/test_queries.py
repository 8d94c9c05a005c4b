"""What stands behind the `?` of a request: each parameter of each row, with nonsense; and those that no row has."""

from __future__ import annotations

import re

import pytest

from tests.server.api.asking import ask, fields_of, said
from tests.server.wire.places import open_site
from topics.server.api.routes import Body, Route
from topics.server.api.table import route_table

pytestmark = pytest.mark.trio
ROUTES = [route for route in route_table().routes if not route.early]
NONSENSE = ("x", "-1", "1.5", "%ff", "a/b", "%00", "")
NEEDED = {"work": "node=w", "why": "seq=1"}  # without which the row refuses
BODIES = {"write_records": {"records": [{"data": 1}]}, "begin_watch": {"topics": {"t": {}}}}
WELL_FORMED = {  # where some of the nonsense is sense
    "prefix": {"x", "-1", "1.5", "a/b", "%00", ""}, "node": {"x", "-1", "1.5", "a/b", "%00", ""},
    "match": {"x", "-1", "1.5", "a/b", "%00", ""}, "source": {"x", "-1", "1.5", ""}, "dest": {"x", "-1", "1.5", ""},
}  # fmt: skip
FLAGS = {""}  # the bare name is yes


def target(route: Route, query: str) -> str:
    return f"{re.sub('{topic}', 't', route.path).replace('{', '').replace('}', '')}?{query}"


def described() -> list[tuple[Route, str]]:
    return [(route, name) for route in ROUTES for name in route.query]


@pytest.mark.parametrize(
    ("route", "name"), described(), ids=lambda it: it if isinstance(it, str) else it.name
)
async def test_nonsense_is_refused_by_the_name_of_its_parameter(route: Route, name: str):
    is_flag = "type" not in route.query[name]
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/t", {"type": "queue"})
        before = fields_of(await ask(site, "GET", "/v0/topics/t?touch=false"))
        for value in NONSENSE:
            if value in (FLAGS if is_flag else WELL_FORMED.get(name, set())):
                continue
            more = NEEDED.get(route.name, "")
            query = f"{name}={value}" + (f"&{more}" if more and not more.startswith(f"{name}=") else "")
            if route.name == "why" and name in ("from_seq", "to_seq", "node", "match"):
                query = f"{name}={value}" + ("" if name == "from_seq" else "&from_seq=0")
            status, fields = await said(
                site, route.method.decode(), target(route, query), BODIES.get(route.name, b"")
            )
            assert (status, fields["error"]["code"]) == (400, "invalid_request"), (query, fields)
            assert fields["error"]["detail"]["field"] == name, (query, fields)
        after = fields_of(await ask(site, "GET", "/v0/topics/t?touch=false"))
    assert after["head_seq"] == before["head_seq"]


@pytest.mark.parametrize("route", ROUTES, ids=lambda it: it.name)
async def test_a_parameter_that_a_row_does_not_have_is_refused_by_its_name(route: Route):
    if route.upgrade is not None:
        return  # it is asked for by a head alone
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/t", {"type": "queue"})
        before = fields_of(await ask(site, "GET", "/v0/topics/t?touch=false"))
        body = BODIES.get(route.name, b"" if route.body is Body.NONE else {})
        for name in ("limit", "Touch", "tuoch", "\u00e9", "n" * 1000):
            status, fields = await said(site, route.method.decode(), target(route, f"{name}=x"), body)
            assert (status, fields["error"]["code"]) == (400, "invalid_request"), (name, fields)
            assert fields["error"]["detail"] == {"field": name[:40]}
            assert len(fields["error"]["message"]) < 300
        after = fields_of(await ask(site, "GET", "/v0/topics/t?touch=false"))
    assert {**after, "performance": 0} == {**before, "performance": 0}


async def test_a_refusal_says_which_parameters_there_are():
    async with open_site() as site:
        _, listed = await said(site, "GET", "/v0/topics?limit=3")
        _, read = await said(site, "POST", "/v0/topics/t/diff?limit=3")
    assert listed["error"]["message"] == (
        "limit: is no parameter of GET /v0/topics: it has cursor, page_size, prefix, touch"
    )
    assert read["error"]["message"] == (
        "limit: is no parameter of POST /v0/topics/{topic}/diff: it has none; fields of the body are no parameters"
    )


async def test_what_a_monitor_asks_takes_any_parameter():
    async with open_site() as site:
        for path in ("/healthz", "/readyz", "/v0/health", "/v0/ready", "/v0/metrics", "/v0/openapi.json"):
            assert (await ask(site, "GET", f"{path}?probe=7")).status == 200
