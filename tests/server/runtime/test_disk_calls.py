"""What the runtime asks of the disk: off the loop's thread, and as every other driver of the log does."""

import random
import threading

import attrs
import pytest
import trio

import topics
from tests.server.api.asking import ask, fields_of
from tests.server.wire.places import SMALL, alone, begun, new_site
from topics.engine.commands import Append
from topics.host.system.disk import OsDisk
from topics.host.system.memory import MemoryDisk
from topics.kernel.columns import RecordColumns
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import KIB, MIB
from topics.simulation.scheduling import LoopClock
from topics.simulation.simulated_threads import SeededThreads

pytestmark = pytest.mark.trio

BLOCKING = (
    "write",
    "sync_data",
    "sync_dir",
    "create",
    "extend",
    "truncate",
    "rename",
    "unlink",
    "make_dir",
    "read",
    "free_bytes",
)


class Watched(MemoryDisk):
    """A disk in memory that notes who calls it."""

    def __init__(self):
        super().__init__()
        self.calls = []
        for name in BLOCKING:
            setattr(self, name, self.noting(name, getattr(self, name)))

    def noting(self, name, call):
        def noted(*arguments):
            self.calls.append((name, threading.get_ident()))
            return call(*arguments)

        return noted

    def taken(self):
        """What was called since the last time."""
        names = [name for name, _ in self.calls]
        del self.calls[:]
        return names


@pytest.mark.rule("T3.34")
@pytest.mark.parametrize("durability", ["memory", "disk", "fsync"])
async def test_no_call_that_may_block_runs_on_the_loops_thread(durability):
    """Of the log's files: a sync and its write, a rotation, a mark; and a read of what is not at hand. Small writes
    that no sync follows may (decision 11).
    """
    disk = Watched()
    disk.read_nowait = lambda path, offset, size: None
    site = new_site()
    async with alone(), begun(site, disk=disk):
        await ask(site, "PUT", "/v0/topics/a", {"durability": durability})
        del disk.calls[:]
        for i in range(40):
            await ask(site, "POST", "/v0/topics/a", {"records": [{"data": "x" * 1000}] * 2})
            assert (await ask(site, "POST", "/v0/topics/a/diff", {"from_seq": 2 * i})).status == 200
        calls = list(disk.calls)

    assert {"write", "sync_data", "create", "rename", "read"} <= {name for name, _ in calls}
    loop = threading.get_ident()
    assert {name for name, thread in calls if thread == loop} <= (
        {"write"} if durability != "fsync" else set()
    )
    writers = {thread for name, thread in calls if name == "write"} - {loop}
    assert len(writers) == 1  # the shard's own


@pytest.mark.rule("Q3.4")
async def test_the_payload_of_a_job_is_fetched_when_its_lease_is_written():
    disk = Watched()
    disk.read_nowait = lambda path, offset, size: None
    site = new_site()
    async with alone(), begun(site, disk=disk):
        await ask(site, "PUT", "/v0/topics/q", {"type": "queue"})
        await ask(site, "POST", "/v0/topics/q", {"records": [{"data": 1}]})
        disk.taken()
        found = fields_of(await ask(site, "POST", "/v0/topics/q/claim", {"node": "w"}))
        calls = disk.taken()

    assert [job["$seq"] for job in found["claimed"]] == [1]
    # How much room there is may be looked at in between.
    assert [call for call in calls if call != "free_bytes"] == ["write", "read"]


@pytest.mark.rule("T5.21")
@pytest.mark.parametrize("durability", ["disk", "fsync"])
async def test_a_live_reader_needs_neither_disk_nor_thread_where_nothing_says_what_is_cached(durability):
    """The first read finds out that there is a reader; from there on what is written stays at hand."""
    disk = Watched()
    disk.read_nowait = lambda path, offset, size: None
    site = new_site()
    async with alone(), begun(site, disk=disk):
        await ask(site, "PUT", "/v0/topics/a", {"durability": durability})
        for i in range(100):  # over several files
            await ask(site, "POST", "/v0/topics/a", {"records": [{"data": "x" * 1000}, {"data": i}]})
            page = fields_of(
                await ask(site, "POST", "/v0/topics/a/diff", {"from_seq": 2 * i, "account": True})
            )
            assert [record["$seq"] for record in page["records"]] == [2 * i + 1, 2 * i + 2]
        calls = [name for name, _ in disk.calls]

    assert calls.count("rename") >= 2
    assert calls.count("read") == 1


@pytest.mark.rule("T3.33")
async def test_a_directory_that_a_server_wrote_is_an_embedded_stores_and_back(tmp_path):
    for turn in range(2):
        disk = OsDisk(tmp_path)
        site = new_site()
        async with alone(), begun(site, disk=disk):
            for i in range(30):  # over several files
                body = {"records": [{"data": [turn, i, "x" * 4000], "tag": "t"}]}
                assert (await ask(site, "POST", "/v0/topics/a", body)).status in (200, 201)
            page = fields_of(await ask(site, "POST", "/v0/topics/a/diff", {"limit": 1}))
            assert page["head_seq"] == 31 * turn + 30
        disk.close()

        with topics.open(tmp_path) as store:
            assert not store.damages
            topic = store.topic("a")
            assert topic.state().head_seq == 31 * turn + 30
            assert topic.read(from_seq=31 * turn, limit=1).records[0].data[:2] == [turn, 0]
            topic.put("between")


async def test_of_an_idle_server_the_disk_is_asked_nothing_unless_it_is_low(autojump_clock):
    disk, threads = Watched(), SeededThreads(random.Random(1), pytest.fail)
    write = Append(topic="t", records=RecordColumns([b"1"]))
    async with (
        alone(),
        begun(new_site(), disk=disk, clock=LoopClock(), threads=threads, min_free_bytes=MIB) as runtime,
    ):
        await runtime.append(write)
        await trio.sleep(5)  # synced, marked, its exact head logged and marked
        assert "free_bytes" in disk.taken()
        await trio.sleep(100)
        assert disk.taken() == []
        disk.capacity = MIB // 2

        await runtime.append(write)  # nobody knows yet
        await trio.sleep(0.5)
        with pytest.raises(Rejected) as refused:
            await runtime.append(write)
        assert refused.value.code is Code.DISK_LOW
        disk.taken()
        await trio.sleep(10)
        assert disk.taken().count("free_bytes") >= 9
        disk.capacity = 8 * MIB
        await trio.sleep(2)
        disk.taken()
        await trio.sleep(100)
        assert disk.taken() == []
        await runtime.append(write)


async def test_a_disk_that_a_refused_write_found_low_is_looked_at_until_it_is_not(autojump_clock):
    """Nothing was written, so nothing else would make anybody look."""
    disk, threads = Watched(), SeededThreads(random.Random(1), pytest.fail)
    site = new_site(limits=attrs.evolve(SMALL, body_bytes=128 * KIB))
    large = Append(topic="t", records=RecordColumns([b'"%b"' % (b"x" * 100_000)]))
    async with (
        alone(),
        begun(site, disk=disk, clock=LoopClock(), threads=threads, min_free_bytes=MIB) as runtime,
    ):
        await runtime.append(Append(topic="t", records=RecordColumns([b"1"])))
        await trio.sleep(5)
        disk.capacity = MIB // 2
        with pytest.raises(Rejected) as refused:
            await runtime.append(large)
        assert refused.value.code is Code.DISK_LOW
        disk.capacity = 8 * MIB
        await trio.sleep(2)
        assert not runtime.shards[0].writer.disk_low
