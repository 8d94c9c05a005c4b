"""Columns are sorted alike with NumPy and without it, and what was said last of a seq counts."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from topics.audit.columnar.sorting import sort_by_one, sort_columns

U64S = st.one_of(st.integers(0, 5), st.integers(0, 2**64 - 1))


@given(st.lists(st.tuples(U64S, U64S), max_size=12))
def test_the_last_value_of_each_seq_counts(pairs):
    seqs, values = (array("Q", [pair[at] for pair in pairs]) for at in (0, 1))
    expected = sorted(dict(pairs).items())

    for sort in (sort_columns, sort_by_one):
        assert list(zip(*sort(seqs, values), strict=True)) == expected
    assert list(zip(seqs, values, strict=True)) == pairs


def test_what_is_in_order_is_not_copied():
    seqs, values = array("Q", [1, 2, 9]), array("Q", [3, 2, 1])

    assert sort_columns(seqs, values) == (seqs, values)
    assert sort_columns(seqs, values)[0] is seqs
