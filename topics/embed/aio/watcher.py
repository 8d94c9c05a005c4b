"""What a stream watches: topics, whose turn it is, what comes next of it (http-api 9, semantics 11).

A watcher holds nothing that was not asked for: `take` reads a page of the topic whose turn it is, then it is the turn
of the next. Whoever sends takes again when what he took is on its way, so one who is slow, or stuck, has that in memory
and goes on from his cursor, where a tombstone tells what was lost meanwhile. While there is nothing to take a watcher
is its entries in the hub, and who waits for it is told by a call.

At the tail, watchers at one cursor who ask for the same are given one step, as long polls are one page (decision 44).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Final

import attrs
import msgspec
import trio

from topics.embed.aio.fetch import AnswerRoom, Form
from topics.embed.aio.hub import Subscribers
from topics.embed.aio.pages import Shown
from topics.embed.aio.runtime import Runtime
from topics.kernel.errors import Code, Rejected, TopicsError
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.watching import Subscription, SubscriptionStage

THROTTLED_S: Final = 1.0  # until a read that there was no memory for is tried again
VIEWS_KEPT: Final = 1024
GATHERED_BYTES: Final = 64 * 1024  # of steps that are sent together


@attrs.frozen(eq=False)  # `view_of` gives the same one
class WatchView:
    """What is asked of a topic, in a query without one, in which form, and what is made of its records."""

    asked: DiffQuery
    form: Form
    shown: Shown


@lru_cache(VIEWS_KEPT)
def view_of(asked: DiffQuery, form: Form, shown: Shown) -> WatchView:
    """The same for all who ask for the same, so that it is found at once that they do."""
    return WatchView(asked, form, shown)


class Watched(Subscription):
    """A subscription of a watcher, as the hub knows it: a `Follower`."""

    __slots__ = ("is_gone", "news", "view", "watcher")

    def __init__(self, topic: str, view: WatchView, *, from_seq: int, epoch: int, head_seq: int) -> None:
        super().__init__(topic, view.asked, from_seq=from_seq, epoch=epoch, head_seq=head_seq)
        self.view = view
        self.watcher: Watcher | None = None
        self.is_gone: bool  # there is nothing more of it: its topic was deleted, or cannot be read
        self.news: Subscribers | None = None  # what it waited for, in common with others

    def begin(self, cursor: int, epoch: int) -> None:
        super().begin(cursor, epoch)
        self.is_gone = False

    def told(self, news: Subscribers) -> None:
        watcher = self.watcher
        assert watcher is not None
        if watcher.sends_same is None or not watcher.sends_same(self, news):
            self.news = news
            watcher.is_turn_of(self)

    def end(self) -> None:
        assert self.watcher is not None
        self.watcher.drain()


class Step(msgspec.Struct, frozen=True, gc=False):
    """What comes next of a topic; at the tail it is the same for all who stand there and ask for the same.

    `plan`: a page; None if the topic was deleted, or cannot be read, as `error` says. `text`: the records of the page,
    as they are shown. `before`: cursor and epoch up to here. `is_start`: nothing was taken of it before; `turned`: it
    has caught up. `is_throttled`: there was no memory for a page; it is tried again. `pieces`: what is sent
    of it, by what else that depends on, of those who have it in common.
    """

    before: tuple[int, int]
    plan: DiffPlan | None = None
    text: bytes = b""
    is_start: bool = False
    turned: bool = False
    error: TopicsError | None = None
    is_throttled: bool = False
    pieces: dict[Hashable, bytes] = {}


SentAs = Callable[[Watched, Step], Sequence[bytes]]


class Watcher:
    """`sent_as`: what is sent of a step. `wake`: called when there may be something to take, or the server drains.
    `sends_same`: sends what another was who stood where this one does; False, and nothing is done, if it does not.
    `is_sending`: what was taken last is not on its way yet.
    """

    __slots__ = (
        "_is_resting",
        "_ready",
        "_runtime",
        "_sent_as",
        "_wake",
        "is_draining",
        "is_sending",
        "sends_same",
        "tick",
    )

    def __init__(
        self,
        runtime: Runtime,
        sent_as: SentAs,
        wake: Callable[[], None],
        sends_same: Callable[[Watched, Subscribers], bool] | None = None,
    ) -> None:
        self.sends_same = sends_same
        self._runtime = runtime
        self._sent_as = sent_as
        self._wake = wake
        self._ready: dict[Watched, None] = {}  # in turn; empty it is smaller than a deque
        self._is_resting = False  # after a page that there was no memory for
        self.tick: int | None = None  # of the wheel
        self.is_draining = False
        self.is_sending = False

    @property
    def has_ready(self) -> bool:
        """Something has to be read, and perhaps sent."""
        return bool(self._ready)

    def add(self, subscription: Watched) -> None:
        """Watch this, too."""
        assert subscription.watcher is None
        subscription.watcher = self
        hub = self._runtime.hub
        hub.follow(subscription)
        self.is_draining = self.is_draining or hub.is_draining
        self.is_turn_of(subscription)

    def drop(self, subscription: Watched) -> None:
        """Nothing of it is taken any more, also if it is being read."""
        assert subscription.watcher is self
        self._runtime.hub.leave(subscription)
        subscription.watcher = None
        subscription.news = None
        self._ready.pop(subscription, None)

    def is_turn_of(self, subscription: Watched) -> None:
        """Behind those that are ready."""
        self._ready.setdefault(subscription)
        self._wake()

    def drain(self) -> None:
        self.is_draining = True
        self._wake()

    def close(self) -> None:
        """Nothing is watched any more."""
        self._runtime.wheel.drop(self)

    def due(self) -> None:
        """There may be memory again."""
        self._is_resting = False
        self._forget_news()
        self._wake()

    def sent(self) -> None:
        """What was taken is on its way."""
        if self.is_sending:
            self.is_sending = False
            self._forget_news()

    def _forget_news(self) -> None:
        """What others were given of news that came a while ago may be old by now."""
        for one in self._ready:
            one.news = None

    async def take(self, room: AnswerRoom) -> list[bytes]:
        """What there is now, as much as is sent at once; nothing if nothing. `room` holds it from then on."""
        found: list[bytes] = []
        size = 0
        while self._ready and size < GATHERED_BYTES and not self._is_resting:
            told = await self._step(room)
            if told is None:
                break
            one, step = told
            sent = self._sent_as(one, step)
            found += sent
            size += sum(map(len, sent))
            self.is_sending = bool(found)  # already: what is dropped while more is read has been taken
            if step.is_throttled:
                self._is_resting = True
                self._runtime.wheel.set(self, trio.current_time() + THROTTLED_S)
        return found

    def take_nowait(self, room: AnswerRoom) -> Sequence[bytes]:
        """What has come at the tail of the first that is ready, if it is at hand. Else nothing, and it stays ready."""
        one = next(iter(self._ready))
        news = one.news
        if news is None or one.stage is not SubscriptionStage.TAIL:
            return ()
        try:
            step = news.once_nowait((one.view, one.cursor, one.epoch), self._page_nowait, one, room)
        except TopicsError:
            return ()  # who waits is told why
        if step is None or not room.keep(len(step.text)):
            return ()
        del self._ready[one]
        one.news = None
        own = self._added(one, step)
        return () if own is None else self._sent_as(one, own)

    async def _step(self, room: AnswerRoom) -> tuple[Watched, Step] | None:
        pages = self._runtime.pages
        while self._ready:
            one = next(iter(self._ready))
            del self._ready[one]
            news, one.news = one.news, None
            before, held = (one.cursor, one.epoch), room.size
            try:
                step = await pages.once((one.view, *before), partial(self._page, one, room), news)
                pages.hold(len(step.text), room, held)
            except TopicsError as error:
                if one.watcher is self:
                    return one, self._failed(one, before, error)
                continue
            finally:
                self._forget_news()
            if one.watcher is self and (own := self._added(one, step)):  # else dropped while it was read
                return one, own
        return None

    def _added(self, one: Watched, step: Step) -> Step | None:
        """What is told of it here; None if there is nothing to be told."""
        plan, is_start = step.plan, one.is_start
        assert plan is not None
        turned = one.add(plan)
        if one.stage is SubscriptionStage.BACKLOG:
            self.is_turn_of(one)
        if plan.gap is not None:
            self._runtime.pages.count(plan.gap)
        elif not (plan.seqs or turned):
            return None
        return Step(step.before, plan, step.text, is_start, turned) if is_start or turned else step

    async def _page(self, one: Watched, room: AnswerRoom) -> Step:
        view = one.view
        plan, text, _ = await self._runtime.pages.page(one.query(), view.form, room, view.shown)
        return self._found(one, plan, text)

    def _page_nowait(self, one: Watched, room: AnswerRoom) -> Step | None:
        view = one.view
        found = self._runtime.pages.page_nowait(one.query(), view.form, room, view.shown)
        return None if found is None else self._found(one, *found[:2])

    def _found(self, one: Watched, plan: DiffPlan, text: bytes) -> Step:
        if plan.seqs and one.stage is SubscriptionStage.TAIL:
            self._runtime.deliveries.made(plan)
        return Step((one.cursor, one.epoch), plan, text if plan.seqs else b"")

    def _failed(self, one: Watched, before: tuple[int, int], error: TopicsError) -> Step:
        if isinstance(error, Rejected) and error.code is Code.THROTTLED:
            self.is_turn_of(one)
            return Step(before, error=error, is_throttled=True)
        one.is_gone = True
        self.drop(one)
        deleted = isinstance(error, Rejected) and error.code is Code.TOPIC_NOT_FOUND
        return Step(before, error=None if deleted else error)


class Pushing:
    """A watcher whose steps are pushed: what is at hand by whoever tells of it, the rest by a task that is there while
    there is any (decision 118).

    `start`: begins such a task. `push`: returns when messages are on their way; `push_nowait`: if
    messages can be on their way at once, calls what makes them. `room` holds them until then.
    """

    __slots__ = (
        "_is_running", "_push", "_push_nowait", "_pushed", "_room", "_sent_as", "_start", "_watcher", "subscriptions",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        *,
        sent_as: SentAs,
        start: Callable[[Callable[[], Awaitable[object]]], None],
        push: Callable[[Sequence[bytes]], Awaitable[None]],
        push_nowait: Callable[[Callable[[], Sequence[bytes]]], bool],
        room: AnswerRoom,
    ) -> None:
        self.subscriptions: dict[str, Watched] = {}
        self._watcher = Watcher(runtime, self._taken_as, self._wake)
        self._sent_as, self._start = sent_as, start
        self._push, self._push_nowait = push, push_nowait
        self._room = room
        self._is_running = False
        self._pushed = trio.lowlevel.ParkingLot()  # who waits for what is being pushed

    def subscribe(self, subscription: Watched) -> None:
        assert subscription.topic not in self.subscriptions
        self.subscriptions[subscription.topic] = subscription
        self._watcher.add(subscription)

    async def unsubscribe(self, topic: str) -> bool:
        """Nothing of it is pushed behind this. False if it was not watched."""
        subscription = self.subscriptions.pop(topic, None)
        if subscription is None:
            return False
        self._watcher.drop(subscription)
        if self._watcher.is_sending:
            await self._pushed.park()
        return True

    def close(self) -> None:
        """The connection has ended."""
        for subscription in self.subscriptions.values():
            self._watcher.drop(subscription)
        self.subscriptions.clear()
        self._watcher.close()
        self._room.settle(0)

    def _taken_as(self, one: Watched, step: Step) -> Sequence[bytes]:
        if one.is_gone:
            del self.subscriptions[one.topic]
        return self._sent_as(one, step)

    def _wake(self) -> None:
        watcher = self._watcher
        if self._is_running or watcher.is_draining:
            return
        self._is_running = True
        try:
            if watcher.has_ready:
                self._push_nowait(partial(watcher.take_nowait, self._room))
                self._room.settle(0)
        except Exception as bug:  # noqa: BLE001 -- it ends this connection, and is not raised in who tells of news
            self._start(partial(_fail, bug))
            return
        self._is_running = watcher.has_ready
        if self._is_running:
            self._start(self._run)

    async def _run(self) -> None:
        """Until there is nothing more to push."""
        try:
            while not self._watcher.is_draining and (messages := await self._watcher.take(self._room)):
                await self._push(messages)
                self._watcher.sent()
                self._pushed.unpark_all()
                self._room.settle(0)
        finally:
            self._is_running = self._watcher.is_sending = False
            self._pushed.unpark_all()
            self._room.settle(0)


async def _fail(bug: Exception) -> None:
    raise bug
