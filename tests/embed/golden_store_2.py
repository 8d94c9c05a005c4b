"""How `tests/golden/store-2` was made: what a store leaves that flags, rewrites, moves and backs up its segments.

It was made once, by `make(GOLDEN)`, and is never made again: later versions must open those bytes. Beside `store-1`,
which knows none of this, it holds `data` with its cold directory `cold`, and `backup`, a backup of both.

In `data`: a segment with delete flags, one that was rewritten, segments in the cold tier, one of them with a `.del`;
two snapshots, and a log behind them.
"""

from __future__ import annotations

import json
import pathlib
import tempfile

import topics
from tests.embed.golden_store import facts, paths
from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.engine.verify import digest
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.below import Below
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk
from topics.testing.survival import Shape

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "store-2"
END_MS = 1_700_000_020_000  # the clock when it was closed
DATA, COLD, BACKUP = "data", "cold", "backup"


def options(**more):
    return StoreOptions(
        limits=Limits(wal_file_first=4096, wal_file_max=16_384, wal_reserve=512),
        segments=SegmentRules(records_max=8, bytes_max=4000),
        hot=HotRules(retain_segments=1),
        min_free_bytes=4096,
        **more,
    )


def make(target):
    """Write the directory `target`, and `target`.json with what a start finds in it and in its backup."""
    disk, clock = SimDisk(2), ManualClock()
    store = opened(disk, clock)
    for life in (first_life, second_life, third_life, fourth_life):
        life(store)
        clock.advance(5000)
        store.sync()
        store.checkpoint()
        in_the_background(store)
    last_words(store)
    with tempfile.TemporaryDirectory() as scratch:
        backup = pathlib.Path(scratch) / BACKUP
        store.backup(backup, with_cold=True)
        copies = {
            path.relative_to(scratch): path.read_bytes() for path in backup.rglob("*") if path.is_file()
        }
    clock.set(END_MS)
    store.close()
    for path in paths(disk, ""):
        below = pathlib.Path(path)
        copies[below if below.parts[0] == COLD else DATA / below] = disk.content(path)
    for path, content in copies.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(content)
    disk.power_loss(Shape.NOTHING)  # a copy of a directory counts as a restart, too
    target.with_suffix(".json").write_text(json.dumps(said_by(opened(disk, clock)), indent=1) + "\n")


def opened(disk, clock):
    cold = LocalSegmentStore(Below(disk, COLD), "the cold place")
    return Store(
        open_simulated(disk, clock, SeededEntropy(2), options(), cold=cold), disk, housekeeping=False
    )


def in_the_background(store):
    while store._compactor.carry_out(store._opened.checkpointer.between):
        pass


def said_by(store):
    """`digest`: of the whole state. `facts`: all that a caller can learn."""
    return {"digest": digest(store._opened.engine.state.catalog), "facts": facts(store)}


def reopened(path, clock):
    return topics.open(path / DATA, clock=clock, options=options(cold_dir=str(path / COLD)))


def reopened_backup(path, clock):
    return topics.open(path / BACKUP, clock=clock, options=options())


def first_life(store):
    orders = store.create("orders", durability="fsync", idempotency_window_ms=2**40)
    for i in range(5):
        orders.put_many(
            [
                {"data": {"n": 4 * i}, "tag": "red", "meta": {"trace": f"t{i}"}},
                {"data": {"n": 4 * i + 1}, "tag": "blue", "node": "node-a"},
                {"data": {"n": 4 * i + 2}, "key": f"k{i}", "ttl_ms": 2**40},
                {"data": {"n": 4 * i + 3}},
            ]
        )
    orders.put("once", idempotency_key="order-1")
    store.create("clicks", durability="disk").put_many([{"data": i, "tag": f"t{i % 4}"} for i in range(30)])
    blobs = store.create("blobs", compression="gzip", compression_min_bytes=100)
    blobs.put_many([{"data": b"\0\1\2" * 200, "content_type": "image/x-golden"}, {"data": "z" * 2000}])


def second_life(store):
    """Deletes of cold records (`.del`) and of hot ones (flags)."""
    store.topic("clicks").delete(match="t1", before_seq=20)
    store.topic("orders").delete(match="blue")
    store.topic("blobs").put_many([{"data": i, "tag": "odd" if i % 2 else "five"} for i in range(9)])
    store.topic("blobs").delete(match="odd")


def third_life(store):
    """More than half of a hot segment is dead."""
    store.topic("blobs").delete(match="five", before_seq=8)
    store.topic("orders").put_many([{"data": {"n": 100 + i}, "tag": "red"} for i in range(3)])


def fourth_life(store):
    """Both snapshots know that, so it is rewritten."""
    store.topic("orders").put({"n": 103})


def last_words(store):
    """Behind the newer snapshot."""
    store.topic("clicks").put_many([{"data": i} for i in range(30, 33)])
    store.topic("orders").delete(match="red", before_seq=6)
    store.sync()
