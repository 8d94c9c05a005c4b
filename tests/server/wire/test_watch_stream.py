"""Topics watched as server-sent events: every event of the page, in order, and nothing twice (http-api 9)."""

import json

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.server.api.asking import ask
from tests.server.api.asking import said as said_of
from tests.server.planes import JSON, Wire
from tests.server.wire.events import Events
from tests.server.wire.playing import pass_time
from tests.server.wire.watching import place, said_by, seqs
from topics.engine.commands import DeleteTopic
from topics.server.api.resources.state import SiteOptions
from topics.server.api.watching.frames import checkpoint_id, id_of, parse_id
from topics.server.api.watching.sessions import TRAIL_MAX

pytestmark = pytest.mark.trio


@pytest.fixture
def mock_clock():
    return MockClock()


@pytest.fixture(params=["wire", "http2"])
def kind(request):
    return request.param


async def caught_up(events):
    """The event that says so, behind whatever comes before it."""
    while (told := await events.told())[0] != "caught-up":
        pass
    return told


@pytest.mark.rule("H9.1", "H9.2", "H9.5", "H9.6", "H9.7", "H9.11", "H9.13", "H9.18")
async def test_records_come_as_they_are_written(mock_clock, kind):
    async with place(kind) as here:
        await here.make(durable=True)
        await here.put("a", "b")
        begun = await here.watch(topics={"t": {}})
        assert begun["topics"] == {"t": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1, "epoch": 1}}
        assert begun["stream_url"] == f"/v0/watch/{begun['wid']}"
        assert begun["session_ttl_ms"] == 300_000
        assert begun["wid"].startswith("wid_")
        assert len(begun["wid"]) >= 4 + 128 / 6
        events = await here.stream(wid=begun["wid"])
        assert said_by(events.first_id) == {"t": 0}
        now = here.clock.now_ms()
        name, number, data = await events.told()
        assert (name, said_by(number)) == ("record", {"t": 2})
        assert data == {
            "topic": "t",
            "records": [{"$seq": 1, "$ts": now, "data": "a"}, {"$seq": 2, "$ts": now, "data": "b"}],
            "from_seq": 0,
            "to_seq": 2,
            "head_seq": 2,
        }
        name, number, data = await events.told()
        assert (name, said_by(number), data) == (
            "caught-up", {"t": 2}, {"topic": "t", "head_seq": 2, "durable_seq": 2},
        )  # fmt: skip
        await here.put("c")
        assert seqs(await events.told()) == [3]
        await here.settled()
        assert not events.has_more()
        await here.gone(events)


STARTS = [
    ({}, [1, 2]),
    ({"from_seq": 1}, [2]),
    ({"from_seq": 0, "tail": False}, [1, 2]),
    ({"from_seq": 2}, []),
    ({"tail": True}, []),
    ({"from_seq": 1, "epoch": 1}, [2]),
]


@pytest.mark.rule("H9.1", "H9.13")
@pytest.mark.parametrize(("start", "found"), STARTS)
async def test_where_a_watch_begins(mock_clock, start, found, kind):
    async with place(kind) as here:
        await here.put(1, 2)
        events = await here.stream(topics={"t": start})
        if found:
            assert seqs(await events.told()) == found
        assert (await events.told())[0] == "caught-up"  # also of who begins at the tail
        await here.put(3)
        assert seqs(await events.told()) == [3]
        await here.gone(events)


async def test_an_empty_topic_is_caught_up_with(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        events = await here.stream(topics={"t": {}})
        assert (await events.told())[2] == {"topic": "t", "head_seq": 0, "durable_seq": 0}
        await here.gone(events)


REFUSED = [
    ({}, 400, "invalid_request", "topics"),
    ({"topics": {}}, 400, "invalid_request", "topics"),
    ({"topics": []}, 400, "invalid_request", "topics"),
    ({"topics": {"t": None}}, 400, "invalid_request", "topics.t"),
    ({"topics": {"u": {}, "t": 5}}, 400, "invalid_request", "topics.t"),
    ({"topics": {"a/b": {}}}, 400, "invalid_request", "topic"),
    ({"topics": {"$t": {}}}, 400, "invalid_request", "topic"),
    ({"topics": {"t": {"from_seq": 1, "tail": True}}}, 400, "invalid_request", "topics.t.tail"),
    ({"topics": {"t": {"from_seq": 0, "consumer": "c"}}}, 400, "invalid_request", "topics.t.consumer"),
    ({"topics": {"t": {"from_seq": -1}}}, 400, "invalid_request", "topics.t.from_seq"),
    ({"topics": {"t": {"consumer": ""}}}, 400, "invalid_request", "topics.t.consumer"),
    ({"topics": {"t": {"epoch": 1.5}}}, 400, "invalid_request", "topics.t.epoch"),
    ({"topics": {f"t{i}": {} for i in range(257)}}, 400, "invalid_request", "topics"),
    ({"topics": {"t": {}}, "consistency": "perhaps"}, 400, "invalid_request", "consistency"),
    ({"topics": {"t": {}}, "match": ["tag"]}, 400, "invalid_request", "match"),
    ({"topics": {"t": {}}, "heartbeat_ms": -1}, 400, "invalid_request", "heartbeat_ms"),
    ({"topics": {"t": {}, "none": {}}}, 404, "topic_not_found", None),
    ({"topics": {"t": {"consumer": "c"}}}, 404, "consumer_not_found", None),
]


@pytest.mark.rule("H9.1", "H9.4", "H1.45")
@pytest.mark.parametrize(("fields", "status", "code", "field"), REFUSED)
async def test_what_is_wrong_is_refused(mock_clock, fields, status, code, field, kind):
    async with place(kind) as here:
        await here.put(1)
        said = await here.watch(**fields)
        assert (said["error"]["code"], said["error"].get("detail", {}).get("field", field)) == (code, field)
        assert here.site.watch_sessions.taken == 0


async def test_what_is_ignored_is_named_and_numbers_are_clamped(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1)
        said = await here.watch(topics={"t": {"tial": True}}, limit=10**9, heartbeat_ms=1, wiat=1)
        assert said["ignored"] == ["wiat", "topics.t.tial"]


@pytest.mark.rule("H9.4")
async def test_a_lenient_watch_leaves_out_what_is_not_there(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1)
        said = await here.watch(lenient=True, topics={"t": {}, "none": {}})
        assert list(said["topics"]) == ["t"]
        said = await here.watch(lenient=True, topics={"none": {}})
        assert said["error"]["code"] == "topic_not_found"


@pytest.mark.rule("H1.55", "H1.27")
async def test_what_is_wrong_with_a_stream_is_answered_before_it(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1)
        wid = (await here.watch(topics={"t": {}}))["wid"].encode()
        for path, fields, status, code in (
            (b"wid_none", (), 404, "not_found"),
            (wid, ((b"accept", b"application/json"),), 406, "not_acceptable"),
        ):
            seen = await here.plane.ask(b"GET", b"/v0/watch/" + path, None, *fields)
            assert (seen.status, seen.code) == (status, code)
        assert here.site.streams.taken == 0
        events = here.events()
        await events.open(b"/v0/watch/" + wid, (b"accept", b"text/html, */*"))
        await here.gone(events)


async def test_the_forms_of_records_are_those_that_were_asked_for(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1, tag="a", node="n", key="k", meta={"m": "1"})
        await here.put(2, tag="b", node="me")
        asked = {
            "include_tags": True,
            "include_meta": False,
            "include_data": False,
            "node": "me",
            "match": "a",
        }
        events = await here.stream(topics={"t": {}}, **asked)
        _, _, data = await events.told()
        assert data["records"] == [
            {"$seq": 1, "$ts": here.clock.now_ms(), "$node": "n", "$tag": "a", "$key": "k"}
        ]
        assert (data["from_seq"], data["to_seq"]) == (0, 2)  # what is left out is passed by
        await here.gone(events)


@pytest.mark.rule("H1.16")
async def test_a_payload_of_several_lines_is_one(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        events = await here.stream(topics={"t": {}})
        await caught_up(events)
        body = b'{"records":[{"data":{"a":\n[1,\r\n2\r]}}]}'
        assert (await here.plane.ask(b"POST", b"/v0/topics/t", body, JSON)).status == 200
        assert (await events.told())[2]["records"][0]["data"] == {"a": [1, 2]}
        await here.gone(events)


async def test_topics_take_turns(mock_clock, kind):
    async with place(kind) as here:
        for topic in "ab":
            await here.put(*range(3), topic=topic)
        events = await here.stream(topics={"a": {}, "b": {}}, limit=1)
        found = [await events.told() for _ in range(8)]
        assert [(data["topic"], data.get("to_seq")) for name, _, data in found if name == "record"] == [
            ("a", 1), ("b", 1), ("a", 2), ("b", 2), ("a", 3), ("b", 3),
        ]  # fmt: skip
        ids = [said_by(number) for _, number, _ in found]
        assert ids[:4] == [{"a": 1, "b": 0}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}]
        await here.gone(events)


@pytest.mark.rule("H9.13")
async def test_who_falls_behind_is_told_when_he_has_caught_up_again(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        events = await here.stream(topics={"t": {}}, limit=2)
        await caught_up(events)
        await here.put(1, 2)
        assert seqs(await events.told()) == [1, 2]
        await here.put(3, 4, 5)
        assert [seqs(await events.told()), seqs(await events.told())] == [[3, 4], [5]]
        assert (await events.told())[:1] == ("caught-up",)
        await here.settled()
        assert not events.has_more()
        await here.gone(events)


# Losses.


@pytest.mark.rule("S4.14", "H9.12")
async def test_what_was_lost_before_a_stream_begins_is_called_too_old(mock_clock, kind):
    async with place(kind) as here:
        await here.make(cap_records=2)
        await here.put(*range(5))
        events = await here.stream(topics={"t": {}})
        name, number, data = await events.told()
        assert (name, said_by(number)) == ("tombstone", {"t": 3})
        assert data == {
            "topic": "t", "reason": "from_seq_too_old", "cause": "cap", "gap_from": 1, "gap_to": 3,
            "earliest_seq": 4, "head_seq": 5, "epoch": 1,
        }  # fmt: skip
        told = await events.told()
        assert (seqs(told), told[2]["from_seq"]) == ([4, 5], 3)
        await here.gone(events)


@pytest.mark.rule("S11.2", "H9.12")
async def test_who_does_not_read_is_told_what_he_lost(mock_clock):
    async with place() as here:
        await here.make(cap_records=2)
        events = await here.stream(topics={"t": {}}, back=400)
        await caught_up(events)
        for number in range(20):
            await here.put("x" * 300 + str(number))
        held = here.site.unsent_bytes
        assert held < 3000  # one piece, not what came since
        first, lost, rest = [await events.told() for _ in range(3)]
        assert seqs(first) == [1]
        assert lost[2]["reason"] == "cap"
        assert (lost[2]["gap_from"], lost[2]["gap_to"]) == (2, 18)
        assert seqs(rest) == [19, 20]
        await here.gone(events)


async def test_who_comes_late_is_not_given_what_was_deleted_since(mock_clock):
    """What others were given, at the same cursor and of the same news, is not read again for them alone."""
    async with place() as here:
        await here.make()
        slow = await here.stream(topics={"t": {}}, back=400)
        await caught_up(slow)
        await here.put("x" * 1000)
        quick = await here.stream(topics={"t": {"tail": True}})
        await caught_up(quick)
        await here.put("deleted")
        assert seqs(await quick.told()) == [2]
        await here.ask("topics/t/delete", before_seq=3)
        assert seqs(await slow.told()) == [1]  # was on its way
        await here.settled()
        assert not slow.has_more()
        await here.put("live")
        assert [seqs(await slow.told()), seqs(await quick.told())] == [[3], [3]]
        await here.gone(slow, quick)


@pytest.mark.rule("S4.19")
async def test_a_topic_that_was_created_anew_is_another(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1, 2, 3)
        events = await here.stream(topics={"t": {}})
        last_id = (await caught_up(events))[1]
        wid = here.site.watches()._by_wid.copy().popitem()[0]
        await here.gone(events)
        await here.delete()
        await here.put("new")
        events = await here.stream(wid=wid, last_id=last_id)
        name, number, data = await events.told()
        assert (name, said_by(number)) == ("tombstone", {"t": [0, 2]})
        assert (data["reason"], data["gap_from"], data["gap_to"], data["epoch"]) == ("recreated", 1, 1, 2)
        record = await events.told()
        assert (seqs(record), said_by(record[1])) == ([1], {"t": [1, 2]})
        last_id = (await caught_up(events))[1]
        assert said_by(last_id) == {"t": [1, 2]}
        await here.gone(events)
        events = await here.stream(wid=wid, last_id=number)  # the tombstone arrived, nothing else
        assert seqs(await events.told()) == [1]
        await here.gone(events)
        said = await here.watch(topics={"t": {"from_seq": 1, "epoch": 1}})
        events = await here.stream(wid=said["wid"])
        assert (await events.told())[2]["reason"] == "recreated"
        await here.gone(events)


@pytest.mark.rule("H9.14")
async def test_the_end_of_a_topic_is_told_and_of_the_last_is_the_end(mock_clock, kind):
    async with place(kind) as here:
        for topic in "ab":
            await here.put(1, topic=topic)
        events = await here.stream(topics={"a": {"tail": True}, "b": {"tail": True}})
        await caught_up(events)
        await caught_up(events)
        await here.delete("a")
        name, number, data = await events.told()
        assert (name, said_by(number)) == ("topic-deleted", {"b": 1})
        assert data == {"topic": "a", "head_seq": 1, "reason": "deleted"}
        await here.put(2, topic="b")
        assert seqs(await events.told()) == [2]
        await here.put("another a", topic="a")  # is none of this watch
        await here.settled()
        assert not events.has_more()
        await here.delete("b")
        assert (await events.told())[2]["topic"] == "b"
        assert await events.text() == ""
        assert here.site.watch_sessions.taken == 0
        await here.gone(events)


async def test_the_last_record_of_a_topic_and_its_end_may_be_sent_together(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1, 2)
        page = here.runtime.pages.page

        async def slow_page(query, *how):
            found = await page(query, *how)
            if query.from_seq == 0:  # it is deleted while its first page is read
                await here.runtime.submit(DeleteTopic(topic="t"))
            return found

        here.runtime.pages.page = slow_page
        events = await here.stream(topics={"t": {}}, limit=1)
        assert seqs(await events.told()) == [1]
        assert (await events.told())[0] == "topic-deleted"
        assert await events.text() == ""
        await here.gone(events)


async def test_an_end_that_did_not_arrive_is_told_again(mock_clock, kind):
    async with place(kind) as here:
        for topic in "ab":
            await here.put(1, topic=topic)
        wid = (await here.watch(topics={"a": {}, "b": {}}))["wid"]
        events = await here.stream(wid=wid)
        await caught_up(events)
        last_id = (await caught_up(events))[1]
        await here.delete("a")
        await here.gone(events)  # without a look at what came
        events = await here.stream(wid=wid, last_id=last_id)
        assert {(await events.told())[0], (await events.told())[0]} == {"topic-deleted", "caught-up"}
        await here.gone(events)


# Sessions and streams.


@pytest.mark.rule("H9.8")
async def test_a_stream_goes_on_where_its_client_was(mock_clock, kind):
    async with place(kind) as here:
        await here.put(*range(6))
        wid = (await here.watch(topics={"t": {}}, limit=2))["wid"]
        events = await here.stream(wid=wid)
        ids = [(await events.told())[1] for _ in range(3)]
        await here.gone(events)
        for last_id, found in (
            (None, [7]),  # all that was sent
            (ids[0], [3, 4]),
            (ids[2], [7, 8]),
            ("rubbish!", [10]),
            (id_of({"t": 10**9}).decode(), [11]),  # only back, never on
            (id_of({"t": 8, "other": 1}).decode(), [9, 10]),
            (id_of({"t": (3, 9)}).decode(), [13]),  # of an instance that has never been
        ):
            await here.put("more")
            events = await here.stream(wid=wid, last_id=last_id)
            assert seqs(await events.told())[:2] == found, last_id
            await caught_up(events)
            await here.gone(events)


@pytest.mark.rule("H9.8")
async def test_what_was_cut_off_in_the_midst_is_sent_again(mock_clock):
    async with place() as here:
        for topic in "ab":
            await here.put("x" * 300, topic=topic)
        wid = (await here.watch(topics={"a": {}, "b": {}}))["wid"]
        events = await here.stream(wid=wid, back=500)
        first = await events.told()
        await here.gone(events)
        events = await here.stream(wid=wid, last_id=first[1])  # it is known to have come
        found = [(await events.told()) for _ in range(3)]
        assert [told[2]["topic"] for told in found if told[0] == "record"] == ["b"]
        await here.gone(events)
        await here.put("x" * 300, topic="a")
        events = await here.stream(wid=wid, back=100)
        await here.settled()
        await here.gone(events)
        events = await here.stream(wid=wid)  # who says nothing is sent what was not sent whole
        assert (await events.told())[2]["topic"] == "a"
        await here.gone(events)


@pytest.mark.rule("H9.7", "H9.8")
async def test_the_id_of_many_topics_is_a_checkpoint(mock_clock, kind):
    async with place(kind) as here:
        names = [f"t{i}" for i in range(65)]
        for name in names:
            await here.put(1, topic=name)
        wid = (await here.watch(topics={name: {} for name in names}))["wid"]
        events = await here.stream(wid=wid)
        found = [await events.told() for _ in range(130)]
        assert {name for name, _, _ in found} == {"record", "caught-up"}
        assert said_by(found[9][1]) == [10]
        await here.gone(events)
        events = await here.stream(wid=wid, last_id=found[9][1])  # five topics had come
        found = [await events.told() for _ in range(65 + 60)]
        assert {told[2]["topic"] for told in found if told[0] == "record"} == {*names[5:]}
        await here.put(2, topic="t0")
        while (told := await events.told())[2]["topic"] != "t0" or told[0] != "record":
            pass
        await here.gone(events)
        events = await here.stream(wid=wid, last_id=checkpoint_id(10**9).decode())
        assert {(await events.told())[0] for _ in range(65)} == {"caught-up"}
        await here.gone(events)


async def test_who_missed_more_than_is_known_is_sent_all_of_it_again(mock_clock):
    async with place() as here:
        names = [f"t{i}" for i in range(65)]
        for name in names:
            await here.make(name)
        wid = (await here.watch(topics={name: {} for name in names}, limit=1))["wid"]
        events = await here.stream(wid=wid, back=1 << 24)
        first_id = events.first_id
        for _ in range(2):
            await here.put(*range(9000), topic="t0")
        await here.settled()
        assert here.site.watches().find(wid, here.site.keys.anybody).number > TRAIL_MAX
        await here.gone(events)
        events = await here.stream(wid=wid, last_id=first_id, back=1000)
        while (told := await events.told())[0] != "record":
            pass
        assert (told[2]["topic"], seqs(told)) == ("t0", [1])
        await here.gone(events)


@pytest.mark.rule("H9.9")
async def test_a_second_stream_supersedes_the_first(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1)
        wid = (await here.watch(topics={"t": {}}))["wid"]
        first = await here.stream(wid=wid)
        await caught_up(first)
        second = await here.stream(wid=wid)
        name, _, data = await first.told()
        assert (name, data["code"], data["reason"]) == ("error", 409, "superseded")
        assert await first.text() == ""
        assert (await second.told())[0] == "caught-up"
        await here.put(2)
        assert seqs(await second.told()) == [2]
        await here.gone(first)
        await here.put(3)
        assert seqs(await second.told()) == [3]
        await here.gone(second)


@pytest.mark.rule("H9.10", "H1.55")
async def test_a_session_ends_when_it_was_without_a_stream_for_so_long(mock_clock):
    async with place() as here:
        await here.put(1)
        wids = [(await here.watch(topics={"t": {}}))["wid"] for _ in range(2)]
        events = await here.stream(wid=wids[0])
        await pass_time(299)
        assert here.site.watch_sessions.taken == 2
        await pass_time(2)
        assert here.site.watch_sessions.taken == 1
        status, said = await said_of(here.site, "GET", f"/v0/watch/{wids[1]}")
        assert (status, said["error"]["code"]) == (404, "not_found")
        await here.gone(events)
        await pass_time(299)
        events = await here.stream(wid=wids[0])  # it had its time anew
        await here.gone(events)
        await pass_time(301)
        assert here.site.watch_sessions.taken == 0
        assert len(here.runtime.wheel) == 0


@pytest.mark.rule("H9.16")
async def test_a_heartbeat_comes_only_when_nothing_else_did(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        streams = [await here.stream(topics={"t": {}}, heartbeat_ms=2000) for _ in range(2)]
        for events in streams:
            await caught_up(events)
        await pass_time(1.5)
        await here.put(1)
        for events in streams:
            assert seqs(await events.told()) == [1]
        await pass_time(1.5)
        assert not any(events.has_more() for events in streams)
        await pass_time(1)
        for events in streams:
            assert await events.text() == f": hb {here.clock.now_ms()}"
        await pass_time(1)
        assert not any(events.has_more() for events in streams)
        await pass_time(1)
        for events in streams:
            assert await events.text() == f": hb {here.clock.now_ms()}"
        await here.gone(*streams)


@pytest.mark.rule("H9.15", "O3.6")
async def test_a_drain_ends_the_stream_and_says_so(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        wid = (await here.watch(topics={"t": {}}))["wid"]
        events = await here.stream(topics={"t": {}})
        await caught_up(events)
        here.runtime.end_waits()
        name, number, data = await events.told()
        assert (name, number, data["code"], data["reason"]) == ("error", None, 503, "shutting_down")
        assert await events.text() == ""
        late = await here.stream(wid=wid)  # was admitted before
        assert (await late.told())[2]["reason"] == "shutting_down"
        await here.gone(events, late)


@pytest.mark.rule("H9.3")
async def test_a_strong_watch_is_given_what_is_durable(mock_clock, kind):
    async with place(kind) as here:
        await here.put(1)
        strong = await here.stream(topics={"t": {}}, consistency="strong")
        plain = await here.stream(topics={"t": {}})
        assert seqs(await plain.told()) == [1]
        assert (await strong.told())[2] == {"topic": "t", "head_seq": 1, "durable_seq": 0}
        await caught_up(plain)
        await here.settled()
        assert not strong.has_more()
        await here.passes(1000)  # the log is synced
        assert seqs(await strong.told()) == [1]
        await here.gone(plain, strong)


@pytest.mark.rule("H9.3")
async def test_a_strong_watch_of_an_ephemeral_topic_is_as_any(mock_clock, kind):
    async with place(kind) as here:
        await here.make(durability="ephemeral")
        events = await here.stream(topics={"t": {}}, consistency="strong")
        await caught_up(events)
        await here.put(1)
        assert seqs(await events.told()) == [1]
        await here.gone(events)


@pytest.mark.rule("H9.17")
async def test_a_record_is_read_and_encoded_once_for_all(mock_clock):
    async with place() as here:
        await here.put(1)
        await here.put(1, topic="u")
        streams = [await here.stream(topics={"t": {"tail": True}}) for _ in range(20)]
        streams += [await here.stream(topics={"t": {"tail": True}, "u": {"tail": True}})]
        await caught_up(streams[-1])
        streams += [await here.stream(topics={"t": {"tail": True}}, consistency="strong")]
        for events in streams:
            await caught_up(events)
        pages, plan = [], here.runtime.engine.plan_diff

        def counted(query):
            pages.append(query)
            return plan(query)

        here.runtime.engine.plan_diff = counted
        await here.put(2)
        for events in streams[:-1]:
            assert seqs(await events.told()) == [2]
        assert len([query for query in pages if not query.durable_only]) == 1
        await here.gone(*streams)


class _Woken(trio.abc.Instrument):
    """The tasks that were made to run."""

    def __init__(self):
        self.tasks = set()

    def task_scheduled(self, task):
        self.tasks.add(task)


@pytest.mark.rule("H9.17")
async def test_nobody_is_woken_to_send_what_goes_at_once(mock_clock):
    async with place() as here:
        await here.put(1)
        streams = [await here.stream(topics={"t": {"tail": True}}) for _ in range(70)]
        for events in streams:
            await caught_up(events)
        await here.settled()
        woken = _Woken()
        trio.lowlevel.add_instrument(woken)
        await here.put(2)
        await here.settled()
        trio.lowlevel.remove_instrument(woken)
        assert all(events.has_more() for events in streams)
        assert len(woken.tasks) < 10
        for events in streams:
            assert seqs(await events.told()) == [2]
        await here.gone(*streams)


@pytest.mark.rule("H9.17", "S11.1")
@pytest.mark.parametrize("back", [1, 100, 400, 1000])
async def test_what_does_not_go_at_once_goes_on_where_it_was_cut(mock_clock, back):
    async with place() as here:
        await here.put(0)
        events = await here.stream(topics={"t": {"tail": True}}, back=back)
        await caught_up(events)
        for number in range(2, 9):
            await here.put("x" * 37 * number)
            await here.settled()
        found = []
        while len(found) < 7:
            found += seqs(await events.told())
        assert found == [2, 3, 4, 5, 6, 7, 8]
        await here.put("y")
        assert seqs(await events.told()) == [9]
        await here.gone(events)


async def test_a_bug_in_what_is_sent_at_once_ends_that_stream_only(mock_clock):
    async with place() as here:
        await here.put(1)
        ends, other = [await here.stream(topics={"t": {"tail": True}}) for _ in range(2)]
        for events in (ends, other):
            await caught_up(events)
        bugs = [ZeroDivisionError("planted")]

        def made(_):
            if bugs:
                raise bugs.pop()

        here.runtime.deliveries.made = made
        assert (await here.put(2))["head_seq"] == 2
        while await ends._more():
            pass
        assert b"event:" not in ends.client.buffer
        assert seqs(await other.told()) == [2]
        assert here.site.bugs == 1
        here.site.bugs = 0
        await here.gone(other)


async def test_a_bug_in_what_is_sent_as_to_others_ends_that_stream_only(mock_clock):
    async with place() as here:
        await here.put(1)
        streams = first, ends, other = [await here.stream(topics={"t": {"tail": True}}) for _ in range(3)]
        for events in streams:
            await caught_up(events)

        def sent(_):
            raise ZeroDivisionError("planted")

        ends.theirs.try_send = sent
        assert (await here.put(2))["head_seq"] == 2
        while await ends._more():
            pass
        assert b"event:" not in ends.client.buffer
        for events in (first, other):
            assert seqs(await events.told()) == [2]
        assert here.site.bugs == 1
        here.site.bugs = 0
        await here.gone(first, other)


@pytest.mark.rule("H9.15")
async def test_a_session_that_ends_before_its_stream_has_begun_says_so(mock_clock):
    async with place() as here:
        await here.put(1)
        wid = (await here.watch(topics={"t": {}}))["wid"]
        stream = (await ask(here.site, "GET", f"/v0/watch/{wid}")).body.source
        here.site.watches().find(wid, here.site.keys.anybody).end()
        assert await stream.piece() == b"retry: 2000\n\n"
        last = await stream.piece()
        assert last.startswith(b"event: error\ndata: ")
        told = json.loads(last.split(b"data: ")[1])
        assert (told["code"], told["reason"]) == (404, "session_expired")
        assert await stream.piece() == b""
        stream.close()


@pytest.mark.rule("H11.18")
async def test_where_the_bound_is_none_there_may_be_any_number(mock_clock, kind):
    async with place(kind, watch_sessions_max=0, streams_max=0) as here:
        await here.put(1)
        streams = [await here.stream(topics={"t": {}}) for _ in range(3)]
        assert (here.site.watch_sessions.taken, here.site.streams.taken) == (3, 3)
        await here.gone(*streams)


@pytest.mark.rule("H11.18", "H11.13")
async def test_sessions_and_streams_are_bounded(mock_clock, kind):
    assert (SiteOptions().watch_sessions_max, SiteOptions().streams_max) == (10_000, 10_000)
    async with place(kind, watch_sessions_max=2, streams_max=1) as here:
        await here.put(1)
        wids = [(await here.watch(topics={"t": {}}))["wid"] for _ in range(2)]
        said = (await here.watch(topics={"t": {}}))["error"]
        assert (said["code"], said["detail"]) == ("throttled", {"limit": "watch_sessions", "max": 2})
        events = await here.stream(wid=wids[0])
        said = (await here.ask(f"watch/{wids[1]}", b"GET"))["error"]
        assert (said["code"], said["detail"]) == ("throttled", {"limit": "streams", "max": 1})
        assert (await here.ask("topics/t/work?node=w", b"GET"))["error"]["code"] == "not_a_queue"
        await here.gone(events)
        events = await here.stream(wid=wids[1])
        await here.gone(events)
        assert here.site.watch_sessions.taken == 2


@pytest.mark.parametrize("how", ["close", "end", "reset"])
async def test_a_stream_ends_with_its_clients_side(mock_clock, how):
    async with place() as here:
        await here.make()
        events = await here.stream(topics={"t": {}})
        await caught_up(events)
        if how == "close":
            events.client.edge.close()
        elif how == "end":
            await events.client.edge.send_eof()
        else:
            events.client.edge.reset()
        await here.settled()
        assert (here.site.streams.taken, here.runtime.hub.topics) == (0, 0)
        await pass_time(2)


async def test_a_head_is_asked_for_without_a_stream(mock_clock):
    async with place() as here:
        await here.put(1)
        wid = (await here.watch(topics={"t": {}}))["wid"]
        events = await here.stream(wid=wid)
        other = Events(here.site, here.nursery)
        await other.client.send(b"HEAD /v0/watch/%b HTTP/1.1\r\nhost: localhost\r\n\r\n" % wid.encode())
        assert b"text/event-stream" in await other.client.receive()
        await other.leave()
        await caught_up(events)
        await here.put(2)
        assert seqs(await events.told()) == [2]  # and was not superseded
        await here.gone(events)


async def test_where_there_is_no_memory_the_stream_says_so_and_goes_on(mock_clock):
    async with place(unsent_bytes_max=6000) as here:
        await here.put("x" * 4000)
        stuck = await here.stream(topics={"t": {}}, back=100)
        events = await here.stream(topics={"t": {}})
        name, number, data = await events.told()
        assert (name, number, data["code"], data["reason"]) == ("error", None, 429, "throttled")
        assert (data["retry_after_ms"], data["topics"]) == (1000, ["t"])
        await here.gone(stuck)
        await pass_time(1.5)
        assert seqs(await events.told()) == [1]
        await here.gone(events)


@pytest.mark.parametrize("text", ["x" * 300, "x" * 5000])
async def test_all_who_rest_at_one_place_are_sent_the_same_each_with_his_own_id(mock_clock, text):
    """One has watched since before the topic was created anew, one is slow, and two watch another topic each, too."""
    async with place() as here:
        await here.put(0)
        for topic in "uv":
            await here.put(0, topic=topic)
        wid = (await here.watch(topics={"t": {}}))["wid"]
        await here.delete()
        await here.put(1)
        first, other = [await here.stream(topics={"t": {}}) for _ in range(2)]
        slow = await here.stream(topics={"t": {}}, back=200)
        before = await here.stream(wid=wid)
        with_u, with_v = [await here.stream(topics={"t": {}, topic: {}}) for topic in "uv"]
        for events in (first, other, slow, before, with_u, with_u, with_v, with_v):
            await caught_up(events)
        ids = {
            first: {"t": 2},
            other: {"t": 2},
            before: {"t": [2, 2]},
            with_u: {"t": 2, "u": 1},
            with_v: {"t": 2, "v": 1},
        }
        await here.put(text)
        for events, number in ids.items():
            record = await events.told()
            assert (seqs(record), said_by(record[1])) == ([2], number)
        await here.put("y", "z")
        for events in ids:
            assert seqs(await events.told()) == [3, 4]
        for found in ([2], [3, 4]):
            assert seqs(await slow.told()) == found
        await here.put("w")
        for events in (*ids, slow):
            record = await events.told()
            assert (seqs(record), events.has_more()) == ([5], False)
        await here.gone(*ids, slow)


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_watches_over_another_version_of_http_is_told_the_same(mock_clock, is_first):
    """What is sent at once over HTTP/1.1 is found first, and over HTTP/2 nothing is sent at once; or the other way."""
    async with place("http2") as here:
        await here.make()
        plain = attrs.evolve(here, served=None)
        streams = [await of.stream(topics={"t": {}}) for of in ((plain, here) if is_first else (here, plain))]
        for events in streams:
            await caught_up(events)
        for seq in (1, 2):
            await here.put("x")
            for events in streams:
                record = await events.told()
                assert (seqs(record), said_by(record[1])) == ([seq], {"t": seq})
        await here.gone(*streams)


async def test_what_was_sent_as_others_were_has_arrived(mock_clock):
    """Who comes back and does not say how far he is goes on behind what was on its way, also if it went in part."""
    async with place() as here:
        await here.make()
        wids = [(await here.watch(topics={"t": {}}))["wid"] for _ in range(3)]
        streams = [
            await here.stream(wid=wid, back=back)
            for wid, back in zip(wids, (1 << 20, 1 << 20, 100), strict=True)
        ]
        for events in streams:
            await caught_up(events)
        await here.put("x" * 300)
        for events in streams:
            assert seqs(await events.told()) == [1]
        await here.settled()
        await here.gone(*streams)
        streams = [await here.stream(wid=wid) for wid in wids]
        for events in streams:
            assert (await events.told())[0] == "caught-up"
        await here.gone(*streams)


async def test_what_others_were_sent_may_be_less_than_there_is(mock_clock):
    async with place() as here:
        await here.make()
        streams = [await here.stream(topics={"t": {}}, limit=1) for _ in range(3)]
        for events in streams:
            await caught_up(events)
        await here.put(1, 2)
        for events in streams:
            assert [seqs(await events.told()), seqs(await events.told())] == [[1], [2]]
            assert (await events.told())[0] == "caught-up"
        await here.gone(*streams)


@pytest.mark.parametrize("is_shared", [True, False])
async def test_whose_turn_comes_late_is_not_given_what_was_deleted_since(mock_clock, is_shared):
    """Two topics have news at once: that of the second is not taken while what came of the first is stuck."""
    async with place() as here:
        for topic in "ab":
            await here.put(0, topic=topic)
        slow = await here.stream(topics={"a": {}, "b": {}}, back=400)
        quick = await here.stream(topics={"a": {}, "b": {}}, limit=0 if is_shared else 7)
        for events in (slow, slow, quick, quick):
            await caught_up(events)
        other = attrs.evolve(here, plane=Wire(here.site, here.nursery, None))
        async with trio.open_nursery() as nursery:  # one write: both are told in one go
            nursery.start_soon(lambda: here.put("x" * 70000, topic="a"))
            nursery.start_soon(lambda: other.put("x" * 70000, topic="b"))
        assert [seqs(await quick.told()), seqs(await quick.told())] == [[2], [2]]
        for topic in "ab":
            await here.ask(f"topics/{topic}/delete", before_seq=3)
        assert seqs(await slow.told()) == [2]  # it was on its way
        await here.settled()
        assert not slow.has_more()
        await here.gone(slow, quick)


async def test_who_waited_for_memory_is_not_given_what_was_deleted_since(mock_clock):
    """News that came meanwhile has what others were given, and is as old as the wait is long."""
    async with place(unsent_bytes_max=6000) as here:
        for topic in "ab":
            await here.make(topic)
        waits, quick = [await here.stream(topics=topics) for topics in ({"a": {}, "b": {}}, {"b": {}})]
        for events in (waits, waits, quick):
            await caught_up(events)
        await here.put("x" * 4000, topic="large")
        stuck = await here.stream(topics={"large": {}}, back=100)
        await here.settled()
        await here.put("y" * 3000, topic="a")
        assert (await waits.told())[2]["reason"] == "throttled"
        await here.put("deleted", topic="b")
        assert seqs(await quick.told()) == [1]
        await here.ask("topics/b/delete", before_seq=2)
        await here.gone(stuck)
        await pass_time(1.5)
        assert seqs(await waits.told()) == [1]
        assert not waits.has_more()
        await here.gone(waits, quick)


async def test_who_waited_for_a_page_of_one_topic_is_not_given_what_was_deleted_of_another(mock_clock):
    async with place() as here:
        for topic in "ab":
            await here.make(topic)
        waits, quick = [await here.stream(topics=topics) for topics in ({"a": {}, "b": {}}, {"b": {}})]
        for events in (waits, waits, quick):
            await caught_up(events)
        page, is_read = here.runtime.pages.page, trio.Event()

        async def slow_page(query, *how):
            if query.topic == "a":  # as one from the cold tier
                await is_read.wait()
            return await page(query, *how)

        here.runtime.pages.page, here.runtime.pages.page_nowait = slow_page, lambda *_: None
        await here.put("y", topic="a")
        await here.settled()
        await here.put("deleted", topic="b")
        assert seqs(await quick.told()) == [1]
        await here.ask("topics/b/delete", before_seq=2)
        is_read.set()
        assert seqs(await waits.told()) == [1]
        await here.settled()
        assert not waits.has_more()
        await here.gone(waits, quick)


async def test_what_was_lost_is_too_old_also_if_more_follows(mock_clock):
    async with place() as here:
        await here.make(cap_records=2)
        await here.put(1, 2, 3, 4)
        events = await here.stream(topics={"t": {}}, limit=1)
        assert (await events.told())[2]["reason"] == "from_seq_too_old"
        assert seqs(await events.told()) == [3]
        await here.gone(events)


async def test_the_id_of_a_record_is_of_the_epoch_that_was_asked_for(mock_clock):
    async with place() as here:
        await here.put(1)
        await here.delete()
        await here.put(2)
        events = await here.stream(topics={"t": {"from_seq": 1, "epoch": 1}})
        assert (await events.told())[2]["reason"] == "recreated"
        record = await events.told()
        assert (seqs(record), said_by(record[1])) == ([1], {"t": [1, 2]})
        await here.gone(events)


async def test_tombstones_are_counted_for_each_who_is_told(mock_clock):
    async with place() as here:
        await here.make(cap_records=1)
        streams = [await here.stream(topics={"t": {"tail": True}}) for _ in range(3)]
        for events in streams:
            await caught_up(events)
        await here.put(1, 2, 3)  # two of them are lost at once
        for events in streams:
            assert (await events.told())[0] == "tombstone"
            assert seqs(await events.told()) == [3]
        assert sum(here.runtime.pages.tombstones.values()) == 3
        await here.gone(*streams)


async def test_what_others_were_given_is_held_by_each_who_is_slow(mock_clock):
    """The page is found by the first, who is stuck with it; there is no memory for a second one."""
    async with place(unsent_bytes_max=8000) as here:
        await here.make()
        stuck, events = [await here.stream(topics={"t": {}}, back=back) for back in (300, 1 << 20)]
        await caught_up(events)
        await here.put("x" * 5000)
        name, _, data = await events.told()
        assert (name, data["reason"]) == ("error", "throttled")
        await here.gone(stuck)
        await pass_time(1.5)
        assert seqs(await events.told()) == [1]
        await here.gone(events)


async def test_who_has_not_caught_up_is_told_that_he_has_also_if_others_stand_where_he_does(mock_clock):
    """There is no memory for either of two, who go on from one place; one of them has just begun."""
    async with place(unsent_bytes_max=5300) as here:
        await here.put("x" * 5000, topic="large")
        await here.make()
        at_head = await here.stream(topics={"t": {}})
        await caught_up(at_head)
        stuck = await here.stream(topics={"large": {}}, back=100)
        await here.settled()
        await here.put("y" * 400)
        begun = await here.stream(topics={"t": {}})
        for events in (at_head, begun):
            assert (await events.told())[2]["reason"] == "throttled"
        await here.gone(stuck)
        await here.put("z")
        assert seqs(await at_head.told()) == [1, 2]
        await pass_time(1.5)
        assert seqs(await begun.told()) == [1, 2]
        assert (await begun.told())[0] == "caught-up"
        assert not any(events.has_more() for events in (at_head, begun))
        await here.gone(at_head, begun)


async def test_an_id_is_what_it_was_made_of_or_nothing():
    assert parse_id(id_of({"a": 1, "b": (2, 3)})) == {"a": 1, "b": (2, 3)}
    assert parse_id(checkpoint_id(7)) == 7
    for text in (b"", b"x", b"!", b"W10", b"eyJhIjotMX0", b"e30" * 20_000, b"\xff", b"bnVsbA"):
        assert parse_id(text) in (None, {}), text


@pytest.mark.rule("S11.1", "S11.3", "H9.15")
async def test_who_takes_nothing_for_long_is_cut_and_may_come_back(mock_clock):
    async with place() as here:
        await here.put("x" * 2000, "y" * 2000)
        wid = (await here.watch(topics={"t": {}}, limit=1))["wid"]
        gone = await here.stream(wid=wid, back=600)
        await pass_time(30)
        assert here.site.streams.taken == 1
        await pass_time(2)
        assert (here.site.streams.taken, here.runtime.hub.topics) == (0, 0)
        assert here.site.watch_sessions.taken == 1
        back = await here.stream(wid=wid, back=600)
        await pass_time(30.5)  # too long, and there again
        assert seqs(await back.told()) == [1]
        while (told := await back.told())[0] != "error":
            pass
        assert (told[2]["code"], told[2]["reason"]) == (408, "slow_consumer")
        assert await back.text() == ""
        again = await here.stream(wid=wid)
        await caught_up(again)
        await here.gone(gone, back, again)


@pytest.mark.rule("H11.4", "H11.15")
async def test_watches_are_counted(mock_clock, kind):
    async with place(kind) as here:
        await here.make()
        streams = [await here.stream(topics={"t": {}}) for _ in range(3)]
        for events in streams:
            await caught_up(events)
        await here.watch(topics={"t": {}})
        await here.put(1)
        for events in streams:
            assert seqs(await events.told()) == [1]
        _, found = await said_of(here.site, "GET", "/v0/metrics", headers={"accept": "application/json"})
        values = {s["name"]: s["value"] for one in found["metrics"] for s in one["samples"]}
        assert values["topics_streams"] == 3
        assert values["topics_watch_sessions"] == 4
        assert values["topics_delivery_latency_seconds_count"] == 1  # of three who share a page the first
        assert values["topics_slow_consumers_total"] == 0
        await here.gone(*streams)


@pytest.mark.rule("S10.4")
async def test_who_attaches_has_read_a_topic_and_so_has_who_is_told_of_a_record(mock_clock, kind):
    async def read_ms():
        return (await said_of(here.site, "GET", "/v0/topics/t?touch=false"))[1]["last_read_ts"]

    async with place(kind) as here:
        await here.make()
        begun = await here.watch(topics={"t": {"tail": True}})
        here.clock.advance(1000)
        events = await here.stream(wid=begun["wid"])
        await caught_up(events)
        assert await read_ms() == here.clock.now_ms()
        here.clock.advance(1000)
        assert await read_ms() == here.clock.now_ms() - 1000
        await here.put("a")
        assert (await events.told())[0] == "record"
        assert await read_ms() == here.clock.now_ms()
        await here.gone(events)
