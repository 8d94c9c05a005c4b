"""The map of replicated topics: what one owner publishes under `queue` (replication 2.6).

A topic is there once it is written. Forking the map forks every topic and partition in it; its sync brings back what
was written in any of them.

An owner's topics travel in a signed slot, at `queue / owner / value / topic / partitions / id`. The owner writes
through a cursor there, on a fork as a rule, so that many offers cost one signature; everybody else reads what was
verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from topics.crypto.keys import KeyPair
from topics.kernel.ports import Clock
from topics.lattice.owners.authority import Authority, Owner
from topics.lattice.owners.owner import OwnerLattice, OwnSlot, Slots
from topics.lattice.owners.signed import Slot
from topics.lattice.queues.divergence import Divergence
from topics.lattice.queues.editor import Editor, Place
from topics.lattice.queues.handle import Handle
from topics.lattice.queues.lattice_topic import LatticeTopic
from topics.lattice.queues.topic_map import (
    TOPIC,
    TOPICS,
    Topics,
    TopicsCodec,
    check_name,
    divergences,
    names_of,
    newest_stamp_in,
    refuse_stale_topics,
)
from topics.lattice.values.algebra import admitted
from topics.lattice.values.cursor import Cursor, EntryStep, Mutex, Root
from topics.lattice.values.stamps import Deferral, is_future

REGION: Final = "queue"
_OWNERS: Final[Place] = ((REGION,),)  # where slots from the future wait; no topic has such a name


class LatticeTopics(Handle[Topics]):
    """All topics of one owner ("MQ" in the sources)."""

    def __init__(
        self,
        cursor: Cursor[Topics] | None = None,
        *,
        clock: Clock | None = None,
        editor: Editor | None = None,
        place: Place = (),
    ) -> None:
        """`place`: tells the maps of several owners apart that share an editor."""
        assert clock is None or editor is None, "the editor has a clock"
        super().__init__(
            Root(TOPICS) if cursor is None else cursor,
            TOPICS,
            editor=Editor(clock) if editor is None else editor,
            place=place,
        )

    def topic(self, name: str) -> LatticeTopic:
        """The topic of a name; it is in the map once it is written."""
        cursor = self._cursor.at(EntryStep(check_name(name), TOPIC))
        return LatticeTopic(name, cursor, editor=self.editor, place=self._place)

    def names(self) -> list[str]:
        """The names of the topics that are there, sorted."""
        return names_of(self.state)

    def fork(self, guard: Mutex | None = None) -> LatticeTopics:
        """A copy of the map with all its topics and partitions."""
        return LatticeTopics(self._cursor.fork(guard), editor=self.editor, place=self._place)

    def newest_stamp(self, value: Topics) -> int:
        return newest_stamp_in(value)

    def divergences_between(self, own: Topics, other: Topics) -> Iterable[Divergence]:
        return divergences(own, other)

    def refuse_stale_fork(self, *, forked: Topics, local: Topics, parent: Topics) -> None:
        refuse_stale_topics(forked=forked, local=local, parent=parent)


def owned_topics(authority: Authority, key: KeyPair | None = None) -> OwnerLattice[Topics]:
    """The lattice of all owners' topics; with a key, that owner's can be written."""
    return OwnerLattice(TOPICS, TopicsCodec(), region=REGION, authority=authority, key=key)


def topics_of(
    slots: Cursor[Slots[Topics]], lattice: OwnerLattice[Topics], owner: Owner, *, editor: Editor
) -> LatticeTopics:
    """One owner's topics. Each write signs the slot; work on a `fork` is signed once, by its sync."""
    return LatticeTopics(slots.at(OwnSlot(lattice, owner)), editor=editor, place=((REGION, owner),))


def merge_owners(
    slots: Cursor[Slots[Topics]], lattice: OwnerLattice[Topics], external: object, *, editor: Editor
) -> Slots[Topics]:
    """Merge a foreign map of slots, as far as it is authentic, and tell the editor where queues diverged.

    A slot from too far in the future waits, and is merged by a later call.
    """
    assert lattice.region == REGION
    now_ms = editor.now_ms()
    ready: dict[Owner, Slot[Topics]] = {}
    future: dict[Owner, Slot[Topics]] = {}
    told: list[Divergence] = []

    def take(own: Slots[Topics]) -> Slots[Topics]:
        for owner, slot in admitted(lattice, own, external).items():
            waits = editor.has_clock and is_future(newest_stamp_in(slot.value), now_ms)
            (future if waits else ready)[owner] = slot
        told.extend(_slot_divergences(own, ready))
        return lattice.join(own, ready)

    slots.update(take)
    editor.tell(told)
    waiting = _waiting(lattice, editor)
    for owner, slot in future.items():
        waiting.admit({owner: slot}, now_ms)
    for due in waiting.release(now_ms):  # judged again: a key may have been revoked meanwhile
        editor.tell(_slot_divergences(slots.get(), due))
        slots.merge(due)
    return slots.get()


def _waiting(lattice: OwnerLattice[Topics], editor: Editor) -> Deferral[Slots[Topics]]:
    waiting = editor.deferral(_OWNERS)
    if waiting is None:
        waiting = Deferral(lattice, _newest_in_slots)
        editor.defer_at(_OWNERS, waiting)
    return waiting


def _slot_divergences(own: Slots[Topics], others: Slots[Topics]) -> Iterator[Divergence]:
    for owner, slot in others.items():
        ours = own.get(owner)
        if ours is not None and ours != slot:
            yield from divergences(ours.value, slot.value)


def _newest_in_slots(slots: Slots[Topics]) -> int:
    return max((newest_stamp_in(slot.value) for slot in slots.values()), default=0)
