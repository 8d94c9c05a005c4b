"""Places where topics are watched, and a watcher whose history has to add up."""

import json
from base64 import urlsafe_b64decode
from contextlib import asynccontextmanager

import attrs
import msgspec
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.app.h2peer import Served, serving
from tests.server.planes import JSON, Http2, Plane, Wire
from tests.server.wire.events import Events, Http2Events
from tests.server.wire.places import alone, begun, new_site
from topics.embed.aio.runtime import Runtime
from topics.embed.aio.thread import Threads
from topics.kernel.limits import MIB, Limits
from topics.server.api.site import Site
from topics.store.writer import NOTHING_TOOK
from topics.testing.clock import ManualClock

ROOMY = Limits(body_bytes=4 * MIB, wal_file_first=8 * MIB, wal_reserve=1 * MIB)


@attrs.frozen
class Place:
    """A site, its clock under our hand, and who asks it. `served`: its connections of HTTP/2, if that is asked."""

    site: Site
    runtime: Runtime
    clock: ManualClock
    plane: Plane
    nursery: trio.Nursery
    served: Served | None = None

    async def ask(self, path, method=b"POST", /, **fields):
        seen = await self.plane.ask(method, f"/v0/{path}".encode(), msgspec.json.encode(fields), JSON)
        return {name: value for name, value in seen.json.items() if name != "performance"}

    async def put(self, *datas, topic="t", **fields):
        return await self.ask(f"topics/{topic}", records=[{"data": data, **fields} for data in datas])

    async def make(self, topic="t", **config):
        await self.ask(f"topics/{topic}", b"PUT", **config)

    async def delete(self, topic="t"):
        await self.ask(f"topics/{topic}", b"DELETE")

    async def watch(self, /, lenient=False, **fields):
        return await self.ask(f"watch?lenient={str(lenient).lower()}", **fields)

    async def stream(self, /, *, last_id=None, wid=None, back=1 << 20, **fields):
        """A new stream, of a new watch unless `wid` says of which."""
        wid = wid or (await self.watch(**fields))["wid"]
        said = () if last_id is None else ((b"last-event-id", last_id.encode()),)
        return await self.events(back=back).open(f"/v0/watch/{wid}".encode(), *said)

    def events(self, *, back=1 << 20):
        """A stream that is not asked for yet. `back`: bytes of it that a client of HTTP/1.1 leaves unread."""
        if self.served is not None:
            return Http2Events(self.served)
        return Events(self.site, self.nursery, back=back)

    async def settled(self):
        """Nobody has anything to do, and no thread syncs the log."""
        shards = self.runtime.engine.state.shards
        await wait_all_tasks_blocked()
        while any(shard.in_flight or shard.pending for shard in shards):
            await wait_all_tasks_blocked()

    async def passes(self, ms):
        """Time goes by, for the engine."""
        await self.settled()
        self.clock.advance(ms)
        self.runtime.engine.tick()
        self.runtime._after_call(NOTHING_TOOK)
        await self.settled()

    async def gone(self, *streams):
        """They leave, and nothing is left of them."""
        leaving = sum(not stream.has_ended for stream in streams)
        taken = max(self.site.streams.taken, leaving)
        for stream in streams:
            await stream.leave()
        await self.settled()
        assert self.site.streams.taken == taken - leaving


@asynccontextmanager
async def place(kind="wire", *, limits=ROOMY, shards=None, **options):
    """`kind`: the plane, as in `plane_of`."""
    clock, site = ManualClock(), new_site(limits=limits, **options)
    threads = Threads(inline_bytes_max=1 << 20)  # so that who waits is blocked, and nobody else
    serving_it = begun(site, clock=clock, threads=threads, shards=shards)
    async with alone(), serving_it as runtime, trio.open_nursery() as nursery:
        if kind == "wire":
            yield Place(site, runtime, clock, Wire(site, nursery, None), nursery)
        else:
            async with serving(site) as served:
                yield Place(site, runtime, clock, Http2(await served.h2()), nursery, served)
        nursery.cancel_scope.cancel()
    assert (site.bugs, site.unsent_bytes, site.streams.taken, runtime.hub.topics) == (0, 0, 0, 0)


def said_by(number):
    """What an id says."""
    return json.loads(urlsafe_b64decode(number + "=" * (-len(number) % 4)))


def seqs(told):
    name, _, data = told
    assert name == "record", told
    return [record["$seq"] for record in data["records"]]


@attrs.define
class Instance:
    """A topic as it must be, by a model: what became of each seq. A cap evicts the oldest that are live."""

    cap: int = 0
    head: int = 0
    live: set = attrs.field(factory=set)
    evicted: set = attrs.field(factory=set)
    silent: set = attrs.field(factory=set)  # may be passed by without a word: deleted, filtered out
    required: set = attrs.field(factory=set)  # is delivered or lost, unless it is deleted
    tags: dict = attrs.field(factory=dict)

    def put(self, count, tag=None, *, wanted=True):
        for _ in range(count):
            self.head += 1
            self.tags[self.head] = tag
            self.live.add(self.head)
            (self.required if wanted else self.silent).add(self.head)
        while self.cap and len(self.live) > self.cap:
            first = min(self.live)
            self.live.discard(first)
            self.evicted.add(first)

    def delete(self, which):
        gone = {seq for seq in self.live if which(seq)}
        self.live -= gone
        self.silent |= gone


class History:
    """What a watcher was told of a topic. `start`: where it began, in the first instance that it saw."""

    def __init__(self, instance, start=0):
        self.instance, self.cursor, self.start = instance, start, start
        self.delivered, self.lost = set(), set()
        self.is_over = False
        self.last = None

    def told(self, name, data):
        assert not self.is_over, (name, data)
        self.last = name
        if name == "record":
            assert data["from_seq"] < data["to_seq"] <= data["head_seq"]
            self._passes(data["from_seq"], set())
            found = [record["$seq"] for record in data["records"]]
            assert found == sorted(found)
            assert not self.delivered & set(found), f"twice: {self.delivered & set(found)}"
            assert all(data["from_seq"] < seq <= data["to_seq"] for seq in found)
            self.delivered |= set(found)
            self._passes(data["to_seq"], set(found))
        elif name == "tombstone":
            gap = range(data["gap_from"], data["gap_to"] + 1)
            self._passes(data["gap_from"] - 1, set())
            assert set(gap) & self.instance.evicted, f"nothing is lost in {data}"
            self.lost |= set(gap)
            self.cursor = max(self.cursor, data["gap_to"])
        elif name == "topic-deleted":
            self.is_over = True
        else:
            assert name == "caught-up", name

    def recreated(self, instance, data):
        """It was told that all it knew was of another instance, and that of this one some may be lost already."""
        self.instance, self.cursor, self.start, self.last = instance, 0, 0, "tombstone"
        self.delivered, self.lost = set(), set(range(1, data["gap_to"] + 1)) & instance.evicted

    def ends(self):
        """Everything has come: it adds up."""
        if not self.is_over:
            self._passes(self.instance.head, set())
            missing = (self.instance.live & self.instance.required) - self.delivered
            assert not {seq for seq in missing if seq > self.start}, f"never came: {missing}"

    def _passes(self, upto, given):
        between = set(range(self.cursor + 1, upto + 1)) - given
        unexplained = between - self.instance.silent - self.lost
        assert not unexplained, f"passed by in silence: {sorted(unexplained)} of {self.instance}"
        self.cursor = max(self.cursor, upto)
