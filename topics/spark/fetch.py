"""Reading pieces of a directory: what an executor does. Every record is verified against what the plan says of it.

A plan is a little old when it is carried out: a checkpoint may have moved a record from the log to a segment, a rewrite
may have moved it within one. So a record that is not where it should be is looked for in the directory as it is now;
only if it should still be in the very same place is it damage. What was deleted meanwhile is left out, what was lost
meanwhile is an error, or left out if the reader said so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs
import numpy as np
import pyarrow as pa

from topics.audit.arrow import Verify, frames_batch
from topics.audit.files import WithCold
from topics.audit.heads import Frames, Longs
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.spark.directory import DirectoryPlace, open_cold, open_disk
from topics.spark.place import DataLoss
from topics.spark.spans import Piece

READ_BYTES: Final = 8 * MIB  # of one read of a file, unless one record is longer
READ_THROUGH: Final = 64 * 1024  # bytes between two wanted records that are read rather than passed over
REPLANS_MAX: Final = 3


@attrs.frozen(kw_only=True)
class Fetch:
    """How pieces become batches. `schema`: the columns."""

    place: DirectoryPlace
    schema: pa.Schema
    verify: Verify
    fail_on_loss: bool

    def batches(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The records of a piece.

        Raises:
            Corrupt: one of them is damaged, and `verify` is not FLAG.
            DataLoss: one of them was lost since the plan was made.
        """
        disk = open_disk(self.place.path)
        if self.place.cold is not None:
            disk = WithCold(disk, open_cold(self.place.cold))
        for frames in _groups(piece):
            yield from self._group(disk, piece, frames, REPLANS_MAX)

    def _group(self, disk: Disk, piece: Piece, frames: Frames, replans: int) -> Iterator[pa.RecordBatch]:
        try:
            read = attrs.evolve(frames, buffer=self._read(disk, piece, frames), offsets=_relative(frames))
            checked = Verify.FAIL if self.verify is Verify.FLAG else self.verify
            batch = frames_batch(read, self.schema, checked)
        except (FileNotFoundError, Corrupt) as trouble:
            yield from self._again(disk, piece, frames, trouble, replans)
        else:
            yield batch

    def _again(
        self, disk: Disk, piece: Piece, frames: Frames, trouble: Exception, replans: int
    ) -> Iterator[pa.RecordBatch]:
        """Read the records of a group from where they are now."""
        found, losses = self.place.look().again(piece.topic_id, frames.seqs)
        if losses and self.fail_on_loss:
            raise DataLoss(losses[0])
        for newer in found:
            for group in _groups(newer):
                if isinstance(trouble, Corrupt) and _is_part(group, newer, frames, piece):
                    yield self._damaged(disk, newer, group, trouble)
                elif replans:
                    yield from self._group(disk, newer, group, replans - 1)
                else:
                    raise trouble

    def _damaged(self, disk: Disk, piece: Piece, frames: Frames, trouble: Corrupt) -> pa.RecordBatch:
        """Records that are in the same place still, of which some are damaged."""
        if self.verify is not Verify.FLAG:
            raise trouble
        read = attrs.evolve(frames, buffer=self._read(disk, piece, frames), offsets=_relative(frames))
        return frames_batch(read, self.schema, Verify.FLAG)

    def _read(self, disk: Disk, piece: Piece, frames: Frames) -> bytes:
        """The bytes from the first of the records to the last, fewer if the file ends before."""
        start = int(frames.offsets[0])
        size = int(frames.offsets[-1] + frames.lengths[-1]) - start
        try:
            return disk.read(piece.path, start, size)
        except FileNotFoundError as absent:
            if not piece.cold or self.place.cold is not None:
                raise
            why = f"{piece.path} is in the cold tier: name its folder or URL with the option coldPath"
            raise FileNotFoundError(absent.errno, why) from absent


def _groups(piece: Piece) -> Iterator[Frames]:
    """The records of a piece, as many at a time as one read of the file gives."""
    lengths = piece.lengths()
    steps = lengths + piece.gap
    before = np.cumsum(steps) - steps
    spans = np.repeat(np.arange(len(piece.seqs)), piece.counts)
    firsts = np.cumsum(piece.counts) - piece.counts
    offsets = before - before[firsts][spans] + piece.offsets[spans]
    seqs = np.arange(len(lengths)) - firsts[spans] + piece.seqs[spans]
    states = piece.states[spans]
    for start, stop in _reads(offsets, lengths):
        part = slice(start, stop)
        yield Frames(
            buffer=b"",
            topic=piece.topic,
            topic_id=piece.topic_id,
            seqs=seqs[part],
            offsets=offsets[part],
            lengths=lengths[part],
            states=states[part],
        )


def _reads(offsets: Longs, lengths: Longs) -> Iterator[tuple[int, int]]:
    """Which records are read together: ascending in the file, little between them, not too many bytes in all."""
    count = len(offsets)
    if not count:
        return
    between = offsets[1:] - (offsets[:-1] + lengths[:-1])
    apart = (between < 0) | (between > READ_THROUGH)
    start = 0
    for stop in [*(np.flatnonzero(apart) + 1).tolist(), count]:
        while start < stop:
            limit = offsets[start] + READ_BYTES
            behind = start + int(
                np.searchsorted(offsets[start:stop] + lengths[start:stop], limit, side="right")
            )
            behind = min(max(behind, start + 1), stop)
            yield start, behind
            start = behind


def _relative(frames: Frames) -> Longs:
    relative: Longs = frames.offsets - frames.offsets[0]
    return relative


def _is_part(newer: Frames, its_piece: Piece, older: Frames, piece: Piece) -> bool:
    """Whether records that were read are planned in the same places again."""
    if its_piece.path != piece.path:
        return False
    at = np.searchsorted(older.seqs, newer.seqs)
    return bool((older.offsets[at] == newer.offsets).all() and (older.lengths[at] == newer.lengths).all())
