"""Threads that read a dest wait for what routers are bringing it, for a while.

That goes on by itself, so the wait may end at any time: nothing is under way for who waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress

from topics.embed.driver import Begun, LocalEngine
from topics.engine.commands import WaitForCopies
from topics.kernel.errors import Fatal, Rejected
from topics.kernel.limits import CATCH_UP_MAX_MS


def catch_up(local: LocalEngine, topic: str) -> None:
    """Before a read: a dest has what its source holds, if that comes in time (semantics 8)."""
    found = local.engine.catalog.find(topic)
    if found is None or not found.inbound:
        return
    with local.lock:
        if not local.engine.routers.is_behind(topic):
            return
    _wait(local, [topic])


def catch_up_by(local: LocalEngine, router: str) -> None:
    """Before a look at a router: as before a read of its dest."""
    with local.lock:
        ends = local.engine.routers.topics_of(router)
    if ends is not None:
        catch_up(local, ends[1])


def catch_up_from(local: LocalEngine, source: str) -> None:
    """Before a source is deleted: as before a read of each of its dests, all in one time."""
    with local.lock:
        behind = local.engine.routers.dests_behind(source)
    _wait(local, behind)


def _wait(local: LocalEngine, topics: Iterable[str]) -> None:
    until_s = time.monotonic() + CATCH_UP_MAX_MS / 1000
    for topic in topics:
        command = WaitForCopies(topic=topic)
        begun: Begun = (None, None)
        with suppress(Rejected, Fatal):
            try:
                begun = local.begin(command)
                while (called := begun[1]) is not None and called.wait(max(until_s - time.monotonic(), 0)):
                    begun = local.begin(command, begun)
            finally:
                ticket, called = begun
                if ticket is not None:
                    local.leave(ticket, called)
