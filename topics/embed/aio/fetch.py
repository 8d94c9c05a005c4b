"""Fetching what a plan asks for: from the page cache on the loop, from the disk in a thread (architecture 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from topics.codec.json_text import records_json
from topics.codec.log.frame import FrameView
from topics.embed.aio.thread import Threads
from topics.engine.engine import Engine
from topics.host.segments.reading import ExtentReader, Unread
from topics.kernel.errors import Corrupt
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.frames import Extent, FramesPlan, assemble_texts
from topics.log.reads.records import RecordsPlan, RecordsQuery
from topics.store.reading import Found, at_hand, page_steps


@attrs.frozen(kw_only=True)
class Form:
    """Which parts of a record a reader asks for."""

    include_tags: bool = False
    include_meta: bool = True
    include_data: bool = True

    def record(self, view: FrameView) -> bytes | None:
        """One record; None for a payload that has to be unfolded first."""
        return None if view.compressed else self.records((view,))[1:-1]

    def records(self, views: Sequence[FrameView]) -> bytes:
        return records_json(
            views,
            include_tags=self.include_tags,
            include_meta=self.include_meta,
            include_data=self.include_data,
        )


class AnswerRoom(Protocol):
    """Memory for answers that a reader holds, bounded for all of them together."""

    @property
    def size(self) -> int:
        """Held now."""
        ...

    def reserve(self, size: int) -> None:
        """Hold so much more. Raises `Rejected(throttled)`."""
        ...

    def keep(self, size: int) -> bool:
        """Hold at least so much, if it is not little. False if there is no room."""
        ...

    def settle(self, size: int) -> None:
        """Hold exactly this."""
        ...


class _NoBound:
    size = 0

    def reserve(self, size: int) -> None: ...

    def keep(self, size: int) -> bool:  # noqa: ARG002 -- as an `AnswerRoom`
        return True

    def settle(self, size: int) -> None: ...


NO_BOUND: Final[AnswerRoom] = _NoBound()


class Fetcher:
    """Reads of one data directory."""

    def __init__(self, reader: ExtentReader, threads: Threads) -> None:
        self._reader = reader
        self._threads = threads

    async def page(
        self, engine: Engine, query: DiffQuery, *, form: Form, room: AnswerRoom
    ) -> tuple[DiffPlan, bytes]:
        """One page, its records a JSON array. Room is taken as soon as it is known how much will be read.

        Raises:
            Rejected: topic_not_found, throttled.
            Corrupt: the page would begin with a damaged record, or cannot be read.
        """
        held, size = room.size, 0
        try:
            plan, records = await self._page(engine, query, form, room)
            size = len(records) if plan.extents else 0
        finally:
            room.settle(held + size)
        return plan, records

    def page_nowait(
        self, engine: Engine, query: DiffQuery, *, form: Form, room: AnswerRoom
    ) -> tuple[DiffPlan, bytes] | None:
        """As `page`; None unless all of it is at hand in memory, whole, with its data and not compressed.

        Raises:
            Rejected: topic_not_found, throttled.
        """
        if not form.include_data:
            return None
        plan = engine.plan_diff(query)
        texts = self._texts_at_hand(plan, form, room)
        if texts is None:
            return None
        records = b"[%b]" % b",".join(texts)
        if texts:
            room.settle(room.size + len(records))
        return plan, records

    async def records(
        self, engine: Engine, query: RecordsQuery, *, room: AnswerRoom
    ) -> tuple[RecordsPlan, Sequence[FrameView]]:
        """One page of records by their seqs, decompressed. What is read takes room while it is read.

        Raises:
            Rejected: topic_not_found, throttled.
            Corrupt: they cannot be read now.
        """
        held = room.size
        try:
            plan, views, _ = await self._found(engine, query, room, None)
        finally:
            room.settle(held)
        assert isinstance(plan, RecordsPlan)
        return plan, views

    async def views(self, engine: Engine, query: DiffQuery) -> tuple[DiffPlan, Sequence[FrameView]]:
        """One page, its records decompressed, for a reader whose memory nobody bounds.

        Raises:
            Rejected: topic_not_found.
            Corrupt: as `page`.
        """
        plan, views, _ = await self._found(engine, query, NO_BOUND, None)
        assert isinstance(plan, DiffPlan)
        return plan, views

    async def texts(
        self, engine: Engine, query: RecordsQuery, *, form: Form, room: AnswerRoom
    ) -> tuple[RecordsPlan, Sequence[bytes]]:
        """One page of records by their seqs, each a JSON object, which `room` holds from then on.

        Raises:
            Rejected: topic_not_found, throttled.
            Corrupt: they cannot be read now.
        """
        held, size = room.size, 0
        try:
            plan, views, texts = await self._found(engine, query, room, form.record)
            assert isinstance(plan, RecordsPlan)
            if texts is None:
                texts = [form.records((view,))[1:-1] for view in views]
            size = sum(map(len, texts))
        finally:
            room.settle(held + size)
        return plan, texts

    def texts_nowait(
        self, engine: Engine, query: RecordsQuery, *, form: Form, room: AnswerRoom
    ) -> dict[int, bytes] | None:
        """As `texts`, by seq; None unless they are one page, all of it at hand in memory, whole and not compressed.

        Raises:
            Rejected: topic_not_found, throttled.
        """
        plan = engine.plan_records(query)
        texts = None if plan.left else self._texts_at_hand(plan, form, room)
        if texts is None:
            return None
        room.settle(room.size + sum(map(len, texts)))
        return dict(zip(plan.seqs, texts, strict=True))

    def _texts_at_hand(self, plan: FramesPlan, form: Form, room: AnswerRoom) -> list[bytes] | None:
        """Room is taken while they are read."""
        buffers = at_hand(plan, self._reader.nowait)
        if buffers is None:
            return None
        held = room.size
        room.reserve(sum(map(len, buffers)))
        try:
            return assemble_texts(plan, buffers, form.record)
        except Corrupt:
            return None  # who waits is told what is damaged
        finally:
            room.settle(held)

    async def _page(
        self, engine: Engine, query: DiffQuery, form: Form, room: AnswerRoom
    ) -> tuple[DiffPlan, bytes]:
        record = form.record if form.include_data else None
        plan, views, texts = await self._found(engine, query, room, record, unfolds=form.include_data)
        assert isinstance(plan, DiffPlan)
        return plan, form.records(views) if texts is None else b"[%b]" % b",".join(texts)

    async def _found(
        self, engine: Engine, query: DiffQuery | RecordsQuery, room: AnswerRoom,
        record: Callable[[FrameView], bytes | None] | None, *, unfolds: bool = True,
    ) -> Found:  # fmt: skip
        """The end of `page_steps`."""
        held, steps = room.size, page_steps(query, record)
        step = next(steps)
        while not isinstance(step, tuple):
            answer: object
            try:
                if isinstance(step, DiffQuery):
                    answer = engine.plan_diff(step)
                elif isinstance(step, RecordsQuery):
                    answer = engine.plan_records(step)
                elif isinstance(step, FramesPlan):
                    room.settle(held)
                    room.reserve(sum(extent.size for extent in step.extents))
                    answer = [await self._bytes(extent) for extent in step.extents]
                else:
                    if unfolds:  # what is compressed becomes larger, up to the budget
                        room.reserve(query.bytes_max)
                    answer = await self._threads.run(step)
            except (Corrupt, Unread) as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
        return step

    async def _bytes(self, extent: Extent) -> bytes:
        found = self._reader.nowait(extent)
        if found is not None:
            return found
        if self._reader.is_cold(extent):
            return await self._cold_bytes(extent)
        return await self._threads.run(partial(self._reader.read_hot, extent))

    async def _cold_bytes(self, extent: Extent) -> bytes:
        """As long as the cold tier takes, within bounds; whoever does not read there never waits for it."""
        tier = self._reader.cold
        assert tier is not None
        try:
            return await self._threads.run_cold(partial(self._reader.read, extent), limit_s=tier.wait_s)
        except trio.TooSlowError:
            raise tier.too_long(extent) from None
        except trio.WouldBlock:
            raise tier.too_many() from None
