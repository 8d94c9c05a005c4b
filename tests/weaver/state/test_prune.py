"""Pruning changes no read and forgets only what all active peers have seen; what is left reopens and syncs."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.weaver_nodes import OPTIONS, Place, Writer, attested, exchange_all, sync
from tests.support.weaving import NOW, STORE, made
from topics.kernel.errors import Corrupt, Rejected
from topics.weaver.model.frontier import NO_FRONTIER, Frontier
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.prune import adopt_snapshot, compacted, snapshot, stable
from topics.weaver.store.replay import SignatureCheck
from topics.weaver.store.report import Outcome
from topics.weaver.store.settled import Settlement, intentions_below
from topics.weaver.sync.bootstrap import Clone, serve_bootstrap
from topics.weaver.sync.fetch import serve_chain
from topics.weaver.sync.messages import BootstrapRequest, ChainRequest, Ending, Refusal
from topics.weaver.sync.ranges import FULL
from topics.weaver.sync.session import SessionPhase


def settled(place):
    """What lies at or below the frontier of a place."""
    return intentions_below(place.store.graph, place.store.frontier)


def history(seed=1, writes=40, count=3):
    """Nodes that wrote a few keys, sometimes concurrently, and saw it all."""
    rng = random.Random(seed)
    places = [Writer(number) for number in range(1, count + 1)]
    for _ in range(writes):
        place = rng.choice(places)
        place.put(b"key %d" % rng.randrange(6), None if rng.random() < 0.2 else rng.randbytes(30))
        if rng.random() < 0.4:
            sync(*rng.sample(places, 2))
            for each in places:
                each.weaver.state.project()
    exchange_all(*places)
    return places


@pytest.mark.rule("R5.10.1", "R9.37", "R11.41", "R7.20")
def test_pruning_keeps_every_read_and_drops_what_was_said():
    places = history()
    attested(places)
    a = places[0]
    reads, fingerprint, names, digest = a.reads, a.store.fingerprint, a.names, a.weaver.state.digest()
    done = a.prune(*places)

    assert a.reads == reads
    assert a.weaver.state.digest() == digest
    assert a.names == names, "pruned hashes are remembered as witnessed"
    assert a.store.fingerprint == fingerprint
    assert len(a.whole) < len(names) / 2
    assert done.is_signed_by(a.node.public, STORE)
    heads = {head.hash for reading in reads.values() for head in reading.heads}
    assert heads <= a.whole, "every current head and its value"
    assert {tip for _, tip in done.frontier.tips} <= a.whole
    assert {node.hash for node in a.store.graph.order if not node.parents} <= a.whole, "the genesis"
    assert a.prune(*places) is None, "nothing new is stable"


@pytest.mark.rule("R5.10.1")
def test_nothing_is_pruned_that_one_active_peer_has_not_attested():
    places = history(count=3)
    a, _, c = places
    last = c.put(b"late")
    attested(places[:2])
    frontier = stable(a.store.graph, [place.node.public for place in places])

    assert last not in intentions_below(a.store.graph, frontier)
    newcomer = Writer(9)
    assert a.prune(*places, newcomer) is None, "one that wrote nothing attests nothing"
    assert a.store.frontier == NO_FRONTIER
    assert len(a.whole) == len(a.names)
    # A stale peer that is no longer active does not hold it back.
    assert a.prune(*places[:2]) is not None


@pytest.mark.rule("R5.10.1")
@settings(max_examples=10)
@given(st.integers(0, 10_000))
def test_the_stable_past_is_what_all_have_seen_and_is_causally_closed(seed):
    rng = random.Random(seed)
    places = history(seed, writes=25)
    rng.choice(places).put(b"open")
    graph = places[0].store.graph
    active = [place.node.public for place in places[: rng.choice((1, 2, 3))]]
    found = intentions_below(graph, stable(graph, active))
    pasts = [
        intentions_below(graph, Frontier(((author, tip.hash),)))
        for author in active
        for tip in graph.tips_of(author)
    ]
    expected = (
        frozenset.intersection(*pasts) if all(graph.tips_of(author) for author in active) else frozenset()
    )

    assert found == expected
    for name in found:
        assert all(parent.hash in found for parent in graph.nodes[name].parents)


@pytest.mark.rule("R5.10.1")
def test_a_late_duplicate_of_something_pruned_is_known_and_changes_nothing():
    places = history()
    envelopes = [node.envelope for node in places[0].store.graph.order]
    attested(places)
    a = places[0]
    a.prune(*places)
    items = len(a.journal.items)

    assert {result.outcome for result in a.ingest(*envelopes).results} == {Outcome.KNOWN}
    assert len(a.journal.items) == items


@pytest.mark.rule("R5.10.1", "R9.37")
@pytest.mark.parametrize("how", ["as written", "compacted", "behind the old", "all signatures"])
def test_a_pruned_store_reopens_as_it_was_and_its_state_can_be_rebuilt(how):
    places = history()
    attested(places)
    a = places[0]
    a.prune(*places)
    floating = made(a.node, NOW, prev=b"\x01" * 32)
    a.ingest(floating)
    before = (a.reads, a.names, a.whole, a.store.settlement, a.store.log.last_hash, a.store.fingerprint)
    size = sum(map(len, a.journal.items))
    if how != "as written":
        kept = a.journal.items if how == "behind the old" else []
        a.journal.items = [*kept, *compacted(a.store)]
    if how == "all signatures":
        a.options["check"] = SignatureCheck.EVERY
    a.restart()

    assert (
        a.reads,
        a.names,
        a.whole,
        a.store.settlement,
        a.store.log.last_hash,
        a.store.fingerprint,
    ) == before
    assert len(a.store.floating) == 1
    if how == "compacted":
        assert sum(map(len, a.journal.items)) < size / 2
    # It goes on as any other.
    a.put(b"after")
    first, second, _ = sync(a, places[1])
    assert first.phase is second.phase is SessionPhase.FINISHED
    a.restart()
    assert len(a.names) == len(before[1]) + 1


@pytest.mark.rule("R5.10.1")
def test_every_changed_byte_of_what_pruning_left_is_found():
    places = history(writes=20)
    attested(places)
    a = places[0]
    a.prune(*places)
    good = compacted(a.store)
    rng = random.Random(1)
    for number, item in enumerate(good):
        for at in rng.sample(range(len(item)), 3):
            bad = item[:at] + bytes((item[at] ^ 1 << rng.randrange(8),)) + item[at + 1 :]
            a.journal.items = [*good[:number], bad, *good[number + 1 :]]
            with pytest.raises((Corrupt, Rejected)):
                a.open()
    a.journal.items = good
    a.open()


def test_a_settlement_that_somebody_else_signed_or_about_other_history_is_refused():
    places = history(writes=20)
    attested(places)
    a, b = places[:2]
    a.prune(*places)
    done = a.store.settlement
    assert Settlement.decode(done.encode()) == done
    for change in (
        {"seq": done.seq - 1},
        {"kept": done.kept[1:]},
        {"digest": bytes(32)},
        {"frontier": NO_FRONTIER},
    ):
        assert not done._replace(**change).is_signed_by(a.node.public, STORE)
    assert not done.is_signed_by(b.node.public, STORE)
    assert not done.is_signed_by(a.node.public, bytes(16))


@pytest.mark.rule("R5.10.2", "R5.8.1")
def test_nodes_that_pruned_and_nodes_that_did_not_compare_what_lies_behind_both_frontiers():
    places = history()
    attested(places)
    a, b, c = places
    a.prune(*places)
    for place in (a, b, c):
        place.put(b"new %d" % place.node.public[0])
    both = [one.inventory.behind(other.store.frontier).fold() for one, other in ((a, b), (b, a))]
    assert [fold.size for fold in both] == [len(a.names) - len(settled(a))] * 2
    whole = b.names | a.names | c.names
    first, second, line = sync(b, a)

    assert first.phase is second.phase is SessionPhase.FINISHED
    assert a.names == b.names
    assert (first.tally.asked, second.tally.asked) == (1, 1)
    assert a.inventory.behind(a.inventory.frontier).fold(FULL).size < len(a.names) / 2
    attested([a, b, c])
    b.prune(*places)
    assert b.store.frontier != a.store.frontier
    c.put(b"newest")
    for one, other in ((a, b), (b, c), (c, a)):
        first, second, _ = sync(one, other)
        assert first.phase is second.phase is SessionPhase.FINISHED
    assert a.names == b.names == c.names > whole
    assert a.reads == b.reads == c.reads
    assert line.messages < 30


@pytest.mark.rule("R5.10.1")
def test_what_was_pruned_is_not_served_and_a_clone_is_told_to_take_the_snapshot():
    places = history()
    attested(places)
    a, newcomer = places[0], Writer(9)
    a.prune(*places)
    gone = next(node for node in a.store.graph.order if node.is_settled)

    assert a.envelopes(gone.hash) == []
    reply = serve_chain(a.inventory, ChainRequest(gone.hash, b"\x01" * 32))
    assert reply.ending is Ending.UNKNOWN
    *_, refusal = serve_bootstrap(a.inventory, BootstrapRequest(1, 1000))
    assert isinstance(refusal, Refusal)
    clone = Clone(newcomer.inventory, newcomer.clock, server=a.node.public, options=OPTIONS)
    clone.open()
    for message in serve_bootstrap(a.inventory, BootstrapRequest(1, 1000)):
        clone.receive(message)
    assert "ask for the snapshot" in clone.reason


@pytest.mark.rule("R5.10.1", "R5.10.2", "R9.35", "R9.37")
@pytest.mark.parametrize("known", [0, 5, 20], ids=["newcomer", "long away", "away"])
def test_a_node_behind_the_frontier_takes_the_snapshot_and_is_equal_again(known):
    places = history()
    attested(places)
    a, late = places[0], Writer(9)
    if known:
        late.ingest(*[node.envelope for node in a.store.graph.order[:known]])
        late.put(b"written while away", b"mine")
        late.put(b"key 1", b"mine too")
    a.prune(*places)
    a.put(b"after")
    first, second, _ = sync(late, a)

    assert (first.phase, second.phase) == (SessionPhase.NEEDS_SNAPSHOT, SessionPhase.PEER_NEEDS_SNAPSHOT)
    brought = adopt_snapshot(late.store, snapshot(a.store), a.node.public, late.clock.now_ms())
    late.weaver.state.project()
    assert brought == len(a.names) - 1 - known
    assert late.store.frontier == a.store.frontier
    first, second, _ = sync(late, a)
    assert first.phase is second.phase is SessionPhase.FINISHED
    assert late.names == a.names
    assert late.reads == a.reads
    assert a.weaver.state.digest() == late.weaver.state.digest()
    late.restart()
    assert late.reads == a.reads
    assert all(record.store_id == STORE for record in late.store.records(1, 10))
    if known:
        assert a.weaver.get(b"written while away").value == b"mine"


@pytest.mark.rule("R5.10.1")
def test_what_floats_for_something_settled_is_witnessed_with_the_snapshot():
    places = history()
    attested(places)
    a, late = places[0], Writer(9)
    a.put(b"after")
    newest = a.store.graph.order[-1].envelope
    middle = a.store.graph.order[-4].envelope
    late.ingest(newest, middle)
    a.prune(*places)
    assert len(late.store.floating) == 2
    adopt_snapshot(late.store, snapshot(a.store), a.node.public, late.clock.now_ms())

    assert len(late.store.floating) == 0
    late.restart()
    assert late.names == a.names


@pytest.mark.rule("R9.34")
def test_a_snapshot_that_was_changed_or_is_another_nodes_is_refused_and_changes_nothing():
    places = history(writes=15)
    attested(places)
    a, b = places[:2]
    a.prune(*places)
    good = snapshot(a.store)
    assert snapshot(b.store) == []
    rng = random.Random(2)
    late = Writer(9)
    items = list(late.journal.items)
    changed = [[*good[:n], *good[n + 1 :]] for n in range(len(good))]
    for number, item in enumerate(good):
        at = rng.randrange(len(item))
        bad = item[:at] + bytes((item[at] ^ 1 << rng.randrange(8),)) + item[at + 1 :]
        changed.append([*good[:number], bad, *good[number + 1 :]])
    for given_items in [*changed, [], compacted(a.store)[:3]]:
        with pytest.raises((Corrupt, Rejected)):
            adopt_snapshot(late.store, given_items, a.node.public, late.clock.now_ms())
    with pytest.raises(Corrupt, match="not of this store and that peer"):
        adopt_snapshot(late.store, good, b.node.public, late.clock.now_ms())

    assert late.journal.items == items
    assert late.names == set()


def test_a_stalled_projection_holds_pruning_back():
    places = history(writes=5)
    attested(places)
    a = places[0]
    a.ingest(made(Place(7).node, NOW, ops=b"\xff unknown"))

    with pytest.raises(Rejected, match="stalled"):
        a.prune(*places)


@pytest.mark.rule("R5.2.10", "R5.10.1")
def test_both_sides_of_an_equivocation_stay_as_evidence():
    places = history(writes=15)
    a = places[0]
    liar = Place(8).node
    root = made(liar, NOW, ops=encode_ops({b"l": b"0"}))
    a.ingest(root, *(made(liar, NOW + i, prev=root, ops=encode_ops({b"l": b"%d" % i})) for i in (1, 2)))
    exchange_all(*places)
    for place in places:
        place.put(b"l", b"settles it")
        exchange_all(*places)
    attested(places)
    a.prune(*places)

    (proof,) = a.store.proofs()
    assert proof.is_valid()
    a.journal.items = compacted(a.store)
    a.restart()
    assert a.store.proofs() == [proof]


def test_a_failed_write_of_the_settlement_leaves_the_history_whole():
    places = history(writes=10)
    attested(places)
    a = places[0]
    a.journal.fails = True
    with pytest.raises(Exception, match="told to fail"):
        a.prune(*places)
    a.journal.fails = False
    a.restart()

    assert a.whole == a.names
    assert a.store.frontier == NO_FRONTIER


@pytest.mark.rule("R9.37")
@settings(max_examples=6)
@given(st.integers(0, 10_000))
def test_writing_pruning_and_syncing_go_on_and_all_reads_stay_those_of_a_node_that_never_prunes(seed):
    rng = random.Random(seed)
    places = history(seed, writes=15)
    witness = places[-1]
    for _ in range(4):
        attested(places)
        for place in places[:-1]:
            if rng.random() < 0.6:
                place.prune(*places)
            if rng.random() < 0.5:
                place.journal.items = compacted(place.store)
            if rng.random() < 0.3:
                place.restart()
        for _ in range(rng.randrange(6)):
            place = rng.choice(places)
            value = None if rng.random() < 0.3 else rng.randbytes(4)
            place.put(b"key %d" % rng.randrange(6), value)
        exchange_all(*places)

        for place in places:
            assert place.names == witness.names
            assert place.reads == witness.reads


@pytest.mark.rule("R5.2.10", "R5.10.1")
@pytest.mark.parametrize("strict", [False, True], ids=["witnessed", "strict"])
def test_an_equivocation_whose_first_side_is_pruned_is_no_proof_and_no_harm(strict):
    places = [Writer(number, strict_linearity=strict) for number in (1, 2)]
    for i in range(6):
        for place in places:
            place.put(b"k", b"%d" % i)
            exchange_all(*places)
    attested(places)
    a = places[0]
    a.prune(*places)
    settled_node = next(n for n in a.store.graph.order if n.is_settled and n.prev is not None)
    liar = next(place.node for place in places if place.node.public == settled_node.author)
    report = a.ingest(made(liar, NOW + 99, prev=settled_node.prev.hash, ops=encode_ops({b"k": b"twice"})))

    assert report.results[0].outcome is (Outcome.EVIDENCE if strict else Outcome.WITNESSED)
    assert report.proofs == ()
    assert a.store.proofs() == []
    a.journal.items = compacted(a.store)
    a.restart()
    assert a.store.proofs() == []
    assert a.weaver.state.status.stall is None
