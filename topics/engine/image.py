"""The whole state as a value, with one place in the WAL a shard: what a snapshot holds (storage 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Annotated

import msgspec

from topics.codec.log.routers import RouterCreate, decode_router, encode_router
from topics.codec.log.schedules import decode_schedule
from topics.codec.log.walheader import HEADER_SIZE
from topics.engine.apply import Catalog
from topics.engine.recovery.contradictions import contradictions
from topics.kernel.errors import Corrupt, Rejected
from topics.kernel.whole_numbers import Count, Generation, ShardNumber
from topics.log.image import TopicImage, topic_of
from topics.log.regions import SegmentId
from topics.log.routers import Router
from topics.log.slots import Slots

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]  # it goes on from there


class StateImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The catalog at a cut. `ts`: when it was taken."""

    ts: Count
    high_ts: Count
    next_topic_id: _Number
    epochs: list[tuple[str, Count]]
    topics: list[TopicImage]
    # What a ROUTER_CREATE frame last said of each that stands.
    routers: list[bytes] = []

    def segment_ids(self) -> frozenset[SegmentId]:
        """Every segment that it counts: their files are needed as long as it is."""
        return frozenset(
            SegmentId(topic.topic_id, segment.first) for topic in self.topics for segment in topic.segments
        )


class LogPlace(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a shard's log goes on behind a state: at `offset` of the WAL file whose first frame is number `file`, with
    frame number `next_frame`. All before it is in the state. `file` 0: a shard of an earlier generation, of which
    nothing is behind.

    `needed`: a file whose first frame has a lower number holds no record that is not in a segment.
    """

    generation: Generation
    shard: ShardNumber
    file: _Number
    offset: _Number
    next_frame: _Number
    needed: Count


class Snapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a snapshot file holds."""

    state: StateImage
    places: list[LogPlace]


def encode(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode(body: bytes) -> Snapshot:
    """The snapshot of a body whose checksum was verified.

    Raises:
        Corrupt: it is none of this version, or says what cannot be.
    """
    try:
        snapshot = msgspec.msgpack.decode(body, type=Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"snapshot: {error}", field="body") from None
    for topic in snapshot.state.topics:
        if (what := next(contradictions(topic), None)) is not None:
            raise Corrupt(
                f"snapshot: topic {topic.name!r:.100}: {what}: no store says so",
                field="body",
                topic=topic.name,
            )
    if (what := next(_contradictions(snapshot), None)) is not None:
        raise Corrupt(f"snapshot: {what}: no store says so", field="body")
    return snapshot


def _contradictions(snapshot: Snapshot) -> Iterator[str]:
    """What cannot be of all topics and logs together."""
    state = snapshot.state
    known = dict(state.epochs)
    schedules = [decode_schedule(told) for topic in state.topics for told, _, _ in topic.schedules]
    try:
        routers = [decode_router(told) for told in state.routers]
    except Corrupt as malformed:
        yield f"routers: {malformed.message}"
        return
    for kind, keys in (
        ("the id of a topic", [topic.topic_id for topic in state.topics]),
        ("the name of a topic", [topic.name for topic in state.topics]),
        ("a name in epochs", [name for name, _ in state.epochs]),
        ("the id of a schedule", [one.id for one in schedules]),
        ("the name of a schedule", [one.name for one in schedules]),
        ("the id of a router", [one.id for one in routers]),
        ("the name of a router", [one.name for one in routers]),
        ("a place in the log of a shard", [(place.generation, place.shard) for place in snapshot.places]),
    ):
        if len(set(keys)) != len(keys):
            yield f"{kind} is there twice"
    for topic in state.topics:
        if topic.topic_id >= state.next_topic_id or topic.epoch > known.get(topic.name, 0):
            yield f"topic {topic.name!r:.100} has id {topic.topic_id} and epoch {topic.epoch}, which are not given yet"
    for kind, ids in (("schedule", [one.id for one in schedules]), ("router", [one.id for one in routers])):
        if (highest := max(ids, default=0)) >= state.next_topic_id:
            yield f"a {kind} has id {highest}, which is not given yet"
    yield from _routers(routers, state.topics)
    for place in snapshot.places:
        if place.next_frame < place.file or (place.file and place.offset < HEADER_SIZE):
            yield f"a log goes on at offset {place.offset} of wal file {place.file} with frame {place.next_frame}"


def _routers(routers: Sequence[RouterCreate], topics: Sequence[TopicImage]) -> Iterator[str]:
    """Each joins two topics that are there, dest has one source, and knows of every router into it and no other."""
    inbound = {topic.topic_id: {one[0] for one in topic.inbound} for topic in topics}
    entering: dict[int, set[int]] = {}
    sources: dict[int, int] = {}
    for one in routers:
        if one.source_id not in inbound or one.dest_id not in inbound:
            yield f"router {one.name!r:.100} joins topics {one.source_id} and {one.dest_id}, which are not both there"
        if sources.setdefault(one.dest_id, one.source_id) != one.source_id:
            yield f"topic {one.dest_id} has routers from two topics"
        entering.setdefault(one.dest_id, set()).add(one.id)
    for topic_id, ids in inbound.items():
        if ids != entering.get(topic_id, set()):
            yield f"topic {topic_id} has an inbound of other routers than those that end in it"


def image_of(routers: Iterable[Router]) -> list[bytes]:
    """Routers as an image has them, ascending by id."""
    return [encode_router(router) for router in sorted(routers, key=attrgetter("id"))]


def catalog_of(image: StateImage, stored: Iterable[Iterable[Slots]]) -> Catalog:
    """The catalog of an image. `stored`: for each of its topics the slots of its segments.

    Raises:
        Corrupt: an image and its slots do not fit together.
    """
    catalog = Catalog()
    catalog.high_ts = image.high_ts
    catalog.next_topic_id = image.next_topic_id
    catalog.epochs = dict(image.epochs)
    for topic_image, slots in zip(image.topics, stored, strict=True):
        try:
            topic = topic_of(topic_image, slots)
        except (Rejected, ValueError) as impossible:
            raise Corrupt(f"topic {topic_image.name!r}: {impossible}", topic=topic_image.name) from None
        catalog.topics[topic.topic_id] = topic
        catalog.topic_ids[topic.name] = topic.topic_id
        for schedule_id, standing in topic.schedules.items():
            catalog.schedules[standing.definition.name] = (topic.topic_id, schedule_id)
    for told in image.routers:
        catalog.routers.put(decode_router(told))
    return catalog
