"""Records over the API: write, read and delete, every field of their bodies and answers."""

import gzip

import pytest
import trio
import trio.testing

from tests.server.api.asking import ask, code, fields_of, said
from tests.server.wire.places import SMALL, alone, begun, new_site, open_site
from topics.host.system.memory import MemoryDisk
from topics.kernel.limits import MIB, Limits
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio

WIDE = Limits(wal_file_first=SMALL.wal_file_first, wal_reserve=SMALL.wal_reserve)
A, DIFF, DELETE = "/v0/topics/a", "/v0/topics/a/diff", "/v0/topics/a/delete"


def some(*values, **fields):
    return {"records": [{"data": value, **fields} for value in values]}


async def page(site, **fields):
    status, body = await said(site, "POST", DIFF, fields)
    assert status == 200, body
    return body


def data_of(body):
    return [record["data"] for record in body["records"]]


# Write.


@pytest.mark.rule("H4.4", "H4.5", "H4.6")
async def test_a_write_answers_with_its_seqs():
    async with open_site() as site:
        first = {
            "topic": "a", "first_seq": 1, "last_seq": 2, "seqs": [1, 2], "head_seq": 2, "durable_seq": 0, "count": 2,
            "created": True, "deduped": False,
        }  # fmt: skip
        assert await said(site, "POST", A, some(1, 2)) == (201, first)
        again = {
            **first,
            "first_seq": 3,
            "last_seq": 3,
            "seqs": [3],
            "head_seq": 3,
            "count": 1,
            "created": False,
        }
        assert await said(site, "POST", A, some(3)) == (200, again)

        known = some(4, dedup_id="x")
        _, fields = await said(site, "POST", A, {"records": known["records"] * 2 + [{"data": 5}]})
        assert (fields["count"], fields["duplicates"], fields["seqs"]) == (3, 1, [4, 4, 5])
        assert (fields["first_seq"], fields["last_seq"], fields["deduped"]) == (4, 5, False)
        _, fields = await said(site, "POST", A, known)
        assert (fields["first_seq"], fields["last_seq"], fields["seqs"], fields["duplicates"]) == (
            None,
            None,
            [4],
            1,
        )
        assert fields["deduped"] is True


@pytest.mark.rule("H4.5")
@pytest.mark.parametrize(
    ("query", "field", "given"),
    [
        ("", None, True), ("?return_seqs=true", None, True), ("?return_seqs", True, True),
        ("?return_seqs=false", None, False), ("?return_seqs=0", True, False), ("", False, False), ("", True, True),
    ],
)  # fmt: skip
async def test_seqs_are_given_unless_query_or_body_says_no(query, field, given):
    async with open_site() as site:
        body = some(1) if field is None else {**some(1), "return_seqs": field}
        assert ("seqs" in (await said(site, "POST", A + query, body))[1]) is given


@pytest.mark.rule("H4.2")
async def test_a_write_creates_unless_it_or_the_server_says_no():
    async with open_site() as site:
        assert code(await said(site, "POST", A, {**some(1), "create": False})) == (404, "topic_not_found")
        assert (await said(site, "GET", A))[0] == 404
        assert (await said(site, "POST", A, some(1)))[0] == 201
        assert (await said(site, "POST", A, {**some(1), "create": False}))[0] == 200
    async with open_site(auto_create=False) as site:
        assert code(await said(site, "POST", A, some(1))) == (404, "topic_not_found")
        assert (await said(site, "POST", A, {**some(1), "create": True}))[0] == 201


@pytest.mark.rule("H4.3")
async def test_the_config_of_a_write_is_used_only_if_it_creates():
    async with open_site() as site:
        await ask(site, "POST", A, {**some(1), "config": {"cap_records": 7}})
        assert (await said(site, "GET", A))[1]["config"]["cap_records"] == 7
        assert (await said(site, "POST", A, {**some(1), "config": {"cap_records": 8}}))[0] == 200
        assert (await said(site, "GET", A))[1]["config"]["cap_records"] == 7


@pytest.mark.rule("H4.11", "H1.29")
async def test_expected_head_lets_one_writer_win():
    async with open_site() as site:
        assert (await said(site, "POST", A, {**some(1), "expected_head": 0, "disable_backpressure": True}))[
            0
        ] == 201
        status, fields = await said(site, "POST", A, {**some(2), "expected_head": 0})
        assert (status, fields["error"]["detail"]) == (409, {"topic": "a", "head_seq": 1})
        assert (await said(site, "POST", A, {**some(2), "expected_head": 1}))[1]["head_seq"] == 2


@pytest.mark.rule("S7.2", "H4.11")
async def test_an_idempotency_key_may_come_as_a_header_and_the_body_wins():
    async with open_site() as site:
        first = (await said(site, "POST", A, some(1), headers={"Idempotency-Key": "k"}))[1]
        for body in (some(1), {**some(1), "idempotency_key": "k"}):
            status, fields = await said(site, "POST", A, body, headers={"Idempotency-Key": "k"})
            assert (status, fields["deduped"], fields["same_body"], fields["seqs"]) == (
                200,
                True,
                True,
                first["seqs"],
            )
        other = {**some(1), "idempotency_key": "other"}
        assert (await said(site, "POST", A, other, headers={"Idempotency-Key": "k"}))[1]["deduped"] is False
        differing = (await said(site, "POST", A, some(2), headers={"Idempotency-Key": "k"}))[1]
        assert (differing["deduped"], differing["same_body"]) == (True, False)
        for bad in ("", "k" * 257):
            assert code(await said(site, "POST", A, some(1), headers={"Idempotency-Key": bad})) == (
                400,
                "invalid_request",
            )
        assert (await said(site, "GET", A))[1]["head_seq"] == 2


@pytest.mark.rule("H1.50", "H1.3")
async def test_an_empty_body_is_no_write():
    async with open_site() as site:
        assert code(await said(site, "POST", A)) == (415, "unsupported_media_type")
        typed = {"content-type": "application/json"}
        assert code(await said(site, "POST", A, b"", headers=typed)) == (400, "invalid_request")
        assert (await said(site, "GET", A))[0] == 404


@pytest.mark.rule("H1.41", "H1.42")
async def test_what_goes_with_a_record_has_limits_in_bytes():
    euro = "\u20ac"  # three bytes
    async with open_site(limits=WIDE) as site:
        fitting = {
            "tag": "t" * 256, "node": "n" * 128, "key": "k" * 256, "dedup_id": "d" * 256,
            "meta": {f"{i:02d}": "v" for i in range(64)},
        }  # fmt: skip
        body = {**some(1, **fitting), "idempotency_key": "i" * 256}
        assert (await said(site, "POST", A, body))[0] == 201
        for field, longest in (("tag", 256), ("node", 128), ("key", 256)):
            for text in ("x" * (longest + 1), euro * (longest // 3 + 1), ""):
                refused = await said(site, "POST", A, some(1, **{field: text}))
                assert code(refused) == (400, "invalid_request"), (field, len(text))
                assert f"records[0].{field}" in refused[1]["error"]["message"]
        for meta in ({str(i): "v" for i in range(65)}, {"k": "v" * (16 << 10)}, {"k": 1}, ["v"]):
            assert code(await said(site, "POST", A, some(1, meta=meta))) == (400, "invalid_request")
        long_key = {**some(1), "idempotency_key": "i" * 257}
        assert code(await said(site, "POST", A, long_key)) == (400, "invalid_request")
        assert (await said(site, "GET", A))[1]["head_seq"] == 1


@pytest.mark.rule("H1.40", "H1.6")
async def test_a_body_has_a_limit_as_sent_and_as_it_unfolds():
    assert Limits().body_bytes == 64 * MIB
    async with open_site() as site:
        longest = SMALL.body_bytes
        body = b'{"records":[{"data":"%b"}]}' % (b"x" * (longest - 25))
        assert len(body) == longest
        assert (await said(site, "POST", A, body))[0] == 201
        assert code(await said(site, "POST", A, body + b" ")) == (413, "payload_too_large")
        packed = {"content-encoding": "gzip"}
        assert (await said(site, "POST", A, gzip.compress(body), headers=packed))[0] == 200
        assert code(await said(site, "POST", A, gzip.compress(body + b" "), headers=packed)) == (
            413,
            "payload_too_large",
        )


@pytest.mark.rule("H4.9", "H4.10")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync", "ephemeral"])
async def test_what_is_acknowledged_is_readable_and_the_logs(durability):
    disk, clock = MemoryDisk(), ManualClock()
    site = new_site()
    async with alone(), begun(site, disk=disk, clock=clock) as runtime:
        await ask(site, "PUT", A, {"durability": durability})
        before = sum(task.meter.frames for task in runtime.shards)
        for i in range(5):
            await ask(site, "POST", A, some(i, i))
            # The next request, on this or any other connection, sees it.
            assert (await page(site))["head_seq"] == 2 * i + 2
            written = sum(task.meter.frames for task in runtime.shards) - before
            assert written >= (0 if durability == "ephemeral" else 2 * i + 2)
            state = (await said(site, "GET", A))[1]
            assert state["durable_seq"] == (2 * i + 2 if durability == "fsync" else 0)


# Read.


@pytest.mark.rule("H5.5", "H5.6", "H5.7", "H0.3", "H0.4")
async def test_a_page_has_all_its_fields_and_a_record_has_what_it_has():
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock):
        await ask(site, "PUT", A, {"durability": "fsync"})
        full = {"data": {"b": 1, "a": 2}, "tag": "t", "node": "n", "key": "k", "meta": {"m": "v"}}
        await ask(site, "POST", A, {"records": [full, {"data": None}, {"data": 3, "tag": "u"}]})
        ts = clock.now_ms()

        assert await page(site, limit=2, include_tags=True, account=True) == {
            "topic": "a", "epoch": 1, "from_seq": 0,
            "records": [
                {"$seq": 1, "$ts": ts, "$node": "n", "$tag": "t", "$key": "k", "data": {"b": 1, "a": 2},
                 "meta": {"m": "v"}},
                {"$seq": 2, "$ts": ts, "data": None},
            ],
            "next_from_seq": 2, "head_seq": 3, "durable_seq": 3, "earliest_seq": 1, "caught_up": False,
            "tombstone": None, "lag": 1,
            "account": {"delivered": 2, "lost": 0, "deleted": 0, "expired": 0, "own_node": 0, "filtered": 0},
        }  # fmt: skip
        bare = await page(site, include_data=False, include_meta=False)
        assert bare["records"] == [
            {"$seq": 1, "$ts": ts, "$node": "n", "$key": "k"}, {"$seq": 2, "$ts": ts}, {"$seq": 3, "$ts": ts},
        ]  # fmt: skip
        assert (bare["caught_up"], bare["lag"]) == (True, 0)


@pytest.mark.rule("H5.3", "H1.18", "H1.44", "H1.17")
async def test_defaults_clamps_and_refusals_of_a_read():
    async with open_site(limits=WIDE) as site:
        await ask(site, "POST", A, some(*range(1100), tag="t", meta={"m": "v"}))
        for fields in ({}, {"limit": 0}, {"max_batch_bytes": 0}, {"wait_ms": 0}):
            found = await page(site, **fields)
            assert len(found["records"]) == 256
            assert found["records"][0].keys() == {"$seq", "$ts", "data", "meta"}
            assert "account" not in found
        for limit, count in ((1, 1), (1000, 1000), (1001, 1000), (2**70, 1000)):
            assert len((await page(site, limit=limit))["records"]) == count
        for field in ("from_seq", "from_ts", "limit", "max_batch_bytes", "wait_ms", "epoch"):
            for value in (-1, 1.5, True, "1", [1]):
                assert code(await said(site, "POST", DIFF, {field: value})) == (400, "invalid_request"), (
                    field,
                    value,
                )
        for field in ("include_tags", "include_meta", "include_data", "account", "auto_commit"):
            for value in (0, "true", []):
                assert code(await said(site, "POST", DIFF, {field: value})) == (400, "invalid_request"), (
                    field,
                    value,
                )
        assert code(await said(site, "POST", DIFF, [1])) == (400, "invalid_request")
        fields = (
            "from_seq from_ts consumer epoch limit node match max_batch_bytes wait_ms account auto_commit"
            " include_tags include_meta include_data"
        )
        nothing = dict.fromkeys(fields.split())
        assert data_of(await page(site, **nothing)) == data_of(await page(site))


@pytest.mark.rule("H5.1")
async def test_a_read_begins_at_a_seq_or_at_a_time_and_not_at_both():
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock):
        times = []
        for i in range(4):
            clock.advance(10)
            times.append(clock.now_ms())
            await ask(site, "POST", A, some(i))
        assert data_of(await page(site)) == [0, 1, 2, 3]
        assert data_of(await page(site, from_seq=2)) == [2, 3]
        assert data_of(await page(site, from_ts=times[2])) == [2, 3]
        assert data_of(await page(site, from_ts=times[1] + 1)) == [2, 3]
        assert (await page(site, from_ts=times[2]))["from_seq"] == 2
        assert data_of(await page(site, from_seq=2, from_ts=None)) == [2, 3]
        assert code(await said(site, "POST", DIFF, {"from_seq": 1, "from_ts": 1})) == (400, "invalid_request")


@pytest.mark.rule("H5.4", "H1.43")
async def test_readers_leave_out_their_own_records_and_select_by_tag():
    async with open_site() as site:
        for node, tag in (("x", "eu"), ("y", "eu.is"), ("z", "asia")):
            await ask(site, "POST", A, some(node, node=node, tag=tag))
        assert data_of(await page(site, node="x")) == ["y", "z"]
        assert data_of(await page(site, node=["x", "z"])) == ["y"]
        assert data_of(await page(site, node=None)) == ["x", "y", "z"]
        assert data_of(await page(site, match="eu")) == ["x"]
        assert data_of(await page(site, match=["tag", "Eq", "eu"])) == ["x"]
        assert data_of(await page(site, match=["tag", "Glob", "eu*"])) == ["x", "y"]
        account = (await page(site, match="eu", node="x", account=True))["account"]
        assert (account["own_node"], account["filtered"], account["delivered"]) == (1, 2, 0)
        assert len((await page(site, node=[f"n{i}" for i in range(64)]))["records"]) == 3
        for bad in (
            {"node": [f"n{i}" for i in range(65)]},
            {"node": 1},
            {"node": [1]},
            {"match": ["tag", "Eq"]},
            {"match": 1},
        ):
            assert code(await said(site, "POST", DIFF, bad)) == (400, "invalid_request"), bad


@pytest.mark.rule("H1.46", "H5.12")
async def test_a_page_has_a_budget_of_bytes_and_one_record_always_fits():
    assert (Limits().page_bytes_default, Limits().page_bytes) == (MIB, 8 * MIB)
    async with open_site(limits=Limits(page_bytes_default=2000, page_bytes=4000)) as site:
        await ask(site, "POST", A, some(*("x" * 400 for _ in range(20))))
        counts = [len((await page(site, max_batch_bytes=n))["records"]) for n in (0, 1, 1000, 4000, 2**60)]
        assert counts == [4, 1, 2, 8, 8]
        assert len((await page(site))["records"]) == 4
        await ask(site, "POST", A, some("x" * 9000))
        assert len((await page(site, from_seq=20, max_batch_bytes=1))["records"]) == 1


@pytest.mark.rule("H5.8", "H5.12", "H1.13")
async def test_a_read_never_creates_and_losses_come_in_a_200():
    async with open_site() as site:
        for wait_ms in (0, 30_000):
            assert code(await said(site, "POST", DIFF, {"wait_ms": wait_ms})) == (404, "topic_not_found")
        assert (await said(site, "GET", "/v0/topics"))[1]["topics"] == []

        await ask(site, "PUT", A, {"cap_records": 1})
        await ask(site, "POST", A, some(1, 2, 3))
        found = await page(site, account=True)
        assert found["tombstone"] == {
            "gap_from": 1, "gap_to": 2, "reason": "cap", "missed_estimate": 2, "earliest_seq": 3, "head_seq": 3,
        }  # fmt: skip
        assert (found["account"]["lost"], data_of(found)) == (2, [3])
        assert (await page(site, from_seq=2, epoch=1))["tombstone"] is None
        for again in ({"from_seq": 2, "epoch": 7}, {"from_seq": 9}):
            found = await page(site, **again)
            assert found["tombstone"]["reason"] == "recreated"
            assert (found["from_seq"], found["epoch"], data_of(found)) == (0, 1, [3])


# Waiting.


@pytest.mark.rule("H5.9", "H5.11")
async def test_a_long_poll_that_has_something_to_say_does_not_wait():
    async with open_site() as site:
        await ask(site, "PUT", A, {"cap_records": 1})
        await ask(site, "POST", A, some(1, 2, tag="t"))
        with trio.fail_after(5):
            assert data_of(await page(site, wait_ms=30_000)) == [2]  # a record
            assert (await page(site, wait_ms=30_000, match="other"))["tombstone"]["reason"] == "cap"
            assert (await page(site, wait_ms=30_000, from_seq=5))["tombstone"]["reason"] == "recreated"


@pytest.mark.rule("H5.9", "H5.10")
async def test_a_long_poll_ends_at_a_record_and_what_is_skipped_moves_its_cursor_only():
    async with open_site() as site, trio.open_nursery() as nursery:
        await ask(site, "POST", A, some(1))
        found = []

        async def wait():
            found.append(await page(site, from_seq=1, wait_ms=30_000, match="mine", node="me", account=True))

        nursery.start_soon(wait)
        for body in (some(2, tag="other"), some(3, tag="mine", node="me"), some(4)):
            await trio.testing.wait_all_tasks_blocked()
            await ask(site, "POST", A, body)
        await trio.testing.wait_all_tasks_blocked()
        assert not found
        await ask(site, "POST", A, some(5, 6, tag="mine"))
        await trio.testing.wait_all_tasks_blocked()

        assert data_of(found[0]) == [5, 6]
        assert (found[0]["from_seq"], found[0]["next_from_seq"], found[0]["caught_up"]) == (1, 6, True)
        assert found[0]["account"] == {
            "delivered": 2, "lost": 0, "deleted": 0, "expired": 0, "own_node": 1, "filtered": 2,
        }  # fmt: skip


@pytest.mark.rule("H5.9", "H5.10")
async def test_a_long_poll_ends_at_its_deadline_with_the_cursor_moved():
    async with open_site() as site:
        await ask(site, "POST", A, some(1, 2, tag="other"))
        found = await page(site, wait_ms=1, match="mine")

        assert (found["records"], found["next_from_seq"], found["caught_up"]) == ([], 2, True)


@pytest.mark.rule("H5.9")
@pytest.mark.parametrize("end", ["deletion", "loss"])
async def test_a_long_poll_ends_when_its_topic_does_or_when_there_is_a_loss(end):
    async with open_site() as site, trio.open_nursery() as nursery:
        await ask(site, "PUT", A, {"cap_records": 2})
        found = []

        async def wait():
            found.append(await said(site, "POST", DIFF, {"wait_ms": 30_000, "match": "mine"}))

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        if end == "deletion":
            await ask(site, "DELETE", A)
        else:
            await ask(site, "POST", A, some(1, 2, 3))
        await trio.testing.wait_all_tasks_blocked()

        if end == "deletion":
            assert code(found[0]) == (404, "topic_not_found")
        else:
            assert found[0][1]["tombstone"]["gap_to"] == 1


# Delete.


@pytest.mark.rule("H6.1")
async def test_a_delete_says_what_it_took_and_what_is_left():
    async with open_site() as site:
        await ask(site, "POST", A, {"records": [{"data": i, "tag": f"t{i % 3}"} for i in range(9)]})
        steps = [
            ({"before_seq": 3}, {"deleted": 2, "earliest_seq": 3, "count": 7}),
            ({"match": "t2"}, {"deleted": 3, "earliest_seq": 4, "count": 4}),
            (
                {"match": ["tag", "Glob", "t*"], "before_seq": 6},
                {"deleted": 2, "earliest_seq": 7, "count": 2},
            ),
            ({"before_seq": 2**60}, {"deleted": 2, "earliest_seq": 10, "count": 0}),
            ({"before_seq": 5, "match": None}, {"deleted": 0, "earliest_seq": 10, "count": 0}),
        ]
        for body, expected in steps:
            answered = await said(site, "POST", DELETE, body)
            assert answered == (200, {"topic": "a", "head_seq": 9, "bytes": expected["count"], **expected})
        found = await page(site, account=True)
        assert (found["tombstone"], found["account"]["deleted"]) == (None, 9)


@pytest.mark.rule("H6.2")
@pytest.mark.parametrize(
    "body",
    [
        {}, {"before_seq": None, "match": None}, {"before_seq": -1}, {"before_seq": "3"}, {"before_seq": 1.5},
        {"match": ["tag", "Glob", "x"]}, {"match": ["tag", "Glob", "*x"]}, {"match": ["tag", "Glob", "x**"]},
        {"match": ["tag", "Like", "x"]}, {"match": ["node", "Eq", "x"]}, {"match": ["tag", "Eq"]}, {"match": 5},
        {"match": ["tag", "Eq", "x" * 257]},
    ],
)  # fmt: skip
async def test_a_delete_without_a_good_selector_is_refused(body):
    async with open_site() as site:
        await ask(site, "POST", A, some(1, tag="x"))
        assert code(await said(site, "POST", DELETE, body)) == (400, "invalid_request")
        assert (await said(site, "GET", A))[1]["count"] == 1


async def test_a_delete_of_an_absent_topic_is_404():
    async with open_site() as site:
        assert code(await said(site, "POST", DELETE, {"before_seq": 1})) == (404, "topic_not_found")


@pytest.mark.rule("H1.14")
async def test_the_time_of_the_sync_is_told_for_fsync_and_is_zero_for_the_others():
    async with open_site() as site:
        for durability in ("ephemeral", "memory", "disk", "fsync"):
            await ask(site, "PUT", f"/v0/topics/{durability}", {"durability": durability})
            answer = fields_of(await ask(site, "POST", f"/v0/topics/{durability}", some(1)))
            took = answer["performance"]
            assert took["server_total_ms"] >= took.get("wal_append_ms", 0) >= 0
            assert took["fsync_ms"] >= 0 if durability == "fsync" else took["fsync_ms"] == 0.0
        reading = fields_of(await ask(site, "POST", "/v0/topics/disk/diff", {}))["performance"]
        assert reading["records_scanned"] == 1
