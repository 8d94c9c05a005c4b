"""What became of a record over HTTP: by the files, and by the engine where those do not tell."""

from __future__ import annotations

import msgspec
import pytest
import trio

from tests.server.api.asking import ask, said
from tests.server.wire.places import alone, begun, new_site, open_site
from topics.audit.why.words import why_lines as lines
from topics.codec.why import Why, WhyRange
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys
from topics.testing.faults import FaultKind
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.trio
T = "/v0/topics/t"


async def told(site, query, topic="t", **more):
    status, body = await said(site, "GET", f"/v0/topics/{topic}/why?{query}", **more)
    assert status == 200, body
    return body


async def put(site, count=1, topic="t", **record):
    await ask(site, "POST", f"/v0/topics/{topic}", {"records": [{"data": i, **record} for i in range(count)]})


async def test_one_seq_is_told_of():
    async with open_site() as site:
        await ask(site, "PUT", T, {"cap_records": 2})
        await put(site, 3, node="n")
        found = await told(site, "seq=1")

    assert found["now"] == {"state": "lost", "reason": "cap"}
    assert found["reader"] == {"as": "lost", "reason": "cap", "gap_from": 1, "gap_to": 1}
    assert [(event["event"], event.get("node")) for event in found["events"]] == [
        ("put", "n"),
        ("evicted", None),
    ]
    assert found["log"]["folded_from"] == "creation"


async def test_of_a_topic_that_was_deleted_it_says_when():
    async with open_site() as site:
        await put(site, 3)
        await ask(site, "DELETE", T)
        for query in ("seq=1", "from_seq=0"):
            status, found = await said(site, "GET", f"{T}/why?{query}")
            assert (status, found["error"]["code"]) == (404, "topic_not_found")
            assert "it was deleted at " in found["error"]["message"]
            assert type(found["error"]["detail"]["deleted_ts"]) is int
        never = (await said(site, "GET", "/v0/topics/never/why?seq=1"))[1]["error"]
        assert never["message"] == "there is no topic 'never'"


async def test_of_a_topic_that_was_deleted_no_more_of_the_log_is_read_than_may_be():
    async with open_site(why_log_bytes_max=100) as site:
        await put(site)
        await ask(site, "DELETE", T)
        status, found = await said(site, "GET", f"{T}/why?seq=1")

    assert (status, found["error"]["message"]) == (404, "there is no topic 't'")


async def test_a_readers_range_is_told_of_in_parts():
    async with open_site() as site:
        await ask(site, "PUT", T, {"cap_records": 3})
        await put(site, 3, tag="a")
        await put(site, 1, node="me")
        found = await told(site, "from_seq=0&node=me&match=a")

    assert [(part["first"], part["last"], part["as"]) for part in found["parts"]] == [
        (1, 1, "lost"), (2, 3, "delivered"), (4, 4, "own_node"),
    ]  # fmt: skip


async def test_asked_for_words_it_says_the_sentences_of_the_command_line():
    """Each moment of a sentence is a number, whatever a name looks like."""
    async with open_site() as site:
        await ask(site, "PUT", T, {"cap_records": 3})
        await put(site, 4, node="n 1700000000000", ttl_ms=60_000)
        one, many = await told(site, "seq=2&words=true"), await told(site, "from_seq=0&words")
        for query, answer, kind in (("seq=2", one, Why), ("from_seq=0", many, WhyRange)):
            plain = msgspec.convert(await told(site, query), kind)
            assert in_one_piece(answer) == lines(plain, str)

    assert (one["events"][0]["words"][0], one["events"][0]["words"][1:]) == (
        "put in a write of seqs 1 to 4, by node 'n 1700000000000', to expire at ",
        [one["events"][0]["expires_at"]],
    )


def in_one_piece(answer):
    def said(words):
        return "".join(str(piece) for piece in words)

    if "parts" not in answer:
        return [f"{one['ts']}  {said(one['words'])}" for one in answer["events"]] + [
            said(one) for one in answer["words"]
        ]
    parts = []
    for part in answer["parts"]:
        seqs = str(part["first"]) if part["first"] == part["last"] else f"{part['first']} to {part['last']}"
        why = f": {said(part['words'])}" if "words" in part else ""
        parts.append(f"{seqs}  {part['as']}{why}" + (f", {part['since']}" if part["as"] == "lost" else ""))
    return parts + [said(one) for one in answer["words"]]


async def test_of_an_ephemeral_topic_the_engine_tells():
    async with open_site() as site:
        await ask(site, "PUT", T, {"durability": "ephemeral"})
        await put(site, 2)
        there, above = await told(site, "seq=2"), await told(site, "seq=3")
        status, refused = await said(site, "GET", f"{T}/why?from_seq=0")

    assert (there["now"], there["head_seq"]) == ({"state": "live"}, 2)
    assert above["now"] == {"state": "unborn"}
    assert (status, "ephemeral" in refused["error"]["message"]) == (400, True)


async def test_what_was_not_looked_at_is_said():
    async with open_site(why_log_bytes_max=1000) as site:
        await put(site, 2)
        found = await told(site, "seq=2")
        status, refused = await said(site, "GET", f"{T}/why?from_seq=0")

    assert (found["now"], found["log"]["folded_from"]) == ({"state": "live"}, "nothing")
    assert found["log"]["bytes_left"] > found["log"]["bytes_read"] == 0
    assert (status, refused["error"]["code"]) == (429, "throttled")
    assert "topics why --data" in refused["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "what"),
    [(FaultKind.EIO, "topics fsck says what is damaged"), (FaultKind.EMFILE, "allow more (ulimit -n)")],
)
async def test_a_file_that_cannot_be_read_is_named_with_what_to_do(kind, what):
    disk, site = SimDisk(), new_site()
    async with alone(), begun(site, disk=disk):
        await put(site, 2)
        disk.inject("read", kind, at=disk.counts["read"] + 1, times=None)  # behind FORMAT
        status, failed = await said(site, "GET", f"{T}/why?seq=2")
        disk.heal()

    error = failed["error"]
    assert (status, error["code"]) == (500, "internal")
    (file,) = error["detail"]["files"]
    assert file.startswith("wal/gen-0/")
    assert error["message"].startswith(f"the data directory's {file}: ")
    assert error["message"].endswith(what)


async def test_what_is_asked_wrongly_is_refused():
    async with open_site() as site:
        await put(site)
        answers = [
            await said(site, "GET", f"{T}/why{query}")
            for query in ("", "?seq=1&from_seq=0", "?seq=0", "?seq=x", "?from_seq=0&match=[")
        ]
        status, missing = await said(site, "GET", "/v0/topics/none/why?seq=1")

    assert [status for status, _ in answers] == [400] * 5
    assert (status, missing["error"]["code"]) == (404, "topic_not_found")


async def test_a_key_is_not_told_of_topics_that_it_does_not_see():
    async with open_site(keys=Keys(parse_keys("all,one:read:q"))) as site:
        whole, one = ({"headers": {"authorization": f"Bearer {key}"}} for key in ("all", "one"))
        await ask(site, "PUT", "/v0/topics/dlq", {}, **whole)
        config = {"type": "queue", "max_deliveries": 1, "dead_letter": "dlq"}
        await ask(site, "PUT", "/v0/topics/q", config, **whole)
        await ask(site, "POST", "/v0/topics/q", {"records": [{"data": 1}]}, **whole)
        await ask(site, "POST", "/v0/topics/q/claim", {"node": "w"}, **whole)
        await ask(site, "POST", "/v0/topics/q/nack", {"node": "w", "seqs": [1]}, **whole)
        with trio.fail_after(5):
            while "dest" not in (found := await told(site, "seq=1", "q", **whole))["now"]:
                await trio.lowlevel.checkpoint()
        hidden = await told(site, "seq=1&words=true", "q", **one)

    assert found["now"]["dest"] == "dlq"
    assert "dlq" not in str(hidden)
    assert ["on its way to another topic"] in [event["words"] for event in hidden["events"]]
    assert hidden["words"][0] == ["job 1 is on its way to another topic, delivered 1 time"]


async def test_who_only_reads_is_given_no_lease():
    """With its id he could settle the job of another one."""
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/q", {"type": "queue", "require_lease_id": True})
        await ask(site, "POST", "/v0/topics/q", {"records": [{"data": 1}]})
        _, claimed = await said(site, "POST", "/v0/topics/q/claim", {"node": "w"})
        found = await told(site, "seq=1", "q")

    assert [event["event"] for event in found["events"]] == ["put", "claimed"]
    assert claimed["claimed"][0]["lease_id"] not in str(found)
