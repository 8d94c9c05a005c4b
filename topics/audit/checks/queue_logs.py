"""Every queue by all of the log that is there, `archive/` first: what `leases` and `letters` of it must say (spark 4).

A log has a hole where files of it are not kept, or where it is damaged. What lies between two holes is a stretch. A
queue's history is whole as long as it goes on in the stretch in which the topic was created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from topics.audit.checks.leases import LETTERS, Place, QueueHistory, shown_name
from topics.audit.recovery import RecoveredDirectory
from topics.audit.scan.rows import Violation, WalRow
from topics.codec.log.control import ConfigUpdate, Control, Delete, EvictWatermark, LossRange, TopicCreate
from topics.codec.log.frame import Run
from topics.codec.log.leases import LeaseEvent
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.moving.letters import move_id
from topics.host.directory.size_limits import read_log
from topics.kernel.config import TopicType, stored_config
from topics.kernel.ports import Disk

_FIRST_FRAME: Final = 1  # of a shard's log


@attrs.frozen(eq=False)
class Stretch:
    """Files of a shard's log that follow each other. `since_ts`: of its first item; None for the shard's first file."""

    generation: int
    since_ts: int | None

    def holds_all_since(self, created: _Created) -> bool:
        """Whether all of a topic lies behind the beginning."""
        if self.since_ts is None:
            return self.generation == created.generation
        return self.since_ts < created.ts


class _Created(NamedTuple):
    """When a topic was created, which shard 0 says, and in which generation of the log."""

    generation: int
    ts: int


class LogItem(NamedTuple):
    """What lies in the log, in its order."""

    file: str
    stretch: Stretch
    item: Run | Control


def read_items(disk: Disk, rows: Sequence[WalRow]) -> Iterator[LogItem]:
    """All that the log tells, shard by shard. `rows`: of its files, archived ones too; of one that lies in both
    places the longer copy is read.
    """
    files: dict[tuple[int, int, int], WalRow] = {}
    for row in sorted(rows, key=lambda row: row.frames):
        files[row.task.generation, row.task.shard, row.task.first_frame] = row
    before: WalRow | None = None
    stretch: Stretch | None = None
    for (generation, _, first_frame), row in sorted(files.items()):
        if row.header_defect or row.blank:
            continue
        buffer = read_log(disk, row.task.file)
        items = scan(buffer, HEADER_SIZE, min(row.end, len(buffer))).items
        if not items:
            continue
        if stretch is None or not _goes_on(before, row):
            stretch = Stretch(generation, None if first_frame == _FIRST_FRAME else items[0].ts)
        before = row
        yield from (LogItem(row.task.file, stretch, item) for item in items)


def _goes_on(before: WalRow | None, row: WalRow) -> bool:
    return (
        before is not None
        and before.clean
        and (before.task.generation, before.task.shard) == (row.task.generation, row.task.shard)
        and before.task.first_frame + before.frames == row.task.first_frame
    )


def check_queues(disk: Disk, state: RecoveredDirectory, rows: Sequence[WalRow]) -> Iterator[Violation]:
    """What is wrong with the queues of the state. `rows`: as for `read_items`."""
    if not any(topic.config.type is TopicType.QUEUE for topic in state.topics.values()):
        return
    walk = _Walk(state)
    for item in read_items(disk, rows):
        if item.item.topic_id in state.topics:
            yield from walk.follow(item)
    yield from walk.end()


class _Walk:
    """The histories of all queues, and of the topics that dead letters come to."""

    def __init__(self, state: RecoveredDirectory) -> None:
        self._state = state
        self._created: dict[int, _Created] = {}
        self._stretches: dict[int, Stretch] = {}
        self._histories: dict[int, QueueHistory] = {}
        self._arrived: dict[
            int, dict[bytes, Place]
        ] = {}  # by topic: the ids with which records of others came

    def follow(self, at: LogItem) -> Iterator[Violation]:
        """Item by item, of topics that are there."""
        item, topic_id = at.item, at.item.topic_id
        if isinstance(item, Control) and isinstance(item.payload, TopicCreate):
            self._created[topic_id] = _Created(at.stretch.generation, item.ts)
            self._histories[topic_id] = self._new(topic_id, whole=True)
            self._histories[topic_id].configured(stored_config(item.payload.config))
            return
        history = self._of(topic_id, at.stretch)
        place = Place(at.file, item.offset)
        if isinstance(item, Run):
            self._came(item, history, place)
            return
        match item.payload:
            case ConfigUpdate(config=config):
                history.configured(stored_config(config))
            case Delete() | EvictWatermark() | LossRange():
                history.ends_otherwise()
            case LeaseEvent() as event:
                for check, seq, what in history.happened(event, item.ts, place):
                    yield self._state.violation(topic_id, place.file, check, seq, place.offset, what)

    def end(self) -> Iterator[Violation]:
        """What only all of the log shows."""
        for topic_id, history in self._histories.items():
            for place, check, seq, what in history.unsure:
                yield self._state.violation(topic_id, place.file, check, seq, place.offset, what)
        recovered = self._state.read.recovered
        if recovered.read_only or recovered.cuts:
            return  # what is not in a log may be what that log has lost
        for history in self._histories.values():
            yield from self._check_sent(history)
        yield from self._check_arrived()

    def _of(self, topic_id: int, stretch: Stretch) -> QueueHistory:
        history = self._histories.get(topic_id)
        if history is None:
            history = self._histories[topic_id] = self._new(topic_id, whole=False)
        last = self._stretches.get(topic_id)
        if last is not stretch:
            self._stretches[topic_id] = stretch
            created = self._created.get(topic_id)
            if last is not None or created is None or not stretch.holds_all_since(created):
                history.lost_sight()
        return history

    def _new(self, topic_id: int, *, whole: bool) -> QueueHistory:
        topic = self._state.topics[topic_id]
        return QueueHistory(topic_id, topic.name, whole=whole, config=topic.config)

    def _came(self, run: Run, history: QueueHistory, place: Place) -> None:
        if history.is_queue:
            history.appended(run)
        for _, dedup_id in run.dedup or ():
            if dedup_id.startswith((b"dl:", b"rd:")):
                self._arrived.setdefault(run.topic_id, {})[dedup_id] = place

    def _check_sent(self, history: QueueHistory) -> Iterator[Violation]:
        """What was deleted as moved has arrived where it was sent, if all of the log of that is here."""
        state, source = self._state, self._state.topics[history.topic_id]
        by_name = {topic.name.encode(): topic_id for topic_id, topic in state.topics.items()}
        for seq, sent in history.moved.items():
            dest_id = by_name.get(sent.dest, 0)
            dest = self._histories.get(dest_id)
            if dest is None or not dest.whole or self._created[dest_id].ts > sent.ts:
                continue  # it was deleted, or created anew since, or its log begins later
            if move_id(source.topic_id, source.epoch, seq, sent.reason) not in self._arrived.get(dest_id, {}):
                what = (
                    f"it was moved to {shown_name(sent.dest)}, and nothing of it is in the log of that topic"
                )
                yield state.violation(source.topic_id, sent.place.file, LETTERS, seq, sent.place.offset, what)

    def _check_arrived(self) -> Iterator[Violation]:
        """What has arrived was sent, if all of the log of the topic that it came from is here."""
        sources: Mapping[tuple[int, int], QueueHistory] = {
            (topic_id, self._state.topics[topic_id].epoch): history
            for topic_id, history in self._histories.items()
            if history.whole and history.is_logged
        }
        for topic_id, arrived in self._arrived.items():
            for move, place in arrived.items():
                source_id, epoch, seq = map(int, move.split(b":")[1:])
                source = sources.get((source_id, epoch))
                if source is None or seq in source.moved or seq in source.letters:
                    continue
                what = (
                    f"it came as {shown_name(move)}, and no intent to move that is in the log of where it was"
                )
                yield self._state.violation(topic_id, place.file, LETTERS, None, place.offset, what)
