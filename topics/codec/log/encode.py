"""Columns to frames. One chunk of bytes a run.

The plain case (data only) is two C calls and a checksum a record, through the per-length layouts below; what a run's
heads have in common is packed once a run. Records of one length are mapped without a line of Python each. A write that
needs extension 7 or a key pays for them on its first frame only; the rest stays plain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import Struct
from typing import Final

from msgspec import Raw

from topics.codec.log.layout import (  # fmt: skip
    APPEND,
    CHECKSUM_SIZE,
    COMPRESSED,
    COVERED_HEAD,
    DURABLE,
    EXT,
    EXT_HEAD,
    FRAME_LEN_SIZE,
    FRAME_OVERHEAD,
    LEN_OVERHEAD,
    META,
    NODE,
    TAG,
    Ext,
    pack_exts,
    pack_frame,
    parse_exts,
)
from topics.codec.log.run import Keyed, Run, pack_job
from topics.codec.primitives import LAYOUT_BYTES_MAX, U8, U16, U32, U64, checksum
from topics.kernel.columns import RecordColumns, Texts
from topics.kernel.limits import U64_MAX

RUN_HEAD: Final = Struct("<BBQ")  # type, flags, topic_id
RUN_TAIL: Final = Struct("<QHH")  # ts, node_len, tag_len
assert RUN_HEAD.size + U64.size + RUN_TAIL.size + U32.size == COVERED_HEAD.size
_LABELLED_HEAD: Final = Struct(f"<{RUN_HEAD.size}sQQHHI")  # seq, and what is packed in RUN_TAIL elsewhere
assert _LABELLED_HEAD.size == COVERED_HEAD.size
_SEAM: Final = Struct("<QI")  # a checksum and the frame_len behind it


_Pack = Callable[..., bytes]


class _Packers(dict[int, tuple[_Pack, _Pack]]):
    """Data bytes -> packers of (what the checksum covers, the whole frame). Before and behind `seq` stand the bytes
    that a run's heads share, `RUN_HEAD` and `RUN_TAIL`.
    """

    def __missing__(self, size: int) -> tuple[_Pack, _Pack]:
        covered = Struct(f"<{RUN_HEAD.size}sQ{RUN_TAIL.size}sI{size}s")
        whole = Struct(f"<I{covered.size}sQ")
        assert whole.size == size + FRAME_OVERHEAD
        pair = (covered.pack, whole.pack)
        if size <= LAYOUT_BYTES_MAX:
            self[size] = pair
        return pair


_packers: Final = _Packers()


def encode_run(
    topic_id: int,
    seq_start: int,
    ts: int,
    records: RecordColumns,
    *,
    durable: bool,
    keyed: Keyed | None,
    write_frames: int,
) -> tuple[bytes, Run]:
    """The frames of a run in one chunk, and the run.

    `write_frames`: frames of the write that begins with this run's first frame; 0 if it began elsewhere (behind a
    WriteResult). `ttl_ms` and `delay_ms` become absolute here.
    """
    count = len(records.data)
    assert topic_id > 0
    assert seq_start > 0
    if count == 1 and write_frames < 2 and keyed is None and records.plain:
        return _encode_one(topic_id, seq_start, ts, records, durable=durable)
    assert count > 0
    assert write_frames == 0 or write_frames >= count
    assert keyed is None or write_frames > 0
    flag = DURABLE if durable else 0
    plain = records.plain
    plain_even = records.even and plain
    sizes = (
        array("I", (records.size_longest,)) * count
        if plain_even
        else array("I", records.stored or records.sizes)
    )
    run = Run(
        topic_id=topic_id, seq_start=seq_start, ts=ts, lengths=sizes, sizes=sizes, keyed=keyed, durable=durable
    )  # fmt: skip
    first = _exts_of_write(keyed, write_frames)
    if not plain and records.labelled:
        return _encode_labelled(run, records, flag, first), run
    chunks = (
        _encode_plain(records, flag, topic_id, seq_start, ts, first)
        if plain
        else _encode_mixed(run, records, flag, first)
    )
    assert len(chunks) == count
    if plain_even:
        run.lengths = array("I", (records.size_longest + FRAME_OVERHEAD,)) * count
        run.lengths[0] = len(chunks[0])  # with what is said of the write
    else:
        run.lengths = array("I", map(len, chunks))
    return b"".join(chunks), run


def _encode_one(
    topic_id: int, seq: int, ts: int, records: RecordColumns, *, durable: bool
) -> tuple[bytes, Run]:
    """A write of one record that carries data only: the shortest way of all."""
    size = records.size_total
    pack_covered, pack_whole = _packers[size]
    head = RUN_HEAD.pack(APPEND, DURABLE if durable else 0, topic_id)
    covered = pack_covered(head, seq, RUN_TAIL.pack(ts, 0, 0), size, records.data[0])
    chunk = pack_whole(size + LEN_OVERHEAD, covered, checksum(covered))
    lengths, sizes = array("I", (size + FRAME_OVERHEAD,)), array("I", (size,))
    return chunk, Run(topic_id=topic_id, seq_start=seq, ts=ts, lengths=lengths, sizes=sizes, durable=durable)


def _exts_of_write(keyed: Keyed | None, write_frames: int) -> dict[int, bytes]:
    exts: dict[int, bytes] = {}
    if keyed is not None:
        assert keyed.key
        exts[Ext.IDEMPOTENCY_KEY] = keyed.key
        exts[Ext.BODY_DIGEST] = U64.pack(keyed.digest)
    if write_frames > 1:
        exts[Ext.WRITE_FRAMES] = U32.pack(write_frames)
    return exts


def _encode_plain(
    records: RecordColumns, flag: int, topic_id: int, seq: int, ts: int, first: dict[int, bytes]
) -> list[bytes]:
    """One chunk a record that carries data only; `first` goes on the first."""
    datas = records.data
    chunks: list[bytes] = []
    head, tail = RUN_HEAD.pack(APPEND, flag, topic_id), RUN_TAIL.pack(ts, 0, 0)
    if first:
        region = pack_exts(sorted(first.items()))
        data = U16.pack(len(region)) + region + datas[0]
        pack_covered, pack_whole = _packers[len(data)]
        covered = pack_covered(RUN_HEAD.pack(APPEND, flag | EXT, topic_id), seq, tail, len(data), data)
        chunks.append(pack_whole(len(data) + LEN_OVERHEAD, covered, checksum(covered)))
        datas, seq = datas[1:], seq + 1
    if records.even:
        size = records.size_longest
        pack_covered, pack_whole = _packers[size]
        seqs = range(seq, seq + len(datas))
        covereds = list(map(pack_covered, repeat(head), seqs, repeat(tail), repeat(size), datas))
        chunks += map(pack_whole, repeat(size + LEN_OVERHEAD), covereds, map(checksum, covereds))
        return chunks
    append, digest, packers = chunks.append, checksum, _packers
    for data in datas:
        size = len(data)
        pack_covered, pack_whole = packers[size]
        covered = pack_covered(head, seq, tail, size, data)
        append(pack_whole(size + LEN_OVERHEAD, covered, digest(covered)))
        seq += 1
    return chunks


def _encode_labelled(run: Run, records: RecordColumns, flag: int, first: dict[int, bytes]) -> bytes:
    """The frames, where every record has the same of tag, node and meta, and no extension; fills the run's columns.

    Column by column: what the checksum covers of each frame is one pack and one join; between two frames stands one
    seam, the checksum of the one and the length of the other.
    """
    count = len(records)
    nodes, tags, metas = records.node, records.tag, records.meta
    bits = (TAG if tags else 0) | (NODE if nodes else 0) | (META if metas else 0)
    columns: list[Iterable[bytes | Raw]] = [
        map(
            _LABELLED_HEAD.pack,
            repeat(RUN_HEAD.pack(APPEND, flag | bits, run.topic_id)),
            range(run.seq_start, run.seq_stop),
            repeat(run.ts),
            map(len, nodes) if nodes else repeat(0),
            map(len, tags) if tags else repeat(0),
            [size + U32.size for size in records.stored] if metas else records.sizes,
        )
    ]
    columns += [column for column in (nodes, tags) if column]
    if metas:
        columns += [map(U32.pack, map(len, metas)), metas]
    data = records.data
    columns.append(data.raws if isinstance(data, Texts) else data)
    covereds = list(map(b"".join, zip(*columns, strict=True)))
    if first:
        covereds[0] = pack_frame(
            APPEND, flag, run.topic_id, run.seq_start, run.ts, records.data[0],
            node=nodes[0] if nodes else b"", tag=tags[0] if tags else b"", meta=metas[0] if metas else b"",
            exts=pack_exts(sorted(first.items())),
        )[FRAME_LEN_SIZE:-CHECKSUM_SIZE]  # fmt: skip
    assert len(covereds) == count
    lengths = [len(covered) + CHECKSUM_SIZE for covered in covereds]
    pieces = [b""] * (2 * count + 1)
    pieces[0] = U32.pack(lengths[0])
    pieces[1::2] = covereds
    pieces[2::2] = map(_SEAM.pack, map(checksum, covereds), [*lengths[1:], 0])
    pieces[-1] = pieces[-1][:CHECKSUM_SIZE]
    run.lengths = array("I", [length + FRAME_LEN_SIZE for length in lengths])
    run.flags = bytes((bits,)) * count
    run.tags = tags if isinstance(tags, list) else list(tags) if tags else None
    run.nodes = nodes if isinstance(nodes, list) else list(nodes) if nodes else None
    return b"".join(pieces)


def _encode_mixed(run: Run, records: RecordColumns, flag: int, first: dict[int, bytes]) -> list[bytes]:
    """One chunk a record; fills the run's optional columns."""
    count, topic_id, ts, seq = len(records), run.topic_id, run.ts, run.seq_start
    absent = [b""] * count
    nodes = absent if records.node is None else records.node
    tags = absent if records.tag is None else records.tag
    metas = absent if records.meta is None else records.meta
    small: Iterable[bool] = [False] * count if records.compressed is None else records.compressed
    exts = _own_exts(run, records)
    flags = bytearray(
        (TAG if tag else 0) | (NODE if node else 0) | (META if meta else 0) | (EXT if region else 0)
        | (COMPRESSED if squeezed else 0)
        for tag, node, meta, region, squeezed in zip(tags, nodes, metas, exts, small, strict=True)
    )  # fmt: skip
    if first:
        exts[0] = pack_exts(sorted(((parse_exts(exts[0]) or {}) | first).items()))
    chunks: list[bytes] = []
    for data, node, tag, meta, region, bits in zip(
        records.data, nodes, tags, metas, exts, flags, strict=True
    ):
        chunks.append(
            pack_frame(
                APPEND,
                flag | bits & COMPRESSED,
                topic_id,
                seq,
                ts,
                data,
                node=node,
                tag=tag,
                meta=meta,
                exts=region,
            )
        )
        seq += 1
    run.flags = bytes(flags) if any(flags) else None
    run.tags = list(tags) if any(tags) else None
    run.nodes = list(nodes) if any(nodes) else None
    return chunks


def _own_exts(run: Run, records: RecordColumns) -> list[bytes]:
    """The extension region of each record without those of its write, types ascending; fills the run's columns."""
    assert run.dedup is None  # a run is encoded once
    regions = [b""] * len(records)
    run.expires = _absolute(records.ttl_ms, run.ts, absent=0)
    priorities = _absolute(records.priority, 0, absent=-1)
    not_before = _absolute(records.delay_ms, run.ts, absent=0)
    run.jobs = _jobs(priorities, not_before, len(records))
    _add_numbers(regions, Ext.EXPIRES_AT, run.expires, U64, absent=0)
    _add_numbers(regions, Ext.PRIORITY, priorities, U8, absent=-1)
    _add_numbers(regions, Ext.NOT_BEFORE, not_before, U64, absent=0)
    _add_bytes(regions, Ext.KEY, records.key)
    _add_bytes(regions, Ext.DEDUP_ID, records.dedup_id)
    _add_bytes(regions, Ext.CONTENT_TYPE, records.content_type)
    _add_numbers(regions, Ext.HOPS, _absolute(records.hops, 0, absent=-1), U8, absent=-1)
    if records.key is not None and any(records.key):
        run.keys = list(records.key)
    if records.dedup_id is not None and any(records.dedup_id):
        run.dedup = [(index, dedup_id) for index, dedup_id in enumerate(records.dedup_id) if dedup_id]
    return regions


def _jobs(priorities: list[int] | None, not_before: list[int] | None, count: int) -> list[int] | None:
    if priorities is None and not_before is None:
        return None
    pairs = zip(priorities or [-1] * count, not_before or [0] * count, strict=True)
    return [pack_job(None if priority < 0 else priority, due) for priority, due in pairs]


def _absolute(column: Sequence[int | None] | None, base: int, *, absent: int) -> list[int] | None:
    if column is None or all(value is None for value in column):
        return None
    return [absent if value is None else min(base + value, U64_MAX) for value in column]


def _add_numbers(
    regions: list[bytes], ext: Ext, column: list[int] | None, layout: Struct, *, absent: int
) -> None:
    if column is None:
        return
    head = EXT_HEAD.pack(ext, layout.size)
    for index, value in enumerate(column):
        if value != absent:
            regions[index] += head + layout.pack(value)


def _add_bytes(regions: list[bytes], ext: Ext, column: Sequence[bytes] | None) -> None:
    if column is None:
        return
    for index, value in enumerate(column):
        if value:
            regions[index] += EXT_HEAD.pack(ext, len(value)) + value
