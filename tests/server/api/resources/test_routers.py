"""Routers over HTTP: what a definition may say, what a list shows, and what a key is told of names it may not see."""

from __future__ import annotations

import pytest

from tests.server.api.asking import ask, code, said
from tests.server.wire.places import begun, new_site, open_site
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio
R = "/v0/routers/r"
AB = {"source": "a", "dest": "b"}


@pytest.mark.rule("H8.1", "H8.5")
async def test_it_is_told_as_it_is():
    async with open_site() as site:
        status, made = await said(site, "PUT", R, {**AB, "filter": "x"})
        assert status == 201
        assert made == {
            "router": "r", **AB, "preserve_node": True, "preserve_tag": True, "filter": ["tag", "Eq", "x"],
            "allow_cycle": False, "guarantee": "at_least_once", "cursor": 0, "lag": 0, "forwarded_total": 0,
            "created": True,
        }  # fmt: skip
        status, told = await said(site, "GET", R)
        del made["created"]
        assert (status, told) == (200, made)
        assert (await said(site, "PUT", R, AB))[0] == 200


@pytest.mark.rule("H0.2", "H8.3")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"source": "a"}, "dest"), ({"source": "a", "dest": "a"}, "dest"), ({"source": "$a", "dest": "b"}, "source"),
        ({**AB, "filter": ["tag", "Glob", "x"]}, "filter"), ({**AB, "filter": 7}, "filter"),
        ({**AB, "preserve_tag": 1}, "preserve_tag"), ({**AB, "guarantee": "most"}, "guarantee"),
        ({**AB, "zebra": 1}, "zebra"),
    ],
)  # fmt: skip
async def test_what_no_router_can_be_is_refused_by_its_field(fields, field):
    async with open_site() as site:
        answer = await said(site, "PUT", R, fields)

        assert code(answer) == (400, "invalid_request")
        assert answer[1]["error"]["detail"]["field"] == field
        assert (await said(site, "GET", "/v0/topics/a"))[0] == 404


@pytest.mark.rule("H8.6")
async def test_a_list_is_cut_by_pages_and_left_to_what_is_asked_for():
    async with open_site() as site:
        for name, source, dest in (("x1", "a", "b"), ("x2", "a", "c"), ("y->z", "c", "d")):
            await ask(site, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})

        async def names(query):
            _, page = await said(site, "GET", f"/v0/routers?{query}")
            return [one["router"] for one in page["routers"]], page.get("next_cursor")

        first, cursor = await names("page_size=2")
        assert first == ["x1", "x2"]
        assert await names(f"page_size=2&cursor={cursor}") == (["y->z"], None)
        assert await names("prefix=y") == (["y->z"], None)
        assert await names("source=a") == (["x1", "x2"], None)
        assert await names("source=a&dest=c") == (["x2"], None)
        assert await names("dest=zzz") == ([], None)


@pytest.mark.rule("H1.25", "H3.7", "H8.7")
async def test_a_topic_takes_its_routers_and_says_which():
    async with open_site() as site:
        await ask(site, "PUT", R, AB)
        await ask(site, "PUT", "/v0/routers/into-a", {"source": "c", "dest": "a"})
        _, gone = await said(site, "DELETE", "/v0/topics/a")

        assert (gone["routers_removed"], gone["routers_removed_count"]) == (["into-a", "r"], 2)
        assert await said(site, "DELETE", R) == (200, {"router": "r", "deleted": False})
        assert code(await said(site, "GET", R)) == (404, "router_not_found")


@pytest.mark.rule("H2.13", "H2.14")
async def test_a_key_is_told_of_the_names_that_it_sees():
    keys = Keys(parse_keys("root,ours::ours"))
    root, ours = ({"authorization": f"Bearer {key}"} for key in ("root", "ours"))
    async with open_site(keys=keys) as site:
        for name, source, dest in (
            ("ours.r", "ours.a", "ours.b"), ("theirs.r", "theirs.a", "theirs.b"), ("ours.s", "ours.a", "theirs.c"),
            ("theirs.back", "ours.b", "theirs.x"), ("theirs.on", "theirs.x", "ours.z"),
        ):  # fmt: skip
            assert (await said(site, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest}, root))[
                0
            ] == 201

        _, page = await said(site, "GET", "/v0/routers", b"", ours)
        assert [one["router"] for one in page["routers"]] == ["ours.r"]
        for method in ("GET", "DELETE"):
            assert (await said(site, method, "/v0/routers/ours.s", b"", ours))[0] == 403
        put = ("PUT", "/v0/routers/ours.s", {"source": "ours.a", "dest": "ours.q"}, ours)
        assert (await said(site, *put))[0] == 403

        fan_in = ("PUT", "/v0/routers/ours.t", {"source": "ours.a", "dest": "ours.z"}, ours)
        cycle = ("PUT", "/v0/routers/ours.t", {"source": "ours.z", "dest": "ours.a"}, ours)
        for request, told in ((fan_in, "topic_exists_incompatible"), (cycle, "router_cycle")):
            answer = await said(site, *request)
            assert code(answer) == (409, told)
            assert "theirs" not in str(answer)
        assert "theirs" in str(await said(site, *fan_in[:3], root))

        _, gone = await said(site, "DELETE", "/v0/topics/ours.a", b"", ours)
        assert (gone["routers_removed"], gone["routers_removed_count"]) == (["ours.r"], 1)


@pytest.mark.rule("H2.14", "H11.4", "H11.20")
async def test_how_far_it_is_is_measured_for_who_may_see_it():
    keys = Keys(parse_keys("root,ours::ours"))
    root, ours = ({"authorization": f"Bearer {key}"} for key in ("root", "ours"))
    async with open_site(keys=keys) as site:
        for name in ("ours.r", "theirs.r"):
            await ask(
                site, "PUT", f"/v0/routers/{name}", {"source": "ours.a", "dest": f"{name}.copies"}, root
            )
        await ask(site, "POST", "/v0/topics/ours.a", {"records": [{"data": 1}, {"data": 2}]}, root)

        page = (await ask(site, "GET", "/v0/metrics", b"", ours)).body.decode()
        assert 'topics_router_forwarded_total{router="ours.r"} 2.0' in page
        assert 'topics_router_lag{router="ours.r"} 0.0' in page
        assert "topics_routers 1.0" in page
        assert "theirs" not in page
        assert "topics_routers 2.0" in (await ask(site, "GET", "/v0/metrics", b"", root)).body.decode()


@pytest.mark.rule("S8.26")
async def test_who_reads_a_dest_behind_an_answered_write_finds_its_copy():
    dests = [f"d{n}" for n in range(6)]  # some of them in another shard than their source
    site, clock = new_site(), ManualClock()
    async with begun(site, shards=3, clock=clock):
        for dest in dests:
            await ask(site, "PUT", f"/v0/routers/{dest}", {"source": "s", "dest": dest})
        head = 0
        for asked in ("state", "diff", "router", "watch"):
            for dest in dests:
                clock.advance(50)
                await ask(site, "POST", "/v0/topics/s", {"records": [{"data": asked}]})
                head += 1
                match asked:
                    case "state":
                        _, told = await said(site, "GET", f"/v0/topics/{dest}")
                        assert told["head_seq"] == head
                    case "diff":
                        _, page = await said(site, "POST", f"/v0/topics/{dest}/diff", {"from_seq": head - 1})
                        assert [record["data"] for record in page["records"]] == [asked]
                    case "router":
                        _, told = await said(site, "GET", f"/v0/routers/{dest}")
                        assert (told["forwarded_total"], told["lag"]) == (head, 0)
                    case "watch":
                        _, watch = await said(site, "POST", "/v0/watch", {"topics": {dest: {"tail": True}}})
                        assert watch["topics"][dest]["head_seq"] == head
