"""Members of a body that nobody knows are allowed, and the answer names the first ten (http-api 0)."""

import time

import pytest

from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import open_site
from topics.kernel.limits import KIB, MIB, Limits

pytestmark = [pytest.mark.trio, pytest.mark.rule("H0.1")]

T = "/v0/topics/t"
LARGE = Limits(body_bytes=64 * MIB, wal_file_first=16 * KIB, wal_reserve=4 * KIB)


@pytest.mark.parametrize(
    ("target", "body", "expected"),
    [
        (T, {"records": [{"data": 1}], "idempotency": "k"}, ["idempotency"]),
        (T, {"records": [{"data": 1, "prioritty": 5}]}, ["records[0].prioritty"]),
        (
            T,
            {"records": [{"data": 1}, {"data": 2, "Tag": "x", "b": None}, {"data": 3, "c": {"deep": [1]}}], "z": 1},
            ["z", "records[1].Tag", "records[1].b", "records[2].c"],
        ),
        (T, {"records": [{"data": 1, "key": "k", "ttl_ms": 9, "dedup_id": "d", "x": 1}]}, ["records[0].x"]),
        (T, {f"u{i}": i for i in range(20)} | {"records": [{"data": 1, "v": 1}]}, [f"u{i}" for i in range(10)]),
        (
            T,
            {"records": [{"data": 1, f"v{i}": 1} for i in range(20)]},
            [f"records[{i}].v{i}" for i in range(10)],
        ),
        (T, {"records": [{"data": 1}], "n" * 5000: 1}, ["n" * 128]),
        (f"{T}/diff", {"limits": 1, "from": 3}, ["limits", "from"]),
        (f"{T}/delete", {"before_seq": 1, "tag": "x"}, ["tag"]),
    ],
)  # fmt: skip
async def test_the_answer_names_what_was_ignored(target, body, expected):
    async with open_site() as site:
        await ask(site, "PUT", T, {})
        answer = await ask(site, "POST", target, body)

        assert (answer.status, fields_of(answer)["ignored"]) == (200, expected)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        (T, {"records": [{"data": {"anything": 1}}]}),
        (T, {"records": [{"data": 1, "tag": "t", "node": "n", "meta": {"own": "names"}}], "create": True}),
        (T, {"records": [{"data": 1, "key": "k", "dedup_id": "d", "ttl_ms": None}], "config": {}}),
        (f"{T}/diff", {"limit": 1, "wait_ms": 0, "match": "x"}),
        (f"{T}/diff", b""),
        (f"{T}/delete", {"before_seq": 1}),
    ],
)
async def test_an_answer_to_what_is_all_known_has_no_such_member(target, body):
    async with open_site() as site:
        await ask(site, "PUT", T, {})
        answer = await ask(site, "POST", target, body)

        assert answer.status == 200
        assert "ignored" not in fields_of(answer)


async def test_of_an_object_with_much_that_nobody_knows_the_first_is_named_and_nothing_is_built():
    """A hundred thousand members would be ten megabytes of values that nobody looks at."""
    few, many = (b",".join(b'"u%d":0' % i for i in range(count)) for count in (30_000, 100_000))
    async with open_site(limits=LARGE) as site:
        await ask(site, "PUT", T, {})
        for target, body, expected in (
            (T, b'{"records":[{"data":1}],%b}' % few, ["u0"]),
            (T, b'{"records":[{"data":1,%b}]}' % many, ["records[0].u0"]),
            (f"{T}/diff", b'{"limit":1,%b}' % few[:60_000].rpartition(b",")[0], [f"u{i}" for i in range(10)]),
        ):
            started = time.process_time()
            answer = await ask(site, "POST", target, body)

            assert (answer.status, fields_of(answer)["ignored"]) == (200, expected)
            assert time.process_time() - started < 5


async def test_a_large_payload_beside_it_does_not_hide_a_member():
    async with open_site(limits=LARGE) as site:
        record = {"data": "x" * 500_000, "meta": {"m": "y" * 9000}, "one": 1, "two": 2}
        answer = await ask(site, "POST", T, {"records": [record], "three": 3})

        assert fields_of(answer)["ignored"] == ["three", "records[0].one", "records[0].two"]


async def test_a_large_member_behind_the_records_is_named_and_none_of_theirs_in_its_place():
    async with open_site(limits=LARGE) as site:
        body = {"records": [{"data": 1, "v": 1}], "z": "z" * 70_000}
        answer = await ask(site, "POST", T, body)

        assert fields_of(answer)["ignored"] == ["z", "records[0].v"]
