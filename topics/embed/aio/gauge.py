"""How busy the loop is, looked at while topics wait for their turn (semantics 10, decision 99).

While none does, nothing is measured and no timer runs. The loop is idle where it waits for I/O, which Trio tells
whoever asks for it, twice a pass: that is asked for only while it matters.
"""

from __future__ import annotations

from typing import Final

import trio

from topics.embed.aio.hub import Hub, now_us
from topics.sched.governor import SAMPLE_US

SAMPLE_S: Final = SAMPLE_US / 1_000_000


class Gauge:
    """Of one runtime's hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._hub.behind.wait()
            idle = IdleTime()
            trio.lowlevel.add_instrument(idle)
            try:
                await self._look(idle)
            finally:
                trio.lowlevel.remove_instrument(idle)

    async def _look(self, idle: IdleTime) -> None:
        """Until nothing waits, and nothing is left of what waited."""
        hub = self._hub
        while True:
            began, hub.behind = trio.current_time(), trio.Event()
            idle.total_s = 0.0
            await trio.sleep(SAMPLE_S)
            passed_s = trio.current_time() - began
            threads = trio.to_thread.current_default_thread_limiter()
            busy = max(1 - idle.total_s / passed_s, threads.borrowed_tokens / threads.total_tokens)
            hub.judge(now_us(), min(max(busy, 0.0), 1.0))
            if hub.governor.is_at_rest and not hub.behind.is_set():
                return


class IdleTime(trio.abc.Instrument):
    """How long the loop has waited for I/O, since somebody set it to 0."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._since = trio.current_time()

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002 -- Trio's name
        self._since = trio.current_time()

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 -- Trio's name
        self.total_s += trio.current_time() - self._since
