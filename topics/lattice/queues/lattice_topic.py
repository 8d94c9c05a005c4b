"""A replicated topic: queues side by side, and the key that says into which a record goes (replication 2.6).

A topic is there once it is written, a partition too. The number of partitions is a piece of the topic's metadata, so it
travels with it. A record with a key goes where the key's hash says; one without goes to the partition that the caller
names. Order is kept within a partition, so also for each key as long as the number of partitions stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from topics.codec.cell import Cell
from topics.kernel.errors import WrongState, invalid
from topics.kernel.ports import Clock
from topics.lattice.queues.divergence import Divergence
from topics.lattice.queues.editor import Editor, Place
from topics.lattice.queues.handle import Handle
from topics.lattice.queues.lattice_queue import LatticeQueue
from topics.lattice.queues.queue_state import QUEUES
from topics.lattice.queues.record import is_whole
from topics.lattice.queues.routing import PARTITIONS_MAX, Rerouted, is_partition_id, partition_of
from topics.lattice.queues.topic_map import (
    META,
    NUM_PARTITIONS,
    PARTITIONS,
    TOPIC,
    Topic,
    check_name,
    ids_of,
    metadata_of,
    newest_stamp_of,
    partition_count,
    queues_of,
    refuse_stale_topic,
    topic_divergences,
)
from topics.lattice.values.algebra import MapLattice
from topics.lattice.values.cursor import Cursor, EntryStep, Mutex, Root
from topics.lattice.values.stamps import next_stamp


class LatticeTopic(Handle[Topic]):
    """One topic. `offer` routes by key; `partition` gives the queue of an id."""

    def __init__(
        self,
        name: str,
        cursor: Cursor[Topic] | None = None,
        *,
        clock: Clock | None = None,
        editor: Editor | None = None,
        place: Place = (),
    ) -> None:
        """`place`: of the map that the topic is in."""
        assert clock is None or editor is None, "the editor has a clock"
        super().__init__(
            Root(TOPIC) if cursor is None else cursor,
            TOPIC,
            editor=Editor(clock) if editor is None else editor,
            place=(*place, check_name(name)),
        )
        self.name: Final = name
        self._queues: Final = self._cursor.at(EntryStep(PARTITIONS, _BY_ID))

    # --- partitions

    def num_partitions(self) -> int:
        """How many partitions keys are routed to; 0 if that was never said."""
        count = partition_count(self.state)
        assert 0 <= count <= PARTITIONS_MAX
        return count

    def set_num_partitions(self, count: int) -> Rerouted | None:
        """Say how many partitions keys are routed to. Returns a warning if keys go elsewhere than before."""
        if not is_whole(count) or not 0 < count <= PARTITIONS_MAX:
            raise invalid("count", f"must be a whole number from 1 to {PARTITIONS_MAX}, not {count!r:.40}")
        before = self.num_partitions()
        if before != count:
            self.set_meta(NUM_PARTITIONS, count)
        return Rerouted(before, count) if before not in (0, count) else None

    def partition(self, index: int) -> LatticeQueue:
        """The queue of a partition; it is in the topic once it is written."""
        if not is_partition_id(index):
            raise invalid(
                "partition", f"must be a whole number from 0 to {PARTITIONS_MAX - 1}, not {index!r:.40}"
            )
        cursor = self._queues.at(EntryStep(index, QUEUES))
        return LatticeQueue(
            cursor, editor=self.editor, topic=self.name, partition=index, place=(*self._place, index)
        )

    def partitions(self) -> list[int]:
        """The ids of the partitions that are there, ascending."""
        return ids_of(queues_of(self.state))

    def size(self) -> int:
        """How many records are present in all partitions."""
        return sum(len(queue.entries) for queue in queues_of(self.state).values())

    # --- producer

    def partition_of(self, key: Cell) -> int:
        """Where the records of a key go."""
        count = self.num_partitions()
        if count == 0:
            raise WrongState(
                f"topic {self.name}: num-partitions is not set, so keys have nowhere to go; set_num_partitions first",
                topic=self.name,
            )
        return partition_of(key, count)

    def offer(self, key: Cell, value: Cell, headers: Mapping[Cell, Cell] | None = None) -> tuple[int, int]:
        """Append a record to the partition of its key. Returns that partition and the offset there."""
        index = self.partition_of(key)
        assert is_partition_id(index)
        return index, self.partition(index).offer(key, value, headers)

    # --- metadata

    def get_meta(self, key: Cell) -> Cell:
        return metadata_of(self.state).get(key)

    def set_meta(self, key: Cell, value: Cell) -> None:
        """Set a key of metadata, later than all that was seen; None takes the value back."""
        now_ms = self.editor.now_ms()

        def put(topic: Topic) -> Topic:
            metadata = metadata_of(topic)
            stamp = next_stamp(now_ms, metadata.newest_stamp)
            after = metadata.put(key, value, stamp)
            assert metadata.join(after) == after
            return {**topic, META: after}

        self._cursor.update(put)

    # --- copies

    def fork(self, guard: Mutex | None = None) -> LatticeTopic:
        """A copy of the topic with all its partitions."""
        return LatticeTopic(self.name, self._cursor.fork(guard), editor=self.editor, place=self._place[:-1])

    def newest_stamp(self, value: Topic) -> int:
        return newest_stamp_of(value)

    def divergences_between(self, own: Topic, other: Topic) -> Iterable[Divergence]:
        return topic_divergences(own, other, topic=self.name)

    def refuse_stale_fork(self, *, forked: Topic, local: Topic, parent: Topic) -> None:
        refuse_stale_topic(forked=forked, local=local, parent=parent)


_BY_ID: Final = MapLattice(QUEUES)
