"""Routers by all of the log that is there, `archive/` first: each joins two topics that are there, or were.

A start leaves out a router into a topic that is gone, for the topic's end was its end. So one that names a topic which
neither stands nor ends behind it was never put (semantics 8). Before a hole in the log what ends in it is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.audit.checks.queue_logs import Stretch, read_items
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.control import Control, TopicDelete
from topics.codec.log.routers import RouterCreate
from topics.kernel.ports import Disk

ROUTERS: Final = "routers"


def check_routers(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What is wrong with the routers of the log. `rows`: as for `read_items`."""
    known = state.read.recovered.catalog.next_topic_id
    missing: dict[int, list[Violation]] = {}  # by the id of a topic that is not there
    within: Stretch | None = None
    for at in read_items(disk, [row for row in rows if row.task.shard == 0]):  # routers, and ends of topics
        if at.stretch is not within:
            within = at.stretch
            if within.since_ts is not None:  # a hole is before it
                missing.clear()
        item = at.item
        if not isinstance(item, Control):
            continue
        if isinstance(item.payload, TopicDelete):
            missing.pop(item.topic_id, None)
        elif isinstance(item.payload, RouterCreate):
            router = item.payload
            for topic_id in (router.source_id, router.dest_id):
                if topic_id not in state.topics and topic_id < known:  # else recovery tells of it
                    told = f"router {router.name!r} joins topic id {topic_id}, which was not there"
                    wrong = state.violation(0, at.file, ROUTERS, None, item.offset, told)
                    missing.setdefault(topic_id, []).append(wrong)
    for violations in missing.values():
        yield from violations
