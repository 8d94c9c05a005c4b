"""What became of what others have sent, and what is deferred until this node's clock comes near."""

from __future__ import annotations

import attrs

from topics.codec.cell import Cell
from topics.kv.entries.entry import visible
from topics.kv.entries.store import KeyedEntry
from topics.kv.entries.wire import TYPE_NAMES
from topics.kv.operations.keys import rendered
from topics.lattice.owners.authority import Owner


@attrs.frozen
class DeferredWrite:
    """A write from the future: its key, what a read would show of it, its stamp, and when the clock will have come near
    enough for it to be merged. `type` and `value` are None for a delete. Times in milliseconds.
    """

    key: str
    type: str | None
    value: Cell
    stamp: int
    due_ms: int


@attrs.frozen
class Refused:
    """Something of an owner that was not taken in, and why. `owner` is what stood in the place of one."""

    owner: object
    why: str


@attrs.frozen
class MergeReport:
    """Of one merge. `accepted`: the other owners whose good replicas hold the database; their number is what
    replication 3.6 counts. `deferred`: what of them waits for this node's clock. `refused`: what was not taken.
    """

    accepted: tuple[Owner, ...] = ()
    deferred: tuple[DeferredWrite, ...] = ()
    refused: tuple[Refused, ...] = ()


def deferred_write(keyed: KeyedEntry, max_drift_ms: int) -> DeferredWrite:
    """The write as it is listed."""
    view, newest = visible(keyed.entry), keyed.entry.newest
    assert view.utime <= newest
    name = None if view.tag is None else TYPE_NAMES[view.tag]
    return DeferredWrite(
        keyed.key, name, None if name is None else rendered(view), newest, newest - max_drift_ms
    )
