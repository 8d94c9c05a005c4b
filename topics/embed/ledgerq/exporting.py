"""A topic as a directory in the seed's dialect of ledgerq (queues 7, decision 86).

Ids are the seqs of live records; what is gone is not there. The read position stands at the first of them, so all of
them are pending. `metadata.json` is written last: a directory without it is an export that did not end.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import msgspec

from topics.calls.page import Record
from topics.codec.ledgerq.encode import INDEX_STEP_BYTES, encode_entry, encode_index
from topics.codec.ledgerq.layout import NS_A_MS
from topics.codec.ledgerq.position import SEED_METADATA, Position, encode_position
from topics.embed.ledgerq.directory import RETRIES
from topics.embed.ledgerq.mapping import PRIORITIES, entry_of, level_of
from topics.host.system.folder import make_folder, sync_names
from topics.kernel.config import Compression
from topics.kernel.errors import CannotOpen, Unusable
from topics.kernel.limits import MIB
from topics.log.floors import Gap

if TYPE_CHECKING:
    from topics.calls.blocking import Queue
    from topics.embed.store import Store

SEGMENT_BYTES: Final = 64 * MIB
_PEEKED_MAX: Final = 1000


@attrs.define(kw_only=True)
class LedgerqExported:
    """What an export has done. `notes`: what the format does not hold."""

    topic: str
    records: int = 0
    segments: int = 0
    next_id: int = 1
    notes: list[str] = attrs.field(factory=list)


class Export:
    """One export.

    Raises:
        CannotOpen: there is something at `root`.
    """

    def __init__(self, store: Store, topic: str, root: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.store = store
        self.topic = store.topic(topic)
        self.queue: Queue = store.queue(topic)
        self.state = self.topic.state()
        self.root = root
        self.segment_bytes = segment_bytes
        self.rounded = self.lost = 0
        config = self.state.config
        self.compress_from = None if config.compression is Compression.NONE else config.compression_min_bytes
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise CannotOpen(
                Unusable.FOREIGN, f"{root} is there already: an export makes its directory; name another one"
            )
        make_folder(root)

    def carried_out(self) -> LedgerqExported:
        done = LedgerqExported(topic=self.topic.name, next_id=self.state.head_seq + 1)
        segment: _SegmentWriter | None = None
        first_id = done.next_id
        for record in self._records():
            if segment is None or segment.size >= self.segment_bytes:
                if segment is not None:
                    segment.end()
                segment, done.segments = _SegmentWriter(self.root, record.seq), done.segments + 1
            segment.add(record, self._entry(record))
            first_id, done.records = min(first_id, record.seq), done.records + 1
        if segment is not None:
            segment.end()
        self._write_retries(done)
        now_s = self.store.stats().time_ms // 1000
        position = Position(
            next_id=done.next_id, read_id=first_id, created_s=now_s, updated_s=now_s, segments=done.segments
        )
        _write(self.root / SEED_METADATA, encode_position(position))
        sync_names(self.root)
        done.notes += self._notes()
        return done

    def _records(self) -> Iterator[Record]:
        """Up to the head as it is now."""
        for found in self.topic.records():
            if isinstance(found, Gap):
                self.lost += found.missed_estimate
            elif found.seq <= self.state.head_seq:
                yield found

    def _entry(self, record: Record) -> bytes:
        priority = record._view.priority or 0  # noqa: SLF001 -- an export writes all of a frame; on the wire there is none
        if priority != PRIORITIES[level_of(priority)]:
            self.rounded += 1
        return encode_entry(entry_of(record, priority=priority, compress_from=self.compress_from))

    def _write_retries(self, done: LedgerqExported) -> None:
        """Jobs that were delivered before, as the seed's page has them."""
        if self.state.queue is None:
            return
        found: dict[str, dict[str, object]] = {}
        for state in ("ready", "in_flight", "delayed"):
            jobs = self.queue.peek(state, limit=_PEEKED_MAX)
            found |= {
                str(job.seq): {"count": job.deliveries, "reason": job.reason}
                for job in jobs
                if job.deliveries
            }
            if len(jobs) == _PEEKED_MAX:
                done.notes.append(
                    f"of the jobs that are {state} only the first {_PEEKED_MAX} tell their deliveries"
                )
        if found:
            _write(self.root / RETRIES, msgspec.json.encode(found))
            done.notes.append(
                f"{len(found)} jobs were delivered before: how often and why is kept, when is not"
            )
        if self.state.queue.delayed:
            done.notes.append(
                f"{self.state.queue.delayed} jobs wait for their time, which the format does not hold"
            )

    def _notes(self) -> Iterator[str]:
        if self.rounded:
            yield f"{self.rounded} priorities are rounded to low, medium or high (0, 5, 9)"
        if self.lost:
            yield f"{self.lost} records had been lost before; topics state tells where"


class _SegmentWriter:
    """One segment and its index, as they are written."""

    def __init__(self, root: Path, first_id: int) -> None:
        self.size = 0
        self._path = root / f"{first_id:020}.log"
        self._file = self._path.open("xb")
        self._rows: list[tuple[int, int, int]] = []
        self._indexed = -INDEX_STEP_BYTES

    def add(self, record: Record, entry: bytes) -> None:
        if self.size - self._indexed >= INDEX_STEP_BYTES:
            self._rows.append((record.seq, record.ts * NS_A_MS, self.size))
            self._indexed = self.size
        self._file.write(entry)
        self.size += len(entry)

    def end(self) -> None:
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        _write(self._path.with_suffix(".idx"), encode_index(self._rows))


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
