"""The plain lattices join, their ties are decided by value, and the literal text does not converge."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.lattice_values import GARBAGE, LATTICES, same
from topics.codec.cell import digest_of
from topics.lattice.values.algebra import (
    NEVER_WRITTEN,
    LwwLattice,
    MapLattice,
    MaxLattice,
    SetLattice,
    TupleLattice,
    absorbed,
    admitted,
    merged,
)
from topics.lattice.values.laws import (
    check_associates,
    check_commutes,
    check_deliveries,
    check_garbage,
    check_laws,
    check_mutator,
)

by_name = pytest.mark.parametrize("name", LATTICES)


@pytest.mark.rule("R1.1.1", "R9.1", "R9.2", "R9.3", "R9.4")
@pytest.mark.invariant("I-14")
@by_name
@given(data=st.data())
def test_p1_p2_p3_p4_any_three_values_keep_the_laws(name, data):
    """Commutative, associative, idempotent, inflationary, with zero and nil as identity."""
    lattice, values = LATTICES[name]
    a, b, c = (data.draw(values) for _ in range(3))

    check_laws(lattice, a, b, c, same=same)


@pytest.mark.rule("R9.6")
@by_name
@given(data=st.data())
def test_p6_any_delivery_ends_alike(name, data):
    """Every order of the same values, once or twice, gives the same bytes."""
    lattice, values = LATTICES[name]
    drawn = data.draw(st.lists(values, max_size=4))
    orders = [*itertools.permutations(drawn), [*drawn, *drawn]]

    check_deliveries(lattice, orders, same=same)


@pytest.mark.rule("R9.7", "R1.1.2")
@by_name
@given(data=st.data())
def test_p7_garbage_changes_nothing_and_never_raises(name, data):
    """Beside a value and in an empty slot."""
    lattice, values = LATTICES[name]
    state = data.draw(values)
    garbage = data.draw(
        st.sampled_from([*GARBAGE, *[other for key in LATTICES for other in _zeros(key, name)]])
    )

    if lattice.check_foreign(garbage) is False:
        check_garbage(lattice, state, garbage)
    else:
        assert same(lattice.join(lattice.zero(), garbage), garbage), "what passes must be a value"


def _zeros(key, name):
    return [] if key == name else [LATTICES[key][0].zero()]


@pytest.mark.rule("R1.1.2")
def test_garbage_is_told_from_values():
    """Not only accepted or refused alike: each is refused by the lattices whose shape it has not."""
    refused = {
        name: [garbage for garbage in GARBAGE if not lattice.check_foreign(garbage)]
        for name, (lattice, _) in LATTICES.items()
    }

    assert refused["max"] == GARBAGE
    assert refused["set"] == GARBAGE
    assert refused["lww"] == GARBAGE
    assert refused["tuple"] == GARBAGE
    assert refused["map"] == GARBAGE


@by_name
@given(data=st.data())
def test_values_pass_for_values(name, data):
    """What a replica sends is taken."""
    lattice, values = LATTICES[name]
    value = data.draw(values)

    assert lattice.check_foreign(value) is True
    assert same(absorbed(lattice, None, value), lattice.join(lattice.zero(), value))


@pytest.mark.rule("R1.1.3", "R8.3")
def test_a_tie_of_the_literal_text_never_ends_and_join_decides_it():
    """Two registers written in one millisecond: own wins on both sides for ever, or the larger canonical bytes."""
    lww = LwwLattice()
    p, q = ("p", 5), ("q", 5)

    assert lww.merge_cad(p, q) == p
    assert lww.merge_cad(q, p) == q
    with pytest.raises(AssertionError, match="commute"):
        check_commutes(_Literal(lww), p, q)

    assert lww.join(p, q) == lww.join(q, p) == q


@pytest.mark.rule("R1.1.3", "R8.2")
def test_a_map_whose_stamp_is_the_whole_states_does_not_associate():
    """One time for all keys: c's later time carries whoever met it first. A stamp for each key repairs it."""
    a, b, c = ({"k": "A"}, 1), ({"k": "B"}, 2), ({}, 3)

    with pytest.raises(AssertionError, match="associate"):
        check_associates(_OneStamp(), a, c, b)

    registers = MapLattice(LwwLattice())
    check_associates(registers, {"k": ("A", 1)}, {}, {"k": ("B", 2)})
    assert registers.join({"k": ("A", 1)}, {"k": ("B", 2)}) == {"k": ("B", 2)}


class _Literal:
    """A lattice whose join is the text of the documents."""

    def __init__(self, lattice):
        self.zero, self.join = lattice.zero, lattice.merge_cad


class _OneStamp:
    """Metadata as the literal rule and one stamp a state would merge it."""

    def join(self, own, other):
        first, second = (own, other) if own[1] >= other[1] else (other, own)
        return {**second[0], **first[0]}, first[1]


@pytest.mark.rule("R1.1.3")
@by_name
@given(data=st.data())
def test_without_ties_the_literal_text_is_the_join(name, data):
    """They differ in who wins a tie and in nothing else: of two values of which one is above, both give that one."""
    lattice, values = LATTICES[name]
    a, b = data.draw(values), data.draw(values)
    above = lattice.join(a, b)

    assert same(lattice.merge_cad(above, a), above)
    assert same(lattice.merge_cad(a, a), a)


def test_of_two_writes_in_one_millisecond_the_larger_value_stays():
    """Nil is smallest, so what was never written is below everything; 1 and True are not equal."""
    lww = LwwLattice()

    assert lww.join(("x", 0), NEVER_WRITTEN) == ("x", 0)
    assert lww.join((True, 5), (1, 5)) == (1, 5)
    assert type(lww.join((1, 5), (True, 5))[0]) is int
    assert lww.join(("b", 4), ("a", 5)) == ("a", 5)


def test_a_set_keeps_what_python_takes_for_equal_apart():
    """Members are found by digest."""
    cells = SetLattice()

    joined = cells.join(cells.of(1, True), cells.of(1.0, 1))

    assert list(joined) == [digest_of(1), digest_of(True), digest_of(1.0)]
    assert cells.check_foreign({digest_of(1): True}) is False, "a member under another one's digest"


def test_a_join_that_adds_nothing_is_the_own_object():
    """And one that does shares what did not change."""
    lattice = TupleLattice(MaxLattice(), MapLattice(LwwLattice()))
    own = (3, {"k": ("v", 5)})

    assert lattice.join(own, (2, {"k": ("u", 4)})) is own
    assert lattice.join(own, (4, {})) == (4, own[1])
    assert lattice.join(own, (4, {}))[1] is own[1]
    assert lattice.merge_cad(own, (2, {})) is own
    assert own == (3, {"k": ("v", 5)})


@pytest.mark.rule("R1.1.2")
def test_nil_is_the_identity_on_either_side():
    """Of no two sides comes none."""
    lattice = MaxLattice()

    assert merged(lattice, None, 3) == 3
    assert merged(lattice, 3, None) == 3
    assert merged(lattice, 3, 4) == 4
    assert merged(lattice, None, None) is None
    assert admitted(lattice, 3, "x") == 0
    assert absorbed(lattice, None, "x") == 0


@pytest.mark.rule("R9.5")
def test_p5_an_edit_that_moves_down_is_seen():
    """A register stamped by a clock that stepped back is lower than what it replaced."""
    lww = LwwLattice()

    check_mutator(lww, ("a", 5), ("b", 6))
    with pytest.raises(AssertionError, match="not upwards"):
        check_mutator(lww, ("a", 5), ("b", 4))
