"""Cold segments behind a server: whoever reads there may wait, and nobody else does."""

from __future__ import annotations

import io
import json
import threading

import pytest
import trio
import trio.testing

from tests.server.wire.places import alone, begun, new_site
from tests.support.faulty_store import FaultyStore
from topics.embed.aio.fetch import Form
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import Append, Sync
from topics.host.cold.cold_tier import COLD_READS_MAX, COLD_WAITING_MAX
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.host.system.memory import MemoryDisk
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.log.reads.diff import DiffQuery
from topics.server.runtime.log import LEVEL_DEFAULT, log
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio
TINY = SegmentRules(records_max=8, bytes_max=100_000, age_ms=0)


class AnyRoom:
    size = 0

    def reserve(self, size):
        """There is always some."""

    def settle(self, size):
        """Nobody counts."""


def some(first, count):
    return Append(topic="t", records=RecordColumns([b"%d" % i for i in range(first, first + count)]))


class Held:
    """A cold store whose reads wait until they are let go. `begun` is set in a reader's thread."""

    def __init__(self):
        self.store = FaultyStore(LocalSegmentStore(MemoryDisk(), "the cold place"))
        self.begun = threading.Event()
        self.let_go = threading.Event()

    def hold(self):
        def waits(operation):
            if operation == "read_range":
                self.begun.set()
                assert self.let_go.wait(30)

        self.store.waits = waits


def tiered(held):
    return begun(new_site(), cold=held.store, segments=TINY, hot=HotRules(retain_segments=1))


async def relocated(runtime, count=40):
    await runtime.append(some(0, count))
    await runtime.submit(Sync(shard=0))
    await runtime.compactor.checkpoint()
    while await runtime.compactor.carry_out(runtime.opened.checkpointer.relocator.due):
        pass
    assert runtime.opened.cold.segments() == 4


async def read(runtime, from_seq, limit=5):
    query = DiffQuery(topic="t", from_seq=from_seq, limit=limit)
    _, records, _ = await runtime.pages.read(query, Form(), AnyRoom())
    return [record["$seq"] for record in json.loads(records)]


@pytest.mark.rule("T6.4")
async def test_a_cold_read_that_hangs_delays_no_write_no_hot_read_and_no_reader_who_waits_for_news():
    held = Held()
    seen = []

    async def read_oldest():
        seen.append(await read(runtime, 0))

    async def wait_for_news():
        await runtime.hub.wait("t")
        seen.append(await read(runtime, 40))

    async with alone(), tiered(held) as runtime:
        await relocated(runtime)
        held.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_oldest)
            await trio.to_thread.run_sync(held.begun.wait)
            nursery.start_soon(wait_for_news)
            await trio.testing.wait_all_tasks_blocked()
            await runtime.append(some(40, 1))
            assert await read(runtime, 34) == [35, 36, 37, 38, 39]
            await runtime.compactor.checkpoint()
            await trio.testing.wait_all_tasks_blocked()

            assert seen == [[41]]
            held.let_go.set()

    assert seen == [[41], [1, 2, 3, 4, 5]]


@pytest.mark.rule("T6.4")
async def test_cold_reads_are_few_at_once_and_so_many_wait():
    held = Held()
    refused = []

    async def read_oldest():
        try:
            await read(runtime, 0)
        except Rejected as error:
            refused.append(error)

    async with alone(), tiered(held) as runtime:
        await relocated(runtime)
        held.hold()
        async with trio.open_nursery() as nursery:
            for _ in range(COLD_READS_MAX + COLD_WAITING_MAX + 1):
                nursery.start_soon(read_oldest)
            await trio.testing.wait_all_tasks_blocked()
            assert held.store.calls.count("read_range") <= COLD_READS_MAX + 10
            assert [error.code for error in refused] == [Code.THROTTLED]
            assert await read(runtime, 34) == [35, 36, 37, 38, 39]
            held.let_go.set()

    assert len(refused) == 1


@pytest.mark.rule("T6.4")
async def test_a_store_that_does_not_answer_is_given_up_after_a_while(autojump_clock):
    held = Held()
    async with alone(), tiered(held) as runtime:
        await relocated(runtime)
        held.hold()
        with pytest.raises(Rejected) as caught:
            await read(runtime, 0)
        held.let_go.set()

        assert caught.value.code is Code.NOT_READY
        assert "topic 't': its segment that begins with seq 1 is in the cold tier" in str(caught.value)
        assert "the cold place has not answered for 30 s" in str(caught.value)
        assert await read(runtime, 34) == [35, 36, 37, 38, 39]


@pytest.mark.rule("T6.4")
async def test_a_store_that_fails_is_an_error_of_its_readers_only():
    held = Held()
    async with alone(), tiered(held) as runtime:
        await relocated(runtime)
        held.store.fails = {"read_range"}
        with pytest.raises(Rejected, match="the cold place fails"):
            await read(runtime, 0)
        await runtime.append(some(40, 1))
        assert await read(runtime, 40) == [41]
        held.store.fails = set()
        assert await read(runtime, 0) == [1, 2, 3, 4, 5]


@pytest.mark.rule("T6.4")
async def test_the_metrics_say_what_lies_where_and_what_it_costs():
    held = Held()
    site = new_site()
    async with (
        alone(),
        begun(site, cold=held.store, segments=TINY, hot=HotRules(retain_segments=1)) as runtime,
    ):
        await relocated(runtime)
        await read(runtime, 0)
        held.store.fails = {"read_range"}
        with pytest.raises(Rejected):
            await read(runtime, 0)
        text = site.metrics.text(await site.metrics.take(site.traffic(), runtime)).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    assert found['topics_segments{tier="hot"}'] == "1.0"
    assert found['topics_segments{tier="cold"}'] == "4.0"
    assert (
        float(found['topics_segment_bytes{tier="cold"}']) == float(found["topics_relocated_bytes_total"]) > 0
    )
    assert found["topics_relocated_segments_total"] == "4.0"
    assert found["topics_cold_reads_total"] == "2.0"
    assert found["topics_cold_reads_failed_total"] == "1.0"
    assert float(found["topics_cold_read_seconds_total"]) > 0
    assert found["topics_cold_store_failing"] == "0.0"


async def test_a_cold_store_that_refuses_is_told_in_the_log_once_and_so_is_its_recovery():
    """Nothing moves meanwhile, and nothing else shows it but a metric: whoever runs the server must learn why."""
    held, clock, said = Held(), ManualClock(), io.StringIO()
    log.set_up("info", said)
    hot = HotRules(retain_segments=1)
    async with alone(), begun(new_site(), clock=clock, cold=held.store, segments=TINY, hot=hot) as runtime:
        await runtime.append(some(0, 40))
        await runtime.submit(Sync(shard=0))
        await runtime.compactor.checkpoint()
        relocator = runtime.opened.checkpointer.relocator
        held.store.fails = {"put"}
        for _ in range(4):  # it settles, it fails, and then it is not asked for a while
            await runtime.compactor.attempt(relocator.due)
        held.store.fails = set()
        clock.advance(60_000)
        while runtime.opened.cold.segments() < 4:
            await runtime.compactor.attempt(relocator.due)

    log.set_up(LEVEL_DEFAULT)
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    told = [line for line in lines if line["event"].startswith("cold.")]
    assert [line["event"] for line in told] == ["cold.failing", "cold.works"]
    assert "the cold place" in told[0]["why"]
