"""Schedules over HTTP: what a definition may say, and how a list of them is cut."""

from __future__ import annotations

import pytest

from tests.server.api.asking import ask, code, said
from tests.server.wire.places import open_site
from topics.kernel.limits import Limits

pytestmark = pytest.mark.trio
S = "/v0/schedules/s"
EVERY = {"topic": "t", "every_ms": 86_400_000, "record": {"data": 1}}


@pytest.mark.parametrize("field", ["timezone", "catch_up", "cron"])
async def test_an_empty_text_is_no_default(field):
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/t")
        fields = {**EVERY, field: ""}
        if field == "cron":
            del fields["every_ms"]
        answer = await said(site, "PUT", S, fields)

        assert code(answer) == (400, "invalid_request")
        assert answer[1]["error"]["detail"]["field"] == field
        assert (await said(site, "PUT", S, {**EVERY, "timezone": None, "catch_up": None}))[0] == 201


@pytest.mark.parametrize("topic", ["t", "missing"])
async def test_a_cron_that_cannot_be_is_told_before_a_topic_that_is_not_there(topic):
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/t")
        for when in ({"cron": "0 25 * * *"}, {"cron": "0 0 30 2 *"}, {"cron": "@reboot"}):
            answer = await said(site, "PUT", S, {"topic": topic, "record": {"data": 1}} | when)

            assert code(answer) == (400, "invalid_request")
            assert answer[1]["error"]["detail"]["field"] == "cron"


@pytest.mark.parametrize("path", [S, "/v0/routers/r"])
async def test_a_field_that_a_definition_has_not_is_named(path):
    async with open_site() as site:
        _, told = await said(
            site, "PUT", path, {"topic": "t", "source": "t", "zone": "Mars"} | {"x" * 200: 1}
        )
        unknown = "source" if path == S else "topic"

        assert told["error"]["message"] == f"{unknown}: unknown field"
        assert told["error"]["detail"]["field"] == unknown
        _, told = await said(site, "PUT", path, {"x" * 200: 1})
        assert told["error"]["detail"]["field"] == "x" * 128


async def test_its_name_is_called_one_of_a_schedule():
    async with open_site() as site:
        status, told = await said(site, "GET", "/v0/schedules/a%20b")
        assert status == 400
        assert "'a b' is no schedule's name" in told["error"]["message"]


async def test_a_record_is_as_large_as_any_and_a_list_is_cut_by_bytes():
    async with open_site(limits=Limits()) as site:
        await ask(site, "PUT", "/v0/topics/t")
        large = {**EVERY, "record": {"data": "x" * 700_000}}
        for name in "abc":
            status, told = await said(site, "PUT", f"/v0/schedules/{name}", large)
            assert status == 201, str(told)[:300]
            assert len(told["record"]["data"]) == 700_000
        answer = await said(site, "PUT", S, {**EVERY, "record": {"data": "x" * (1 << 20)}})
        assert code(answer) == (400, "record_too_large")
        answer = await said(site, "PUT", S, {**EVERY, "catch_up": "x" * 70_000})
        assert answer[1]["error"]["detail"]["field"] == "catch_up"

        seen, query = [], ""
        while query is not None:
            _, page = await said(site, "GET", f"/v0/schedules?page_size=100{query}")
            assert 1 <= len(page["schedules"]) <= 2
            seen += [one["schedule"] for one in page["schedules"]]
            query = f"&cursor={page['next_cursor']}" if "next_cursor" in page else None
        assert seen == ["a", "b", "c"]
