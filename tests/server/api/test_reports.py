"""What is told of requests: how long they took, by route; a line for each that is slow, and for every one if asked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.server.api.asking import ask, fields_of, of, scrape
from tests.server.wire.places import open_site
from topics.server.api.call import HandlerCall
from topics.server.api.message import Answer
from topics.server.api.reports import SLOW_LINES_PER_S, RequestReports, TimedRequest
from topics.server.api.routes import Route
from topics.server.auth.keys import Keys
from topics.server.auth.lines import digest_of, parse_lines
from topics.server.auth.scopes import Names
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.testing.entropy import SeededEntropy

pytestmark = pytest.mark.trio
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """What the log has told of requests since it was last asked."""
    stream = io.StringIO()
    log.set_up("info", stream)

    def take() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.seek(0)
        stream.truncate()
        return [one for one in found if one["event"].startswith("request.")]

    yield take
    log.set_up(LEVEL_DEFAULT)


async def _of_no_mind(_: HandlerCall) -> Answer:
    raise KeyError("planted")


BROKEN = Route(
    name="broken", method=b"GET", path="/v0/broken", handler=_of_no_mind, scope="read", names=Names.NONE,
    summary="",
)  # fmt: skip


@pytest.mark.rule("O6.4")
async def test_the_access_log_has_a_line_a_request_with_nothing_a_client_hid_in_it(lines):
    async with open_site(access_log=True) as site:
        await ask(site, "POST", "/v0/topics/quakes", {"records": [{"data": "private"}]})
        await ask(site, "GET", "/v0/topics/nobodys")
        await ask(site, "GET", "/v0/no/such/path/s3cret")
        await ask(site, "GET", "/v0/topics?prefix=secret")
        await ask(site, "GET", "/v0/topics?secret=1")

    written, missing, refused, *asked = lines()
    assert written.pop("ms") > 0
    assert len(written.pop("request_id")) == 16
    assert written.pop("timestamp")
    assert written.pop("bytes") > 20
    assert written == {
        "event": "request.served", "level": "info", "method": "POST", "route": "write_records", "topic": "quakes",
        "status": 201, "waited_ms": 0.0, "first_seq": 1, "last_seq": 1,
    }  # fmt: skip
    assert "first_seq" not in missing
    assert (missing["route"], missing["status"], missing["topic"]) == ("get_topic", 404, "nobodys")
    assert (refused["route"], refused["status"], refused["topic"]) == ("", 404, None)
    assert not any(
        "ecret" in str(line) or "private" in str(line) for line in (written, missing, refused, *asked)
    )
    assert [line["status"] for line in asked] == [200, 400]


@pytest.mark.rule("O6.4")
async def test_the_request_of_a_record_is_found_by_its_seq(lines):
    """`why` names the write's seqs; the log names the request that they were the answer to, be it a repeat."""
    name = "n" * 64 + "." + "n" * 63
    body = {"records": [{"data": n} for n in range(500)], "idempotency_key": "k"}
    async with open_site(access_log=True) as site:
        for _ in range(2):
            await ask(site, "POST", f"/v0/topics/{name}", body)
        await ask(site, "POST", f"/v0/topics/{name}/delete", {"before_seq": 3})
        await ask(site, "POST", f"/v0/topics/{name}/diff", {})

    written, repeated, *others = lines()
    for line in (written, repeated):
        assert (line["topic"], line["first_seq"], line["last_seq"]) == (name, 1, 500)
    assert all("first_seq" not in line for line in others)


@pytest.mark.rule("O6.4")
async def test_which_key_asked_is_told_by_its_name_or_its_id_and_never_the_key_itself(lines):
    keys = Keys(parse_lines("first:r # dashboards\nsecond\n"))
    async with open_site(keys=keys, access_log=True) as site:
        for token in ("first", "second"):
            await ask(site, "GET", "/v0/topics", headers={"Authorization": f"Bearer {token}"})
        await ask(site, "GET", "/v0/health")

    named, other, nobody = lines()
    assert named["key"] == "dashboards"
    assert other["key"] == digest_of("second").hex()[:12]
    assert "key" not in nobody
    assert not any(token in str(line) for line in (named, other) for token in ("first", "second"))


@pytest.mark.rule("O6.4")
async def test_without_it_nothing_is_told_and_no_id_is_made(lines):
    async with open_site() as site:
        answer = await ask(site, "GET", "/v0/health")

    assert answer.headers == ()
    assert lines() == []


@pytest.mark.rule("O6.4")
@pytest.mark.parametrize("access_log", [False, True])
async def test_an_id_that_a_client_gives_comes_back_and_is_in_every_line(lines, access_log):
    async with open_site(access_log=access_log, more_routes=[BROKEN]) as site:
        sane = await ask(site, "GET", "/v0/health", headers={"X-Request-Id": "a-1_b:2"})
        bug = await ask(site, "GET", "/v0/broken", headers={"X-Request-Id": "bug-7"})
        refused = await ask(site, "GET", "/v0/topics/none", headers={"X-Request-Id": "r"})

    assert (b"x-request-id", b"a-1_b:2") in sane.headers
    assert (b"x-request-id", b"bug-7") in bug.headers
    assert (b"x-request-id", b"r") in refused.headers
    assert "request_id" not in fields_of(refused)["error"]
    told = {(line["event"], line["request_id"]) for line in lines()}
    assert ("request.bug", "bug-7") in told
    assert (("request.served", "bug-7") in told) is access_log


@pytest.mark.rule("O6.4")
@pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>", "é"])
async def test_an_id_that_is_not_sane_is_replaced_where_one_is_needed_and_else_left_out(lines, given):
    async with open_site() as site:
        answer = await ask(site, "GET", "/v0/health", headers={"X-Request-Id": given})
    assert answer.headers == ()

    async with open_site(access_log=True) as site:
        answer = await ask(site, "GET", "/v0/health", headers={"X-Request-Id": given})
    (line,) = lines()
    assert answer.headers == ((b"x-request-id", line["request_id"].encode()),)
    assert line["request_id"] != given
    assert line["request_id"].isalnum()


@pytest.mark.rule("O6.5")
async def test_a_slow_request_is_told_with_where_its_time_went(lines):
    async with open_site(slow_request_s=1e-9) as site:
        await ask(site, "PUT", "/v0/topics/a", {"durability": "fsync"})
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        await ask(site, "POST", "/v0/topics/a/diff", {})
        found = await scrape(site)

    _, written, read, _ = lines()
    assert (written["event"], written["level"]) == ("request.slow", "warning")
    assert (written["route"], written["topic"], written["status"]) == ("write_records", "a", 200)
    assert written["wal_append_ms"] >= 0
    assert written["fsync_ms"] >= 0
    assert read["records_scanned"] == 1
    assert found[of("topics_slow_requests_total")] == 3


@pytest.mark.rule("O6.5")
async def test_what_a_request_waits_because_it_asked_to_makes_it_neither_slow_nor_late(lines):
    async with open_site(slow_request_s=0.2, access_log=True) as site:
        await ask(site, "PUT", "/v0/topics/a", {})
        await ask(site, "POST", "/v0/topics/a/diff", {"wait_ms": 300})
        found = await scrape(site)

    _, read, _ = lines()
    assert read["event"] == "request.served"
    assert read["waited_ms"] >= 300
    assert read["ms"] >= read["waited_ms"]
    assert found[of("topics_request_duration_seconds_count", route="diff_records")] == 1
    assert found[of("topics_request_duration_seconds_bucket", route="diff_records", le="0.25")] == 1


@pytest.mark.rule("O6.5")
async def test_an_overload_is_told_by_its_first_lines_and_a_number(lines):
    second = 100.0
    reports = RequestReports(SeededEntropy(), slow_s=1.0, now_s=lambda: second)
    for _ in range(SLOW_LINES_PER_S + 5):
        reports.tell(None, Answer(200), TimedRequest("", "health", "/v0/health", 1.5, 0.0, b"", b""))
    assert len(lines()) == SLOW_LINES_PER_S
    second += 1
    reports.tell(None, Answer(200), TimedRequest("", "health", "/v0/health", 1.5, 0.0, b"", b""))

    (line,) = lines()
    assert line["left_out"] == 5
    assert reports.slow == SLOW_LINES_PER_S + 6


@pytest.mark.rule("O6.5")
async def test_latency_is_a_histogram_by_route():
    async with open_site() as site:
        for _ in range(3):
            await ask(site, "GET", "/v0/health")
        await ask(site, "GET", "/v0/topics/none")
        await ask(site, "GET", "/v0/no/such/path")
        found = await scrape(site)

    name = "topics_request_duration_seconds"
    assert found[of(f"{name}_count", route="health")] == 3
    assert found[of(f"{name}_bucket", route="health", le="+Inf")] == 3
    assert found[of(f"{name}_count", route="get_topic")] == 1
    assert 0 < found[of(f"{name}_sum", route="health")] < 3
    steps = [
        value for key, value in found.items() if key[0] == f"{name}_bucket" and ("route", "health") in key
    ]
    assert steps == sorted(steps)
    assert {dict(key[1:])["route"] for key in found if key[0] == f"{name}_count"} == {"health", "get_topic"}
