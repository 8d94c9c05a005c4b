"""A checkpoint moves bytes and forgets logs, and nobody who reads can tell."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.crash.scene import SMALL, Scene
from topics.engine.checkpoint import SegmentRules
from topics.engine.verify import canonical
from topics.log.regions import SegmentId

TINY = SegmentRules(records_max=8, bytes_max=2000, age_ms=3_600_000)


def scene_with(seed=0, **options):
    scene = Scene(seed, limits=SMALL, segments=TINY, **options)
    scene.open()
    return scene


def state_of(scene):
    return canonical(scene.engine.state.catalog)


def reopened(scene):
    scene.process_death()
    scene.open()
    return scene


def sources(scene, topic):
    found = scene.engine.state.catalog.find(topic)
    return [source for _, _, source in found.regions.spans(found.head_seq + 1)]


def test_records_are_read_from_segments_after_a_checkpoint():
    scene = scene_with()
    scene.put("t", *[b"%d" % i for i in range(20)])
    before = scene.read("t")
    scene.sync()
    scene.checkpoint()

    assert all(isinstance(source, SegmentId) for source in sources(scene, "t"))
    assert scene.read("t") == before
    assert [s.count for s in scene.engine.state.catalog.find("t").segments] == [8, 8, 4]


def test_a_start_from_a_snapshot_gives_the_state_that_was():
    scene = scene_with()
    scene.put("t", *[b"%d" % i for i in range(20)], tag=[b"a", b"b"] * 10)
    scene.delete("t", match=["tag", "Eq", "a"])
    scene.sync()
    scene.checkpoint()
    scene.put("t", b"20", b"21")
    state, read = state_of(scene), scene.read("t")
    reopened(scene)

    assert state_of(scene) == state
    assert scene.read("t") == read
