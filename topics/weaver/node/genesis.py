"""Genesis: the first intention of a store says what it is, and its id follows from what it says (replication 5.9).

The id is the first 16 bytes of the BLAKE3 of type and nonce, so whoever joined with an invite can tell from the history
it cloned that this is the store it was invited to: nobody else can found one of that id. In a store of type `kv` the
genesis is a write of the key GENESIS_KEY, in one of type `log` an entry; both are the founder's first, without parents.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from topics.codec.cell import CellMap, decode_cell, encode_cell
from topics.crypto.hashing import blake3
from topics.crypto.keys import KeyPair
from topics.kernel.errors import Corrupt, WrongState, invalid
from topics.kernel.ports import Entropy
from topics.weaver.model.intention import STORE_ID_SIZE
from topics.weaver.state.ops import MACHINES, UnreadableOps, encode_ops
from topics.weaver.store.intention_store import Committed, IntentionStore
from topics.weaver.store.journal_items import KIND_MAX

NONCE_SIZE: Final = 16
GENESIS_KEY: Final = b"\x00genesis"


class Genesis(NamedTuple):
    """What a store is. `nonce` makes two stores of a type two stores."""

    kind: str
    nonce: bytes

    @classmethod
    def new(cls, kind: str, entropy: Entropy) -> Genesis:
        """Of a store that is to be founded."""
        if kind not in MACHINES or len(kind.encode()) > KIND_MAX:
            raise invalid("kind", f"{kind!r:.80} is none of {', '.join(MACHINES)}")
        return cls(kind, entropy.token(NONCE_SIZE))

    @property
    def cell(self) -> bytes:
        """Canonical bytes of `{type, nonce}`."""
        assert len(self.nonce) == NONCE_SIZE
        return encode_cell({"type": self.kind, "nonce": self.nonce})

    @property
    def store_id(self) -> bytes:
        return blake3(self.cell)[:STORE_ID_SIZE]

    @property
    def ops(self) -> bytes:
        """What the first intention says."""
        return encode_ops({GENESIS_KEY: self.cell}) if self.kind == "kv" else self.cell

    @classmethod
    def decode(cls, data: bytes) -> Genesis:
        """Raises `Corrupt` unless the bytes are the cell of a genesis."""
        value = decode_cell(data)
        kind, nonce = (value.get("type"), value.get("nonce")) if isinstance(value, CellMap) else (None, None)
        if not isinstance(kind, str) or not isinstance(nonce, bytes) or len(nonce) != NONCE_SIZE:
            raise Corrupt("genesis: a type and a nonce of 16 bytes are needed")
        found = cls(kind, nonce)
        if found.cell != data:
            raise Corrupt("genesis: it says more than type and nonce")
        return found


def write_genesis(store: IntentionStore, key: KeyPair, genesis: Genesis) -> Committed:
    """Write the first intention of a store that was opened under the id of its genesis."""
    if len(store) or genesis.store_id != store.store_id or genesis.kind != store.kind:
        raise WrongState("a store is founded when it is empty, under the id and type of its genesis")
    return store.submit(key, genesis.ops)


def genesis_of(store: IntentionStore) -> Genesis | None:
    """The genesis of the store, checked against its id; None if it was not founded by one, or that is not here."""
    for node in store.graph.order:
        if node.parents or node.is_settled:
            continue
        writes = MACHINES[store.kind].read(node)
        for op in () if isinstance(writes, UnreadableOps) else writes:
            if store.kind == "kv" and op.key != GENESIS_KEY:
                continue
            try:
                genesis = Genesis.decode(op.value or b"")
            except Corrupt:
                continue
            if genesis.store_id == store.store_id and genesis.kind == store.kind:
                return genesis
    return None
