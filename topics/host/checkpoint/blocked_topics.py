"""What holds up the absorbing of single topics: records in the log that are not whole, or cannot be read (storage 5).

A topic's records go into segments in the order of their seqs, so one that cannot be copied holds up all behind it. They
stay in the log, which is the only place where the intact ones are, and their regions keep its files. Everything before
it, and all other topics, go on.

What a read of the disk cannot give now it may give later, so a round tries again after a while, or when somebody asks
for one. Whether a report still holds is read from the state: the record is absorbed then, or gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from topics.engine.engine import Engine
from topics.engine.recovery.recover import DamageReport
from topics.host.directory.layout import path_of
from topics.kernel.errors import Corrupt

AGAIN_MS: Final = 600_000


class CheckpointIncomplete(Corrupt):
    """A round has done everything else, and left this in the log."""


@attrs.frozen
class _Held:
    report: DamageReport
    again_ms: int


class BlockedTopics:
    """The topics of one store that are held up, by topic id: each by the first record that is not to be had."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[int, _Held] = {}  # replaced, so that any thread may look

    def reports(self) -> list[DamageReport]:
        """What is left in the log, and why. Any thread may ask."""
        return [held.report for topic_id, held in self._held.items() if self._is_there(topic_id, held)]

    def is_due(self) -> bool:
        """True if it is time to try again."""
        now_ms = self._engine.now_ms()
        return any(
            held.again_ms <= now_ms and self._is_there(topic_id, held)
            for topic_id, held in self._held.items()
        )

    def limit(self, goals: dict[int, int], *, asked: bool) -> None:
        """Let no goal be beyond what holds its topic up, unless it is time to try, or somebody has asked for it."""
        now_ms = self._engine.now_ms()
        self._held = {
            topic_id: held for topic_id, held in self._held.items() if self._is_there(topic_id, held)
        }
        for topic_id, held in self._held.items():
            if not asked and held.again_ms > now_ms:
                _end_before(goals, topic_id, held.report)

    def add(self, topic_id: int, report: DamageReport, goals: dict[int, int]) -> None:
        """This record could not be copied: the round goes on to the one before it."""
        self._held = {**self._held, topic_id: _Held(report, self._engine.now_ms() + AGAIN_MS)}
        _end_before(goals, topic_id, report)

    def _is_there(self, topic_id: int, held: _Held) -> bool:
        """Whether the topic still has the record, and only in the log."""
        topic = self._engine.catalog.topics.get(topic_id)
        seq = held.report.last_seq
        assert seq is not None
        return topic is not None and topic.segments.stored_seq < seq and topic.index.base_seq <= seq


def left_out(reports: Sequence[DamageReport]) -> CheckpointIncomplete:
    """What is told of a round to whoever has asked for it."""
    first, others = reports[0], len(reports) - 1
    also = f", and {others} other topics (see the damages of the store)" if others else ""
    return CheckpointIncomplete(
        f"a checkpoint left in the log what topic {first.topic!r} has from seq {first.first_seq} on: {first.why} "
        f"({path_of(first.file)}, offset {first.offset}){also}; all else is in segments. Stop the store, copy the "
        "directory, and see topics fsck",
        topic=first.topic,
        seq=first.first_seq,
        files=sorted({path_of(report.file) for report in reports}),
    )


def _end_before(goals: dict[int, int], topic_id: int, report: DamageReport) -> None:
    assert report.first_seq is not None
    if topic_id in goals:
        goals[topic_id] = min(goals[topic_id], report.first_seq - 1)
