"""Faults of segments: records, their order, their flags, and the files that say what is in them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import Final

from tests.support.planting.ground import SEQ_AT, TOPIC_AT, TS_AT, Ground, Kind, Planted
from tests.support.sample_store import CAPPED, CLICKS, ORDERS
from topics.codec.log.layout import FRAME_LEN_SIZE
from topics.codec.primitives import U32, U64
from topics.codec.segments.segcolumns import ColumnsBlock, decode_blocks, encode_block
from topics.codec.segments.segdel import EndedRecords, encode_del
from topics.codec.segments.segidx import (
    DELETED,
    ENDS,
    ENTRY_SIZE,
    EXPIRED,
    TRAILER_SIZE,
    encode_entries,
    encode_trailer,
)
from topics.codec.segments.segment import DEAD, END_SIZE, LIVE
from topics.log.past import DeathCause
from topics.log.segments import Segment


def flipped_bit(ground: Ground) -> Planted:
    """Anywhere in a live record."""
    segment = ground.segment()
    seq = ground.live(segment)
    offset, length = ground.frame(segment, seq)
    ground.flip(ground.path(segment), offset, offset + length)
    return _record(ground, segment, seq)


def flipped_bit_of_a_growing_one(ground: Ground) -> Planted:
    segment = ground.segment(CLICKS, sealed=False)
    seq = ground.live(segment, CLICKS)
    offset, length = ground.frame(segment, seq, CLICKS)
    ground.flip(ground.path(segment, topic=CLICKS), offset, offset + length)
    return _record(ground, segment, seq, CLICKS)


def misdirected(ground: Ground) -> Planted:
    """A whole record, of another topic."""
    segment = ground.segment()
    seq = ground.live(segment)
    other = U64.pack(ground.topic_id(CLICKS))
    ground.reseal(ground.path(segment), *ground.frame(segment, seq), TOPIC_AT, other)
    return _record(ground, segment, seq)


def out_of_order(ground: Ground) -> Planted:
    """A whole record, with the seq of the one before it."""
    segment = ground.segment()
    seq = ground.live(segment)
    ground.reseal(ground.path(segment), *ground.frame(segment, seq), SEQ_AT, U64.pack(seq - 1))
    return _record(ground, segment, seq)


def cut_short(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment)
    ground.files[path] = ground.files[path][: segment.size // 2]
    return Planted(kind="", file=path, check="segment.record", topic=ORDERS, also=_beside(ground, segment))


def removed(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment)
    del ground.files[path]
    return Planted(kind="", file=path, check="segment.record", topic=ORDERS, also=_beside(ground, segment))


def wrong_length(ground: Ground) -> Planted:
    """A record whose length takes in a byte too many."""
    segment = ground.segment()
    seq = ground.live(segment)
    offset, length = ground.frame(segment, seq)
    ground.edit(ground.path(segment), offset, U32.pack(length - FRAME_LEN_SIZE + 1))
    return _record(ground, segment, seq)


def left_out(ground: Ground) -> Planted:
    """Data and idx without a live record, as a rewrite leaves out dead ones."""
    segment = ground.segment()
    seq = ground.live(segment)
    path, at = ground.path(segment), seq - segment.first
    idx = ground.idx(segment)
    offset, length = idx.offsets[at], idx.lengths[at]
    ground.files[path] = ground.files[path][:offset] + ground.files[path][offset + length + END_SIZE :]
    moved = [one - (length + END_SIZE) if i > at else one for i, one in enumerate(idx.offsets)]
    lengths = array("I", idx.lengths)
    moved[at] = lengths[at] = 0
    entries = encode_entries(array("I", moved), lengths, idx.ts, idx.flags)
    ground.files[ground.path(segment, "idx")] = entries + encode_trailer(entries, ground.seal(segment).seed)
    return _record(ground, segment, seq)


def gone_between(ground: Ground) -> Planted:
    """All files of a segment with others before and behind it."""
    segment = ground.segment(fit=lambda one: one.first > ground.first_segment().first)
    for part in ("data", "idx", "col"):
        del ground.files[ground.path(segment, part)]
    return Planted(
        kind="",
        file=ground.path(segment),
        check="segment.record",
        topic=ORDERS,
        also=_beside(ground, segment),
    )


def _record(ground: Ground, segment: Segment, seq: int, topic: str = ORDERS) -> Planted:
    return Planted(
        kind="", file=ground.path(segment, topic=topic), check="segment.record", topic=topic, seq=seq
    )


def _beside(ground: Ground, segment: Segment) -> tuple[tuple[str, str], ...]:
    """What an idx says that the data does not hold any more, and a store that is damaged as a whole."""
    return (("segment.idx", ground.path(segment, "idx")), ("segment.col", ground.path(segment, "col")))


# Order, flags.


def falling_ts(ground: Ground) -> Planted:
    segment = ground.segment()
    seq = ground.live(segment)
    ts = ground.idx(segment).ts[seq - segment.first] - 1
    ground.reseal(ground.path(segment), *ground.frame(segment, seq), TS_AT, U64.pack(ts))
    ground.set_entry(segment, seq, ts=ts)
    return Planted(kind="", file=ground.path(segment), check="segment.ts", topic=ORDERS, seq=seq)


def falling_between(ground: Ground) -> Planted:
    """A segment whose first record is older than the last one of the segment before it."""
    segment = ground.segment(fit=lambda one: one.first > ground.first_segment().first)
    before = ground.topic().segments.holds(segment.first - 1)
    assert before is not None
    ts = ground.idx(before).ts[-1] - 1
    ground.reseal(ground.path(segment), *ground.frame(segment, segment.first), TS_AT, U64.pack(ts))
    ground.set_entry(segment, segment.first, ts=ts)
    return Planted(kind="", file=ground.path(segment), check="segment.ts", topic=ORDERS, seq=segment.first)


def odd_delete_byte(ground: Ground) -> Planted:
    segment = ground.segment()
    seq = ground.live(segment)
    offset, length = ground.frame(segment, seq)
    ground.flip(ground.path(segment), offset + length, offset + length + 1)
    return Planted(kind="", file=ground.path(segment), check="segment.flag", topic=ORDERS, seq=seq)


def flagged_though_live(ground: Ground) -> Planted:
    segment = ground.segment()
    seq = ground.live(segment)
    offset, length = ground.frame(segment, seq)
    ground.edit(ground.path(segment), offset + length, bytes((DEAD,)))
    return _deletes(ground, segment, seq)


def idx_deleted_though_live(ground: Ground) -> Planted:
    return _idx_flagged(ground, DELETED)


def idx_expired_though_live(ground: Ground) -> Planted:
    return _idx_flagged(ground, EXPIRED)


def _idx_flagged(ground: Ground, flag: int) -> Planted:
    segment = ground.segment()
    seq = ground.live(segment)
    ground.set_entry(segment, seq, flags=ground.idx(segment).flags[seq - segment.first] | flag)
    return _deletes(ground, segment, seq)


def not_marked(ground: Ground) -> Planted:
    """A record that was deleted before the older snapshot, and neither data nor idx say so."""
    base = ground.topic().earliest_seq
    dead = [
        first
        for first, _, end in ground.image(ground.numbers[0]).dead
        if end & DeathCause.DELETED and first >= base
    ]
    del dead[: len(dead) // 2]  # the oldest had ended before they were copied: their labels are in no col

    def dead_in(segment: Segment) -> int:
        at = bisect_left(dead, segment.first)
        return dead[at] if at < len(dead) and dead[at] <= segment.last else 0

    segment = ground.segment(fit=lambda one: bool(dead_in(one)))
    seq = dead_in(segment)
    offset, length = ground.frame(segment, seq)
    flags = ground.idx(segment).flags[seq - segment.first]
    assert length
    assert flags & ENDS
    ground.edit(ground.path(segment), offset + length, bytes((LIVE,)))
    ground.set_entry(segment, seq, flags=flags & ~ENDS)
    return Planted(kind="", file=ground.path(segment), check="segment.marks", topic=ORDERS, seq=seq)


def below_the_floor(ground: Ground) -> Planted:
    """A whole segment that was evicted, and whose data is there still."""
    segment = ground.first_segment(CAPPED)
    gone = Segment(1, segment.first - 1, 0, 0, True)
    assert gone.last < ground.topic(CAPPED).earliest_seq
    path = ground.path(gone, topic=CAPPED)
    assert path not in ground.files
    ground.files[path] = ground.files[ground.path(segment, topic=CAPPED)]
    return Planted(kind="", file=path, check="segment.floor", topic=CAPPED, seq=1)


def _deletes(ground: Ground, segment: Segment, seq: int) -> Planted:
    return Planted(kind="", file=ground.path(segment), check="segment.deletes", topic=ORDERS, seq=seq)


def overlapping(ground: Ground) -> Planted:
    """A segment that begins inside another one."""
    segment = ground.segment()
    seq = ground.live(segment)
    inside = Segment(seq, segment.last, 0, 0, True)
    for part in ("data", "idx"):
        ground.files[ground.path(inside, part)] = ground.files[ground.path(segment, part)]
    also = (("segment.overlap", ground.path(inside, "idx")),)
    return Planted(
        kind="", file=ground.path(inside), check="segment.overlap", topic=ORDERS, seq=seq, also=also
    )


# Idx and col.


def idx_flipped(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment, "idx")
    at = ground.rng.randrange(segment.count) * ENTRY_SIZE
    ground.flip(path, at, at + 16)
    return Planted(kind="", file=path, check="segment.idx", topic=ORDERS)


def idx_removed(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment, "idx")
    del ground.files[path]
    return Planted(kind="", file=path, check="segment.idx", topic=ORDERS)


def idx_short(ground: Ground) -> Planted:
    """Whole, and an entry too few."""
    segment = ground.segment()
    path = ground.path(segment, "idx")
    entries = ground.files[path][: -TRAILER_SIZE - ENTRY_SIZE]
    ground.files[path] = entries + encode_trailer(entries, ground.seal(segment).seed)
    return Planted(kind="", file=path, check="segment.idx", topic=ORDERS)


def idx_lies(ground: Ground) -> Planted:
    """Whole, and wrong about one record."""
    segment = ground.segment()
    seq = ground.live(segment)
    ground.set_entry(segment, seq, offset=ground.frame(segment, seq)[0] + 1)
    return Planted(kind="", file=ground.path(segment, "idx"), check="segment.idx", topic=ORDERS, seq=seq)


def col_flipped(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment, "col")
    ground.flip(path, 0, len(ground.files[path]))
    return Planted(kind="", file=path, check="segment.col", topic=ORDERS)


def col_lies(ground: Ground) -> Planted:
    """Whole, and wrong about the tag of its records."""
    segment = ground.segment()
    path = ground.path(segment, "col")
    lengths, seed = ground.idx(segment).lengths, ground.seal(segment).seed
    ground.files[path] = b"".join(
        _with_other_tags(block, lengths[block.first_seq - segment.first :][: block.count], seed)
        for block in decode_blocks(ground.files[path], seed)
    )
    return Planted(kind="", file=path, check="segment.col", topic=ORDERS)


def _with_other_tags(block: ColumnsBlock, lengths: array[int], seed: int) -> bytes:
    numbers = block.tag_numbers or array("I", bytes(4 * block.count))
    nodes = block.node_numbers or array("I", bytes(4 * block.count))
    assert block.sizes is not None
    return encode_block(
        block.first_seq,
        lengths,
        sizes=block.sizes,
        tags=[b"green" if number else b"" for number in numbers],
        nodes=[block.nodes[number - 1] if number else b"" for number in nodes],
        expires=block.expires,
        jobs=block.jobs,
        of_queue=block.of_queue,
        seed=seed,
    )


def del_flipped(ground: Ground) -> Planted:
    segment = ground.segment()
    path = ground.path(segment).removesuffix("data") + "del"
    ended = EndedRecords(ground.topic_id(ORDERS), segment.first, bytes(segment.count))
    ground.files[path] = encode_del(ended, ground.seal(segment).seed)
    ground.flip(path, 0, len(ground.files[path]))
    return Planted(kind="", file=path, check="segment.del", topic=ORDERS)


KINDS: Final[dict[str, Kind]] = {
    "segment.record: a flipped bit": flipped_bit,
    "segment.record: a flipped bit, in one that grows": flipped_bit_of_a_growing_one,
    "segment.record: one of another topic": misdirected,
    "segment.record: one with another's seq": out_of_order,
    "segment.record: a wrong length": wrong_length,
    "segment.record: a live one is left out": left_out,
    "segment.record: all of a segment between two is gone": gone_between,
    "segment.record: the data is cut short": cut_short,
    "segment.record: the data is gone": removed,
    "segment.ts: it falls": falling_ts,
    "segment.ts: it falls from one to the next": falling_between,
    "segment.flag: another value": odd_delete_byte,
    "segment.deletes: a live record is flagged in the data": flagged_though_live,
    "segment.deletes: a live record is deleted in the idx": idx_deleted_though_live,
    "segment.deletes: a live record has expired in the idx": idx_expired_though_live,
    "segment.marks: a deleted record is not flagged": not_marked,
    "segment.floor: an evicted segment is there": below_the_floor,
    "segment.overlap: one begins inside another": overlapping,
    "segment.idx: a flipped bit": idx_flipped,
    "segment.idx: gone": idx_removed,
    "segment.idx: an entry too few": idx_short,
    "segment.idx: it lies": idx_lies,
    "segment.del: a flipped bit": del_flipped,
    "segment.col: a flipped bit": col_flipped,
    "segment.col: it lies": col_lies,
}
