"""Rounds, rewriting and relocation share the looks of a driver."""

from tests.support.scene import Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.kernel.limits import Limits
from topics.testing.below import Below


def test_work_between_rounds_has_its_turn_where_a_round_is_due_at_every_look():
    """A store that is written to without a pause gives space back and moves segments all the same."""
    scene = Scene(
        1,
        limits=Limits(wal_file_first=2048, wal_file_max=4096, wal_reserve=256),
        segments=SegmentRules(records_max=8),
        hot=HotRules(retain_segments=2),
        checkpoint_wal_bytes=1,
        cold=lambda disk: LocalSegmentStore(Below(disk, "cold"), "the cold place"),
    )
    checkpointer = scene.open().checkpointer
    tags = [b"gone" if n % 4 else b"kept" for n in range(8)]
    scene.create("t")
    for _ in range(60):
        scene.put("t", *[b"x" * 100] * 8, tag=tags)
        scene.delete("t", match="gone")
        scene.clock.advance(1000)
        assert checkpointer.is_due()
        scene.carry(checkpointer.due())

    assert checkpointer.rounds > 15
    assert checkpointer.reclaimer.freed_bytes
    assert checkpointer.relocator.counts.to_cold
