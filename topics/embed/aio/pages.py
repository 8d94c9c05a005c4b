"""Pages of topics: read for one, or once for all who wait for the same (architecture 3.5 and 6).

Who has waited for news of a topic, and asks for the same as others from the same cursor, is given what the first of
them has read. What is at hand in memory is read without waiting: who tells of news can send it there and then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import TypeVar

from topics.codec.log.frame import FrameView
from topics.embed.aio.fetch import AnswerRoom, Fetcher, Form
from topics.embed.aio.hub import Hub, Subscribers
from topics.engine.engine import Engine
from topics.log.floors import Gap
from topics.log.reads.diff import DiffPlan, DiffQuery

T = TypeVar("T")
Read = tuple[DiffPlan, bytes, int]
Shown = Callable[[DiffPlan, bytes], bytes]  # of a page and its records, a JSON array: what is sent of it


class PageReader:
    """Of one runtime. `let_time_pass`: awaited before a page is planned. `tombstones`: that were read, by reason."""

    def __init__(
        self, engine: Engine, fetcher: Fetcher, hub: Hub, let_time_pass: Callable[[str], Awaitable[None]]
    ) -> None:
        self.tombstones: dict[str, int] = {}
        self._engine = engine
        self._fetcher = fetcher
        self._hub = hub
        self._let_time_pass = let_time_pass

    async def read(
        self, query: DiffQuery, form: Form, room: AnswerRoom, subscribers: Subscribers | None = None
    ) -> Read:
        """Plan, fetch, assemble (architecture 3.5). The records come as a JSON array, which `room` holds from then on.
        With them: how often there had been news before it was planned (`Hub.told`), also by another reader.

        `subscribers`: what the reader had waited for; all who did, and ask for the same, are given one page.

        Raises:
            Rejected: topic_not_found; throttled, if there is no room for what was to be read.
            Corrupt: the page would begin with a damaged record, or cannot be read.
        """
        held = room.size
        found = await self.once((query, form), partial(self.page, query, form, room), subscribers)
        plan, records, _ = found
        self.hold(len(records) if plan.extents else 0, room, held)
        if plan.gap is not None:
            self.count(plan.gap)
        return found

    async def once(
        self, key: Hashable, find: Callable[[], Awaitable[T]], subscribers: Subscribers | None
    ) -> T:
        """What `find` gives, which holds a page; of those who have the same news and key, by the first."""
        return await find() if subscribers is None else await subscribers.once(key, find)

    def hold(self, size: int, room: AnswerRoom, held: int) -> None:
        """A page of this size, if it was not read for this one: `held` of `room` before it was asked for.

        Raises: Rejected: throttled.
        """
        if missing := held + size - room.size:
            room.reserve(missing)

    def count(self, gap: Gap) -> None:
        """A tombstone is told."""
        reason = gap.reason.value
        self.tombstones[reason] = self.tombstones.get(reason, 0) + 1

    async def page(self, query: DiffQuery, form: Form, room: AnswerRoom, shown: Shown | None = None) -> Read:
        """As `read`, for one reader alone. `shown`: what is made of the records before they are held."""
        await self._let_time_pass(query.topic)
        told = self._hub.told
        found = await self._fetcher.page(self._engine, query, form=form, room=room)
        return *_shown(found, room, shown), told

    def page_nowait(self, query: DiffQuery, form: Form, room: AnswerRoom, shown: Shown | None) -> Read | None:
        """As `page`; None if it has to be waited for."""
        if self._engine.read_due(query.topic) is not None:
            return None
        found = self._fetcher.page_nowait(self._engine, query, form=form, room=room)
        return None if found is None else (*_shown(found, room, shown), self._hub.told)

    async def views(self, query: DiffQuery) -> tuple[DiffPlan, Sequence[FrameView]]:
        """As `read`: the records as they are stored, decompressed, and held by nobody else."""
        await self._let_time_pass(query.topic)
        return await self._fetcher.views(self._engine, query)


def _shown(found: tuple[DiffPlan, bytes], room: AnswerRoom, shown: Shown | None) -> tuple[DiffPlan, bytes]:
    plan, records = found
    if shown is None or not plan.seqs:
        return found
    text = shown(plan, records)
    room.settle(room.size + len(text) - len(records))
    return plan, text
