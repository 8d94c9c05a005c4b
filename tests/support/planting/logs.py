"""Faults of the log: in front of a mark and behind the last, in one file and between files."""

from __future__ import annotations

from typing import Final

from tests.support.planting.ground import SEQ_AT, TOPIC_AT, Ground, Kind, Planted
from tests.support.sample_store import CLICKS, ORDERS
from topics.codec.log.layout import CHECKSUM_SIZE, FRAME_HEAD, pack_frame
from topics.codec.log.walheader import HEADER_SIZE
from topics.codec.primitives import U64
from topics.host.wal.archive import ARCHIVE_DIR
from topics.kernel.limits import U32_MAX

_UNKNOWN: Final = 255  # a frame type
_AGREE: Final = ("snapshot.agree", "*")  # an older snapshot needs more of the log


def flipped_bit(ground: Ground) -> Planted:
    """In a record that a mark covers."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=False)
    ground.flip(path, offset + FRAME_HEAD.size, offset + length)
    return Planted(kind="", file=path, check="wal.damage", topic=CLICKS, seq=seq)


def zeroed(ground: Ground) -> Planted:
    """A record that a mark covers, and that no disk has written."""
    seq, path, offset, length = ground.logged(ORDERS, absorbed=False)
    ground.edit(path, offset, bytes(length))
    return Planted(kind="", file=path, check="wal.damage", topic=ORDERS, seq=seq)


def of_another(ground: Ground) -> Planted:
    """A record that a mark covers, and in whose place lies one of a topic that was deleted: every checksum is right."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=False)
    ground.reseal(path, offset, length, TOPIC_AT, U64.pack(ground.gone_id()))
    return Planted(kind="", file=path, check="wal.damage", topic=CLICKS, seq=seq)


def half_written(ground: Ground) -> Planted:
    """A write that a mark covers has fewer records than its first frame says; each of them is whole."""
    path, offset, (length, _) = ground.write_of(CLICKS, frames=2)
    ground.recount(path, offset, length, U32_MAX)
    return Planted(kind="", file=path, check="wal.damage", also=(("wal.damage", path),))


def flipped_header(ground: Ground) -> Planted:
    path = ground.last_file(ground.shard_of(CLICKS))
    ground.flip(path, 0, HEADER_SIZE)
    also = (("wal.damage", "*"), ("wal.absorbed", path), ("tombstones", "*"))
    return Planted(kind="", file=path, check="wal.damage", also=also)


def file_removed(ground: Ground) -> Planted:
    """The one in which the newest snapshot was taken."""
    shard = ground.shard_of(ORDERS)
    place = next(one for one in ground.state.restored.kept[0].places if one.shard == shard)
    path = next(
        path for path, seen in ground.looks.items() if seen.file[1:] == (shard, place.file)
    )  # fmt: skip
    del ground.files[path]
    return Planted(kind="", file=path, check="wal.damage", also=(("wal.damage", "*"),))


def torn_tail(ground: Ground) -> Planted:
    """The first half of a write behind the last one."""
    path = ground.last_file(ground.shard_of(CLICKS))
    _, source, offset, length = ground.logged(CLICKS, absorbed=False)
    half = ground.files[source][offset : offset + length - CHECKSUM_SIZE]
    ground.edit(path, ground.looks[path].end, half)
    return Planted(kind="", file=path, check="wal.tail")


def of_a_newer_version(ground: Ground) -> Planted:
    """A whole frame of a type that nobody here knows, behind the last write."""
    path = ground.last_file(ground.shard_of(CLICKS))
    frame = pack_frame(
        _UNKNOWN, 0, ground.topic_id(CLICKS), 0, ground.state.recovered.catalog.high_ts, b"new"
    )
    ground.edit(path, ground.looks[path].end, frame)
    return Planted(kind="", file=path, check="newer")


def half_a_write(ground: Ground) -> Planted:
    """Whole records behind the last write, and fewer than the write says that they begin."""
    path = ground.last_file(ground.shard_of(CLICKS))
    source, offset, lengths = ground.write_of(CLICKS, frames=2)
    end, head = ground.looks[path].end, ground.topic(CLICKS).head_seq
    ground.edit(path, end, ground.files[source][offset : offset + sum(lengths)])
    ground.recount(path, end, lengths[0], 3)
    for seq, length in enumerate(lengths, head + 1):
        ground.reseal(path, end, length, SEQ_AT, U64.pack(seq))
        end += length
    return Planted(kind="", file=path, check="wal.tail", topic=CLICKS, seq=head + len(lengths))


def broken_mark(ground: Ground) -> Planted:
    """The mark that closes the log, which nothing covers."""
    path = ground.last_file()
    end = ground.looks[path].end
    ground.flip(path, end - CHECKSUM_SIZE, end)
    return Planted(kind="", file=path, check="wal.tail")


def absorbed(ground: Ground) -> Planted:
    """A record that is in a segment, in front of the newest snapshot's place."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=True)
    ground.flip(path, offset + FRAME_HEAD.size, offset + length)
    return Planted(kind="", file=path, check="wal.absorbed", topic=CLICKS, seq=seq, also=(_AGREE,))


def archived(ground: Ground) -> Planted:
    """A record of a file that is in the archive, too, as a move to another disk that was broken off leaves it."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=True)
    kept = ARCHIVE_DIR + path.removeprefix("wal")
    ground.files[kept] = ground.files[path]
    ground.flip(kept, offset + FRAME_HEAD.size, offset + length)
    return Planted(kind="", file=kept, check="archive", topic=CLICKS, seq=seq)


def another_in_the_segment(ground: Ground) -> Planted:
    """A record of the log that is whole, and other than the one in its segment."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=True)
    ground.reseal(path, offset, length, length - CHECKSUM_SIZE - 2, b"X")
    segment = ground.state.recovered.catalog.topics[ground.topic_id(CLICKS)].segments.holds(seq)
    assert segment is not None
    return Planted(
        kind="", file=ground.path(segment, topic=CLICKS), check="wal.segment", topic=CLICKS, seq=seq
    )


def twice(ground: Ground) -> Planted:
    """A record that is whole, with the seq of the one before it."""
    seq, path, offset, length = ground.logged(CLICKS, absorbed=False)
    ground.reseal(path, offset, length, SEQ_AT, U64.pack(seq - 1))
    also = (("wal.damage", path),)
    return Planted(kind="", file=path, check="wal.duplicate", topic=CLICKS, seq=seq - 1, also=also)


KINDS: Final[dict[str, Kind]] = {
    "wal.damage: a flipped bit": flipped_bit,
    "wal.damage: zeros": zeroed,
    "wal.damage: one of another topic": of_another,
    "wal.damage: half of a write": half_written,
    "wal.damage: a header": flipped_header,
    "wal.damage: a file is gone": file_removed,
    "newer: a frame of a type that nobody knows": of_a_newer_version,
    "wal.tail: a torn write": torn_tail,
    "wal.tail: half of a write": half_a_write,
    "wal.tail: the last mark": broken_mark,
    "wal.absorbed: a flipped bit": absorbed,
    "archive: a flipped bit": archived,
    "wal.segment: another record": another_in_the_segment,
    "wal.duplicate: another record": twice,
}
