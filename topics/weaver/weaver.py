"""`Weaver`: store and state together, as a program uses them (replication 5.5).

A write cites every head of the keys it touches, so that it comes after all of them, and is projected before the call
returns: who writes reads it at once. What peers send goes through `ingest`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from topics.crypto.keys import KeyPair
from topics.kernel.errors import Code, Rejected, WrongState, invalid
from topics.weaver.graph.heads import Ahead, Inspection
from topics.weaver.graph.queries import Dag, Edges
from topics.weaver.model.envelope import Envelope
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import ListedKey, ProjectionStatus, StateBackend
from topics.weaver.state.watch import KeyWatch
from topics.weaver.store.intention_store import Committed, IntentionStore
from topics.weaver.store.report import IngestReport


class Got(NamedTuple):
    """The winner's value, None if the key is missing or deleted, and whether other heads say something else."""

    value: bytes | None
    conflicted: bool


class Weaver:
    """One replicated store: `key` signs what is written here."""

    __slots__ = ("key", "state", "store")

    def __init__(self, store: IntentionStore, state: StateBackend, key: KeyPair) -> None:
        assert state.status.seq <= len(store)
        self.store = store
        self.state = state
        self.key = key

    # Writing.

    def put(self, key: bytes, value: bytes) -> Committed:
        """Write a key. An empty value is a value. See `batch`."""
        return self.batch({key: value})

    def delete(self, key: bytes) -> Committed:
        """Write that the key is gone. Like any write it may win or lose against a concurrent one."""
        return self.batch({key: None})

    def batch(
        self, ops: Mapping[bytes, bytes | None] | Sequence[tuple[bytes, bytes | None]]
    ) -> Committed:  # fmt: skip
        """Several writes as one intention, all or nothing; of two on one key the last counts, None deletes.

        Raises:
            Rejected: too large, or the projection is stalled, so that the heads to cite are not known.
            Fatal: the journal failed.
        """
        self._expect("kv")
        writes = dict(ops)
        if not writes:
            raise invalid("ops", "a batch needs at least one")
        status = self.state.project()
        if status.stall is not None:
            text = f"the projection is stalled at record {status.stall.seq}: {status.stall.why}"
            raise Rejected(Code.NOT_READY, text)
        return self._commit(encode_ops(writes), self.state.heads(writes))

    def restamp(self, key: bytes) -> Committed:
        """Write the key's value from the future again as of now; of several the latest. Like any write it
        comes after all heads of the key. What is not wanted is put or deleted instead.

        Raises:
            Rejected: the key has no such write, or as `batch`.
            Fatal: the journal failed.
        """
        found = [ahead for ahead in self.future() if ahead.key == key]
        if not found:
            raise invalid("key", f"{key!r:.80} has no write from the future; `future()` lists what there is")
        last = max(found, key=lambda ahead: (self.store.node(ahead.hash).hlc, ahead.author, ahead.hash))
        return self.batch({key: last.value})

    def append(self, entry: bytes) -> Committed:
        """Add an entry to a store of type `log`. It follows this author's last and cites nothing."""
        self._expect("log")
        if not entry:
            raise invalid("entry", "an empty one could not be told from a merge node")
        return self._commit(entry, [])

    def ingest(self, envelopes: Iterable[Envelope]) -> IngestReport:
        """Take what a peer sent, and show what of it can be shown."""
        report = self.store.ingest(envelopes)
        self.state.project()
        return report

    def tick(self) -> ProjectionStatus:
        """Let go overdue floats, look at the time, try again what stalled."""
        self.store.expire()
        return self.state.project()

    # Reading.

    def get(self, key: bytes) -> Got:
        """What a read shows of the key."""
        found = self.state.inspect(key)
        return Got(found.value, found.conflicted)

    def list(
        self, prefix: bytes = b"", *, after: bytes | None = None, limit: int = 1000
    ) -> Sequence[ListedKey]:
        """Existing keys by prefix, ascending."""
        return self.state.entries(prefix, after=after, limit=limit)

    def inspect(self, key: bytes) -> Inspection:
        """Everything about a key, all heads with their values."""
        return self.state.inspect(key)

    def future(self) -> Sequence[Ahead]:
        """The writes that are stamped more than the drift ahead of this node's time and still stand, its own among
        them, from a time when its clock was wrong.
        """
        return self.state.ahead()

    def dag(self, edges: Edges = Edges.CAUSAL) -> Dag:
        """Questions about the graph of intentions."""
        return Dag(self.store.graph, edges=edges, steps=self.store.bounds.walk_steps)

    def watch(self, prefix: bytes = b"") -> KeyWatch:
        """Events of the winners of these keys from now on."""
        return self.state.watch(prefix)

    def _commit(self, ops: bytes, parents: Iterable[bytes]) -> Committed:
        committed = self.store.submit(self.key, ops, parents)
        assert committed.hash in self.store
        self.state.project()
        return committed

    def _expect(self, kind: str) -> None:
        if self.store.kind != kind:
            raise WrongState(f"this is a store of type {self.store.kind}, the call is for {kind}")
