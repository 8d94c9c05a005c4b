"""The same generator does the same whoever carries its steps out; what a step raises is the generator's to catch."""

from __future__ import annotations

import pytest
import trio

from topics.host.checkpoint.steps import Blocking, ResumeBatches, Step, Swap, WaitForBatch
from topics.store.steps import drive, drive_async


class Script:
    """A generator of steps, what it has seen, and one way to carry it out."""

    def __init__(self, way):
        self.seen = []
        self._way = way

    def carry_out(self, steps):
        return self._way(steps, self._do)

    def call(self, what, error=None):
        """A call that says that it was made, and fails if it is to."""

        def call():
            self.seen.append(what)
            if error is not None:
                raise error

        return call

    def _do(self, step: Step) -> None:
        match step:
            case Blocking(call) | Swap(call):
                call()
            case _:
                self.seen.append(type(step).__name__)


def in_a_task(steps, do):
    async def do_async(step):
        await trio.lowlevel.checkpoint()
        do(step)

    return trio.run(drive_async, steps, do_async)


@pytest.fixture(params=[drive, in_a_task], ids=["thread", "task"])
def script(request):
    return Script(request.param)


def test_steps_are_carried_out_in_their_order_and_the_end_says_what_came_out(script):
    def steps():
        yield Blocking(script.call("reads"))
        yield WaitForBatch()
        yield Swap(script.call("swaps"))
        yield ResumeBatches()
        return "done"

    assert script.carry_out(steps()) == "done"
    assert script.seen == ["reads", "WaitForBatch", "swaps", "ResumeBatches"]


def test_an_error_is_raised_at_its_step_and_the_generator_may_go_on(script):
    def steps():
        try:
            yield Blocking(script.call("fails", OSError("planted")))
        except OSError as error:
            script.seen.append(f"caught {error}")
        yield Blocking(script.call("goes on"))
        try:
            yield Swap(script.call("fails again", ValueError("planted")))
        except ValueError:
            return 2
        return 1

    assert script.carry_out(steps()) == 2
    assert script.seen == ["fails", "caught planted", "goes on", "fails again"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_nobody_catches_ends_the_work_and_what_it_has_taken_is_given_back(script, error):
    def steps():
        try:
            yield Blocking(script.call("fails", error("planted")))
            yield Blocking(script.call("never"))
        finally:
            script.seen.append("given back")

    with pytest.raises(error, match="planted"):
        script.carry_out(steps())
    assert script.seen == ["fails", "given back"]


def test_a_generator_without_a_step_is_at_its_end_at_once(script):
    def steps():
        return 7
        yield WaitForBatch()

    assert script.carry_out(steps()) == 7
    assert script.seen == []
