"""Driving the engine from many threads, blocking: group commit by leader and followers.

One lock guards the engine; it is never held in a system call. A caller proposes under the lock. If nobody writes its
shard it leads: takes a batch, lets go of the lock for the write and the sync, and goes on until its own ticket is
done. Callers that arrive meanwhile wait; their commands are the next batch. A leader that is done appoints a waiting
caller, or the housekeeping thread, if work is left.

The housekeeping thread (a daemon) does what time asks for: due syncs, ticks, closing marks, reserving the next file.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from topics.engine.batch import WalBatch
from topics.engine.commands import Command, Sync
from topics.engine.engine import Engine
from topics.engine.replies import Reply
from topics.engine.tickets import Ticket
from topics.host.walfile import DiskOp, run
from topics.host.writer import ShardWriter
from topics.kernel.errors import Code, Fatal, Rejected
from topics.kernel.limits import SHARD_IDLE_MARK_MS

_ROOM_TRIES: Final = 3
_IDLE_WAIT_MS: Final = 1000


class LocalEngine:
    """An engine and its shards' writers, callable from any thread."""

    def __init__(self, engine: Engine, writers: Sequence[ShardWriter], *, housekeeping: bool = True) -> None:
        self.engine = engine
        self.lock = threading.Lock()
        self._writers = writers
        self._led: set[int] = set()
        self._reserving: set[int] = set()  # shards whose next file is being made,
        self._rotating: set[int] = set()  # or begun: never both at once, it is one file
        self._changed = threading.Condition(self.lock)
        self._closing = False
        self._keeper_rests = False
        self._pid = os.getpid()
        self._keeper: threading.Thread | None = None
        if housekeeping and writers:
            self._keeper = threading.Thread(target=self._keep_house, name="topics-housekeeping", daemon=True)
            self._keeper.start()

    def call(self, command: Command, *, sync: bool = False) -> Reply:
        """Propose, have it written as its class asks, and answer.

        Raises:
            Rejected: refused; nothing was written.
            Fatal: the write or sync failed; the outcome is unknown until the next recovery.
        """
        self.check_open()
        with self.lock:
            self._check_not_closed()  # again: `close` may have been faster
            ticket = self._propose(command, sync=sync)
            try:
                while not ticket.done:
                    shard = self._leaderless()
                    if shard is not None:
                        self._lead(shard, until=ticket)
                    else:
                        self._wait_for(ticket)
            finally:
                self._appoint()
                self._call_keeper()
            return ticket.result()

    def let_time_pass(self, name: str) -> None:
        """Before a read reports a floor that time alone has moved, the watermark for it is published (semantics 4).

        Where none can be logged (read-only, no space) the floor stands still instead.
        """
        with self.lock:
            due = self.engine.read_due(name)
        if due is not None:
            with suppress(Rejected, Fatal):
                self.call(due)

    def sync(self) -> None:
        """Everything written so far is on stable storage when this returns."""
        self.check_open()
        for writer in self._writers:
            self.call(Sync(shard=writer.shard))

    def check_open(self) -> None:
        """Refuse after `close`, and in a forked child: the parent owns the directory."""
        self._check_not_closed()
        if os.getpid() != self._pid:
            raise Rejected(
                Code.SHUTTING_DOWN,
                f"the store belongs to process {self._pid}, which forked this one; open another directory here",
            )

    def _check_not_closed(self) -> None:
        if self._closing:
            raise Rejected(Code.SHUTTING_DOWN, "the store is closed; open it again")

    def close(self) -> None:
        """Finish what is in flight, log exact heads, sync, and leave closing marks. Twice is fine."""
        if os.getpid() != self._pid:
            return
        with self.lock:
            if self._closing:
                return
            self._closing = True
            self._changed.notify_all()
            while self._led or self._reserving:
                self._changed.wait()
        if self._keeper is not None:
            self._keeper.join()
        with self.lock:
            self.engine.log_exact_heads()
            for writer in self._writers:
                if writer.failed is None:
                    self.engine.request_sync(writer.shard)
                    writer.drain()
                    writer.mark()
            self._tell()

    # Proposing.

    def _propose(self, command: Command, *, sync: bool) -> Ticket:
        for _ in range(_ROOM_TRIES):
            try:
                return self._proposed(command, sync=sync)
            except Rejected as refused:
                if refused.code is not Code.DISK_LOW or not self._make_room(refused):
                    raise
        return self._proposed(command, sync=sync)

    def _proposed(self, command: Command, *, sync: bool) -> Ticket:
        try:
            return self.engine.propose(command, sync=sync)
        finally:
            self._tell()

    def _make_room(self, refused: Rejected) -> bool:
        """Wait for a reserve on its way, or take a larger one for this write. False if there is no space."""
        shard, needed = refused.detail["shard"], refused.detail["needed_bytes"]
        assert isinstance(shard, int)
        assert isinstance(needed, int)
        if self._next_file_changes(shard):
            while self._next_file_changes(shard):
                self._changed.wait()
            return True
        return self._reserve(self._writers[shard], needed)

    def _next_file_changes(self, shard: int) -> bool:
        return shard in self._reserving or shard in self._rotating

    def _reserve(self, writer: ShardWriter, needed: int = 0) -> bool:
        """Reserve the next file, off the lock. False if there is no space, or nothing to do."""
        assert not self._next_file_changes(writer.shard)
        size = writer.wanted_reserve(needed)
        if size is None:
            return False
        ops = writer.wal.reserve(size)
        self._reserving.add(writer.shard)
        try:
            error = self._unlocked(writer, ops)
        finally:
            self._reserving.discard(writer.shard)
            self._changed.notify_all()
        return writer.end_reserve(size, error)

    # Leading.

    def _leaderless(self) -> int | None:
        """A shard with something to write that nobody writes."""
        for writer in self._writers:
            if writer.shard not in self._led and self.engine.wants_write(writer.shard):
                return writer.shard
        return None

    def _lead(self, shard: int, *, until: Ticket | None) -> None:
        """Write batches of a shard until the ticket is done or nothing is left."""
        writer = self._writers[shard]
        self._led.add(shard)
        try:
            while (batch := self.engine.take_batch(shard)) is not None:
                self._write(writer, batch)
                if until is not None and until.done:
                    break
        finally:
            self._led.discard(shard)
            if self._closing:
                self._changed.notify_all()

    def _write(self, writer: ShardWriter, batch: WalBatch) -> None:
        rotates = writer.wal.rotates(batch)
        while rotates and writer.shard in self._reserving:
            self._changed.wait()  # the file it goes into is being made
        plan = writer.place(batch)
        try:
            error = self._rotate(writer, plan.write) if rotates else self._unlocked(writer, plan.write)
            if error is None:
                writer.after_write(batch, plan)
                self._tell()
                if batch.sync:
                    error = self._unlocked(writer, plan.sync)
                    if error is None:
                        writer.after_sync(batch, plan)
        except BaseException as interrupted:
            # Between two system calls nobody knows what is on disk: as after a failed one, the shard ends here.
            if self.engine.state.shards[batch.shard].in_flight is batch:
                writer.fail(batch, OSError(f"interrupted by {type(interrupted).__name__}"))
                self._tell()
            raise
        if error is not None:
            writer.fail(batch, error)
        self._tell()

    def _rotate(self, writer: ShardWriter, ops: Sequence[DiskOp]) -> OSError | None:
        """The write that begins the next file: nobody reserves another under its name meanwhile."""
        self._rotating.add(writer.shard)
        try:
            return self._unlocked(writer, ops)
        finally:
            self._rotating.discard(writer.shard)
            self._changed.notify_all()

    def _unlocked(self, writer: ShardWriter, ops: Sequence[DiskOp]) -> OSError | None:
        """System calls, without the lock. An `OSError` is a value."""
        if not ops:
            return None
        self.lock.release()
        try:
            run(writer.disk, ops)
        except OSError as error:
            return error
        finally:
            self.lock.acquire()
        return None

    # Waiting.

    def _wait_for(self, ticket: Ticket) -> None:
        """Until the ticket is done, or this thread is appointed to lead."""
        event = ticket.waiter
        if not isinstance(event, threading.Event):
            event = ticket.waiter = threading.Event()
        event.clear()
        self.lock.release()
        try:
            event.wait()
        finally:
            self.lock.acquire()

    def _tell(self) -> None:
        """Wake the callers whose tickets are done."""
        if not self.engine.has_finished:
            return
        for ticket in self.engine.take_effects().finished:
            if isinstance(ticket.waiter, threading.Event):
                ticket.waiter.set()

    def _appoint(self) -> None:
        """If a shard is left with work and no leader, wake somebody who will lead it."""
        shard = self._leaderless()
        if shard is None:
            return
        for entry in self.engine.state.shards[shard].pending:
            if entry.ticket is not None and isinstance(entry.ticket.waiter, threading.Event):
                entry.ticket.waiter.set()
                return
        self._changed.notify_all()

    # Housekeeping.

    def _call_keeper(self) -> None:
        """Wake the housekeeping thread if it rests and there will be something for it: at most once a rest."""
        if self._keeper_rests and any(writer.wants_keeper for writer in self._writers):
            self._keeper_rests = False
            self._changed.notify_all()

    def _keep_house(self) -> None:
        with self.lock:
            while not self._closing:
                wait_ms = self._keep_once()
                if self._leaderless() is not None:
                    continue  # left to this thread while it was in a system call
                self._keeper_rests = wait_ms > SHARD_IDLE_MARK_MS
                self._changed.wait(wait_ms / 1000)
                self._keeper_rests = False

    def _keep_once(self) -> int:
        """Whatever is due; returns for how many ms nothing is."""
        now_ms = self.engine.now_ms()
        due_ms = self.engine.next_deadline_ms()
        if due_ms is not None and due_ms <= now_ms:
            self.engine.tick()
        wait_ms = _IDLE_WAIT_MS
        for writer in self._writers:
            if writer.failed is not None:
                continue
            if writer.shard not in self._led:
                self._lead(writer.shard, until=None)
            if writer.shard not in self._led:
                self._mark_if_idle(writer)
            if not self._next_file_changes(writer.shard):
                self._reserve(writer)
            if writer.wal.mark_due or writer.shard in self._led:
                wait_ms = min(wait_ms, SHARD_IDLE_MARK_MS)
        self._tell()
        due_ms = self.engine.next_deadline_ms()
        if due_ms is not None:
            wait_ms = min(wait_ms, max(due_ms - self.engine.now_ms(), 1))
        return wait_ms

    def _mark_if_idle(self, writer: ShardWriter) -> None:
        """The closing mark, once the shard has rested for 50 ms after a synced batch (storage 3)."""
        if not writer.wal.mark_due or not self.engine.rested(writer.shard, SHARD_IDLE_MARK_MS):
            return
        self._led.add(writer.shard)
        try:
            error = self._unlocked(writer, writer.begin_mark())
            writer.end_mark(error)
        finally:
            self._led.discard(writer.shard)
            if self._closing:
                self._changed.notify_all()  # `close` waits for this
