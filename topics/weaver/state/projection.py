"""`StateBackend`: the view. What replaying the witness log through a machine gives, and nothing else.

It follows the log by a cursor, the content hash of the last witness record it applied. What a step changes and the
cursor after it are one item of the state journal, so a step is there or it is not. The journal may be deleted: the next
opening replays the log and arrives at the same bytes. A step is absolute, not relative, so one written twice by a retry
changes nothing.

Ops that the machine cannot read, a journal that fails: the projection stalls where it is, for everybody, while
intentions are witnessed and exchanged as before. It goes on when asked again, after an upgrade perhaps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from topics.crypto.hashing import blake3
from topics.kernel.errors import Code, Corrupt, Rejected, TopicsError, invalid
from topics.kernel.limits import MIB
from topics.kernel.ports import Journal
from topics.weaver.graph.heads import (  # fmt: skip
    MISSING,
    Ahead,
    Heads,
    Inspection,
    KeyHead,
    after_write,
    heads_ahead,
    inspect_heads,
    signed,
    winner,
)
from topics.weaver.graph.intention_graph import Node
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.state.ops import MACHINES, StoreMachine, UnreadableOps
from topics.weaver.state.snapshot import (  # fmt: skip
    START,
    ProjectionCursor,
    StatePart,
    decode_part,
    decode_snapshot,
    encode_facts,
    encode_part,
    encode_snapshot,
)
from topics.weaver.state.watch import KeyEvent, KeyWatch
from topics.weaver.store.intention_store import IntentionStore, check_header
from topics.weaver.store.journal_items import ItemKind, JournalHeader, pack, unpack

NO_NODE: Final = bytes(32)  # nobody signs a state journal
WATCHES_MAX: Final = 1024
STEP_BYTES: Final = 4 * MIB  # of ops; a step ends behind the intention that passes it
PIECE_KEYS: Final = 256  # of one item of a compacted journal


class Stall(NamedTuple):
    """Where the projection stands still, and why."""

    seq: int
    hash: bytes
    why: str


class ProjectionStatus(NamedTuple):
    """`seq` of `head_seq` witnessed intentions are applied."""

    cursor: bytes
    seq: int
    head_seq: int
    stall: Stall | None


class ListedKey(NamedTuple):
    """An existing key."""

    key: bytes
    value: bytes
    conflicted: bool


class StateBackend:
    """The state of one store. Open it with `open_state`."""

    __slots__ = (
        "_cursor", "_entries", "_epoch", "_journal", "_keys", "_machine", "_new_keys", "_setbacks", "_shown", "_stall",
        "_store", "_tips", "_watches", "journal_bytes",
    )  # fmt: skip

    def __init__(
        self, store: IntentionStore, journal: Journal, machine: StoreMachine, part: StatePart, journal_bytes: int
    ) -> None:  # fmt: skip
        self.journal_bytes = journal_bytes
        self._store = store
        self._journal = journal
        self._machine = machine
        self._stall: Stall | None = None
        self._watches: list[KeyWatch] = []
        self._epoch, self._setbacks = store.effective.epoch, store.effective.setbacks
        self._install(part)

    # Reading.

    def inspect(self, key: bytes) -> Inspection:
        """Everything about a key: winner, conflict, all heads."""
        self.settle()
        heads = self._entries.get(key)
        return MISSING if heads is None else inspect_heads(heads, self._eff)

    def entries(
        self, prefix: bytes = b"", *, after: bytes | None = None, limit: int = 1000
    ) -> list[ListedKey]:
        """Existing keys that start with `prefix`, ascending, from behind `after`."""
        if limit < 1:
            raise invalid("limit", "must be at least 1")
        self.settle()
        found: list[ListedKey] = []
        for key in self._keys_from(prefix if after is None else max(prefix, after)):
            if not key.startswith(prefix) or len(found) == limit:
                break
            heads = self._entries[key]
            value = winner(heads, self._eff).value
            if value is not None and key != after:
                found.append(ListedKey(key, value, len(heads) > 1))
        return found

    def ahead(self) -> list[Ahead]:
        """The heads from the future, the nearest first."""
        self.settle()
        entries = self._entries if len(self._store.effective) else {}
        return heads_ahead(entries, self._is_clamped, self._store.bounds.drift_ms)

    def heads(self, keys: Iterable[bytes]) -> list[bytes]:
        """The hashes of all heads of the keys: what a write of them cites."""
        return sorted({head.hash for key in keys for head in self._entries.get(key, ())})

    def watch(self, prefix: bytes = b"") -> KeyWatch:
        """Events of these keys from now on."""
        if len(self._watches) >= WATCHES_MAX:
            raise Rejected(Code.THROTTLED, f"watch: there are {WATCHES_MAX} already; close one")
        self._watches.append(KeyWatch(prefix, self._store.bounds.watch_keys))
        return self._watches[-1]

    def unwatch(self, watch: KeyWatch) -> None:
        """No more events for it."""
        self._watches = [each for each in self._watches if each is not watch]

    @property
    def status(self) -> ProjectionStatus:
        return ProjectionStatus(self._cursor.content_hash, self._cursor.seq, len(self._store), self._stall)

    @property
    def part(self) -> StatePart:
        """All of it, as a value."""
        return StatePart(self._cursor, self._tips, self._entries)

    def snapshot(self) -> bytes:
        """All of it as bytes: equal bytes, equal state and cursor."""
        return encode_snapshot(self.part, self._store.store_id, self._machine.kind)

    def digest(self) -> bytes:
        """BLAKE3 of what does not depend on the node: equal on nodes that applied the same intentions."""
        return blake3(encode_facts(self._tips, self._entries))

    # Changing.

    def project(self) -> ProjectionStatus:
        """Apply what was witnessed since the cursor, in chunks; each is one write."""
        self.settle()
        self._stall = None
        while self._cursor.seq < len(self._store) and self._stall is None:
            self._step(self._cursor.seq, self._store.bounds.projection_chunk)
        return self.status

    def settle(self) -> None:
        """Time may have reached stamps that were in the future, or a clock may have been corrected: compare the heads
        that they decide again.
        """
        self._store.observe_time()
        effective = self._store.effective
        if self._epoch == effective.epoch:
            return
        shown = dict(self._shown)
        if self._setbacks != effective.setbacks:
            # Any stamp may be ahead now; until now these counted as signed.
            conflicted = {key: heads for key, heads in self._entries.items() if len(heads) > 1}
            shown = {key: winner(heads, signed).hash for key, heads in conflicted.items()} | shown
        self._epoch, self._setbacks = effective.epoch, effective.setbacks
        for key, name in shown.items():
            self._remember(key)
            if winner(self._entries[key], self._eff).hash != name:
                self._tell(key)

    def restore(self, snapshot: bytes) -> None:
        """Take the state of a snapshot in the place of this one.

        Raises:
            Corrupt, Rejected: a bad one, or one whose cursor this log does not know; nothing was changed.
            Fatal: the journal failed.
        """
        part = decode_snapshot(snapshot, self._store.store_id, self._machine.kind)
        check_cursor(self._store, part)
        self._journal.append(_whole(part, self._machine.kind))
        self._install(part)

    def compacted(self) -> list[bytes]:
        """Items that say all that the journal says, to be written in its place in one write."""
        header = JournalHeader(self._store.store_id, NO_NODE, self._machine.kind)
        assert header.node == NO_NODE
        return [header.encode(), *_whole(self.part, self._machine.kind)]

    # How a step is made.

    def _step(self, start: int, size: int) -> None:
        tips: dict[bytes, tuple[bytes, ...]] = {}
        entries: dict[bytes, Heads] = {}
        stop, size_bytes = start, 0
        for node in self._store.graph.order[start : start + size]:
            why = self._apply(node, tips, entries)
            if why is not None:
                self._stall = Stall(node.seq, node.hash, why)
                break
            stop = node.seq
            size_bytes += len(node.ops)
            if size_bytes > STEP_BYTES:
                break
        if stop == start:
            return
        assert start < stop <= len(self._store)
        part = StatePart(ProjectionCursor(self._store.log.hash_at(stop), stop), tips, entries)
        try:
            item = pack(ItemKind.CHANGE, encode_part(part, self._machine.kind))
            self._journal.append([item])
        except (TopicsError, OSError) as error:
            name = self._store.graph.order[start].hash
            self._stall = Stall(start + 1, name, f"the state journal failed: {error}")
            return
        self.journal_bytes += len(item)
        self._cursor = part.cursor
        self._tips.update(tips)
        for key, heads in entries.items():
            if key not in self._entries:
                self._new_keys.append(key)
            self._entries[key] = heads
            self._remember(key)
            self._tell(key)

    def _apply(
        self, node: Node, tips: dict[bytes, tuple[bytes, ...]], entries: dict[bytes, Heads]
    ) -> str | None:  # fmt: skip
        """One intention, all or nothing; why not, if it cannot be."""
        own = tips.get(node.author, self._tips.get(node.author, ()))
        if node.hash in own:
            return None  # the same again changes nothing
        why = broken_chain(own, node, forked=self._store.graph.has_equivocated(node.author))
        if why is not None:
            return why
        ops = self._machine.read(node)
        if isinstance(ops, UnreadableOps):
            return ops.why
        graph = self._store.graph
        named = [parent.hash for parent in node.parents]
        others = [tip for tip in own if tip not in named]
        tips[node.author] = tuple(sorted([*others, node.hash]))
        for op in ops:
            heads = entries.get(op.key, self._entries.get(op.key, ()))
            entries[op.key] = after_write(heads, node, op.value, graph)
        return None

    def _install(self, part: StatePart) -> None:
        assert part.cursor.seq <= len(self._store)
        self._cursor = part.cursor
        self._tips = dict(part.tips)
        self._entries = dict(part.entries)
        self._keys: list[bytes] = []
        self._new_keys = list(self._entries)
        self._shown: dict[bytes, bytes] = {}  # keys whose winner may change with time alone
        for key in self._entries:
            self._remember(key)

    def _remember(self, key: bytes) -> None:
        heads = self._entries[key]
        assert heads
        clamped = self._store.effective
        if len(heads) > 1 and len(clamped) and any(self._is_clamped(head) for head in heads):
            self._shown[key] = winner(heads, self._eff).hash
        else:
            self._shown.pop(key, None)

    def _tell(self, key: bytes) -> None:
        if self._watches:
            heads = self._entries[key]
            head = winner(heads, self._eff)
            assert head in heads
            event = KeyEvent(key, head.value, len(heads) > 1, head.hash)
            for watch in self._watches:
                watch.push(event)

    def _is_clamped(self, head: KeyHead) -> bool:
        return self._store.effective.is_clamped(self._store.graph.nodes[head.hash])

    def _eff(self, head: KeyHead) -> HLC:
        if not len(self._store.effective):
            return head.hlc
        return self._store.effective.of(self._store.graph.nodes[head.hash])

    def _keys_from(self, first: bytes) -> Iterator[bytes]:
        if self._new_keys:
            # Two sorted runs: the sort merges them in one pass.
            self._keys += sorted(self._new_keys)
            self._keys.sort()
            self._new_keys = []
            assert len(self._keys) == len(self._entries)
        for at in range(bisect_left(self._keys, first), len(self._keys)):
            yield self._keys[at]


def broken_chain(tips: tuple[bytes, ...], node: Node, *, forked: bool) -> str | None:
    """Why an intention does not continue its author's chain, None if it does (replication 5.6). An author that
    equivocated has a tree: there the store has checked that `store_prev` is its own.
    """
    assert node.hash not in tips
    prev = ZERO_HASH if node.prev is None else node.prev.hash
    if not tips:
        return None if prev == ZERO_HASH else f"invalid genesis: the author's first names {prev.hex()}"
    if prev in tips or forked:
        return None
    return f"broken chain: it follows {prev.hex()}, the author's tip is {tips[0].hex()}"


def open_state(store: IntentionStore, journal: Journal, machine: StoreMachine | None = None) -> StateBackend:
    """The state that the journal holds, brought up to the log; an empty journal is filled by a replay.

    Raises:
        Rejected: it is another store's or type's.
        Corrupt: it is damaged, or of another log. Delete it, and it is rebuilt.
        Fatal: the journal failed.
    """
    machine = MACHINES[store.kind] if machine is None else machine
    assert machine.kind == store.kind
    wanted = JournalHeader(store.store_id, NO_NODE, store.kind)
    items = iter(journal.read())
    first = next(items, None)
    if first is None:
        journal.append([wanted.encode()])
    else:
        check_header(first, wanted)
    part, size_bytes = _folded(items, store, wanted)
    check_cursor(store, part)
    backend = StateBackend(store, journal, machine, part, size_bytes)
    backend.project()
    assert backend.status.stall is not None or backend.status.seq == len(store)
    return backend


def _whole(part: StatePart, kind: str) -> list[bytes]:
    """The items that make a journal hold this state, whatever it held before."""
    items = [pack(ItemKind.RESET, b"")]
    authors, keys = list(part.tips), list(part.entries)
    for at in range(0, max(len(authors), len(keys), 1), PIECE_KEYS):
        tips = {author: part.tips[author] for author in authors[at : at + PIECE_KEYS]}
        entries = {key: part.entries[key] for key in keys[at : at + PIECE_KEYS]}
        items.append(pack(ItemKind.CHANGE, encode_part(StatePart(part.cursor, tips, entries), kind)))
    return items


def _folded(items: Iterable[bytes], store: IntentionStore, wanted: JournalHeader) -> tuple[StatePart, int]:
    size_bytes = 0
    cursor, tips, entries = START, dict[bytes, tuple[bytes, ...]](), dict[bytes, Heads]()
    for number, item in enumerate(items, 2):
        kind, payload = unpack(item)
        size_bytes += len(item)
        if kind is ItemKind.RESET:
            cursor, tips, entries = START, {}, {}
        elif kind is ItemKind.CHANGE:
            cursor, changed_tips, changed = decode_part(payload, store.kind)
            tips.update(changed_tips)
            entries.update(changed)
        elif kind is ItemKind.HEADER:
            check_header(item, wanted)  # a compacted journal begins again
        else:
            raise Corrupt(f"state journal, item {number}: {kind.name} has no place here")
    return StatePart(cursor, tips, entries), size_bytes


def check_cursor(store: IntentionStore, part: StatePart) -> None:
    """Raises `Corrupt` unless the state is of this log."""
    seq = store.log.seq_of(part.cursor.content_hash)
    if seq is None or seq != part.cursor.seq:
        text = f"state: its cursor {part.cursor.content_hash.hex()} is not in this log; delete the state to rebuild it"
        raise Corrupt(text)
    unknown = [tip for tips in part.tips.values() for tip in tips if tip not in store]
    unknown += [head.hash for heads in part.entries.values() for head in heads if head.hash not in store]
    if unknown:
        raise Corrupt(
            f"state: it names {unknown[0].hex()}, which is not witnessed; delete the state to rebuild it"
        )
