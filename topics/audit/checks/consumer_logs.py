"""Durable consumers by all of the log that is there, `archive/` first: each goes forward by its commits (http-api 7).

What lies beyond the head is told by recovery, as records that are missing before it. What a consumer stood at before
the log begins, or before a hole in it, is not known, and neither is it once its topic has another config: a topic that
becomes ephemeral forgets its consumers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.audit.checks.queue_logs import Stretch, read_items
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.consumers import ConsumerChange, ConsumerCommit
from topics.codec.log.control import ConfigUpdate, Control
from topics.kernel.ports import Disk

CONSUMERS: Final = "consumers"


def check_consumers(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What is wrong with the consumers of the state's topics. `rows`: as for `read_items`."""
    if not any(len(topic.consumers) for topic in state.topics.values()):
        return
    known: dict[int, dict[str, int]] = {}  # by topic, where its consumers stand
    within: Stretch | None = None
    for at in read_items(disk, rows):
        item, topic_id = at.item, at.item.topic_id
        if at.stretch is not within:
            within = at.stretch
            known.clear()
        if not isinstance(item, Control) or topic_id not in state.topics:
            continue
        if isinstance(item.payload, ConfigUpdate):
            known.pop(topic_id, None)
        elif isinstance(item.payload, ConsumerCommit):
            wrong = _follow(known.setdefault(topic_id, {}), item.payload)
            if wrong:
                yield state.violation(topic_id, at.file, CONSUMERS, item.payload.seq, item.offset, wrong)


def _follow(known: dict[str, int], commit: ConsumerCommit) -> str:
    """What no engine says; empty if it is well."""
    before = known.get(commit.name)
    if commit.change is ConsumerChange.DELETE:
        known.pop(commit.name, None)
        return ""
    known[commit.name] = commit.seq
    if commit.change is ConsumerChange.COMMIT and before is not None and commit.seq <= before:
        return f"consumer {commit.name!r} stood at {before}, and a commit says {commit.seq}"
    return ""
