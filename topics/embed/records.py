"""Records of an embedded store that are named by their seqs, as jobs are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from operator import attrgetter, or_
from typing import Final

from topics.calls.call import drive
from topics.codec.log.frame import FrameView, decode_record
from topics.codec.log.layout import COMPRESSED
from topics.embed.driver import LocalEngine
from topics.host.segments.reading import ExtentReader
from topics.kernel.errors import Corrupt
from topics.log.reads.frames import assemble
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.store.reading import at_hand, read_page
from topics.store.records import Found, first_records, size_of

_flags: Final = attrgetter("flags")


class NamedRecords:
    """Reads of the topics of one store, on the calling thread."""

    def __init__(self, local: LocalEngine, reader: ExtentReader, page_bytes: int) -> None:
        self._local = local
        self._reader = reader
        self._page_bytes = page_bytes

    def find(self, topic_id: int, seqs: Sequence[int], bytes_max: int) -> Found[FrameView]:
        """As `first_records`: at once if they are in memory, whole and not compressed."""
        page_bytes = self._page_bytes
        query = RecordsQuery(topic_id=topic_id, seqs=sorted(seqs), bytes_max=min(bytes_max, page_bytes))
        plan = self._plan(query)
        buffers = None if plan.left else at_hand(plan, self._reader.nowait)
        if buffers is not None:
            with suppress(Corrupt):  # that is told below
                views = assemble(plan, buffers)
                if not COMPRESSED & reduce(or_, map(_flags, views), 0):
                    return dict(zip(plan.seqs, views, strict=True)), set(), set()
        steps = first_records(topic_id, seqs, bytes_max=bytes_max, page_bytes=page_bytes, size=size_of)
        return drive(steps, lambda query: read_page(query, self._plan, self._reader.read))

    def one_at_hand(self, topic_id: int, seq: int) -> FrameView | None:
        """One that fits whatever its size, without a plan: most claims are of one job, put a moment ago. None: `find`
        has it, or says what became of it.
        """
        with self._local.lock:
            extent = self._local.engine.record_extent(topic_id, seq)
        found = None if extent is None else self._reader.nowait(extent)
        view = None if found is None else decode_record(found, topic_id=topic_id, seq=seq)
        return None if view is None or view.compressed else view

    def _plan(self, query: RecordsQuery) -> RecordsPlan:
        with self._local.lock:
            return self._local.engine.plan_records(query)
