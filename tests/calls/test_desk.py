"""Where the jobs of a worker lie: who waits gets the next one, and none that is being done here already."""

from __future__ import annotations

import math
import time

import anyio
import pytest

from topics.calls.queues.values import LeasedRecord
from topics.calls.workers.desk import Desk
from topics.calls.workers.leases import Leases
from topics.engine.replies import LeasedJob


class Job(LeasedRecord):
    """A job without a record."""

    def __init__(self, seq: int, lease: int) -> None:
        self.number, self.leased = seq, LeasedJob(seq, 1, lease, 0, 1, 0)
        self.until_s, self.is_settled = math.inf, False

    @property
    def seq(self) -> int:
        return self.number


@pytest.mark.rule("Q6.2")
@pytest.mark.parametrize("backend", ["trio", "asyncio"])
def test_a_job_that_comes_again_waits_until_its_earlier_run_here_has_ended(backend: str) -> None:
    async def main() -> list[Job | None]:
        desk = Desk[Job](Leases(60_000))
        desk.add_hands(2)
        first, again, other = Job(1, 1), Job(1, 2), Job(2, 3)
        desk.bring([first], time.monotonic())
        found = [await desk.next()]
        desk.lose()
        desk.goes_on(first)  # a thread, which nobody can end
        desk.bring([again, other], time.monotonic())

        async def wait() -> None:
            found.append(await desk.next())

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                for _ in range(2):
                    tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert found == [first, other]
                desk.done(first)
        return found

    assert [job and job.leased.counter for job in anyio.run(main, backend=backend)] == [1, 3, 2]
