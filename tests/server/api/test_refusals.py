"""What is refused, in which order, by which name: 400 before 404 before 409, and what is not built yet."""

import pytest

from tests.embed.inert_store import inert_disk
from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import alone, begun, new_site, open_site

pytestmark = pytest.mark.trio

ABSENT = "/v0/topics/absent"
ONE = [{"data": 1}]


@pytest.mark.rule("H1.8")
@pytest.mark.parametrize(
    ("method", "target", "body", "field"),
    [
        ("POST", f"{ABSENT}/delete", {}, "before_seq"),
        ("POST", f"{ABSENT}/delete", {"before_seq": -1}, "before_seq"),
        ("POST", f"{ABSENT}/delete", {"match": ["tag", "Glob", "a*b"]}, "match"),
        ("POST", f"{ABSENT}/diff", {"from_seq": -1}, "from_seq"),
        ("POST", f"{ABSENT}/diff", {"auto_commit": True}, "auto_commit"),
        ("POST", f"{ABSENT}/diff", {"consumer": "c", "from_seq": 1}, "consumer"),
        ("POST", ABSENT, {"records": [], "create": False}, None),
        ("POST", ABSENT, {"records": ONE, "create": False, "expected_head": -1}, "expected_head"),
        ("POST", ABSENT, {"records": ONE, "create": False, "config": {"type": "heap"}}, "config.type"),
        ("POST", f"{ABSENT}/claim", {"node": ""}, "node"),
        ("POST", f"{ABSENT}/claim", {}, "node"),
        ("POST", f"{ABSENT}/ack", {"node": "w", "seqs": []}, "seqs"),
        ("POST", f"{ABSENT}/ack", {"node": "w", "seqs": [1, -1]}, "seqs[1]"),
        ("POST", f"{ABSENT}/nack", {"node": "w", "seqs": [1], "lease_ids": ["", ""]}, "lease_ids"),
        ("POST", f"{ABSENT}/nack", {"node": "w", "seqs": [1], "reason": "x" * 1025}, "reason"),
        ("POST", f"{ABSENT}/extend", {"node": "w", "seqs": [1]}, "lease_ms"),
        ("POST", f"{ABSENT}/peek", {"state": "gone"}, "state"),
        ("POST", ABSENT, {"records": ONE, "create": False, "idempotency_key": ""}, "idempotency_key"),
        ("POST", f"{ABSENT}?return_seqs=7", {"records": ONE, "create": False}, "return_seqs"),
        ("GET", f"{ABSENT}?touch=7", b"", "touch"),
        ("DELETE", f"{ABSENT}?if_empty=7", b"", "if_empty"),
    ],
)
async def test_what_is_wrong_is_400_before_what_is_absent_is_404(method, target, body, field):
    async with open_site() as site:
        answer = await ask(site, method, target, body)
        error = fields_of(answer)["error"]

        assert (answer.status, error["code"]) == (400, "invalid_request")
        assert field is None or error["detail"]["field"] == field


@pytest.mark.parametrize(
    ("method", "body", "message"),
    [
        ("POST", b" \n", 'body: is empty: a write is {"records": [{"data": 1}, …]}'),
        ("POST", {"data": 1}, 'records: is missing: a write is {"records": [{"data": 1}, …]}'),
        ("POST", ONE, 'body: must be an object, not an array: a write is {"records": [{"data": 1}, …]}'),
        ("POST", {"records": {"data": 1}}, "records: must be a list, not an object: a write is"),
        ("POST", {"records": [7]}, "records[0]: must be an object, not a number"),
        ("PUT", b" ", "body: is empty: JSON is expected"),
        (
            "PUT",
            {"config": {}},
            "config.config: unknown field: the fields stand at the top, with no config around",
        ),
    ],
)
async def test_a_body_of_another_form_hears_which_one_it_has(method, body, message):
    async with open_site() as site:
        answer = await ask(site, method, ABSENT, body)

    assert answer.status == 400
    assert fields_of(answer)["error"]["message"].startswith(message)


NOT_BUILT = [
    ({"replicated": True}, "config.replicated", "not built yet"),
    ({"type": "queue", "dead_letter": "t"}, "config.dead_letter", "is this topic itself"),
    ({"dead_letter": ""}, "config.dead_letter", "is no topic name"),
    ({"dead_letter": "$x"}, "config.dead_letter", "is no topic name"),
]


@pytest.mark.parametrize(("config", "field", "words"), NOT_BUILT)
async def test_what_is_not_built_or_names_itself_is_refused_by_name_on_each_way_in(config, field, words):
    async with open_site() as site:
        for is_there in (False, True):
            if is_there:
                assert (await ask(site, "PUT", "/v0/topics/t", {})).status == 201
            for method, body in (("PUT", config), ("POST", {"records": ONE, "config": config})):
                answer = await ask(site, method, "/v0/topics/t", body)
                error = fields_of(answer)["error"]

                assert (answer.status, error["code"], error["detail"]["field"]) == (
                    400,
                    "invalid_request",
                    field,
                )
                assert words in error["message"]
            assert (await ask(site, "GET", "/v0/topics/t")).status == (200 if is_there else 404)
        assert (await ask(site, "PUT", "/v0/topics/t", {"dead_letter": "other"})).status == 200


@pytest.mark.rule("S3.5")
async def test_a_topic_that_an_earlier_build_made_a_queue_is_read_and_changed_and_stays_one():
    site = new_site()
    async with alone(), begun(site, disk=inert_disk()):
        state = fields_of(await ask(site, "GET", "/v0/topics/jobs"))
        assert (state["type"], state["count"], state["config"]["dead_letter"]) == ("queue", 2, "jobs")
        page = fields_of(await ask(site, "POST", "/v0/topics/jobs/diff", {}))
        assert [record["data"] for record in page["records"]] == [1, 2]

        changed = await ask(
            site, "PUT", "/v0/topics/jobs", {"type": "queue", "dead_letter": "jobs", "ttl_ms": 9}
        )
        assert (changed.status, fields_of(changed)["config"]["ttl_ms"]) == (200, 9)
        kept = await ask(site, "PUT", "/v0/topics/copied", {"replicated": True, "cap_records": 7})
        assert (kept.status, fields_of(kept)["config"]["replicated"]) == (200, True)

        refused = await ask(site, "PUT", "/v0/topics/jobs", {"ttl_ms": 9})
        assert refused.status == 409
        assert fields_of(refused)["error"]["detail"] == {
            "topic": "jobs", "reason": "type", "existing_type": "queue", "requested_type": "log",
        }  # fmt: skip


@pytest.mark.rule("H1.29")
async def test_an_error_about_what_a_topic_holds_names_the_topic():
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/full", {"cap_records": 1, "discard": "reject"})
        await ask(site, "POST", "/v0/topics/full", {"records": ONE})
        for method, target, body, status in (
            ("POST", "/v0/topics/full", {"records": ONE}, 422),
            ("POST", "/v0/topics/full", {"records": [*ONE, *ONE]}, 400),
            ("DELETE", "/v0/topics/full?if_empty=true", b"", 409),
            ("PUT", "/v0/topics/full", {"durability": "ephemeral"}, 409),
            ("POST", "/v0/topics/full", {"records": ONE, "expected_head": 9}, 409),
            ("POST", "/v0/topics/new", {"records": ONE, "expected_head": 9}, 409),
        ):
            answer = await ask(site, method, target, body)
            detail = fields_of(answer)["error"]["detail"]

            assert (answer.status, detail["topic"]) == (status, target.partition("?")[0].rpartition("/")[2])
