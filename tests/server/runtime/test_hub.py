"""Readers wait for news together, and what several of them ask for is read once."""

from collections import Counter
from contextlib import asynccontextmanager
from functools import partial
from random import Random

import msgspec
import pytest
import trio
import trio.testing

from tests.server.api.asking import Here, ask, fields_of
from tests.server.wire.places import open_site
from topics.embed.aio.gauge import Gauge
from topics.embed.aio.hub import BEHIND_SLICES, LOOK_EVERY, SLICE_S, Hub, Subscribers, now_us
from topics.engine.commands import Append
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.log.reads.waiting import FOR_READERS, FOR_STRICT_READERS, News
from topics.sched.governor import SAMPLE_US
from topics.sched.ready import SLICE
from topics.server.api.message import Head

pytestmark = pytest.mark.trio


async def test_all_readers_of_a_topic_wake_at_once_and_one_who_leaves_leaves_nothing():
    hub = Hub()
    async with trio.open_nursery() as nursery:
        for topic in ("a", "a", "b"):
            nursery.start_soon(hub.wait, topic)
        with trio.move_on_after(0):
            await hub.wait("c")
        await trio.testing.wait_all_tasks_blocked()
        assert (hub.readers, hub.topics) == (3, 2)

        hub.tell({"a": News.FLOORS | News.DURABLE})  # which tells nothing to who has read up to the head
        await trio.testing.wait_all_tasks_blocked()
        assert (hub.readers, hub.topics) == (3, 2)
        hub.tell({"a": News.RECORDS, "nobody's": News.RECORDS})
        await trio.testing.wait_all_tasks_blocked()
        assert (hub.readers, hub.topics) == (1, 1)
        hub.tell_all()
    assert (hub.readers, hub.topics) == (0, 0)


async def test_who_waits_again_before_the_others_have_gone_on_is_told_of_the_next_news():
    hub, told = Hub(), []
    async with trio.open_nursery() as nursery:

        async def tell_again():
            await trio.testing.wait_all_tasks_blocked()
            hub.tell({"a": News.RECORDS})
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

        nursery.start_soon(hub.wait, "a")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(tell_again)
        hub.tell({"a": News.RECORDS})
        await hub.wait("a")
        told.append("again")

    assert (told, hub.readers, hub.topics) == (["again"], 0, 0)


class Follows:
    """A follower that keeps what it is told of."""

    is_strict = False

    def __init__(self, topic="a"):
        self.topic, self.news = topic, []

    def told(self, news):
        self.news.append(news)

    def end(self): ...


@asynccontextmanager
async def followed_by(count):
    """A hub that tells by slices, and who follows it."""
    hub, many = Hub(), [Follows() for _ in range(count)]
    for one in many:
        hub.follow(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.run)
        await trio.testing.wait_all_tasks_blocked()
        yield hub, many
        nursery.cancel_scope.cancel()


async def test_of_very_many_followers_some_are_told_at_once_and_the_others_by_and_by():
    async with followed_by(3 * SLICE) as (hub, many):
        hub.tell({"a": News.RECORDS})
        told = [one for one in many if one.news]
        assert len(told) == SLICE
        hub.leave(many[-1])  # before it was told
        hub.tell({"b": News.FLOORS})
        await trio.testing.wait_all_tasks_blocked()
        assert len({one.news[-1] for one in many[:-1]}) == 1
        assert many[-1].news == []
        hub.tell({"a": News.RECORDS})
        hub.tell({"a": News.FLOORS})  # what the first were given may be gone: the others are given their own
        hub.tell({"a": News.RECORDS})
        hub.tell({"a": News.FLOORS})
        await trio.testing.wait_all_tasks_blocked()
        assert [len(one.news) for one in many[:-1]] == [3] * SLICE + [2] * (2 * SLICE - 1)
        assert len({one.news[-1] for one in many[:-1]}) == 1
        hub.tell({"a": News.RECORDS})
        hub.tell({"a": News.FLOORS})
        await trio.testing.wait_all_tasks_blocked()
        assert len({one.news[-1] for one in many[:-1]}) == 2


async def test_whose_turn_comes_after_more_has_come_is_given_nothing_that_was_found_before():
    """A record may be evicted by the next one, or the topic be deleted: no news of floors comes then."""
    async with followed_by(2 * SLICE) as (hub, many):
        hub.tell({"a": News.RECORDS})
        old = many[0].news[0]
        hub.tell({"a": News.RECORDS})
        await trio.testing.wait_all_tasks_blocked()
        assert [one.news.count(old) for one in many] == [1] * SLICE + [0] * SLICE
        assert len({one.news[-1] for one in many}) == 1


class Telling:
    """A hub with its task, on a clock that stands still. `order`: of whom a slice was told, by name."""

    def __init__(self, **priorities):
        self.hub = Hub(priorities.get)
        self.order = []
        self.counts = Counter()

    def follow(self, topic, count):
        for _ in range(count):
            self.hub.follow(Told(self, topic))

    def tell(self, *topics):
        self.hub.tell(dict.fromkeys(topics, News.RECORDS))

    async def rest(self):
        await trio.testing.wait_all_tasks_blocked()
        order, self.order = "".join(self.order), []
        return order


class Told(Follows):
    def __init__(self, telling, topic):
        super().__init__(topic)
        self.telling = telling

    def told(self, news):
        order, counts = self.telling.order, self.telling.counts
        counts[self.topic] += 1
        if counts[self.topic] % SLICE == 0:
            order.append(self.topic)


class Does(Told):
    """A follower that has something written, between two slices if it is of the top: when so many of a were told, or
    always.
    """

    def __init__(self, telling, topic, when, *what):
        super().__init__(telling, topic)
        self.when, self.what = when, what

    def told(self, news):
        super().told(news)
        if self.when is None or self.telling.counts["a"] in self.when:
            self.telling.tell(*self.what)


@asynccontextmanager
async def telling(clock, **priorities):
    clock.rate = 0
    made = Telling(**priorities)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.hub.run)
        await trio.testing.wait_all_tasks_blocked()
        yield made
        nursery.cancel_scope.cancel()


@pytest.mark.rule("S10.5", "S10.6")
async def test_when_it_is_much_topics_are_told_in_slices_by_their_bands(mock_clock):
    async with telling(mock_clock, a=0, b=0, m=300, t=800) as made:
        for topic in "abmt":
            made.follow(topic, 3 * SLICE)

        made.tell("a", "b", "m", "t")
        assert made.order == ["a"]  # at once, for nobody waited

        assert await made.rest() == "a" + "ttt" + "mm" + "a" + "m" + "a" + "bbb"
        assert not made.hub.ready


@pytest.mark.rule("S10.5")
async def test_who_comes_while_others_wait_is_told_in_turn_and_not_before_them(mock_clock):
    async with telling(mock_clock, a=800, b=800, z=0) as made:
        made.follow("a", 2 * SLICE)
        made.follow("b", SLICE)
        made.follow("z", SLICE)

        made.tell("a")
        made.tell("z")
        made.tell("b")
        made.tell("z")  # twice, and told once

        assert await made.rest() == "aa" + "b" + "z"
        made.tell("z")
        assert made.order == ["z"]


@pytest.mark.rule("S10.5")
async def test_the_top_band_is_told_at_once_while_others_wait_for_their_turn(mock_clock):
    async with telling(mock_clock, low=0, other=0, t=800, u=800) as made:
        made.follow("low", 8 * SLICE)
        made.follow("other", 1)
        made.follow("t", 1)
        made.follow("u", 2 * SLICE)
        made.tell("low", "t")
        assert made.counts["t"] == 0  # no round has begun, so nobody has credit
        while made.counts["low"] < 2 * SLICE:
            await trio.lowlevel.checkpoint()
        assert made.counts["t"] == 1

        made.tell("other", "t")
        assert (made.counts["other"], made.counts["t"]) == (0, 2)

        made.tell("u")
        assert made.counts["u"] == SLICE - 1  # no more than a slice is told at once, between two turns
        made.tell("t")
        assert made.counts["t"] == 2  # it is behind the rest of u

        await made.rest()
        assert made.counts == {"low": 8 * SLICE, "other": 1, "t": 3, "u": 2 * SLICE}


@pytest.mark.rule("S10.6")
@pytest.mark.invariant("I-13")
async def test_what_is_told_at_once_is_of_the_share_of_the_top_band(mock_clock):
    async with telling(mock_clock, low=0, t=800) as made:
        made.follow("low", 6 * SLICE)
        made.follow("t", SLICE)
        made.tell("low")
        for _ in range(200):
            made.tell("t")
            await trio.lowlevel.checkpoint()

        assert made.counts["low"] == 6 * SLICE


@pytest.mark.rule("S10.9")
async def test_the_top_band_waits_for_no_window_of_those_below_it(mock_clock):
    async with telling(mock_clock, z=0, t=800) as made:
        made.hub.governor.pressure = 0.9  # so there is a window, and the clock stands still in it
        made.follow("z", SLICE)
        made.follow("t", SLICE)
        made.tell("z")
        assert await made.rest() == ""

        made.tell("t")

        assert await made.rest() == "t"


@pytest.mark.rule("S10.5")
@pytest.mark.invariant("I-13")
async def test_a_topic_that_is_written_while_it_is_told_goes_to_the_end_of_its_band(mock_clock):
    async with telling(mock_clock, a=0, b=0, top=800) as made:
        made.follow("a", 3 * SLICE - 1)
        made.hub.follow(Does(made, "a", {3 * SLICE}, "top"))
        made.follow("a", SLICE)
        made.follow("b", SLICE)
        made.hub.follow(Does(made, "top", None, "a", "b"))

        made.tell("a")
        made.tell("b")

        assert await made.rest() == "aaaa" + "b" + "aaa"  # the last slice knows of it
        assert made.counts == {"a": 7 * SLICE, "b": SLICE, "top": 1}


@pytest.mark.rule("S10.5")
async def test_what_is_written_while_some_are_told_once_more_is_told_to_all(mock_clock):
    whenever = {
        3 * SLICE,
        6 * SLICE,
    }  # in the midst of the first go, and of the second, which is to 3 of 4 slices
    async with telling(mock_clock, a=0, top=800) as made:
        for count in (2 * SLICE - 1, SLICE - 1, SLICE - 1):
            made.follow("a", count)
            made.hub.follow(Does(made, "a", whenever, "top"))
        made.hub.follow(Does(made, "top", None, "a"))

        made.tell("a")

        await made.rest()
        assert made.counts["a"] == (4 + 3 + 4) * SLICE


@pytest.mark.rule("S10.5")
async def test_a_slice_is_a_millisecond_if_that_is_sooner(mock_clock):
    async with telling(mock_clock, a=0) as made:
        seen, slow = set(), []

        class Slow(Follows):
            def told(self, news):
                slow.append(self)
                mock_clock.jump(SLICE_S / LOOK_EVERY)

        for _ in range(3 * LOOK_EVERY):
            made.hub.follow(Slow())
        made.tell("a")
        assert len(slow) == LOOK_EVERY

        while len(slow) < 3 * LOOK_EVERY:
            await trio.lowlevel.checkpoint()
            seen.add(len(slow))
        assert seen <= {LOOK_EVERY, 2 * LOOK_EVERY, 3 * LOOK_EVERY}


async def test_who_has_left_is_not_told_when_his_turn_comes(mock_clock):
    async with telling(mock_clock, a=0) as made:
        gone = [Told(made, "a") for _ in range(SLICE)]
        made.follow("a", SLICE)
        for one in gone:
            made.hub.follow(one)
        made.tell("a")
        for one in gone:
            made.hub.leave(one)

        assert await made.rest() == "a"
        assert (made.counts["a"], len(made.hub.ready)) == (SLICE, 0)


class Keeps(Follows):
    """A follower that keeps when it was told last."""

    def __init__(self, topic, is_strict, moment):
        super().__init__(topic)
        self.is_strict, self.moment = is_strict, moment
        self.told_at = 0

    def told(self, news):
        self.told_at = self.moment[0]


@pytest.mark.rule("S10.5", "S2.9")
@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_while_others_are_told_everybody_hears_of_the_last_of_it(mock_clock, seed):
    random, moment, last = Random(seed), [0], {}
    async with telling(mock_clock, a=0, b=-5, c=300) as made:
        followers = [Keeps(topic, random.random() < 0.2, moment) for topic in "abc" for _ in range(2 * SLICE)]
        for one in followers:
            made.hub.follow(one)
        for _ in range(150):
            for _ in range(random.randrange(3)):
                moment[0] += 1
                topic, kinds = (
                    random.choice("abc"),
                    random.choice([News.RECORDS, News.DURABLE, News.FLOORS, News(5)]),
                )
                for is_strict in (False, True):
                    if kinds & (FOR_STRICT_READERS if is_strict else FOR_READERS):
                        last[topic, is_strict] = moment[0]
                made.hub.tell({topic: kinds})
            for _ in range(random.randrange(4)):
                await trio.lowlevel.checkpoint()
        await made.rest()

    assert [one for one in followers if one.told_at < last[one.topic, one.is_strict]] == []


@pytest.mark.rule("S10.5", "S2.9")
async def test_who_comes_to_follow_while_others_are_told_hears_of_what_comes_then(mock_clock):
    async with telling(mock_clock, a=0) as made:
        made.follow("a", 2 * SLICE)
        made.tell("a")
        assert made.hub.ready  # the second half of them is still to be told
        early, late = Follows("a"), Follows("a")
        made.hub.follow(early)  # and reads up to here
        made.tell("a")
        await made.rest()

        assert early.news
        made.tell("a")
        assert made.hub.ready
        made.hub.follow(late)
        await made.rest()
        assert not late.news  # or whoever waits once and again would keep it from its end


def press(governor):
    """Have it see nothing but trouble for two seconds."""
    for n in range(20):
        governor.waited(10**6)
        governor.sample(n * SAMPLE_US, ready=SLICE, late_us=0, busy=1.0)


@pytest.mark.rule("S10.9")
async def test_under_pressure_news_of_a_topic_waits_for_more_and_is_told_as_one(autojump_clock):
    hub, one = Hub({"a": -1}.get), Follows("a")
    hub.follow(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.run)
        hub.tell({"a": News.RECORDS})
        assert len(one.news) == 1
        press(hub.governor)
        for _ in range(3):
            hub.tell({"a": News.RECORDS})
            await trio.sleep(0.006)
        await trio.sleep(0.0015)
        assert len(one.news) == 1
        await trio.sleep(0.001)
        assert len(one.news) == 2  # 20 ms since the first of them
        await trio.sleep(0.1)
        assert len(one.news) == 2
        nursery.cancel_scope.cancel()


@pytest.mark.rule("S10.11")
async def test_topics_below_0_are_told_nothing_while_they_are_held_and_polls_are_answered(autojump_clock):
    priorities = {"below": -1, "zero": 0}
    hub, below, zero = Hub(priorities.get), Follows("below"), Follows("zero")
    hub.follow(below)
    hub.follow(zero)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.run)
        hub.tell({"below": News.RECORDS})
        press(hub.governor)
        assert hub.governor.is_holding
        hub.judge(2 * 10**6, busy=1.0)
        nursery.start_soon(hub.wait, "below")
        await trio.testing.wait_all_tasks_blocked()
        hub.tell({"below": News.RECORDS, "zero": News.RECORDS})
        assert hub.readers == 1
        await trio.sleep(1)
        assert (len(below.news), len(zero.news), hub.readers, hub.ready.held) == (1, 1, 0, 1)

        for _ in range(30):  # nothing waits any more
            hub.judge(now_us(), busy=0.0)
        assert not hub.governor.is_holding
        await trio.sleep(1)
        assert (len(below.news), hub.ready.held) == (2, 0)
        nursery.cancel_scope.cancel()


@pytest.mark.rule("S10.8")
async def test_pressure_is_looked_at_only_while_the_hub_is_behind(autojump_clock):
    hub, looks = Hub(), []
    judge = hub.judge
    hub.judge = lambda at_us, busy: looks.append(at_us) or judge(at_us, busy)
    for _ in range((BEHIND_SLICES + 2) * SLICE):
        hub.follow(Follows("a"))
    hub.follow(Follows("b"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(hub.run)
        nursery.start_soon(Gauge(hub).run)
        await trio.sleep(10)
        for _ in range(3 * SLICE):
            hub.tell({"b": News.RECORDS})
        await trio.sleep(10)
        assert looks == []

        hub.tell({"a": News.RECORDS})
        await trio.sleep(60)

        assert 1 <= len(looks) < 30
        assert hub.governor.is_at_rest
        nursery.cancel_scope.cancel()


async def test_what_is_asked_for_under_one_key_is_found_once():
    news, asked, found = Subscribers(), [], []

    async def find(key):
        asked.append(key)
        await trio.lowlevel.checkpoint()
        return [key]

    async def take(key):
        found.append(await news.once(key, partial(find, key)))

    async with trio.open_nursery() as nursery:
        for key in ("a", "b", "a", "a"):
            nursery.start_soon(take, key)
    await take("a")

    assert sorted(asked) == ["a", "b"]
    assert sorted(found) == [["a"]] * 4 + [["b"]]
    assert len({id(one) for one in found}) == 2


@pytest.mark.parametrize("leaves", [False, True])
async def test_if_the_first_fails_or_leaves_the_next_one_finds_it(leaves):
    news, tries, found, first = Subscribers(), [], [], trio.CancelScope()

    async def find():
        tries.append(1)
        await trio.testing.wait_all_tasks_blocked()
        if len(tries) == 1:
            first.cancel()
            if leaves:
                await trio.lowlevel.checkpoint()
            raise Rejected(Code.THROTTLED, "no room for the first")
        return b"page"

    async def take(scope):
        with scope:
            try:
                found.append(await news.once("key", find))
            except Rejected:
                found.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take, first)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            nursery.start_soon(take, trio.CancelScope())

    assert len(tries) == 2
    assert found == ([] if leaves else [None]) + [b"page"] * 3


async def test_long_polls_at_one_cursor_are_answered_from_one_read_and_others_from_their_own():
    others = [{"include_data": False}, {"limit": 1, "account": True}]
    asks = [{"from_seq": 1, **more} for more in [{}] * 10 + others]
    pages = {}
    async with open_site() as site:
        await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
        runtime, planned = site.ready_runtime(), []
        plan_diff = runtime.engine.plan_diff

        async def poll(i, body):
            pages[i] = await ask_and_keep(site, body)

        async with trio.open_nursery() as nursery:
            for i, body in enumerate(asks):
                nursery.start_soon(poll, i, {**body, "wait_ms": 30_000})
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.hub.readers == len(asks)
            runtime.engine.plan_diff = lambda query: planned.append(query) or plan_diff(query)
            await ask_and_keep(site, {"records": [{"data": [2]}, {"data": 3}]}, path="/v0/topics/t")
        del runtime.engine.plan_diff

    assert len(planned) == 3
    data = [[record.get("data") for record in pages[i]["records"]] for i in range(len(asks))]
    assert data == [[[2], 3]] * 10 + [[None, None], [[2]]]
    assert pages[11]["account"]["delivered"] == 1
    assert len({str({**pages[i], "performance": None}) for i in range(10)}) == 1


async def test_news_that_come_behind_a_page_that_another_has_planned_are_not_missed():
    pages = []
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/t", {"durability": "ephemeral"})
        await ask(site, "POST", "/v0/topics/t", {"records": [{"data": 1}]})
        runtime = site.ready_runtime()
        plan_diff, red = (
            runtime.engine.plan_diff,
            Append(topic="t", records=RecordColumns([b"3"], tag=[b"red"])),
        )

        async def poll():
            pages.append(await ask_and_keep(site, {"from_seq": 1, "match": "red", "wait_ms": 1000}))

        def plan_then_write(query):  # of what wakes both, one of them plans
            runtime.engine.plan_diff = plan_diff
            plan = plan_diff(query)
            assert runtime.engine.propose(red).done
            runtime.hub.tell(runtime.engine.take_effects().news)
            return plan

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(poll)
            await trio.testing.wait_all_tasks_blocked()
            assert runtime.hub.readers == 2
            runtime.engine.plan_diff = plan_then_write
            await ask_and_keep(site, {"records": [{"data": 2}]}, path="/v0/topics/t")
        del runtime.engine.plan_diff

    assert [[record["data"] for record in page["records"]] for page in pages] == [[3], [3]]


async def ask_and_keep(site, body, path="/v0/topics/t/diff"):
    """The fields of the answer. Others have answers under way meanwhile."""
    head = Head(
        b"POST",
        path.encode(),
        b"",
        {b"host": b"localhost", b"content-type": b"application/json"},
        length=None,
    )
    peer = Here(site)
    answer = await site.answer(site.admit(head), msgspec.json.encode(body), peer)
    peer.room.release()
    return fields_of(answer)
