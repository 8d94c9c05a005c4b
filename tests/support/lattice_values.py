"""Strategies for values of the plain lattices, and equality by canonical bytes."""

from __future__ import annotations

from hypothesis import strategies as st

from topics.codec.cell import encode_cell
from topics.lattice.values.algebra import LwwLattice, MapLattice, MaxLattice, SetLattice, TupleLattice

WORDS = st.sampled_from([None, False, True, 0, 1, 1.0, "a", "b", b"a", ("a", 1)])
STAMPS = st.integers(0, 4)  # few, so that they collide
REGISTERS = st.tuples(WORDS, STAMPS)
KEYS = st.sampled_from(["k", "l", b"k", 1])
REGISTER_MAPS = st.dictionaries(KEYS, REGISTERS, max_size=3)
MEMBERS = st.lists(WORDS, max_size=4).map(lambda words: SetLattice().of(*words))

LATTICES = {
    "max": (MaxLattice(), STAMPS),
    "lww": (LwwLattice(), REGISTERS),
    "map": (MapLattice(LwwLattice()), REGISTER_MAPS),
    "set": (SetLattice(), MEMBERS),
    "nested": (MapLattice(MapLattice(MaxLattice())), st.dictionaries(KEYS, st.dictionaries(KEYS, STAMPS))),
    "tuple": (
        TupleLattice(MaxLattice(), MapLattice(LwwLattice()), SetLattice()),
        st.tuples(STAMPS, REGISTER_MAPS, MEMBERS),
    ),
}

GARBAGE = [
    None, "x", b"x", 1.5, -1, True, 2**63, object(), (), ("a",), ("a", -1), ("a", 1.0), ("a", True), ([], 1),
    ("a", 1, 2),
    {"k": 1.5}, {True: ("a", 1)}, {("k",): ("a", 1)}, {2**64: ("a", 1)}, {"k": {"k": -1}}, {b"d" * 32: "a"}, [("a", 1)],
]  # fmt: skip


def same(a, b):
    """Equal as cells: 1 and True are not."""
    return encode_cell(a) == encode_cell(b)
