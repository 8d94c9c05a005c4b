"""What the records of a segment have beside their data, by NumPy: read from all frames at once and held against `.col`.

`read_labels` says of meta and extensions what `codec.log.layout.parse_region` says of them, an extension of every
record at a time. `RecordLabels.contradicted` leaves those records to be looked at one by one of which a block may say
something else. Imported only where numpy is installed.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt

from topics.audit.columnar.frame_heads import Flags, FrameHeads, Longs, values_at_offsets
from topics.codec.log.layout import (
    CHECKSUM_SIZE,
    EXT,
    EXT_HEAD,
    EXT_SIZES,
    FRAME_HEAD,
    FRAME_OVERHEAD,
    META,
    Ext,
)
from topics.codec.log.run import pack_job
from topics.codec.primitives import U16, U32, U64
from topics.codec.segments.segcolumns import NEEDS_BLOCK, ColumnsBlock

_EXT: Final = np.dtype([("kind", "u1"), ("size", "<u2")])
assert _EXT.itemsize == EXT_HEAD.size
# What is read at the end of a region may reach so far behind it, and the checksum is there.
assert max(U16.size, U32.size, U64.size, _EXT.itemsize) <= CHECKSUM_SIZE
_KNOWN: Final = np.array([kind in EXT_SIZES for kind in range(256)])
_SIZES: Final = np.array([EXT_SIZES.get(kind) or 0 for kind in range(256)], np.int64)  # 0: it varies
_NEEDS_BLOCK: Final = np.frombuffer(NEEDS_BLOCK, np.uint8)


@attrs.frozen(eq=False, kw_only=True)
class RecordLabels:
    """Of each frame: `sizes`, stored bytes of data and meta; `expires`, its own expiry or 0; `jobs` as
    `codec.log.run.pack_job`; `key_at`, `key_len`: where its key is, a length of 0 for none; other names by `heads`.
    """

    frames: FrameHeads
    heads: npt.NDArray[np.void]
    sizes: Longs
    expires: npt.NDArray[np.uint64]
    jobs: npt.NDArray[np.uint64]
    key_at: Longs
    key_len: Longs

    def contradicted(self, blocks: Sequence[ColumnsBlock], ended: bytes) -> list[int]:
        """The records with more than data of which no block says just that. Of one that ended names may be missing."""
        wrong = _NEEDS_BLOCK[self.heads["flags"]] != 0
        for block in blocks:
            start, stop = np.searchsorted(self.frames.seqs, (block.first_seq, block.seq_stop)).tolist()
            if start < stop:
                wrong[start:stop] &= ~self._agrees(block, slice(start, stop), ended)
        found: list[int] = np.flatnonzero(wrong).tolist()
        return found

    def _agrees(self, block: ColumnsBlock, some: slice, ended: bytes) -> Flags:
        slots = self.frames.seqs[some] - block.first_seq
        implied = self.frames.lengths[some] - FRAME_OVERHEAD
        sizes = implied if block.sizes is None else np.frombuffer(block.sizes, np.uint32)[slots]
        tags, nodes, keys = (
            _numbers(column, slots) for column in (block.tag_numbers, block.node_numbers, block.key_numbers)
        )
        same: Flags = sizes == self.sizes[some]
        same &= self.expires[some] == _u64(block.expires, slots)
        node_at = self.frames.offsets[some] + FRAME_HEAD.size
        node_len, tag_len = (self.heads[name][some].astype(np.int64) for name in ("node_len", "tag_len"))
        named = _are_named(self.frames.buffer, block.nodes, nodes, node_at, node_len)
        named &= _are_named(self.frames.buffer, block.tags, tags, node_at + node_len, tag_len)
        if block.of_queue:
            same &= self.jobs[some] == _u64(block.jobs, slots)
            named &= _are_named(self.frames.buffer, block.keys, keys, self.key_at[some], self.key_len[some])
        nameless = (np.frombuffer(ended, np.uint8)[some] != 0) & (tags == 0) & (nodes == 0) & (keys == 0)
        agrees: Flags = same & (named | nameless)
        return agrees


def _u64(column: array[int] | None, slots: Longs) -> npt.NDArray[np.uint64]:
    return np.zeros(len(slots), np.uint64) if column is None else np.frombuffer(column, np.uint64)[slots]


def _numbers(column: array[int] | None, slots: Longs) -> Longs:
    if column is None:
        return np.zeros(len(slots), np.int64)
    return np.frombuffer(column, np.uint32)[slots].astype(np.int64)


def _are_named(buffer: bytes, names: Sequence[bytes], numbers: Longs, starts: Longs, sizes: Longs) -> Flags:
    """Whether the bytes [start, start + size) are the name of this number; 0 is that of no bytes."""
    known = np.array([0, *map(len, names)], np.int64)
    right: Flags = known[numbers] == sizes
    rows = np.zeros(len(names) + 1, np.int64)  # of a name among those of its length
    for _, which in _by_size(known):
        rows[which] = np.arange(len(which))
    for size, which in _by_size(np.where(right, sizes, 0)):
        those = b"".join(name for name in names if len(name) == size)
        wanted = np.frombuffer(those, np.uint8).reshape(-1, size)[rows[numbers[which]]]
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(buffer, np.uint8), size)
        right[which] = (windows[starts[which]] == wanted).all(axis=1)
    return right


def _by_size(sizes: Longs) -> Iterator[tuple[int, Longs]]:
    """Each size but 0, and where it stands, ascending."""
    order = np.argsort(sizes, kind="stable")
    ascending = sizes[order]
    starts = np.flatnonzero(np.diff(ascending, prepend=0))
    for which in np.split(order, starts)[1:]:
        yield int(sizes[which[0]]), which


# Meta and extensions.


def read_labels(frames: FrameHeads, heads: npt.NDArray[np.void]) -> RecordLabels | None:
    """What the frames have, whose heads are sound; None if a region of meta and extensions cannot be read."""
    sizes = heads["data_len"].astype(np.int64)
    expires, jobs = np.zeros(len(frames), np.uint64), np.zeros(len(frames), np.uint64)
    key_at, key_len = np.zeros(len(frames), np.int64), np.zeros(len(frames), np.int64)
    which = np.flatnonzero(heads["flags"] & (META | EXT))
    if len(which):
        flags = heads["flags"][which]
        stops = frames.offsets[which] + frames.lengths[which] - CHECKSUM_SIZE
        regions = _Regions(frames.buffer, stops - sizes[which], stops, len(which))
        regions.pass_metas(np.flatnonzero(flags & META))
        regions.pass_exts(np.flatnonzero(flags & EXT))
        if not regions.whole:
            return None
        sizes[which] = regions.metas + stops - regions.at
        expires[which], jobs[which] = regions.expires, regions.jobs
        key_at[which], key_len[which] = regions.key_at, regions.key_len
    return RecordLabels(
        frames=frames, heads=heads, sizes=sizes, expires=expires, jobs=jobs, key_at=key_at, key_len=key_len
    )


class _Regions:
    """Data regions, from `at` to `stops`; `whole` as long as nothing in any of them is malformed."""

    def __init__(self, buffer: bytes, at: Longs, stops: Longs, count: int) -> None:
        self.buffer = buffer
        self.at = at
        self.stops = stops
        self.metas = np.zeros(count, np.int64)
        self.expires = np.zeros(count, np.uint64)
        self.jobs = np.zeros(count, np.uint64)
        self.key_at = np.zeros(count, np.int64)
        self.key_len = np.zeros(count, np.int64)
        self.whole = True

    def pass_metas(self, which: Longs) -> None:
        self.metas[which] = self._pass(which, np.dtype("<u4"))

    def pass_exts(self, which: Longs) -> None:
        """An extension of every record at a time; their kinds ascend, so there are no more turns than kinds."""
        starts = self.at[which] + U16.size
        self._pass(which, np.dtype("<u2"))
        if not self.whole or not len(which):
            return
        exts = _Exts(self.buffer, starts, self.at[which])
        for _ in range(len(EXT_SIZES)):
            exts.step()
        self.whole = exts.are_whole()
        self.expires[which], self.jobs[which] = exts.expires, exts.jobs
        self.key_at[which], self.key_len[which] = exts.key_at, exts.key_len

    def _pass(self, which: Longs, kind: np.dtype[Any]) -> Longs:
        """Go past a length and so many bytes, at least one. The lengths, all 0 if one of them is wrong."""
        if not self.whole or not len(which):
            return np.zeros(len(which), np.int64)
        sizes = values_at_offsets(self.buffer, self.at[which], kind).astype(np.int64)
        behind = self.at[which] + kind.itemsize + sizes
        self.whole = bool(((sizes > 0) & (behind <= self.stops[which])).all())
        if self.whole:
            self.at[which] = behind
        return sizes


class _Exts:
    """Regions of extensions, as `codec.log.layout.parse_exts` reads one."""

    def __init__(self, buffer: bytes, at: Longs, stops: Longs) -> None:
        self.buffer = buffer
        self.at = at
        self.stops = stops
        self.before = np.zeros(len(at), np.int64)  # the kind of the one before
        self.sound = np.ones(len(at), np.bool_)
        self.expires = np.zeros(len(at), np.uint64)
        self.jobs = np.zeros(len(at), np.uint64)
        self.key_at = np.zeros(len(at), np.int64)
        self.key_len = np.zeros(len(at), np.int64)
        self.pairs = np.zeros(len(at), np.int64)  # extensions that come in pairs, and which are there

    def step(self) -> None:
        """Read the next extension of each that has one."""
        which = np.flatnonzero(self.sound & (self.at < self.stops))
        if not len(which):
            return
        at, left = self.at[which], (self.stops - self.at)[which] - EXT_HEAD.size
        found = values_at_offsets(self.buffer, at, _EXT)
        kinds, sizes = found["kind"].astype(np.int64), found["size"].astype(np.int64)
        sound = (kinds > self.before[which]) & _KNOWN[kinds] & (sizes > 0) & (sizes <= left)
        sound &= (_SIZES[kinds] == 0) | (_SIZES[kinds] == sizes)
        at = at + EXT_HEAD.size
        some = np.flatnonzero(sound & (kinds == Ext.WRITE_FRAMES))
        sound[some] = values_at_offsets(self.buffer, at[some], np.dtype("<u4")) >= 2
        some = np.flatnonzero(sound & (kinds == Ext.EXPIRES_AT))
        self.expires[which[some]] = values_at_offsets(self.buffer, at[some], np.dtype("<u8"))
        for i in np.flatnonzero(sound & (kinds == Ext.PRIORITY)).tolist():
            self.jobs[which[i]] |= np.uint64(pack_job(self.buffer[at[i]], 0))
        for i in np.flatnonzero(sound & (kinds == Ext.NOT_BEFORE)).tolist():
            due = int.from_bytes(self.buffer[at[i] : at[i] + U64.size], "little")
            self.jobs[which[i]] |= np.uint64(pack_job(None, due))
        some = np.flatnonzero(sound & (kinds == Ext.KEY))
        self.key_at[which[some]], self.key_len[which[some]] = at[some], sizes[some]
        self.pairs[which] += kinds == Ext.IDEMPOTENCY_KEY
        self.pairs[which] -= kinds == Ext.BODY_DIGEST
        self.before[which], self.sound[which], self.at[which] = kinds, sound, at + sizes

    def are_whole(self) -> bool:
        return bool((self.sound & (self.pairs == 0)).all())
