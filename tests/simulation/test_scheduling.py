"""The contract with Trio's private switch: one seed, one order; another seed, another; and nothing stays switched."""

from __future__ import annotations

import random

import trio
import trio._core._run as trio_run

from topics.simulation.scheduling import LoopClock, run_seeded
from topics.simulation.simulated_threads import SeededThreads


async def order_of_tasks():
    """In which order six tasks come to each of five steps."""
    steps = []

    async def walk(name):
        for step in range(5):
            await trio.sleep(0.1 * (step % 2))
            steps.append((step, name))

    async with trio.open_nursery() as nursery:
        for name in "abcdef":
            nursery.start_soon(walk, name)
    return steps


def test_a_seed_gives_one_order_and_another_seed_another():
    orders = [run_seeded(order_of_tasks, seed) for seed in range(8)]

    assert orders == [run_seeded(order_of_tasks, seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) == 8


def test_the_switch_is_back_as_it_was_behind_a_run_even_a_failed_one():
    before = trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING

    async def fail():
        assert before != (trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING)
        raise LookupError

    run_seeded(order_of_tasks, 1)
    try:
        run_seeded(fail, 1)
    except LookupError:
        assert before == (trio_run._r, trio_run._ALLOW_DETERMINISTIC_SCHEDULING)
    else:
        raise AssertionError("nothing failed")


def test_a_minute_takes_no_time_and_the_engines_clock_goes_with_it():
    clock = LoopClock(1_000_000)

    async def wait():
        before = clock.now_ms()
        await trio.sleep(60)
        passed = clock.now_ms() - before
        clock.set(500_000)
        await trio.sleep(2)
        return passed, clock.now_ms()

    assert run_seeded(wait, 1) == (60_000, 502_000)
    assert LoopClock(1000).now_ms() == 1000


def test_what_this_machine_takes_for_a_write_is_no_time_of_a_run():
    """A write on the loop that takes long sends the next ones to a thread: a busy machine gave a seed another trace."""

    async def main() -> float:
        threads = SeededThreads(random.Random(1), lambda: None)
        started = threads.now_s()
        sum(range(10_000))
        return threads.now_s() - started

    assert run_seeded(main, 1) == 0
