"""Threads that read a dest wait for what routers are bringing it, for a while.

That goes on by itself, so the wait may end at any time: nothing is under way for who waits.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from topics.embed.driver import LocalEngine
from topics.engine.commands import CatchUp
from topics.engine.tickets import Ticket
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
    until_s = time.monotonic() + CATCH_UP_MAX_MS / 1000
    command, called = CatchUp(topic=topic), threading.Event()
    ticket: Ticket | None = None
    with suppress(Rejected, Fatal):
        try:
            ticket = local.begin(command, called)
            while not ticket.done and called.wait(max(until_s - time.monotonic(), 0)):
                ticket = local.begin(command, called, ticket)
        finally:
            if ticket is not None:
                local.leave(ticket, called)


def catch_up_by(local: LocalEngine, router: str) -> None:
    """Before a look at a router: as before a read of its dest."""
    with local.lock:
        ends = local.engine.routers.topics_of(router)
    if ends is not None:
        catch_up(local, ends[1])
