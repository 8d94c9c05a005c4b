"""Where a replicated value lives, and how work is done apart from it and brought back (replication 1.4).

A `Root` holds a value. A `Fork` starts from another cursor's value and goes its own way: neither sees the other's edits
until `sync`, which puts the fork's value into the parent if nobody touched it meanwhile, and else joins the two, the
fork's as own. A `PartCursor` is a place inside another cursor's value, reached by a `CursorStep`; reading and writing
it reads and writes the whole. All three can be forked, so forks nest, and a fork of a map holds everything below it.

A step may have no lattice (plain data inside a leaf). Then `sync` overwrites at that place and leaves the siblings
alone, and `merge` is left to the nearest place above that has one. A step into a signed slot signs once for each write,
so many edits on a fork and one sync cost one signature.

Edits only move up. What does not (gc) is a `shrink`, which a fork refuses: its sync would install the smaller value in
an idle parent and be undone by the join in a busy one, and nobody could say beforehand which.

There are no threads here. Who has some passes a `Mutex` (a lock) for each root and fork; it is held while a change is
computed, so a change must be pure, quick, and touch no cursor. One thread syncs a fork, many may write to it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, Generic, Protocol, TypeVar

from topics.codec.cell import Cell, CellMap
from topics.kernel.errors import WrongState
from topics.lattice.values.algebra import Lattice, MapKey, admitted

T = TypeVar("T")
W = TypeVar("W")
P = TypeVar("P")
V = TypeVar("V")


class Mutex(Protocol):
    """Mutual exclusion, as `threading.Lock` has it."""

    def __enter__(self) -> object: ...
    def __exit__(self, *exception: object) -> object: ...


class CursorStep(Protocol[W, P]):
    """The way from a whole to one of its parts."""

    @property
    def lattice(self) -> Lattice[P] | None:
        """How the part joins; None if it is plain data."""
        ...

    def get(self, whole: W) -> P:
        """The part; the zero of its kind if it is missing. The same object while the part is not written."""
        ...

    def put(self, whole: W, part: P) -> W:
        """The whole with another part there."""
        ...


class Cursor(ABC, Generic[T]):
    """A place that holds a value."""

    @property
    @abstractmethod
    def lattice(self) -> Lattice[T] | None:
        """How values here join; None for plain data inside a leaf."""

    @abstractmethod
    def get(self) -> T:
        """The value now."""

    @abstractmethod
    def update(self, change: Callable[[T], T]) -> T:
        """Replace the value by `change` of it, in one step, and give it back. The change must only move up."""

    @abstractmethod
    def merge(self, external: object) -> T:
        """Join what came from outside, the value here as own. What is no value changes nothing."""

    @abstractmethod
    def shrink(self, change: Callable[[T], T]) -> T:
        """`update` with a change that moves down (gc). Raises `WrongState` on a fork and inside one."""

    @property
    def is_forked(self) -> bool:
        """Whether this is a fork or a place inside one, so that what is written here may be thrown away."""
        return False

    def fork(self, guard: Mutex | None = None) -> Fork[T]:
        """A copy to work on; `sync` of it brings the work here."""
        return Fork(self, guard)

    def at(self, step: CursorStep[T, P]) -> PartCursor[T, P]:
        """The part that the step leads to."""
        return PartCursor(self, step)


class Root(Cursor[T]):
    """A value that stands by itself.

    `persist` is given the value at each `sync` and returns what it stored, which may be the same object or one that
    holds more; what is written meanwhile is joined to it.
    """

    def __init__(
        self,
        lattice: Lattice[T],
        value: T | None = None,
        *,
        guard: Mutex | None = None,
        persist: Callable[[T], T] | None = None,
    ) -> None:
        self._lattice: Final = lattice
        self._ref: Final = _Ref(lattice.zero() if value is None else value, guard)
        self._persist: Final = persist

    @property
    def lattice(self) -> Lattice[T]:
        return self._lattice

    def get(self) -> T:
        return self._ref.get()

    def update(self, change: Callable[[T], T]) -> T:
        return self._ref.update(change)

    def merge(self, external: object) -> T:
        return self._ref.update(_merging(self._lattice, external))

    def shrink(self, change: Callable[[T], T]) -> T:
        return self._ref.update(change)

    def sync(self) -> T:
        """Persist the value, if there is somebody to do it, and return the current one."""
        if self._persist is not None:
            current = self._ref.get()
            stored = self._persist(current)
            if not self._ref.compare_and_set(current, stored):
                self._ref.update(lambda now: self._lattice.join(now, stored))
        return self._ref.get()


class Fork(Cursor[T]):
    """A value apart from its parent, until `sync`."""

    def __init__(self, parent: Cursor[T], guard: Mutex | None = None) -> None:
        self.parent: Final = parent
        self._fork_point = parent.get()
        self._ref: Final = _Ref(self._fork_point, guard)

    @property
    def lattice(self) -> Lattice[T] | None:
        return self.parent.lattice

    def get(self) -> T:
        return self._ref.get()

    def update(self, change: Callable[[T], T]) -> T:
        return self._ref.update(change)

    def merge(self, external: object) -> T:
        if self.lattice is None:
            raise WrongState(
                "merge: a fork of plain data has no lattice; merge where the data belongs to one"
            )
        return self._ref.update(_merging(self.lattice, external))

    def shrink(self, change: Callable[[T], T]) -> T:  # noqa: ARG002  # whatever it is, it is refused
        raise WrongState("gc: refused on a fork, whose sync could bring everything back; call it on the root")

    @property
    def is_forked(self) -> bool:
        return True

    def sync(self, meet: Callable[[T, T], None] | None = None) -> T:
        """Bring the work to the parent and return what is there now, which is also what the fork goes on from.

        `meet` is told the fork's value and the parent's where work arrives; if it raises, nothing has happened.
        """
        local = self._ref.get()
        fork_point, lattice = self._fork_point, self.lattice

        def arrive(parent: T) -> T:
            if local is fork_point:
                return parent  # nothing was done here, so a signed parent is not signed again
            if meet is not None:
                meet(local, parent)
            if parent is fork_point or lattice is None:
                return local
            return lattice.join(local, parent)

        result = self.parent.update(arrive)
        self._fork_point = result
        if not self._ref.compare_and_set(local, result) and lattice is not None:
            self._ref.update(lambda now: lattice.join(now, result))
        return result


class PartCursor(Cursor[P], Generic[W, P]):
    """A place inside the value of another cursor."""

    def __init__(self, whole: Cursor[W], step: CursorStep[W, P]) -> None:
        self.whole: Final = whole
        self.step: Final = step

    @property
    def lattice(self) -> Lattice[P] | None:
        return self.step.lattice

    def get(self) -> P:
        return self.step.get(self.whole.get())

    def update(self, change: Callable[[P], P]) -> P:
        return self.step.get(self.whole.update(self._lifted(change)))

    def merge(self, external: object) -> P:
        if self.lattice is not None:
            return self.update(_merging(self.lattice, external))
        whole = self.whole.get()
        merged = self.whole.merge(self.step.put(whole, external))  # type: ignore[arg-type]  # the lattice above checks it
        return self.step.get(merged)

    def shrink(self, change: Callable[[P], P]) -> P:
        return self.step.get(self.whole.shrink(self._lifted(change)))

    @property
    def is_forked(self) -> bool:
        return self.whole.is_forked

    def _lifted(self, change: Callable[[P], P]) -> Callable[[W], W]:
        """The change of the part as a change of the whole. One that changes nothing writes (and signs) nothing."""

        def lifted(whole: W) -> W:
            old = self.step.get(whole)
            new = change(old)
            return whole if new is old else self.step.put(whole, new)

        return lifted


class EntryStep(Generic[V]):
    """The step to one key of a map of lattice values."""

    def __init__(self, key: MapKey, lattice: Lattice[V]) -> None:
        self.key: Final = key
        self._lattice: Final = lattice
        self._zero: Final = lattice.zero()

    @property
    def lattice(self) -> Lattice[V]:
        return self._lattice

    def get(self, whole: Mapping[MapKey, V]) -> V:
        return whole.get(self.key, self._zero)

    def put(self, whole: Mapping[MapKey, V], part: V) -> Mapping[MapKey, V]:
        return {**whole, self.key: part}


class PositionStep(Generic[V]):
    """The step to one position of a tuple of lattice values."""

    def __init__(self, index: int, lattice: Lattice[V]) -> None:
        assert index >= 0
        self.index: Final = index
        self._lattice: Final = lattice

    @property
    def lattice(self) -> Lattice[V]:
        return self._lattice

    def get(self, whole: tuple[V, ...]) -> V:
        return whole[self.index]

    def put(self, whole: tuple[V, ...], part: V) -> tuple[V, ...]:
        assert self.index < len(whole)
        return (*whole[: self.index], part, *whole[self.index + 1 :])


class PlainStep:
    """The step to one key of plain data: a map inside a leaf, which no lattice looks into."""

    lattice: Final = None

    def __init__(self, key: Cell) -> None:
        self.key: Final = key

    def get(self, whole: Cell) -> Cell:
        return whole.get(self.key) if isinstance(whole, Mapping) else None

    def put(self, whole: Cell, part: Cell) -> Cell:
        if not (whole is None or isinstance(whole, Mapping)):
            raise WrongState(
                f"no map is at this place but {type(whole).__name__}; nothing can be put into it"
            )
        pairs = [] if whole is None else list(whole.items())
        return CellMap([*pairs, (self.key, part)])


class _Ref(Generic[T]):
    """One value and its guard."""

    __slots__ = ("_guard", "_value")

    def __init__(self, value: T, guard: Mutex | None) -> None:
        self._value = value
        self._guard: Mutex = _Unguarded() if guard is None else guard

    def get(self) -> T:
        return self._value

    def compare_and_set(self, expected: T, value: T) -> bool:
        """Whether the value was still that object, and so became the new one."""
        with self._guard:
            if self._value is not expected:
                return False
            self._value = value
            return True

    def update(self, change: Callable[[T], T]) -> T:
        with self._guard:
            before = self._value
            value = change(before)
            assert self._value is before, "a change wrote to the cursor it was computed for"
            self._value = value
            return value


class _Unguarded:
    """The guard of a cursor that only one thread knows."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


def _merging(lattice: Lattice[T], external: object) -> Callable[[T], T]:
    """The change that joins what came from outside to the value here, as own."""
    return lambda own: lattice.join(own, admitted(lattice, own, external))
