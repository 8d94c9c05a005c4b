"""What is left of a pruned intention, and what says so in the journal (replication 5.10).

Pruning drops what an intention said and who signed it. Its name stays, remembered as witnessed, and so does its place:
author, stamp, parents, and its record in the witness log less the signature. So the graph answers every question as
before, the log's chain of hashes is unbroken, and a late duplicate is known. Parents are written as numbers of records,
so a settled intention takes some sixty bytes.

A `Settlement` is the fact that it was done: the frontier, what was kept below it, how far the log had come, signed by
the node. The signature covers the log's hash, hence the name and time of every record before it, and a digest of the
rest that is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from topics.codec.primitives import U32
from topics.crypto.hashing import HASH_SIZE, blake3
from topics.crypto.keys import KEY_SIZE, SIGNATURE_SIZE, verify_plain
from topics.kernel.errors import Corrupt
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.envelope import NO_ENVELOPE, Accepted
from topics.weaver.model.frontier import Frontier
from topics.weaver.model.hlc import HLC
from topics.weaver.model.intention import ZERO_HASH, Intention

STUB: Final = Struct("<32sQQII")  # hash, time of its record, HLC, number of its store_prev (0 for none)
assert STUB.size == 56
SETTLEMENT: Final = Struct("<Q32s32sII")  # records and their last hash; digest; how many tips and kept
assert SETTLEMENT.size == 80
TIP: Final = Struct("<32s32s")
PIECE: Final = 512  # settled intentions of one item
_PROOF: Final = b"topics.weaver.settlement\x00"


class Stub(NamedTuple):
    """A settled intention. `prev` and `condition` are numbers of records; `author` is given for a first one only."""

    hash: bytes
    wall_ms: int
    hlc: HLC
    prev: int
    author: bytes
    condition: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, wall_ms: int) -> Stub:
        assert all(parent.seq < node.seq for parent in node.parents)
        prev, author = (0, node.author) if node.prev is None else (node.prev.seq, b"")
        return cls(node.hash, wall_ms, node.hlc, prev, author, tuple(parent.seq for parent in node.condition))

    def accepted(self, graph: Graph, store_id: bytes) -> Accepted:
        """As the graph takes it in. Raises `Corrupt` if a number names no earlier record."""
        named = (self.prev, *self.condition)
        if any(seq > len(graph) for seq in named) or 0 in self.condition:
            raise Corrupt(f"settled intention {self.hash.hex()} names a record that is not before it")
        prev = graph.order[self.prev - 1] if self.prev else None
        intention = Intention(
            author=self.author if prev is None else prev.author,
            hlc=self.hlc,
            store_id=store_id,
            store_prev=ZERO_HASH if prev is None else prev.hash,
            condition=tuple(sorted(graph.order[seq - 1].hash for seq in self.condition)),
            ops=b"",
        )
        return Accepted(self.hash, intention, NO_ENVELOPE)


def encode_stubs(stubs: Iterable[Stub]) -> bytes:
    """One after another."""
    parts: list[bytes] = []
    for stub in stubs:
        assert (len(stub.author) == KEY_SIZE) is (stub.prev == 0)
        parts += (STUB.pack(stub.hash, stub.wall_ms, *stub.hlc, stub.prev), stub.author)
        parts += (U32.pack(len(stub.condition)), *map(U32.pack, stub.condition))
    return b"".join(parts)


def decode_stubs(data: bytes) -> list[Stub]:
    """Raises `Corrupt` unless the bytes are exactly some stubs."""
    found: list[Stub] = []
    at = 0
    while at < len(data):
        start = at
        if at + STUB.size > len(data):
            raise Corrupt(f"settled intention at {start}: cut off")
        name, wall_ms, wall, counter, prev = STUB.unpack_from(data, at)
        at += STUB.size
        author = b"" if prev else data[at : at + KEY_SIZE]
        at += len(author)
        if at + U32.size > len(data):
            raise Corrupt(f"settled intention at {start}: cut off")
        (count,) = U32.unpack_from(data, at)
        at += U32.size
        stop = at + U32.size * count
        if stop > len(data):
            raise Corrupt(f"settled intention at {start}: {count} parents do not fit")
        condition = tuple(U32.unpack_from(data, each)[0] for each in range(at, stop, U32.size))
        found.append(Stub(name, wall_ms, HLC(wall, counter), prev, author, condition))
        at = stop
    return found


class Settlement(NamedTuple):
    """That history below `frontier` was pruned but for `kept`, after `seq` records whose last hash is `log_hash`."""

    seq: int
    log_hash: bytes
    digest: bytes
    frontier: Frontier
    kept: tuple[bytes, ...]
    signature: bytes = b""

    def covered(self, store_id: bytes) -> bytes:
        """What the node signs."""
        return blake3(_PROOF + store_id + self._body())

    def is_signed_by(self, node: bytes, store_id: bytes) -> bool:
        return verify_plain(node, self.covered(store_id), self.signature)

    def encode(self) -> bytes:
        assert len(self.signature) == SIGNATURE_SIZE
        return self.signature + self._body()

    def _body(self) -> bytes:
        assert len(self.log_hash) == len(self.digest) == HASH_SIZE
        tips = self.frontier.tips
        head = SETTLEMENT.pack(self.seq, self.log_hash, self.digest, len(tips), len(self.kept))
        return b"".join([head, *[TIP.pack(*tip) for tip in tips], *self.kept])

    @classmethod
    def decode(cls, data: bytes) -> Settlement:
        """Raises `Corrupt` unless the bytes are exactly a settlement."""
        at = SIGNATURE_SIZE + SETTLEMENT.size
        if len(data) < at:
            raise Corrupt(f"settlement: {len(data)} bytes")
        seq, log_hash, digest, tip_count, kept_count = SETTLEMENT.unpack_from(data, SIGNATURE_SIZE)
        kept_at = at + TIP.size * tip_count
        if kept_at + HASH_SIZE * kept_count != len(data):
            raise Corrupt(f"settlement: {tip_count} tips and {kept_count} kept do not make {len(data)} bytes")
        tips = tuple((author, tip) for author, tip in TIP.iter_unpack(data[at:kept_at]))
        if any(before >= after for before, after in pairwise(tips)):
            raise Corrupt("settlement: the tips of its frontier do not ascend")
        kept = tuple(data[each : each + HASH_SIZE] for each in range(kept_at, len(data), HASH_SIZE))
        return cls(seq, log_hash, digest, Frontier(tips), kept, data[:SIGNATURE_SIZE])


def settled_nodes(graph: Graph, frontier: Frontier, kept: Sequence[bytes], seq: int) -> list[Node]:
    """The nodes of the first `seq` that a settlement leaves stubs of, in witness order. Raises `Corrupt` for a
    frontier that is not of this graph.
    """
    found = intentions_below(graph, frontier)
    if found is None:
        raise Corrupt("settlement: a tip of its frontier is not here")
    if any(graph.nodes[tip].author != author for author, tip in frontier.tips):
        raise Corrupt("settlement: a tip of its frontier is another author's")
    assert seq <= len(graph)
    stays = frozenset(kept)
    return [node for node in graph.order[:seq] if node.hash in found and node.hash not in stays]


def digest_of(nodes: Iterable[Node], walls: Iterable[int]) -> bytes:
    """Of the stubs that would be left of these nodes."""
    return blake3(encode_stubs(Stub.of(node, wall_ms) for node, wall_ms in zip(nodes, walls, strict=True)))


def intentions_below(graph: Graph, frontier: Frontier) -> frozenset[bytes] | None:
    """The hashes at or below a frontier; None if one of its tips is unknown. Iterative; each node is visited once."""
    tips = [graph.nodes.get(tip) for _, tip in frontier.tips]
    waiting = [node for node in tips if node is not None]
    if len(waiting) < len(tips):
        return None
    found = {node.hash for node in waiting}
    while waiting:
        for parent in waiting.pop().parents:
            if parent.hash not in found:
                found.add(parent.hash)
                waiting.append(parent)
    return frozenset(found)
