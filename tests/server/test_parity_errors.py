"""The error table (http-api 1): every row that these routes can give, provoked through both planes."""

from collections.abc import Mapping
from typing import Any

import attrs
import pytest
from trio.testing import MockClock

from tests.embed.inert_store import inert_disk
from tests.server.planes import JSON, Field, Plane, comparable, plane_of
from tests.server.wire.places import SMALL, begun, new_site
from tests.server.wire.playing import Seen
from topics.kernel.errors import Code
from topics.kernel.limits import KIB, Limits
from topics.server.api.errors import STATUS
from topics.server.api.routes import Body, Route
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys
from topics.server.auth.scopes import Names
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.trio

WRITE = b'{"records":[{"data":1}]}'
T = b"/v0/topics/t"
PUT = (b"PUT", T, b"{}", JSON)
PUT_ONE = (b"POST", T, WRITE, JSON)
WATCH = (b"POST", b"/v0/watch", b'{"topics":{"t":{}}}', JSON)
LOG = "wal/gen-0/shard-00/wal-00000000000000000001.log"


@pytest.fixture
def mock_clock():
    return MockClock()


async def bug(call):
    raise RuntimeError("planted")


BUG = Route(
    name="bug",
    method=b"POST",
    path="/bug",
    handler=bug,
    scope="any",
    names=Names.NONE,
    summary="",
    body=Body.OPTIONAL,
)


def asked(method: bytes, path: bytes, body: bytes | None = None, *fields: Field) -> tuple:
    return (method, path, body, *((JSON,) if body is not None and not fields else fields))


@attrs.frozen(kw_only=True)
class Row:
    """`before`: asked first and answered well. `site`, `store`: what is special about them."""

    code: Code
    request: tuple
    name: str = ""
    before: tuple[tuple, ...] = ()
    site: Mapping[str, Any] = attrs.field(factory=dict)
    store: Mapping[str, Any] = attrs.field(factory=dict)
    detail: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)


ROWS = [
    Row(
        code=Code.INVALID_REQUEST, request=asked(b"POST", T, b'{"records":[{"data":1,"tag":5}]}'),
        detail={"field": "records[0].tag"},
    ),
    Row(code=Code.INVALID_REQUEST, name="bad name", request=asked(b"GET", b"/v0/topics/-"), detail={"field": "topic"}),
    Row(
        code=Code.BATCH_TOO_LARGE, request=asked(b"POST", T, b'{"records":[{"data":1},{"data":2},{"data":3}]}'),
        site={"limits": Limits(records_per_write=2)}, detail={"limit": 2},
    ),
    Row(
        code=Code.RECORD_TOO_LARGE, request=asked(b"POST", T, b'{"records":[{"data":"12345678901"}]}'),
        site={"limits": Limits(record_bytes=10)}, detail={"limit": 10},
    ),
    Row(
        code=Code.FORBIDDEN, name="origin",
        request=asked(b"GET", b"/v0/topics", None, (b"origin", b"http://evil.example")),
    ),
    Row(
        code=Code.FORBIDDEN, name="cross-site",
        request=asked(b"GET", b"/v0/topics", None, (b"sec-fetch-site", b"cross-site")),
    ),
    Row(
        code=Code.UNAUTHORIZED, site={"keys": Keys(parse_keys("k"))}, request=asked(b"GET", b"/v0/topics"),
        headers={"www-authenticate": 'Bearer realm="topics"'},
    ),
    Row(
        code=Code.UNAUTHORIZED, name="another key", site={"keys": Keys(parse_keys("k"))},
        request=asked(b"GET", b"/v0/topics", None, (b"authorization", b"Bearer j")),
        headers={"www-authenticate": 'Bearer realm="topics", error="invalid_token"'},
    ),
    Row(
        code=Code.FORBIDDEN, name="scope", site={"keys": Keys(parse_keys("k:r"))}, detail={"scope": "delete"},
        request=asked(b"DELETE", T, None, (b"authorization", b"Bearer k")),
    ),
    Row(code=Code.TOPIC_NOT_FOUND, request=asked(b"GET", T), detail={"topic": "t"}),
    Row(code=Code.TOPIC_NOT_FOUND, name="diff", request=asked(b"POST", T + b"/diff", b"{}"), detail={"topic": "t"}),
    Row(
        code=Code.CONSUMER_NOT_FOUND, before=(PUT,),
        request=asked(b"POST", T + b"/diff", b'{"consumer":"c"}'),
        detail={"topic": "t", "consumer": "c"},
    ),
    Row(
        code=Code.CONSUMER_NOT_FOUND, name="watch", before=(PUT,),
        request=asked(b"POST", b"/v0/watch", b'{"topics":{"t":{"consumer":"c"}}}'),
        detail={"topic": "t", "consumer": "c"},
    ),
    Row(
        code=Code.SCHEDULE_NOT_FOUND, request=asked(b"GET", b"/v0/schedules/s"), detail={"schedule": "s"},
    ),
    Row(code=Code.ROUTER_NOT_FOUND, request=asked(b"GET", b"/v0/routers/r"), detail={"router": "r"}),
    Row(
        code=Code.ROUTER_CYCLE, before=(asked(b"PUT", b"/v0/routers/r", b'{"source":"a","dest":"b"}'),),
        request=asked(b"PUT", b"/v0/routers/back", b'{"source":"b","dest":"a"}'),
        detail={"router": "back", "cycle": ["b", "a", "b"]},
    ),
    Row(code=Code.NOT_FOUND, request=asked(b"GET", b"/v0/nothing")),
    Row(code=Code.NOT_FOUND, name="watch", request=asked(b"GET", b"/v0/watch/wid_none")),
    Row(
        code=Code.METHOD_NOT_ALLOWED, request=asked(b"OPTIONS", T),
        headers={"allow": "DELETE, GET, HEAD, PATCH, POST, PUT"},
        detail={"allow": "DELETE, GET, HEAD, PATCH, POST, PUT"},
    ),
    Row(
        code=Code.TOPIC_EXISTS_INCOMPATIBLE, store={"disk": inert_disk()},
        request=asked(b"PUT", b"/v0/topics/jobs", b"{}"), detail={"topic": "jobs", "reason": "type"},
    ),
    Row(
        code=Code.TOPIC_EXISTS_INCOMPATIBLE, name="another config", before=(PUT,),
        request=asked(b"PUT", T + b"?replace=false", b'{"ttl_ms":5}'),
        detail={"topic": "t", "reason": "config", "differences": {"ttl_ms": {"there": 0, "asked": 5}}},
    ),
    Row(code=Code.TOPIC_NOT_FOUND, name="patch", request=asked(b"PATCH", T, b"{}"), detail={"topic": "t"}),
    Row(
        code=Code.NOT_A_QUEUE, before=(PUT,), request=asked(b"POST", T + b"/claim", b'{"node":"w"}'),
        detail={"topic": "t"},
    ),
    Row(
        code=Code.NOT_ACCEPTABLE, before=(PUT,),
        request=asked(b"GET", T + b"/work?node=w", None, (b"accept", b"application/json")),
    ),
    Row(
        code=Code.NOT_ACCEPTABLE, name="watch",
        request=asked(b"GET", b"/v0/watch/wid_none", None, (b"accept", b"application/json")),
    ),
    Row(
        code=Code.BATCH_TOO_LARGE, name="acks", request=asked(b"POST", T + b"/ack", b'{"node":"w","seqs":[1,2,3]}'),
        site={"limits": Limits(claim_limit=2)}, detail={"limit": 2},
    ),
    Row(
        code=Code.TOPIC_NOT_EMPTY, before=(PUT, PUT_ONE), request=asked(b"DELETE", T + b"?if_empty=true"),
        detail={"topic": "t", "count": 1},
    ),
    Row(
        code=Code.SEQ_MISMATCH, before=(PUT, PUT_ONE), detail={"head_seq": 1},
        request=asked(b"POST", T, b'{"records":[{"data":1}],"expected_head":7}'),
    ),
    Row(code=Code.PAYLOAD_TOO_LARGE, request=asked(b"POST", T, b" " * 8193), detail={"limit": 8192}),
    Row(code=Code.UNSUPPORTED_MEDIA_TYPE, request=asked(b"POST", T, WRITE, (b"content-type", b"text/plain"))),
    Row(code=Code.UNSUPPORTED_MEDIA_TYPE, name="missing", request=asked(b"POST", T, WRITE, (b"accept", b"*/*"))),
    Row(
        code=Code.UNSUPPORTED_MEDIA_TYPE, name="coding",
        request=asked(b"POST", T, WRITE, JSON, (b"content-encoding", b"br")),
    ),
    Row(code=Code.EXPECTATION_FAILED, request=asked(b"POST", T, WRITE, JSON, (b"expect", b"cake"))),
    Row(
        code=Code.TOPIC_FULL,
        before=((b"PUT", T, b'{"cap_records":1,"discard":"reject"}', JSON), PUT_ONE), request=asked(b"POST", T, WRITE),
        detail={"topic": "t", "cap_records": 1, "head_seq": 1, "earliest_seq": 1},
    ),
    Row(
        code=Code.THROTTLED, name="topics", before=(PUT,), request=asked(b"PUT", b"/v0/topics/u", b"{}"),
        site={"limits": Limits(topics=1)}, detail={"limit": "topics", "max": 1}, headers={"retry-after": "1"},
    ),
    Row(
        code=Code.THROTTLED, name="held bytes", request=asked(b"POST", T, WRITE), site={"held_bytes_max": 20},
        detail={"limit": "requests_held_bytes", "max": 20}, headers={"retry-after": "1"},
    ),
    Row(
        code=Code.THROTTLED, name="watches", before=(PUT, WATCH), request=WATCH, site={"watch_sessions_max": 1},
        detail={"limit": "watch_sessions", "max": 1}, headers={"retry-after": "1"},
    ),
    Row(code=Code.INTERNAL, request=asked(b"POST", b"/bug", b"{}")),
    Row(
        code=Code.DISK_LOW, before=(), request=asked(b"PUT", T, b"{}"), store={"min_free_bytes": 1 << 50},
    ),
]  # fmt: skip


def check(seen: Seen, row: Row) -> None:
    assert (seen.status, seen.error["code"]) == (STATUS[row.code], row.code.value), seen
    assert seen.headers["content-type"] == "application/json"
    assert seen.json.keys() == {"error", "performance"}
    assert set(seen.error) <= {"code", "message", "detail"}
    assert seen.error["message"].isprintable()
    if row.detail is not None:
        detail = seen.error["detail"]
        assert {name: detail.get(name) for name in row.detail} == dict(row.detail)
    assert {name: seen.headers.get(name) for name in row.headers} == dict(row.headers)


async def provoke(kind: str, row: Row) -> Seen:
    site = new_site(**{"more_routes": (BUG,), "limits": SMALL, **row.site})
    async with begun(site, **row.store), plane_of(kind, site) as plane:
        for request in row.before:
            assert (await plane.ask(*request)).status < 300
        seen = await plane.ask(*row.request)
        assert (await plane.ask(b"GET", b"/healthz")).status == 200, "the server goes on"
    assert site.held_bytes == 0
    return seen


@pytest.mark.rule(
    "H1.12",
    "H1.21",
    "H1.22",
    "H1.23",
    "H1.24",
    "H1.26",
    "H1.27",
    "H1.29",
    "H1.31",
    "H1.32",
    "H1.33",
    "H1.36",
    "H1.55",
    "A5.31",
)
@pytest.mark.parametrize("row", ROWS, ids=[f"{row.code} {row.name}".strip() for row in ROWS])
async def test_each_row_of_the_error_table_through_both_planes(mock_clock, row):
    answers = []
    for kind in ("wire", "http2"):
        seen = await provoke(kind, row)
        check(seen, row)
        answers.append(comparable(seen))

    assert answers[0] == answers[1]


async def phases(plane: Plane, site) -> list[tuple[Code, Seen]]:
    """Answers of a site that begins, goes on and ends."""
    found = [(Code.NOT_READY, await plane.ask(b"GET", b"/v0/ready"))]
    found.append((Code.NOT_READY, await plane.ask(*PUT)))
    async with begun(site):
        assert (await plane.ask(*PUT)).status == 201
        site.draining = True
        found.append((Code.SHUTTING_DOWN, await plane.ask(*PUT)))
    return found


@pytest.mark.rule("H1.35")
async def test_not_ready_and_shutting_down_through_both_planes(mock_clock):
    answers = []
    for kind in ("wire", "http2"):
        site = new_site()
        site.progress = 0.5
        async with plane_of(kind, site) as plane:
            found = await phases(plane, site)
        for code, seen in found:
            check(seen, Row(code=code, request=()))
            assert int(seen.headers["retry-after"]) >= 1
        assert found[0][1].error["detail"] == {"replay_progress": 0.5}
        answers.append([comparable(seen) for _, seen in found])

    assert answers[0] == answers[1]


@pytest.mark.rule("H1.28")
async def test_a_body_that_does_not_come_is_408_through_both_planes(mock_clock):
    for kind in ("wire", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            seen = await plane.ask_without_end(b"POST", T, 5000)
            check(seen, Row(code=Code.REQUEST_TIMEOUT, request=()))


@pytest.mark.rule("H1.28", "H1.47")
@pytest.mark.parametrize(
    "fields",
    [tuple((b"x-%d" % i, b"y") for i in range(101)), ((b"x", b"y" * 33 * KIB),)],
    ids=["101 fields", "33 KiB"],
)
async def test_a_head_that_is_too_large_is_431_through_both_planes(mock_clock, fields):
    for kind in ("wire", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            seen = await plane.ask(b"GET", b"/healthz", None, *fields)
            check(seen, Row(code=Code.HEADERS_TOO_LARGE, request=()))


@pytest.mark.rule("H2.21")
async def test_another_host_is_421_through_both_planes(mock_clock):
    answers = []
    for kind in ("wire", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            seen = await plane.ask(b"GET", b"/v0/topics", host=b"rebound.example")
            check(seen, Row(code=Code.MISDIRECTED_REQUEST, request=()))
            answers.append(comparable(seen))

    assert answers[0] == answers[1]


@pytest.mark.rule("H1.35")
async def test_a_failed_write_makes_its_shard_read_only_through_both_planes(mock_clock):
    answers = []
    for kind in ("wire", "http2"):
        site, disk = new_site(), SimDisk()
        async with begun(site, disk=disk), plane_of(kind, site) as plane:
            assert (await plane.ask(*PUT)).status == 201
            disk.inject("write", FaultKind.EIO)
            seen = [await plane.ask(*PUT_ONE), await plane.ask(*PUT_ONE)]
            for answer in seen:
                check(answer, Row(code=Code.STORAGE_READ_ONLY, request=()))
                assert int(answer.headers["retry-after"]) >= 1
            ready = await plane.ask(b"GET", b"/v0/ready")
            answers.append([comparable(answer) for answer in (*seen, ready)])

    assert answers[0] == answers[1]


@pytest.mark.rule("H1.36")
async def test_a_disk_that_was_full_takes_writes_again(mock_clock):
    for kind in ("wire", "http2"):
        site, disk = new_site(), SimDisk(free=512 * KIB)
        async with begun(site, disk=disk), plane_of(kind, site) as plane:
            statuses = set()
            for _ in range(300):
                answer = await plane.ask(b"POST", T, b'{"records":[{"data":"%b"}]}' % (b"a" * 4000), JSON)
                statuses.add(answer.status)
                if answer.status == 507:
                    break
            check(answer, Row(code=Code.DISK_LOW, request=()))
            assert statuses == {200, 201, 507}
            head = await plane.ask(b"GET", T)
            disk.free = 1 << 30
            again = await plane.ask(*PUT_ONE)
            assert (again.status, again.json["first_seq"]) == (200, head.json["head_seq"] + 1)


@pytest.mark.rule("T5.11", "T5.22")
@pytest.mark.parametrize(
    "config", [b"{}", b'{"compression":"gzip","compression_min_bytes":1}'], ids=["plain", "gzip"]
)
@pytest.mark.parametrize(
    "more", [b"", b',"include_tags":true', b',"include_data":false'], ids=["texts", "tags", "views"]
)
async def test_a_damaged_record_ends_a_page_and_is_named_by_both_planes(mock_clock, config, more):
    """The page before it is served; the one that would begin with it is a 500 that says how to go on."""
    records = b",".join(b'{"data":"%b%d"}' % (b"x" * 200, i) for i in range(1, 7))
    answers = []
    for kind in ("wire", "http2"):
        site, disk = new_site(), SimDisk(1)
        async with begun(site, disk=disk) as runtime, plane_of(kind, site) as plane:
            await plane.ask(b"PUT", T, config, JSON)
            assert (await plane.ask(b"POST", T, b'{"records":[%b]}' % records, JSON)).status == 200
            index = runtime.engine.state.catalog.find("t").index
            for seq in (4, 5):
                at = index.position(seq)
                disk.flip(LOG, (index.offsets[at] + 45) * 8)
            for from_seq in (0, 3, 5):
                found = await plane.ask(b"POST", T + b"/diff", b'{"from_seq":%d%b}' % (from_seq, more), JSON)
                answers.append(comparable(found))
                if from_seq == 3:
                    assert (found.status, found.error["code"]) == (500, "internal")
                    assert found.error["detail"] == {
                        "topic": "t", "seq": 4, "last_seq": 5, "files": [LOG], "next_from_seq": 5,
                    }  # fmt: skip
                    assert "seqs 4-5 are damaged" in found.error["message"]
                else:
                    seqs = [record["$seq"] for record in found.json["records"]]
                    assert (seqs, found.json["next_from_seq"], found.json["caught_up"]) == (
                        ([1, 2, 3], 3, False) if from_seq == 0 else ([6], 6, True)
                    )
        assert site.held_bytes == 0
        assert site.bugs == 0

    assert answers[:3] == answers[3:]


async def test_every_code_these_routes_give_has_its_row():
    elsewhere = {  # not in this table: seen above, or on the wire alone
        Code.REQUEST_TIMEOUT, Code.HEADERS_TOO_LARGE, Code.MISDIRECTED_REQUEST, Code.NOT_READY, Code.SHUTTING_DOWN,
        Code.STORAGE_READ_ONLY, Code.NOT_IMPLEMENTED, Code.UPGRADE_REQUIRED, Code.WRONG_TYPE,
    }  # fmt: skip
    assert {row.code for row in ROWS} | elsewhere == STATUS.keys()
