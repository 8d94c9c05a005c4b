"""What a queue, a topic and a map of topics have in common: a value behind a cursor that forks, syncs and merges.

A merge compares before it joins and tells the editor where copies diverged. What comes from too far in the future waits
with the editor, under the handle's place, so that a fork that is thrown away takes nothing with it; it is merged by the
next merge, sync or `merge_due` of a handle that is no fork, once the clock has come near (replication 1.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Generic, TypeVar

from topics.kernel.errors import WrongState
from topics.lattice.queues.divergence import Divergence
from topics.lattice.queues.editor import Editor, Place
from topics.lattice.values.algebra import Lattice, admitted
from topics.lattice.values.cursor import Cursor, Fork, Root
from topics.lattice.values.stamps import Deferral, is_future

T = TypeVar("T")


class Handle(ABC, Generic[T]):
    """A cursor, the lattice of its value, and who edits it."""

    def __init__(self, cursor: Cursor[T], lattice: Lattice[T], *, editor: Editor, place: Place) -> None:
        assert cursor.lattice is not None, "plain data inside a leaf does not join"
        self._cursor: Final = cursor
        self._lattice: Final = lattice
        self._place: Final = place
        self._forked = cursor.get()
        self.editor: Final = editor

    @property
    def state(self) -> T:
        """The value now: immutable, to be read, joined, sent."""
        return self._cursor.get()

    @abstractmethod
    def newest_stamp(self, value: T) -> int:
        """The latest time in a value."""

    @abstractmethod
    def divergences_between(self, own: T, other: T) -> Iterable[Divergence]:
        """What a merge of the two has to tell."""

    @abstractmethod
    def refuse_stale_fork(self, *, forked: T, local: T, parent: T) -> None:
        """Raises `NotLeader` if a fork appended to a queue that somebody else leads by now."""

    def merge(self, external: object) -> T:
        """Join what came from outside: a value, the cells of one, or the value of another handle. What is none of these
        changes nothing.
        """
        if isinstance(external, Handle):
            external = external.state
        foreign = admitted(self._lattice, self.state, external)
        now_ms = self.editor.now_ms()
        if self.editor.has_clock and is_future(self.newest_stamp(foreign), now_ms):
            self._deferral().admit(foreign, now_ms)
        else:
            self._join(foreign)
        return self.merge_due()

    def merge_due(self) -> T:
        """Merge what was waiting for the clock and need not any more. A fork leaves it to the others."""
        deferral = self.editor.deferral(self._place)
        if deferral is not None and not self._cursor.is_forked:
            for foreign in deferral.release(self.editor.now_ms()):
                self._join(foreign)
        return self.state

    def waiting(self) -> int:
        """How many foreign values wait for the clock."""
        deferral = self.editor.deferral(self._place)
        assert deferral is None or self.editor.has_clock
        return 0 if deferral is None else len(deferral)

    def sync(self) -> T:
        """Bring a fork's work to its parent and go on from what is there; a root hands its value to its `persist`.

        Raises:
            NotLeader: the fork appended, and somebody else leads by now; nothing is brought, the fork keeps it.
            WrongState: a part of another value has no sync of its own; fork it, or sync what it is a part of.
        """
        cursor = self._cursor
        if isinstance(cursor, Fork):
            found: list[Divergence] = []

            def meet(local: T, parent: T) -> None:
                self.refuse_stale_fork(forked=self._forked, local=local, parent=parent)
                if parent is not self._forked:
                    found.extend(self.divergences_between(local, parent))

            synced: T = cursor.sync(meet)
            self.editor.tell(found)
            self._forked = synced
            return synced
        if isinstance(cursor, Root):
            self.merge_due()
            current: T = cursor.sync()
            return current
        raise WrongState("sync: this is a part of another value; sync that, or fork this to sync it alone")

    def take_divergences(self) -> list[Divergence]:
        """Where copies were found to differ since the last call, by any handle of this editor."""
        return self.editor.take_divergences()

    def _join(self, foreign: T) -> None:
        self.editor.tell(self.divergences_between(self.state, foreign))
        self._cursor.merge(foreign)

    def _deferral(self) -> Deferral[T]:
        found: Deferral[T] | None = self.editor.deferral(self._place)
        if found is None:
            found = Deferral(self._lattice, self.newest_stamp)
            self.editor.defer_at(self._place, found)
        return found
