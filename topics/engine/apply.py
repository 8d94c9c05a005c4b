"""`apply`: one frame (or run of frames) folded into the state. Live writes, recovery and the simulator all end here.

It cannot fail and reads no clock: now is the frame's ts (architecture 3.2). It is indifferent to allocators.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from topics.codec.log.consumers import ConsumerCommit
from topics.codec.log.control import (
    CheckpointMark,
    ConfigUpdate,
    Control,
    Delete,
    EvictWatermark,
    HeadWatermark,
    LossRange,
    TopicCreate,
    TopicDelete,
    WriteResult,
)
from topics.codec.log.forwards import Forward
from topics.codec.log.frame import Run
from topics.codec.log.leases import DeadLettered, Moved
from topics.codec.log.routers import RouterCreate, RouterDelete
from topics.codec.log.schedules import Schedule
from topics.kernel.config import stored_config
from topics.kernel.ids import is_internal
from topics.kernel.limits import U64_MAX
from topics.log import fold
from topics.log.kinds import OF_KINDS, kind_of
from topics.log.lost import LostRange
from topics.log.reads.match import parse_match
from topics.log.regions import SegmentId, Source
from topics.log.routers import Inbound, Router, Routers
from topics.log.segments import Segment
from topics.log.topic import Topic


class CatalogView(Protocol):
    """A catalog for whoever only looks. That goes for the topics in it, too: they change by frames, and by the engine's
    own calls.
    """

    @property
    def topics(self) -> Mapping[int, Topic]: ...
    @property
    def topic_ids(self) -> Mapping[str, int]: ...
    @property
    def epochs(self) -> Mapping[str, int]: ...
    @property
    def next_topic_id(self) -> int: ...
    @property
    def schedules(self) -> Mapping[str, tuple[int, int]]: ...
    @property
    def routers(self) -> Routers: ...
    def find(self, name: str) -> Topic | None: ...
    def find_segment(self, segment: SegmentId) -> Segment | None: ...


class Catalog:
    """Every topic by id, and the names, past and present, with their epochs."""

    __slots__ = (
        "_sorted", "epochs", "high_ts", "next_topic_id", "routers", "schedules", "topic_ids", "topics", "unrouted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: dict[int, Topic] = {}
        self.topic_ids: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.schedules: dict[str, tuple[int, int]] = {}  # by name: its topic's id, and its own
        self.routers = Routers()
        # Of the topic that was removed last: each of its routers, and that one's other topic.
        self.unrouted: Sequence[tuple[str, str]] = ()
        self.next_topic_id = 1
        self.high_ts = 0
        self._sorted: list[str] | None = None  # the public names, from the first time they are listed

    def find(self, name: str) -> Topic | None:
        """The topic of that name. Any thread may ask: it is there or not, also while one is being deleted."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics.get(topic_id)

    def find_segment(self, segment: SegmentId) -> Segment | None:
        """The segment of that topic that begins with that seq; None if the state counts none. Any thread may ask."""
        topic = self.topics.get(segment.topic_id)
        found = None if topic is None else topic.segments.holds(segment.first_seq)
        return found if found is not None and found.first == segment.first_seq else None

    def add(self, topic: Topic) -> None:
        assert topic.topic_id not in self.topics
        assert topic.name not in self.topic_ids
        self.topics[topic.topic_id] = topic
        self.topic_ids[topic.name] = topic.topic_id
        if self._sorted is not None and not is_internal(topic.name):
            insort(self._sorted, topic.name)

    def remove(self, topic: Topic) -> None:
        """It goes, with its schedules and every router that touches it."""
        del self.topics[topic.topic_id]
        del self.topic_ids[topic.name]
        for standing in topic.schedules.values():
            self.schedules.pop(standing.definition.name, None)
        routers = self.routers.drop_touching(topic.topic_id)
        self.unrouted = [(one.name, self.topics[one.other_than(topic.topic_id)].name) for one in routers]
        for router in routers:
            self._forget_inbound(router)
        if self._sorted is not None and not is_internal(topic.name):
            at = bisect_left(self._sorted, topic.name)
            assert self._sorted[at] == topic.name
            del self._sorted[at]

    def route(self, router: Router) -> None:
        """A router comes to stand, or is another one from now on. Of a log of which nothing is missing its dest is
        there, and nothing is in its way.
        """
        dest = self.topics.get(router.dest_id)
        if dest is None:
            return
        for other in self.routers.against(router):
            self.unroute(other)
        self.routers.put(router)
        cursor, total = dest.inbound.get(router.id, (0, 0))
        dest.inbound[router.id] = Inbound(max(cursor, router.from_seq), total)

    def unroute(self, router: Router) -> None:
        """A router ends, and with it what is known of how far it has come."""
        self.routers.drop(router)
        self._forget_inbound(router)

    def _forget_inbound(self, router: Router) -> None:
        dest = self.topics.get(router.dest_id)
        if dest is not None:
            dest.inbound.pop(router.id, None)

    def names(self, prefix: str, after: str, count_max: int | None) -> list[str]:
        """Public names, ascending, that start with `prefix` and come after `after`: the first `count_max`, or all.

        They are sorted once and kept in order from then on, so that a page of many costs what the page does.
        """
        if self._sorted is None:
            self._sorted = sorted(name for name in self.topic_ids if not is_internal(name))
        names = self._sorted
        at = max(bisect_left(names, prefix), bisect_right(names, after))
        found = names[at:] if count_max is None else names[at : at + count_max]
        if found and not found[-1].startswith(prefix):  # those with the prefix stand together, in front
            del found[bisect_right(found, prefix, key=lambda name: name[: len(prefix)]) :]
        return found


def apply(catalog: Catalog, item: Run | Control, source: Source) -> int:
    """Fold one item. Frames of a topic that has been deleted do nothing. Returns how many records a delete took."""
    if item.ts > catalog.high_ts:
        catalog.high_ts = item.ts
    if isinstance(item, Run):
        topic = catalog.topics.get(item.topic_id)
        if topic is not None:
            fold.run(topic, item, source)
        return 0
    if isinstance(item.payload, TopicCreate):
        _create(catalog, item.topic_id, item.payload)
        return 0
    topic = catalog.topics.get(item.topic_id)
    if topic is None:
        return 0
    if type(item.payload) is Forward:
        fold.forward(topic, item.payload)
        return 0
    if type(item.payload) in OF_KINDS:
        kind_of(topic).fold(topic, item)
        return 0
    return _apply_control(catalog, topic, item)


def _apply_control(catalog: Catalog, topic: Topic, item: Control) -> int:
    match item.payload:
        case Delete(before_seq=before_seq, match=given, upto=upto):
            match_ = None if given is None else parse_match(msgspec.json.decode(given), tag_bytes_max=U64_MAX)
            return fold.delete(topic, before_seq=before_seq, match=match_, upto=upto)
        case EvictWatermark():
            fold.watermark(topic, item.ts)
        case HeadWatermark(ceiling=ceiling):
            fold.ceiling(topic, ceiling)
        case WriteResult() as written:
            fold.write_result(topic, written, item.ts)
        case ConfigUpdate(config=config, carried=carried):
            if carried is not None:
                fold.carry(topic, carried)
            fold.config(topic, stored_config(config), item.ts)
        case LossRange(first=first, last=last, reason=reason):
            fold.loss(topic, LostRange(first, last, reason, item.ts))
        case ConsumerCommit() as commit:
            topic.consumers.fold(commit, item.ts)
        case DeadLettered() as lettered:
            fold.begin_moves(topic, lettered, item.ts, kind_of(topic).begin_moves)
        case Moved() as moved:
            return fold.end_moves(topic, moved)
        case CheckpointMark() as mark:
            fold.checkpoint(topic, mark, item.ts)
        case Schedule() as schedule:
            _schedule(catalog, topic, schedule, item.ts)
        case RouterCreate() | RouterDelete() as change:
            _router(catalog, topic, change)
        case TopicDelete():
            catalog.remove(topic)
        case _:
            raise AssertionError(f"no rule for {item.payload!r}")
    return 0


def _create(catalog: Catalog, topic_id: int, created: TopicCreate) -> None:
    config = stored_config(created.config)
    topic = Topic(topic_id, created.name, created.epoch, config)
    topic.ceiling = created.ceiling
    catalog.add(topic)
    catalog.epochs[created.name] = created.epoch
    catalog.next_topic_id = max(catalog.next_topic_id, topic_id + 1)


def _router(catalog: Catalog, topic: Topic, change: RouterCreate | RouterDelete) -> None:
    """A router from this topic is put or ends."""
    if isinstance(change, RouterCreate):
        catalog.route(change)
        catalog.next_topic_id = max(catalog.next_topic_id, change.id + 1)
    elif (ended := catalog.routers.identified(topic.topic_id, change.id)) is not None:
        catalog.unroute(ended)


def _schedule(catalog: Catalog, topic: Topic, schedule: Schedule, ts: int) -> None:
    """A schedule of this topic is put or ends. Its name is taken from another that has it: there is none in a log of
    which nothing is missing.
    """
    before = topic.schedules.get(schedule.id)
    if before is not None:
        catalog.schedules.pop(before.definition.name, None)
    topic.schedules.put(schedule, ts)
    if schedule.name:
        holder_id, held = catalog.schedules.get(schedule.name, (0, 0))
        if (holder := catalog.topics.get(holder_id)) is not None:
            holder.schedules.pop(held, None)
        catalog.schedules[schedule.name] = (topic.topic_id, schedule.id)
    catalog.next_topic_id = max(catalog.next_topic_id, schedule.id + 1)
