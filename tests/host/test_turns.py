"""Rounds, rewriting and relocation share the looks of a driver."""

from topics.embed.store import Store
from topics.engine.checkpoint import SegmentRules
from topics.host.opening import StoreOptions
from topics.host.relocation import HotRules
from topics.host.tiers import LocalSegmentStore
from topics.kernel.limits import Limits
from topics.simulation.machine import open_simulated
from topics.testing.below import Below
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk


def test_work_between_rounds_has_its_turn_where_a_round_is_due_at_every_look():
    """A store that is written to without a pause gives space back and moves segments all the same."""
    disk, clock = SimDisk(1), ManualClock()
    options = StoreOptions(
        limits=Limits(wal_file_first=2048, wal_file_max=4096, wal_reserve=256),
        segments=SegmentRules(records_max=8),
        hot=HotRules(retain_segments=2),
        checkpoint_wal_bytes=1,
        min_free_bytes=4096,
    )
    cold = LocalSegmentStore(Below(disk, "cold"), "the cold place")
    opened = open_simulated(disk, clock, SeededEntropy(1), options, cold=cold)
    store, checkpointer = Store(opened, disk, housekeeping=False), opened.checkpointer
    topic = store.create("t")
    for _ in range(60):
        topic.put_many([{"data": "x" * 100, "tag": "gone" if n % 4 else "kept"} for n in range(8)])
        topic.delete(match="gone")
        clock.advance(1000)
        assert checkpointer.is_due()
        store._compactor.carry_out(checkpointer.due)

    assert checkpointer.rounds > 15
    assert checkpointer.reclaimer.freed_bytes
    assert checkpointer.relocator.counts.to_cold
