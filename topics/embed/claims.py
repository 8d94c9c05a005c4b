"""Threads that claim jobs, and wait for them: nothing is under way for who waits, so the wait may be interrupted."""

from __future__ import annotations

import threading
from contextlib import suppress

from topics.embed.driver import LocalEngine
from topics.engine.commands import Claim, Release
from topics.engine.replies import JobsClaimed
from topics.engine.tickets import Ticket
from topics.kernel.errors import TopicsError


def claim(local: LocalEngine, command: Claim) -> JobsClaimed:
    """Lease jobs, and wait for them as long as the command says. An exception ends the wait: nothing is leased then.

    Raises:
        Rejected: refused; shutting_down if the store is closed before or meanwhile.
        Fatal: the write failed; the outcome is unknown until the next recovery.
    """
    called, ticket = threading.Event(), None
    try:
        ticket = local.begin(command, called)
        while not ticket.done:
            called.wait()
            ticket = local.begin(command, called, ticket)
    except BaseException:
        if ticket is not None and not local.leave(ticket, called):
            _end(local, command, ticket, called)
        raise
    return _claimed(ticket)


def give_back(local: LocalEngine, claimed: JobsClaimed) -> None:
    """Nobody has these jobs: they are ready again. Where that cannot be logged, their leases end in their own time."""
    if claimed.jobs:
        seqs = [job.seq for job in claimed.jobs]
        leases = [(job.nonce, job.counter) for job in claimed.jobs]
        with suppress(TopicsError):
            local.call(Release(topic=claimed.topic, seqs=seqs, leases=leases))


def _end(local: LocalEngine, command: Claim, ticket: Ticket, called: threading.Event) -> None:
    """The jobs came first."""
    with suppress(TopicsError):
        while not ticket.done:
            ticket = local.begin(command, called, ticket)
            if not ticket.done:
                called.wait()
        if ticket.error is None:
            give_back(local, _claimed(ticket))


def _claimed(ticket: Ticket) -> JobsClaimed:
    reply = ticket.result()
    assert isinstance(reply, JobsClaimed)
    return reply
