"""The whole state as a value, with one place in the WAL a shard: what a snapshot holds (storage 5)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from topics.engine.apply import Catalog
from topics.kernel.errors import Corrupt, Rejected
from topics.log.image import TopicImage, topic_of
from topics.log.regions import SegmentId
from topics.log.slots import Slots


class StateImage(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The catalog at a cut. `ts`: when it was taken."""

    ts: int
    high_ts: int
    next_topic_id: int
    epochs: list[tuple[str, int]]
    topics: list[TopicImage]

    def segment_ids(self) -> frozenset[SegmentId]:
        """Every segment that it counts: their files are needed as long as it is."""
        return frozenset(
            SegmentId(topic.topic_id, segment.first) for topic in self.topics for segment in topic.segments
        )


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a shard's log goes on behind a state: at `offset` of the WAL file whose first frame is number `file`, with
    frame number `next_frame`. All before it is in the state. `file` 0: a shard of an earlier generation, of which
    nothing is behind.

    `needed`: a file whose first frame has a lower number holds no record that is not in a segment.
    """

    generation: int
    shard: int
    file: int
    offset: int
    next_frame: int
    needed: int


class Snapshot(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a snapshot file holds."""

    state: StateImage
    places: list[Place]


def encode(snapshot: Snapshot) -> bytes:
    return msgspec.msgpack.encode(snapshot)


def decode(body: bytes) -> Snapshot:
    """The snapshot of a body whose checksum was verified.

    Raises:
        Corrupt: it is none of this version.
    """
    try:
        return msgspec.msgpack.decode(body, type=Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Corrupt(f"snapshot: {error}", field="body") from None


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
    return catalog
