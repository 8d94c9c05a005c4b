"""The cold tier as the rest of a store sees it: which segments are there, and reading them (storage 6, seed 3.6).

Where a segment is says the state, by the marks in its log; a file in the data directory wins while both are there.
Reads here may take as long as the store behind takes, so whoever must not wait asks `is_cold` first and sends the read
to a pool of its own. Besides, only so many run at once and so many wait, in number and in bytes; one that has waited
too long is refused. A store that fails, or was not given, is no damage: such a read is refused, with what is missing.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from topics.engine.apply import CatalogView
from topics.host.cold.cold_messages import ADOPT, OWN_NOTE, told_foreign
from topics.host.cold.frames import without_foreign
from topics.host.cold.ownership import Whose, compare_notes, is_foreign, told_own
from topics.host.cold.segment_stores import SegmentStore
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import MIB
from topics.kernel.ports import Disk
from topics.log.reads.frames import Extent
from topics.log.regions import SegmentId, Source

COLD_READS_MAX: Final = 4  # at once
COLD_WAITING_MAX: Final = 64
COLD_WAITING_BYTES_MAX: Final = 64 * MIB
COLD_WAIT_S: Final = 30.0
RETRY_MS: Final = 1000


@attrs.define
class ColdCounts:
    """What cold reads have cost since the start."""

    reads: int = 0
    bytes: int = 0
    failed: int = 0
    refused: int = 0
    seconds: float = 0.0


class ColdTier:
    """Cold segments of one store. `store`: None if none was given. `owner`: the note by which the segments there are
    ours, None as long as there is none. `disk`: the data directory, whose index says which frames are ours. Any thread
    may call at any time.
    """

    def __init__(
        self,
        catalog: CatalogView,
        store: SegmentStore | None = None,
        *,
        owner: bytes | None = None,
        disk: Disk | None = None,
        reads_max: int = COLD_READS_MAX,
        waiting_max: int = COLD_WAITING_MAX,
        wait_s: float = COLD_WAIT_S,
    ) -> None:
        self.store = store
        self.owner = owner
        self.counts = ColdCounts()
        self.wait_s = wait_s
        self._catalog = catalog
        self._disk = disk
        self._is_checked = False
        self._turns = threading.Semaphore(reads_max)
        self._lock = threading.Lock()
        self._inside = 0
        self._inside_bytes = 0
        self._inside_max = reads_max + waiting_max

    def set_owner(self, note: bytes) -> None:
        """The data directory has another note."""
        self.owner = note

    @property
    def where(self) -> str:
        """The store's place, for messages."""
        return "nowhere" if self.store is None else self.store.where

    def close(self) -> None:
        """No read is asked any more."""
        if self.store is not None:
            self.store.close()

    @property
    def waiting(self) -> int:
        """Reads that run or wait now."""
        return self._inside

    def is_cold(self, source: Source) -> bool:
        """Whether these bytes lie in the cold tier, as the state has it."""
        segment = self._catalog.find_segment(source) if isinstance(source, SegmentId) else None
        return segment is not None and segment.cold

    def segments(self) -> int:
        """How many segments the state says are there."""
        return sum(segment.cold for topic in self._catalog.topics.values() for segment in topic.segments)

    def missing(self) -> list[str]:
        """What the operator should do about the tier: it is not given, and needed; or it is given to a copy, or to a
        directory that cannot tell whose it is.
        """
        count = self.segments()
        if self.store is not None:
            why = told_own(self.owner, self.where, count)
            return [why] if why else []
        which = "1 segment is" if count == 1 else f"{count} segments are"
        what = f"{which} in the cold tier, and no cold directory is given: their records cannot be read"
        return [f"{what}; name it with --cold-dir or TOPICS_COLD_DIR"] if count else []

    def read(self, extent: Extent) -> bytes:
        """The bytes of a cold extent, fewer if its data ends before. A frame that is not ours is damaged in them.

        Raises:
            OSError: the data directory failed.
            Rejected: there is no store, it fails, or too many wait for it; later it may work.
            FileNotFoundError: the segment is not there: it has moved, or it is lost.
        """
        source = extent.source
        assert isinstance(source, SegmentId)
        store = self.store
        if store is None:
            raise self._refused(
                source, "no cold directory is given: name it with --cold-dir or TOPICS_COLD_DIR"
            )
        with self._turn(source, extent.size):
            self._check_place(source, store)
            started, data = time.perf_counter(), b""
            try:
                data = store.read_range(source, "data", extent.offset, extent.size)
            except FileNotFoundError as absent:
                self._check_ours(source, store)
                raise FileNotFoundError(errno.ENOENT, f"it is not in {store.where}") from absent
            except OSError as error:
                raise self._failed(source, error) from error
            finally:
                took_s = time.perf_counter() - started
                with self._lock:
                    self.counts.reads += 1
                    self.counts.seconds += took_s
                    self.counts.bytes += len(data)
            found = self._catalog.find_segment(source)
            if self._disk is None or found is None:
                return data
            return without_foreign(self._disk, source, found, extent.offset, data)

    def too_long(self, extent: Extent) -> Rejected:
        """What a reader is told who has waited as long as anybody may."""
        assert isinstance(extent.source, SegmentId)
        return self._refused(extent.source, f"{self.where} has not answered for {self.wait_s:g} s; try again")

    def too_many(self) -> Rejected:
        """What a reader is told who would be one too many to wait."""
        with self._lock:
            self.counts.refused += 1
        return Rejected(
            Code.THROTTLED,
            f"too many reads wait for cold segments in {self.where}; retry when some are done",
            retry_after_ms=RETRY_MS,
        )

    @contextmanager
    def _turn(self, source: SegmentId, size: int) -> Iterator[None]:
        """One of the reads that may run at once, or wait for one."""
        with self._lock:
            full = self._inside >= self._inside_max
            full = full or (self._inside > 0 and self._inside_bytes + size > COLD_WAITING_BYTES_MAX)
            if not full:
                self._inside += 1
                self._inside_bytes += size
        if full:
            raise self.too_many()
        try:
            if not self._turns.acquire(timeout=self.wait_s):
                raise self._refused(source, f"{self.where} is slow: no turn in {self.wait_s:g} s; try again")
            try:
                yield
            finally:
                self._turns.release()
        finally:
            with self._lock:
                self._inside -= 1
                self._inside_bytes -= size

    def _check_place(self, source: SegmentId, store: SegmentStore) -> None:
        """Nothing is read from another store's place: it has other records under the same names."""
        if self._is_checked:
            return
        try:
            theirs = store.read_owner()
        except OSError as error:
            raise self._failed(source, error) from error
        if is_foreign(self.owner, theirs):
            raise self._refused(source, told_foreign(store.where))
        self._is_checked = True

    def _check_ours(self, source: SegmentId, store: SegmentStore) -> None:
        """A segment that is not there is lost only if this is the store in which it was."""
        try:
            theirs = store.read_owner()
        except OSError as error:
            raise self._failed(source, error) from error
        found = compare_notes(self.owner, theirs)
        if found is Whose.TAKEN:
            raise self._refused(
                source,
                f"it is not in {store.where} any more: another copy of the data directory has changed it",
            )
        if found is Whose.UNKNOWN:
            raise self._refused(
                source,
                f"it is not in {store.where}: as this directory has no {OWN_NOTE}, another copy of it may have removed "
                f"it there. If this is the one that goes on, stop it, run `{ADOPT}`, start it again",
            )
        if not found.complete:
            raise self._refused(source, f"it is not in {store.where}, which holds no segments of this store")

    def _failed(self, source: SegmentId, error: OSError) -> Rejected:
        with self._lock:
            self.counts.failed += 1
        return self._refused(source, f"{self.where} fails ({error.strerror or error}); try again")

    def _refused(self, source: SegmentId, why: str) -> Rejected:
        topic = self._catalog.topics.get(source.topic_id)
        name = f"number {source.topic_id}" if topic is None else repr(topic.name)
        return Rejected(
            Code.NOT_READY,
            f"topic {name}: its segment that begins with seq {source.first_seq} is in the cold tier, and {why}",
            segment=source.first_seq,
            store=self.where,
            retry_after_ms=RETRY_MS,
        )
