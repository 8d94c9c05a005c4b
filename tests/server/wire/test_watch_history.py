"""A watcher's history adds up: each seq is delivered once, lost by a tombstone, or deleted; whatever happens to the
topics, and however often the stream is cut off and goes on (semantics 2.2, 2.4; http-api 9).
"""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.server.wire.watching import History, Instance, place

pytestmark = pytest.mark.trio
CAPS = {"a": 0, "b": 6, "c": 2}
TOPIC = st.sampled_from(sorted(CAPS))
PUT = st.tuples(st.just("put"), TOPIC, st.integers(1, 9), st.sampled_from(["x", "y", None]))
ALONE = "aabb"  # what those watch who watch one topic: they stand at one place, so they are sent the same
WHO = st.integers(0, len(ALONE))
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        PUT,
        st.tuples(st.just("delete_below"), TOPIC, st.integers(1, 30)),
        st.tuples(st.just("delete_tag"), TOPIC, st.sampled_from(["x", "y"])),
        st.tuples(st.just("recreate"), st.sampled_from(["b", "c"])),
        st.tuples(st.just("passes"), st.integers(1, 2000)),
        st.tuples(st.just("read"), WHO, st.integers(1, 9)),
        st.tuples(st.just("again"), WHO, st.sampled_from(["told all", "cut off", "superseded"])),
    ),
    min_size=10,
    max_size=40,
)


class Watcher:
    """A client with what it was told. It comes back with the id of the last event that it has read whole."""

    def __init__(self, here, instances, asked, back, topics):
        self.here, self.asked, self.back = here, asked, back
        self.instances = instances
        self.histories = {topic: History(instances[topic][1]) for topic in topics}
        self.last_id = None

    async def begin(self):
        watch = await self.here.watch(topics={topic: {} for topic in self.histories}, **self.asked)
        self.wid = watch["wid"]
        await self.connect()

    async def connect(self, *, last_id=None):
        self.events = await self.here.stream(wid=self.wid, last_id=last_id, back=self.back)
        self.last_id = self.events.first_id

    @property
    def is_over(self):
        """Its last topic was deleted, so its stream ends, and it cannot come back."""
        return all(max(self.instances[topic]) > 1 for topic in self.histories)

    async def read(self, most=10**9):
        """What has come, so many events at most."""
        await self.here.settled()
        while most and self.events.has_more() and not all(one.is_over for one in self.histories.values()):
            name, number, data = await self.events.told()
            assert name != "error", data
            history = self.histories[data["topic"]]
            if name == "tombstone" and data["reason"] == "recreated":
                history.recreated(self.instances[data["topic"]][data["epoch"]], data)
            else:
                history.told(name, data)
            self.last_id = number
            most -= 1
            await self.here.settled()

    def ends(self):
        """Everything has come."""
        for history in self.histories.values():
            history.ends()
            assert history.last in ("caught-up", "record", "topic-deleted", "tombstone")

    async def again(self, how):
        if self.is_over:
            return
        if how == "told all":  # what was sent was read: the session knows that by itself
            await self.read()
            await self.events.leave()
            await self.here.settled()
            await self.connect()
        elif how == "cut off":
            await self.events.leave()
            await self.here.settled()
            await self.connect(last_id=self.last_id)
        else:
            old = self.events
            await self.connect(last_id=self.last_id)
            await old.leave()


@pytest.mark.rule("S2.2", "S2.3", "S2.4", "H9.8", "H9.9", "H9.11", "H9.12", "S11.2")
@given(
    steps=STEPS,
    limit=st.sampled_from([1, 3, 256]),
    match=st.sampled_from([None, ["tag", "Eq", "x"]]),
    consistency=st.sampled_from(["eventual", "strong"]),
    back=st.sampled_from([90, 700, 1 << 20]),
)
@settings(max_examples=40, deadline=None)
async def test_a_history_adds_up(steps, limit, match, consistency, back):
    async with place() as here:
        instances = {topic: {1: Instance(cap)} for topic, cap in CAPS.items()}
        for topic, cap in CAPS.items():
            await here.make(topic, cap_records=cap)
        asked = {"limit": limit, "match": match, "consistency": consistency}
        watchers = [Watcher(here, instances, asked, back, CAPS)]
        backs = cycle((1 << 20, back))
        watchers += [Watcher(here, instances, asked, next(backs), topic) for topic in ALONE]
        for watcher in watchers:
            await watcher.begin()
        for kind, *what in steps:
            if kind in ("put", "delete_below", "delete_tag", "recreate"):
                topic, *more = what
                one = instances[topic][max(instances[topic])]
            if kind == "put":
                count, tag = more
                one.put(count, tag, wanted=match is None or tag == "x")
                fields = {} if tag is None else {"tag": tag}
                await here.put(*range(count), topic=topic, **fields)
            elif kind == "delete_below":
                one.delete(lambda seq, below=more[0]: seq < below)
                await here.ask(f"topics/{topic}/delete", before_seq=more[0])
            elif kind == "delete_tag":
                one.delete(lambda seq, one=one, tag=more[0]: one.tags.get(seq) == tag)
                await here.ask(f"topics/{topic}/delete", match=more[0])
            elif kind == "recreate":
                await here.delete(topic)
                instances[topic][max(instances[topic]) + 1] = Instance(CAPS[topic])
                await here.make(topic, cap_records=CAPS[topic])
            elif kind == "passes":
                await here.passes(what[0])
            elif kind == "read":
                await watchers[what[0]].read(what[1])
            else:
                await watchers[what[0]].again(what[1])
        for _ in range(3):
            await here.passes(2000)
            for watcher in watchers:
                await watcher.read()
        for watcher in watchers:
            watcher.ends()
        await here.gone(*(watcher.events for watcher in watchers))
