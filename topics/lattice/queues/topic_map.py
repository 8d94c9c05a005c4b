"""Topics and the map of them, as lattices (replication 2.6).

A topic is a map with `partitions` (id to queue) and `meta`; a map of topics is keyed by their names. Both are plain
mappings of immutable values, joined key by key, so a cursor goes down to a queue by its path and a fork of any level is
a fork of all below. Nothing is there until it is written.

A key that this version does not know comes from a later one. The sources keep the own side's, which does not converge;
here it is kept as the larger canonical value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, TypeGuard

from topics.codec.cell import Cell, CellMap, encode_cell, is_cell
from topics.kernel.checks import text_bytes
from topics.kernel.errors import Corrupt, Rejected
from topics.lattice.queues.divergence import Divergence, find_divergence
from topics.lattice.queues.fence import refuse_stale
from topics.lattice.queues.metadata import EMPTY, Metadata
from topics.lattice.queues.queue_state import (
    QUEUE_DEPTH_MAX,
    QUEUES,
    ZERO,
    LatticeQueueState,
    is_queue,
    queue_from_cell,
)
from topics.lattice.queues.routing import PARTITIONS_MAX, is_partition_id
from topics.lattice.values.algebra import Lattice, MapKey, MapLattice

PARTITIONS: Final = "partitions"
META: Final = "meta"
META_STAMPS: Final = "meta-stamps"  # on the wire only: in memory the stamps are in the metadata
NUM_PARTITIONS: Final = "num-partitions"
TOPIC_NAME_BYTES_MAX: Final = 256
TOPIC_DEPTH_MAX: Final = QUEUE_DEPTH_MAX + 2  # a queue among the partitions of a topic

Queues: TypeAlias = Mapping[MapKey, LatticeQueueState]  # by partition id
Topic: TypeAlias = Mapping[MapKey, Any]  # PARTITIONS: Queues; META: Metadata; any other name: a cell
Topics: TypeAlias = Mapping[MapKey, Topic]  # by name

NO_TOPIC: Final[Topic] = {}
NO_TOPICS: Final[Topics] = {}


def check_name(name: str) -> str:
    """The name of a topic: text, not empty, bounded."""
    text_bytes("topic", name, bytes_max=TOPIC_NAME_BYTES_MAX)
    return name


def is_name(value: object) -> TypeGuard[str]:
    """Whether a topic may be called that."""
    try:
        text_bytes("topic", value, bytes_max=TOPIC_NAME_BYTES_MAX)
    except Rejected:
        return False
    return True


# --- reading


def queues_of(topic: Topic) -> Queues:
    queues: Queues = topic.get(PARTITIONS, {})
    assert isinstance(queues, Mapping)
    return queues


def ids_of(queues: Queues) -> list[int]:
    """The partition ids, ascending."""
    return sorted(index for index in queues if isinstance(index, int))


def names_of(topics: Topics) -> list[str]:
    """The names of topics, sorted."""
    return sorted(name for name in topics if isinstance(name, str))


def metadata_of(topic: Topic) -> Metadata:
    metadata = topic.get(META, EMPTY)
    assert isinstance(metadata, Metadata)
    return metadata


def partition_count(topic: Topic) -> int:
    """`num-partitions`, 0 if unset. What is no possible number there counts as unset: it may come from anybody."""
    count = metadata_of(topic).get(NUM_PARTITIONS)
    if isinstance(count, bool) or not isinstance(count, int):
        return 0
    return count if 0 < count <= PARTITIONS_MAX else 0


def newest_stamp_in(topics: Topics) -> int:
    """The latest time in any of them."""
    newest = max((newest_stamp_of(topic) for topic in topics.values()), default=0)
    assert newest >= 0
    return newest


def newest_stamp_of(topic: Topic) -> int:
    """The latest time in a topic."""
    stamps = [queue.newest_stamp for queue in queues_of(topic).values()]
    newest: int = max(metadata_of(topic).newest_stamp, *stamps, 0)
    assert newest >= 0
    return newest


def refuse_stale_topics(*, forked: Topics, local: Topics, parent: Topics) -> None:
    """Raises `NotLeader` if a fork appended to a partition that somebody else leads by now."""
    for name, topic in local.items():
        if topic is not forked.get(name):
            refuse_stale_topic(
                forked=forked.get(name, NO_TOPIC), local=topic, parent=parent.get(name, NO_TOPIC)
            )


def refuse_stale_topic(*, forked: Topic, local: Topic, parent: Topic) -> None:
    before, there = queues_of(forked), queues_of(parent)
    for index, queue in queues_of(local).items():
        appended = queue.has_appended_to(before.get(index, ZERO))
        refuse_stale(appended=appended, held=queue.lease, parent=there.get(index, ZERO).lease)


def divergences(own: Topics, other: Topics) -> Iterator[Divergence]:
    """What a merge of the two has to tell, partition by partition."""
    for name in names_of(own):
        if name in other:
            yield from topic_divergences(own[name], other[name], topic=name)


def topic_divergences(own: Topic, other: Topic, *, topic: str) -> Iterator[Divergence]:
    mine, theirs = queues_of(own), queues_of(other)
    for partition in ids_of(mine):
        if partition not in theirs or mine[partition] is theirs[partition]:
            continue
        found = find_divergence(mine[partition], theirs[partition], topic=topic, partition=partition)
        if found is not None:
            assert found.topic == topic
            yield found


# --- the lattices


class MetadataLattice:
    """Metadata of a topic."""

    def zero(self) -> Metadata:
        return EMPTY

    def join(self, own: Metadata, other: Metadata) -> Metadata:
        return own.join(other)

    def merge_cad(self, own: Metadata, other: Metadata) -> Metadata:
        return own.merge_cad(other)

    def check_foreign(self, value: object) -> bool:
        return isinstance(value, Metadata)


class UnknownLattice:
    """What a later version put there: the larger canonical bytes stay, since nobody here knows better."""

    def zero(self) -> Cell:
        return None

    def join(self, own: Cell, other: Cell) -> Cell:
        joined = other if encode_cell(other) > encode_cell(own) else own
        assert joined is own or joined is other
        return joined

    def merge_cad(self, own: Cell, other: Cell) -> Cell:  # noqa: ARG002  # own wins, whatever the other is
        return own

    def check_foreign(self, value: object) -> bool:
        return is_cell(value)


class TopicLattice:
    """One topic: each key by its own rule. From outside come its cells."""

    def child(self, key: MapKey) -> Lattice[Any]:
        """The lattice of what stands under the key."""
        return _CHILDREN.get(key, _UNKNOWN)

    def zero(self) -> Topic:
        return NO_TOPIC

    def join(self, own: Topic, other: Topic) -> Topic:
        return self._union(own, other, lambda key: self.child(key).join)

    def merge_cad(self, own: Topic, other: Topic) -> Topic:
        return self._union(own, other, lambda key: self.child(key).merge_cad)

    def check_foreign(self, value: object) -> bool:
        return is_topic_here(value) or is_topic(value)

    def sift(self, own: Topic, foreign: object) -> Topic:  # noqa: ARG002  # a topic is good or not, whatever is here
        """The foreign topic without the queues and keys that are none."""
        if is_topic_here(foreign):
            return foreign
        return topic_from_cell(foreign) if is_topic(foreign) else NO_TOPIC

    def _union(self, own: Topic, other: Topic, merge: Callable[[MapKey], Callable[[Any, Any], Any]]) -> Topic:
        if own is other:
            return own
        changed = {}
        for key, theirs in other.items():
            mine = own.get(key)
            value = theirs if key not in own else merge(key)(mine, theirs)
            if key not in own or value is not mine:
                changed[key] = value
        joined = {**own, **changed} if changed else own
        assert joined.keys() == own.keys() | other.keys()
        return joined


class TopicsLattice(MapLattice[Topic]):
    """The map of topics, the value of an owner's slot under `queue`. From outside come its cells."""

    def __init__(self) -> None:
        super().__init__(TOPIC)

    def check_foreign(self, value: object) -> bool:
        return _are_topics_here(value) or is_topics(value)

    def sift(self, own: Topics, foreign: object) -> Topics:  # noqa: ARG002  # a topic is good or not, whatever is here
        """What of the foreign map is topics; queues and keys that are none are left out."""
        if _are_topics_here(foreign):
            return foreign
        return topics_from_cell(foreign) if is_topics(foreign) else NO_TOPICS


_QUEUES_BY_ID: Final = MapLattice(QUEUES)
_METADATA: Final = MetadataLattice()
_UNKNOWN: Final = UnknownLattice()
_CHILDREN: Final[Mapping[MapKey, Lattice[Any]]] = {PARTITIONS: _QUEUES_BY_ID, META: _METADATA}
TOPIC: Final = TopicLattice()
TOPICS: Final = TopicsLattice()


# --- as cells


def is_topics(value: object) -> TypeGuard[Mapping[Cell, Cell]]:
    """Whether something from outside may be adopted as a map of topics. Never raises."""
    return _is_cell_map(value, depth_max=TOPIC_DEPTH_MAX + 1) and all(
        isinstance(name, str) and isinstance(topic, Mapping) for name, topic in value.items()
    )


def is_topic(value: object) -> TypeGuard[Mapping[Cell, Cell]]:
    """Whether something from outside may be adopted as a topic. Never raises."""
    return _is_cell_map(value, depth_max=TOPIC_DEPTH_MAX) and all(isinstance(key, str) for key in value)


def is_topic_here(value: object) -> TypeGuard[Topic]:
    """Whether it is a topic as this process holds one, not the cells of one."""
    if not isinstance(value, Mapping):
        return False
    queues, metadata = value.get(PARTITIONS, {}), value.get(META, EMPTY)
    return (
        isinstance(metadata, Metadata)
        and META_STAMPS not in value
        and isinstance(queues, Mapping)
        and all(
            is_partition_id(index) and isinstance(queue, LatticeQueueState) for index, queue in queues.items()
        )
        and all(isinstance(key, str) for key in value)
        and all(is_cell(part) for key, part in value.items() if key not in (PARTITIONS, META))
    )


def _are_topics_here(value: object) -> TypeGuard[Topics]:
    return isinstance(value, Mapping) and all(
        is_name(name) and is_topic_here(topic) for name, topic in value.items()
    )


def _is_cell_map(value: object, *, depth_max: int) -> TypeGuard[Mapping[Cell, Cell]]:
    if not isinstance(value, Mapping):
        return False
    try:
        encode_cell(value, depth_max=depth_max)
    except Rejected:
        return False
    return True


def topics_to_cell(topics: Topics) -> CellMap:
    cells = CellMap([(name, topic_to_cell(topic)) for name, topic in topics.items()])
    assert len(cells) == len(topics)
    return cells


def topic_to_cell(topic: Topic) -> CellMap:
    """The map on the wire: `partitions`, `meta`, the stamps of `meta` if there are any, and what is not known here."""
    assert META_STAMPS not in topic, "stamps are in the metadata"
    cells: dict[Cell, Cell] = {
        key: value for key, value in topic.items() if key not in (PARTITIONS, META, META_STAMPS)
    }
    queues, metadata = queues_of(topic), metadata_of(topic)
    if queues:
        cells[PARTITIONS] = CellMap([(index, queue.to_cell()) for index, queue in queues.items()])
    if len(metadata):
        cells[META] = metadata.values()
    if stamps := metadata.stamps():
        cells[META_STAMPS] = stamps
    return CellMap(cells)


def topics_from_cell(cell: Mapping[Cell, Cell]) -> Topics:
    """The topics a peer sent. One that nobody could ask for by its name is not there."""
    topics: dict[MapKey, Topic] = {
        name: topic_from_cell(topic)
        for name, topic in cell.items()
        if is_name(name) and isinstance(topic, Mapping)
    }
    assert len(topics) <= len(cell)
    return topics


def topic_from_cell(cell: Mapping[Cell, Cell]) -> Topic:
    """The topic a peer sent. A partition that is no queue, or whose id is none, is not there; nor is what is not known
    here and deeper than a value may be.
    """
    topic: dict[MapKey, Any] = {
        key: value
        for key, value in cell.items()
        if isinstance(key, str) and key not in (PARTITIONS, META, META_STAMPS) and is_cell(value)
    }
    queues = _cells_under(cell, PARTITIONS)
    found = {
        index: queue_from_cell(queue)
        for index, queue in queues.items()
        if is_partition_id(index) and is_queue(queue)
    }
    metadata = Metadata.from_cells(_cells_under(cell, META), _cells_under(cell, META_STAMPS))
    assert len(found) <= PARTITIONS_MAX
    if found:
        topic[PARTITIONS] = found
    if len(metadata):
        topic[META] = metadata
    return topic


def _cells_under(cell: Mapping[Cell, Cell], key: str) -> Mapping[Cell, Cell]:
    part = cell.get(key)
    return part if isinstance(part, Mapping) else CellMap()


class TopicsCodec:
    """Topics as the payload of a signed slot."""

    def to_cell(self, value: Topics) -> Cell:
        return topics_to_cell(value)

    def from_cell(self, cell: Cell) -> Topics:
        if not is_topics(cell):
            raise Corrupt("the payload of a slot of topics is no map from names to topics")
        return topics_from_cell(cell)
