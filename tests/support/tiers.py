"""A store with a cold tier that fails as it is told, and a round of its work."""

from __future__ import annotations

from tests.support.faulty_store import FaultyStore
from tests.support.scene import SMALL, Scene
from tests.support.segments import TINY, segments
from topics.host.cold.segment_stores import HotRules, LocalSegmentStore
from topics.testing.below import Below


def in_folder(disk):
    return FaultyStore(LocalSegmentStore(Below(disk, "cold"), "the cold place"))


def scene_with(*, retain=1, retain_bytes=0, cold=in_folder, **options):
    rules = HotRules(retain_segments=retain, retain_bytes=retain_bytes)
    scene = Scene(limits=SMALL, segments=TINY, hot=rules, cold=cold, **options)
    scene.open()
    return scene


def filled(scene, count=50, topic="t"):
    for start in range(0, count, 10):
        names = [b"red", b"", b"blue", b"", b"", b"red", b"", b"", b"", b""]
        scene.put(topic, *[b"%d" % i for i in range(start, start + 10)], tag=names)
    scene.sync()
    scene.checkpoint()
    return scene.read(topic)


def cold_firsts(scene, topic="t"):
    return [segment.first for segment in segments(scene, topic) if segment.cold]


def relocator(scene):
    return scene.opened.checkpointer.relocator


def half_dead(scene):
    """Most of the segments at the front are to be rewritten now."""
    for tag in ("red", "blue"):
        scene.delete("t", match=tag)
    scene.delete("t", before_seq=8)


def worked(scene):
    """One more record, a round, and whatever else is due, as the drivers do it."""
    scene.put("t", b"more", idempotency_key=b"%d" % scene.engine.topic_state("t").head_seq)
    scene.sync()
    scene.checkpoint()
    while (steps := scene.opened.checkpointer.due()) is not None:
        scene.carry(steps)
