"""Adopting a cold tier: the operator says that this copy of a data directory goes on with it (storage 6, decision 26).

As a rule the notes `COLD` and `OWNER` say that the tier is of the directory's original. Where one of them is damaged or
gone, the names and sizes of the segments there must say it: those of another store are others.
"""

from __future__ import annotations

from topics.engine.apply import Catalog
from topics.host.cold.ownership import NOTE_FILE, are_notes_readable, own_tier
from topics.host.cold.segment_stores import OWNER_FILE, SegmentStore
from topics.host.directory.layout import read_format
from topics.host.directory.readstate import read_state
from topics.kernel.errors import invalid
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId


def adopt_tier(disk: Disk, store: SegmentStore, entropy: Entropy, *, where: str, same_boot: bool) -> int:
    """Adopt the tier for a directory that the caller owns. `same_boot`: the machine has not restarted since it was
    open. How many of its cold segments were found to be cut off or gone, if they were looked at.

    Raises:
        Rejected: the tier is another store's, or nothing says that it is this directory's.
        CannotOpen: no data directory.
        Corrupt: its state cannot be read.
        OSError: either fails; do it again.
    """
    if are_notes_readable(disk, store):
        own_tier(disk, store, entropy)
        return 0
    form = read_format(disk, where)
    catalog = Catalog() if form is None else read_state(disk, form, same_boot=same_boot).recovered.catalog
    wrong = _check_segments(store, catalog)
    own_tier(disk, store, entropy, fits=True)
    return wrong


def _check_segments(store: SegmentStore, catalog: Catalog) -> int:
    """See by names and sizes that what lies there is this directory's. How many of its segments there do not fit."""
    for segment in store.list():
        if not _may_be_ours(catalog, segment):
            raise invalid(
                "cold_dir",
                f"the segment of topic number {segment.topic_id} that begins with seq {segment.first_seq} in "
                f"{store.where} is not this directory's: the place is another store's, or another copy of this one has "
                "gone on there. If no other place is the right one, make a backup of the directory with --with-cold, "
                "restore that, and give it a cold directory of its own",
            )
    sizes = {
        SegmentId(topic_id, segment.first): segment.size
        for topic_id, topic in sorted(catalog.topics.items())
        for segment in topic.segments
        if segment.cold and segment.count
    }
    fitting = sum(store.exists(one, "data") and store.len(one, "data") == size for one, size in sizes.items())
    if not fitting:
        raise invalid(
            "cold_dir",
            f"{NOTE_FILE} in the directory or {OWNER_FILE} in {store.where} cannot be read, and no segment there has "
            f"the name and the size of one that this directory has in a cold tier (it has {len(sizes)}): name the "
            "right place. A directory that has none there takes an empty place by itself, once it is started with it",
        )
    return len(sizes) - fitting


def _may_be_ours(catalog: Catalog, segment: SegmentId) -> bool:
    """Whether this directory can have made a segment, which may be one that it needs no more."""
    topic = catalog.topics.get(segment.topic_id)
    if topic is None:
        return segment.topic_id < catalog.next_topic_id
    return segment.first_seq <= topic.head_seq
