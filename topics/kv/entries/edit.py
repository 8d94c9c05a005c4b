"""A local operation as the smallest entry that says it (replication 1.3, 3.3, 3.4).

An operation never changes an entry: it makes a small one, and the new state is the join of both. So every mutator
inflates, the journal and the peers get what changed and nothing else, and what holds for the join holds for them.

Deletes are of what has been seen. `erase` removes each element this replica knows, field by field and member by member;
a counter's columns cannot go down, so `reset:<r>` columns take back what was seen of each. What a concurrent writer
adds unseen survives in its lane.

One edit has one stamp, above every stamp in the entry: what an edit says wins over all it has seen. A write of a
structure says with it when the structure expires, never included: an expiry that somebody said earlier, and of which
nothing may be left here, has no power over it.
"""

from __future__ import annotations

import attrs

from topics.codec.cell import INT_MAX, Cell
from topics.kernel.errors import invalid
from topics.kv.entries.entry import (
    LANE_OF,
    LANE_TAGS,
    NO_EVENT,
    NO_EXPIRY,
    Column,
    Element,
    Expiry,
    Field,
    KvEntry,
    Member,
    Origin,
    Ranked,
    Tag,
    TypeLane,
    WriteEvent,
    newest_in,
    visible,
)
from topics.kv.entries.merge import join
from topics.kv.entries.tree import Leaf, Tree, find, leaves, put
from topics.kv.entries.wire import EXPIRED, RESET, encode_event, name_digest
from topics.lattice.values.stamps import next_stamp


class Edit:
    """One operation of `replica` on an entry, at `stamp`; `finish` gives the entry to join."""

    __slots__ = (
        "_elements",
        "_entry",
        "_expiry",
        "_live",
        "_lww",
        "_origins",
        "_replica",
        "_utimes",
        "stamp",
    )

    def __init__(self, entry: KvEntry, replica: str, now_ms: int, *, live: bool) -> None:
        """`live`: there is something to read; else this begins another life of the key."""
        self.stamp = next_stamp(now_ms, entry.newest)
        assert replica
        self._entry = entry
        self._live = live
        self._replica = replica
        self._lww = NO_EVENT
        self._expiry = NO_EXPIRY
        self._utimes = [0] * len(LANE_TAGS)
        self._elements: list[Tree[Element]] = [None] * len(LANE_TAGS)
        self._origins: Tree[Origin] = None

    def write(
        self, tag: Tag | None, value: Cell, expire: int | None, *, over: WriteEvent | None = None
    ) -> None:
        """A value, list or delete. It has seen every event there is, or only `over`, the one it is made from."""
        event = WriteEvent(self.stamp, tag, value, expire)
        assert self._lww is NO_EVENT, "an edit writes one event"
        assert tag not in LANE_OF
        self.see(over)
        self._lww = event
        own = Origin(self._replica, self.stamp, event)
        self._origins = put(self._origins, Leaf(name_digest(self._replica), own))

    def delete_expired(self, now_ms: int) -> None:
        """A delete that nobody wrote, made now of what has expired; its stamp is that of the expiry."""
        self.see()
        self._lww = WriteEvent(self.stamp, None, None, None)
        mark = Origin(EXPIRED, self.stamp, None, max(self.stamp, now_ms))
        self._origins = put(self._origins, Leaf(name_digest(EXPIRED), mark))

    def see(self, over: WriteEvent | None = None) -> None:
        """Mark the events of all replicas as seen by a later write; only `over` if it is given."""
        wanted = None if over is None else encode_event(over)
        for leaf in leaves(self._entry.origins):
            origin = leaf.item
            if origin.event is not None and wanted in (None, encode_event(origin.event)):
                seen = Origin(origin.replica, origin.stamp, None, self.stamp)
                self._origins = put(self._origins, Leaf(leaf.digest, seen))

    def erase(self) -> None:
        """Remove every element this replica has seen, in every lane."""
        for i, lane in enumerate(self._entry.lanes):
            self._utimes[i] = lane.utime
            for leaf in leaves(lane.tree):
                self._erase(i, leaf, lane.tree)

    def begin(self, *, expired: bool) -> None:
        """A structure is about to be written. On an expired key it starts empty.

        What survived a delete unseen (a concurrent add) is still there for it, until that has expired.
        """
        assert not (self._live and expired)
        if expired:
            self.erase()
        if not self._live:
            self.see()

    def put(self, tag: Tag, digest: bytes, element: Element) -> None:
        """One element of a structure, which this write makes the visible one; it keeps the expiry of its life."""
        i = LANE_OF[tag]
        self._utimes[i] = self.stamp
        self._expiry = Expiry(self.stamp, self._entry.expiry.expire if self._live else None)
        assert newest_in(element) in (0, self.stamp)
        self._elements[i] = put(self._elements[i], Leaf(digest, element))

    def expire(self, at: int | None) -> None:
        """When the structures expire."""
        assert self._expiry is NO_EXPIRY
        assert at is None or at >= 0
        self._expiry = Expiry(self.stamp, at)

    def finish(self) -> KvEntry:
        """The entry to join."""
        lanes = tuple(map(TypeLane, self._utimes, self._elements))
        assert self.stamp > self._entry.newest
        assert all(utime <= self.stamp for utime in self._utimes)
        absent = 0 if self._live else self.stamp
        return KvEntry(self._lww, lanes, self._expiry, self._origins, self.stamp, absent)

    def _erase(self, i: int, leaf: Leaf[Element], tree: Tree[Element]) -> None:
        element = leaf.item
        gone: Element | None = None
        if isinstance(element, Field) and element.value is not None:
            gone = Field(element.name, None, self.stamp)
        elif isinstance(element, Member) and element.add > element.rem:
            gone = Member(element.value, element.add, self.stamp)
        elif isinstance(element, Ranked) and element.add > element.rem:
            gone = Ranked(element.value, element.score, element.add, self.stamp)
        if gone is not None:
            self._elements[i] = put(self._elements[i], Leaf(leaf.digest, gone))
        elif isinstance(element, Column):
            self._reset(i, leaf, column=element, tree=tree)

    def _reset(self, i: int, leaf: Leaf[Element], *, column: Column, tree: Tree[Element]) -> None:
        if column.replica.startswith(RESET):
            return
        name = RESET + column.replica
        present = find(tree, name_digest(name))
        reset = Column(name, column.neg, column.pos)
        if present != reset:  # both columns travel together: a reset without its column is no entry
            self._elements[i] = put(self._elements[i], leaf)
            made: Leaf[Element] = Leaf(name_digest(name), reset)
            self._elements[i] = put(self._elements[i], made)


def delete_expired(entry: KvEntry, expired_at: int, now_ms: int) -> KvEntry:
    """The entry with everything in it deleted as of its expiry; that it was done now is in its mark."""
    edit = Edit(entry, EXPIRED, expired_at, live=True)
    edit.erase()
    edit.delete_expired(now_ms)
    deleted = join(entry, attrs.evolve(edit.finish(), newest=max(edit.stamp, now_ms)))
    assert visible(deleted).tag is None
    return deleted


def add_to_counter(present: Column, amount: int) -> Column:
    """The column after counting `amount`; refused beyond 64 bits, where a peer could not read it."""
    pos = present.pos + max(amount, 0)
    neg = present.neg + max(-amount, 0)
    if max(pos, neg) > INT_MAX:
        raise invalid(
            "amount", f"the counter of this replica would pass {INT_MAX}; delete the key everywhere"
        )
    assert pos - neg == present.pos - present.neg + amount
    return Column(present.replica, pos, neg)
