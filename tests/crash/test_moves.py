"""Moves struck at every disk call: a record is where it was or where it goes, and in the end there, once."""

from __future__ import annotations

import random

import pytest

from tests.crash.sweep import PROCESS, Operation
from tests.support.scene import append, deletion, put_topic
from topics.engine.checkpoint import SegmentRules
from topics.testing.faults import Landed

GATE_POINTS = 40  # of each operation
PARTS = 4
SMALL_SEGMENTS = SegmentRules(records_max=6, bytes_max=1500)
MOVED = {"disk": [2, 3], "memory": [1, 4], "fsync": [1, 2, 4]}
DATA = {name: [100 * i + n for n in range(1, 5)] for i, name in enumerate(MOVED, 1)}
BEHIND = 7
ALL = sorted(DATA[name][seq - 1] for name, seqs in MOVED.items() for seq in seqs)


def topics(scene):
    for name, data in DATA.items():
        scene.do(put_topic(name, durability=name))
        scene.do(append(name, *data, tag=[b"red", b"", b"green", b""]), sync=True)
    scene.do(put_topic("dlq"))


def topics_in_segments(scene):
    topics(scene)
    scene.checkpoint()


def moving_all(scene):
    """From three topics to one, with what else goes on."""
    for name, seqs in MOVED.items():
        scene.begin_moves(name, seqs, "dlq")
        scene.do(append(name, BEHIND))
        scene.move(2)
    scene.move()


def moving_and_checkpoints(scene):
    for name, seqs in MOVED.items():
        scene.begin_moves(name, seqs, "dlq")
        scene.checkpoint()
        scene.move(3)
    scene.checkpoint()


def moving_and_deleting(scene):
    scene.begin_moves("disk", MOVED["disk"], "dlq")
    scene.do(deletion("disk", before_seq=3))
    scene.move()


OPERATIONS = {
    **{f"moves, {n} shards": (topics, moving_all, {"shards": n}) for n in (1, 3)},
    "moves and checkpoints": (
        topics_in_segments,
        moving_and_checkpoints,
        {"segments": SMALL_SEGMENTS, "shards": 3},
    ),
    "moves and deletes": (topics, moving_and_deleting, {"shards": 3}),
}


def operation(name):
    """Without a crash, all that began to move has arrived."""
    setup, act, options = OPERATIONS[name]
    found = Operation(name, setup, act, **options)
    scene = found.strike(found.calls, Landed.NONE, PROCESS)
    there = sorted(int(data) for data in scene.read("dlq").values())
    assert there == ([103] if act is moving_and_deleting else ALL)
    return found


def struck(found, points):
    for point in points:
        try:
            check(found.strike(*point))
        except AssertionError as error:
            error.add_note(f"{found.name}: call {point[0]} of {found.calls}, {point[1]}, end {point[2]}")
            raise


def check(scene):
    """What was begun is finished; each record is in one place, and it is the right one."""
    scene.move()
    there = [int(data) for data in scene.read("dlq").values()] if "dlq" in scene.engine.names() else []
    assert len(there) == len(set(there))
    assert not scene.engine.state.moves
    for name, data in DATA.items():
        assert not scene.engine.state.catalog.find(name).moving()
        left = [int(record) for record in scene.read(name).values()]
        kept = [one for one in left if one != BEHIND]
        gone = [one for one in data if one not in kept and one not in there]
        assert len(kept) == len(set(kept))
        assert not set(kept) & set(there), name
        assert set(there) & set(data) <= {data[seq - 1] for seq in MOVED[name]}
        assert gone == [] or (name == "disk" and gone[-1] <= data[1])  # those that a delete took


@pytest.mark.parametrize("name", OPERATIONS)
def test_crash_points_of(name, record_property):
    found = operation(name)
    points = list(found.points())
    chosen = random.Random(name).sample(points, min(GATE_POINTS, len(points)))
    struck(found, chosen)

    record_property("crash points", len(chosen))
    print(f"{name}: {found.calls} disk calls, {len(chosen)} of {len(points)} crash points")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_crash_point_of(name, part, record_property):
    found = operation(name)
    points = list(found.points())[part::PARTS]
    struck(found, points)

    record_property("crash points", len(points))
    print(f"{name}: {found.calls} disk calls, all {len(points)} crash points of part {part}")
