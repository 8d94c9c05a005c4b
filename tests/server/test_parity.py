"""The same requests through both planes, to two sites over equal stores: the answers are the same, byte for byte."""

import gzip
import re

import pytest
from trio.testing import MockClock

from tests.server.planes import HOST, JSON, comparable, plane_of
from tests.server.wire.places import begun, new_site
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio

T = b"/v0/topics/t"
DIFF = T + b"/diff"
GZIP = (b"content-encoding", b"gzip")


@pytest.fixture
def mock_clock():
    return MockClock()


def write(*records: bytes, more: bytes = b"", path: bytes = T) -> tuple:
    return (b"POST", path, b'{"records":[%b]%b}' % (b",".join(records), more), JSON)


def diff(body: bytes = b"{}", path: bytes = DIFF) -> tuple:
    return (b"POST", path, body, JSON)


def put(body: bytes = b"{}", path: bytes = T) -> tuple:
    return (b"PUT", path, body, JSON)


def patch(body: bytes = b"{}", path: bytes = T) -> tuple:
    return (b"PATCH", path, body, JSON)


def get(path: bytes, *fields: tuple[bytes, bytes]) -> tuple:
    return (b"GET", path, None, *fields)


ODD_JSON = rb'{"b": 1.0e+2,  "a":[1 ,2], "\u00e4":"\u00e4\/", "b":12345678901234567890.50}'

TOPICS = [
    put(),
    put(),
    put(b'{"ttl_ms":5000,"cap_records":3}'),
    put(path=T + b"?replace=false"),
    put(b'{"cap_records":3,"durable":false}', path=T + b"?replace=false"),
    put(b'{"cap_records":4}', path=T + b"?replace=false"),
    put(b'{"cap":4}', path=T + b"?replace=false"),
    put(b'{"cap_records":4}', path=b"/v0/topics/created?replace=0"),
    put(path=T + b"?replace=perhaps"),
    patch(b'{"cap_records":4}'),
    patch(b'{"ttl_ms":6000,"durable":true,"priority":null}'),
    patch(b""),
    (b"PATCH", T, None),
    patch(b'{"type":"queue"}'),
    patch(b'{"nonsense":1}'),
    patch(b'{"ttl_ms":-1}'),
    patch(b"7"),
    (b"PATCH", T, b'{"ttl_ms":1}'),
    patch(path=b"/v0/topics/a%2Fb"),
    patch(b'{"ttl_ms":1}', path=b"/v0/topics/absent"),
    put(b"", path=b"/v0/topics/empty-body"),
    (b"PUT", b"/v0/topics/no-body", None),
    put(b'{"nonsense":1}'),
    put(b'{"ttl_ms":-1}'),
    put(b'{"ttl_ms":1.5}'),
    put(b'{"ttl_ms":true}'),
    put(b'{"type":"queue"}'),
    put(b"[]"),
    put(b"{"),
    put(b'{"ttl_ms":' + b"9" * 40 + b"}"),
    put(b'{"ttl_ms":1e1616}'),
    put(b'{"a":"\xff"}'),
    put(path=b"/v0/topics/a%2Fb"),
    put(path=b"/v0/topics/%61b"),
    put(path=b"/v0/topics/a%2561"),
    put(path=b"/v0/topics/%ff"),
    put(path=b"/v0/topics/"),
    put(path=b"/v0/topics/" + b"a" * 255),
    put(path=b"/v0/topics/" + b"a" * 256),
    put(path=b"/v0/topics/a b".replace(b" ", b"%20")),
    get(T),
    get(T + b"?touch=false"),
    get(T + b"?touch=maybe"),
    get(T + b"?%74ouch=false&unknown=1&&="),
    get(b"/v0/topics/absent"),
    get(b"/v0/topics"),
    get(b"/v0/topics?page_size=2"),
    get(b"/v0/topics?page_size=0&prefix=a"),
    get(b"/v0/topics?page_size=-1"),
    get(b"/v0/topics?page_size=99999"),
    get(b"/v0/topics?cursor=nonsense"),
    get(b"/v0/topics?cursor=MWFi&page_size=1"),
    get(b"/v0/topics?prefix=%ff"),
    (b"HEAD", T, None),
    (b"HEAD", b"/v0/topics/absent", None),
    (b"DELETE", b"/v0/topics/ab", None),
    (b"DELETE", b"/v0/topics/ab", None),
    (b"DELETE", b"/v0/topics/ab?if_empty=sure", None),
    (b"DELETE", b"/v0/topics/empty-body?if_empty", b""),
]

RECORDS = [
    put(),
    write(b'{"data":1}'),
    write(b'{"data":' + ODD_JSON + b',"tag":"x","node":"n1","key":"k","meta":{"a":"b"},"ttl_ms":100000}'),
    write(b'{"data":null}', b'{"data":"\xc3\xa4"}', more=b',"node":"n2","return_seqs":true'),
    write(b'{"data":2}', path=T + b"?return_seqs=false"),
    write(b'{"data":2}', path=T + b"?return_seqs=7"),
    write(b'{"data":1}', path=b"/v0/topics/made"),
    write(b'{"data":1}', more=b',"create":false', path=b"/v0/topics/not-made"),
    write(b'{"data":1}', more=b',"config":{"cap_records":5}', path=b"/v0/topics/configured"),
    write(b'{"data":1}', more=b',"config":{"cap":5}', path=b"/v0/topics/not-made"),
    write(b'{"data":1e1616}', more=b',"config":{"cap_records":1e1616}'),
    write(b'{"data":1e1616}', more=b',"unknown":1e1616'),
    write(b'{"data":1}', more=b',"idempotency_key":"i"'),
    write(b'{"data":1}', more=b',"idempotency_key":"i"'),
    write(b'{"data":2}', more=b',"idempotency_key":"i"'),
    write(b'{"data":3,"dedup_id":"d"}', b'{"data":4,"dedup_id":"d"}'),
    write(b'{"data":1}', more=b',"expected_head":0'),
    write(b'{"data":1}', more=b',"unknown":{"deep":[]}'),
    write(),
    write(b"{}"),
    write(b"7"),
    write(b'{"data":NaN}'),
    write(b'{"data":1,"tag":7}'),
    write(b'{"data":1,"meta":{"a":1}}'),
    write(b'{"data":1,"ttl_ms":-4}'),
    write(b'{"data":"\xff"}'),
    write(b'{"data":"\\ud800"}'),
    write(b'{"data":' + b"[" * 200 + b"]" * 200 + b"}"),
    write(b'{"data":' + b"[" * 201 + b"]" * 201 + b"}"),
    (b"POST", T, b"", JSON),
    (b"POST", T, None),
    (b"POST", T, b"null", JSON),
    (b"POST", T, b'{"records":7}', JSON),
    (b"POST", T, gzip.compress(b'{"records":[{"data":"packed"}]}', mtime=0), JSON, GZIP),
    (b"POST", T, b"not gzip", JSON, GZIP),
    (b"POST", T, b'{"records":[{"data":1}]}', (b"content-type", b"Application/JSON; charset=UTF-8")),
    (b"POST", b"/v0/watch", b'{"topics":{"t":{"from_seq":2},"made":{"tail":true}},"limit":0}', JSON),
    (b"POST", b"/v0/watch?lenient", b'{"topics":{"t":{},"none":{}},"nonsense":1}', JSON),
    (b"POST", b"/v0/watch", b'{"topics":{"none":{}}}', JSON),
    (b"POST", b"/v0/watch", b'{"topics":{}}', JSON),
    (b"POST", b"/v0/watch", b"", JSON),
    (b"POST", b"/v0/watch", None),
    get(b"/v0/watch/wid_none"),
    get(b"/v0/watch/wid_none", (b"accept", b"text/plain")),
    get(b"/v0/watch/wid_none", (b"accept", b"application/json")),
    diff(),
    diff(b'{"from_seq":2,"limit":2}'),
    diff(b'{"limit":0,"account":true,"include_tags":true}'),
    diff(b'{"include_data":false,"include_meta":false}'),
    diff(b'{"from_ts":0,"match":{"tags":["x"]}}'),
    diff(b'{"node":"n1","account":true}'),
    diff(b'{"node":["n1","n2"]}'),
    diff(b'{"node":7}'),
    diff(b'{"match":{"tag":"x"}}'),
    diff(b'{"from_seq":1,"from_ts":1}'),
    diff(b'{"from_seq":99999}'),
    diff(b'{"from_seq":-1}'),
    diff(b'{"epoch":7}'),
    diff(b'{"unknown":1e1616}'),
    diff(b'{"max_batch_bytes":1}'),
    diff(b'{"wait_ms":0}'),
    diff(b'{"consumer":"c"}'),
    diff(b'{"auto_commit":true}'),
    diff(b'{"limit":"5"}'),
    diff(b"{}", path=b"/v0/topics/absent/diff"),
    diff(b""),
    (b"POST", DIFF, None),
    (b"POST", T + b"/delete", b'{"before_seq":2}', JSON),
    (b"POST", T + b"/delete", b'{"match":{"tags":["x"]}}', JSON),
    (b"POST", T + b"/delete", b"{}", JSON),
    (b"POST", T + b"/delete", b'{"before_seq":"2"}', JSON),
    (b"POST", T + b"/delete", b'{"match":7}', JSON),
    (b"POST", b"/v0/topics/absent/delete", b'{"before_seq":2}', JSON),
    diff(b'{"account":true}'),
    get(T),
    write(b'{"data":"' + b"a" * 3000 + b'"}'),
    (b"POST", DIFF, b"{}", JSON, (b"accept-encoding", b"gzip")),
    (b"POST", DIFF, b"{}", JSON, (b"accept-encoding", b"gzip;q=0, br")),
    (b"DELETE", T + b"?if_empty=true", None),
    (b"DELETE", T, None),
    diff(),
]

OTHERS = [
    get(b"/healthz"),
    get(b"/v0/health"),
    (b"HEAD", b"/v0/health", None),
    get(b"/readyz"),
    get(b"/v0/ready"),
    get(b"/v0/openapi.json"),
    get(b"/v0/openapi.json", (b"accept-encoding", b"gzip")),
    (b"POST", b"/v0/health", b"{}", JSON),
    (b"POST", b"/v0/admin/checkpoint", None),
    get(b"/v0/admin/checkpoint"),
    get(b"/v0/admin/backup"),
    get(b"/v0/admin/pressure"),
    get(b"/v0/admin/keys"),
    (b"GET", b"/v0/health", b"ignored"),
    (b"OPTIONS", T, None),
    (b"BREW", T, None),
    (b"get", b"/healthz", None),
    get(b"/v0/health/"),
    get(b"//healthz"),
    get(b"/v0/../v0/health"),
    get(b"/V0/health"),
    get(b"/v0%2Fhealth"),
    get(b"/v0/health", (b"origin", b"http://localhost:4000")),
    get(b"/v0/health", (b"origin", b"http://evil.example")),
    get(b"/v0/health", (b"origin", b"null")),
    get(b"/v0/health", (b"sec-fetch-site", b"cross-site")),
    get(b"/v0/health", (b"sec-fetch-site", b"same-origin")),
    get(b"/v0/health", (b"expect", b"cake")),
    (b"POST", DIFF, b"{}", JSON, (b"x-empty", b"")),
]

Q = b"/v0/topics/q"


def of_jobs(call: bytes, body: bytes = b'{"node":"w"}') -> tuple:
    return (b"POST", Q + b"/" + call, body, JSON)


JOBS = [
    of_jobs(b"claim"),
    put(b'{"type":"queue","lease_ms":100}', path=Q),
    of_jobs(b"claim"),
    write(
        b'{"data":%b,"tag":"t","priority":3}' % ODD_JSON, b'{"data":2,"delay_ms":99}', b'{"data":3}', path=Q
    ),
    of_jobs(b"peek", b""),
    of_jobs(b"claim", b'{"node":"w","max":1,"mix":2}'),
    of_jobs(b"claim", b'{"node":"v","wait_ms":9}'),
    of_jobs(b"claim", b'{"node":""}'),
    of_jobs(b"claim", b"{}"),
    of_jobs(b"claim", b'{"node":"w","max":"1"}'),
    get(Q),
    of_jobs(b"peek", b'{"state":"in_flight","limit":1}'),
    of_jobs(b"extend", b'{"node":"w","seqs":[1,3],"lease_ms":500}'),
    of_jobs(b"nack", b'{"node":"w","seqs":[1,2],"reason":"no"}'),
    of_jobs(b"nack", b'{"node":"w","seqs":[1],"lease_ids":["lease_x"]}'),
    of_jobs(b"ack", b'{"node":"v","seqs":[3,3,4]}'),
    of_jobs(b"ack", b'{"node":"v","seqs":[]}'),
    of_jobs(b"ack", b"[1]"),
    (b"POST", Q + b"/pause", None),
    (b"GET", Q + b"/pause", None),
    of_jobs(b"claim"),
    (b"POST", Q + b"/resume", b"ignored"),
    (b"POST", Q + b"/purge", None),
    (b"POST", T + b"/purge", None),
    write(b'{"data":7}', path=b"/v0/topics/letters"),
    of_jobs(b"redrive", b'{"source":"letters","seqs":[1,2]}'),
    of_jobs(b"redrive", b'{"source":"q"}'),
    of_jobs(b"redrive", b'{"source":"absent"}'),
    of_jobs(b"redrive", b"{}"),
    get(Q),
]

C = T + b"/consumers"


def of_consumer(method: bytes, body: bytes | None = None, path: bytes = C + b"/c") -> tuple:
    return (method, path, body, JSON) if body else (method, path, body)


CONSUMERS = [
    get(C),
    of_consumer(b"PUT"),
    put(),
    get(C),
    get(C + b"/c"),
    write(*(b'{"data":%d}' % number for number in range(9))),
    of_consumer(b"PUT"),
    of_consumer(b"PUT", b'{"from_seq":2,"frm":1}'),
    of_consumer(b"PUT", b'{"tail":true,"from_seq":2}'),
    of_consumer(b"PUT", b'{"from_seq":10}'),
    of_consumer(b"PUT", b'{"from_seq":"2"}'),
    of_consumer(b"PUT", b'{"epoch":2}'),
    of_consumer(b"PUT", b'{"tail":true}', C + b"/tail"),
    of_consumer(b"PUT", b'{"from_ts":0}', C + b"/ts"),
    of_consumer(b"PUT", None, C + b"/%24c"),
    of_consumer(b"PUT", None, C + b"/a%2Fb"),
    of_consumer(b"PUT", None, C + b"/%ff"),
    get(C),
    get(C + b"?page_size=1"),
    get(C + b"?cursor=MWM"),
    get(C + b"/c"),
    diff(b'{"consumer":"c","limit":2}'),
    diff(b'{"consumer":"c","from_seq":2}'),
    diff(b'{"consumer":"$c"}'),
    diff(b'{"consumer":"c","limit":2,"auto_commit":true}'),
    diff(b'{"consumer":"c","limit":2,"auto_commit":true,"account":true}'),
    diff(b'{"consumer":"tail","auto_commit":true}'),
    get(C + b"/c"),
    of_consumer(b"POST", b'{"seq":8}', C + b"/c/commit"),
    of_consumer(b"POST", b'{"seq":7,"sec":7}', C + b"/c/commit"),
    of_consumer(b"POST", b'{"seq":10}', C + b"/c/commit"),
    of_consumer(b"POST", b'{"seq":9,"epoch":2}', C + b"/c/commit"),
    of_consumer(b"POST", b"{}", C + b"/c/commit"),
    of_consumer(b"POST", b'{"seq":1}', C + b"/absent/commit"),
    of_consumer(b"DELETE"),
    of_consumer(b"DELETE"),
    (b"PATCH", C + b"/c", None),
    (b"DELETE", T, None),
    get(C + b"/ts"),
]

S = b"/v0/schedules/s"
SCHEDULES = [
    put(),
    put(
        b'{"topic":"t","record":{"data":%b},"cron":"0 3 29 2 *","timezone":"Europe/Berlin"}' % ODD_JSON,
        path=S,
    ),
    put(b'{"topic":"t","record":{"data":1},"every_ms":1000000000}', path=S),
    put(b'{"topic":"t","record":{"data":1},"every_ms":1000000000}', path=S),
    put(b'{"topic":"t","record":{"data":1,"zebra":2},"every_ms":1000000000}', path=S),
    put(b'{"topic":"t","record":{"data":1},"every_ms":1,"zebra":2}', path=S),
    put(b'{"topic":"absent","record":{"data":1},"every_ms":1}', path=b"/v0/schedules/u"),
    put(b"{", path=S),
    put(b'{"topic":"t","record":{"data":1},"every_ms":1}', path=b"/v0/schedules/a%2Fb"),
    get(S),
    get(S + b"?coming=3"),
    get(S + b"?coming=x"),
    get(b"/v0/schedules/absent"),
    get(b"/v0/schedules?prefix=s"),
    get(b"/v0/schedules?cursor=!"),
    (b"DELETE", S, None),
    (b"DELETE", S, None),
    (b"PATCH", S, b"{}", JSON),
]
R = b"/v0/routers/a-%3Eb"
ROUTERS = [
    put(b'{"source":"a","dest":"b"}', path=R),
    put(b'{"source":"a","dest":"b"}', path=R),
    put(b'{"source":"a","dest":"b","filter":["tag","Glob","x*"],"guarantee":"exactly_once"}', path=R),
    put(b'{"source":"a","dest":"b","filter":null}', path=b"/v0/routers/a->b"),
    put(b'{"source":"b","dest":"a"}', path=b"/v0/routers/back"),
    put(b'{"source":"c","dest":"b"}', path=b"/v0/routers/other"),
    put(b'{"source":"c","dest":"d"}', path=R),
    put(b'{"source":"c","dest":"d","create_dest":false}', path=b"/v0/routers/other"),
    put(b'{"source":"a","dest":"a"}', path=b"/v0/routers/other"),
    put(b'{"source":"a","dest":"d","zebra":1}', path=b"/v0/routers/other"),
    put(b'{"source":"a","dest":"d","filter":7}', path=b"/v0/routers/other"),
    put(b'{"source":"a"}', path=b"/v0/routers/other"),
    put(b"{", path=R),
    get(R),
    get(b"/v0/routers/absent"),
    get(b"/v0/routers/a%2Fb"),
    get(b"/v0/routers?prefix=a&source=a&dest=b"),
    get(b"/v0/routers?cursor=!"),
    (b"DELETE", R, None),
    (b"DELETE", R, None),
    (b"PATCH", R, b"{}", JSON),
    put(b'{"source":"a","dest":"b"}', path=R),
    (b"DELETE", b"/v0/topics/b", None),
]
NOWHERE = [
    get(b"/v0/nothing"),
    get(b"/v0/topics/t/nothing?a=b"),
    get(b"/nowhere", (b"origin", b"http://evil.example")),
    (b"POST", b"/v0/nothing", b"{}", JSON),
    (b"PUT", b"/v0/nothing", None),
    (b"HEAD", b"/v0/nothing", None),
    (b"DELETE", b"/favicon.png", None),
]


@pytest.mark.rule("A5.1", "A5.31", "H1.7", "H1.10", "H1.15")
@pytest.mark.parametrize("declared", [False, True], ids=["length not declared", "length declared"])
@pytest.mark.parametrize(
    "requests",
    [TOPICS, RECORDS, JOBS, CONSUMERS, OTHERS, SCHEDULES, ROUTERS],
    ids=["topics", "records", "jobs", "consumers", "others", "schedules", "routers"],
)
async def test_every_request_has_the_same_answer_through_both_planes(mock_clock, requests, declared):
    answers = []
    for kind in ("wire", "http2"):
        site, clock = new_site(), ManualClock()
        async with begun(site, clock=clock), plane_of(kind, site) as plane:
            seen = []
            for method, path, body, *fields in requests:
                if declared and body is not None and kind == "http2":
                    fields.append((b"content-length", b"%d" % len(body)))
                seen.append(await plane.ask(method, path, body, *fields))
                clock.advance(7)
            answers.append(seen)

    for request, one, other in zip(requests, *answers, strict=True):
        assert comparable(one) == comparable(other), request
    statuses = {answer.status for answer in answers[0]}
    assert len(statuses) >= 4, "the list is one-sided"
    assert 500 not in statuses


@pytest.mark.rule("A5.31")
async def test_metrics_have_the_same_names_through_both_planes(mock_clock):
    names = []
    for kind in ("wire", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            await plane.ask(*put())
            text = await plane.ask(*get(b"/v0/metrics"))
            values = await plane.ask(*get(b"/v0/metrics", (b"accept", b"application/json")))
            assert text.headers["content-type"].startswith("text/plain")
            assert values.headers["content-type"] == "application/json"
            names.append((sorted(set(re.findall(r"(?m)^[a-z_]+", text.body.decode()))), sorted(values.json)))

    assert names[0] == names[1]


@pytest.mark.rule("H2.21")
@pytest.mark.parametrize(
    "host", [b"localhost", HOST, b"127.0.0.9:1", b"[::1]", b"LOCALHOST:80", b"x.example", b"localhost.x"]
)
async def test_hosts_are_judged_alike(mock_clock, host):
    answers = []
    for kind in ("wire", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            answers.append(comparable(await plane.ask(*get(b"/healthz"), host=host)))

    assert answers[0] == answers[1]


@pytest.mark.rule("A5.26", "A5.28", "A5.31", "H1.24")
async def test_what_is_nowhere_is_answered_alike_and_a_connection_handed_over_closes(mock_clock):
    answers = []
    for kind in ("wire", "handed", "http2"):
        site = new_site()
        async with begun(site), plane_of(kind, site) as plane:
            seen = [await plane.ask(*request) for request in NOWHERE]
            if kind == "handed":
                assert {answer.headers.get("connection") for answer in seen} == {"close"}
            assert (await plane.ask(*get(b"/healthz"))).status == 200
            answers.append([comparable(answer) for answer in seen])

    for request, *same in zip(NOWHERE, *answers, strict=True):
        assert same[0] == same[1] == same[2], request
