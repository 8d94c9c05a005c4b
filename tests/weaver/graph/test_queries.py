"""The graph and what can be asked of it, against a closure computed the slow way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.weaving import NOW, A, B, C, D, Site, author, closure, made, name_of
from topics.kernel.errors import Rejected
from topics.weaver.graph.queries import Dag, Edges
from topics.weaver.model.intention import ZERO_HASH

pytestmark = pytest.mark.rule("R10.6", "R5.5.7", "R11.40")


def woven(*envelopes):
    site = Site()
    site.ingest(*envelopes)
    return site.store.graph, [name_of(each) for each in envelopes]


def diamond():
    a = made(A, NOW)
    b, c = made(B, NOW + 1, after=[a]), made(C, NOW + 1, after=[a])
    return a, b, c, made(D, NOW + 2, after=[b, c])


def test_w10_diamond():
    """W10: d is last; the forks meet in a; the path holds both branches, then d."""
    graph, (a, b, c, d) = woven(*diamond())

    for edges in Edges:
        dag = Dag(graph, edges=edges)
        assert graph.order[-1].hash == d
        assert dag.find_lca(b, c) == dag.find_lca(c, b) == a
        assert dag.find_lca(d, c) == dag.find_lca(c, d) == c
        assert dag.path(a, d) == [*sorted([b, c]), d]
        assert dag.path(b, d) == [d]
        assert dag.branches([b, c]) == {b: [b], c: [c]}


def test_w10_by_one_author():
    """W10 by one author: along the author's own chain b is above c; by conditions alone they fork at a."""
    a = made(A, NOW)
    b = made(A, NOW + 1, prev=a, after=[a])
    c = made(A, NOW + 2, prev=b, after=[a])
    graph, (a, b, c, d) = woven(a, b, c, made(A, NOW + 3, prev=c, after=[b, c]))

    cited = Dag(graph, edges=Edges.CONDITION)
    assert cited.find_lca(b, c) == a
    assert cited.find_lca(d, c) == c
    assert cited.path(a, d) == [b, c, d]
    assert not cited.is_ancestor(b, c)
    assert Dag(graph).is_ancestor(b, c)
    assert Dag(graph).find_lca(b, c) == b


def test_w11_linear():
    """W11: path and ancestry along a line; self and zero are ancestors, an unknown hash is an error."""
    a = made(A, NOW)
    b = made(B, NOW + 1, after=[a])
    c = made(C, NOW + 2, after=[b])
    graph, (a, b, c, d) = woven(a, b, c, made(D, NOW + 3, after=[c]))

    for edges in Edges:
        dag = Dag(graph, edges=edges)
        assert dag.path(a, d) == [b, c, d]
        assert dag.path(ZERO_HASH, b) == [a, b]
        assert dag.path(d, d) == []
        assert dag.is_ancestor(a, d)
        assert not dag.is_ancestor(d, a)
        assert dag.is_ancestor(a, a)
        assert dag.is_ancestor(ZERO_HASH, a)
        for ask in (dag.is_ancestor, dag.find_lca, dag.path):
            with pytest.raises(Rejected, match="not witnessed"):
                ask(b"\x07" * 32, a)
            with pytest.raises(Rejected, match="not witnessed"):
                ask(a, b"\x07" * 32)
        with pytest.raises(Rejected, match="does not descend"):
            dag.path(d, a)


def test_disjoint_histories_have_no_common_ancestor():
    """Two roots that nothing joins."""
    graph, (a, b) = woven(made(A, NOW), made(B, NOW))

    with pytest.raises(Rejected, match="no common ancestor"):
        Dag(graph).find_lca(a, b)
    assert Dag(graph).find_lca(a, a) == a
    assert Dag(graph).branches([]) == {}


def test_walks_end_at_their_bound():
    """A question that would look at more nodes than allowed is refused."""
    chain = [made(A, NOW)]
    for i in range(1, 30):
        chain.append(made(A, NOW + i, prev=chain[-1], after=[chain[-1]]))
    other = made(B, NOW, after=[chain[0]])
    graph, names = woven(*chain, other)

    for edges in Edges:
        dag = Dag(graph, edges=edges, steps=10)
        with pytest.raises(Rejected, match="10 steps"):
            dag.find_lca(names[29], names[30])
        with pytest.raises(Rejected, match="10 steps"):
            dag.path(names[0], names[29])
        assert dag.path(names[20], names[29]) == names[21:30]
    with pytest.raises(Rejected, match="10 steps"):
        Dag(graph, edges=Edges.CONDITION, steps=10).is_ancestor(names[0], names[29])


@st.composite
def histories(draw, *, equivocate):
    """Intentions in an order that can be witnessed; with `equivocate`, any own earlier one may be followed."""
    made_, by_author = [], {}
    for i in range(draw(st.integers(1, 11))):
        number = draw(st.integers(0, 3))
        own = by_author.setdefault(number, [])
        prev = ZERO_HASH
        if own:
            prev = draw(st.sampled_from([ZERO_HASH, *own])) if equivocate else own[-1]
        after = draw(st.lists(st.sampled_from(made_), max_size=3, unique=True)) if made_ else []
        each = made(author(10 + number), NOW + i, prev=prev, after=after)
        made_.append(each)
        own.append(each)
    return made_


def compare_with_closure(envelopes):
    graph, names = woven(*envelopes)
    above = closure(envelopes, graph)
    dag = Dag(graph)
    for one in names:
        for other in names:
            expected = one in above[other]
            assert graph.is_ancestor(graph.nodes[one], graph.nodes[other]) == expected
            common = above[one] & above[other]
            if common:
                lowest = dag.find_lca(one, other)
                assert lowest == dag.find_lca(other, one)
                assert lowest in common
                assert not any(lowest in above[each] for each in common - {lowest})
            if expected:
                path = dag.path(one, other)
                between = {each for each in above[other] if one in above[each]} - {one}
                assert set(path) == between
                assert all(not (set(path[at:]) & above[each] - {each}) for at, each in enumerate(path))


@pytest.mark.rule("R5.5.3")
@given(histories(equivocate=False))
def test_vectors_are_the_closure(envelopes):
    """Below is the transitive closure of condition and store_prev, and so are LCA and path."""
    compare_with_closure(envelopes)


@pytest.mark.rule("R5.5.3", "R5.2.10", "R13.1")
@given(histories(equivocate=True))
def test_vectors_are_the_closure_for_equivocators(envelopes):
    """The same where authors have trees instead of chains."""
    compare_with_closure(envelopes)


@pytest.mark.rule("R5.5.3", "R5.2.10")
def test_many_branches():
    """An author with forty branches, some merged again, some cited by others: ancestry is still the closure."""
    envelopes = [made(A, NOW)]
    for i in range(40):
        envelopes.append(made(A, NOW + i, prev=envelopes[i // 3], ops=b"%d" % i))
    for i in range(8):
        envelopes.append(made(A, NOW + 50 + i, prev=envelopes[-1 - 3 * i], after=envelopes[20 - i : 22 - i]))
        prev = envelopes[-2] if i else bytes(32)
        envelopes.append(made(B, NOW + 50 + i, prev=prev, after=envelopes[30 + i : 32 + i]))
    compare_with_closure(envelopes)


def test_a_deeper_branch_hides_nothing():
    """Of two branches, citing the deeper one does not stand for what only the other has seen."""
    root = made(A, NOW)
    forks = [made(A, NOW + 1 + i, prev=root) for i in range(20)]
    other = made(B, NOW)
    for salt in range(4):  # the condition is sorted by hash: both orders come up
        seeing = made(A, NOW + 30, prev=forks[18], after=[other], ops=b"%d" % salt)
        deeper = made(A, NOW + 32, prev=made_prev(forks[19], salt), ops=b"deeper")
        last = made(C, NOW + 33, after=[seeing, deeper])
        compare_with_closure([root, *forks, other, seeing, made_prev(forks[19], salt), deeper, last])


def made_prev(fork, salt):
    return made(A, NOW + 31, prev=fork, ops=b"prev%d" % salt)


@pytest.mark.rule("R13.1")
def test_deep_histories_need_no_stack():
    """Thousands of generations are walked without recursion, by an equivocator's branches too."""
    fork = made(A, NOW)
    left, right = [made(A, NOW + 1, prev=fork, ops=b"l")], [made(A, NOW + 1, prev=fork, ops=b"r")]
    for i in range(2, 2000):
        left.append(made(A, NOW + i, prev=left[-1]))
    right += [made(A, NOW + 2, prev=right[0])]
    graph, names = woven(fork, *left, *right)

    assert graph.is_ancestor(graph.nodes[names[1]], graph.nodes[names[1999]])
    assert not graph.is_ancestor(graph.nodes[names[2000]], graph.nodes[names[1999]])
    assert len(Dag(graph).path(names[0], names[1999])) == 1999
