"""What an admin is told of the keys: whose they are and what they do now, and nothing that lets anybody in."""

import pytest

from tests.server.api.asking import ask, code, said
from tests.server.wire.places import open_site
from topics.server.auth.keys import Keys
from topics.server.auth.lines import digest_of, parse_lines

pytestmark = pytest.mark.trio

TEXT = "the-admin # me\nthe-shop:rw:orders.|mail. # shop\nnobody-named\nlimited:a:orders. # limited\n"
ADMIN = {"authorization": "Bearer the-admin"}
ALL = ["read", "write", "delete", "admin"]


@pytest.mark.rule("O4.5")
async def test_keys_are_told_by_name_with_what_they_may_and_what_they_do(mock_clock):
    async with open_site(keys=Keys(parse_lines(TEXT))) as site:
        now_ms = site.ready_runtime().engine.now_ms()
        await ask(site, "GET", "/v0/topics", headers={"authorization": "Bearer the-shop"})
        await ask(site, "GET", "/v0/metrics", headers={"authorization": "Bearer limited"})  # 403: of no use
        shop = site.keys.find(b"the-shop")
        shop.begin_stream()
        shop.begin_session()
        status, told = await said(site, "GET", "/v0/admin/keys", headers=ADMIN)

    used = [one.pop("used_ts") for one in told["keys"]]
    assert (status, told) == (
        200,
        {
            "auth": True,
            "keys": [
                {
                    "id": digest_of("the-admin").hex()[:12], "name": "me", "scopes": ALL, "prefixes": [],
                    "asks": True, "requests": 1, "streams": 0, "watches": 0,
                },
                {
                    "id": digest_of("the-shop").hex()[:12], "name": "shop", "scopes": ["read", "write"],
                    "prefixes": ["orders.", "mail."], "asks": False, "requests": 0, "streams": 1, "watches": 1,
                },
                {
                    "id": digest_of("nobody-named").hex()[:12], "name": "", "scopes": ALL, "prefixes": [],
                    "asks": False, "requests": 0, "streams": 0, "watches": 0,
                },
                {
                    "id": digest_of("limited").hex()[:12], "name": "limited", "scopes": ["admin"],
                    "prefixes": ["orders."], "asks": False, "requests": 0, "streams": 0, "watches": 0,
                },
            ],
        },
    )  # fmt: skip
    assert used[2:] == [None, None]
    assert now_ms - 10_000 <= used[1] <= used[0] <= now_ms + 10_000


@pytest.mark.rule("O4.5", "H2.11")
async def test_no_secret_and_no_digest_is_told_and_only_an_admin_of_everything_is(mock_clock):
    async with open_site(keys=Keys(parse_lines(TEXT))) as site:
        answer = (await ask(site, "GET", "/v0/admin/keys", headers=ADMIN)).body.decode()
        for key in ("the-shop", "limited"):
            refused = await said(site, "GET", "/v0/admin/keys", headers={"authorization": f"Bearer {key}"})
            assert code(refused) == (403, "forbidden")
        assert code(await said(site, "GET", "/v0/admin/keys")) == (401, "unauthorized")

    for secret in ("the-admin", "the-shop", "nobody-named"):
        assert secret not in answer
        assert digest_of(secret).hex()[:13] not in answer


async def test_after_a_reload_the_keys_are_those_of_the_file_and_a_revoked_one_is_gone(mock_clock):
    async with open_site(keys=Keys(parse_lines(TEXT))) as site:
        await ask(site, "GET", "/v0/topics", headers={"authorization": "Bearer the-shop"})
        site.keys.replace(parse_lines("the-admin # me\nthe-shop:rw:mail.|orders. # the other name\n"))
        _, told = await said(site, "GET", "/v0/admin/keys", headers=ADMIN)

    assert [one["name"] for one in told["keys"]] == ["me", "the other name"]
    assert told["keys"][1]["prefixes"] == ["mail.", "orders."]
    assert told["keys"][1]["used_ts"] is not None  # it is the same key


async def test_where_nobody_is_asked_for_a_key_that_is_said(mock_clock):
    async with open_site() as site:
        assert await said(site, "GET", "/v0/admin/keys") == (200, {"auth": False, "keys": []})
