"""Forks go their own way until sync, and sync loses nothing, whoever wrote meanwhile (replication 1.4)."""

from __future__ import annotations

import pytest

from topics.codec.cell import CellMap
from topics.kernel.errors import WrongState
from topics.lattice.values.algebra import LwwLattice, MapLattice, MaxLattice, TupleLattice
from topics.lattice.values.cursor import EntryStep, PlainStep, PositionStep, Root

REGISTERS = MapLattice(LwwLattice())
DATABASES = MapLattice(REGISTERS)


def put(cursor, key, value, stamp):
    cursor.update(lambda now: {**now, key: (value, stamp)})


@pytest.mark.rule("R1.4.1")
def test_neither_side_sees_the_others_edits_before_sync():
    """The fork starts from the parent's value; after sync both hold both edits."""
    root = Root(REGISTERS, {"a": ("old", 1)})
    fork = root.fork()

    put(root, "p", "parent", 2)
    put(fork, "f", "fork", 2)

    assert fork.get() == {"a": ("old", 1), "f": ("fork", 2)}
    assert root.get() == {"a": ("old", 1), "p": ("parent", 2)}

    result = fork.sync()

    assert result == {"a": ("old", 1), "p": ("parent", 2), "f": ("fork", 2)}
    assert root.get() is result
    assert fork.get() is result


@pytest.mark.rule("R1.4.1")
def test_a_fork_is_used_again_after_sync():
    """It goes on from the result, and its next sync brings only what is new."""
    root = Root(REGISTERS)
    fork = root.fork()
    put(fork, "a", 1, 1)
    fork.sync()
    put(root, "b", 2, 2)
    put(fork, "c", 3, 3)

    assert set(fork.get()) == {"a", "c"}
    assert set(fork.sync()) == {"a", "b", "c"}
    assert fork.get() is root.get()


@pytest.mark.rule("R1.4.1")
def test_forks_nest():
    """An edit of the inner one reaches the root by two syncs, one at a time."""
    root = Root(REGISTERS)
    outer = root.fork()
    inner = outer.fork()
    put(inner, "i", "inner", 1)
    put(outer, "o", "outer", 1)

    inner.sync()

    assert set(outer.get()) == {"i", "o"}
    assert root.get() == {}
    assert set(outer.sync()) == set(root.get()) == {"i", "o"}


@pytest.mark.rule("R1.4.1")
def test_a_fork_of_a_map_holds_everything_below():
    """Work in two places below is one sync; a place inside a fork can be forked again."""
    root = Root(DATABASES)
    fork = root.fork()
    put(fork.at(EntryStep("users", REGISTERS)), "u", 1, 1)
    inner = fork.at(EntryStep("orders", REGISTERS)).fork()
    put(inner, "o", 2, 1)

    assert root.get() == {}
    inner.sync()
    assert root.get() == {}
    fork.sync()
    assert root.get() == {"users": {"u": (1, 1)}, "orders": {"o": (2, 1)}}
    assert root.at(EntryStep("missing", REGISTERS)).get() == {}


@pytest.mark.rule("R1.4.2")
def test_an_untouched_parent_takes_the_forks_value_as_it_is():
    """No join is computed: the very object is installed."""
    lattice = Watched(REGISTERS)
    root = Root(lattice, {"a": ("old", 1)})
    fork = root.fork()
    put(fork, "a", "new", 2)
    local = fork.get()

    assert fork.sync() is local
    assert root.get() is local
    put(fork, "a", "newer", 3)
    assert fork.sync() is root.get() is fork.get()
    assert lattice.joined == []


@pytest.mark.rule("R1.4.2", "R1.4.3", "R7.2")
def test_a_touched_parent_is_joined_with_the_fork_as_own():
    """The left operand is the fork's value, the right one the parent's."""
    lattice = Watched(REGISTERS)
    root = Root(lattice)
    fork = root.fork()
    put(root, "a", "parent", 1)
    put(fork, "a", "fork", 2)

    fork.sync()

    assert lattice.joined == [({"a": ("fork", 2)}, {"a": ("parent", 1)})]


@pytest.mark.rule("R1.4.3")
def test_on_merge_the_value_here_is_own():
    """On a root, on a fork and on a part; the literal text would let it win the tie."""
    lattice = Watched(REGISTERS)
    root = Root(lattice, {"a": ("here", 5)})
    incoming = {"a": ("there", 5)}

    fork = root.fork()
    root.merge(incoming)
    fork.merge(incoming)

    assert lattice.joined == [({"a": ("here", 5)}, incoming)] * 2
    assert lattice.merge_cad({"a": ("here", 5)}, incoming) == {"a": ("here", 5)}
    assert root.get() == fork.get() == incoming, "join decides the tie by value"


@pytest.mark.rule("R1.4.2")
def test_a_write_during_sync_is_not_lost():
    """It lands on the fork once its value was read: it is in the fork afterwards, and in the parent after the next."""
    lattice = Watched(REGISTERS)
    root = Root(lattice)
    fork = root.fork()
    put(root, "p", 1, 1)
    put(fork, "f", 1, 1)
    lattice.during = lambda: put(fork, "late", 1, 1)

    result = fork.sync()

    assert set(result) == set(root.get()) == {"p", "f"}
    assert set(fork.get()) == {"p", "f", "late"}
    assert set(fork.sync()) == set(root.get()) == {"p", "f", "late"}


@pytest.mark.rule("R1.4.2")
def test_a_sync_without_edits_takes_what_the_parent_has():
    """The parent keeps its very value: nothing is written, or signed, for nothing."""
    root = Root(REGISTERS, {"a": (1, 1)})
    fork = root.fork()
    put(root, "b", 2, 2)
    before = root.get()

    assert fork.sync() is before
    assert fork.get() is before


@pytest.mark.rule("R1.4.4")
def test_without_a_lattice_sync_overwrites_its_path_only():
    """Plain data inside a leaf: the last sync wins there, and the siblings stay."""
    root = Root(LwwLattice(), (CellMap({"name": "old", "note": 1}), 1))
    leaf = root.at(RegisterValue())
    name = leaf.at(PlainStep("name"))
    one, two = name.fork(), name.fork()
    one.update(lambda _: "one")
    two.update(lambda _: "two")
    leaf.at(PlainStep("note")).update(lambda _: 2)

    one.sync()
    assert two.sync() == "two"

    assert root.get() == (CellMap({"name": "two", "note": 2}), 1)
    assert name.lattice is None
    assert leaf.at(PlainStep("no")).at(PlainStep("where")).get() is None
    leaf.at(PlainStep("no")).at(PlainStep("where")).update(lambda _: 3)
    assert root.get()[0]["no"] == {"where": 3}
    with pytest.raises(WrongState, match="no map"):
        name.at(PlainStep("x")).update(lambda _: 1)


@pytest.mark.rule("R1.4.4")
def test_merge_bubbles_up_to_the_nearest_lattice():
    """What comes in at a plain path is joined where the data belongs to a lattice, as the whole with that path set."""
    lattice = Watched(LwwLattice())
    root = Root(MapLattice(lattice), {"k": (CellMap({"name": "a", "note": 1}), 1)})
    name = root.at(EntryStep("k", lattice)).at(RegisterValue()).at(PlainStep("name"))

    assert name.merge("b") == "b"
    assert lattice.joined == [
        ((CellMap({"name": "a", "note": 1}), 1), (CellMap({"name": "b", "note": 1}), 1)),
    ]
    assert name.merge("a") == "b", "the tie is decided by value, at the register"
    with pytest.raises(WrongState, match="plain data"):
        name.fork().merge("c")


@pytest.mark.rule("R1.4.6")
def test_root_sync_returns_the_current_value():
    """With nobody to persist it, and with somebody who stores the very object."""
    stored = []
    root = Root(REGISTERS, persist=lambda value: (stored.append(value), value)[1])
    put(root, "a", 1, 1)

    assert Root(REGISTERS, {"a": (1, 1)}).sync() == {"a": (1, 1)}
    assert root.sync() is root.get() is stored[0]


@pytest.mark.rule("R1.4.6")
def test_a_write_while_the_root_is_persisted_is_joined_again():
    """Neither it nor what persistence brought is lost."""

    def persist(value):
        put(root, "late", 1, 1)
        return {**value, "stored": (1, 1)}

    root = Root(REGISTERS, {"a": (1, 1)}, persist=persist)

    assert set(root.sync()) == set(root.get()) == {"a", "late", "stored"}


@pytest.mark.rule("R1.4.7")
def test_gc_is_refused_on_forks():
    """On a fork, on a part of one and on a fork of a part; a root and its parts take it. Nothing changes."""
    root = Root(DATABASES, {"db": {"a": (None, 1), "b": (1, 1)}})
    step = EntryStep("db", REGISTERS)
    fork = root.fork()

    for refusing in (fork, fork.fork()):
        with pytest.raises(WrongState, match="gc: refused on a fork"):
            refusing.shrink(lambda _: {})
    for refusing in (fork.at(step), root.at(step).fork()):
        with pytest.raises(WrongState, match="gc: refused on a fork"):
            refusing.shrink(lambda _: {})
    assert fork.get() is root.get()

    assert root.at(step).shrink(lambda now: {"b": now["b"]}) == {"b": (1, 1)}
    assert root.shrink(lambda _: {}) == {}


@pytest.mark.rule("R1.4.7")
def test_why_gc_is_refused_on_forks():
    """Planted with update: an idle parent takes the smaller value, a busy one brings everything back."""
    full = {"a": (None, 1), "b": (1, 1)}
    idle, busy = Root(REGISTERS, full), Root(REGISTERS, full)
    forks = idle.fork(), busy.fork()
    put(busy, "c", 1, 2)

    for fork in forks:
        fork.update(lambda now: {"b": now["b"]})
        fork.sync()

    assert set(idle.get()) == {"b"}
    assert set(busy.get()) == {"a", "b", "c"}


@pytest.mark.rule("R1.1.2", "R9.7")
@pytest.mark.parametrize("garbage", [None, "x", 1, {"k": "no register"}, {"k": ("v", -1)}, {True: ("v", 1)}])
def test_p7_garbage_merged_anywhere_changes_nothing(garbage):
    """The very object stays."""
    root = Root(DATABASES, {"db": {"a": (1, 1)}})
    part = root.at(EntryStep("db", REGISTERS))
    fork = part.fork()
    before, local = root.get(), fork.get()

    assert root.merge(garbage) is before
    assert part.merge(garbage) is before["db"]
    assert fork.merge(garbage) is local


def test_an_edit_that_changes_nothing_writes_nothing():
    """The whole keeps its identity, so an idle parent stays idle."""
    root = Root(TupleLattice(MaxLattice(), MaxLattice()), (1, 2))
    before = root.get()

    assert root.at(PositionStep(1, MaxLattice())).update(lambda now: max(now, 2)) == 2
    assert root.get() is before
    assert root.at(PositionStep(1, MaxLattice())).update(lambda _: 3) == 3
    assert root.get() == (1, 3)


def test_a_change_that_writes_to_its_own_cursor_is_caught():
    """What it wrote would be lost."""
    root = Root(MaxLattice(), 1)

    def change(now):
        root.update(lambda _: 5)
        return now + 1

    with pytest.raises(AssertionError, match="computed for"):
        root.update(change)


def test_a_guard_is_held_while_a_value_changes():
    """Each root and fork has its own, held for each read-change-write and for nothing else."""
    lattice = Watched(REGISTERS)
    above, below = Held(), Held()
    root = Root(lattice, guard=above, persist=lambda value: value)
    fork = root.fork(below)

    def change(guard):
        def changed(now):
            assert guard.held
            return {**now, "x": ("x", guard.times)}

        return changed

    root.update(change(above))
    root.merge({"m": (1, 1)})
    root.shrink(change(above))
    assert (above.times, below.times) == (3, 0)

    fork.update(change(below))
    fork.merge({"n": (1, 1)})
    lattice.during = lambda: (
        (above.held, below.held) == (True, False) or pytest.fail("sync holds only the parent")
    )
    fork.sync()
    assert (above.times, below.times) == (4, 3)
    root.sync()
    assert (above.times, below.times) == (5, 3)
    assert (above.held, below.held) == (False, False)


class Held:
    """A lock for one thread: it would have to wait for ever where it is taken twice."""

    def __init__(self):
        self.held, self.times = False, 0

    def __enter__(self):
        assert not self.held
        self.held = True
        self.times += 1

    def __exit__(self, *exception):
        self.held = False


class Watched:
    """A lattice that notes what is joined, and lets something happen meanwhile, once."""

    def __init__(self, lattice):
        self.zero, self.merge_cad, self.check_foreign = lattice.zero, lattice.merge_cad, lattice.check_foreign
        self._join = lattice.join
        self.joined = []
        self.during = None

    def join(self, own, other):
        self.joined.append((own, other))
        during, self.during = self.during, None
        if during is not None:
            during()
        return self._join(own, other)


class RegisterValue:
    """The step from a register to its value, which no lattice looks into."""

    lattice = None

    def get(self, whole):
        return whole[0]

    def put(self, whole, part):
        return part, whole[1]
