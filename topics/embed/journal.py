"""`TopicJournal`: the Journal port bound to an internal topic of the store (architecture 7).

An item is a record. An append is one write, all or nothing, in class `fsync`: durable when the call returns. What has
been written again, as a snapshot, is cut off by a delete, which is voluntary and therefore silent: the topic's floor
does not move, and a reader that starts at the beginning starts at the snapshot. Any other gap means that items are
missing, and a journal with a hole is not read past it.

Where items hang on the ones before them, as in a chain of hashes, two objects that both append would ruin the journal
for good. A `sole` journal refuses a write on top of one that it neither read nor wrote.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from topics.calls.intake import BYTES_CONTENT_TYPE
from topics.calls.topics import StateCall, config_of
from topics.embed.store import Store
from topics.engine.commands import Append, DeleteRecords, PutTopic
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability, TopicConfig
from topics.kernel.errors import Code, Corrupt, Rejected
from topics.kernel.ids import INTERNAL, check_any_topic_name
from topics.log.reads.diff import DiffQuery

READ_ITEMS: Final = 1000
READ_BYTES: Final = 8 << 20


class TopicJournal:
    """`kernel.ports.Journal` over the topic `$name` of a store, made if it is not there. A `sole` one is read to its
    end before it is appended to.
    """

    __slots__ = ("_config", "_head_seq", "_sole", "_store", "topic")

    def __init__(self, store: Store, name: str, *, sole: bool = False) -> None:
        self._sole = sole
        self._head_seq = 0  # of the last item that this object knows of
        self.topic = check_any_topic_name(INTERNAL + name)
        self._store = store
        self._config = TopicConfig(
            durability=Durability.FSYNC, dedupe_node=False, max_record_bytes=store.limits.body_bytes
        )
        if store.do(config_of(self.topic)) is None and not store.read_only:
            store.call(PutTopic(topic=self.topic, config=self._config))

    @property
    def position(self) -> int:
        """Of the last item, counted from 1 since the journal was made; 0 if nothing was ever written."""
        if self._store.do(config_of(self.topic)) is None:
            return 0
        return self._store.do(StateCall(self.topic)).head_seq

    def append(self, items: Sequence[bytes]) -> None:
        """Add the items in one durable write.

        Raises:
            Rejected: above the limits of a write, no space, closed, or not the sole writer; nothing was written.
            Fatal: the write failed; whether the items are there is known after the next opening.
        """
        if not items:
            return
        records = RecordColumns(list(items), content_type=[BYTES_CONTENT_TYPE] * len(items))
        expected = self._head_seq if self._sole else None
        try:
            self._store.append(
                Append(topic=self.topic, records=records, config=self._config, expected_head=expected)
            )
        except Rejected as error:
            if error.code is not Code.SEQ_MISMATCH:
                raise
            text = f"{self.topic!r} was written by another object since this one read it; use one, and open it again"
            raise Rejected(error.code, text, topic=self.topic) from None
        self._head_seq += len(items)

    def read(self) -> Iterator[bytes]:
        """Every item that was not cut off, in the order of appending.

        Raises:
            Corrupt: an item is damaged, or items are missing.
        """
        if self._store.do(config_of(self.topic)) is None:
            return
        from_seq, head_seq = 0, self.position
        while from_seq < head_seq:
            query = DiffQuery(topic=self.topic, from_seq=from_seq, limit=READ_ITEMS, bytes_max=READ_BYTES)
            page = self._store.read(query, account=False)
            if page.tombstone is not None:
                gap = page.tombstone
                raise Corrupt(
                    f"topic {self.topic!r}: items {gap.gap_from} to {gap.gap_to} of the journal are lost "
                    f"({gap.reason}); restore the directory from a backup",
                    topic=self.topic,
                    seq=gap.gap_from,
                )
            for record in page.records:
                yield record.raw
            from_seq = page.next_from_seq
        self._head_seq = head_seq

    def cut(self, position: int) -> None:
        """Forget the items up to this position, which a snapshot behind it has made needless."""
        self._store.call(DeleteRecords(topic=self.topic, before_seq=position + 1))

    def replace(self, items: Sequence[bytes]) -> None:
        """Append a snapshot in one write, then forget everything before it. A crash in between leaves both."""
        position = self.position
        self.append(items)
        self.cut(position)
