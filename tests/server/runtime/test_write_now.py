"""What is proposed together is one batch a shard, written before anything else happens, if nothing of
it blocks."""

import random
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.wire.places import alone, begun, new_site
from topics.engine.commands import Append, PutTopic
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.kernel.limits import SHARD_IDLE_MARK_MS
from topics.simulation.scheduling import LoopClock
from topics.simulation.simulated_threads import SeededThreads

pytestmark = pytest.mark.trio


@asynccontextmanager
async def running(*, how=None, **config):
    async with alone(), begun(new_site(), shards=1, **how or {}) as runtime:
        await runtime.submit(PutTopic(topic="t", config=parse_config({"durability": "disk"} | config)))
        await wait_all_tasks_blocked()
        yield runtime


def write(data=b"1", **fields):
    return Append(topic="t", records=RecordColumns([data]), **fields)


def together(runtime, ended):
    """One write, as if others might have come with it."""
    runtime.write_together(lambda: runtime.begin_now(write(), ended))


class Ended(list):
    """What was ended, by seq."""

    def __call__(self, ticket, took):
        self.append(ticket.result().first_seq)


async def test_writes_that_come_together_are_one_batch_and_are_answered_at_once():
    async with running() as runtime:
        ended, shard = Ended(), runtime.shards[0]
        batches = shard.meter.batches

        def propose():
            for _ in range(3):
                assert runtime.begin_now(write(), ended)
            assert ended == []

        runtime.write_together(propose)

        assert ended == [1, 2, 3]
        assert shard.meter.batches - batches == 1
        assert runtime.in_flight == 0


async def test_a_synced_write_is_left_to_the_shards_task():
    async with running(durability="fsync") as runtime:
        ended, done = Ended(), trio.Event()
        together(runtime, lambda *how: (ended(*how), done.set()))
        assert ended == []
        await done.wait()

        assert ended == [1]


async def test_what_comes_while_a_batch_is_in_a_thread_is_the_next():
    async with running(durability="fsync") as runtime:
        ended, left, done = Ended(), 2, trio.Event()

        def each(*how):
            nonlocal left
            ended(*how)
            left -= 1
            if not left:
                done.set()

        for _ in range(2):
            together(runtime, each)
        await done.wait()

        assert ended == [1, 2]


async def test_what_was_written_here_is_synced_and_marked_when_the_shard_rests(autojump_clock):
    how = {"clock": LoopClock(), "threads": SeededThreads(random.Random(1), pytest.fail)}
    async with running(how=how) as runtime:
        wal, ended = runtime.shards[0].writer.wal, Ended()
        for written in (3, 6, 9):
            for _ in range(3):
                together(runtime, ended)
                await trio.sleep(SHARD_IDLE_MARK_MS / 2000)
            assert ended[-1] == written
            await trio.sleep(5)

            assert runtime.engine.topic_state("t").durable_seq == written
            assert not wal.mark_due


async def test_what_may_have_to_wait_is_not_begun():
    """A topic that is not there, one that compresses, and one that is being changed."""
    async with running() as runtime:
        ended = Ended()
        assert not runtime.appends_at_once("new")
        assert runtime.appends_at_once("t")
        change = runtime.engine.propose(PutTopic(topic="t", config=parse_config({"durability": "fsync"})))
        assert not change.done
        assert not runtime.begin_now(write(), ended)
        runtime.after_call()
        while not change.done:
            await trio.lowlevel.checkpoint()
        await runtime.submit(PutTopic(topic="t", config=parse_config({"compression": "zstd"})))

        assert not runtime.appends_at_once("t")
        assert runtime.engine.topic_state("t").head_seq == 0
        assert ended == []


async def test_a_retry_is_answered_where_it_is_asked():
    async with running() as runtime:
        ended = Ended()
        await runtime.append(write(idempotency_key=b"k"))
        assert runtime.begin_now(write(idempotency_key=b"k"), ended)

        assert ended == [1]
