"""A store on a simulated disk and a clock set by hand, without its housekeeping thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import topics
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

OpenSim = Callable[..., topics.Store]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(seed=1)


@pytest.fixture
def open_sim(disk: SimDisk, clock: ManualClock) -> OpenSim:
    """Open (or open again) the store on the simulated disk."""

    def open_it(*, machine_restarted: bool = False, **options: object) -> topics.Store:
        opened = open_store(
            disk,
            clock,
            SeededEntropy(1),
            where="sim",
            machine_restarted=machine_restarted,
            confirm=lambda _: None,
            options=topics.StoreOptions(checking=True, **options),  # type: ignore[arg-type]  # given by the tests
        )
        return topics.Store(opened, disk, where="sim", housekeeping=False)

    return open_it


@pytest.fixture
def store(open_sim: OpenSim) -> Iterator[topics.Store]:
    with open_sim() as opened:
        yield opened
