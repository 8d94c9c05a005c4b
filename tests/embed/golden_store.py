"""How `tests/golden/store-1` was made: a data directory as this version leaves it, and what it says of itself.

It was made once, by `make(GOLDEN)`, and is never made again: later versions must open those bytes. A version that
writes a directory otherwise gets a `store-2` beside it, and a story of its own.

In it: a log of two generations, the first of which a power cut ended; segments, sealed and not; two snapshots; and
behind the newer one what was written after it.
"""

from __future__ import annotations

import json
import pathlib

import topics
from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "store-1"
END_MS = 1_700_000_110_500  # the clock when it was closed; nothing has ended since the last write


def options(shards=None):
    return StoreOptions(
        shards=shards,
        limits=Limits(wal_file_first=4096, wal_file_max=16_384, wal_reserve=512),
        segments=SegmentRules(records_max=12, bytes_max=4000),
        min_free_bytes=4096,
    )


def make(target):
    """Write the directory `target`, and `target`.json with what a start finds in it."""
    disk, clock = SimDisk(1), ManualClock()
    store = opened(disk, clock, shards=1)
    first_life(store, clock)
    disk.power_loss(Shape.NOTHING)
    store = opened(disk, clock, shards=2)
    second_life(store, clock)
    store.checkpoint()
    third_life(store, clock)
    store.checkpoint()
    last_words(store)
    clock.set(END_MS)
    store.close()
    for path in paths(disk, ""):
        file = target / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(disk.content(path))
    disk.power_loss(Shape.NOTHING)  # a copy of a directory counts as a restart, too
    said = facts(opened(disk, clock))
    target.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n")


def opened(disk, clock, shards=None):
    return Store(open_simulated(disk, clock, SeededEntropy(1), options(shards)), disk, housekeeping=False)


def first_life(store, clock):
    orders = store.create("orders", durability="fsync", idempotency_window_ms=2**40, dedup_window_ms=2**40)
    for i in range(10):
        orders.put_many(
            [
                {"data": {"n": 3 * i}, "tag": "red", "meta": {"trace": f"t{i}"}},
                {"data": {"n": 3 * i + 1}, "tag": "blue", "node": "node-a"},
                {"data": {"n": 3 * i + 2}, "key": f"k{i}", "ttl_ms": 5000 if i < 5 else 2**40},
            ]
        )
        clock.advance(1000)
    orders.put_many([{"data": "once", "dedup_id": "d1"}], idempotency_key="order-1")
    clicks = store.create("clicks", durability="disk")
    clicks.put_many([{"data": i} for i in range(20)])
    store.sync()
    clicks.put_many([{"data": "lost"}] * 5)
    store.create("gone").put("x")
    store.create("again").put("first epoch")
    store.sync()
    clicks.put_many([{"data": "lost"}] * 5)


def second_life(store, clock):
    """Behind a power cut: `clicks` has lost what no sync covered."""
    store.topic("clicks").put_many([{"data": i} for i in range(100, 110)])
    store.topic("orders").delete(match="blue")
    store.delete("gone")
    store.delete("again")
    store.create("again", durability="fsync").put("second epoch")
    capped = store.create("capped", durability="memory", cap_records=5)
    capped.put_many([{"data": i} for i in range(12)])
    capped.delete(before_seq=10)
    blobs = store.create("blobs", compression="gzip", compression_min_bytes=100)
    blobs.put_many([{"data": b"\0\1\2" * 200, "content_type": "image/x-golden"}, {"data": "z" * 2000}])
    store.create("timed", durability="fsync", ttl_ms=60_000).put_many([{"data": i} for i in range(4)])
    store.create("news", durability="ephemeral").put_many([{"data": i} for i in range(3)])
    clock.advance(30_000)
    store.sync()


def third_life(store, clock):
    """Between the two snapshots: records end that lie in segments, and others arrive."""
    store.topic("orders").delete(before_seq=4)
    clock.advance(70_000)
    store.topic("timed").put_many([{"data": i} for i in range(4, 7)])
    store.topic("clicks").put_many([{"data": i, "tag": "late"} for i in range(110, 125)])
    store.sync()


def last_words(store):
    """Behind the newer snapshot."""
    store.topic("orders").put_many([{"data": {"n": 1000 + i}, "tag": "red"} for i in range(3)])
    store.topic("clicks").delete(match="late", before_seq=100)
    store.topic("capped").put("last")


def paths(disk, directory):
    """Every file of a simulated disk."""
    found, directories = [], [directory]
    while directories:
        directory = directories.pop()
        for name in disk.names(directory):
            path = f"{directory}/{name}" if directory else name
            if disk.size(path) is None:
                directories.append(path)
            else:
                found.append(path)
    return sorted(found)


def facts(store):
    """Everything a caller can learn of each topic: its state, and all its pages with tombstones and accounts."""
    return {
        row.topic: {"state": state_of(topic.state()), "pages": pages(topic)}
        for row in store.list()
        for topic in [store.topic(row.topic)]
    }


def state_of(state):
    names = (
        "epoch",
        "head_seq",
        "earliest_seq",
        "evict_floor",
        "next_seq",
        "count",
        "bytes",
        "last_write_ts",
    )
    return {name: getattr(state, name) for name in names} | {"durability": state.config.durability.value}


def pages(topic):
    found, from_seq = [], 0
    while True:
        page = topic.read(from_seq=from_seq, limit=10, account=True)
        found.append(json.loads(page.json()))
        if page.caught_up:
            return found
        from_seq = page.next_from_seq


def reopened(path, clock):
    return topics.open(path, clock=clock, options=options())


def contains(whole, part):
    """`whole` says all that `part` says, and maybe more: a later version may add fields."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(
            name in whole and contains(whole[name], value) for name, value in part.items()
        )
    if isinstance(part, list):
        return isinstance(whole, list) and len(whole) == len(part) and all(map(contains, whole, part))
    return whole == part
