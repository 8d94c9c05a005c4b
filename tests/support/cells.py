"""Strategies for cells, and the page's words for what a canonical form must do."""

from __future__ import annotations

from hypothesis import strategies as st

from topics.codec.cell import INT_MAX, INT_MIN, CellMap

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(INT_MIN, INT_MAX),
    st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("-inf")]),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.binary(max_size=6),
    st.sampled_from(["", "\x00", "a\x00", "a\x00ÿ", b"", b"\x00", b"\x00\xff", b"\xff\x00"]),
)
KEYS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=3)


def cell_maps(values):
    return st.lists(st.tuples(KEYS, values), max_size=4).map(CellMap)


CELLS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4).map(tuple), cell_maps(inner)),
    max_leaves=12,
)
