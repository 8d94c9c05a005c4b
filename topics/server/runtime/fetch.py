"""Fetching what a plan asks for: from the page cache on the loop, from the disk in a thread (architecture 3.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import attrs

from topics.codec.frame import FrameView
from topics.engine.engine import Engine
from topics.host.compress import decompress_fitting
from topics.host.walfile import wal_path
from topics.kernel.errors import Corrupt
from topics.kernel.ports import Disk
from topics.log.diff import DiffPlan, DiffQuery, Extent, assemble
from topics.server.runtime.thread import Threads


class Fetcher:
    """Reads of one data directory. A disk that is not one answers from memory, on the loop."""

    def __init__(self, disk: Disk, threads: Threads) -> None:
        self._disk = disk
        self._threads = threads
        self._read_nowait: Callable[[str, int, int], bytes | None] = getattr(disk, "read_nowait", disk.read)

    async def page(self, engine: Engine, query: DiffQuery) -> tuple[DiffPlan, Sequence[FrameView]]:
        """One page, its payloads as written. Decompressed it may be over its budget; then it is made shorter."""
        while True:
            plan = engine.plan_diff(query)
            views = await self._stored(plan)
            if not any(view.compressed for view in views):
                return plan, views
            fitting = await self._threads.run(
                partial(decompress_fitting, views, topic=plan.topic, bytes_max=query.bytes_max)
            )
            if len(fitting) == len(views):
                return plan, fitting
            query = attrs.evolve(query, limit=len(fitting))

    async def _stored(self, plan: DiffPlan) -> Sequence[FrameView]:
        try:
            return assemble(plan, [await self._bytes(extent) for extent in plan.extents])
        except Corrupt as damage:
            raise damaged(plan, damage.detail.get("seq"), str(damage.detail.get("reason"))) from damage
        except OSError as error:
            raise damaged(plan, None, str(error)) from error

    async def _bytes(self, extent: Extent) -> bytes:
        source = extent.source
        if isinstance(source, bytes):
            return source[extent.offset : extent.offset + extent.size]
        path = wal_path(source)
        found = self._read_nowait(path, extent.offset, extent.size)
        if found is None:
            found = await self._threads.run(partial(self._disk.read, path, extent.offset, extent.size))
        return found


def damaged(plan: DiffPlan, seq: object, why: str) -> Corrupt:
    """What the reader is told: topic, seqs, files and reason."""
    files = sorted({wal_path(e.source) for e in plan.extents if not isinstance(e.source, bytes)})
    what = f"seqs {plan.seqs[0]}-{plan.seqs[-1]}" if seq is None else f"seq {seq}"
    return Corrupt(
        f"topic {plan.topic!r} {what}: cannot be read from {', '.join(files)} ({why})",
        topic=plan.topic,
        seq=seq,
        files=files,
    )
