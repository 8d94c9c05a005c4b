"""Schedules struck at every disk call: behind it each instant is one record, whatever the end, on one and three shards.

A part of it is that nothing is left out: `catch_up` is `all`, so what was missed in the crash is fired behind it.
"""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from tests.crash.sweep import ENDS, PROCESS
from tests.support.scene import SMALL, Scene
from topics.codec.log.schedules import Schedule
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import DeleteSchedule, PutSchedule
from topics.testing.faults import Landed, SimCrash
from topics.testing.simdisk import SimDisk

GATE_POINTS = 40  # of each number of shards
EVERY_MS = 1000
TOPICS = {"fsync": "fsync", "disk": "disk", "memory": "memory"}
SMALL_SEGMENTS = SegmentRules(records_max=6, bytes_max=1500)


def schedule(name, *, every_ms=EVERY_MS, data=b"1"):
    return Schedule(id=0, name=name, every_ms=every_ms, catch_up="all", data=data)


def put(scene, topic, name=None, **fields):
    return scene.run(PutSchedule(topic=topic, schedule=schedule(name or topic, **fields)))


def scene_of(snapshot, shards, now_ms):
    disk = SimDisk(1)
    if snapshot is not None:
        disk.restore(snapshot)
    scene = Scene(disk=disk, shards=shards, limits=SMALL, segments=SMALL_SEGMENTS)
    scene.clock.set(now_ms)
    scene.open()
    return scene


def settle(scene):
    """Whatever is due now happens."""
    for _ in range(500):
        scene.write()
        due_ms = scene.engine.next_deadline_ms()
        if due_ms is None or due_ms > scene.engine.now_ms():
            return
        scene.engine.tick()
    raise AssertionError("it goes on for ever")


def begun(shards):
    """(disk, now) of a store with a schedule in each topic, which have fired."""
    scene = scene_of(None, shards, 1_700_000_000_000)
    for topic, durability in TOPICS.items():
        scene.create(topic, durability=durability)
        put(scene, topic)
    scene.clock.advance(EVERY_MS)
    settle(scene)
    scene.process_death()
    return scene.disk.snapshot(), scene.clock.now_ms()


def act(scene):
    """Instants come; between them a checkpoint, a change, and one schedule more that goes again."""
    for step in range(4):
        scene.clock.advance(EVERY_MS)
        settle(scene)
        if step == 1:
            scene.checkpoint()
            put(scene, "disk", data=b"2")
            put(scene, "fsync", "more")
        if step == 2:
            scene.run(DeleteSchedule(topic="fsync", schedule="more"))
            scene.checkpoint()


def instants(scene, topic, name):
    metas = []
    from_seq = 0
    while True:
        plan, records = scene.page(topic, from_seq)
        metas += [msgspec.json.decode(record.meta) for record in records]
        if plan.next_from_seq == from_seq:
            assert not any("$schedule_skipped_from" in meta for meta in metas)
            return [int(meta["$schedule_instant"]) for meta in metas if meta["$schedule"] == name]
        from_seq = plan.next_from_seq


def check(scene, start_ms):
    """Of each schedule every instant up to now, in order."""
    settle(scene)
    now_ms = scene.engine.now_ms()
    for topic in TOPICS:
        every = list(range(start_ms, now_ms + 1, EVERY_MS))
        assert instants(scene, topic, topic) == every, topic
    more = instants(scene, "fsync", "more")
    assert more == sorted(set(more))


def strike(snapshot, shards, now_ms, call, landed, how):
    scene = scene_of(snapshot, shards, now_ms)
    before = scene.disk.mutations
    if call is not None:
        scene.disk.crash_at(call, landed)
    try:
        act(scene)
    except SimCrash:
        assert call is not None
    calls = scene.disk.mutations - before
    if how is PROCESS:
        scene.process_death()
    else:
        scene.power_loss(how, call)
    scene.clock.advance(3 * EVERY_MS + 1)
    scene.open()
    check(scene, now_ms)
    first = scene.facts()
    scene.process_death().open()
    assert first == scene.facts()  # I-10
    return calls


def struck(shards, points_max):
    snapshot, now_ms = begun(shards)
    calls = strike(snapshot, shards, now_ms, None, Landed.NONE, PROCESS)
    points = list(itertools.product(range(calls), Landed, ENDS))
    chosen = random.Random(shards).sample(points, min(points_max, len(points)))
    for call, landed, how in chosen:
        try:
            strike(snapshot, shards, now_ms, call, landed, how)
        except AssertionError as error:
            error.add_note(f"{shards} shards: call {call} of {calls}, {landed}, end {how}")
            raise
    print(f"{shards} shards: {calls} disk calls, {len(chosen)} of {len(points)} crash points")
    return len(chosen)


@pytest.mark.rule("Q4.18")
@pytest.mark.parametrize("shards", [1, 3])
def test_crash_points_of_schedules(shards, record_property):
    record_property("crash points", struck(shards, GATE_POINTS))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("shards", [1, 3])
def test_every_crash_point_of_schedules(shards, record_property):
    record_property("crash points", struck(shards, 1 << 20))
