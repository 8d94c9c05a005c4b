"""Threads that claim jobs, and wait for them: nothing is under way for who waits, so the wait may be interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from functools import partial

from topics.embed.driver import LocalEngine
from topics.engine.commands import Claim, GiveUp, Release
from topics.engine.replies import JobsClaimed, LeasedJob
from topics.engine.tickets import Ticket
from topics.kernel.errors import TopicsError


def claim(local: LocalEngine, command: Claim) -> JobsClaimed:
    """Lease jobs, and wait for them as long as the command says. An exception ends the wait: nothing is leased then.

    Raises:
        Rejected: refused; shutting_down if the store is closed before or meanwhile.
        Fatal: the write failed; the outcome is unknown until the next recovery.
    """
    ticket, called = None, None
    try:
        ticket, called = local.begin(command)
        while called is not None:
            called.wait()
            ticket, called = local.begin(command, (ticket, called))
    except BaseException:
        if ticket is not None and not local.leave(ticket, called):
            _end(local, command, ticket, called)
        raise
    return _claimed(ticket)


def give_back(local: LocalEngine, claimed: JobsClaimed, left: Container[int] | None = None) -> None:
    """Nobody was given those that are `left`, or any: they are as before. Where that cannot be logged, their leases end
    in their own time.
    """
    jobs = [job for job in claimed.jobs if left is None or job.seq in left]
    _give(local, partial(Release, was_sent=False), claimed.topic, jobs)


def give_up(local: LocalEngine, claimed: JobsClaimed, damaged: Container[int]) -> None:
    """Those whose records are damaged go to the dead letters."""
    _give(local, GiveUp, claimed.topic, [job for job in claimed.jobs if job.seq in damaged])


def _give(local: LocalEngine, command: Callable[..., Release], topic: str, jobs: Iterable[LeasedJob]) -> None:
    leases = {job.seq: (job.nonce, job.counter) for job in jobs}
    if leases:
        with suppress(TopicsError):
            local.call(command(topic=topic, seqs=list(leases), leases=list(leases.values())))


def _end(local: LocalEngine, command: Claim, ticket: Ticket, called: threading.Event | None) -> None:
    """The jobs came first."""
    with suppress(TopicsError):
        while called is not None and not ticket.done:
            ticket, called = local.begin(command, (ticket, called))
            if called is not None:
                called.wait()
        if ticket.error is None:
            give_back(local, _claimed(ticket))


def _claimed(ticket: Ticket) -> JobsClaimed:
    reply = ticket.result()
    assert isinstance(reply, JobsClaimed)
    return reply
