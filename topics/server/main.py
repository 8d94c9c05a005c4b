"""A whole server: its nurseries, what begins when, and how it ends (architecture 4).

    supervisor   signals, to the very end
    storage      the runtime: entered once the log is recovered, left when the edge is gone
    edge         the listener and its connections, first to serve (503 `not_ready`) and first to end

Nesting is the order of the end. An exception in storage cancels everything inside and is raised from `serve`, so the
process ends with a code other than 0; what goes wrong on the edge stays in its connection. Asked to stop, the edge is
drained within its bound, then storage keeps a snapshot, writes, syncs and marks, then the directory is given free.

A thread that recovers cannot be stopped. A server that is asked to stop meanwhile leaves it behind and does not give
the directory free: the end of the process does both, and what recovery had half done is done again next time.
"""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, Protocol

import attrs
import trio

import topics
from topics.embed.aio.compactor import CompactorTask
from topics.embed.aio.runtime import Runtime
from topics.embed.aio.thread import Threads
from topics.kernel.errors import Rejected
from topics.kernel.ports import Disk
from topics.server.api.site import Site
from topics.server.app.handover import Http2HandOver
from topics.server.assembly import listener_options, make_site
from topics.server.auth.keyfile import read_keys
from topics.server.descriptors import connections_fit, raise_file_limit
from topics.server.listener import Listener, bind, port_of
from topics.server.runtime.log import log, take_over_libraries
from topics.server.settings import ServerSettings
from topics.server.signals import Stopping, watch_signals
from topics.server.systemd import Notifier
from topics.server.tls import server_context
from topics.store.opened import Opened, StoreOptions

RELOADED: Final = frozenset({"log_level", "certfile", "keyfile"})
STORAGE_SHARE_S: Final = 1.0  # of the drain's time, at most a fifth of it, is kept for closing storage


class Home(Protocol):
    """Where the data lies: a claimed directory, or memory."""

    @property
    def disk(self) -> Disk: ...
    def recover(
        self, *, options: StoreOptions | None = None, progress: Callable[[float], None] | None = None
    ) -> Opened: ...
    def note_url(self, url: str) -> None: ...
    def release(self) -> None: ...


@attrs.frozen(kw_only=True)
class Announcements:
    """Whom the server tells what. `listening`: its URL; `storage`: who has the engine; `ready`: its port.

    `reread`: the settings as they are now, and the names of all that differ from those it was started with.
    """

    listening: Callable[[str], None]
    ready: Callable[[int], None]
    reread: Callable[[], tuple[ServerSettings, Sequence[str]]]
    storage: Callable[[Runtime], None]


def serve(
    settings: ServerSettings, options: StoreOptions, claim: Callable[[], Home], told: Announcements
) -> None:
    """Run a server in this process until a signal ends it. `claim` is called once it listens.

    Raises:
        CannotListen, CannotOpen, Rejected: it could not start; the message says why.
        Exception: whatever ended it.
    """
    log.set_up(settings.log_level)
    take_over_libraries()
    sys.setswitchinterval(settings.switch_interval_us / 1_000_000)
    files_max = raise_file_limit()
    if connections_fit(files_max) < settings.max_connections:
        log.warning("files.few", files_max=files_max, connections_max=connections_fit(files_max))
    try:
        trio.run(main, settings, options, claim, told)
    except BaseExceptionGroup as group:
        raise _alone(group) from None


async def main(
    settings: ServerSettings, options: StoreOptions, claim: Callable[[], Home], told: Announcements
) -> None:
    """The server as a task. It owns what it claims and gives it free."""
    home: Home | None = None
    server: ServerRun | None = None
    try:
        context = None
        if settings.certfile is not None and settings.keyfile is not None:
            context = server_context(settings.certfile, settings.keyfile)
        site = make_site(settings, options)
        hand_over = Http2HandOver(
            site,
            keep_alive_s=settings.idle_timeout_ms / 1000,
            streams_max=settings.max_http2_streams,
            requests_max=settings.max_http2_requests,
        )
        listener = Listener(
            site,
            await bind(settings.host, settings.port),
            options=listener_options(settings),
            context=context,
            hand_over=hand_over,
        )
        site.metrics.port = listener.counts
        home = claim()  # last of all, for it may make a directory, and a start that is refused leaves none
        server = ServerRun(settings, options, home, told, site=site, listener=listener, hand_over=hand_over)
        await server.run()
    finally:
        if home is not None and (server is None or not server.recovering):
            home.release()


class ServerRun:
    """One run of a server."""

    def __init__(
        self,
        settings: ServerSettings,
        options: StoreOptions,
        home: Home,
        told: Announcements,
        *,
        site: Site,
        listener: Listener,
        hand_over: Http2HandOver,
    ) -> None:
        self.settings = settings
        self.site = site
        self.listener = listener
        self.recovering = False
        self.stopping = Stopping()
        self._options = options
        self._home = home
        self._told = told
        self._hand_over = hand_over
        self._runtime: Runtime | None = None
        self._closing = trio.Event()
        self._ends_at = -math.inf
        self._started = time.monotonic()
        self._systemd = Notifier(os.environ)

    async def run(self) -> None:
        """Until a signal, or an exception in storage."""
        async with trio.open_nursery() as supervisor:
            await supervisor.start(watch_signals, self.stopping, self.reload)
            supervisor.start_soon(self._systemd.live)
            async with trio.open_nursery() as storage:
                async with trio.open_nursery() as edge:
                    await edge.start(self.listener.run)
                    self._tell_listening()
                    async with trio.open_nursery() as beginning:
                        beginning.start_soon(self._begin, storage)
                        await self.stopping.asked.wait()
                        beginning.cancel_scope.cancel()
                    await self._drain()
                    edge.cancel_scope.cancel()
                self._closing.set()
            supervisor.cancel_scope.cancel()
        if self.site.reports.tracing is not None:
            await trio.to_thread.run_sync(self.site.reports.tracing.close)
        log.info("server.ended", forced=self.listener.counts.forced)

    def reload(self) -> None:
        """What a running server reads again: keys, the level of its log, certificates. Nothing wrong ends it."""
        if self._runtime is None or self.site.draining:  # READY=1 would be told of what is not
            self._reread()
            return
        self._systemd.tell_reloading()
        try:
            self._reread()
        finally:
            self._systemd.tell("READY=1")

    def _reread(self) -> None:
        self._reload_keys()
        try:
            found, changed = self._told.reread()
            context = None
            if found.certfile is not None and found.keyfile is not None:
                context = server_context(found.certfile, found.keyfile)
        except Exception as error:  # noqa: BLE001 -- whatever somebody has written there, the server goes on as it was
            log.error("settings.not_reloaded", error=str(error))
            return
        log.set_up(found.log_level)
        if found.is_secure == self.settings.is_secure:
            self.listener.context = context
        reloaded = RELOADED if found.is_secure == self.settings.is_secure else {"log_level"}
        later = [name for name in changed if name not in reloaded]
        if later:
            log.warning("settings.need_a_restart", settings=later)
        log.info("settings.reloaded", log_level=found.log_level, tls=self.listener.context is not None)

    def _reload_keys(self) -> None:
        """First of all, and whatever else is wrong. Of the file that it was started with."""
        path = self.settings.api_keys_file
        if path is None:
            return
        try:
            lines = read_keys(path)
        except Rejected as refused:
            log.error("keys.not_reloaded", why=refused.message, keys=len(self.site.keys))
            return
        revoked = self.site.keys.replace(lines)
        log.info("keys.reloaded", keys=len(lines), revoked=revoked)

    # Beginning.

    @property
    def _url(self) -> str:
        return self.settings.url(port_of(self.listener.listeners[0]))

    def _tell_listening(self) -> None:
        url = self._url
        try:
            self._home.note_url(url)
        except OSError as error:
            log.warning(
                "lock.without_url", why="commands on the directory cannot find this server", error=str(error)
            )
        self._told.listening(url)
        log.info(
            "server.listening",
            url=url,
            pid=os.getpid(),
            version=topics.__version__,
            switch_interval_us=self.settings.switch_interval_us,
        )
        if self.site.keys.is_on:
            log.info("auth.on", keys=len(self.site.keys))
        else:
            log.warning(
                "auth.off", why="there are no keys: whoever reaches the port may read, write and delete"
            )

    async def _begin(self, storage: trio.Nursery) -> None:
        """Recover the log, then serve."""
        self.recovering = True
        recover = partial(self._home.recover, options=self._options, progress=self._tell_progress)
        try:
            opened = await trio.to_thread.run_sync(recover, abandon_on_cancel=True)
        except Exception:
            self.recovering = False
            raise
        self.recovering = False
        self._runtime = await storage.start(self._keep, opened)
        assert self._runtime is not None
        gc.freeze()  # what recovery has made stays: no collection has to walk it again
        self.site.begin(self._runtime)
        self._told.storage(self._runtime)
        self._told.ready(port_of(self.listener.listeners[0]))
        self._systemd.tell("READY=1", f"STATUS=serving {self._url}")
        self._tell_recovered(self._runtime.opened)

    def _tell_progress(self, share: float) -> None:
        self.site.progress = share
        self._systemd.tell_progress(share)

    def _tell_recovered(self, opened: Opened) -> None:
        for cut in opened.cuts:
            log.warning("log.cut", cut=str(cut))
        for warning in opened.warnings:
            log.warning("storage.warning", why=warning)
        for damage in opened.damages:
            log.error("log.damaged" if damage.in_log else "segment.damaged", damage=str(damage))
        try:
            opened.engine.check_writable(0)
        except Rejected as refused:
            log.error("storage.read_only", why=refused.message)
        log.info(
            "server.ready",
            took_ms=round((time.monotonic() - self._started) * 1000),
            topics=opened.engine.topic_count,
        )

    async def _keep(self, opened: Opened, *, task_status: trio.TaskStatus[Runtime]) -> None:
        """Storage: from here until the edge is gone."""
        metrics = self.site.metrics
        runtime = Runtime(
            opened,
            observe_sync=metrics.observe_sync,
            observe_delivery=metrics.observe_delivery,
            observe_turn=metrics.observe_turn,
            threads=Threads(inline_bytes_max=self.settings.inline_write_bytes),
            log=log,
            ended="the server is shutting down; retry elsewhere or later",
        )
        async with runtime.running():
            task_status.started(runtime)
            await self._closing.wait()
            if runtime.compactor is not None:
                await self._keep_state(runtime.compactor)

    # The end.

    async def _drain(self) -> None:
        """No new requests; those under way are answered, within the bound."""
        bound_s = self.settings.drain_ms / 1000
        self._ends_at = trio.current_time() + bound_s
        bound_s -= min(STORAGE_SHARE_S, bound_s / 5)
        self.site.draining = True
        self._systemd.tell("STOPPING=1", "STATUS=draining")
        await self.listener.refuse_more()
        log.info("drain.begun", connections=self.listener.connections, bound_ms=self.settings.drain_ms)
        if self._runtime is not None:
            self._runtime.end_waits()
        bound = trio.CancelScope(deadline=trio.current_time() + bound_s)
        async with self._hurried(bound):
            await self._hand_over.drain()
            await self.listener.drain(bound)

    @asynccontextmanager
    async def _hurried(self, bound: trio.CancelScope) -> AsyncIterator[None]:
        """A second signal cancels `bound` while the block runs."""
        async with trio.open_nursery() as hurry:
            hurry.start_soon(self._hurry, bound)
            yield
            hurry.cancel_scope.cancel()

    async def _hurry(self, bound: trio.CancelScope) -> None:
        await self.stopping.hurried.wait()
        bound.cancel()

    async def _keep_state(self, compactor: CompactorTask) -> None:
        """The snapshot of the end, in what is left of the drain's time; a second signal is not kept waiting for it."""
        bound = trio.CancelScope(deadline=self._ends_at)
        async with self._hurried(bound):
            with bound:
                await compactor.keep_state()


def _alone(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What ended the server, without the nurseries around it. Of several errors the first; the log has the others."""
    found: list[BaseException] = []
    _collect(group, found)
    for error in found[1:]:
        log.error("server.failed", error=repr(error))
    return found[0]


def _collect(error: BaseException, into: list[BaseException]) -> None:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            _collect(one, into)
    else:
        into.append(error)
