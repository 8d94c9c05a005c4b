"""The stream of a session: what goes out next, and how it ends (http-api 9, semantics 11).

A plane asks for a piece when it has sent the last one: so much is held for a client who does not read, and he goes on
from his cursor when he does. While there is nothing to send, the connection's own task sleeps here, or leaves, if the
plane has lent what calls it back. What comes then, and is at hand, is sent by whoever tells of it, if the plane has
lent what sends without waiting: nobody is woken (decision 79). A task is needed for what takes longer, or does not go
at once, for a second stream and for a drain.

Most watch one topic, stand at its head and rest. Who is the first of them to be told makes the piece; the others, whose
client takes it at once, are sent it as it is (`_sends_same`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from topics.embed.aio.hub import Subscribers
from topics.embed.aio.runtime import Runtime
from topics.embed.aio.watcher import THROTTLED_S, Step, Watched, Watcher
from topics.log.reads.watching import SubscriptionStage, after_gap
from topics.server.api.events import RETRY, event, heartbeat, with_id
from topics.server.api.memory import SMALL_BYTES, Share
from topics.server.api.message import Resume, SendNow
from topics.server.api.watching.frames import (
    caught_up_fields,
    deleted_fields,
    gap_fields,
    last_event,
    topic_error,
)
from topics.server.api.watching.sessions import WatchSession
from topics.server.runtime.log import log

_SUPERSEDED: Final = last_event(409, "superseded", "this watch goes on in another stream")
_SLOW: Final = last_event(
    408, "slow_consumer", "nothing was taken for 30 s; ask for the stream again: it goes on"
)
_EXPIRED: Final = last_event(
    404, "session_expired", "this watch has ended; ask for a new one: POST /v0/watch"
)
_DRAINING: Final = last_event(
    503, "shutting_down", "the server is shutting down; come again, elsewhere or later"
)


class WatchStream:
    """The events of one connection: a `Source`. `last_id`: what its client says it has. `told_slow`: called with
    how many topics it watches if it is cut off because its client takes nothing.
    """

    __slots__ = (
        "_begun", "_bug", "_is_due", "_is_left", "_last", "_made", "_over", "_resume", "_room", "_runtime", "_send_now",
        "_sent_at", "_session", "_task", "_told_slow", "_unsent", "_watcher", "bytes_per_s", "tick",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        session: WatchSession,
        *,
        last_id: bytes,
        room: Share,
        bytes_per_s: int,
        told_slow: Callable[[int], None],
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._told_slow = told_slow
        self.tick: int | None = None  # of the wheel
        self._runtime = runtime
        self._session = session
        self._room = room
        is_of_one = session.epoch is not None
        self._watcher = Watcher(runtime, self._events, self._wake, self._sends_same if is_of_one else None)
        self._made: dict[
            Watched, None
        ] = {}  # of whom there is something in the last piece, perhaps several things
        self._task: trio.lowlevel.Task | None = None  # which sleeps
        self._begun: bytes | None = last_id  # until it has begun
        self._last = b""  # what is said at the end
        self._send_now: SendNow | None = None
        self._resume: Resume | None = None
        self._is_left = False  # nobody waits for a piece until it is called for
        self._bug: Exception | None = None
        self._unsent = b""  # a piece that did not go at once, or not all of it
        self._over = self._is_due = False
        self._sent_at = 0.0

    def lent(self, send_now: SendNow, resume: Resume | None) -> None:
        """A plane that has them: see `Unbounded`."""
        self._send_now, self._resume = send_now, resume

    async def piece(self) -> bytes | None:
        """What is next, or a sign of life; an error that ends it is the last event. None: it is called for."""
        if self._begun is not None:
            return self._begin(self._begun)
        self._is_left = False
        if not self._unsent:
            self._room.release()  # the last piece has been taken
            self._arrived()
        self._watcher.sent()
        try:
            if self._watcher.has_ready:
                await trio.lowlevel.checkpoint()  # who has much to read must not hold up the others
            return await self._next()
        finally:
            if not self._is_left:
                self._watcher.is_sending = True
                self._sent_at = trio.current_time()

    def cut(self) -> None:
        """Its client took nothing for too long. Whoever sends goes on for a moment, so he may learn why it ends."""
        if not self._last:
            self._told_slow(len(self._session.subscriptions))
            self._end(_SLOW)

    def supersede(self) -> None:
        """Another stream serves the session."""
        self._leave()
        self._end(_SUPERSEDED)
        log.debug("watch.superseded")

    def due(self) -> None:
        """Nothing may have been sent for a while."""
        now, every_s = trio.current_time(), self._session.heartbeat_s
        if self._watcher.is_sending:
            self._runtime.wheel.set(self, now + every_s)
        elif now < self._sent_at + every_s:
            self._runtime.wheel.set(self, self._sent_at + every_s)
        else:
            self._is_due = True
            self._wake()

    def close(self) -> None:
        """The connection has ended, or nothing was to be sent."""
        self._room.release()
        self._leave()

    # What is next.

    def _begin(self, last_id: bytes) -> bytes:
        """With an id, so that a client which is cut off before the first event can say that it has none."""
        self._begun = None
        self._sent_at = trio.current_time()
        if self._session.is_over:
            self._end(_EXPIRED)
            return b"%b\n" % RETRY
        self._session.attach(self, last_id)
        for subscription in self._session.subscriptions.values():
            self._watcher.add(subscription)
        self._runtime.wheel.set(self, self._sent_at + self._session.heartbeat_s)
        return with_id(RETRY, self._session.id())

    async def _next(self) -> bytes | None:
        while True:
            if self._bug is not None:
                raise self._bug
            if self._unsent:
                piece, self._unsent = self._unsent, b""
                return piece
            if self._over:
                return b""
            if self._is_ending():
                self._over = True
                return self._last or _DRAINING
            if not self._session.subscriptions:
                self._session.end()
                return b""
            if self._watcher.has_ready and (events := await self._watcher.take(self._room)):
                return b"".join(events)
            if self._is_due:
                return self._heartbeat()
            if self._is_ending():
                continue  # told while it read
            if self._resume is not None:
                self._is_left = True
                return None
            await self._sleep()

    def _is_ending(self) -> bool:
        """Whether there is a last event to be said."""
        return bool(self._last) or self._watcher.is_draining

    def _is_sent_now(self) -> bool:
        """What is next, if it is at hand and goes at once; there is nothing left to do for who sleeps."""
        if self._send_now is None or self._is_ending():
            return False
        if self._watcher.has_ready:
            piece = b"".join(self._watcher.take_nowait(self._room))
        else:
            piece = self._heartbeat() if self._is_due else b""
        if piece:
            if not self._send_now(piece):
                self._unsent = piece
                return False
            self._room.release()
            self._arrived()
            self._sent_at = trio.current_time()
        return not self._watcher.has_ready

    def _sends_same(self, one: Watched, news: Subscribers) -> bool:
        """What another was sent who had the same to be told, if this one rests. It is small, so it is not held."""
        is_at_rest = self._task is not None or self._is_left
        if not is_at_rest or one.stage is not SubscriptionStage.TAIL:
            return False
        step: Step | None = news.at_hand((one.view, one.cursor, one.epoch))
        piece = None if step is None else step.pieces.get(self._session.epoch)
        if step is None or piece is None or len(piece) > SMALL_BYTES or self._send_now is None:
            return False
        try:
            assert step.plan is not None
            one.add(step.plan)
            if self._send_now(piece):
                one.arrived()
                self._sent_at = trio.current_time()
                return True
            self._made[one] = None
            self._unsent = piece
        except Exception as bug:  # noqa: BLE001 -- as in `_wake`
            self._bug = bug
        self._go_on()
        return True

    def _heartbeat(self) -> bytes:
        self._is_due = False
        self._runtime.wheel.set(self, trio.current_time() + self._session.heartbeat_s)
        return heartbeat(self._runtime.engine.now_ms())

    def _events(self, one: Watched, step: Step) -> list[bytes]:
        plan, before = step.plan, step.before
        self._made[one] = None
        if step.error is not None:
            retry_ms = int(THROTTLED_S * 1000) if step.is_throttled else 0
            return [topic_error(one.topic, step.error, retry_ms=retry_ms)]
        if plan is None:
            gone = event(b"topic-deleted", deleted_fields(one.topic, one.head_seq))
            return [with_id(gone, self._session.event_id(one, *before, before=before))]
        events: list[bytes] = []
        if plan.gap is not None:
            here = after_gap(plan), plan.epoch
            told = event(b"tombstone", gap_fields(plan, plan.gap, at_connect=step.is_start))
            events.append(with_id(told, self._session.event_id(one, *here, before=before)))
            before = here
        there = plan.next_from_seq, plan.epoch
        if step.text:
            told = with_id(step.text, self._session.event_id(one, *there, before=before))
            if plan.gap is None and plan.caught_up:  # it is all there is; who turns has a step of his own
                step.pieces[self._session.epoch] = told
            events.append(told)
            before = there
        if step.turned:
            told = event(b"caught-up", caught_up_fields(plan))
            events.append(with_id(told, self._session.event_id(one, *there, before=before)))
        return events

    def _arrived(self) -> None:
        """The last piece is on its way, all of it."""
        for one in self._made:
            one.arrived()
            if one.is_gone:
                self._session.told_gone(one)
        self._made.clear()

    # Ends and waits.

    def _end(self, last: bytes) -> None:
        self._last = last
        self._wake()

    def _leave(self) -> None:
        """Watch nothing any more."""
        self._made.clear()
        self._runtime.wheel.drop(self)
        self._watcher.close()
        if self._session.stream is self:
            for one in self._session.subscriptions.values():
                if one.watcher is self._watcher:
                    self._watcher.drop(one)
            self._session.detach()

    async def _sleep(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def _give_up(self, _: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _wake(self) -> None:
        task, is_left = self._task, self._is_left
        if task is None and not is_left:
            return
        self._task, self._is_left = None, False
        try:
            is_sent = self._is_sent_now()
        except Exception as bug:  # noqa: BLE001 -- it ends this connection, and is not raised in who tells of news
            self._bug = bug
            is_sent = False
        self._task, self._is_left = task, is_left
        if not is_sent:
            self._go_on()

    def _go_on(self) -> None:
        """By a task: the one that sleeps, or the plane's."""
        task, self._task, self._is_left = self._task, None, False
        if task is not None:
            trio.lowlevel.reschedule(task)
        else:
            assert self._resume is not None
            self._resume()
