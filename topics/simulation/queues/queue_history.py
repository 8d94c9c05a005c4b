"""Who had which job when, by the log alone: what `fsck` says of the queues on a simulated disk."""

from __future__ import annotations

from topics.audit.fsck import Options, fsck
from topics.simulation.machine import cold_folder, restarted
from topics.simulation.oracle import PromiseBroken
from topics.testing.simdisk import SimDisk


def check_queue_history(disk: SimDisk) -> None:
    """Leases follow from each other, and what was moved is where it was sent (`queue.*` of spark 4)."""
    options = Options(
        same_boot=not restarted(disk), settled=True, agreement=False, journals=False, cold=cold_folder(disk)
    )
    report = fsck(disk, where="simulated", options=options)
    wrong = [violation for violation in report.violations if violation.check.startswith("queue.")]
    if wrong:
        raise PromiseBroken(f"{len(wrong)} violations in the log of queues, the first: {wrong[0]}")
