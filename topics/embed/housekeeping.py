"""The housekeeping thread of an embedded store: what time asks for, while nobody calls.

Timed syncs, ticks, closing marks of idle shards, and the next WAL file's reserve. It takes the same lock as a caller
and never holds it in a system call; it leads one batch at a time, so that no shard waits for another's load.
"""

from __future__ import annotations

import threading
from typing import Final

from topics.embed.driver import LocalEngine
from topics.kernel.limits import DEADLINE_LOOK_MS, SHARD_IDLE_MARK_MS

_LOW_DISK_LOOK_MS: Final = 1000


class Housekeeper:
    """A daemon thread over a `LocalEngine`; `keep_once` is one round of its work."""

    def __init__(self, local: LocalEngine) -> None:
        self._local = local
        self._rests = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        assert self._thread is None
        self._local.nudge = self.call
        self._thread = threading.Thread(target=self._run, name="topics-housekeeping", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Until the thread has seen `closing` and ended."""
        if self._thread is not None:
            self._thread.join()

    def call(self) -> None:
        """Wake the thread if it rests and there will be something for it: at most once a rest. Under the lock."""
        if not self._rests:
            return
        local, wanted = self._local, self._local.engine.deadline_moved
        for writer in local.writers:
            wanted = wanted or writer.wants_keeper
        if wanted:
            self._rests = False
            local.changed.notify_all()

    def keep_once(self) -> int | None:
        """Whatever is due, under the lock; returns for how many ms nothing is, None if nothing is due ever."""
        local, engine = self._local, self._local.engine
        due_ms = engine.next_deadline_ms()
        if due_ms is not None and due_ms <= engine.now_ms():
            engine.tick()
        waits: list[int] = []
        for writer in local.writers:
            if writer.failed is not None:
                continue
            if not local.is_led(writer.shard):
                local.lead(writer.shard, until=None)
            if writer.wants_mark and not local.is_led(writer.shard):
                local.mark(writer)
            if not writer.next_file_changes:
                local.carry_out(writer.reserving())
            if writer.wal.mark_due or local.is_led(writer.shard):
                waits.append(SHARD_IDLE_MARK_MS)
            elif writer.disk_low:
                waits.append(_LOW_DISK_LOOK_MS)
        local.tell()
        due_ms = engine.next_deadline_ms()
        if due_ms is not None:
            waits.append(min(max(due_ms - engine.now_ms(), 1), DEADLINE_LOOK_MS))
        return min(waits, default=None)

    def _run(self) -> None:
        with self._local.lock:
            try:
                while not self._local.closing:
                    self._rest(self.keep_once())
            except BaseException as unplanned:
                self._local.break_off(unplanned)
                raise

    def _rest(self, wait_ms: int | None) -> None:
        local = self._local
        if local.closing or local.leaderless() is not None:
            return  # that was left to this thread while it was in a system call
        self._rests = wait_ms is None or wait_ms > SHARD_IDLE_MARK_MS
        local.changed.wait(None if wait_ms is None else wait_ms / 1000)
        self._rests = False
