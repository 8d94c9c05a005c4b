"""One work at a time, whoever drives it: what it ends with, what is counted, and how long it rests then."""

from __future__ import annotations

import errno

import pytest
import trio

from tests.support.scene import Scene
from topics.engine.checkpoint import SegmentRules
from topics.host.checkpoint.steps import Blocking, Propose, Swap, WaitForBatch
from topics.kernel.errors import Code, Fatal, Rejected
from topics.store.background import AGAIN_S, FAILED_MAX_S, FAILED_S, BackgroundWork
from topics.store.steps import drive, drive_async


def in_a_task(steps, do):
    async def do_async(step):
        await trio.lowlevel.checkpoint()
        do(step)

    return trio.run(drive_async, steps, do_async)


@pytest.fixture(params=[drive, in_a_task], ids=["thread", "task"])
def carry_out(request):
    """One way to carry out a work."""
    return request.param


@pytest.fixture
def scene():
    scene = Scene(segments=SegmentRules(records_max=10))
    scene.open()
    scene.create("t", durability="fsync")
    scene.put("t", *range(25))
    return scene


def doing(scene):
    """Does a step as who is alone with the store."""

    def do(step):
        match step:
            case Blocking(call) | Swap(call):
                call()
            case Propose(command):
                scene.run(command)
            case WaitForBatch():
                scene.drain()

    return do


def raising(error):
    def steps():
        yield Blocking(lambda: None)
        raise error

    return steps


def nothing(step):
    """Does no step."""


def test_a_round_is_carried_out_and_nothing_to_do_is_told(scene, carry_out):
    checkpointer = scene.opened.checkpointer
    background = BackgroundWork(checkpointer)

    assert carry_out(background.work(checkpointer.round), doing(scene)) is True
    assert carry_out(background.work(lambda: None), doing(scene)) is False
    assert (checkpointer.rounds, background.failures) == (1, 0)
    assert scene.read("t") == {seq: b"%d" % (seq - 1) for seq in range(1, 26)}


def test_failures_are_counted_until_a_round_is_whole_and_each_makes_the_rest_longer(scene, carry_out):
    checkpointer = scene.opened.checkpointer
    background = BackgroundWork(checkpointer)
    rests = []
    for _ in range(9):
        with pytest.raises(Fatal, match=r"a checkpoint failed: .*it is tried again: see the disk") as failed:
            carry_out(background.work(raising(OSError(errno.EIO, "planted"))), nothing)
        rests.append(background.rest_after(failed.value))

    assert rests == [min(FAILED_S * 2**n, FAILED_MAX_S) for n in range(9)]
    assert background.failures == 9
    carry_out(background.work(lambda: iter_of([])), nothing)
    assert background.failures == 9  # that was no round
    carry_out(background.work(checkpointer.round), doing(scene))
    assert background.failures == 0


def iter_of(steps):
    yield from steps


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "planted"), Rejected(Code.DISK_LOW, "planted")])
def test_a_want_of_space_is_refused_and_is_no_failure(scene, carry_out, error):
    background = BackgroundWork(scene.opened.checkpointer)
    with pytest.raises(Rejected, match="planted") as refused:
        carry_out(background.work(raising(error)), nothing)

    assert (refused.value.code, background.failures) == (Code.DISK_LOW, 0)
    assert background.rest_after(refused.value) == AGAIN_S


def test_an_error_of_a_step_ends_a_work_as_one_of_its_own_does(scene, carry_out):
    background = BackgroundWork(scene.opened.checkpointer)
    closed = []

    def fail():
        raise OSError(errno.EIO, "planted")

    def steps():
        try:
            yield Blocking(fail)
        finally:
            closed.append(True)

    with pytest.raises(Fatal, match="planted"):
        carry_out(background.work(steps), lambda step: step.call())
    assert closed == [True]
    assert background.failures == 1


def test_what_is_checked_between_the_steps_ends_a_work(scene, carry_out):
    left = [None, None]

    def check():
        if not left:
            raise Rejected(Code.SHUTTING_DOWN, "planted")
        left.pop()

    done = []
    background = BackgroundWork(scene.opened.checkpointer, check)
    with pytest.raises(Rejected, match="planted"):
        carry_out(background.work(lambda: iter_of([WaitForBatch()] * 5)), done.append)
    assert len(done) == 2
    assert background.failures == 0


def test_a_failure_that_a_whole_round_of_somebody_else_has_overtaken_rests_as_the_first():
    """The thread had raised its error, and another's round was whole before it asked how long to rest."""
    scene = Scene()
    scene.open()

    assert BackgroundWork(scene.opened.checkpointer).rest_after(Fatal("planted")) == FAILED_S
