"""Topics over the API: put, state, list, delete, and the caps on new ones."""

import base64

import pytest
import trio

from tests.server.api.asking import ask, code, fields_of, said
from tests.server.wire.places import SMALL, alone, begun, new_site, open_site
from topics.embed.aio.hub import now_us
from topics.kernel.config import TopicConfig
from topics.kernel.limits import Limits
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio


@pytest.mark.rule("H3.1", "H1.4")
async def test_put_creates_then_replaces_the_whole_config_and_shows_all_of_it():
    async with open_site() as site:
        status, fields = await said(site, "PUT", "/v0/topics/a", {"cap_records": 5, "ttl_ms": 9})
        assert (status, fields["topic"], fields["created"]) == (201, "a", True)
        assert fields["config"].keys() == TopicConfig().echo().keys()
        assert (fields["config"]["cap_records"], fields["config"]["ttl_ms"]) == (5, 9)

        status, fields = await said(site, "PUT", "/v0/topics/a", {"ttl_ms": 8})
        assert (status, fields["created"]) == (200, False)
        assert (fields["config"]["cap_records"], fields["config"]["ttl_ms"]) == (0, 8)

        status, fields = await said(
            site, "PUT", "/v0/topics/b"
        )  # nothing is required, so nothing need be sent
        assert (status, fields["config"]) == (201, TopicConfig().echo())


@pytest.mark.rule("H3.9")
async def test_patch_changes_what_it_is_given_and_makes_nothing():
    async with open_site() as site:
        assert code(await said(site, "PATCH", "/v0/topics/a", {"ttl_ms": 9})) == (404, "topic_not_found")
        await ask(site, "PUT", "/v0/topics/a", {"cap_records": 5, "durability": "fsync"})

        status, fields = await said(site, "PATCH", "/v0/topics/a", {"ttl_ms": 9})

        assert (status, fields["topic"], fields["created"]) == (200, "a", False)
        assert fields["config"].keys() == TopicConfig().echo().keys()
        config = fields["config"]
        assert (config["cap_records"], config["ttl_ms"], config["durability"]) == (5, 9, "fsync")
        assert (await said(site, "PATCH", "/v0/topics/a"))[1]["config"] == config
        changed = await said(site, "PATCH", "/v0/topics/a", {"durable": False})
        assert changed[1]["config"] == config | {"durability": "disk", "durable": False}
        assert code(await said(site, "PATCH", "/v0/topics/a", {"caps": 1})) == (400, "invalid_request")
        assert code(await said(site, "PATCH", "/v0/topics/b", {"caps": 1})) == (400, "invalid_request")


@pytest.mark.rule("H3.10")
async def test_put_that_does_not_replace_changes_nothing_that_is_there():
    async with open_site() as site:
        status, fields = await said(site, "PUT", "/v0/topics/a?replace=false", {"ttl_ms": 9})
        assert (status, fields["created"], fields["config"]["ttl_ms"]) == (201, True, 9)

        assert (await said(site, "PUT", "/v0/topics/a?replace=false"))[0] == 200
        status, same = await said(site, "PUT", "/v0/topics/a?replace=false", {"ttl_ms": 9})
        assert (status, same["created"], same["config"]) == (200, False, fields["config"])

        refused = await said(site, "PUT", "/v0/topics/a?replace=false", {"ttl_ms": 9, "cap_records": 3})
        assert code(refused) == (409, "topic_exists_incompatible")
        differences = {"cap_records": {"there": 0, "asked": 3}}
        assert refused[1]["error"]["detail"] == {"topic": "a", "reason": "config", "differences": differences}
        assert "cap_records: 0 there, 3 asked" in refused[1]["error"]["message"]
        assert (await said(site, "GET", "/v0/topics/a"))[1]["config"] == fields["config"]


@pytest.mark.rule("H0.1", "H1.17")
async def test_a_config_alone_refuses_what_it_does_not_know():
    async with open_site() as site:
        unknown = await said(site, "PUT", "/v0/topics/a", {"cap_record": 5})
        assert code(unknown) == (400, "invalid_request")
        assert "cap_record" in unknown[1]["error"]["message"]
        for value in (-1, 1.5, True, "1", [1]):
            assert code(await said(site, "PUT", "/v0/topics/a", {"cap_records": value})) == (
                400,
                "invalid_request",
            )
        assert (await said(site, "GET", "/v0/topics/a"))[0] == 404
        clamped = await said(site, "PUT", "/v0/topics/a", {"priority": 5000, "lease_ms": 1})
        assert (clamped[1]["config"]["priority"], clamped[1]["config"]["lease_ms"]) == (1000, 100)

        assert (await said(site, "POST", "/v0/topics/a", {"records": [{"data": 1, "x": 2}], "y": 3}))[
            0
        ] == 200
        assert (await said(site, "POST", "/v0/topics/a/diff", {"z": 1}))[0] == 200
        assert (await said(site, "POST", "/v0/topics/a/delete", {"before_seq": 1, "z": 1}))[0] == 200


@pytest.mark.rule("H3.2", "H3.4", "H3.6")
async def test_state_shows_everything_creates_nothing_and_counts_as_a_read_unless_asked_not_to():
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock):
        assert code(await said(site, "GET", "/v0/topics/a")) == (404, "topic_not_found")
        assert (await said(site, "GET", "/v0/topics"))[1] == {"topics": []}

        await ask(site, "PUT", "/v0/topics/a", {"durability": "fsync", "cap_records": 2, "priority": 7})
        status, fields = await said(site, "GET", "/v0/topics/a?touch=false")
        assert status == 200
        assert (fields["last_write_ts"], fields["last_read_ts"]) == (None, None)

        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 10}, {"data": 20}, {"data": 30}]})
        written_ms = clock.now_ms()
        clock.advance(50)
        status, fields = await said(site, "GET", "/v0/topics/a")
        config = fields.pop("config")
        assert config == {
            **TopicConfig().echo(),
            "durability": "fsync",
            "durable": True,
            "cap_records": 2,
            "priority": 7,
        }
        assert fields == {
            "topic": "a", "type": "log", "epoch": 1, "head_seq": 3, "durable_seq": 3, "earliest_seq": 2,
            "evict_floor": 2, "next_seq": 4, "count": 2, "bytes": 4,
            "effective_priority": 7, "last_write_ts": written_ms, "last_read_ts": written_ms + 50,
        }  # fmt: skip

        clock.advance(50)
        await ask(site, "GET", "/v0/topics/a?touch=0")
        await ask(site, "GET", "/v0/topics")
        assert (await said(site, "GET", "/v0/topics/a?touch=false"))[1]["last_read_ts"] == written_ms + 50
        await ask(site, "GET", "/v0/topics?touch=true")
        assert (await said(site, "GET", "/v0/topics/a?touch=false"))[1]["last_read_ts"] == written_ms + 100


@pytest.mark.rule("S10.1", "S10.2", "S10.3", "S10.4", "H3.2", "H3.5")
async def test_the_effective_priority_is_the_configured_one_or_follows_reads_and_grows_while_news_waits(
    autojump_clock,
):
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock):
        runtime = site.ready_runtime()

        async def told(query="?touch=false"):
            shown = (await said(site, "GET", "/v0/topics/auto" + query))[1]["effective_priority"]
            rows = (await said(site, "GET", "/v0/topics"))[1]["topics"]
            assert [row["effective_priority"] for row in rows] == [shown, 9, 0]
            return shown

        for name, config in (("auto", {}), ("fixed", {"priority": 9}), ("none", {"auto_priority": False})):
            await ask(site, "PUT", f"/v0/topics/{name}", config)
        assert await told() == 0  # never read
        assert await told("") == 500  # it was just now
        clock.advance(30_000)
        assert await told() == 250
        await ask(site, "POST", "/v0/topics/auto/diff", {})
        assert await told() == 500
        clock.advance(300_000)
        assert await told() == 0

        runtime.hub.ready.mark("auto", 0, now_us())
        await trio.sleep(2)
        assert await told() == 200
        runtime.hub.ready.done("auto")
        assert await told() == 0


@pytest.mark.rule("H3.5", "H1.19", "H1.20", "H1.18")
async def test_lists_ascend_by_name_page_by_page():
    async with open_site() as site:
        names = sorted(f"{group}{i:03d}" for group in "ab" for i in range(150))
        for name in reversed(names):
            await ask(site, "PUT", f"/v0/topics/{name}")
        await ask(site, "POST", "/v0/topics/a000", {"records": [{"data": 1}]})

        status, page = await said(site, "GET", "/v0/topics")
        assert (status, [t["topic"] for t in page["topics"]]) == (200, names[:100])
        assert page["topics"][0] == {
            "topic": "a000", "type": "log", "head_seq": 1, "earliest_seq": 1, "evict_floor": 1,
            "count": 1, "bytes": 1, "durability": "disk", "durable": False,
            "effective_priority": 0,
        }  # fmt: skip

        for size, expected in (("0", 100), ("1", 1), ("299", 299), ("300", 300), ("99999", 300)):
            status, page = await said(site, "GET", f"/v0/topics?page_size={size}")
            assert (status, len(page["topics"])) == (200, expected)
            assert ("next_cursor" in page) == (expected < 300)

        found, cursor = [], None
        while True:
            target = "/v0/topics?prefix=b&page_size=40" + ("" if cursor is None else f"&cursor={cursor}")
            status, page = await said(site, "GET", target)
            found += [t["topic"] for t in page["topics"]]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        assert found == [name for name in names if name.startswith("b")]


@pytest.mark.rule("H1.19", "H1.20")
async def test_a_page_has_at_most_1000():
    site = new_site()
    async with alone(), begun(site, checking=False):
        for i in range(1001):
            await ask(site, "PUT", f"/v0/topics/t{i}", {"durability": "ephemeral"})

        for size in (1000, 5000):
            _, page = await said(site, "GET", f"/v0/topics?page_size={size}")
            assert len(page["topics"]) == 1000
            assert "next_cursor" in page


@pytest.mark.rule("H1.19", "H1.17")
@pytest.mark.parametrize(
    "query",
    [
        "cursor=",
        "cursor=!!!",
        "cursor=AAAA",
        "cursor=" + base64.urlsafe_b64encode(b"1$internal").decode(),
        "cursor=" + base64.urlsafe_b64encode(b"2topic").decode(),
        "page_size=-1",
        "page_size=1.5",
        "page_size=x",
        "page_size=",
        "touch=maybe",
        "prefix=%ff",
    ],
)
async def test_a_bad_cursor_or_number_is_refused(query):
    async with open_site() as site:
        assert code(await said(site, "GET", f"/v0/topics?{query}")) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("page_size=x", "page_size: must be a whole number from 0, not 'x'"),
        ("page_size=-1", "page_size: must be a whole number from 0, not '-1'"),
        ("touch=maybe", "touch: must be true or false, not 'maybe'"),
        ("page_size=%ff", "page_size: must be a whole number from 0, not '\ufffd'"),
    ],
)
async def test_what_a_query_may_not_say_is_told_as_it_was_written(query, message):
    async with open_site() as site:
        _, answer = await said(site, "GET", f"/v0/topics?{query}")
    assert answer["error"]["message"] == message


@pytest.mark.rule("H3.7", "H3.8")
async def test_delete_takes_everything_and_an_absent_one_is_fine():
    async with open_site() as site:
        gone = {"topic": "a", "deleted": True, "routers_removed": [], "routers_removed_count": 0}
        assert await said(site, "DELETE", "/v0/topics/a") == (200, {**gone, "deleted": False})
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        refused = await said(site, "DELETE", "/v0/topics/a?if_empty=true")
        assert code(refused) == (409, "topic_not_empty")
        assert refused[1]["error"]["message"] == "topic 'a' has 1 record, and if_empty was asked"
        assert (await said(site, "GET", "/v0/topics/a"))[1]["count"] == 1
        assert await said(site, "DELETE", "/v0/topics/a?if_empty=false") == (200, gone)
        assert code(await said(site, "GET", "/v0/topics/a")) == (404, "topic_not_found")

        await ask(site, "PUT", "/v0/topics/a")
        assert (await said(site, "GET", "/v0/topics/a"))[1]["epoch"] == 2
        assert await said(site, "DELETE", "/v0/topics/a?if_empty=true") == (200, gone)


@pytest.mark.rule("H3.8")
async def test_what_has_expired_makes_nobody_wait_for_an_empty_topic():
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock):
        await ask(site, "PUT", "/v0/topics/a", {"ttl_ms": 1000})
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        clock.advance(2500)

        assert (await said(site, "DELETE", "/v0/topics/a?if_empty=true"))[1]["deleted"] is True


@pytest.mark.rule("H11.10", "H11.12", "H1.33")
async def test_a_cap_on_topics_counts_only_new_ones_and_leaves_nothing_behind():
    assert (Limits().topics, Limits().tags_per_topic) == (100_000, 1_000_000)
    limits = Limits(
        topics=2, tags_per_topic=2, wal_file_first=SMALL.wal_file_first, wal_reserve=SMALL.wal_reserve
    )
    async with open_site(limits=limits) as site:
        await ask(site, "PUT", "/v0/topics/a")
        await ask(site, "POST", "/v0/topics/b", {"records": [{"data": 1}]})
        for request in (("PUT", "/v0/topics/c"), ("POST", "/v0/topics/c", {"records": [{"data": 1}]})):
            answer = await ask(site, *request)
            error = fields_of(answer)["error"]
            assert (answer.status, error["code"]) == (429, "throttled")
            assert error["detail"]["max"] == 2
            assert "limit" in error["detail"]
            assert any(name == b"retry-after" for name, _ in answer.headers)
        assert (await said(site, "GET", "/v0/topics/c"))[0] == 404
        assert (await said(site, "PUT", "/v0/topics/a", {"ttl_ms": 5}))[0] == 200
        assert (await said(site, "POST", "/v0/topics/b", {"records": [{"data": 1}]}))[0] == 200

        two = {"records": [{"data": 1, "tag": "x"}, {"data": 1, "tag": "y"}]}
        assert (await said(site, "POST", "/v0/topics/a", two))[0] == 200
        third = await said(site, "POST", "/v0/topics/a", {"records": [{"data": 1, "tag": "z"}]})
        assert code(third) == (429, "throttled")
        assert third[1]["error"]["detail"]["max"] == 2
        assert (await said(site, "GET", "/v0/topics/a"))[1]["head_seq"] == 2
        assert (await said(site, "POST", "/v0/topics/a", two))[0] == 200
        await ask(site, "DELETE", "/v0/topics/a")
        assert (await said(site, "PUT", "/v0/topics/c"))[0] == 201


@pytest.mark.rule("H11.19", "H11.12", "H1.33")
async def test_a_cap_on_total_bytes_refuses_what_is_new_and_leaves_nothing_behind():
    assert Limits().total_bytes == 0
    limits = Limits(total_bytes=10, wal_file_first=SMALL.wal_file_first, wal_reserve=SMALL.wal_reserve)
    async with open_site(limits=limits) as site:
        assert (await said(site, "POST", "/v0/topics/a", {"records": [{"data": 12345678}]}))[0] == 201
        for topic in "ab":
            answer = await ask(site, "POST", f"/v0/topics/{topic}", {"records": [{"data": 123}]})
            error = fields_of(answer)["error"]
            assert (answer.status, error["code"]) == (429, "throttled")
            assert (error["detail"]["limit"], error["detail"]["max"]) == ("total_bytes", 10)
            assert any(name == b"retry-after" for name, _ in answer.headers)
        assert (await said(site, "GET", "/v0/topics/a"))[1]["head_seq"] == 1
        assert (await said(site, "GET", "/v0/topics/b"))[0] == 404
        await ask(site, "POST", "/v0/topics/a/delete", {"before_seq": 2})
        assert (await said(site, "POST", "/v0/topics/b", {"records": [{"data": 123}]}))[0] == 201
