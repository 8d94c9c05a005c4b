"""A store of ten segments, nine of which are cold: its tier, looked at and damaged."""

from __future__ import annotations

from tests.support.scene import SMALL, Scene
from topics.audit.fsck import Options, fsck
from topics.engine.checkpoint import SegmentRules
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.testing.below import Below

DIRECTORY = "topics/0000000000000001"


def tiered(topic="t", later=0, seed=0):
    """A store of ten full segments, nine of which are cold, and nobody who has it open. `later`: ms of its writes."""
    scene = Scene(
        seed,
        limits=SMALL,
        segments=SegmentRules(records_max=5, bytes_max=2000, age_ms=60_000),
        hot=HotRules(retain_segments=1),
        cold=cold_of,
    )
    scene.open()
    scene.clock.advance(later)
    scene.put(topic, *range(50))
    scene.sync()
    scene.checkpoint()
    assert scene.relocate() == 9
    scene.process_death()
    return scene


def cold_of(disk, folder="cold"):
    return LocalSegmentStore(Below(disk, folder), "the cold place")


def looked(scene, cold, **options):
    return fsck(scene.disk, where="a store", options=Options(settled=True, cold=cold, **options))


def name_of(first, part="data"):
    return f"{DIRECTORY}/seg-{first:020d}.{part}"


def damage_record(disk, first, at):
    """One bit of the `at`-th record of a cold segment."""
    path = f"cold/{name_of(first)}"
    size = disk.size(path) // 5
    disk.flip(path, (at * size + 10) * 8)
