"""The walk of a `.data` file, and the verified copy of the frames that it found."""

from __future__ import annotations

import struct

import xxhash

from topics.codec.log.layout import FRAME_OVERHEAD
from topics.codec.segments.segment import append_frames, is_deleted, walk

TOPIC = 7


def check(data: bytes) -> None:
    """Whatever the bytes: records and damages cover them, in order, and each record is one."""
    found = walk(data, 0, len(data), topic_id=TOPIC, first_seq=1)
    pieces = [(at, at + size + 1) for at, size in zip(found.offsets, found.lengths, strict=True)]
    pieces += [(damage.offset, damage.stop) for damage in found.damages]
    at = 0
    for start, stop in sorted(pieces):
        assert at == start < stop, "records and damages leave a hole or overlap"
        at = stop
    assert at == len(data)
    assert list(found.seqs) == sorted(set(found.seqs))
    for flags, end in zip(found.flags, found.ends, strict=True):
        assert bool(flags & 128) == is_deleted(end)

    dead = bytes(flags & 128 for flags in found.flags)
    copied = append_frames(data, found.offsets, found.lengths, topic_id=TOPIC, seqs=found.seqs, dead=dead)
    again = walk(copied, 0, len(copied), topic_id=TOPIC, first_seq=1)
    assert not again.damages
    assert (again.seqs, again.lengths, again.ts, again.flags) == (
        found.seqs,
        found.lengths,
        found.ts,
        found.flags,
    )


def reseal(data: bytes) -> bytes:
    """The bytes with every frame's checksum made right, as far as lengths lead: so that damage gets past it."""
    body, at = bytearray(data), 0
    while at + FRAME_OVERHEAD <= len(body):
        total = struct.unpack_from("<I", body, at)[0] + 4
        if total < FRAME_OVERHEAD or at + total > len(body):
            break
        digest = xxhash.xxh3_64_intdigest(bytes(body[at + 4 : at + total - 8]))
        struct.pack_into("<Q", body, at + total - 8, digest)
        at += total + 1
    return bytes(body)
