"""Sites for tests: the real route table, handlers and runtime over a disk in memory and a clock under our hand."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from topics.embed.aio.runtime import Runtime
from topics.embed.aio.thread import Threads
from topics.host.cold.segment_stores import SegmentStore
from topics.host.system.memory import MemoryDisk
from topics.kernel.limits import KIB, Limits
from topics.kernel.ports import Clock, Disk, Entropy
from topics.server.api.resources.state import SiteOptions
from topics.server.api.routes import Route, RouteTable
from topics.server.api.site import Site
from topics.server.api.table import route_table
from topics.server.auth.keys import Keys
from topics.server.runtime.log import log
from topics.server.wire.connection import WireConnection
from topics.simulation.memory_port import MemoryPort
from topics.store.opened import StoreOptions
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.streams import MemoryEdge

SMALL = Limits(body_bytes=8 * KIB, wal_file_first=16 * KIB, wal_reserve=4 * KIB)


def new_site(
    *,
    limits: Limits = SMALL,
    more_routes: Sequence[Route] = (),
    keys: Keys | None = None,
    **options: object,
) -> Site:
    """A site whose log is not recovered yet."""
    table = route_table()
    if more_routes:
        table = RouteTable((*table.routes, *more_routes), table.schemas)
    options = {"entropy": SeededEntropy(), **options}
    chosen = SiteOptions(limits=limits, version="0.0.test", **options)  # type: ignore[arg-type]  # attrs checks names
    return Site(table, chosen, keys)


@asynccontextmanager
async def begun(
    site: Site,
    *,
    disk: Disk | None = None,
    clock: Clock | None = None,
    entropy: Entropy | None = None,
    min_free_bytes: int = 0,
    shards: int | None = None,
    checking: bool = True,
    cold: SegmentStore | None = None,
    threads: Threads | None = None,
    **more: Any,
) -> AsyncIterator[Runtime]:
    """The site serves a store on this disk until the block ends. `checking`: every invariant after every call."""
    disk = disk or MemoryDisk()
    opened = open_store(
        disk,
        clock or ManualClock(),
        entropy or SeededEntropy(),
        where="memory",
        machine_restarted=True,
        confirm=lambda _: None,
        options=StoreOptions(
            limits=site.options.limits,
            min_free_bytes=min_free_bytes,
            shards=shards,
            checking=checking,
            **more,
        ),
        cold=cold,
    )
    metrics = site.metrics
    runtime = Runtime(
        opened, threads=threads, log=log, observe_delivery=metrics.observe_delivery, observe_turn=metrics.observe_turn
    )  # fmt: skip
    async with runtime.running(), trio.open_nursery() as beneath:
        site.begin(runtime)
        beneath.start_soon(site.wheel.run)
        yield runtime
        beneath.cancel_scope.cancel()


@asynccontextmanager
async def open_site(
    *, more_routes: Sequence[Route] = (), limits: Limits = SMALL, **options: object
) -> AsyncIterator[Site]:
    """A site that serves, empty."""
    site = new_site(more_routes=more_routes, limits=limits, **options)
    async with alone(), begun(site):
        yield site


@asynccontextmanager
async def alone() -> AsyncIterator[None]:
    """An error that nurseries have wrapped comes out as it is, so that a failed test says what failed."""
    try:
        yield
    except BaseExceptionGroup as group:
        found: BaseException = group
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        raise found from None


async def serve_connection(
    edge: MemoryEdge,
    site: Site,
    *,
    task_status: trio.TaskStatus[WireConnection] = trio.TASK_STATUS_IGNORED,
    is_told: bool = True,
    **options: Any,
) -> None:
    """Serve one connection of HTTP/1.1 until it ends. `is_told`: of what comes, as a socket is; else it is read as TLS
    is, by a task that waits.
    """
    async with alone(), trio.open_nursery() as beneath:
        port = MemoryPort(site, beneath)
        await port.serve(edge, is_told=is_told, opened=task_status.started, **options)
        beneath.cancel_scope.cancel()
