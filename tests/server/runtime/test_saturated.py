"""A loop that has several times more to tell than time: who matters most is told in time, and nobody is forgotten.

On a clock that goes on by what telling a watcher costs, and while nobody does anything, so that each run is the same.
"""

from collections import defaultdict
from itertools import cycle

import pytest
import trio

from topics.embed.aio.gauge import Gauge
from topics.embed.aio.hub import Hub
from topics.log.reads.waiting import News

pytestmark = pytest.mark.trio

TOLD_S = 100e-6  # what a delivery costs
WATCHERS = 8  # of a topic
EVERY_S = 0.02  # each topic is written
FOR_S = 4.0
BANDS = {"top": (800, 4), "high": (600, 40), "middle": (300, 40), "low": (0, 40), "below": (-10, 40)}


class Watch:
    """A watcher of one topic, told at a cost: how long each record took to him."""

    is_strict = False

    def __init__(self, topic, written, latencies, clock):
        self.topic, self.clock = topic, clock
        self.written, self.latencies = written, latencies
        self.seen = 0

    def told(self, news):
        self.clock.jump(TOLD_S)
        now = trio.current_time()
        new = self.written[self.topic][self.seen :]
        self.latencies += [now - at for at in new]
        self.seen += len(new)

    def end(self): ...


class Saturated:
    def __init__(self, clock):
        self.clock = clock
        self.priorities = {
            f"{band}-{n}": priority for band, (priority, count) in BANDS.items() for n in range(count)
        }
        self.hub = Hub(self.priorities.get)
        self.written = defaultdict(list)
        self.latencies = defaultdict(list)
        self.watches = []
        for topic in self.priorities:
            for _ in range(WATCHERS):
                found = self.latencies[topic.partition("-")[0]]
                self.watches.append(Watch(topic, self.written, found, clock))
                self.hub.follow(self.watches[-1])

    async def write(self):
        """Every topic in turn, at its time whatever else is done: what comes in one pass of the loop is one batch."""
        at, ends = trio.current_time(), trio.current_time() + FOR_S
        topics = cycle(self.priorities)
        while at < ends:
            await trio.sleep_until(at)
            batch = {}
            while at <= trio.current_time():
                self.written[topic := next(topics)].append(at)
                batch[topic] = News.RECORDS
                at += EVERY_S / len(self.priorities)
            self.hub.tell(batch)

    def p99(self, band):
        found = sorted(self.latencies[band])
        return found[len(found) * 99 // 100]


@pytest.mark.rule("S10.7", "S10.11", "S2.9")
@pytest.mark.invariant("I-13")
async def test_when_there_is_six_times_too_much_the_top_is_told_in_time_and_nobody_is_forgotten(
    autojump_clock,
):
    load = Saturated(autojump_clock)
    held = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.hub.run)
        nursery.start_soon(Gauge(load.hub).run)
        await load.write()
        held.append(load.hub.ready.held)
        await trio.sleep(30)  # it is over: the rest is told
        held.append(load.hub.ready.held)
        nursery.cancel_scope.cancel()

    assert load.p99("top") <= 0.025
    assert load.p99("top") <= load.p99("below") / 4
    assert sorted(BANDS, key=load.p99) == list(BANDS)
    assert max(latency for band in BANDS if band != "below" for latency in load.latencies[band]) <= 10
    assert held == [BANDS["below"][1], 0]
    assert all(watch.seen == len(load.written[watch.topic]) > 40 for watch in load.watches)
