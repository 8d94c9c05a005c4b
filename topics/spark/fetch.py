"""Reading pieces of a directory: what an executor does. Every record is verified against what the plan says of it.

A plan is a little old when it is carried out: a checkpoint may have moved a record from the log to a segment, a rewrite
may have moved it within one. So if a record is not where it should be, all that is left to read is planned again from
the directory as it is now; only if the record should still be in the very same place is it damage. What was deleted
meanwhile is left out, what was lost meanwhile is an error, or left out if the reader said so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

import attrs
import numpy as np
import pyarrow as pa

from topics.audit.columnar.arrow_batches import Verify, frames_batches
from topics.audit.columnar.frame_heads import FrameHeads, Longs
from topics.kernel.errors import Corrupt
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.spark.place import DataLoss, Loss, ReadForm
from topics.spark.spans import FilePiece

READ_BYTES: Final = 8 * MIB  # of one read of a file, unless one record is longer
READ_THROUGH: Final = 64 * 1024  # bytes between two wanted records that are read rather than passed over
LOOKS_MAX: Final = 3  # one after the other that do not get any further
_log: Final = logging.getLogger("topics.spark")


class Planner(Protocol):
    """A directory as it is now."""

    def again(self, topic: str, topic_id: int, seqs: Longs) -> tuple[Sequence[FilePiece], Sequence[Loss]]:
        """Where these seqs are now, and which of them are lost; those deleted meanwhile are in neither."""
        ...


@attrs.frozen(kw_only=True)
class PieceFetcher:
    """How pieces become batches. `look`: at the directory as it is when it is called."""

    disk: Disk
    look: Callable[[], Planner]
    how: ReadForm

    def batches(self, pieces: Iterable[FilePiece]) -> Iterator[pa.RecordBatch]:
        """The records of pieces, in their order.

        Raises:
            Corrupt: one of them is damaged, and `verify` is not FLAG.
            DataLoss: one of them was lost since the plan was made.
        """
        ahead, looks = deque(pieces), 0
        suspect: tuple[FilePiece, FrameHeads] | None = None
        while ahead:
            piece = ahead.popleft()
            groups = list(_groups(piece))
            for i, frames in enumerate(groups):
                try:
                    found = self._read(piece, frames)
                except (FileNotFoundError, Corrupt) as trouble:
                    believed = isinstance(trouble, Corrupt) or looks == LOOKS_MAX
                    if believed and suspect and _is_part(piece, frames, *suspect):
                        found = self._damaged(piece, frames, trouble)
                    elif looks == LOOKS_MAX:
                        raise
                    else:
                        looks, suspect = looks + 1, (piece, frames)
                        ahead = deque(self._planned_again(piece, groups[i:], ahead))
                        break
                looks = 0
                yield from found

    def _planned_again(
        self, piece: FilePiece, groups: Sequence[FrameHeads], behind: Iterable[FilePiece]
    ) -> list[FilePiece]:
        """What is left of a piece and all the pieces behind it, as they are to be read now."""
        seqs = {(piece.topic, piece.topic_id): [frames.seqs for frames in groups]}
        for later in behind:
            seqs.setdefault((later.topic, later.topic_id), []).append(later.all_seqs())
        planner = self.look()
        found: list[FilePiece] = []
        for (topic, topic_id), left in seqs.items():
            pieces, losses = planner.again(topic, topic_id, np.concatenate(left))
            for loss in losses:
                if self.how.fail_on_loss:
                    raise DataLoss(loss)
                _log.warning("%s", loss)
            found += pieces
        return found

    def _damaged(
        self, piece: FilePiece, frames: FrameHeads, trouble: FileNotFoundError | Corrupt
    ) -> Iterator[pa.RecordBatch]:
        """Records of which some are damaged, in the very place where they should be, or whose file is not there."""
        is_gone = isinstance(trouble, FileNotFoundError)
        if self.how.verify is Verify.FLAG:
            return (
                frames_batches(frames, self.how.schema, Verify.FLAG)
                if is_gone
                else self._read(piece, frames, Verify.FLAG)
            )
        if not is_gone:
            raise trouble
        first, last = int(frames.seqs[0]), int(frames.seqs[-1])
        raise Corrupt(
            f"topic {piece.topic!r} seq {first} to {last}: {piece.path} is not there; run topics fsck",
            topic=piece.topic,
            seq=first,
        ) from trouble

    def _read(
        self, piece: FilePiece, frames: FrameHeads, verify: Verify | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The batches of a group of records. A damaged one is an error until it is known to be damaged."""
        start = int(frames.offsets[0])
        size = int(frames.offsets[-1] + frames.lengths[-1]) - start
        data = self.disk.read(piece.path, start, size)  # fewer bytes if the file ends before
        read = attrs.evolve(frames, buffer=data, offsets=frames.offsets - start)
        given = Verify.FAIL if self.how.verify is Verify.FLAG else self.how.verify
        return frames_batches(read, self.how.schema, verify or given)


def _groups(piece: FilePiece) -> Iterator[FrameHeads]:
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
        yield FrameHeads(
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


def _is_part(piece: FilePiece, frames: FrameHeads, older_piece: FilePiece, older: FrameHeads) -> bool:
    """Whether records are planned in the same places as those that were read before."""
    if piece.path != older_piece.path or not np.isin(frames.seqs, older.seqs).all():
        return False
    at = np.searchsorted(older.seqs, frames.seqs)
    return bool((older.offsets[at] == frames.offsets).all() and (older.lengths[at] == frames.lengths).all())
