"""Segments of ten records, half of them dead, and what their files say of it."""

from __future__ import annotations

from tests.support.scene import SMALL, Scene
from topics.codec.segments.segidx import ENDS
from topics.engine.checkpoint import SegmentRules
from topics.host.directory.layout import segment_path
from topics.host.segments.segment_seals import seal_of

TEN = SegmentRules(records_max=10, bytes_max=100_000, age_ms=0)


def scene_with(seed=0, segments=TEN, **options):
    scene = Scene(seed, limits=SMALL, segments=segments, **options)
    scene.open()
    return scene


def reopened(scene):
    scene.process_death()
    scene.open()
    assert not scene.opened.read_only, scene.opened.damages
    return scene


def put(scene, count, topic="t", **columns):
    scene.put(topic, *[b'"record %d"' % i for i in range(count)], **columns)
    scene.sync()


def idx_of(scene, first=1, topic_id=1):
    return seal_of(scene.disk, topic_id, first).idx(scene.disk.content(segment_path(topic_id, first, "idx")))


def ends_of(scene, first=1, topic_id=1):
    """(delete byte, bit in the idx) of each record that has bytes."""
    idx, data = idx_of(scene, first, topic_id), scene.disk.content(segment_path(topic_id, first, "data"))
    places = zip(idx.offsets, idx.lengths, idx.flags, strict=True)
    return [(data[offset + length], flags & ENDS) for offset, length, flags in places if length]


def data_size(scene, first=1, topic_id=1):
    return scene.disk.size(segment_path(topic_id, first, "data"))


def half_dead(scene, count=30):
    """Segments of ten, in which every record but the first and every fifth is deleted."""
    put(scene, count, tag=[b"keep" if i % 5 == 0 else b"go" for i in range(count)])
    scene.delete("t", match="go")
