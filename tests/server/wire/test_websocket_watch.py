"""Topics watched over a WebSocket: the frames of a stream as messages, topics that come and go (http-api 10)."""

import pytest
import trio
from trio.testing import MockClock

from tests.server.wire.playing import pass_time
from tests.server.wire.sockets import PING, PONG, TEXT, close, frame, living, socket_of, text
from tests.server.wire.watching import place
from topics.engine.commands import PutConsumer
from topics.engine.consumers import consumer_states

pytestmark = pytest.mark.trio


@pytest.fixture
def mock_clock():
    return MockClock()


def subscribe(topic="t", **fields):
    return text(op="subscribe", topic=topic, **fields)


def shape(messages):
    """Ops, and of records their seqs."""
    return [
        (one["op"], *[record["$seq"] for record in one["records"]]) if one["op"] == "record" else one["op"]
        for one in messages
    ]


@pytest.mark.rule("H10.4")
async def test_records_come_as_they_are_written(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.make(durable=True)
        await here.put("a", "b")
        await peer.send(subscribe(request_id=7))
        begun, record, caught_up = await peer.messages(3)
        assert begun == {
            "op": "subscribed", "request_id": 7,
            "topics": {"t": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1, "epoch": 1}},
        }  # fmt: skip
        now = here.clock.now_ms()
        assert record == {
            "op": "record", "topic": "t", "from_seq": 0, "to_seq": 2, "head_seq": 2,
            "records": [{"$seq": 1, "$ts": now, "data": "a"}, {"$seq": 2, "$ts": now, "data": "b"}],
        }  # fmt: skip
        assert caught_up == {"op": "caught_up", "topic": "t", "head_seq": 2, "durable_seq": 2}
        await here.put("c")
        assert shape([await peer.message()]) == [("record", 3)]
        await here.delete()
        assert await peer.message() == {
            "op": "topic_deleted", "topic": "t", "head_seq": 3, "reason": "deleted",
        }  # fmt: skip
        await here.put("another")
        await peer.quiet()


@pytest.mark.rule("H10.4")
async def test_one_connection_watches_topics_that_come_and_go(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        for topic in "abc":
            await here.put(1, 2, topic=topic)
        await peer.send(text(op="subscribe", topics={"a": {"tail": True}, "b": {"from_seq": 1}}))
        found = await peer.messages(4)
        assert found[0]["topics"]["a"]["from_seq"] == 2
        assert sorted(one["topic"] for one in found[1:]) == ["a", "b", "b"]
        await peer.send(subscribe("c"))
        assert shape(await peer.messages(3)) == ["subscribed", ("record", 1, 2), "caught_up"]
        assert await peer.ask(op="unsubscribe", topic="a") == {"op": "unsubscribed", "topics": ["a"]}
        assert (await peer.ask(op="unsubscribe", topics=["a", "c", "x"]))["topics"] == ["c"]
        for topic in "abc":
            await here.put(3, topic=topic)
        assert (await peer.message())["topic"] == "b"
        await peer.quiet()
        assert here.runtime.hub.topics == 1


@pytest.mark.rule("H10.4")
async def test_a_topic_that_is_watched_again_is_watched_anew(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put(1, 2, tag="x")
        await peer.send(subscribe())
        assert shape(await peer.messages(3)) == ["subscribed", ("record", 1, 2), "caught_up"]
        await peer.send(subscribe(from_seq=1, include_data=False))
        assert shape(found := await peer.messages(3)) == ["subscribed", ("record", 2), "caught_up"]
        assert "data" not in found[1]["records"][0]
        await here.put(3)
        assert shape([await peer.message()]) == [("record", 3)]
        await peer.quiet()


@pytest.mark.parametrize(
    "asked", [text(op="unsubscribe", topic="t"), frame(b"?", PING)], ids=["unsubscribe", "ping"]
)
async def test_who_takes_more_slowly_than_there_is_to_push_is_heard(mock_clock, asked):
    async with place() as here, socket_of(here.site, back=1000) as (peer, _):
        for _ in range(10):
            await here.put(*["x" * 300] * 200)
        await peer.send(subscribe(limit=1))
        await peer.messages(2)
        await peer.send(frame(b"", PONG))
        await here.settled()
        await peer.send(asked)
        behind = 0
        while (got := await peer.frame()).opcode == TEXT and got.fields["op"] != "unsubscribed":
            behind += 1
        assert behind < 1000


async def test_nothing_of_before_comes_behind_the_answer(mock_clock):
    async with place() as here, socket_of(here.site, back=600) as (peer, _):
        await here.put(*["x" * 4000] * 90)
        await peer.send(subscribe(limit=1))
        await here.settled()  # the peer does not read: some are being sent, some pushed, the others not made
        await peer.send(subscribe(from_seq=89, limit=1))
        found = [await peer.message(), await peer.message()]
        while found[-1]["op"] != "subscribed":
            found.append(await peer.message())
        assert len(found) < 50
        assert shape(await peer.messages(2)) == [("record", 90), "caught_up"]
        await peer.send(text(op="unsubscribe", topic="t"))
        assert (await peer.message())["op"] == "unsubscribed"
        await here.put("late")
        await peer.quiet()


async def test_what_was_being_read_when_it_was_replaced_is_not_sent(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put("a", "b")
        reads, page = trio.Event(), here.runtime._fetcher.page

        async def slowly(engine, query, **more):
            await reads.wait()
            return await page(engine, query, **more)

        here.runtime._fetcher.page = slowly
        await peer.send(subscribe())
        await here.settled()
        await peer.send(subscribe(from_seq=1))
        await here.settled()
        reads.set()
        assert shape(await peer.messages(4)) == ["subscribed", "subscribed", ("record", 2), "caught_up"]
        await peer.quiet()


async def test_what_was_taken_of_a_topic_comes_before_the_answer_that_it_is_watched_no_more(mock_clock):
    """Also if what goes with it, of another topic, is still being read."""
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put(1, topic="a")
        await here.put(2, topic="b")
        reads, page = trio.Event(), here.runtime._fetcher.page

        async def slowly(engine, query, **more):
            if query.topic == "b":
                await reads.wait()
            return await page(engine, query, **more)

        here.runtime._fetcher.page = slowly
        await peer.send(text(op="subscribe", topics={"a": {}, "b": {}}))
        await here.settled()
        await peer.send(text(op="unsubscribe", topic="a"))
        await here.settled()
        reads.set()
        ops = [(one["op"], one.get("topic")) for one in await peer.messages(6)]
        assert ops.index(("unsubscribed", None)) > ops.index(("record", "a"))
        assert {("record", "b"), ("caught_up", "b")} < set(ops)
        await peer.quiet()


REFUSED = [
    ({}, "invalid_request", "topic"),
    ({"topic": "t", "topics": {"t": {}}}, "invalid_request", "topics"),
    ({"topics": {}}, "invalid_request", "topics"),
    ({"topic": "t", "from_seq": 1, "tail": True}, "invalid_request", "tail"),
    ({"topic": "t", "limit": -1}, "invalid_request", "limit"),
    ({"topic": "a/b"}, "invalid_request", "topic"),
    ({"topic": "none"}, "topic_not_found", None),
    ({"topics": {"none": {}}, "lenient": True}, "topic_not_found", None),
    ({"topic": "t", "consumer": "c"}, "consumer_not_found", None),
]


@pytest.mark.rule("H10.4", "H9.4")
@pytest.mark.parametrize(("fields", "code", "field"), REFUSED)
async def test_what_is_wrong_is_refused(mock_clock, fields, code, field):
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put(1)
        got = await peer.ask(op="subscribe", **fields)
        assert (got["code"], got.get("detail", {}).get("field", field)) == (code, field)
        assert here.runtime.hub.topics == 0
        got = await peer.ask(op="subscribe", topics={"t": {}, "none": {}}, lenient=True, nonsense=1)
        assert (list(got["topics"]), got["ignored"]) == (["t"], ["nonsense"])


@pytest.mark.rule("H7.6")
async def test_a_subscription_begins_where_a_consumer_stands(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put(1, 2, 3)
        for name, seq in (("c", 2), ("d", 1)):
            await here.runtime.submit(PutConsumer(topic="t", consumer=name, from_seq=seq))
        got = await peer.ask(op="subscribe", topic="t", consumer="c")
        assert got["topics"]["t"]["from_seq"] == 2
        assert [record["$seq"] for record in (await peer.messages(2))[0]["records"]] == [3]
        got = await peer.ask(op="subscribe", topics={"t": {"consumer": "d", "epoch": 1}})
        assert got["topics"]["t"]["from_seq"] == 1
        assert [state.from_seq for state in consumer_states(here.runtime.engine.catalog, "t")] == [2, 1]


async def test_so_many_topics_are_watched_by_a_connection_and_no_more(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _):
        for number in range(257):
            await here.make(f"t{number}")
        names = {f"t{number}": {} for number in range(256)}
        assert len((await peer.ask(op="subscribe", topics=names))["topics"]) == 256
        await peer.messages(256)
        got = await peer.ask(op="subscribe", topic="t256")
        assert (got["code"], got["detail"]) == ("throttled", {"limit": "watch_topics", "max": 256})
        assert (await peer.ask(op="subscribe", topic="t7"))["op"] == "subscribed"


@pytest.mark.rule("S11.2")
async def test_who_does_not_read_is_told_what_he_lost(mock_clock):
    async with place() as here, socket_of(here.site, back=400) as (peer, _):
        await here.make(cap_records=2)
        await peer.send(subscribe())
        assert shape(await peer.messages(2)) == ["subscribed", "caught_up"]
        for number in range(20):
            await here.put("x" * 300 + str(number))
            await here.settled()
        assert here.site.unsent_bytes < 3000
        found = [await peer.message()]
        while found[-1]["op"] != "record" or found[-1]["to_seq"] < 20:
            found.append(await peer.message())
        assert shape(found)[0] == ("record", 1)
        assert shape(found)[-2:] == ["tombstone", ("record", 19, 20)]
        assert (found[-2]["reason"], found[-2]["gap_to"]) == ("cap", 18)
        await peer.quiet()


@pytest.mark.rule("S11.3")
@pytest.mark.parametrize("size", [1000, 200_000])
async def test_who_does_not_read_for_long_is_let_go_of(mock_clock, size):
    """However much there is that he does not read."""
    async with place() as here, socket_of(here.site, back=400) as (peer, _):
        await here.put("x" * size)
        await peer.send(subscribe())
        await pass_time(29)
        assert here.site.streams.taken == 1
        await pass_time(5)
        assert (here.site.streams.taken, here.runtime.hub.topics) == (0, 0)
        assert peer.edge.unread_bytes == 400
        assert here.site.slow_consumers == 1


@pytest.mark.parametrize("size", [200_000, 400_000])
async def test_who_reads_slowly_is_not_let_go_of(mock_clock, size):
    """16 KiB in each 30 s are enough, as for a stream of events. Whether he lives he can be asked behind that only."""
    async with place() as here, socket_of(here.site, back=400) as (peer, _):
        await here.put("x" * size)
        await peer.send(subscribe())
        for _ in range(size // 20_000):
            await pass_time(29)
            taken = 0
            while taken < 16_384:
                data = await peer.edge.receive()
                assert data
                taken += len(data)
        assert here.site.streams.taken == 1


@pytest.mark.parametrize("how", ["close", "end", "reset", "drain"])
async def test_a_watch_ends_with_its_connection(mock_clock, how):
    async with place() as here, socket_of(here.site) as (peer, connection):
        await here.put(1)
        await peer.send(subscribe())
        await peer.messages(3)
        if how == "close":
            await peer.send(close())
        elif how == "end":
            await peer.edge.send_eof()
        elif how == "reset":
            peer.edge.reset()
        else:
            here.runtime.end_waits()
            connection.end_if_idle()
            await here.put(2)
            await peer.send(close())
        await pass_time(1.5)
        assert (here.site.streams.taken, here.runtime.hub.topics) == (0, 0)


async def test_an_idle_watch_has_no_task(mock_clock):
    async with place() as here:
        await here.put(1)
        before = trio.lowlevel.current_statistics().tasks_living
        async with socket_of(here.site) as (peer, connection):
            await peer.send(subscribe())
            await peer.messages(3)
            await here.settled()
            assert living(connection) == before + 2  # its port's: what tells of bytes, and the test's
            await here.put(2)
            assert (await peer.message())["op"] == "record"
            await here.settled()
            assert living(connection) == before + 2


async def test_who_writes_while_a_connection_ends_is_not_told_of_it(mock_clock):
    """Both sides have closed, and the server still reads what its peer may send."""
    async with place() as here, socket_of(here.site) as (peer, _):
        await here.put(1)
        await peer.send(subscribe())
        await peer.messages(3)
        await peer.send(close())
        assert (await peer.frame()).close == (1000, "")
        await here.settled()
        assert (await here.put(2))["head_seq"] == 2


class Begun(trio.abc.Instrument):
    """The tasks that begin while it looks, by name."""

    def __init__(self):
        self.names = []

    def task_spawned(self, task):
        self.names.append(task.name)


async def test_what_is_at_hand_is_sent_without_a_task(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _), socket_of(here.site) as (other, _):
        await here.make("u")
        await here.put(1)
        for one in (peer, other):
            await one.send(text(op="subscribe", topics={"t": {"tail": True}, "u": {"tail": True}}))
            assert shape(await one.messages(3)) == ["subscribed", "caught_up", "caught_up"]
        await here.settled()
        begun = Begun()
        trio.lowlevel.add_instrument(begun)
        await here.put("a")
        await here.put("b", topic="u")
        for one in (peer, other):
            assert shape(await one.messages(2)) == [("record", 2), ("record", 1)]
        trio.lowlevel.remove_instrument(begun)
        assert [name for name in begun.names if "Pushing" in name] == []


async def test_who_tells_of_news_does_not_hear_of_a_bug_in_a_message(mock_clock):
    async with place() as here, socket_of(here.site) as (peer, _), socket_of(here.site) as (other, _):
        await here.make()
        for one in (peer, other):
            await one.send(subscribe(tail=True))
            assert shape(await one.messages(2)) == ["subscribed", "caught_up"]
        (followers,) = here.runtime.hub._following.values()
        first, *_ = followers
        first.view = None  # whatever is asked of it
        assert (await here.put("a"))["head_seq"] == 1
        assert shape([await other.message()]) == [("record", 1)]
        await pass_time(1.5)
        assert (here.site.bugs, here.site.streams.taken) == (1, 1)
        here.site.bugs = 0
