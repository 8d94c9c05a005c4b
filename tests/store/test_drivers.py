"""One script, every driver: the same batch makes the same disk calls and has the same outcome, whoever writes it."""

from __future__ import annotations

import pytest
import trio

from tests.support.scene import SMALL, Scene, append
from topics.embed.aio.shard import ShardTask
from topics.embed.aio.thread import Threads
from topics.embed.driver import LocalEngine
from topics.simulation.shard_stepper import BatchStage, ShardStepper
from topics.testing.faults import FaultKind

CLASSES = ("memory", "disk", "fsync")


def alone(scene):
    scene.opened.writers[0].drain()


def in_threads(scene):
    local = LocalEngine(scene.engine, scene.opened.writers)
    with local.lock:
        while local.leaderless() is not None:
            local.lead(0, until=None)


def in_a_task(scene):
    async def main():
        threads = Threads()
        task = ShardTask(scene.engine, scene.opened.writers[0], lambda _: None, lambda _: None, threads)
        while await task._write_one(task._do_beside):
            pass

    trio.run(main)


def step_by_step(scene):
    pen = ShardStepper(scene.opened.writers[0])
    pen.advance(scene.engine)
    while pen.stage is not BatchStage.IDLE or scene.engine.wants_write(0):
        pen.advance(scene.engine)


def room_in_file(scene):
    figures = scene.opened.writers[0].wal.statistics()
    return figures["size"] - figures["tail"]


def outcome(drive, names, fault=None, *, is_full=False):
    """(disk calls, how each ticket ended, what is read then, whether the shard goes on) of one batch. `is_full`: it
    begins the next file.
    """
    scene = Scene(limits=SMALL)
    scene.open()
    for name in CLASSES:
        scene.create(name, durability=name)
    while is_full and room_in_file(scene) > 600:
        scene.put("disk", 1)
    scene.sync()
    tickets = [scene.propose(append(name, *range(10))) for name in names]
    if fault is not None:
        scene.disk.inject(*fault)
    calls = []
    scene.disk.monitor = lambda call: calls.append((call.op, call.path, call.offset, call.size))
    drive(scene)
    scene.disk.monitor = None
    ends = [type(ticket.error) if ticket.done else None for ticket in tickets]
    return calls, ends, {name: scene.read(name) for name in CLASSES}, scene.opened.writers[0].failed is None


@pytest.mark.parametrize("fault", [None, ("write", FaultKind.EIO), ("sync_data", FaultKind.EIO)])
@pytest.mark.parametrize("names", [["disk"], ["fsync"], ["memory", "fsync", "disk"]])
@pytest.mark.parametrize("drive", [in_threads, in_a_task, step_by_step])
def test_a_batch_is_the_same_whoever_writes_it(drive, names, fault):
    expected = outcome(alone, names, fault)

    assert expected == outcome(drive, names, fault)
    assert expected[3] is (fault is None or (fault[0] == "sync_data" and "fsync" not in names))


@pytest.mark.parametrize("drive", [in_threads, in_a_task, step_by_step])
def test_a_batch_that_begins_the_next_file_is_the_same_whoever_writes_it(drive):
    expected = outcome(alone, ["disk", "fsync"], is_full=True)

    assert expected == outcome(drive, ["disk", "fsync"], is_full=True)
    assert "rename" in [op for op, *_ in expected[0]]
