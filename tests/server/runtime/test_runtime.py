"""The runtime: a caller who is cancelled loses his answer only, readers are woken together, and everything ends."""

from __future__ import annotations

import threading

import attrs
import msgspec
import pytest
import trio
import trio.testing

from tests.server.wire.places import alone, begun, new_site
from topics.calls.records import PutManyCall
from topics.embed.aio.fetch import NO_BOUND
from topics.embed.aio.runtime import LET_GO_BYTES, Runtime
from topics.embed.aio.thread import SystemThread
from topics.engine.commands import Append, Claim, PutTopic, Retire
from topics.engine.tickets import Stage
from topics.host.system.memory import MemoryDisk
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import Limits
from topics.simulation.scheduling import LoopClock
from topics.store.directory import MemoryDirectory
from topics.store.opened import StoreOptions

pytestmark = pytest.mark.trio


def one(data=b"1"):
    return Append(topic="t", records=RecordColumns([data]))


async def test_a_cancelled_caller_loses_his_answer_and_not_his_write():
    async with alone(), begun(new_site()) as runtime:
        await runtime.append(one())
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.append(one(b"2"))
        assert scope.cancelled_caught
        await runtime.append(one(b"3"))

        assert runtime.engine.topic_state("t").head_seq == 3
        assert runtime.in_flight == 0


async def test_a_caller_who_leaves_while_his_command_waits_takes_back_what_only_his_read_asked_for():
    async with alone(), begun(new_site()) as runtime:
        await runtime.append(one())
        engine, tickets = runtime.engine, []
        change = engine.propose(PutTopic(topic="t", config=parse_config({"cap_records": 9})))
        propose = engine.propose
        engine.propose = lambda *args, **more: tickets.append(propose(*args, **more)) or tickets[-1]
        for command in (Retire(topic="t"), one(b"2")):
            with trio.CancelScope() as scope:
                scope.cancel()
                await runtime.submit(command)
        await runtime.append(one(b"3"))

        assert [ticket.stage for ticket in tickets] == [Stage.WITHDRAWN, Stage.DONE, Stage.DONE]
        assert change.done
        assert engine.topic_state("t").head_seq == 3


async def test_a_write_that_waits_holds_its_records_only_for_retries_to_be_compared_with():
    async with alone(), begun(new_site()) as runtime:
        await runtime.append(one())
        large, small = b'"%b"' % (b"2" * LET_GO_BYTES), one(b"2")
        plain, keyed = one(large), msgspec.structs.replace(one(large), idempotency_key=b"k")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(runtime.append, plain)
            nursery.start_soon(runtime.append, small)
            nursery.start_soon(runtime.append, keyed)
        assert (len(plain.records), len(small.records), list(keyed.records.data)) == (0, 1, [large])
        reply, _ = await runtime.append(msgspec.structs.replace(one(b"4"), idempotency_key=b"k"))

        assert (reply.deduped, reply.same_body) == (True, False)
        assert runtime.engine.topic_state("t").bytes == 2 + 2 * len(large)


@pytest.mark.rule("O3.5")
async def test_what_was_written_is_on_the_disk_when_the_store_is_closed_and_no_more_is_taken():
    disk = MemoryDisk()
    async with alone(), begun(new_site(), disk=disk) as runtime:
        await runtime.append(one())
    with pytest.raises(Rejected) as refused:
        await runtime.submit(one())
    assert refused.value.code is Code.SHUTTING_DOWN
    async with alone(), begun(new_site(), disk=disk) as again:
        assert again.engine.topic_state("t").head_seq == 1


@pytest.mark.rule("A4.1")
async def test_an_exception_inside_the_running_store_comes_out_and_nothing_hangs():
    with pytest.raises(LookupError), trio.fail_after(10):
        async with alone(), begun(new_site()) as runtime:
            await runtime.append(one())
            raise LookupError


class Deadly(MemoryDisk):
    """Once it is `deadly` a write ends in what no disk raises."""

    deadly = False

    def write(self, path, offset, chunks):
        if self.deadly:
            raise MemoryError
        super().write(path, offset, chunks)


@pytest.mark.rule("A4.1")
@pytest.mark.parametrize("is_begun", [False, True])
async def test_a_writer_that_dies_of_anything_ends_the_store_also_under_a_claim_that_has_jobs(is_begun):
    """The claim waited for a frame that nobody would ever write, and could not be cancelled."""
    disk, told = Deadly(), []
    with pytest.raises(MemoryError), trio.fail_after(10):
        async with alone(), begun(new_site(), disk=disk) as runtime:
            await runtime.submit(PutTopic(topic="q", config=parse_config({"type": "queue"})))
            await runtime.append(Append(topic="q", records=RecordColumns([b"1"])))
            disk.deadly = True
            if is_begun:
                leave = runtime.jobs.begin(Claim(topic="q", node=b"w"), told.append)
                try:
                    await trio.sleep_forever()
                finally:
                    leave()
            await runtime.jobs.claim(Claim(topic="q", node=b"w"), NO_BOUND)
    assert (told, runtime.in_flight) == ([], 0)


async def test_who_leaves_with_jobs_on_their_way_gives_them_back():
    async with alone(), begun(new_site()) as runtime:
        await runtime.submit(PutTopic(topic="q", config=parse_config({"type": "queue"})))
        await runtime.append(Append(topic="q", records=RecordColumns([b"1"])))
        with trio.CancelScope() as scope:
            scope.cancel()
            await runtime.jobs.claim(Claim(topic="q", node=b"w"), NO_BOUND)
        assert (scope.cancelled_caught, runtime.in_flight) == (True, 0)
        with trio.fail_after(10):
            claimed = await runtime.jobs.claim(Claim(topic="q", node=b"w", wait_ms=None), NO_BOUND)
        assert [(job.seq, job.deliveries) for job in claimed.jobs] == [(1, 1)]


async def test_time_wakes_an_idle_server_for_nothing(autojump_clock):
    async with alone(), begun(new_site(), clock=LoopClock()) as runtime:
        await runtime.append(one())
        await trio.sleep(5)  # synced, rested, its exact head logged and synced
        looks, engine = [], runtime.engine
        next_deadline_ms = engine.next_deadline_ms
        engine.next_deadline_ms = lambda: looks.append(1) or next_deadline_ms()
        await trio.sleep(100)
        assert looks == []
        await runtime.append(one(b"2"))
        await trio.testing.wait_all_tasks_blocked()
        assert looks


async def test_a_job_off_the_loop_is_waited_for_and_its_errors_are_raised_here():
    thread = SystemThread("test")
    begun_job, may_end, ended = threading.Event(), threading.Event(), []

    def job():
        begun_job.set()
        assert may_end.wait(10)
        ended.append(threading.current_thread().name)

    async def let_go():
        await trio.to_thread.run_sync(begun_job.wait)
        scope.cancel()
        may_end.set()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(let_go)
            await thread.run(job)
    assert ended == ["test"]

    def fail():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await thread.run(fail)
    thread.close()


NARROW = attrs.evolve(Limits(), wal_file_first=64 << 10, wal_file_max=1 << 20, wal_reserve=8 << 10)


def narrow_runtime():
    """The log's next file has no room for a large write."""
    return Runtime(MemoryDirectory().recover(options=StoreOptions(limits=NARROW, min_free_bytes=0)))


def big(count=20):
    return PutManyCall("t", [{"data": "x" * 30_000}] * count).command(NARROW)


async def test_a_write_that_made_its_topic_and_then_waited_for_room_says_that_it_did():
    runtime = narrow_runtime()
    async with runtime.running():
        reply, _ = await runtime.append(big())

    assert (reply.created, reply.first_seq, reply.last_seq) == (True, 1, 20)


@pytest.mark.rule("H10.1")
async def test_what_was_begun_takes_effect_in_order_also_where_room_has_to_be_made():
    ended = []
    runtime = narrow_runtime()
    async with runtime.running():
        for command in (big(), one(), big(10), one(), big()):
            await runtime.begin(command, lambda ticket, took: ended.append(ticket.result()))
        while runtime.in_flight:
            await trio.testing.wait_all_tasks_blocked(0.01)

    assert [(reply.first_seq, reply.last_seq) for reply in ended] == [
        (1, 20), (21, 21), (22, 31), (32, 32), (33, 52)
    ]  # fmt: skip
    assert [reply.created for reply in ended] == [True, False, False, False, False]


async def test_what_cannot_be_begun_says_so_at_once_and_not_twice():
    ended = []
    async with alone(), begun(new_site()) as runtime:
        with pytest.raises(Rejected) as refused:
            await runtime.begin(msgspec.structs.replace(one(), create=False), ended.append)
        assert (refused.value.code, ended, runtime.in_flight) == (Code.TOPIC_NOT_FOUND, [], 0)
