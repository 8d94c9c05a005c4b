"""Claims on their way to the engine: those that come before the next batch is taken are proposed, and served, together.

Whoever claims is told when his claim has ended; no task has to wait for it. Whatever else is proposed comes behind the
claims that came before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import trio

from topics.engine.commands import Claim
from topics.engine.engine import Engine
from topics.engine.replies import JobsClaimed
from topics.engine.tickets import Stage, Ticket
from topics.kernel.errors import Code, TopicsError

_ROOM_TRIES: Final = 3


class Driver(Protocol):
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

    async def make_room(self, refused: TopicsError) -> bool:
        """For what was refused. False if there is no space."""
        ...


class Claims:
    """`in_flight`: those that have not ended."""

    def __init__(self, driver: Driver) -> None:
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

    async def claim(self, command: Claim) -> JobsClaimed:
        """Claim, and wait for jobs as long as the command says. Cancelled while it waits it never happens; one that has
        jobs by then comes to its end, for the caller to give back. Raises `TopicsError`.
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
            return trio.lowlevel.Abort.SUCCEEDED if self.withdraw(ticket) else trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return ticket

    def _tell(self, ticket: Ticket, ended: Callable[[Ticket], None]) -> None:
        self.in_flight -= 1
        ended(ticket)
