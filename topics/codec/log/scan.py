"""Reading a WAL file as it was written: frames to runs and control values, whole writes only.

A write of more than one frame says on its first frame how many it has (extension 7); the items of a scan are complete
writes, so what the caller applies is all-or-nothing. Neighbouring writes of one topic, ts and durability become one run
while nothing about a key would be lost: a keyed write keeps its borders, and so does one that a router has made. The
scan stops at the first frame that is not whole and says where and why; whether that is a torn tail or damage is decided
above, with marks and later files.

Three ways through a frame, each of which only says yes or leaves it to the next: plain and next in its run (one unpack,
one slice, one checksum), next in its run with a tag, node or meta, and the long way by `check_frame`, which alone names
defects.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

import attrs

from topics.codec.log.building import OpenRun
from topics.codec.log.control import Control, WriteResult, control_at
from topics.codec.log.forwards import Forward
from topics.codec.log.layout import (  # fmt: skip
    APPEND,
    CHECKSUM_SIZE,
    COMPRESSED,
    DURABLE,
    EXT,
    EXTS_OF_WRITE,
    FRAME_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    LEN_OVERHEAD,
    META,
    NODE,
    TAG,
    Defect,
    Ext,
    check_frame,
    checked_region,
)
from topics.codec.log.run import Keyed, Run
from topics.codec.primitives import U32, U64, Buffer, checksum, immutable
from topics.kernel.errors import Corrupt


class Stop(Enum):
    """Why a scan ended."""

    END = "end"  # the buffer ended exactly
    ZERO = "zero"  # no frame begins there
    BAD = "bad"  # a frame that does not verify


@attrs.define(slots=True, kw_only=True)
class ScannedFile:
    """`items`: complete writes in order, `frames` their frames, `end` the offset after the last of them.

    `stopped_at`: offset of the first frame that is not whole. `incomplete_from`: offset of the first frame of a write
    that began and did not end, None if there is none.
    """

    items: list[Run | Control]
    end: int
    frames: int
    stopped_at: int
    stop: Stop
    defect: str
    incomplete_from: int | None


def scan(buffer: Buffer, start: int, stop: int) -> ScannedFile:
    """All complete writes in [start, stop)."""
    assert 0 <= start <= stop <= len(buffer)
    scanner = _Scanner(immutable(buffer), start, stop)
    while scanner.step():
        pass
    return scanner.result()


def scan_frame(buffer: Buffer, offset: int, length: int) -> Run | Control | None:
    """The item of one whole frame by itself, whatever write it belongs to; None if it is not understood."""
    scanner = _Scanner(immutable(buffer), offset, offset + length)
    scanner.step()
    scanner.left = 0  # the rest of its write is not asked for
    items = scanner.result().items
    assert len(items) <= 1
    return items[0] if items else None


# The checksum of one frame and the head of the next, which follows it. A head's parts are taken together where they are
# compared together: type, flags and topic id in ten bytes, ts and both name lengths in twelve.
_HEAD: Final = Struct("<I10sQ12sI")
_NEXT: Final = Struct("<QI10sQ12sI")
assert _HEAD.size == FRAME_HEAD.size
assert _NEXT.size == CHECKSUM_SIZE + FRAME_HEAD.size
_IDENTITY: Final = Struct("<BBQ")
_WHEN: Final = Struct("<QHH")
_TO_CHECKSUM: Final = CHECKSUM_SIZE - FRAME_LEN_SIZE  # from `at + frame_len` back to the checksum


class _Scanner:
    """One pass. Of the write that began at `write_at`, `seen` frames were read and `left` are still to come."""

    __slots__ = (
        "at", "buffer", "defect", "frames", "items", "left", "outcome", "run", "sealed", "seen", "stop", "write_at",
    )  # fmt: skip

    def __init__(self, buffer: bytes, start: int, stop: int) -> None:
        self.buffer = buffer
        self.at = start
        self.stop = stop
        self.items: list[Run | Control] = []
        self.run: OpenRun | None = None
        self.frames = 0
        self.left = 0
        self.seen = 0
        self.write_at = start
        self.sealed = False  # the write has a key: no run crosses its borders
        self.outcome = Stop.END
        self.defect = ""

    def step(self) -> bool:
        """One frame the long way, then as many as possible the short way. False when the scan has ended."""
        if self.at == self.stop:
            return False
        total: int | Defect = _simple_append(self.buffer, self.at, self.stop)
        if not total:
            total = check_frame(self.buffer, self.at, self.stop)
        if isinstance(total, Defect):
            return self._end(total, total.value)
        return (
            self._append(total) if self.buffer[self.at + FRAME_LEN_SIZE] == APPEND else self._control(total)
        )

    def result(self) -> ScannedFile:
        self._close()
        incomplete = self.left > 0
        assert self.at <= self.stop
        assert not incomplete or self.write_at <= self.at
        if incomplete:
            self._drop(self.seen)
        return ScannedFile(
            items=self.items,
            end=self.write_at if incomplete else self.at,
            frames=self.frames,
            stopped_at=self.at,
            stop=self.outcome,
            defect=self.defect,
            incomplete_from=self.write_at if incomplete else None,
        )

    def _append(self, total: int) -> bool:
        buffer, at = self.buffer, self.at
        _, _, flags, topic_id, seq, ts, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(buffer, at)
        tag_at = at + FRAME_HEAD.size + node_len
        data_at = tag_at + tag_len
        size, own, exts = data_len, flags & _OWN_FLAGS, _NO_EXTS
        if flags & (META | EXT):
            meta, exts, data = checked_region(buffer[data_at : data_at + data_len], flags)
            size = len(meta) + len(data)
        if exts:
            if not self._begin(exts):
                return self._end(Defect.WRITE, Defect.WRITE.value)
            if not EXTS_OF_WRITE.issuperset(exts):
                own |= EXT
        run = self._run_for(topic_id, seq, ts, durable=bool(flags & DURABLE))
        if Ext.IDEMPOTENCY_KEY in exts:
            run.keyed = Keyed(exts[Ext.IDEMPOTENCY_KEY], int.from_bytes(exts[Ext.BODY_DIGEST], "little"))
        if own:
            node, tag = buffer[at + FRAME_HEAD.size : tag_at], buffer[tag_at:data_at]
            run.optional().add(len(run.lengths), own, node, tag, exts)
        run.lengths.append(total)
        run.sizes.append(size)
        run.seq_next += 1
        self._passed(1, total)
        if self.run is not None:
            self._plain(self.run, flags & DURABLE)
        if self.run is not None and own:
            self._labelled(self.run, flags & DURABLE)
        return True

    def _control(self, total: int) -> bool:
        try:
            control = control_at(self.buffer, self.at, total)
        except Corrupt as error:
            return self._end(Defect.PAYLOAD, error.message)
        if control.write_frames > 1:
            if self.left:
                return self._end(Defect.WRITE, Defect.WRITE.value)
            self._open_write(control.write_frames)
        self._close()
        self.sealed = self.sealed or (isinstance(control.payload, WriteResult | Forward) and self.left > 0)
        self.items.append(control)
        self._passed(1, total)
        return True

    def _begin(self, exts: dict[int, bytes]) -> bool:
        """Take note of a write that begins with this frame, if one does. False if another is still open."""
        if EXTS_OF_WRITE.isdisjoint(exts):
            return True
        if self.left:
            return False
        self._open_write(U32.unpack(exts[Ext.WRITE_FRAMES])[0] if Ext.WRITE_FRAMES in exts else 1)
        if Ext.IDEMPOTENCY_KEY in exts:
            self._close()
            self.sealed = True
        return True

    def _open_write(self, frames: int) -> None:
        assert self.left == 0
        assert frames >= 1
        self.write_at = self.at
        self.left = frames
        self.seen = 0

    def _run_for(self, topic_id: int, seq: int, ts: int, *, durable: bool) -> OpenRun:
        """The open run if the frame continues it, else a new one."""
        run = self.run
        if (
            run is not None
            and run.topic_id == topic_id
            and run.seq_next == seq
            and run.ts == ts
            and run.durable == durable
        ):
            return run
        self._close()
        self.run = run = OpenRun(topic_id, seq, ts, durable=durable, offset=self.at)
        return run

    def _plain(self, run: OpenRun, kind_flags: int) -> None:
        """As many frames as follow that are plain and continue the run (and its write, if it has more)."""
        buffer, at, digest = self.buffer, self.at, checksum
        last_head = self.stop - FRAME_HEAD.size
        if at > last_head:
            return
        identity, when = _IDENTITY.pack(APPEND, kind_flags, run.topic_id), _WHEN.pack(run.ts, 0, 0)
        seq, limit = run.seq_next, self.left or self.stop
        lengths: list[int] = []
        add, unpack = lengths.append, _NEXT.unpack_from
        frame_len, its_identity, its_seq, its_when, data_len = _HEAD.unpack_from(buffer, at)
        while (
            its_seq == seq
            and its_identity == identity
            and its_when == when
            and frame_len == data_len + LEN_OVERHEAD
        ):
            end = at + frame_len - _TO_CHECKSUM
            if end + CHECKSUM_SIZE > last_head or limit == 0:
                break  # too near the end to look at a next head: the long way
            covered = buffer[at + FRAME_LEN_SIZE : end]
            crc, next_len, its_identity, its_seq, its_when, data_len = unpack(buffer, end)
            if digest(covered) != crc:
                break
            add(frame_len)
            at = end + CHECKSUM_SIZE
            frame_len = next_len
            seq += 1
            limit -= 1
        if lengths:
            run.lengths += [frame_len + FRAME_LEN_SIZE for frame_len in lengths]
            run.sizes += [frame_len - LEN_OVERHEAD for frame_len in lengths]
            run.seq_next = seq
            self._passed(len(lengths), at - self.at)

    def _labelled(self, run: OpenRun, durable: int) -> None:
        """As many frames as follow that have a tag, node or meta, no extension, and continue the run."""
        buffer, at, stop = self.buffer, self.at, self.stop
        seq, limit, optional = run.seq_next, self.left or stop, run.optional()
        optional.pad(len(run.lengths))
        while limit and (total := _simple_append(buffer, at, stop)):
            _, _, flags, topic_id, its_seq, ts, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(
                buffer, at
            )
            own = flags & _OWN_FLAGS
            if (
                its_seq != seq
                or topic_id != run.topic_id
                or ts != run.ts
                or flags & DURABLE != durable
                or not own
            ):
                break
            tag_at = at + FRAME_HEAD.size + node_len
            optional.flags.append(own)
            optional.nodes.append(buffer[at + FRAME_HEAD.size : tag_at])
            optional.tags.append(buffer[tag_at : tag_at + tag_len])
            run.lengths.append(total)
            run.sizes.append(data_len - U32.size if flags & META else data_len)
            at += total
            seq += 1
            limit -= 1
        if seq != run.seq_next:
            count, run.seq_next = seq - run.seq_next, seq
            self._passed(count, at - self.at)

    def _passed(self, count: int, size: int) -> None:
        """`count` frames of `size` bytes were read; closes the write that ends with them."""
        self.frames += count
        self.at += size
        if self.left:
            assert count <= self.left
            self.left -= count
            self.seen += count
            if self.left == 0 and self.sealed:
                self._close()
                self.sealed = False

    def _close(self) -> None:
        if self.run is not None:
            self.items.append(self.run.close())
            self.run = None

    def _drop(self, count: int) -> None:
        """Take the last `count` frames back: their write is incomplete."""
        self.frames -= count
        while count:
            last = self.items.pop()
            size = len(last) if isinstance(last, Run) else 1
            if isinstance(last, Run) and size > count:
                self.items.append(last.first(size - count))
                return
            count -= size
        assert count == 0

    def _end(self, defect: Defect, text: str) -> bool:
        self.outcome = Stop.ZERO if defect is Defect.ZERO else Stop.BAD
        self.defect = text
        return False


_NO_EXTS: Final[dict[int, bytes]] = {}
_OWN_FLAGS: Final = TAG | NODE | META | COMPRESSED
_NOT_SIMPLE: Final = ~(_OWN_FLAGS | DURABLE)


def _simple_append(buffer: bytes, at: int, stop: int) -> int:
    """Length of the whole append frame without extensions at `at`, 0 if it is anything else."""
    if stop - at < FRAME_OVERHEAD:
        return 0
    frame_len, kind, flags, topic_id, seq, _, node_len, tag_len, data_len = FRAME_HEAD.unpack_from(buffer, at)
    end: int = at + frame_len - _TO_CHECKSUM
    if (
        kind != APPEND
        or flags & _NOT_SIMPLE
        or frame_len != LEN_OVERHEAD + node_len + tag_len + data_len
        or end + CHECKSUM_SIZE > stop
        or flags & (TAG | NODE) != (TAG if tag_len else 0) | (NODE if node_len else 0)
        or topic_id == 0
        or seq == 0
    ):
        return 0
    if flags & META:
        if data_len <= U32.size:
            return 0
        (meta_len,) = U32.unpack_from(buffer, end - data_len)
        if not 0 < meta_len <= data_len - U32.size:
            return 0
    if checksum(buffer[at + FRAME_LEN_SIZE : end]) != U64.unpack_from(buffer, end)[0]:
        return 0
    return end + CHECKSUM_SIZE - at
