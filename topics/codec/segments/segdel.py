r"""Which records of a cold segment have ended since it went there: its `.del` file (storage 5).

    magic "TOPSDEL\0" | version u32 | reserved u32 = 0 | topic id u64 | first seq u64 | entries u32 | runs u32
    run: first entry u32 | count u32 | ends u8 | pad 3 = 0
    xxh3 u64 over all before, from a seed that says whose file it is (`host.segments.segment_seals`)

A run says of consecutive entries that they ended, and how: `ends` has the bits of an `.idx` entry, DELETED, EXPIRED or
both. Runs ascend, do not touch with the same ends, and lie within the entries of the segment. The file is replaced as a
whole. A segment of `entries` records has at most so many runs, so the file is never larger than its `.idx`.
"""

from __future__ import annotations

import re
from struct import Struct
from typing import Final

import attrs

from topics.codec.primitives import U64, Buffer, checksum
from topics.codec.segments.segidx import DELETED, ENDS, EXPIRED
from topics.kernel.errors import Corrupt

DEL_MAGIC: Final = b"TOPSDEL\0"
DEL_VERSION: Final = 1
DEL_HEAD: Final = Struct("<8sIIQQII")
assert DEL_HEAD.size == 40
DEL_RUN: Final = Struct("<IIB3s")
assert DEL_RUN.size == 12
DEL_OVERHEAD: Final = DEL_HEAD.size + U64.size
ENTRIES_MAX: Final = 10_000_000  # a segment never has more

_PAD: Final = bytes(3)
_RUNS: Final = re.compile(b"|".join(b"%b+" % re.escape(bytes((end,))) for end in (DELETED, EXPIRED, ENDS)))


@attrs.frozen
class EndedRecords:
    """`ends`: a byte an entry, 0 of those that have not ended."""

    topic_id: int
    first_seq: int
    ends: bytes


def encode_del(ended: EndedRecords, seed: int) -> bytes:
    """The `.del` file."""
    ends = ended.ends
    assert len(ends) <= ENTRIES_MAX
    assert not set(ends) - {0, DELETED, EXPIRED, ENDS}
    runs = [(found.start(), found.end() - found.start(), found[0][0]) for found in _RUNS.finditer(ends)]
    head = DEL_HEAD.pack(DEL_MAGIC, DEL_VERSION, 0, ended.topic_id, ended.first_seq, len(ends), len(runs))
    covered = head + b"".join([DEL_RUN.pack(*run, _PAD) for run in runs])
    return covered + U64.pack(checksum(covered, seed))


def decode_del(buffer: Buffer, seed: int, entries_max: int = ENTRIES_MAX) -> EndedRecords:
    """What a whole `.del` file says, a byte an entry. `entries_max`: more than its segment can have is refused unread.

    Raises:
        Corrupt: it names what is wrong.
    """
    view = memoryview(buffer)
    if len(view) < DEL_OVERHEAD:
        raise _corrupt("length", f"{len(view)} bytes are less than its {DEL_OVERHEAD}")
    magic, version, reserved, topic_id, first_seq, entries, runs = DEL_HEAD.unpack_from(view)
    end = len(view) - U64.size
    if magic != DEL_MAGIC:
        raise _corrupt("magic", "the magic is wrong, this is no .del file")
    if end != DEL_HEAD.size + runs * DEL_RUN.size:
        raise _corrupt("length", f"{runs} runs do not fill {len(view)} bytes")
    if checksum(view[:end], seed) != U64.unpack_from(view, end)[0]:
        raise _corrupt("checksum", "the checksum does not match: damaged, or of another segment")
    if version != DEL_VERSION or reserved:
        raise _corrupt("version", f"version {version}, {reserved} is not {DEL_VERSION}, 0")
    if not runs <= entries <= entries_max or not topic_id or not first_seq:
        raise _corrupt("head", f"{runs} runs in {entries} entries from seq {first_seq} of topic {topic_id}")
    parts: list[bytes] = []
    at = before = 0
    for first, count, ends, pad in DEL_RUN.iter_unpack(view[DEL_HEAD.size : end]):
        touches = first == at and ends == before and at > 0
        if first < at or touches or not count or first + count > entries or pad != _PAD:
            raise _corrupt("runs", f"{count} entries from {first} cannot follow entry {at}")
        if ends not in (DELETED, EXPIRED, ENDS):
            raise _corrupt("ends", f"ends {ends} of entry {first} are unknown")
        parts += (bytes(first - at), bytes((ends,)) * count)
        at, before = first + count, ends
    parts.append(bytes(entries - at))
    return EndedRecords(topic_id, first_seq, b"".join(parts))


def _corrupt(field: str, what: str) -> Corrupt:
    return Corrupt(f"del: {what}", field=field)
