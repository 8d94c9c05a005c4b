"""Claims on their way to the engine: those that come before the next batch is taken are proposed, and served, together.

Whoever claims is told when his claim has ended; no task has to wait for it. Whatever else is proposed comes behind the
claims that came before it. Whoever leaves is waited for by nobody: jobs that he would have got are given back behind
the frame that leases them, so the end of a task never hangs on a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

import trio

from topics.engine.commands import Claim, Release
from topics.engine.engine import Engine
from topics.engine.replies import JobsClaimed, LeasedJob
from topics.engine.tickets import Stage, Ticket
from topics.kernel.errors import Code, TopicsError

_ROOM_TRIES: Final = 3


class ClaimsDriver(Protocol):
    """Who has the engine."""

    engine: Engine

    def check_open(self) -> None:
        """Raises `Rejected(shutting_down)`."""
        ...

    def after_call(self) -> None:
        """Tell whom a call of the engine concerns."""
        ...

    def ring_all(self) -> None:
        """There may be something to write."""
        ...

    def give(self, command: Release) -> None:
        """Have it carried out; nobody waits for it."""
        ...

    async def make_room(self, refused: TopicsError) -> bool:
        """For what was refused. False if there is no space."""
        ...


class Claims:
    """`in_flight`: those that have not ended."""

    def __init__(self, driver: ClaimsDriver) -> None:
        self._driver = driver
        self._came: list[Ticket] = []
        self.in_flight = 0

    def begin(self, command: Claim, ended: Callable[[Ticket], None]) -> Ticket:
        """Claim, in the order of all calls. `ended` is called once, behind this, when the ticket has ended.

        Raises:
            Rejected: shutting_down. What else is refused is so in the ticket.
        """
        self._driver.check_open()
        ticket = Ticket(command, stage=Stage.WAITING)
        ticket.waiter = partial(self._tell, ticket, ended)
        self.in_flight += 1
        self._came.append(ticket)
        self._driver.ring_all()
        return ticket

    def propose(self) -> None:
        """Those that came."""
        if self._came:
            tickets, self._came = self._came, []
            self._driver.engine.propose_all(tickets)
            self._driver.after_call()

    def withdraw(self, ticket: Ticket) -> bool:
        """It never happens. False if it has jobs, or has ended."""
        self.propose()
        withdrawn = self._driver.engine.withdraw(ticket)
        if withdrawn:
            self.in_flight -= 1
            self._driver.after_call()
        return withdrawn

    def leave(self, ticket: Ticket) -> None:
        """Whoever claimed has gone before he was told: it never happens, or what it gets is given back."""
        self.in_flight -= 1
        ticket.waiter = partial(self._give_back, ticket)
        self.propose()
        if self._driver.engine.withdraw(ticket):
            self._driver.after_call()

    def give_back(self, command: Callable[..., Release], topic: str, jobs: Iterable[LeasedJob]) -> None:
        """End the leases of these jobs by that command."""
        leases = {job.seq: (job.nonce, job.counter) for job in jobs}
        if leases:
            self._driver.give(command(topic=topic, seqs=list(leases), leases=list(leases.values())))

    async def claim(self, command: Claim) -> JobsClaimed:
        """Claim, and wait for jobs as long as the command says. Whoever is cancelled has leased nothing. Raises
        `TopicsError`.
        """
        tries = _ROOM_TRIES
        while True:
            ticket = await self._claimed(command)
            refused = ticket.error
            if refused is None or refused.code is not Code.DISK_LOW or tries == 0:
                reply = ticket.result()
                assert isinstance(reply, JobsClaimed)
                return reply
            tries = tries - 1 if await self._driver.make_room(refused) else 0

    async def _claimed(self, command: Claim) -> Ticket:
        task = trio.lowlevel.current_task()
        ticket = self.begin(command, lambda _: trio.lowlevel.reschedule(task))

        def leave(_: object) -> trio.lowlevel.Abort:
            self.leave(ticket)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return ticket

    def _tell(self, ticket: Ticket, ended: Callable[[Ticket], None]) -> None:
        self.in_flight -= 1
        ended(ticket)

    def _give_back(self, ticket: Ticket) -> None:
        if isinstance(ticket.reply, JobsClaimed):
            self.give_back(partial(Release, was_sent=False), ticket.reply.topic, ticket.reply.jobs)
