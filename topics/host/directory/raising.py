"""A store of format 1 becomes one of this version's (decisions 45 and 46).

FORMAT first, in one synced step: from then on older versions refuse the store, and it has an id. Then each segment's
`.idx`, `.col` and `.del` gets checksums that begin with its seed. Those of format 1 do not say whose they are, so they
are held against all of the data once: what the data contradicts stays as it is, fails its checksum from then on, and is
made anew as any damaged one. Data in the cold tier is not asked for, and what the medium does not give speaks against
nothing: every read from there is held against the idx.

If it breaks off, FORMAT says so: both seeds count until the next opening for writing has gone on with it.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from topics.codec.log.layout import FLAGS_ALL
from topics.codec.segments.segcolumns import reseal_blocks
from topics.codec.segments.segdel import encode_del
from topics.codec.segments.segidx import IdxColumns
from topics.codec.segments.segment import walk
from topics.host.directory.layout import (
    FORMAT_VERSION,
    Format,
    segment_of,
    segment_path,
    topic_dir,
    write_format,
)
from topics.host.directory.size_limits import bytes_max
from topics.host.segments.blocks import columns_agree, columns_of_data
from topics.host.segments.segment_files import data_end, encode_idx
from topics.host.segments.segment_seals import Seal, seal_of
from topics.host.system.medium import Unreadable, unreadable_on_error
from topics.host.system.refusals import FULL
from topics.host.system.temporary import TEMPORARY, write_temporary
from topics.kernel.errors import CannotOpen, Corrupt, Unusable
from topics.kernel.limits import SEGMENT_RECORDS_MAX, U64_MAX
from topics.kernel.ports import Disk, Entropy
from topics.log.regions import SegmentId
from topics.log.segments import Segment


def new_format(entropy: Entropy, shards: int) -> Format:
    """Of a store that begins."""
    return Format(shards, 0, store=entropy.token(16).hex())


def raise_store(disk: Disk, form: Format, entropy: Entropy, where: str) -> Format:
    """Make it one of this version's, durably, or go on with that; before the first byte that older ones did not know.

    Raises:
        CannotOpen: the disk is full.
        OSError: the disk failed; the next opening goes on.
    """
    try:
        return _raise(disk, form, entropy)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise CannotOpen(
            Unusable.NO_SPACE,
            f"{where} is of an older version of topics, and there is no space left on the device to raise it to "
            "this one: free some, or open it read-only. Nothing in it is lost",
            path=where,
        ) from error


def _raise(disk: Disk, form: Format, entropy: Entropy) -> Format:
    if form.format < FORMAT_VERSION:
        form = attrs.evolve(new_format(entropy, form.shards), generation=form.generation, raising=True)
        write_format(disk, form)
    for segment in _segments(disk):
        _raise_segment(disk, segment)
    form = attrs.evolve(form, raising=False)
    write_format(disk, form)
    return form


def _segments(disk: Disk) -> Iterator[SegmentId]:
    for name in disk.names("topics"):
        found = (segment_of(f"topics/{name}/{file}") for file in disk.names(f"topics/{name}"))
        yield from dict.fromkeys(segment for segment in found if segment is not None)


def _raise_segment(disk: Disk, segment: SegmentId) -> None:
    seal = seal_of(disk, *segment)
    data = _read(disk, segment, "data")
    raised = _indexed(disk, segment, seal, data) or _columns_alone(disk, segment, seal, data)
    try:
        ended = seal.ends(_read(disk, segment, "del") or b"")
        if (ended.topic_id, ended.first_seq) == segment:
            raised["del"] = encode_del(ended, seal.seed)
    except Corrupt:
        pass
    for part, content in raised.items():
        path = segment_path(*segment, part)
        write_temporary(disk, path, content)
        disk.rename(path + TEMPORARY, path)
    if raised:
        disk.sync_dir(topic_dir(segment.topic_id))


def _indexed(disk: Disk, segment: SegmentId, seal: Seal, data: bytes | None) -> dict[str, bytes]:
    """The idx and the columns, unless the idx is damaged or contradicted by the data: then the opening makes it anew.
    Of records that are damaged the columns know more than the data.
    """
    try:
        idx = seal.idx(_read(disk, segment, "idx") or b"")
    except Corrupt:
        return {}
    anew = None
    if data is not None and len(idx):
        counted = Segment(segment.first_seq, segment.first_seq + len(idx) - 1, data_end(idx), 0, sealed=True)
        data = data[: counted.size]
        if not _agrees(segment.topic_id, counted, idx, data):
            return {}
        anew = columns_of_data(segment.topic_id, counted, idx, data, seal.seed)
    col = _resealed(_read(disk, segment, "col"), seal) if anew is None else anew
    return {"idx": encode_idx(idx, seal.seed)} | ({"col": col} if col else {})


def _columns_alone(disk: Disk, segment: SegmentId, seal: Seal, data: bytes | None) -> dict[str, bytes]:
    """The columns without an idx, unless the data contradicts them."""
    topic_id, first = segment
    columns = _read(disk, segment, "col") or b""
    blocks, _ = seal.blocks(columns, first, min(first + SEGMENT_RECORDS_MAX, U64_MAX))
    if data is not None and blocks:
        stop = blocks[-1].seq_stop
        found = walk(data, 0, len(data), topic_id=topic_id, first_seq=first, seq_stop=stop)
        counted, idx = Segment(first, stop - 1, len(data), 0, sealed=True), found.index_columns(first, stop)
        if not columns_agree(topic_id, counted, idx, data, blocks):
            return {}
    col = _resealed(columns, seal)
    return {"col": col} if col else {}


def _resealed(columns: bytes | None, seal: Seal) -> bytes:
    return reseal_blocks(columns or b"", seal.seeds[-1], seal.seed)


def _agrees(topic_id: int, segment: Segment, idx: IdxColumns, data: bytes) -> bool:
    """Whether all whole records of the data are as their entries say, and there are some if there should be. A damaged
    one speaks neither for nor against.
    """
    found = walk(data, 0, len(data), topic_id=topic_id, first_seq=segment.first, seq_stop=segment.last + 1)
    for at, seq in enumerate(found.seqs):
        i = seq - segment.first
        said = (idx.offsets[i], idx.lengths[i], idx.ts[i], idx.flags[i] & FLAGS_ALL)
        if said != (found.offsets[at], found.lengths[at], found.ts[at], found.flags[at] & FLAGS_ALL):
            return False
    return len(found) > 0 or not any(idx.lengths)


def _read(disk: Disk, segment: SegmentId, part: str) -> bytes | None:
    """What is there of a file; None if it is not, or if the medium does not give it: then it stays as it is, and the
    opening does with it what it does in a store of this format.
    """
    path = segment_path(*segment, part)
    size = disk.size(path)
    try:
        with unreadable_on_error():
            return None if size is None else disk.read(path, 0, min(size, bytes_max(path)))
    except Unreadable:
        return None
