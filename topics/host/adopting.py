"""Adopting a cold tier: the operator says that this copy of a data directory goes on with it (storage 6, decision 26).

As a rule the notes `COLD` and `OWNER` say that the tier is of the directory's original. Where one of them is damaged or
gone, the segments must say it: what lies there is held against the state and the index of the data directory, which
know of each segment its size, and of each record where it lies, how long it is and when it was written.

  For it:      a segment with records that the index has so; one is enough, no other store has such
  Against it:  a whole record that the index has otherwise, or a segment that this directory cannot have made
  Neither:     a segment that is damaged or gone. It is counted, and does not hold up the others
"""

from __future__ import annotations

from typing import Final

from topics.engine.apply import Catalog
from topics.host.coldframes import is_ours, whole_idx
from topics.host.coldowner import NOTE_FILE, adopt, are_notes_readable
from topics.host.layout import read_format
from topics.host.readstate import read_state
from topics.host.tiers import OWNER_FILE, SegmentStore
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId
from topics.log.segments import Segment

_ELSE: Final = (
    "If no other place is the right one, make a backup of the directory with --with-cold, restore that, and give it a "
    "cold directory of its own"
)


def adopt_tier(
    disk: Disk, store: SegmentStore, entropy: Entropy, *, where: str, inode: int, same_boot: bool
) -> int:
    """Adopt the tier for a directory that the caller owns. `inode`: of its LOCK; `same_boot`: the machine has not
    restarted since it was open. How many of its cold segments were found to be damaged or gone, if they were looked at.

    Raises:
        Rejected: the tier is another store's, or nothing says that it is this directory's.
        CannotOpen: no data directory.
        Corrupt: its state cannot be read.
        OSError: either fails; do it again.
    """
    if are_notes_readable(disk, store):
        adopt(disk, store, entropy, inode=inode)
        return 0
    form = read_format(disk, where)
    catalog = Catalog() if form is None else read_state(disk, form, same_boot=same_boot).recovered.catalog
    wrong = _prove(disk, store, catalog)
    adopt(disk, store, entropy, inode=inode, proved=True)
    return wrong


def _prove(disk: Disk, store: SegmentStore, catalog: Catalog) -> int:
    """See that what lies there is this directory's. How many of its segments there are damaged or gone."""
    for segment in store.list():
        if not _may_be_ours(catalog, segment):
            raise _anothers(store, segment)
    named = [
        (SegmentId(topic_id, segment.first), segment)
        for topic_id, topic in sorted(catalog.topics.items())
        for segment in topic.segments
        if segment.cold and segment.count
    ]
    found = [_look(disk, store, segment, known) for segment, known in named]
    for (segment, _), ours in zip(named, found, strict=True):
        if ours is False:
            raise _anothers(store, segment)
    if not any(found):
        raise invalid(
            "cold_dir",
            f"{NOTE_FILE} in the directory or {OWNER_FILE} in {store.where} cannot be read, and no segment there is "
            f"one that this directory has in a cold tier (it has {len(named)}): name the right place. A directory that "
            "has none there takes an empty place by itself, once it is started with it",
        )
    return found.count(None)


def _may_be_ours(catalog: Catalog, segment: SegmentId) -> bool:
    """Whether this directory can have made a segment, which may be one that it needs no more."""
    topic = catalog.topics.get(segment.topic_id)
    if topic is None:
        return segment.topic_id < catalog.next_topic_id
    return segment.first_seq <= topic.head_seq


def _look(disk: Disk, store: SegmentStore, segment: SegmentId, found: Segment) -> bool | None:
    """Whether the data there is this directory's; None if it does not tell. By its ends, and else by all of it."""
    idx = whole_idx(disk, segment, found)
    try:
        size = store.len(segment, "data")
    except FileNotFoundError:
        return None
    if idx is None:
        return None
    if size == found.size and all(
        is_ours(disk, segment, found, at, store.read_range(segment, "data", at, length))
        for at, length in ((idx.offsets[number], idx.lengths[number]) for number in (0, -1))
    ):
        return True
    data = store.read_range(segment, "data", 0, min(size, found.size))
    return is_ours(disk, segment, found, 0, data)


def _anothers(store: SegmentStore, segment: SegmentId) -> Rejected:
    return invalid(
        "cold_dir",
        f"the segment of topic number {segment.topic_id} that begins with seq {segment.first_seq} in {store.where} is "
        f"not this directory's: the place is another store's, or another copy of this one has gone on there. {_ELSE}",
    )
