"""Pruning: history that every active peer has seen is dropped, but for what reads still need (replication 5.10).

Theory. Who signed an intention had witnessed everything below it, so each peer's tips attest a past. What lies in the
pasts of all active peers is stable: nobody will ever write beside it again, only above it. It is causally closed, and
its newest intention an author is the frontier. Pruning keeps the roots, the frontier's tips, both sides of every
equivocation, and each current head, whose value is what a read shows; of the rest only stubs are left (`settled`).

An author that equivocated attests what all of its tips have seen. A peer that wrote nothing attests nothing and holds
pruning back until it acks, or is made dormant; then, coming back, it may find its peers' past pruned beyond what it
knows, and takes their snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from topics.kernel.errors import Code, Corrupt, Rejected, invalid
from topics.weaver.graph.effective import EffectiveClock
from topics.weaver.graph.intention_graph import Graph, Node
from topics.weaver.model.envelope import Accepted
from topics.weaver.model.frontier import NO_FRONTIER, Frontier
from topics.weaver.model.intention import ZERO_HASH, Intention, check_limits, hash_of
from topics.weaver.state.projection import StateBackend
from topics.weaver.store.intention_store import IntentionStore
from topics.weaver.store.journal_items import ItemKind, JournalHeader, Received, encode_clock, pack
from topics.weaver.store.replay import Replay, SignatureCheck
from topics.weaver.store.settled import (
    PIECE,
    Settlement,
    Stub,
    digest_of,
    encode_stubs,
    intentions_below,
    settled_nodes,
)
from topics.weaver.sync.limits import FRONTIER_MAX

KEPT_MAX: Final = 250_000  # hashes a settlement names; they are one item of the journal


def stable(graph: Graph, active: Sequence[bytes]) -> Frontier:
    """The frontier that all these authors attest; empty if one of them attests nothing."""
    attesting = [tip for author in active for tip in graph.tips_of(author)]
    if not active or any(not graph.tips_of(author) for author in active):
        return NO_FRONTIER
    everybody = (1 << len(attesting)) - 1
    seen = dict.fromkeys(graph.nodes, 0)
    for bit, tip in enumerate(attesting):
        seen[tip.hash] |= 1 << bit
    tips: dict[bytes, bytes] = {}  # of the frontier, by hash: author
    covered: set[bytes] = set()  # has a stable child of its author
    # Children before parents: what a child's readers have seen, the parent's have.
    for node in reversed(graph.order):
        mask = seen[node.hash]
        for parent in node.parents:
            seen[parent.hash] |= mask
        if mask == everybody:
            if node.hash not in covered:
                tips[node.hash] = node.author
            if node.prev is not None:
                covered.add(node.prev.hash)
    frontier = Frontier(tuple(sorted((author, name) for name, author in tips.items())))
    assert all(seen[name] == everybody for name in intentions_below(graph, frontier) or ()), "causally closed"
    return frontier


def prune(store: IntentionStore, state: StateBackend, active: Sequence[bytes]) -> Settlement | None:
    """Drop what is stable and not needed; None if nothing new is stable. `active`: keys of all active peers.

    Raises:
        Rejected: the state lags behind the log, or there are too many heads to name.
        Fatal: the journal failed.
    """
    status = state.project()
    if status.seq < status.head_seq:
        raise Rejected(Code.NOT_READY, "prune: the projection is stalled, so the heads to keep are not known")
    frontier = stable(store.graph, active)
    found = intentions_below(store.graph, frontier)
    assert found is not None, "its tips come from this graph"
    if frontier == store.frontier or any(tip not in found for _, tip in store.frontier.tips):
        return None
    heads = [head.hash for entry in state.part.entries.values() for head in entry]
    heads += [hash_of(proof.first.body) for proof in store.evidence.values()]
    return prune_history(
        store, frontier, [name for name in _needed(store.graph, frontier, heads) if name in found]
    )


def prune_history(store: IntentionStore, frontier: Frontier, kept: Iterable[bytes]) -> Settlement:
    """Write down that history below the frontier is pruned but for `kept`, and drop it."""
    settlement, nodes = _settlement(store, frontier, kept)
    assert settlement.is_signed_by(store.node_key, store.store_id)
    store.write([[pack(ItemKind.SETTLEMENT, settlement.encode())]])
    _drop(store, settlement, nodes)
    return settlement


def compacted(store: IntentionStore) -> list[bytes]:
    """Items that say all that the store's journal says, to be written in its place in one write."""
    header = JournalHeader(store.store_id, store.node_key, store.kind)
    items = [header.encode(), pack(ItemKind.RESET, b""), *_history(store, len(store))]
    for float_ in store.floating:
        envelope = float_.accepted.envelope.encode()
        items.append(Received(float_.received_ms, float_.accepted.linked, envelope).encode())
    for name, proof in store.evidence.items():
        items.append(Received(0, False, proof.second.encode()).encode())  # noqa: FBT003  # the second field of a tuple
        items.append(pack(ItemKind.EVIDENCE, name))
    return [*items, encode_clock(store.clock)]


def snapshot(store: IntentionStore) -> list[bytes]:
    """What a node behind the frontier needs: the settled past and what was kept of it, signed; empty if nothing was
    pruned.
    """
    if store.settlement is None:
        return []
    header = JournalHeader(store.store_id, store.node_key, store.kind)
    return [header.encode(), *_history(store, store.settlement.seq)]


def adopt_snapshot(store: IntentionStore, items: Sequence[bytes], server: bytes, now_ms: int) -> int:
    """Take a peer's snapshot in: how many intentions it brought. Names and places of settled ones are taken on the
    peer's word, which it signed; what was kept is verified like anything else.

    Raises:
        Corrupt: it is damaged, not signed by the peer, or of another history than is known here.
        Rejected: an intention in it is above the limits. In both cases nothing was taken.
        Fatal: the journal failed.
    """
    theirs = _read(store, items, server)
    settlement = theirs.settlement
    assert settlement is not None
    fresh: list[Accepted] = []
    for node in theirs.graph.order:
        accepted = _accepted(node, store.store_id)
        known = store.graph.nodes.get(node.hash)
        if known is None:
            check_limits(accepted.intention, store.bounds)
            fresh.append(accepted)
        elif not _same_place(known, node):
            raise Corrupt(
                f"snapshot: {node.hash.hex()} has another place there than here: it is of another history"
            )
    _take(store, fresh, now_ms)
    frontier = _joint(store.graph, store.frontier, settlement.frontier)
    heads = [*settlement.kept, *(store.settlement.kept if store.settlement is not None else ())]
    heads += [hash_of(proof.first.body) for proof in store.evidence.values()]
    found = intentions_below(store.graph, frontier)
    assert found is not None, "both frontiers are of this graph now"
    kept = [name for name in _needed(store.graph, frontier, heads) if name in found]
    prune_history(store, frontier, kept)
    return len(fresh)


def _take(store: IntentionStore, batch: list[Accepted], now_ms: int) -> None:
    """Witness these under this node's own key; then whoever floated for them. Cut off between two writes, the rest
    comes with the next snapshot.
    """
    units: list[list[bytes]] = []
    stubs: list[Stub] = []
    for accepted in batch:
        floated = accepted.hash in store.floating
        if floated:
            store.floating.remove(accepted.hash)
        assert accepted.hash not in store
        store.evidence.pop(accepted.hash, None)
        node = store.graph.add(accepted)
        record = store.extend(node, now_ms)
        if node.is_settled:
            stubs.append(Stub.of(node, now_ms))
        if stubs and (not node.is_settled or len(stubs) == PIECE):
            units.append([pack(ItemKind.SETTLED, encode_stubs(stubs))])
            stubs = []
        if not node.is_settled:
            received = Received(now_ms, accepted.linked, accepted.envelope.encode())
            units.append([record] if floated else [received.encode(), record])
    if stubs:
        units.append([pack(ItemKind.SETTLED, encode_stubs(stubs))])
    freed = [float_ for accepted in batch for float_ in store.floating.arrived(accepted.hash)]
    store.write(units, [float_.accepted for float_ in freed])


def _read(store: IntentionStore, items: Sequence[bytes], server: bytes) -> Replay:
    header = JournalHeader(store.store_id, server, store.kind)
    if not items or items[0] != header.encode():
        raise Corrupt("snapshot: it is not of this store and that peer")
    replay = Replay(header, store.bounds, EffectiveClock(store.bounds.drift_ms), SignatureCheck.EVERY)
    replay.run(items[1:])
    if replay.settlement is None or replay.settlement.seq != len(replay.log):
        raise Corrupt("snapshot: its settlement does not end it")
    return replay


def _needed(graph: Graph, frontier: Frontier, heads: Iterable[bytes]) -> list[bytes]:
    """Of what is below the frontier, in witness order: roots, tips, heads, and both sides of every fork; if they are
    still here.
    """
    wanted = {*heads, *(tip for _, tip in frontier.tips)}
    wanted |= {node.hash for fork in graph.forks for node in fork}
    return [
        node.hash for node in graph.order if (node.hash in wanted or not node.parents) and not node.is_settled
    ]


def _joint(graph: Graph, one: Frontier, other: Frontier) -> Frontier:
    """Of two, the tips that are not below another."""
    tips = sorted({*one.tips, *other.tips})
    nodes = [graph.nodes[tip] for _, tip in tips]
    return Frontier(
        tuple(
            (node.author, node.hash)
            for node in nodes
            if not any(
                each is not node and each.author == node.author and graph.is_ancestor(node, each)
                for each in nodes
            )
        )
    )


def _settlement(
    store: IntentionStore, frontier: Frontier, kept: Iterable[bytes]
) -> tuple[Settlement, list[Node]]:  # fmt: skip
    names = tuple(kept)
    assert len(set(names)) == len(names)
    if len(names) > KEPT_MAX:
        raise invalid("prune", f"{len(names)} heads are to be kept, {KEPT_MAX} at most can be named")
    if len(frontier.tips) > FRONTIER_MAX:
        raise invalid(
            "prune", f"the frontier has {len(frontier.tips)} authors, {FRONTIER_MAX} at most can be told"
        )
    nodes = settled_nodes(store.graph, frontier, names, len(store))
    digest = digest_of(nodes, (store.log.record(node.seq).wall_ms for node in nodes))
    unsigned = Settlement(len(store), store.log.last_hash, digest, frontier, names)
    return unsigned._replace(signature=store.sign(unsigned.covered(store.store_id))), nodes


def _drop(store: IntentionStore, settlement: Settlement, nodes: Iterable[Node]) -> None:
    for node in nodes:
        node.settle()
    store.settlement = settlement
    assert not any(store.graph.nodes[name].is_settled for name in settlement.kept)


def _history(store: IntentionStore, seq: int) -> list[bytes]:
    """Items of the first `seq` records: stubs in pieces, everything else as it was, the settlement in its place."""
    items: list[bytes] = []
    stubs: list[Stub] = []
    for node in store.graph.order[:seq]:
        record = store.log.record(node.seq)
        if node.is_settled:
            stubs.append(Stub.of(node, record.wall_ms))
        if stubs and (not node.is_settled or len(stubs) == PIECE):
            items.append(pack(ItemKind.SETTLED, encode_stubs(stubs)))
            stubs = []
        if not node.is_settled:
            items += [
                Received(0, node.linked, node.envelope.encode()).encode(),
                pack(ItemKind.WITNESS, record.encode()),
            ]
        if store.settlement is not None and node.seq == store.settlement.seq:
            items += [pack(ItemKind.SETTLED, encode_stubs(stubs))] if stubs else []
            stubs = []
            items.append(pack(ItemKind.SETTLEMENT, store.settlement.encode()))
    if stubs:
        # Of a snapshot whose settlement was not written any more: it will be asked for again.
        items.append(pack(ItemKind.SETTLED, encode_stubs(stubs)))
    return items


def _same_place(own: Node, other: Node) -> bool:
    """Whether two graphs say the same of an intention."""
    assert own.hash == other.hash
    same_prev = (own.prev and own.prev.hash) == (other.prev and other.prev.hash)
    cited = [{parent.hash for parent in node.condition} for node in (own, other)]
    return own.author == other.author and own.hlc == other.hlc and same_prev and cited[0] == cited[1]


def _accepted(node: Node, store_id: bytes) -> Accepted:
    """A node of another graph, to be taken in here."""
    assert not node.ops or not node.is_settled
    prev = ZERO_HASH if node.prev is None else node.prev.hash
    condition = tuple(sorted(parent.hash for parent in node.condition))
    intention = Intention(node.author, node.hlc, store_id, prev, condition, node.ops)
    return Accepted(node.hash, intention, node.envelope, node.linked)
