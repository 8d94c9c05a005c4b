"""What signals ask of a server: SIGTERM and SIGINT to drain, a second one to drain at once, SIGHUP to read again.

Watched from before the first connection until storage is closed: a signal that came while the last marks are written
must not end the process in the middle of it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import trio

from topics.server.runtime.log import log


class Stopping:
    """Whether the server is to end. `asked`: it drains. `hurried`: it waits for nobody."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.hurried = trio.Event()

    def ask(self) -> None:
        """The first time: drain. The second: at once."""
        if self.asked.is_set():
            self.hurried.set()
        self.asked.set()


async def watch_signals(
    stopping: Stopping, reload: Callable[[], None], *, task_status: trio.TaskStatus[None]
) -> None:
    """Until cancelled. `reload` must not raise for what a user may have written."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
        task_status.started()
        async for number in received:
            log.info("signal.received", signal=signal.Signals(number).name)
            if number == signal.SIGHUP:
                reload()
            else:
                stopping.ask()
