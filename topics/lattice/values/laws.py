"""The laws of a lattice as plain functions, for tests and models of any value that joins (replication 1.1, 9).

Each raises `AssertionError` with the operands that break the law. `same` says when two values are equal; the default is
their own `==`, and values that hold cells are compared by canonical bytes, for Python takes 1 for True. The names P1 to
P7 are those of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import eq
from typing import TypeVar

from topics.lattice.values.algebra import Lattice, absorbed, admitted, merged

T = TypeVar("T")


def check_laws(lattice: Lattice[T], a: T, b: T, c: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """All laws of `join` on three values: P1, P2, P3, P4, inflation, and "is" where nothing changes."""
    check_commutes(lattice, a, b, same=same)
    check_associates(lattice, a, b, c, same=same)
    for value in (a, b, c):
        check_idempotent(lattice, value, same=same)
        check_zero(lattice, value, same=same)
    check_inflates(lattice, a, b, same=same)


def check_commutes(lattice: Lattice[T], a: T, b: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """P1: the order of operands does not matter."""
    left, right = lattice.join(a, b), lattice.join(b, a)
    assert same(left, right), (
        f"join does not commute: {a!r} with {b!r} gives {left!r}, the other way {right!r}"
    )


def check_associates(lattice: Lattice[T], a: T, b: T, c: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """P2: neither does the grouping."""
    left = lattice.join(lattice.join(a, b), c)
    right = lattice.join(a, lattice.join(b, c))
    assert same(left, right), f"join does not associate on {a!r}, {b!r}, {c!r}: {left!r} or {right!r}"


def check_idempotent(lattice: Lattice[T], a: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """P3: nor does repetition, and the value comes back as it is."""
    joined = lattice.join(a, a)
    assert same(joined, a), f"join of {a!r} with itself gives {joined!r}"
    assert joined is a, f"join of {a!r} with itself makes a new value"


def check_zero(lattice: Lattice[T], a: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """P4: zero and nil add nothing, on either side."""
    zero = lattice.zero()
    assert lattice.join(a, zero) is a, f"{a!r} with zero makes a new value"
    assert same(lattice.join(zero, a), a), f"zero with {a!r} is not {a!r}"
    assert merged(lattice, a, None) is a
    assert merged(lattice, None, a) is a


def check_inflates(lattice: Lattice[T], a: T, b: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """A join is above both operands: joining either again changes nothing."""
    joined = lattice.join(a, b)
    for operand in (a, b):
        assert lattice.join(joined, operand) is joined, f"{joined!r} is not above {operand!r}"
        assert same(lattice.join(operand, joined), joined), f"{operand!r} is not below {joined!r}"


def check_mutator(lattice: Lattice[T], old: T, new: T, *, same: Callable[[T, T], bool] = eq) -> None:
    """P5: an edit only moves up: the old value adds nothing to the new one."""
    joined = lattice.join(old, new)
    assert same(joined, new), f"the edit from {old!r} to {new!r} is not upwards: their join is {joined!r}"


def check_deliveries(
    lattice: Lattice[T], orders: Iterable[Sequence[T]], *, same: Callable[[T, T], bool] = eq
) -> None:
    """P6: all the given ways to deliver the same values (any order, any repetition) end in the same state."""
    results: list[T] = []
    for order in orders:
        state = lattice.zero()
        for value in order:
            state = lattice.join(state, value)
        results.append(state)
    for result in results[1:]:
        assert same(results[0], result), f"two deliveries differ: {results[0]!r} and {result!r}"


def check_garbage(lattice: Lattice[T], state: T, garbage: object) -> None:
    """P7: what is no value is said to be none without raising, and changes nothing."""
    assert lattice.check_foreign(garbage) is False, f"{garbage!r} passes for a value"
    assert absorbed(lattice, state, garbage) is state
    empty = lattice.join(lattice.zero(), admitted(lattice, lattice.zero(), garbage))
    assert lattice.join(state, empty) is state, f"{garbage!r} left something in an empty slot"
