"""Schedules by all of the log that is there, `archive/` first: each instant once, later ones later (queues 4).

What was fired is told by the records themselves: their dedup ids name schedule and instant. So a record that is not in
the log any more is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.audit.checks.queue_logs import read_items
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.frame import Run
from topics.codec.log.schedules import parse_firing
from topics.kernel.ports import Disk

SCHEDULES: Final = "schedules"


def check_schedules(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What schedules have fired twice, or out of order. `rows`: as for `read_items`."""
    latest: dict[int, tuple[int, int]] = {}  # by schedule: the instant, and the seq of its record
    for at in read_items(disk, rows):
        item = at.item
        if not isinstance(item, Run) or item.dedup is None or item.topic_id not in state.topics:
            continue
        for i, dedup_id in item.dedup:
            if (fired := parse_firing(dedup_id)) is None:
                continue
            schedule_id, instant_ms = fired
            seq = item.seq_start + i
            before_ms, before = latest.get(schedule_id, (-1, 0))
            latest[schedule_id] = (instant_ms, seq)
            if instant_ms <= before_ms:
                wrong = (
                    f"schedule {schedule_id} fired its instant {instant_ms} as seq {seq},"
                    f" behind {before_ms} as seq {before}"
                )
                yield state.violation(item.topic_id, at.file, SCHEDULES, seq, item.offset, wrong)
