"""Accepted, floating, witnessed: the vectors of replication 10 for the store, and its bounds."""

import pytest

from tests.support.weaving import NODE, NOW, STORE, A, B, C, Site, author, made, name_of
from topics.kernel.errors import Corrupt, Fatal, Rejected
from topics.weaver.model.bounds import Bounds
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import ZERO_HASH
from topics.weaver.store.floating import DependencyKind, MissingDep
from topics.weaver.store.intention_store import open_store
from topics.weaver.store.replay import SignatureCheck
from topics.weaver.store.report import Outcome

pytestmark = pytest.mark.rule("R10.6")

W, F, K = Outcome.WITNESSED, Outcome.FLOATING, Outcome.KNOWN


@pytest.mark.rule("R5.2.1")
def test_w7_twice_is_once():
    """W7: the same intention twice, in one batch or two, is one, and the second time writes nothing."""
    site = Site()
    one = made(A, NOW)

    assert site.outcomes(one, one) == [W, K]
    written = len(site.journal.items)
    assert site.outcomes(one) == [K]
    assert len(site.store) == 1
    assert len(site.journal.items) == written


@pytest.mark.rule("R5.2.3", "R5.2.5", "R11.29", "R11.31")
def test_w8_a_chain_from_its_end():
    """W8: i3, i2 wait; i1 brings all of them, in the order of the chain."""
    site = Site()
    one = made(A, NOW)
    two = made(A, NOW + 1, prev=one)
    three = made(A, NOW + 2, prev=two)

    assert site.outcomes(three) == [F]
    assert site.outcomes(two) == [F]
    assert len(site.store) == 0
    assert len(site.store.floating) == 2
    report = site.ingest(one)
    assert report.witnessed == tuple(map(name_of, (one, two, three)))
    assert len(site.store.floating) == 0


@pytest.mark.rule("R5.2.3", "R5.2.4", "R5.2.6")
def test_w9_a_condition_from_elsewhere():
    """W9: a condition that is missing makes it float; the arrival witnesses it. The zero hash is always there."""
    site = Site()
    one = made(A, NOW)
    two = made(B, NOW, after=[one, ZERO_HASH])

    report = site.ingest(two)
    assert report.results[0].outcome is F
    assert not report.is_applied
    assert report.missing == (MissingDep(name_of(one), ZERO_HASH, B.public, DependencyKind.CONDITION),)
    report = site.ingest(one)
    assert report.witnessed == (name_of(one), name_of(two))
    assert report.is_applied


@pytest.mark.rule("R5.2.6", "R11.31")
def test_missing_deps_name_what_nobody_has_sent():
    """A gap in a chain is told with the author's tip; what is here or named twice is not told again."""
    site = Site()
    one = made(A, NOW)
    two = made(A, NOW + 1, prev=one)
    three = made(A, NOW + 2, prev=two)
    four = made(A, NOW + 3, prev=three)
    other = made(B, NOW + 4, after=[two])
    site.ingest(one)

    report = site.ingest(four, three, other)
    assert report.missing == (MissingDep(name_of(two), name_of(one), A.public, DependencyKind.PREV),)
    assert site.store.missing() == list(report.missing)
    assert site.ingest(two).missing == ()
    assert site.store.missing() == []


@pytest.mark.rule("R5.2.4", "R9.28")
def test_w14_fingerprint():
    """W14: zero, then the hash, then the XOR of two; a float changes nothing; a restart neither (P28)."""
    site = Site()
    one = made(A, NOW)
    two = made(A, NOW + 1, prev=one)

    assert site.store.fingerprint == ZERO_HASH
    site.ingest(two)
    assert site.store.fingerprint == ZERO_HASH
    assert site.store.envelope(name_of(two)) is None
    assert name_of(two) not in site.store
    assert site.store.tip_of(A.public) == ZERO_HASH
    site.open()
    assert len(site.store.floating) == 1
    site.ingest(one)
    both = int.from_bytes(name_of(one)) ^ int.from_bytes(name_of(two))
    assert site.store.fingerprint == both.to_bytes(32)
    site.open()
    assert site.store.fingerprint == both.to_bytes(32)
    assert site.store.envelope(name_of(two)) == two


@pytest.mark.rule("R5.2.1", "R11.29")
def test_w21_refused_and_not_stored():
    """W21: another store's, one with a bad signature, nonsense: refused item by item, nothing is written."""
    site = Site()
    before = list(site.journal.items)
    foreign = made(A, NOW, store_id=b"\x01" * 16)
    forged = Envelope(made(A, NOW).body, made(A, NOW + 1).signature)
    report = site.ingest(foreign, forged, Envelope(b"nonsense", bytes(64)), Envelope(made(A, NOW).body, b""))

    assert [result.outcome for result in report.results] == [Outcome.REFUSED] * 4
    assert [type(result.error) for result in report.results] == [Rejected, Rejected, Corrupt, Rejected]
    assert "store_id" in str(report.results[0].error)
    assert "signature" in str(report.results[1].error)
    assert site.journal.items == before
    assert len(site.store) == 0


@pytest.mark.rule("R5.2.8")
def test_one_bad_item_leaves_the_others():
    """A batch is answered item by item."""
    site = Site()
    good, late = made(A, NOW), made(B, NOW, prev=b"\x07" * 32)
    forged = Envelope(made(C, NOW).body, bytes(64))

    assert site.outcomes(forged, good, late, good) == [Outcome.REFUSED, W, F, K]


@pytest.mark.rule("R5.2.7")
def test_following_another_author_is_refused_for_good():
    """A store_prev that is somebody else's is refused, at once or when it arrives."""
    site = Site()
    one = made(A, NOW)
    thief = made(B, NOW + 1, prev=one)

    assert site.outcomes(thief) == [F]
    report = site.ingest(one)
    assert report.dropped == (name_of(thief),)
    assert len(site.store) == 1
    again = site.ingest(thief)
    assert again.results[0].outcome is Outcome.REFUSED
    assert "store_prev" in str(again.results[0].error)
    waiting = made(B, NOW + 1, prev=one, after=[b"\x07" * 32])
    assert site.outcomes(waiting) == [Outcome.REFUSED]  # whatever else is missing
    site.open()
    assert len(site.store) == 1
    assert len(site.store.floating) == 0


@pytest.mark.rule("R5.2.9")
def test_ready_ones_go_in_order():
    """What one arrival sets free is witnessed by (HLC, author, hash), whatever order it came in."""
    first = made(A, NOW)
    waiting = [made(author(10 + i), NOW + wall, after=[first]) for i, wall in enumerate((5, 3, 5, 1, 3))]
    expected = sorted(waiting, key=lambda each: (each_hlc(each), each.body[:32], name_of(each)))

    for order in (waiting, waiting[::-1]):
        site = Site()
        site.ingest(*order)
        site.ingest(first)
        assert site.order == [name_of(first), *map(name_of, expected)]


def each_hlc(envelope):
    return int.from_bytes(envelope.body[32:40], "little")


@pytest.mark.rule("R5.2.9")
def test_floats_are_bounded_by_author():
    """An author's oldest float goes; others keep theirs; it can be fetched and sent again."""
    site = Site(bounds=Bounds(floats_per_author=3))
    chain = [made(A, NOW)]
    for i in range(1, 6):
        chain.append(made(A, NOW + i, prev=chain[-1]))
    other = made(B, NOW, after=[chain[0]])
    site.ingest(other)

    report = site.ingest(*chain[1:])
    assert [result.outcome for result in report.results] == [Outcome.CROWDED, Outcome.CROWDED, F, F, F]
    assert report.dropped == (name_of(chain[1]), name_of(chain[2]))
    assert len(site.store.floating) == 4
    site.open(bounds=Bounds(floats_per_author=3))
    assert len(site.store.floating) == 4
    assert len(site.ingest(chain[0], chain[1], chain[2]).witnessed) == 7


@pytest.mark.rule("R5.2.9")
def test_floats_are_bounded_in_all():
    """Made-up authors do not help: the oldest float of all goes."""
    site = Site(bounds=Bounds(floats=3))
    floats = [made(author(10 + i), NOW, prev=b"\x07" * 32) for i in range(5)]

    for each in floats:
        site.ingest(each)
    assert [float_.accepted.hash for float_ in site.store.floating] == list(map(name_of, floats[2:]))


@pytest.mark.rule("R5.2.9")
def test_floats_are_bounded_by_age():
    """After seven days a float goes, a millisecond earlier not; its age survives a restart."""
    site = Site()
    site.ingest(made(A, NOW, prev=b"\x07" * 32))
    site.open()
    site.clock.advance(Bounds().float_age_ms)
    assert site.store.expire() == ()
    site.clock.advance(1)
    assert len(site.store.expire()) == 1
    site.open()
    assert len(site.store.floating) == 0


@pytest.mark.rule("R5.2.10", "R7.14", "R11.41")
def test_equivocation():
    """Two children of one store_prev: both are witnessed, the author has two tips, and the proof convinces anybody."""
    first = made(A, NOW)
    left, right = made(A, NOW + 1, prev=first, ops=b"l"), made(A, NOW + 1, prev=first, ops=b"r")

    for order in ((left, right), (right, left)):
        site = Site()
        assert site.ingest(first, order[0]).proofs == ()
        (proof,) = site.ingest(order[1]).proofs
        assert proof.is_valid()
        assert (proof.author, proof.store_prev) == (A.public, name_of(first))
        assert {proof.first, proof.second} == {left, right}
        tips = {tip.hash for tip in site.store.graph.tips_of(A.public)}
        assert tips == {name_of(left), name_of(right)}
        site.open()
        assert site.store.proofs() == [proof]
        # The next honest write cites the other tip, and there is one chain again.
        committed = site.store.submit(A, b"")
        assert [tip.hash for tip in site.store.graph.tips_of(A.public)] == [committed.hash]


@pytest.mark.rule("R5.2.10")
def test_two_first_intentions_are_an_equivocation():
    """Zero is a store_prev like any other."""
    site = Site()

    assert len(site.ingest(made(A, NOW), made(A, NOW + 1)).proofs) == 1
    assert len(site.store.graph.tips_of(A.public)) == 2


@pytest.mark.rule("R5.2.10")
def test_a_proof_of_nothing_is_none():
    """The same twice, two authors, two predecessors, a forged signature: no proof."""
    site = Site()
    first = made(A, NOW)
    left, right = made(A, NOW + 1, prev=first, ops=b"l"), made(A, NOW + 1, prev=first, ops=b"r")
    (proof,) = site.ingest(first, left, right).proofs

    assert not proof._replace(second=proof.first).is_valid()
    assert not proof._replace(author=B.public).is_valid()
    assert not proof._replace(second=made(A, NOW + 1, prev=left)).is_valid()
    assert not proof._replace(second=made(B, NOW + 1, prev=first)).is_valid()
    assert not proof._replace(second=Envelope(proof.second.body, bytes(64))).is_valid()


@pytest.mark.rule("R5.2.10", "R7.14")
def test_strict_linearity_keeps_evidence():
    """With the option the second child is a proof and nothing else: not witnessed, not counted, remembered."""
    site = Site(strict_linearity=True)
    first = made(A, NOW)
    left, right = made(A, NOW + 1, prev=first, ops=b"l"), made(A, NOW + 1, prev=first, ops=b"r")
    site.ingest(first, left)
    report = site.ingest(right)

    assert report.results[0].outcome is Outcome.EVIDENCE
    assert report.proofs[0].is_valid()
    assert len(site.store) == 2
    assert site.outcomes(right) == [K]
    site.open()
    assert site.store.proofs() == list(report.proofs)
    assert site.outcomes(right) == [K]


@pytest.mark.rule("R5.7.1")
def test_a_segment_is_trusted_by_its_last_signature():
    """Fast mode: the tip is verified, links stand for the rest; a broken link refuses everything."""
    chain = [made(A, NOW)]
    for i in range(1, 5):
        chain.append(made(A, NOW + i, prev=chain[-1]))
    unsigned = [Envelope(each.body, bytes(64)) for each in chain[:-1]]

    site = Site()
    assert len(site.store.ingest_segment([*unsigned, chain[-1]]).witnessed) == 5
    site.open(check=SignatureCheck.EVERY)  # what was linked is not held to a signature
    assert len(site.store) == 5

    site = Site()
    for bad in (
        [*unsigned, Envelope(chain[-1].body, bytes(64))],
        [unsigned[0], unsigned[2], chain[3]],
        [*unsigned[:2], made(B, NOW + 9, prev=chain[1])],
    ):
        with pytest.raises(Rejected):
            site.store.ingest_segment(bad)
    assert len(site.store) == 0
    assert len(site.journal.items) == 1
    # By default every signature counts.
    assert site.outcomes(*unsigned, chain[-1]) == [Outcome.REFUSED] * 4 + [F]


@pytest.mark.rule("R5.1.3", "R9.30")
def test_many_parents_become_a_tree():
    """More than 16 parents: merge nodes without ops below the write, all in one atomic write, all above the parents."""
    for count, nodes in ((16, 1), (17, 2), (256, 17), (257, 18)):
        heads = [made(author(1 + i % 250), NOW + i) for i in range(count)]
        site = Site(now_ms=NOW + 10_000_000)
        site.ingest(*heads)
        before = site.journal.appends
        writer = author(255)
        committed = site.store.submit(writer, b"merged", map(name_of, heads))

        assert site.journal.appends == before + 1
        assert len(committed.envelopes) == nodes
        last = site.store.node(committed.hash)
        assert all(len(node.condition) <= 16 for node in site.store.graph.order)
        assert all(site.store.graph.is_ancestor(site.store.node(name_of(head)), last) for head in heads)
        assert [node.ops for node in site.store.graph.order[count:]] == [b""] * (nodes - 1) + [b"merged"]


@pytest.mark.rule("R5.1.2")
def test_a_local_write_keeps_the_limits():
    """Submitting is bound like ingesting; a refusal writes nothing and leaves the store in use."""
    site = Site()

    with pytest.raises(Rejected, match="ops"):
        site.store.submit(A, bytes(131_073))
    with pytest.raises(Rejected, match="not witnessed"):
        site.store.submit(A, b"", [b"\x07" * 32])
    assert len(site.journal.items) == 1
    site.store.submit(A, bytes(131_072))
    assert len(site.store) == 1


@pytest.mark.rule("R13.2")
def test_insert_and_witness_are_one_write():
    """One append a call, whatever cascades; and a journal that fails ends the store until it is opened again."""
    site = Site()
    one = made(A, NOW)
    two = made(A, NOW + 1, prev=one)
    site.ingest(two)
    before = site.journal.appends
    site.ingest(one)
    assert site.journal.appends == before + 1

    site.journal.fails = True
    with pytest.raises(Fatal):
        site.ingest(made(B, NOW))
    site.journal.fails = False
    with pytest.raises(Fatal, match="open the store again"):
        site.ingest(made(B, NOW))
    with pytest.raises(Fatal, match="open the store again"):
        site.store.submit(B, b"")
    site.open()
    assert site.outcomes(made(B, NOW)) == [W]


@pytest.mark.rule("R13.2", "R9.36")
def test_a_large_cascade_is_written_in_pieces_and_resumed():
    """A cascade of thousands is several writes; a crash between two of them is made good at the next opening, and
    what is found is the same as if nothing had happened.
    """
    chain = [made(A, NOW)]
    for i in range(1, 4200):
        chain.append(made(A, NOW + i, prev=chain[-1]))
    site = Site()
    site.ingest(*chain[1:])
    floating, appends = len(site.journal.items), site.journal.appends
    site.ingest(chain[0])
    assert site.journal.appends == appends + 2
    assert len(site.store) == 4200
    complete = site.store.fingerprint
    clock = site.store.clock

    site.journal.items = site.journal.items[: floating + 4096]
    site.open()
    assert len(site.store) == 4200
    assert site.store.fingerprint == complete
    assert site.store.clock == clock
    assert site.order == list(map(name_of, chain))
    site.open()
    assert site.store.fingerprint == complete


@pytest.mark.rule("R5.2.10")
def test_evidence_in_one_batch_is_read_back():
    """Both children in one batch, strict: what is written is in the order of what happened."""
    site = Site(strict_linearity=True)
    report = site.ingest(made(A, NOW, ops=b"l"), made(A, NOW, ops=b"r"))
    assert sorted(result.outcome.value for result in report.results) == ["evidence", "witnessed"]
    site.open()
    assert site.store.proofs() == list(report.proofs)


@pytest.mark.rule("R5.3.3")
def test_every_table_is_rebuilt_from_the_journal():
    """Order, tips, forks, vectors, floats and what they wait for, clock: all are folds of what was written."""
    site = Site()
    one = made(A, NOW)
    two = made(B, NOW + 1, after=[one])
    fork = [made(A, NOW + 2, prev=one, ops=ops) for ops in (b"l", b"r")]
    site.ingest(one, two, *fork, made(C, NOW, prev=b"\x07" * 32, after=[fork[0], b"\x08" * 32]))
    site.store.submit(B, b"", [name_of(fork[1])])

    def tables():
        store, graph = site.store, site.store.graph
        return (
            site.order,
            {key: {tip.hash for tip in graph.tips_of(key)} for key in graph.authors},
            store.proofs(),
            [(node.depth, node.generation, node.number, list(node.seen)) for node in graph.order],
            store.missing(),
            [(each.accepted, each.received_ms) for each in store.floating],
            [store.log.record(seq) for seq in range(1, len(store) + 1)],
            (store.clock, store.reference_ms, store.fingerprint, len(store.effective)),
        )

    before = tables()
    site.open()
    assert tables() == before


@pytest.mark.rule("R5.6.5", "R5.6.7")
def test_a_store_is_opened_as_what_it_is():
    """Another store id, type or node is refused; an empty journal is a fresh store."""
    site = Site()
    site.ingest(made(A, NOW))
    wanted = {"store_id": STORE, "node": NODE, "clock": site.clock}

    for wrong in ({"store_id": b"\x01" * 16}, {"kind": "log"}, {"node": A}):
        with pytest.raises(Rejected, match=next(iter(wrong))):
            open_store(site.journal, **wanted | wrong)
    with pytest.raises(Rejected, match="store_id"):
        open_store(site.journal, **wanted | {"store_id": b"short"})
    with pytest.raises(Rejected, match="kind"):
        open_store(site.journal, **wanted | {"kind": ""})
    site.journal.items.clear()
    assert len(site.open()) == 0
