"""Orders of an embedded store carried out, in a thread of its own: what is read may lie in a cold store."""

from __future__ import annotations

import threading

from topics.embed.driver import LocalEngine
from topics.store.moving import Read
from topics.store.orders import next_order


class MoverThread:
    """A daemon thread over a `LocalEngine`, which begins with the first order. Most stores have none."""

    def __init__(self, local: LocalEngine, read: Read) -> None:
        self._local = local
        self._read = read
        self._ordered = threading.Event()
        self._thread: threading.Thread | None = None
        local.order = self.call

    def call(self) -> None:
        """There is an order to take. Under the lock."""
        self._ordered.set()
        if self._thread is None and not self._local.closing:
            self._thread = threading.Thread(target=self._run, name="topics-moves", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """The thread has ended: what is left is ordered again when the store is opened. Behind `begin_close`."""
        self._ordered.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        local = self._local
        while True:
            self._ordered.wait()
            self._ordered.clear()
            if local.closing:
                return
            with local.lock:
                try:
                    while (steps := next_order(local.engine, self._read)) is not None:
                        local.carry_out(steps)
                        local.tell()
                        local.appoint()
                        local.nudge()
                except BaseException as unplanned:
                    local.break_off(unplanned)
                    raise
