"""Heads, winner, conflict, causal merge: the vectors, and the literal rule that depends on the order (8.7)."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weaving import NOW, A, B, C, D, Site, author, made, name_of
from topics.testing.journal import MemoryJournal
from topics.weaver.graph.heads import MISSING
from topics.weaver.model.hlc import HLC
from topics.weaver.state.ops import encode_ops
from topics.weaver.state.projection import open_state
from topics.weaver.weaver import Weaver

pytestmark = pytest.mark.rule("R10.6", "R11.34")

KEY = b"k"


def write(key, wall, value, **more):
    return made(key, NOW + wall, ops=encode_ops({KEY: value}), **more)


def view(site):
    return open_state(site.store, MemoryJournal())


def rust_rule(order, writes):
    """Heads as public code keeps them: direct citations replace, and the newcomer leads only if it beats heads[0]."""
    heads = []
    for name in order:
        hlc, cites = writes[name]
        heads = [head for head in heads if head not in cites]
        if not heads or hlc > writes[heads[0]][0]:
            heads.insert(0, name)
        else:
            heads.append(name)
    return heads


@pytest.mark.rule("R8.7", "R5.5.1", "R5.5.2", "R5.5.3", "R7.15", "R9.26")
def test_heads_do_not_depend_on_the_order():
    """8.7: A(50) B(30) C(40) are concurrent, D(35) cites A. The literal rule gives other heads and a stale value by
    order of arrival; by causality they are {B, C, D} and C wins, in every order (P26).
    """
    writes = {"A": (50, ()), "B": (30, ()), "C": (40, ()), "D": (35, ("A",))}
    assert rust_rule("ABCD", writes)[0] == "D"  # which is not the greatest
    assert rust_rule("ACBD", writes)[0] != rust_rule("ABCD", writes)[0]

    a, b, c = write(A, 50, b"a"), write(B, 30, b"b"), write(C, 40, b"c")
    d = write(D, 35, b"d", after=[a])
    for order in permutations((a, b, c, d)):
        site = Site()
        for each in order:
            site.ingest(each)
        found = view(site).inspect(KEY)
        assert {head.hash for head in found.heads} == {name_of(b), name_of(c), name_of(d)}
        assert found.heads[0].hash == name_of(c)
        assert found.value == b"c"
        assert found.conflicted


@pytest.mark.rule("R5.5.2", "R5.5.5")
def test_w16_same_stamp():
    """W16: the same HLC by two authors: the greater key wins in either order, both are heads, it is conflicted."""
    first, second = write(A, 0, b"a"), write(B, 0, b"b")
    expected = b"a" if A.public > B.public else b"b"

    for order in ((first, second), (second, first)):
        site = Site()
        for each in order:
            site.ingest(each)
        found = view(site).inspect(KEY)
        assert found.value == expected
        assert len(found.heads) == 2
        assert found.conflicted


@pytest.mark.rule("R5.5.2", "R5.2.10")
def test_same_stamp_by_one_author():
    """An equivocator may give two writes one stamp: the greater hash wins, in either order."""
    left, right = write(A, 0, b"l"), write(A, 0, b"r")
    expected = max((left, right), key=name_of)

    for order in ((left, right), (right, left)):
        site = Site()
        site.ingest(*order[:1])
        site.ingest(*order[1:])
        assert view(site).inspect(KEY).heads[0].hash == name_of(expected)
        assert len(view(site).inspect(KEY).heads) == 2


@pytest.mark.rule("R5.5.1")
def test_w17_a_write_that_cites_both():
    """W17: one head, no conflict."""
    first, second = write(A, 0, b"a"), write(B, 0, b"b")
    site = Site()
    site.ingest(first, second, write(C, 1, b"c", after=[first, second]))

    found = view(site).inspect(KEY)
    assert (found.value, found.conflicted, len(found.heads)) == (b"c", False, 1)


@pytest.mark.rule("R5.5.2", "R5.5.5")
def test_w18_w19_deletes_and_empty_values():
    """W18: a delete that cites the put leaves one head, a tombstone. W19: an empty value is there."""
    put = write(A, 0, b"a")
    site = Site()
    site.ingest(put, write(B, 1, None, after=[put]))

    found = view(site).inspect(KEY)
    assert (found.exists, found.value, found.tombstone, found.count) == (False, None, True, 1)
    site.ingest(write(C, 2, b""))
    found = view(site).inspect(KEY)
    assert (found.exists, found.value, found.tombstone, found.conflicted) == (True, b"", False, True)
    assert view(site).inspect(b"other") == MISSING


@pytest.mark.rule("R5.5.2")
def test_a_tombstone_can_lose():
    """A delete takes part like any write: a concurrent later put wins, and the delete stays as a head."""
    site = Site()
    site.ingest(write(A, 0, None), write(B, 1, b"b"))

    found = view(site).inspect(KEY)
    assert found.value == b"b"
    assert [head.value for head in found.heads] == [b"b", None]


@pytest.mark.rule("R5.5.2", "R5.5.6")
def test_w20_a_loser_after_the_winner():
    """W20: the winner stays, whenever the loser comes; the value of the loser is kept with it."""
    site = Site()
    site.ingest(write(A, 5, b"winner"))
    site.ingest(write(B, 1, b"loser"))

    found = view(site).inspect(KEY)
    assert [head.value for head in found.heads] == [b"winner", b"loser"]


@pytest.mark.rule("R5.5.3", "R5.1.3", "R9.30")
def test_below_is_transitive():
    """A write that cites only an empty merge node comes after the heads below that (P30)."""
    writes = [write(author(10 + i), i, b"%d" % i) for i in range(40)]
    site = Site(now_ms=NOW + 1000)
    site.ingest(*writes)
    weaver = Weaver(site.store, view(site), A)
    assert len(weaver.inspect(KEY).heads) == 40

    committed = weaver.put(KEY, b"merged")
    assert len(committed.envelopes) == 4
    found = weaver.inspect(KEY)
    assert [head.hash for head in found.heads] == [committed.hash]
    assert not found.conflicted
    other = Site(now_ms=NOW + 1000)
    other.ingest(*reversed(committed.envelopes), *writes)
    assert view(other).digest() == weaver.state.digest()


@pytest.mark.rule("R5.5.1")
def test_own_chain_is_citation_enough():
    """An author's later write of a key is above its earlier one, also where the condition does not say so."""
    first = write(A, 5, b"first")
    site = Site()
    site.ingest(first, write(A, 1, b"second", prev=first))

    assert [head.value for head in view(site).inspect(KEY).heads] == [b"second"]


@pytest.mark.rule("R5.5.4", "R11.35")
def test_a_batch_is_one_intention():
    """All of a batch or nothing, the last op on a key counts, and all heads of all its keys are cited."""
    site = Site()
    one, two = made(B, NOW, ops=encode_ops({b"x": b"1"})), made(C, NOW, ops=encode_ops({b"y": b"2"}))
    site.ingest(one, two)
    weaver = Weaver(site.store, view(site), A)
    committed = weaver.batch([(b"x", b"a"), (b"y", None), (b"x", b"b")])

    assert len(committed.envelopes) == 1
    assert {node.hash for node in site.store.node(committed.hash).condition} == {name_of(one), name_of(two)}
    assert weaver.get(b"x") == (b"b", False)
    assert weaver.get(b"y") == (None, False)
    assert len(weaver.inspect(b"y").heads) == 1


@st.composite
def histories(draw):
    """Writes of few keys by few authors, in an order that can be witnessed; equivocations among them."""
    envelopes, own = [], {}
    for i in range(draw(st.integers(1, 9))):
        number = draw(st.integers(0, 2))
        chain = own.setdefault(number, [])
        prev = bytes(32)
        if chain:
            prev = chain[-1] if draw(st.integers(0, 4)) else draw(st.sampled_from([bytes(32), *chain]))
        after = draw(st.lists(st.sampled_from(envelopes), max_size=2, unique=True)) if envelopes else []
        keys = draw(st.lists(st.sampled_from([b"x", b"y"]), max_size=2, unique=True))
        ops = encode_ops({key: draw(st.sampled_from([None, b"", b"v%d" % i])) for key in keys})
        each = made(
            author(10 + number), NOW + draw(st.integers(0, 3)), prev=prev, after=after, ops=ops, counter=i % 2
        )
        envelopes.append(each)
        chain.append(each)
    return list(dict.fromkeys(envelopes))


@pytest.mark.rule("R9.26", "R9.27", "R9.28", "R5.5.1", "R5.5.2", "R5.5.3", "R5.3.1")
@given(histories(), st.randoms(use_true_random=False))
def test_any_order_gives_one_state(envelopes, random):
    """P26, P27, P28: in any order and grouping the same intentions are witnessed, with the same heads, winners and
    fingerprint, by the definition; the log extends the order of causes; what floats is never seen.
    """
    site = Site()
    site.ingest(*envelopes)
    expected = view(site)
    shuffled = list(envelopes)
    random.shuffle(shuffled)
    other = Site(node=author(201))
    state = view(other)
    at = 0
    while at < len(shuffled):
        size = random.randint(1, 3)
        other.ingest(*shuffled[at : at + size])
        at += size
        state.project()
        assert len(other.store) + len(other.store.floating) == min(at, len(shuffled))
        floating = {float_.accepted.hash for float_ in other.store.floating}
        assert not floating & set(other.order)
        assert not any(head.hash in floating for key in (b"x", b"y") for head in state.inspect(key).heads)
    assert set(other.order) == set(site.order) == set(map(name_of, envelopes))
    assert other.store.fingerprint == site.store.fingerprint
    assert state.digest() == expected.digest()
    seen = set()
    for node in other.store.graph.order:
        assert {parent.hash for parent in node.parents} <= seen
        seen.add(node.hash)
    for key in (b"x", b"y"):
        assert state.inspect(key) == expected.inspect(key)
        assert_definition(key, state.inspect(key).heads, other.store.graph)


def assert_definition(key, heads, graph):
    """Writers of the key that are below no other writer; the winner is the greatest (HLC, author, hash)."""
    above = {}
    for node in graph.order:
        above[node.hash] = {node.hash}.union(*(above[parent.hash] for parent in node.parents))
    from topics.weaver.state.ops import decode_ops

    writers = [node for node in graph.order if any(op.key == key for op in decode_ops(node.ops))]
    expected = {
        node.hash
        for node in writers
        if not any(node.hash in above[other.hash] for other in writers if other is not node)
    }
    assert {head.hash for head in heads} == expected
    if heads:
        assert heads[0].hash == max(
            expected, key=lambda name: (graph.nodes[name].hlc, graph.nodes[name].author, name)
        )
        assert heads[0].hlc == HLC(*graph.nodes[heads[0].hash].hlc)


@pytest.mark.rule("R5.5.3", "R13.1")
def test_an_author_that_forks_at_every_step_is_affordable():
    """Every fork is a head for ever. Asking about each of them on each write takes no walk: it ends within the cap."""
    chain, forks = [write(A, 0, b"c")], []
    for i in range(700):
        forks.append(write(A, 1 + i, b"fork", prev=chain[-1]))
        chain.append(write(A, 1 + i, b"c", prev=chain[-1]))
    site = Site()
    site.ingest(*chain, *forks)

    found = view(site).inspect(KEY)
    assert {head.hash for head in found.heads} == {name_of(each) for each in [chain[-1], *forks]}
