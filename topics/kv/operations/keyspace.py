"""The state of one database in the hands of one caller: looking, writing, batches (replication 3.3).

The operations of each kind are in modules of their own and share this: they look at a key, make an edit, and commit it.
The state lives at a cursor: its own, a fork's, or one inside a parent's value. A persisted one makes a change durable
before it is there to be read. A batch holds its edits back and hands them over as one change.

One caller at a time: a database is not locked. The clock is read once an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from topics.codec.cell import Cell, decode_cell, encode_cell
from topics.kernel.checks import text_bytes
from topics.kernel.errors import Code, Rejected, WrongState, invalid
from topics.kernel.ports import Clock
from topics.kv.bounds import KvLimits
from topics.kv.entries.edit import Edit
from topics.kv.entries.entry import LANE_OF, Element, KvEntry, Tag, View, is_alive, visible
from topics.kv.entries.merge import join
from topics.kv.entries.store import KeyedEntry, KvStore
from topics.kv.entries.tree import Tree, count, find
from topics.kv.entries.wire import TYPE_NAMES, value_size
from topics.lattice.values.cursor import Cursor


class Looked(NamedTuple):
    """A key as one operation found it. `live`: there is something to read."""

    key: str
    entry: KvEntry
    view: View
    live: bool
    now_ms: int

    @property
    def expired(self) -> bool:
        """There is nothing to read, and not for a delete alone: what was visible, or what one hides, has expired."""
        hidden_until = self.entry.expiry.expire
        return not self.live and (
            self.view.tag is not None or (hidden_until is not None and self.now_ms >= hidden_until)
        )

    def elements(self, tag: Tag) -> Tree[Element]:
        """Every element of the lane, removed and hidden ones too."""
        return self.entry.lanes[LANE_OF[tag]].tree

    def find(self, tag: Tag, digest: bytes) -> Element | None:
        """The element as it is kept, whether it is there for readers or not."""
        return find(self.elements(tag), digest)

    def has(self, tag: Tag, digest: bytes) -> bool:
        """Whether a reader of the live structure sees the element."""
        assert tag in LANE_OF
        element = self.find(tag, digest)
        return self.live and element is not None and is_alive(element)


class Keyspace:
    """One database's state; what every group of operations stands on."""

    def __init__(self, cursor: Cursor[KvStore], *, clock: Clock, replica: str, limits: KvLimits) -> None:
        assert replica
        self.limits = limits
        self._cursor = cursor
        self._clock = clock
        self._replica = replica
        self._working: KvStore | None = None
        self._batched: dict[str, KvEntry] = {}

    @property
    def replica(self) -> str:
        """The id of this replica's counter columns and origins."""
        return self._replica

    def batch(self) -> Batch:
        """`with db.batch():` hands all edits inside over at once, as one durable write; none if anything raises."""
        return Batch(self)

    # For the groups of operations.

    def _catch_up(self) -> None:
        """Take in what has waited for this node's clock; there is nothing of the kind at a bare cursor."""

    def _store(self) -> KvStore:
        return self._cursor.get() if self._working is None else self._working

    def _look(self, key: str, *tags: Tag) -> Looked:
        """The key as it is now. Raises `wrong_type` if it is live and of none of the types, when some are given."""
        text_bytes("key", key, bytes_max=self.limits.key_bytes)
        self._catch_up()
        now_ms = self._clock.now_ms()
        entry = self._store().get(key)
        view = visible(entry)
        live = view.is_live(now_ms)
        if tags and live and view.tag not in tags:
            assert view.tag is not None
            wanted = " or ".join(TYPE_NAMES[tag] for tag in tags)
            raise Rejected(
                Code.WRONG_TYPE,
                f"key {key[:64]!r} holds a {TYPE_NAMES[view.tag]}, not a {wanted}; delete it first",
                key=key,
                type=TYPE_NAMES[view.tag],
            )
        return Looked(key, entry, view, live, now_ms)

    def _edit(self, looked: Looked) -> Edit:
        # Nothing new is stamped at or below the floor, where peers would take it for something they have collected.
        stamp = max(looked.now_ms, self._store().floor + 1)
        return Edit(looked.entry, self._replica, stamp, live=looked.live)

    def _begin(self, looked: Looked, tag: Tag, added: int) -> Edit:
        """An edit of a structure, to which `added` elements may come."""
        assert added >= 1
        assert not looked.live or looked.view.tag is tag
        have = count(looked.elements(tag))
        if have + added > self.limits.elements:
            raise Rejected(
                Code.PAYLOAD_TOO_LARGE,
                f"key {looked.key[:64]!r}: {have} elements and {added} more are above the limit of "
                f"{self.limits.elements}; removed ones count until gc collects them",
                limit=self.limits.elements,
            )
        edit = self._edit(looked)
        edit.begin(expired=looked.expired)
        return edit

    def _commit(self, looked: Looked, edit: Edit) -> None:
        delta = edit.finish()
        assert delta.newest == edit.stamp > looked.entry.newest
        store = self._store()
        if looked.entry.newest == 0 and len(store) >= self.limits.keys:
            raise Rejected(
                Code.THROTTLED,
                f"key {looked.key[:64]!r}: the database holds {self.limits.keys} keys, its limit; deleted ones count "
                "until gc collects them",
                limit=self.limits.keys,
            )
        if self._working is None:
            self._advance([KeyedEntry(looked.key, delta)])
            return
        present = self._batched.get(looked.key)
        self._batched[looked.key] = delta if present is None else join(present, delta)
        self._working = store.with_entries([KeyedEntry(looked.key, delta)])

    def _advance(self, deltas: Sequence[KeyedEntry]) -> None:
        assert deltas
        after = self._cursor.update(lambda store: store.with_entries(deltas))
        assert after.get(deltas[-1].key).newest >= deltas[-1].entry.newest

    def _cell(self, field: str, value: Cell) -> Cell:
        """The value as it is stored: canonical, nobody else's, and within the limit."""
        try:
            size = value_size(value)
        except Rejected as refused:
            raise invalid(field, refused.message.removeprefix("value: ")) from None
        self._check_size(field, size)
        if value is None or isinstance(value, bool | int | float | str | bytes):
            return value
        return decode_cell(encode_cell(value))  # a mapping of the caller's could be changed later

    def _check_size(self, field: str, size: int) -> None:
        assert size >= 0
        if size > self.limits.value_bytes:
            raise Rejected(
                Code.RECORD_TOO_LARGE,
                f"{field}: {size} bytes are more than the limit of {self.limits.value_bytes}",
                field=field,
                limit=self.limits.value_bytes,
            )

    def _arguments(self, field: str, given: Sequence[Cell]) -> list[Cell]:
        if not given:
            raise invalid(field, "at least one is needed")
        if len(given) > self.limits.arguments:
            raise Rejected(
                Code.BATCH_TOO_LARGE,
                f"{field}: {len(given)} are more than the limit of {self.limits.arguments} a call",
                limit=self.limits.arguments,
            )
        return [self._cell(field, value) for value in given]

    def _open_batch(self) -> None:
        if self._working is not None:
            raise WrongState("batch: one is open already; batches do not nest")
        self._working = self._cursor.get()
        assert not self._batched

    def _close_batch(self, *, keep: bool) -> None:
        assert self._working is not None
        batched = [KeyedEntry(key, entry) for key, entry in self._batched.items()]
        self._working = None
        self._batched = {}
        if keep and batched:
            self._advance(batched)


class Batch:
    """Edits held back until the end of a `with` block."""

    __slots__ = ("_keyspace",)

    def __init__(self, keyspace: Keyspace) -> None:
        self._keyspace = keyspace

    def __enter__(self) -> None:
        self._keyspace._open_batch()  # noqa: SLF001  # a batch and its database are one thing

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._keyspace._close_batch(keep=kind is None)  # noqa: SLF001  # as above
