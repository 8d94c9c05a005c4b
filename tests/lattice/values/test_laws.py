"""The laws catch what breaks them: each planted lattice is wrong in one way."""

from __future__ import annotations

import pytest

from topics.lattice.values.algebra import MaxLattice
from topics.lattice.values.laws import (
    check_associates,
    check_commutes,
    check_deliveries,
    check_garbage,
    check_idempotent,
    check_inflates,
    check_laws,
    check_zero,
)


class Planted(MaxLattice):
    """Whole numbers with one operation replaced."""

    def __init__(self, join=None, *, zero=0, check=None):
        self._join, self._zero, self._check = join, zero, check

    def zero(self):
        return self._zero

    def join(self, own, other):
        return super().join(own, other) if self._join is None else self._join(own, other)

    def check_foreign(self, value):
        return super().check_foreign(value) if self._check is None else self._check(value)


def test_the_greatest_number_keeps_all_laws():
    check_laws(MaxLattice(), 3, 1, 2)
    check_deliveries(MaxLattice(), [[1, 2, 3], [3, 3, 1, 2]])
    check_garbage(MaxLattice(), 3, "x")


@pytest.mark.parametrize(
    ("lattice", "broken"),
    [
        (Planted(lambda a, b: a), lambda lattice: check_commutes(lattice, 1, 2)),
        (Planted(lambda a, b: (a + b) // 2), lambda lattice: check_associates(lattice, 1, 4, 9)),
        (Planted(lambda a, b: a + b), lambda lattice: check_idempotent(lattice, 1)),
        (Planted(lambda a, b: int(str(max(a, b)))), lambda lattice: check_idempotent(lattice, 1000)),
        (Planted(zero=5), lambda lattice: check_zero(lattice, 1)),
        (Planted(lambda a, b: (a + b) // 2), lambda lattice: check_inflates(lattice, 1, 5)),
        (Planted(lambda a, b: b), lambda lattice: check_deliveries(lattice, [[1, 2], [2, 1]])),
        (Planted(check=lambda value: True), lambda lattice: check_garbage(lattice, 1, "x")),
    ],
    ids=["commutes", "associates", "idempotent", "own-object", "zero", "inflates", "deliveries", "garbage"],
)
def test_a_broken_law_is_told_with_its_operands(lattice, broken):
    """Every check can fail."""
    with pytest.raises(AssertionError) as caught:
        broken(lattice)
    assert str(caught.value)
