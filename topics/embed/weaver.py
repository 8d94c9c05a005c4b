"""Weaver stores in an embedded store: log and state each in an internal topic of their own (architecture 7).

    with topics.open("./data") as store:
        weavers = Weavers(store, node_key)
        weaver = weavers.open(store_id)
        weaver.put(b"colour", b"red")

The log is the truth. It is cut in one case only: `compact_log` writes it once more without what was pruned, and then
forgets the one before (replication 5.10). The state is a projection: `drop_state` deletes it, and opening replays the
log into the same bytes. It is compacted at opening once its journal is several times what it says.

A Weaver is for one thread at a time, as in the core; the store below may serve many. Each write hangs on the one
before it, so one object writes a log: keep one `Weavers` a store. A second one's writes are refused.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from topics.crypto.keys import KeyPair
from topics.embed.journal import TopicJournal
from topics.embed.store import Store
from topics.host.system.clock import SystemClock
from topics.kernel.errors import Rejected, invalid
from topics.kernel.limits import MIB
from topics.kernel.ports import Clock
from topics.weaver.model.bounds import DEFAULT, Bounds
from topics.weaver.state.ops import MACHINES
from topics.weaver.state.projection import StateBackend, open_state
from topics.weaver.state.prune import compacted
from topics.weaver.store.intention_store import open_store
from topics.weaver.store.replay import SignatureCheck
from topics.weaver.weaver import Weaver

COMPACT_BYTES_MIN: Final = 1 * MIB
COMPACT_FACTOR: Final = 4  # times what the state itself takes


class Weavers:
    """The Weaver stores of one node that are kept in a store. `node` signs their witness logs."""

    def __init__(
        self, store: Store, node: KeyPair, *, clock: Clock | None = None, bounds: Bounds = DEFAULT
    ) -> None:  # fmt: skip
        self._store: Final = store
        self._node: Final = node
        self._clock: Final = clock or SystemClock()
        self._bounds: Final = bounds
        self._opened: dict[bytes, Weaver] = {}
        self._logs: dict[bytes, TopicJournal] = {}

    def open(
        self,
        store_id: bytes,
        *,
        kind: str = "kv",
        author: KeyPair | None = None,
        strict_linearity: bool = False,
        check: SignatureCheck = SignatureCheck.LAST,
    ) -> Weaver:
        """The store of that id, made if there is none. Opened twice it is the same object.

        `author` signs what is written here, the node's key if it is not given.

        Raises:
            Rejected: it is of another type or node, open already for another author, or of a type nobody knows.
            Corrupt: its log is damaged or another's; nothing of it was used.
            Rejected, Fatal: of the embedded store.
        """
        author = author or self._node
        opened = self._opened.get(store_id)
        if opened is not None:
            _check_same(opened, kind, author)
            return opened
        if kind not in MACHINES:
            raise invalid("kind", f"{kind!r:.80} is none of {', '.join(MACHINES)}")
        log = TopicJournal(self._store, log_topic(store_id), sole=True)
        store = open_store(
            log,
            store_id=store_id,
            node=self._node,
            clock=self._clock,
            kind=kind,
            bounds=self._bounds,
            strict_linearity=strict_linearity,
            check=check,
        )
        journal = TopicJournal(self._store, state_topic(store_id), sole=True)
        state = open_state(store, journal)
        _compact(state, journal)
        self._logs[store_id] = log
        weaver = self._opened[store_id] = Weaver(store, state, author)
        return weaver

    def compact_log(self, store_id: bytes) -> None:
        """Free the disk of what a store has pruned: its log is written once more, in one write.

        Raises:
            Rejected: it is larger than one write may be, or not open; nothing was changed.
            Fatal: the write failed; the old log or the new one stands.
        """
        if store_id not in self._opened:
            raise invalid("store_id", f"{store_id.hex()} is not open: open it first")
        self._logs[store_id].replace(compacted(self._opened[store_id].store))

    def drop_state(self, store_id: bytes) -> None:
        """Delete a store's state; the next opening rebuilds it. A Weaver that is open is of no use any more: its writes
        are refused once another one wrote.
        """
        self._opened.pop(store_id, None)
        journal = TopicJournal(self._store, state_topic(store_id))
        journal.cut(journal.position)


def log_topic(store_id: bytes) -> str:
    """The topic of a store's log, without its `$`."""
    return f"weaver.{store_id.hex()}.log"


def state_topic(store_id: bytes) -> str:
    """The topic of a store's state, without its `$`."""
    return f"weaver.{store_id.hex()}.state"


def _check_same(opened: Weaver, kind: str, author: KeyPair) -> None:
    if opened.store.kind != kind:
        raise invalid("kind", f"the store is open as {opened.store.kind}, not {kind!r:.80}")
    if opened.key.public != author.public:
        raise invalid("author", f"the store is open for {opened.key.public.hex()}; hand that Weaver on")


def _compact(state: StateBackend, journal: TopicJournal) -> None:
    if state.journal_bytes < COMPACT_BYTES_MIN:
        return
    items = state.compacted()
    if state.journal_bytes > COMPACT_FACTOR * sum(map(len, items)):
        # More than one write takes, or no space: the long journal says the same.
        with suppress(Rejected):
            journal.replace(items)
