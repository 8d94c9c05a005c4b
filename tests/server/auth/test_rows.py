"""Who may ask what, from the tables: every route and op by every set of scopes, with prefixes and without, on each
plane.

What is expected follows from a row's `scope` and `names`, so a row that has none, or whose handler does not keep to
them, is seen here. Of each name in a body there is an example: without one this module is red.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations

import attrs
import pytest
import trio

from tests.server.planes import JSON, plane_of
from tests.server.wire.places import alone, open_site, serve_connection
from tests.server.wire.sockets import SocketPeer, head, socket_of
from topics.server.api.ops import Op
from topics.server.api.routes import Body, Route
from topics.server.api.table import route_table
from topics.server.auth.keys import Keys
from topics.server.auth.lines import KeyLine, digest_of, parse_keys
from topics.server.auth.scopes import PROBE, Names, Scope, Scopes
from topics.testing.streams import edge_pair

pytestmark = pytest.mark.trio
TABLE = route_table()
WITHIN, OUTSIDE = "in.x", "out.x"
# Of each name in a body: one that is outside, where everything else is in order.
NAMED = {
    ("put_topic", "dead_letter"): {"type": "queue", "dead_letter": OUTSIDE},
    ("patch_topic", "dead_letter"): {"dead_letter": OUTSIDE},
    ("write_records", "config.dead_letter"): {"records": [{"data": 1}], "config": {"dead_letter": OUTSIDE}},
    ("publish", "config.dead_letter"): {"records": [{"data": 1}], "config": {"dead_letter": OUTSIDE}},
    ("redrive_records", "source"): {"source": OUTSIDE},
    ("put_schedule", "topic"): {"topic": OUTSIDE, "every_ms": 1000, "record": {"data": 1}},
    ("put_router", "source"): {"source": OUTSIDE, "dest": "in.dest"},
    ("put_router", "dest"): {"source": "in.source", "dest": OUTSIDE},
    ("begin_watch", "topics"): {"topics": {OUTSIDE: {}}},
    ("subscribe", "topics"): {"topic": None, "topics": {OUTSIDE: {}}},
    ("unsubscribe", "topics"): {"topic": None, "topics": [OUTSIDE]},
}


@attrs.frozen
class Asker:
    token: str
    scopes: Scopes
    is_limited: bool

    @property
    def line(self) -> KeyLine:
        prefixes = {"prefixes": ("in.", "there.")} if self.is_limited else {}
        return KeyLine(digest=digest_of(self.token), scopes=self.scopes, **prefixes)


ASKERS = [
    Asker(f"{'+'.join(scopes)}-{is_limited}", frozenset(scopes), is_limited)
    for count in range(1, 5)
    for scopes in combinations(Scope, count)
    for is_limited in (False, True)
]
EVERYTHING = {asker.is_limited: asker for asker in ASKERS if len(asker.scopes) == 4}


def keys() -> Keys:
    return Keys([asker.line for asker in ASKERS])


def may(row: Route | Op, asker: Asker, topic: str) -> bool:
    """Whether the key may ask, from the table alone."""
    if row.scope == PROBE:
        return True
    wanted = frozenset() if row.scope == "any" else frozenset(map(Scope, row.scope.split("+")))
    if not wanted <= asker.scopes:
        return False
    if row.names is Names.SERVER:
        return not asker.is_limited
    return not (row.names is Names.TOPIC and asker.is_limited and topic == OUTSIDE)


def bearer(token: str) -> tuple[bytes, bytes]:
    return b"authorization", f"Bearer {token}".encode()


def requests() -> Iterator[tuple[Route, str]]:
    for route in TABLE.routes:
        for topic in (WITHIN, OUTSIDE) if route.names is Names.TOPIC else ("",):
            yield route, topic


def path_of(route: Route, topic: str) -> bytes:
    """With what stands for its parameters; a consumer's name is no topic's, so no prefix is asked about it."""
    path = route.path.replace("{wid}", "wid_0").replace("{consumer}", "out.c")
    for name in ("{topic}", "{schedule}", "{router}"):
        path = path.replace(name, topic)
    assert "{" not in path, f"{route.name}: say here what stands for the parameters of its path"
    return path.encode()


async def ask(plane, route: Route, topic: str, *fields: tuple[bytes, bytes], body: object = None):
    path = path_of(route, topic)
    given = None
    if route.body is not Body.NONE:
        given, fields = json.dumps({} if body is None else body).encode(), (JSON, *fields)
    return await plane.ask(route.method, path, given, *fields)


@pytest.mark.rule("H2.6", "H2.7", "H2.8", "H2.9", "H2.10", "H2.11", "H1.11")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_each_route_is_for_whom_its_row_says(mock_clock, kind):
    wrong = []
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        for route, topic in requests():
            for asker in ASKERS:
                seen = await ask(plane, route, topic, bearer(asker.token))
                if may(route, asker, topic) != (seen.status not in (401, 403)):
                    wrong.append((route.name, topic, asker.token, seen.status))

    assert wrong == []


@pytest.mark.rule("H2.1", "H11.3")
@pytest.mark.parametrize("kind", ["wire", "http2"])
@pytest.mark.parametrize("probe_auth", [False, True])
async def test_without_a_key_of_ours_nothing_but_a_probe_is_answered(mock_clock, kind, probe_auth):
    wrong = []
    other = [
        (),
        (bearer("none"),),
        ((b"authorization", b"Basic cmVhZC1GYWxzZQ=="),),
        ((b"authorization", b"Bearer"),),
    ]
    async with open_site(keys=keys(), probe_auth=probe_auth) as site, plane_of(kind, site) as plane:
        for route, topic in requests():
            for fields in other:
                seen = await ask(plane, route, topic, *fields)
                is_open = route.scope == PROBE and not probe_auth
                if (seen.status == 401) == is_open or (
                    seen.status == 401 and "www-authenticate" not in seen.headers
                ):
                    wrong.append((route.name, fields, seen.status))
            if route.scope == PROBE:
                assert (await ask(plane, route, topic, bearer(ASKERS[0].token))).status == 200

    assert wrong == []


@pytest.mark.rule("H2.12", "H10.10")
async def test_each_op_is_for_whom_its_row_says(mock_clock):
    wrong = []
    async with open_site(keys=keys()) as site:
        for asker in ASKERS:
            request = head(b"Authorization: Bearer " + asker.token.encode())
            async with socket_of(site, request=request) as (peer, _):
                for op in TABLE.ops.values():
                    for topic in (WITHIN, OUTSIDE):
                        said = await peer.ask(op=op.name, topic=topic)
                        if may(op, asker, topic) != (said.get("code") != "forbidden"):
                            wrong.append((op.name, topic, asker.token, said))

    assert wrong == []


@pytest.mark.rule("H2.13")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_names_in_bodies_are_within_the_prefixes_too(mock_clock, kind):
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        for route in TABLE.routes:
            for field in route.body_names:
                body = NAMED[route.name, field]
                for is_limited, asker in EVERYTHING.items():
                    seen = await ask(plane, route, WITHIN, bearer(asker.token), body=body)
                    assert (seen.status == 403) == is_limited, (route.name, field, seen)
                    if is_limited:
                        assert (seen.error["code"], seen.error["detail"]) == ("forbidden", {"field": field})


@pytest.mark.rule("H2.13")
async def test_names_in_messages_are_within_the_prefixes_too(mock_clock):
    async with open_site(keys=keys()) as site:
        for is_limited, asker in EVERYTHING.items():
            request = head(b"Authorization: Bearer " + asker.token.encode())
            async with socket_of(site, request=request) as (peer, _):
                for op in TABLE.ops.values():
                    for field in op.body_names:
                        fields = {"topic": WITHIN} | NAMED[op.name, field]
                        said = await peer.ask(
                            op=op.name, **{k: v for k, v in fields.items() if v is not None}
                        )
                        assert (said.get("code") == "forbidden") == is_limited, (op.name, field, said)


@pytest.mark.rule("H2.14")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_what_is_told_of_names_is_what_the_key_may_see(mock_clock, kind):
    free, limited = EVERYTHING[False], EVERYTHING[True]
    names = [f"{place}.{i}" for i in range(6) for place in ("out", "in", "there", "apart")]
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        for name in names:
            created = await plane.ask(
                b"PUT", b"/v0/topics/" + name.encode(), b'{"type":"queue"}', JSON, bearer(free.token)
            )
            assert created.status == 201
        for route in TABLE.routes:
            if route.names is Names.SEEN:
                seen = await ask(plane, route, "", bearer(limited.token))
                assert (seen.status, b"out." in seen.body, b"apart." in seen.body) == (200, False, False), (
                    route.name
                )
        assert await listed(plane, free, b"") == sorted(names)
        mine = sorted(name for name in names if name.startswith(("in.", "there.")))
        assert await listed(plane, limited, b"") == mine
        assert await listed(plane, limited, b"&prefix=i") == [name for name in mine if name.startswith("in.")]
        assert await listed(plane, limited, b"&prefix=out") == []
        counted = json.loads(
            (
                await plane.ask(
                    b"GET", b"/v0/metrics", None, (b"accept", b"application/json"), bearer(limited.token)
                )
            ).body
        )
        samples = {family["name"]: family["samples"] for family in counted["metrics"]}
        assert [one["value"] for one in samples["topics_topics"]] == [12]
        assert {one["labels"]["topic"] for one in samples["topics_queue_ready"]} == set(mine)


async def listed(plane, asker: Asker, query: bytes) -> list[str]:
    """All pages of the list."""
    found: list[str] = []
    cursor = b""
    while True:
        seen = await plane.ask(b"GET", b"/v0/topics?page_size=2" + query + cursor, None, bearer(asker.token))
        found += [row["topic"] for row in seen.json["topics"]]
        if "next_cursor" not in seen.json:
            return found
        cursor = b"&cursor=" + seen.json["next_cursor"].encode()


@pytest.mark.rule("H2.10")
async def test_a_config_in_a_write_is_for_admins(mock_clock):
    config = {"records": [{"data": 1}], "config": {"ttl_ms": 5}}
    none = {"records": [{"data": 1}], "config": None}
    async with open_site(keys=keys()) as site, plane_of("wire", site) as plane:
        for token, body, status in [
            ("write-False", config, 403), ("write+admin-False", config, 201), ("write-False", none, 200),
        ]:  # fmt: skip
            seen = await plane.ask(b"POST", b"/v0/topics/t", json.dumps(body).encode(), JSON, bearer(token))
            assert (token, seen.status) == (token, status), seen
        for token, body, op in [
            ("write-False", config, "error"), ("write+admin-False", config, "ack"), ("write-False", none, "ack"),
        ]:  # fmt: skip
            request = head(b"Authorization: Bearer " + token.encode())
            async with socket_of(site, request=request) as (peer, _):
                assert (await peer.ask(op="publish", topic="t", **body))["op"] == op


@pytest.mark.rule("H1.9")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_who_may_is_decided_behind_the_path_and_before_the_body(mock_clock, kind):
    """404 and 405, then 401 and 403, then 413 and 415 (http-api 1)."""
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        answers = []
        for method, path, body, fields in [
            (b"GET", b"/v0/nothing", None, ()),
            (b"BREW", b"/v0/topics/t", None, ()),
            (b"POST", b"/v0/topics/t", b"{}", ()),
            (b"POST", b"/v0/topics/out.x", b"x" * 20_000, (bearer("write-True"),)),
            (b"POST", b"/v0/topics/in.x", b"x" * 20_000, (bearer("write-True"),)),
            (b"POST", b"/v0/topics/in.x", b"{}", (bearer("write-True"),)),
            (b"GET", b"/v0/topics/in.x", None, (bearer("read-True"),)),
            (b"GET", b"/v0/topics/in.%FF", None, (bearer("read-True"),)),
            (b"GET", b"/v0/topics/%FF", None, (bearer("read-True"),)),
            (b"GET", b"/v0/topics/i%6e.x", None, (bearer("read-True"),)),
            (b"GET", b"/v0/topics/out.x", None, (bearer("read-True"),)),
        ]:
            length = () if kind == "wire" or body is None else ((b"content-length", b"%d" % len(body)),)
            answers.append((await plane.ask(method, path, body, *fields, *length)).status)

    assert answers == [404, 405, 401, 403, 413, 415, 404, 400, 403, 404, 403]


@pytest.mark.rule("H2.17")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_a_token_in_a_query_is_read_on_streams_of_events_alone(mock_clock, kind):
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        for route, topic in requests():
            if route.method != b"GET" or route.scope == PROBE:
                continue
            path = path_of(route, topic)
            seen = await plane.ask(
                b"GET", path + b"?node=n&token=" + ASKERS[-2].token.replace("+", "%2B").encode()
            )
            assert (seen.status == 401) != route.is_stream, (route.name, seen)
            both = await plane.ask(
                b"GET", path + b"?token=" + ASKERS[-2].token.encode(), None, bearer("none")
            )
            assert both.status == 401


@pytest.mark.rule("H2.22")
async def test_a_browsers_socket_brings_its_key_as_a_subprotocol(mock_clock):
    # base64url of `a>b?c~~`, whose standard form has + and /
    async with open_site(keys=Keys(parse_keys("a>b?c~~:write"))) as site:
        for offered, accepted in [
            (b"topics.v0, topics.key.YT5iP2N-fg", True), (b"topics.key.YT5iP2N-fg,topics.v0", True),
            (b"topics.v0", False), (b"topics.v0, topics.key.YT5iP2N+fg", False), (b"topics.v0, topics.key.", False),
            (b"topics.v0, topics.key.YT5i", False), (b"topics.v0, topics.key.!", False),
        ]:  # fmt: skip
            request = head(b"Sec-WebSocket-Protocol: " + offered)
            if accepted:
                async with socket_of(site, request=request) as (peer, _):
                    assert (await peer.ask(op="ack", topic="t"))["code"] != "forbidden"
                    assert (await peer.ask(op="claim", topic="t"))["code"] == "forbidden"
            else:
                async with plane_of("wire", site) as plane:
                    fields = [tuple(line.split(b": ")) for line in request.split(b"\r\n")[2:] if line]
                    assert (await plane.ask(b"GET", b"/v0/ws", None, *fields)).status == 401


async def test_of_the_subprotocols_only_ours_is_echoed(mock_clock):
    async with open_site(keys=Keys(parse_keys("k"))) as site, alone(), trio.open_nursery() as nursery:
        ours, theirs = edge_pair()
        nursery.start_soon(serve_connection, theirs, site)
        peer = SocketPeer(ours)
        answered = await peer.open(head(b"Sec-WebSocket-Protocol: topics.key.aw, topics.v0"))
        await ours.aclose()

    assert answered["sec-websocket-protocol"] == "topics.v0"


async def test_a_list_of_subprotocols_that_is_none_is_refused_without_a_word_of_it(mock_clock):
    async with open_site(keys=Keys(parse_keys("k3y!"))) as site, plane_of("wire", site) as plane:
        request = head(b'Sec-WebSocket-Protocol: topics.key.azN5IQ, "azN5IQ"')
        fields = [tuple(line.split(b": ")) for line in request.split(b"\r\n")[2:] if line]
        seen = await plane.ask(b"GET", b"/v0/ws", None, *fields)

    assert seen.status == 400
    assert b"azN5IQ" not in seen.body


@pytest.mark.rule("H2.18", "H2.20")
@pytest.mark.parametrize("kind", ["wire", "http2"])
async def test_a_key_lets_no_page_of_another_origin_in(mock_clock, kind):
    async with open_site(keys=keys()) as site, plane_of(kind, site) as plane:
        for route, topic in requests():
            origin = b"origin", b"http://evil.example"
            seen = await ask(plane, route, topic, bearer(EVERYTHING[False].token), origin)
            assert (seen.status, seen.error["message"][:6]) == (403, "origin"), route.name
