"""What a page of another origin may read, from the table: every route, both planes; a listed origin and no other."""

from __future__ import annotations

import pytest

from tests.server.planes import JSON, plane_of
from tests.server.wire.places import open_site
from tests.server.wire.watching import place
from topics.server.api.origins import Origins
from topics.server.api.routes import Body, Route
from topics.server.api.table import route_table
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys

pytestmark = pytest.mark.trio
TABLE = route_table()
LISTED, OTHER = b"https://good.example", b"https://evil.example"
ORIGINS = Origins(allowed=frozenset({LISTED}), check_host=False)
KEY = (b"authorization", b"Bearer secret")
PATHS = sorted({route.path for route in TABLE.routes})
KINDS = pytest.mark.parametrize("kind", ["wire", "http2"])


def keys() -> Keys:
    return Keys(parse_keys("secret"))


def path_of(pattern: str) -> bytes:
    return pattern.replace("{topic}", "t").replace("{wid}", "wid_0").encode()


async def ask(plane, route: Route, *fields: tuple[bytes, bytes]):
    given = None if route.body is Body.NONE else b"{}"
    return await plane.ask(route.method, path_of(route.path), given, *fields, *([JSON] if given else []))


def cors(seen) -> dict[str, str]:
    return {name: value for name, value in seen.headers.items() if name.startswith("access-control-")}


def varies(seen) -> bool:
    return "origin" in seen.headers.get("vary", "").split(", ")


@pytest.mark.rule("H2.24")
@KINDS
async def test_a_listed_origin_reads_every_answer_and_no_other_does(mock_clock, kind):
    wrong = []
    async with open_site(keys=keys(), origins=ORIGINS) as site, plane_of(kind, site) as plane:
        for route in TABLE.routes:
            for fields in ([KEY], []):  # without a key most are 401, which is read, too
                seen = await ask(plane, route, (b"origin", LISTED), *fields)
                told = cors(seen)
                if told.get("access-control-allow-origin") != LISTED.decode() or not varies(seen):
                    wrong.append((route.name, seen.status, told))
                if "*" in str(told) or "access-control-allow-credentials" in told:
                    wrong.append((route.name, told))
            seen = await ask(plane, route, (b"origin", OTHER), KEY)
            if (seen.status, cors(seen), varies(seen)) != (403, {}, True):
                wrong.append((route.name, "another origin", seen.status, cors(seen)))
            seen = await ask(plane, route, KEY)
            if cors(seen) or not varies(seen):
                wrong.append((route.name, "no origin", cors(seen)))

    assert wrong == []


@pytest.mark.rule("H2.24")
@KINDS
async def test_where_no_origin_is_listed_nothing_is_said_of_any(mock_clock, kind):
    async with open_site() as site, plane_of(kind, site) as plane:
        for route in TABLE.routes:
            seen = await ask(plane, route, (b"origin", b"http://localhost:4000"))

            assert seen.status != 403
            assert (cors(seen), varies(seen)) == ({}, False)


@pytest.mark.rule("H2.25")
@KINDS
@pytest.mark.parametrize("path", PATHS)
async def test_a_browser_that_asks_first_is_told_what_the_path_takes(mock_clock, path, kind):
    asked = [
        (b"access-control-request-method", b"POST"),
        (b"access-control-request-headers", b"authorization"),
    ]
    async with open_site(keys=keys(), origins=ORIGINS) as site, plane_of(kind, site) as plane:
        seen = await plane.ask(b"OPTIONS", path_of(path), None, (b"origin", LISTED), *asked)
        methods = {route.method.decode() for route in TABLE.routes if route.path == path}

        assert seen.status == 200  # without a key: a browser sends none
        told = cors(seen)
        assert told["access-control-allow-origin"] == LISTED.decode()
        assert methods <= set(told["access-control-allow-methods"].split(", ")) <= methods | {"HEAD"}
        assert set(told["access-control-allow-headers"].split(", ")) == {
            "authorization", "content-type", "idempotency-key", "last-event-id", "x-request-id",
        }  # fmt: skip
        assert int(told["access-control-max-age"]) > 0
        assert "access-control-allow-credentials" not in told
        assert varies(seen)
        for fields in ([(b"origin", OTHER), *asked], [(b"origin", LISTED)], asked):
            seen = await plane.ask(b"OPTIONS", path_of(path), None, *fields)
            assert (seen.status, "access-control-allow-methods" in cors(seen)) == (405, False), fields


@pytest.mark.rule("H2.25")
@KINDS
async def test_a_browser_that_asks_first_is_told_as_little_as_anybody(mock_clock, kind):
    """Nothing is where there is no path; with auth off another name of this machine is none of ours."""
    asked = [(b"origin", LISTED), (b"access-control-request-method", b"GET")]
    origins = Origins(allowed=frozenset({LISTED}))
    async with open_site(origins=origins) as site, plane_of(kind, site) as plane:
        seen = await plane.ask(b"OPTIONS", b"/v0/nothing", None, *asked)
        assert (seen.status, seen.headers["access-control-allow-origin"]) == (404, LISTED.decode())
        seen = await plane.ask(b"OPTIONS", b"/v0/topics", None, *asked, host=b"rebound.example")
        assert seen.status == 421
        site.draining = True
        seen = await plane.ask(b"OPTIONS", b"/v0/topics", None, *asked)
        assert seen.status == 200
        site.draining = False
        seen = await plane.ask(b"OPTIONS", b"/v0/topics", b"x" * 9000, *asked)
        assert seen.status == 413


@pytest.mark.rule("H2.24")
@KINDS
async def test_a_stream_of_events_is_read_by_a_listed_origin(mock_clock, kind):
    async with place(kind, origins=ORIGINS) as here:
        await here.put(1)
        wid = (await here.watch(topics={"t": {}}))["wid"]
        events = await here.events().open(f"/v0/watch/{wid}".encode(), (b"origin", LISTED))
        assert b"access-control-allow-origin: " + LISTED in events.head
        await here.gone(events)
