"""What systemd is told, if it started us (sd_notify(3)): ready, how recovery goes on, reloading, stopping, alive.

A datagram to the socket that it named in the environment; without one nothing is told. Nobody who listens there is
waited for.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

_EXTENDED_S: Final = 120  # a start that goes on has so much time until it tells again
_TOLD_EACH_S: Final = 1.0  # of the progress of recovery


class Notifier:
    """Made of the environment once. `tell` may be called by any thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        is_abstract = address[:1] == "@"  # a name in no directory
        self._address = "\0" + address[1:] if is_abstract else address
        self.watchdog_s = _watchdog_s(environment) if address else 0.0
        self._told_at = -_TOLD_EACH_S

    def tell(self, *lines: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)

    def tell_progress(self, share: float) -> None:
        """Of a start: it takes as long as it takes, but it goes on."""
        now = time.monotonic()
        if now - self._told_at >= _TOLD_EACH_S:
            self._told_at = now
            extended = f"EXTEND_TIMEOUT_USEC={_EXTENDED_S * 1_000_000}"
            self.tell(f"STATUS=recovering the log, {share:.0%}", extended)

    def tell_reloading(self) -> None:
        """Pair with READY=1."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    async def live(self) -> None:
        """Tell that the loop runs, twice in the time that the watchdog gives, until cancelled."""
        if self.watchdog_s:
            while True:
                self.tell("WATCHDOG=1")
                await trio.sleep(self.watchdog_s / 2)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """0 if nobody watches this process."""
    given, pid = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    if not given.isdecimal() or (pid is not None and pid != str(os.getpid())):
        return 0.0
    return int(given) / 1_000_000
