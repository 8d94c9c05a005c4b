"""The scan of a WAL body, the search past damage and the reading of what they found."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.log.control import Control
from topics.codec.log.frame import check_frame, decode_payloads
from topics.codec.log.layout import FRAME_OVERHEAD, frame_length
from topics.codec.log.resync import find_frames, find_marks, plausible_head
from topics.codec.log.scan import Stop, scan

FILE_ID = bytes.fromhex("0123456789abcdef")


def check(data: bytes) -> None:
    """Whatever the bytes: the scan ends inside them, agrees with itself, and stands on whole frames."""
    found = scan(data, 0, len(data))
    assert 0 <= found.end <= found.stopped_at <= len(data)
    assert (found.stop is Stop.END) == (found.stopped_at == len(data))
    at = frames = 0
    for item in found.items:
        assert item.offset == at, "items leave a hole"
        frames += 1 if isinstance(item, Control) else read(data, item)
        at += item.length
    assert at == found.end, "items do not end where the scan says"
    assert frames == found.frames
    again = scan(b"\x01" * 7 + data[: found.end] + b"\x02" * 99, 7, 7 + found.end)
    assert (again.frames, again.end, again.stop) == (found.frames, 7 + found.end, Stop.END)

    before = 0
    for offset, length in find_frames(data, 0, len(data)):
        assert before <= offset, "frames overlap"
        assert frame_length(data, offset, len(data)) == length
        before = offset + length
    for mark in find_marks(data, FILE_ID, 0, len(data)):
        assert check_frame(data, mark.offset, len(data)) == mark.length
    plausible_head(data, min(found.stopped_at, len(data)), len(data))


def read(data, run):
    offsets = [run.offset]
    for length in run.lengths[:-1]:
        offsets.append(offsets[-1] + length)
    views = decode_payloads(
        data, offsets, run.lengths, topic_id=run.topic_id, seqs=range(run.seq_start, run.seq_stop)
    )
    assert [len(view.data) + len(view.meta) for view in views] == list(run.sizes)
    assert {view.ts for view in views} == {run.ts}
    return len(views)


def reseal(data: bytes) -> bytes:
    """The bytes with every frame's checksum made right, as far as lengths lead: so that damage gets past it."""
    body, at = bytearray(data), 0
    while at + FRAME_OVERHEAD <= len(body):
        total = struct.unpack_from("<I", body, at)[0] + 4
        if total < FRAME_OVERHEAD or at + total > len(body):
            break
        digest = xxhash.xxh3_64_intdigest(bytes(body[at + 4 : at + total - 8]))
        struct.pack_into("<Q", body, at + total - 8, digest)
        at += total
    return bytes(body)
