"""What a reader is shown of a directory, before and after its repair."""

from __future__ import annotations

from topics.audit.recovery import read
from topics.audit.repair.repairing import repair
from topics.codec.log.frame import decode_frame
from topics.host.segments.reading import ExtentReader
from topics.kernel.errors import Corrupt
from topics.log.index import LIVE
from topics.log.reads.frames import extents_of
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy

STAMP = "20261121T120000Z"


def view(disk):
    """What a reader is shown, by topic: {seq: data, None if it cannot be had}, what is lost, floors and head."""
    state = read(disk, "a sample", same_boot=False)
    shown = {}
    for topic in state.topics.values():
        index = topic.index
        live = [at for at in range(index.start, index.stop) if index.flags[at] & LIVE]
        shown[topic.name] = (
            {index.seq_at(at): record(disk, topic, at) for at in live},
            merged((one.first, one.last) for one in index.lost),
            (topic.head_seq, topic.evict_floor, topic.delete_below, topic.ceiling, topic.epoch),
            index.past.ranges(),
        )
    return shown


def record(disk, topic, at):
    (extent,) = extents_of(topic, at, at + 1)
    try:
        view = decode_frame(ExtentReader(disk).read(extent), 0)
    except (Corrupt, OSError):
        return None
    return view.data if (view.topic_id, view.seq) == (topic.topic_id, topic.index.seq_at(at)) else None


def merged(ranges):
    """The ranges of seqs, ascending, as few as can be."""
    found = []
    for first, last in sorted(ranges):
        if found and found[-1][1] >= first - 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def mended(disk):
    return repair(disk, where="a sample", same_boot=False, stamp=STAMP)


def open_it(disk):
    return open_store(
        disk, ManualClock(1_700_100_000_000), SeededEntropy(9), where="a sample", machine_restarted=True,
        confirm=lambda _: None, options=StoreOptions(min_free_bytes=4096),
    )  # fmt: skip
