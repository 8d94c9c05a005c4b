"""What docs/replication.md shows of lattices runs as it stands."""

from __future__ import annotations

import pathlib
import re

from tests.support.lattice_owners import Accounts, Registers, owners
from topics.lattice.values.algebra import LwwLattice, MapLattice
from topics.lattice.values.cursor import Root
from topics.testing.clock import ManualClock

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "replication.md"
SEED = bytes([1]) * 32  # Alice's, who may sign for #42
NOW = 1_700_000_000_000


def examples():
    """The Python of the page's first part, block by block."""
    part = PAGE.read_text(encoding="utf-8").split("\n## ")[1]
    assert part.startswith("Lattices\n")
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


def test_the_examples_of_the_page_run():
    """In the order they stand, with what the text says is there."""
    stamps, cursors, signed = examples()

    scene = {
        "lattice": MapLattice(LwwLattice()),
        "newest_stamp_in": lambda value: max((stamp for _, stamp in value.values()), default=0),
        "foreign": {"k": ("v", NOW + 5_000_000)},
        "state": {"k": ("u", NOW + 7)},
        "now_ms": NOW,
    }
    exec(stamps, scene)
    assert scene["stamp"] == NOW + 8
    assert scene["waiting"].release(NOW + 5_000_000) == [scene["foreign"]]

    scene = {"foreign": {"users": {"u2": ("Bob", 5)}, "bad": {"k": "no register"}}}
    exec(cursors, scene)
    assert scene["root"].get() == {"users": {"u1": ("Ada", NOW)}}, (
        "what is no value changes nothing, not even in part"
    )
    scene["foreign"].pop("bad")
    assert set(scene["root"].merge(scene["foreign"])["users"]) == {"u1", "u2"}

    peer = Root(owners())
    names = MapLattice(LwwLattice())
    scene = {
        "clock": ManualClock(), "accounts": Accounts(), "seed": SEED, "codec": Registers(), "peer": peer,
        "names": names, "Root": Root,
    }  # fmt: skip
    exec(signed, scene)
    assert peer.get()[42].value == {"u1": ("Ada", NOW)}
