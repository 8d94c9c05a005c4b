"""Driving the engine from many threads, blocking: group commit by leader and followers.

One lock guards the engine; it is never held in a system call. A caller proposes under the lock. If nobody writes its
shard it leads: takes a batch, lets go of the lock for the write and the sync, and goes on until its own ticket is
done. Callers that arrive meanwhile wait; their commands are the next batch. A leader that is done appoints a waiting
caller, or the housekeeping thread, if work is left.

An exception that nobody planned (a KeyboardInterrupt above all) may leave engine and disk out of step, so it ends the
store as a crash would: every call is refused, and the next opening recovers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from topics.embed.lock import Reentered, is_held, retake
from topics.embed.readers import Readers
from topics.engine.commands import Claim, Command, Sync, WaitForCopies
from topics.engine.engine import Engine
from topics.engine.replies import Reply
from topics.engine.tickets import Stage, Ticket
from topics.host.checkpoint.steps import Blocking, Propose, Step, Swap, Tell, WaitForBatch
from topics.kernel.errors import Code, Fatal, Rejected, TopicsError
from topics.store.writer import ShardWriter

T = TypeVar("T")
Begun = tuple[Ticket | None, threading.Event | None]
_ROOM_TRIES: Final = 3


class LocalEngine:
    """An engine and its shards' writers, callable from any thread."""

    def __init__(self, engine: Engine, writers: Sequence[ShardWriter]) -> None:
        self.engine = engine
        self.writers = writers
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.closing = False
        self._broken: BaseException | None = None
        self._led: set[int] = set()
        self._idle_wanted = 0
        self._waiting: set[threading.Event] = set()
        self._inside: set[int] = set()  # threads within a call: a signal handler must not begin another there
        self._pid = os.getpid()
        self.readers = Readers()
        self.nudge: Callable[[], None] = _nobody  # the housekeeping thread's, if there is one
        self.order: Callable[[], None] = _nobody  # of whoever carries out orders, if there is anybody
        for writer in writers:
            writer.next_file_settled = self.changed.notify_all

    def call(self, command: Command, *, sync: bool = False) -> Reply:
        """Propose, have it written as its class asks, and answer.

        Raises:
            Rejected: refused; nothing was written.
            Fatal: the write or sync failed; the outcome is unknown until the next recovery.
        """
        self._check_process()
        me = threading.get_ident()
        if me in self._inside or is_held(self.lock):
            raise Reentered
        with self.lock:
            return self._call(command, me, sync=sync).result()

    def begin(
        self, command: Claim | WaitForCopies, begun: Begun = (None, None)
    ) -> tuple[Ticket, threading.Event | None]:
        """As `call`, or go on with what was begun. Without an event the ticket is done. Else it waits for jobs or
        copies, and nothing is under way: wait until the event is set, and call this again, or `leave`.
        """
        self._check_process()
        me = threading.get_ident()
        if me in self._inside or is_held(self.lock):
            raise Reentered
        with self.lock:
            before, called = begun
            ticket = self._call(command, me, sync=False, begun=before)
            if ticket.done:
                if called is not None:
                    self._waiting.discard(called)
                return ticket, None
            called = called or threading.Event()
            called.clear()
            ticket.waiter = called.set
            self._waiting.add(called)
            return ticket, called

    def leave(self, ticket: Ticket, called: threading.Event | None) -> bool:
        """Nobody waits for it any more. True if it never happens, false if it is done or has jobs."""
        with self.lock:
            if called is not None:
                self._waiting.discard(called)
            return self._broken is None and not ticket.done and self.engine.withdraw(ticket)

    def tick(self) -> None:
        """What time has brought. What is to be written for it, others write."""
        if is_held(self.lock):
            raise Reentered
        with self.lock:
            self.engine.tick()
            self.tell()
            self.appoint()

    def carry_out(self, steps: Generator[Step, None, T]) -> T:
        """As `store.steps.drive`, under the lock, which is let go of in what blocks."""
        failed: Exception | None = None
        try:
            while True:
                try:
                    step = next(steps) if failed is None else steps.throw(failed)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]  # the generator's type says what it is
                failed = None
                try:
                    if isinstance(step, Blocking):
                        self._unlocked(step.call)
                    elif isinstance(step, Tell):
                        self.tell()
                    else:
                        self._do(step)
                except Exception as error:  # noqa: BLE001 -- the generator's to catch
                    failed = error
        finally:
            failed = None  # its traceback has this frame
            steps.close()

    def _unlocked(self, call: Callable[[], None]) -> None:
        """Call what blocks, without the lock."""
        self.lock.release()
        try:
            call()
        finally:
            retake(self.lock)

    def _do(self, step: Step) -> None:
        if isinstance(step, Propose):
            self._call(step.command, threading.get_ident(), sync=step.sync)
        elif isinstance(step, WaitForBatch):
            self._wait_for_change()
        elif isinstance(step, Swap):
            step.call()
        else:
            self.appoint()

    def _call(self, command: Command, me: int, *, sync: bool, begun: Ticket | None = None) -> Ticket:
        self._inside.add(me)
        try:
            return self._carried(command, sync=sync, begun=begun)
        except Reentered as unplanned:
            self.break_off(unplanned)
            raise
        except TopicsError:
            raise
        except BaseException as unplanned:
            self.break_off(unplanned)
            raise
        finally:
            self._inside.discard(me)
            self.appoint()
            self.nudge()

    def let_time_pass(self, name: str) -> None:
        """Before a read reports a floor that time alone has moved, the watermark for it is published (semantics 4).

        Where none can be logged (read-only, no space) the floor stands still instead.
        """
        with suppress(Rejected, Fatal):
            with self.lock:
                due = self.engine.read_due(name)
            if due is not None:
                self.call(due)

    def sync(self) -> None:
        """Everything written so far is on stable storage when this returns; one failed shard does not stop the rest.

        Raises:
            Rejected, Fatal: of the first shard that could not be synced.
        """
        self.check_open()
        failure: TopicsError | None = None
        for writer in self.writers:
            try:
                self.call(Sync(shard=writer.shard))
            except TopicsError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def check_open(self) -> None:
        """Refuse after `close`, after an interrupt, and in a forked child: the parent owns the directory."""
        self._check_here()
        self._check_process()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise Rejected(
                Code.SHUTTING_DOWN,
                f"the store belongs to process {self._pid}, which forked this one; open another directory here",
            )

    @property
    def is_inside(self) -> bool:
        """True in a thread that a signal handler or finalizer has taken out of a call."""
        return threading.get_ident() in self._inside or is_held(self.lock)

    @property
    def is_forked(self) -> bool:
        return os.getpid() != self._pid

    def finish(self) -> None:
        """The end of `close`: nobody is in a system call, nothing is proposed any more; all is written and synced."""
        with self.lock:
            while self._is_busy:
                self.changed.wait()
            if self._broken is not None:
                return
            self.engine.log_exact_heads()
            for writer in self.writers:
                writer.close()
            self.tell()

    def begin_close(self) -> None:
        """Nothing new is accepted from here on; the housekeeping thread ends, and nobody waits for jobs or news."""
        with self.lock:
            self.closing = True
            for event in self._waiting:
                event.set()
            self.readers.tell_all()
            self.changed.notify_all()

    # Proposing.

    def _carried(self, command: Command, *, sync: bool, begun: Ticket | None) -> Ticket:
        """Its ticket, which has ended well or waits for jobs or copies. What finds no room, at once or when its turn
        comes, is given room.
        """
        tries, created = _ROOM_TRIES, False
        while True:
            self._check_here()  # `close` may have been faster
            ticket, begun = begun, None
            try:
                if ticket is None:
                    ticket = self.engine.propose(command, sync=sync, asks_room=tries > 0)
                    ticket.created = ticket.created or created
                self._await(ticket)
                if ticket.error is not None:
                    raise ticket.error
                return ticket
            except Rejected as refused:
                if refused.code is not Code.DISK_LOW or tries == 0:
                    raise
                # Once more where there is none: why there is none was not known before it was tried.
                tries = tries - 1 if self._make_room(refused) else 0
            created = created or (ticket is not None and ticket.created)

    def _await(self, ticket: Ticket) -> None:
        """Until it is done, or waits for jobs or copies and nobody needs this thread."""
        called: threading.Event | None = None
        shard = None if ticket.done else self.leaderless()
        if shard is None:  # else it is told with the batch, or before that blocks
            self.tell()
        while not ticket.done:
            if shard is not None:
                self.lead(shard, until=ticket)
            elif ticket.stage is Stage.WAITING and isinstance(ticket.command, (Claim, WaitForCopies)):
                return
            else:
                if called is None:
                    called = threading.Event()
                    ticket.waiter = called.set
                self._wait_for(ticket, called)
            shard = None if ticket.done else self.leaderless()  # type: ignore[redundant-expr]  # by now

    def _check_here(self) -> None:
        if self._broken is not None:
            why = f"the store ended with {self._broken!r} in the middle of a call; open it again"
            raise Rejected(Code.SHUTTING_DOWN, why)
        if self.closing:
            raise Rejected(Code.SHUTTING_DOWN, "the store is closed; open it again")

    def break_off(self, unplanned: BaseException) -> None:
        """Nobody knows what is on disk and in the engine any more: end here, and wake whoever waits."""
        self._broken = unplanned
        for event in self._waiting:
            event.set()
        self.readers.tell_all()
        self.changed.notify_all()

    def _make_room(self, refused: Rejected) -> bool:
        """Room for a write that was refused. False if there is no space."""
        shard, needed = refused.detail["shard"], refused.detail["needed_bytes"]
        assert isinstance(shard, int)
        assert isinstance(needed, int)
        return self.carry_out(self.writers[shard].making_room(needed))

    # Leading.

    def leaderless(self) -> int | None:
        """A shard with something to write that nobody writes."""
        for writer in self.writers:
            if writer.shard not in self._led and self.engine.wants_write(writer.shard):
                return writer.shard
        return None

    def is_led(self, shard: int) -> bool:
        return shard in self._led

    def lead(self, shard: int, *, until: Ticket | None) -> None:
        """Write batches of a shard until the ticket is done or nothing is left; without a ticket, one batch."""
        writer = self.writers[shard]
        self._led.add(shard)
        try:
            while (batch := self.engine.take_batch(shard)) is not None:
                if writer.write_through(batch, self._unlocked):
                    self.tell()
                else:
                    self.tell()
                    self.carry_out(writer.writing(batch))
                if until is None or until.done:
                    break
        finally:
            self._stop_leading(shard)

    def mark(self, writer: ShardWriter) -> None:
        """The closing mark of a shard that nobody leads."""
        self._led.add(writer.shard)
        try:
            self.carry_out(writer.marking())
        finally:
            self._stop_leading(writer.shard)

    def _stop_leading(self, shard: int) -> None:
        self._led.discard(shard)
        if self.closing or self._idle_wanted:
            self.changed.notify_all()  # `finish` and `_wait_for_change` wait for this

    # Waiting.

    def _wait_for(self, ticket: Ticket, called: threading.Event) -> None:
        """Until the ticket is done, or this thread is appointed to lead."""
        called.clear()
        self._waiting.add(called)
        self.lock.release()
        try:
            called.wait()
        finally:
            retake(self.lock)
            self._waiting.discard(called)
        if self._broken is not None and not ticket.done:
            raise Fatal(
                f"the store ended with {self._broken!r} in another thread; open it again to know the outcome"
            )

    def tell(self) -> None:
        """Wake the callers whose tickets are done, the readers for whom there is news, and who carries out orders."""
        engine = self.engine
        if engine.has_orders:
            self.order()
        if not engine.has_effects:
            return
        effects = engine.take_effects()
        for ticket in effects.finished:
            if ticket.waiter is not None:
                ticket.waiter()
        if self.readers.waiting or self.readers.strict:
            self.readers.tell(effects.news)

    @property
    def _is_busy(self) -> bool:
        """True while a shard is written, or a next file changes."""
        return bool(self._led) or any(writer.next_file_changes for writer in self.writers)

    def _wait_for_change(self) -> None:
        """Until what is under way may have ended."""
        if self._is_busy:
            self._idle_wanted += 1
            try:
                self.changed.wait()
            finally:
                self._idle_wanted -= 1

    def appoint(self) -> None:
        """If a shard is left with work and no leader, wake somebody who will lead it."""
        shard = self.leaderless()
        if shard is None:
            return
        for ticket in self.engine.waiting(shard):
            if ticket.waiter is not None:
                ticket.waiter()
                return
        self.changed.notify_all()


def _nobody() -> None:
    """No such thread."""
