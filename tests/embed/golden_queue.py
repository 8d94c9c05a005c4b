"""How `tests/golden/queue-1` and `queue-2` were made: queues of builds that kept of a job what `.data` has of it.

`queue-1` was made by the last version that wrote format 1, `queue-2` by the last one that knew jobs in `.col` and no
keys, both by `make`, and they are never made again. Neither let a queue in, but what had let one in before stands.

In each, of one queue: segments in the cold tier, one of them with a `.del`; one that was rewritten; one that is not
sealed; and two snapshots, the newer of which has jobs that no segment has.
"""

from __future__ import annotations

import pathlib
import sys
from contextlib import contextmanager

import pytest

from tests.embed.golden_store import paths
from tests.embed.golden_store_2 import COLD, DATA, in_the_background, opened
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"
NAMES = ["queue-1", "queue-2"]
QUEUE = "jobs"
END_MS = 1_700_000_020_000  # the clock when it was closed


def job(seq):
    """Priority, delay, key and tag of a job of the story."""
    if 46 <= seq <= 61:
        return None, None, "kept" if seq <= 53 else "gone", "odd" if seq <= 53 else "even"
    return (
        None if seq % 3 == 0 else seq % 10,
        seq * 10_000 if seq % 4 == 1 else None,
        f"k{seq % 3}" if seq % 5 else None,
        "red" if seq % 7 == 0 else None,
    )


def make(target):
    """Write the directory `target`."""
    disk, clock = SimDisk(2), ManualClock()
    store = opened(disk, clock)
    with let_in():
        queue = store.create(QUEUE, durability="fsync", type="queue")
    put(queue, 1, 30)
    over(store, clock)
    queue.delete(match="red")
    put(queue, 31, 45)
    over(store, clock)
    queue.delete(before_seq=6)
    put(queue, 46, 61)
    over(store, clock)
    queue.delete(match="even")
    over(store, clock)
    put(queue, 62, 63)
    over(store, clock)
    put(queue, 64, 68)
    store.sync()
    store._compactor.carry_out(
        store._opened.checkpointer.closing
    )  # nothing is copied: they are in the snapshot
    put(queue, 69, 70)
    clock.set(END_MS)
    store.close()
    for path in paths(disk, ""):
        below = pathlib.Path(path)
        file = target / (below if below.parts[0] == COLD else DATA / below)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(disk.content(path))


def put(queue, first, last):
    records = []
    for seq in range(first, last + 1):
        priority, delay_ms, key, tag = job(seq)
        given = {"data": seq, "priority": priority, "delay_ms": delay_ms, "key": key, "tag": tag}
        records.append({name: value for name, value in given.items() if value is not None})
    assert list(queue.put_many(records).seqs) == list(range(first, last + 1))


def over(store, clock):
    """Everything that a store does by itself."""
    clock.advance(1000)
    store.sync()
    store.checkpoint()
    in_the_background(store)


@contextmanager
def let_in():
    """Whoever asks whether a config may be had, which was not the same module in both builds, takes any."""
    with pytest.MonkeyPatch.context() as patch:
        for module in [
            module for module in list(sys.modules.values()) if hasattr(module, "check_new_config")
        ]:
            patch.setattr(module, "check_new_config", lambda *_: None)
        yield
