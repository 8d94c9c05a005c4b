"""A restore into the middle of a move finishes it: no record is lost, none is there twice (queues 3)."""

from __future__ import annotations

import pytest

from tests.support.history import TINY, archiving, backed_up, rebuilt
from tests.support.scene import SMALL, Scene
from topics.kernel.errors import Rejected

SOURCES = ("a", "b", "c", "d")
COUNT = 6


def moved(shards, *, advance_ms):
    """(the base of a backup, the scene behind it): from each of the topics some records go to "dlq", "x" is beside."""
    scene = archiving(shards=shards)
    for n, name in enumerate(SOURCES):
        scene.put(name, *[b"%d" % (10 * n + i) for i in range(COUNT)])
    scene.put("dlq", b"-1")
    scene.sync()
    base = backed_up(scene)
    scene.clock.advance(1)
    for name in SOURCES:
        scene.clock.advance(advance_ms)
        scene.put("x", b"0")
        scene.begin_moves(name, [2, 4], "dlq")
        scene.put("x", b"1")
        scene.move()
        scene.put("x", b"2")
    scene.sync()
    return base, scene


def finished(restored, now_ms):
    """(what "dlq" has, by source what is left) when the store that was restored has gone on for a while."""
    scene = Scene(9, disk=restored, limits=SMALL, segments=TINY)
    scene.clock.set(now_ms)
    scene.open()
    scene.move(9)
    assert not scene.engine.state.moves
    assert not any(topic.moving() for topic in scene.engine.state.catalog.topics.values())
    return [int(data) for data in scene.read("dlq").values()], {
        name: [int(data) for data in scene.read(name).values()] for name in SOURCES
    }


def check(restored, now_ms):
    there, left = finished(restored, now_ms)
    assert there[0] == -1
    assert len(there) == len(set(there))
    for n, name in enumerate(SOURCES):
        every = [10 * n + i for i in range(COUNT)]
        assert sorted([*left[name], *[one for one in there if one in every]]) == every  # here or there
    return len(there) - 1


@pytest.mark.rule("Q3.14")
@pytest.mark.parametrize("advance_ms", [0, 3])
@pytest.mark.parametrize("shards", [1, 3])
def test_to_each_moment(shards, advance_ms):
    base, scene = moved(shards, advance_ms=advance_ms)
    start, end = scene.clock.now_ms() - 60, scene.clock.now_ms()
    counts = set()
    for moment in range(start, end + 1):
        try:
            restored = rebuilt(base, [scene.disk], until_ms=moment)
        except Rejected:  # before the backup
            continue
        counts.add(check(restored, end + 1))

    assert counts == {2 * n for n in range(len(SOURCES) + 1)}


@pytest.mark.rule("Q3.14")
@pytest.mark.parametrize("advance_ms", [0, 3])
@pytest.mark.parametrize("shards", [1, 3])
def test_to_each_seq_of_each_topic(shards, advance_ms):
    base, scene = moved(shards, advance_ms=advance_ms)
    for name, heads in (("dlq", range(1, 10)), ("x", range(1, 3 * len(SOURCES) + 1))):
        for seq in heads:
            check(rebuilt(base, [scene.disk], seqs={name: seq}), scene.clock.now_ms() + 1)
