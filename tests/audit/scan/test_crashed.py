"""What a crash leaves is no damage, wherever it struck."""

from __future__ import annotations

import pytest

from topics.audit.fsck import Options, fsck
from topics.audit.scan.rows import Severity
from topics.simulation.machine import cold_folder, restarted
from topics.simulation.world import World
from topics.testing.simdisk import SimDisk

SEEDS = 5


class Checked(World):
    """A world in which somebody looks at the disk after each crash, and before anybody opens it."""

    reports = 0

    def _crash(self):
        super()._crash()
        twin = SimDisk()
        twin.restore(self.disk.snapshot())
        options = Options(same_boot=not restarted(self.disk), settled=True, cold=cold_folder(twin))
        if twin.size("FORMAT") is None:
            return
        report = fsck(twin, where="a crashed world", options=options)
        self.reports += 1

        assert not report.errors, (self.seed, report.errors[:3])


@pytest.mark.rule("T4.15", "T4.16")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_crash_is_taken_for_damage(seed):
    world = Checked(seed)
    world.run()

    assert world.reports


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS, 200))
def test_no_crash_is_taken_for_damage_at_length(seed):
    Checked(seed).run()


def test_severities_are_told_apart():
    assert [str(one) for one in Severity] == ["error", "undecidable", "note"]
