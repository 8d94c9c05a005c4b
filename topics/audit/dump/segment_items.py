"""The files of a segment as items: records with their delete bytes, entries, blocks, ends; and what is damaged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from topics.audit.dump.wal_items import Item, as_json_value, damaged, record_fields, unknown
from topics.codec.log.frame import decode_frame
from topics.codec.log.layout import FRAME_HEAD, Defect
from topics.codec.log.run import unpack_job
from topics.codec.primitives import U64
from topics.codec.segments.segcolumns import decode_blocks
from topics.codec.segments.segidx import DELETED, ENTRY, ENTRY_SIZE, EXPIRED, TRAILER, TRAILER_SIZE
from topics.codec.segments.segment import DataDamage, is_deleted, is_regular, walk
from topics.host.directory.layout import TOPIC_NAME
from topics.host.segments.segment_seals import OF_FORMAT_1, Seal, seal_of
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U32_MAX, U64_MAX

_FIRST: Final = re.compile(r"seg-([0-9]{20})\.", re.ASCII)
_TOPIC: Final = re.compile(TOPIC_NAME, re.ASCII)
_TOPIC_AT: Final = 6


def data_items(buffer: bytes, path: Path) -> Iterator[Item]:
    """Every record of a `.data` file. Whose it is says its directory, or else its first frame."""
    topic_id = _topic_id(buffer, path)
    if not topic_id or len(buffer) > U32_MAX:
        yield damaged(0, len(buffer), "no record begins here, and the directory is not named by a topic's id")
        return
    found = walk(buffer, 0, len(buffer), topic_id=topic_id, first_seq=_first_seq(path))
    waiting = list(reversed(found.damages))
    for at, offset in enumerate(found.offsets):
        while waiting and waiting[-1].offset < offset:
            yield _hole(waiting.pop())
        stop = offset + found.lengths[at]
        view = decode_frame(buffer, offset, stop)
        yield {
            "offset": offset,
            "what": _ending(found.ends[at]),
            "length": stop - offset,
            **record_fields(view),
        }
    yield from map(_hole, reversed(waiting))


def _hole(found: DataDamage) -> Item:
    item = unknown if found.defect is Defect.UNKNOWN else damaged
    return item(found.offset, found.stop - found.offset, found.defect.value, seq=found.seq)


def _ending(end: int) -> str:
    word = "deleted" if is_deleted(end) else "live"
    return word if is_regular(end) else f"{word} (delete byte 0x{end:02x})"


def _topic_id(buffer: bytes, path: Path) -> int:
    if _TOPIC.fullmatch(path.absolute().parent.name):
        return int(path.absolute().parent.name, 16)
    return int(U64.unpack_from(buffer, _TOPIC_AT)[0]) if len(buffer) >= FRAME_HEAD.size else 0


def _first_seq(path: Path) -> int:
    found = _FIRST.match(path.name)
    return int(found[1]) if found is not None else 1


def _seal(path: Path) -> Seal:
    """By where the file lies. Away from its store, as in a cold tier, nothing tells: then only format 1 is whole."""
    here = path.absolute()
    topic = _TOPIC.fullmatch(here.parent.name)
    if topic is None:
        return OF_FORMAT_1
    return seal_of(ReadOnlyDisk(here.parents[2]), int(topic["topic_id"], 16), _first_seq(path))


def idx_items(buffer: bytes, path: Path) -> Iterator[Item]:
    """Every entry of an `.idx`, and its trailer; entries are shown even if the checksum is wrong."""
    whole = max(len(buffer) - TRAILER_SIZE, 0)
    for at in range(0, whole - whole % ENTRY_SIZE, ENTRY_SIZE):
        offset, length, ts, flags = ENTRY.unpack_from(buffer, at)
        what = "dropped" if length == 0 else "entry"
        item: Item = {"offset": at, "what": what, "seq": _first_seq(path) + at // ENTRY_SIZE}
        item |= {"data_offset": offset, "length": length, "ts": ts, "flags": flags & ~(DELETED | EXPIRED)}
        yield item | {"deleted": bool(flags & DELETED), "expired": bool(flags & EXPIRED)}
    try:
        _seal(path).idx(buffer)
    except Corrupt as damage:
        yield damaged(0, len(buffer), damage.message)
        return
    count, crc = TRAILER.unpack_from(buffer, whole)
    yield {"offset": whole, "what": "trailer", "count": count, "xxh3": f"{crc:016x}"}


def col_items(buffer: bytes, path: Path) -> Iterator[Item]:
    """What the blocks of a `.col` say, a record a line, and where they end."""
    seal = _seal(path)
    blocks, end = seal.blocks(buffer, 1, U64_MAX)
    for block in blocks:
        yield {"what": "block", "seq": block.first_seq, "count": block.count}
        for at in range(block.count):
            item: Item = {"what": "columns", "seq": block.first_seq + at}
            if block.sizes is not None:
                item["size"] = block.sizes[at]
            for name, names, numbers in (
                ("tag", block.tags, block.tag_numbers),
                ("node", block.nodes, block.node_numbers),
                ("key", block.keys, block.key_numbers),
            ):
                if numbers is not None and numbers[at]:
                    item[name] = as_json_value(names[numbers[at] - 1])
            if block.expires is not None and block.expires[at]:
                item["expires_at"] = block.expires[at]
            if block.jobs is not None and block.jobs[at]:
                item["priority"], item["not_before"] = unpack_job(block.jobs[at])
            yield item
    if end < len(buffer):
        try:
            decode_blocks(buffer[end:], seal.seed)
            why = "a block of seqs that come before the last one's"
        except Corrupt as damage:
            why = damage.message
        yield damaged(end, len(buffer) - end, why)


def del_items(buffer: bytes, path: Path) -> Iterator[Item]:
    """The records that a `.del` says have ended."""
    try:
        ended = _seal(path).ends(buffer)
    except Corrupt as damage:
        yield damaged(0, len(buffer), damage.message)
        return
    yield {"what": "del", "topic_id": ended.topic_id, "seq": ended.first_seq, "entries": len(ended.ends)}
    for at, ends in enumerate(ended.ends):
        if ends:
            seq = ended.first_seq + at
            yield {
                "what": "ended",
                "seq": seq,
                "deleted": bool(ends & DELETED),
                "expired": bool(ends & EXPIRED),
            }
