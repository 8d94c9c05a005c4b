"""The records of a segment: its `.data` file (storage 5).

It has no header. A record is its Append frame as it was in the WAL, then one delete byte: 0 live, 0xD5 deleted. That
byte is written in place long after its frame, so it has no checksum and needs none: whatever is within two bits of 0xD5
is deleted, anything else is live, and the two are five bits apart, so no single flip takes a record across.

Frames are verified when they are copied from the WAL, and again whenever one is read. A whole file is walked only to
rebuild its `.idx` or to look for damage.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import or_
from struct import Struct
from typing import Final

import attrs

from topics.codec.log.frame import decode_payloads
from topics.codec.log.layout import (
    APPEND,
    CHECKSUM_SIZE,
    DURABLE,
    EXT,
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    LEN_OVERHEAD,
    META,
    Defect,
    check_frame,
    check_head,
    frame_length,
)
from topics.codec.log.resync import plausible_head
from topics.codec.primitives import LAYOUT_BYTES_MAX, U32, U64, Buffer, checksum, immutable
from topics.codec.segments.segidx import DELETED, IdxColumns
from topics.kernel.limits import U32_MAX, U64_MAX

LIVE: Final = 0
DEAD: Final = 0xD5
END_SIZE: Final = 1  # the delete byte
DEAD_BITS_MAX: Final = 2  # so far a byte may be from DEAD and still mean it
assert LIVE.bit_count() == 0
assert DEAD.bit_count() > 2 * DEAD_BITS_MAX


def is_deleted(end: int) -> bool:
    """Whether a delete byte says that its record is deleted."""
    return (end ^ DEAD).bit_count() <= DEAD_BITS_MAX


def is_regular(end: int) -> bool:
    """Whether a delete byte is one that is ever written."""
    return end in (LIVE, DEAD)


_DELETED_OF: Final = bytes(DELETED if is_deleted(end) else 0 for end in range(256))
_END_OF: Final = bytes(DEAD if dead else LIVE for dead in range(256))
_LIVE_TEXT: Final = bytes((LIVE,))


class _Layouts(dict[int, Struct]):
    """Frame length -> layout of what identifies a whole frame: `frame_len`, `type`, `flags` and topic id as one, the
    lengths of names and data as one; ts and data are passed over.
    """

    def __missing__(self, length: int) -> Struct:
        layout = Struct(f"<14sQ8x8s{length - FRAME_OVERHEAD}xQ")
        assert layout.size == length
        if length <= LAYOUT_BYTES_MAX:
            self[length] = layout
        return layout


_layouts: Final = _Layouts()
_PLAIN_START: Final = Struct("<IBBQ")
_PLAIN_LENGTHS: Final = Struct("<HHI")


def _plain(
    length: int, topic_id: int
) -> tuple[Callable[..., tuple[bytes, int, bytes, int]], list[bytes], bytes]:
    """How to read a plain frame of this length, how it may begin, and the lengths it must say."""
    length = max(length, FRAME_OVERHEAD)  # what is shorter is no frame, and is not read
    starts = [_PLAIN_START.pack(length - FRAME_LEN_SIZE, APPEND, flags, topic_id) for flags in (0, DURABLE)]
    return _layouts[length].unpack_from, starts, _PLAIN_LENGTHS.pack(0, 0, length - FRAME_OVERHEAD)


def append_frames(
    buffer: Buffer,
    offsets: Sequence[int],
    lengths: Sequence[int],
    *,
    topic_id: int,
    seqs: Sequence[int],
    dead: bytes,
) -> bytes:
    """What a `.data` file gains by the frames at these places of a WAL buffer, each verified as by `decode_payloads`.

    `dead[i]` is nonzero if record i is deleted already. The record's place in the result is the sum of the lengths
    before it, with one more byte each. Raises `Corrupt` with the topic and the seq of the first that is not there.
    """
    assert len(dead) == len(lengths)
    assert not offsets or min(offsets) >= 0
    frames: list[Buffer] = []
    add, digest, stop = frames.append, checksum, len(buffer)
    known = {length: _plain(length, topic_id) for length in dict.fromkeys(lengths)}
    last, (unpack, starts, its_lengths) = FRAME_OVERHEAD, _plain(FRAME_OVERHEAD, topic_id)
    for offset, length, wanted in zip(offsets, lengths, seqs, strict=True):
        if length != last:
            last, (unpack, starts, its_lengths) = length, known[length]
        end, verified = offset + length, False
        if end <= stop and length >= FRAME_OVERHEAD:
            begins, seq, says, crc = unpack(buffer, offset)
            verified = (
                seq == wanted
                and says == its_lengths
                and begins in starts
                and digest(buffer[offset + FRAME_LEN_SIZE : end - CHECKSUM_SIZE]) == crc
            )
        if not (verified or _is_labelled(buffer, offset, length, topic_id, wanted)):
            decode_payloads(buffer, (offset,), (length,), topic_id=topic_id, seqs=(wanted,))
        add(buffer[offset:end])
    return _with_ends(frames, dead)


def _is_labelled(buffer: Buffer, offset: int, length: int, topic_id: int, wanted: int) -> bool:
    """Whether the whole append frame of this topic and seq lies there, and has no extensions."""
    if length < FRAME_OVERHEAD or offset + length > len(buffer):
        return False
    frame_len, kind, flags, topic, seq, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(
        buffer, offset
    )
    end = offset + length - CHECKSUM_SIZE
    if (
        kind != APPEND
        or seq != wanted
        or topic != topic_id
        or flags & EXT
        or frame_len != length - FRAME_LEN_SIZE
        or frame_len != LEN_OVERHEAD + node_len + tag_len + data_len
    ):
        return False
    if flags & META:
        if data_len <= U32.size:
            return False
        (meta_len,) = U32.unpack_from(buffer, end - data_len)
        if not 0 < meta_len <= data_len - U32.size:
            return False
    return bool(checksum(buffer[offset + FRAME_LEN_SIZE : end]) == U64.unpack_from(buffer, end)[0])


def _with_ends(frames: list[Buffer], dead: bytes) -> bytes:
    assert len(frames) == len(dead)
    if dead.count(LIVE) == len(dead):
        return _LIVE_TEXT.join([*frames, b""])
    ends = dead.translate(_END_OF)
    parts: list[Buffer] = [b""] * (2 * len(frames))
    parts[::2] = frames
    parts[1::2] = [ends[at : at + END_SIZE] for at in range(len(ends))]
    return b"".join(parts)


@attrs.frozen(kw_only=True)
class DataDamage:
    """Bytes [offset, stop) of a `.data` file that are no intact records, and why the first of them is none.

    `index`: intact records before it. `seq`: what the damaged head claims, None if it does not agree with itself.
    """

    offset: int
    stop: int
    defect: Defect
    index: int
    seq: int | None


class DataColumns:
    """The intact records of a `.data` file in its order, and what lies between them.

    `lengths` leave the delete byte out, which lies at offset + length; `ends` holds it as it is. `flags` are the
    frame's and DELETED. Seqs ascend; they skip what a rewrite has dropped and what is damaged.
    """

    __slots__ = ("damages", "ends", "flags", "lengths", "offsets", "seqs", "ts")

    def __init__(self) -> None:
        self.seqs = array("Q")
        self.offsets = array("I")
        self.lengths = array("I")
        self.ts = array("Q")
        self.flags = bytearray()
        self.ends = bytearray()
        self.damages: list[DataDamage] = []

    def __len__(self) -> int:
        return len(self.seqs)

    def index_columns(self, first_seq: int, seq_stop: int) -> IdxColumns:
        """Columns of the `.idx` of [first_seq, seq_stop), which covers all seqs.

        What is not there has length 0 and the ts of what is before it, so that ts ascend as they did.
        """
        assert not self.seqs or first_seq <= self.seqs[0]
        assert not self.seqs or self.seqs[-1] < seq_stop
        count = seq_stop - first_seq
        if count == len(self.seqs):
            return IdxColumns(self.offsets[:], self.lengths[:], self.ts[:], self.flags[:])
        found = IdxColumns(array("I"), array("I"), array("Q"), bytearray())
        ts, before = 0, first_seq
        for index, seq in enumerate(self.seqs):
            found.skip(seq - before, ts)
            ts, before = self.ts[index], seq + 1
            found.offsets.append(self.offsets[index])
            found.lengths.append(self.lengths[index])
            found.ts.append(ts)
            found.flags.append(self.flags[index])
        found.skip(seq_stop - before, ts)
        assert len(found) == count
        return found


def walk(
    buffer: Buffer, start: int, stop: int, *, topic_id: int, first_seq: int, seq_stop: int = U64_MAX
) -> DataColumns:
    """The records of `.data` bytes [start, stop) with seqs in [first_seq, seq_stop).

    Damage is a value, and reading goes on at the next record behind it. As in a WAL file a damaged record whose head
    agrees with itself, and behind which a record or nothing follows, is not searched: it may hold the bytes of frames.
    """
    assert 0 <= start <= stop <= len(buffer)
    assert stop <= U32_MAX
    assert topic_id > 0
    walker = _Walker(immutable(buffer), stop, topic_id, first_seq, seq_stop)
    at = start
    while at < stop:
        at = walker.plain(at)
        if at < stop:
            at = walker.step(at)
    assert at == stop
    return walker.result()


_WALK_HEAD: Final = Struct("<I10sQQII")  # type, flags and topic id in ten bytes, both name lengths in one
_WALK_END: Final = Struct("<QB")
_IDENTITY: Final = Struct("<BBQ")
_IDENTITY_AT: Final = FRAME_LEN_SIZE
_TOPIC_AT: Final = FRAME_LEN_SIZE + 2
_SEQ_AT: Final = _TOPIC_AT + U64.size
assert _WALK_HEAD.size == FRAME_HEAD.size


class _Walker:
    """One pass over a `.data` file. The next seq is at least `seq_next`."""

    __slots__ = ("columns", "data", "identities", "seq_next", "seq_stop", "stop", "topic_id")

    def __init__(self, data: bytes, stop: int, topic_id: int, first_seq: int, seq_stop: int) -> None:
        self.data = data
        self.stop = stop
        self.topic_id = topic_id
        self.seq_next = first_seq
        self.seq_stop = seq_stop
        self.identities = [_IDENTITY.pack(APPEND, flags, topic_id) for flags in (0, DURABLE)]
        self.columns = DataColumns()

    def plain(self, at: int) -> int:
        """Take as many records as follow that are plain; says where they end."""
        data, digest, columns = self.data, checksum, self.columns
        identities = self.identities
        seq_next, seq_stop, last_head = self.seq_next, self.seq_stop, self.stop - FRAME_OVERHEAD - END_SIZE
        unpack, unpack_end = _WALK_HEAD.unpack_from, _WALK_END.unpack_from
        while at <= last_head:
            frame_len, identity, seq, ts, names, data_len = unpack(data, at)
            end = at + FRAME_LEN_SIZE + frame_len - CHECKSUM_SIZE
            if (
                identity not in identities
                or not seq_next <= seq < seq_stop
                or names
                or frame_len != data_len + LEN_OVERHEAD
                or data_len > last_head - at
            ):
                break
            crc, delete_byte = unpack_end(data, end)
            if digest(data[at + FRAME_LEN_SIZE : end]) != crc:
                break
            columns.seqs.append(seq)
            columns.offsets.append(at)
            columns.lengths.append(frame_len + FRAME_LEN_SIZE)
            columns.ts.append(ts)
            columns.flags.append(identity[1])
            columns.ends.append(delete_byte)
            seq_next, at = seq + 1, end + CHECKSUM_SIZE + END_SIZE
        self.seq_next = seq_next
        return at

    def step(self, at: int) -> int:
        """Take the record at `at`, or take note of the damage there; says where to go on."""
        total = self._intact(at)
        if isinstance(total, Defect):
            return self._damaged(at, total)
        _, _, flags, _, seq, ts, _, _, _ = FRAME_HEAD.unpack_from(self.data, at)
        columns = self.columns
        columns.seqs.append(seq)
        columns.offsets.append(at)
        columns.lengths.append(total)
        columns.ts.append(ts)
        columns.flags.append(flags)
        columns.ends.append(self.data[at + total])
        self.seq_next = seq + 1
        return at + total + END_SIZE

    def result(self) -> DataColumns:
        columns = self.columns
        deleted = columns.ends.translate(_DELETED_OF)
        if any(deleted):
            columns.flags = bytearray(map(or_, columns.flags, deleted))
        assert len(columns.ends) == len(columns.flags) == len(columns.seqs) == len(columns.offsets)
        return columns

    def _intact(self, at: int) -> int | Defect:
        """Length of the frame at `at` if it is whole, has its delete byte, and is what may come here."""
        total = check_frame(self.data, at, self.stop)
        if isinstance(total, Defect):
            return total
        _, kind, _, topic_id, seq, _, _, _, _ = FRAME_HEAD.unpack_from(self.data, at)
        if kind != APPEND:
            return Defect.TYPE
        if topic_id != self.topic_id or not self.seq_next <= seq < self.seq_stop:
            return Defect.IDS
        return Defect.TORN if at + total == self.stop else total

    def _damaged(self, at: int, defect: Defect) -> int:
        length = frame_length if defect is Defect.UNKNOWN else check_head
        claimed = length(self.data, at, self.stop)
        search_from = at + 1
        if not isinstance(claimed, Defect):
            behind = min(at + claimed + END_SIZE, self.stop)
            followed = self._intact(behind)
            if not isinstance(followed, Defect) or followed is Defect.ZERO or defect is Defect.UNKNOWN:
                search_from = behind
        resumed = self._search(search_from)
        head = plausible_head(self.data, at, resumed)
        seq = None if head is None else head[1]
        self.columns.damages.append(
            DataDamage(offset=at, stop=resumed, defect=defect, index=len(self.columns), seq=seq)
        )
        return resumed

    def _search(self, at: int) -> int:
        """Offset of the first intact record from `at` on, `stop` if there is none."""
        data, pattern = self.data, U64.pack(self.topic_id)
        found = data.find(pattern, at + _TOPIC_AT, self.stop)
        while 0 <= found <= self.stop - FRAME_OVERHEAD + _TOPIC_AT:
            at = found - _TOPIC_AT
            (seq,) = U64.unpack_from(data, at + _SEQ_AT)
            possible = data[at + _IDENTITY_AT] == APPEND and self.seq_next <= seq < self.seq_stop
            if possible and not isinstance(self._intact(at), Defect):
                return at
            found = data.find(pattern, found + 1, self.stop)
        return self.stop
