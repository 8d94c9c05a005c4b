"""Where a watch is, topic by topic: what has been given up to there is not given again, and nothing is left out.

A cursor moves with what is given: by each record, past each loss. So what it says at any moment is where another watch
goes on: one on another connection, or in another process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from topics.calls.consumers import CommitCall, ConsumerOf
from topics.calls.page import Page
from topics.calls.watching.rules import Start
from topics.calls.watching.values import CaughtUp, Tombstone, TopicDeleted, WatchedRecord, WatchValue
from topics.codec.log.frame import FrameView
from topics.kernel.errors import Code, Rejected, invalid
from topics.log.floors import Gap, Reason


@attrs.define(kw_only=True)
class WatchCursor:
    """`seq`: of the last that was given or passed, None until that is known. `behind`: a backlog is under way.
    `caught_up`: of the last `CaughtUp`. `consumer`: where it was begun; up to `committed` that one has read, as far as
    is known here.
    """

    seq: int | None
    epoch: int | None
    consumer: str | None = None
    committed: int | None = None
    head_seq: int = 0
    is_behind: bool = True
    is_deleted: bool = False
    caught_up: int | None = None


class Cursors:
    """Of all topics of a watch."""

    def __init__(self, starts: Mapping[str, Start]) -> None:
        self._all = {
            name: WatchCursor(
                seq=start.get("from_seq"), epoch=start.get("epoch"), consumer=start.get("consumer")
            )
            for name, start in starts.items()
        }

    @property
    def names(self) -> list[str]:
        """Of the topics that are there."""
        return [name for name, cursor in self._all.items() if not cursor.is_deleted]

    def __getitem__(self, topic: str) -> WatchCursor:
        return self._all[topic]

    def positions(self) -> dict[str, Start]:
        """Where another watch goes on."""
        return {name: _start(cursor) for name, cursor in self._all.items()}

    def starts(self) -> dict[str, Start]:
        """The same, of topics that are there."""
        return {name: _start(self._all[name]) for name in self.names}

    def begin(self, topic: str, *, from_seq: int, epoch: int | None) -> None:
        """Where it is begun. What the caller has said stands: that it is another topic now, a tombstone tells."""
        cursor = self._all[topic]
        if cursor.epoch is None:
            cursor.epoch = epoch
        if cursor.seq is None:
            cursor.seq = from_seq
            if cursor.epoch == epoch:  # else it is read from the beginning of another instance
                cursor.committed = from_seq

    # What is said to consumers.

    def commits(self) -> Iterator[CommitCall]:
        """What tells each consumer that it has read all that was given. One is carried out before the next is asked.

        Raises:
            Rejected: no topic was begun at one.
        """
        if not any(cursor.consumer for cursor in self._all.values()):
            raise invalid(
                "consumer", 'this watch has none: begin it as in watch("orders", consumer="billing")'
            )
        for name in self.names:
            seq = self._all[name].seq
            if seq is not None:
                yield from self.commits_ahead(name, seq)

    def commits_ahead(self, topic: str, seq: int) -> Iterator[CommitCall]:
        """What tells the consumer of this topic, if it has one, that it has read up to there, unless it was told so."""
        cursor = self._live(topic)
        if cursor is None or cursor.consumer is None:
            return
        if cursor.committed is None or seq > cursor.committed:
            yield CommitCall(ConsumerOf(topic_name=topic, name=cursor.consumer), seq, cursor.epoch)
            cursor.committed = seq  # who asks for the next has carried it out

    # What comes. Of a topic that is not watched, or not any more, nothing.

    def records(
        self, topic: str, views: Iterable[FrameView], *, to_seq: int, head_seq: int
    ) -> Iterator[WatchValue]:
        """Of these the ones that were not given yet. Behind them all up to `to_seq` is passed."""
        cursor = self._live(topic)
        if cursor is None:
            return
        cursor.head_seq = head_seq
        for view in views:
            if cursor.seq is None or view.seq > cursor.seq:
                cursor.seq = view.seq
                yield WatchedRecord(view, topic)
        cursor.seq = max(cursor.seq or 0, to_seq)

    def tombstone(self, topic: str, gap: Gap, epoch: int | None) -> Iterator[WatchValue]:
        """A loss, unless it has been told. `epoch`: of the topic now."""
        cursor = self._live(topic)
        if cursor is None:
            return
        cursor.head_seq = gap.head_seq
        if gap.reason is Reason.RECREATED:  # what follows is read from the beginning
            cursor.seq, cursor.epoch, cursor.caught_up, cursor.committed = 0, epoch, None, None
        elif gap.gap_to > (cursor.seq or 0):
            cursor.seq = gap.gap_to
        else:
            return
        yield Tombstone(topic=topic, **attrs.asdict(gap, recurse=False))

    def caught_up(self, topic: str, *, head_seq: int, durable_seq: int) -> Iterator[WatchValue]:
        """Each stream begins with one of each topic, which tells nothing if nothing came since the last."""
        cursor = self._live(topic)
        if cursor is None:
            return
        cursor.head_seq = head_seq
        if cursor.caught_up != head_seq:
            cursor.caught_up = head_seq
            yield CaughtUp(topic=topic, head_seq=head_seq, durable_seq=durable_seq)

    def deleted(self, topic: str, head_seq: int | None = None) -> Iterator[WatchValue]:
        """It is not there any more."""
        cursor = self._live(topic)
        if cursor is not None:
            cursor.is_deleted = True
            yield TopicDeleted(topic=topic, head_seq=cursor.head_seq if head_seq is None else head_seq)

    def page(self, page: Page, views: Iterable[FrameView], *, is_last: bool) -> Iterator[WatchValue]:
        """What a read has found. `views`: of its records. `is_last`: nothing more is there yet."""
        if page.tombstone is not None:
            yield from self.tombstone(page.topic, page.tombstone, page.epoch)
        cursor = self._all[page.topic]
        cursor.epoch = page.epoch
        yield from self.records(page.topic, views, to_seq=page.next_from_seq, head_seq=page.head_seq)
        if is_last and cursor.is_behind:
            yield from self.caught_up(page.topic, head_seq=page.head_seq, durable_seq=page.durable_seq)
        cursor.is_behind = not is_last

    def _live(self, topic: str) -> WatchCursor | None:
        cursor = self._all.get(topic)
        return None if cursor is None or cursor.is_deleted else cursor


@contextmanager
def unless_deleted() -> Iterator[None]:
    """A topic that is not there any more is no failure: the watch tells it."""
    try:
        yield
    except Rejected as refused:
        if refused.code is not Code.TOPIC_NOT_FOUND:
            raise


def _start(cursor: WatchCursor) -> Start:
    start: Start = {"tail": True} if cursor.seq is None else {"from_seq": cursor.seq}
    if cursor.seq is None and cursor.consumer is not None:
        start = {"consumer": cursor.consumer}
    if cursor.epoch is not None:
        start["epoch"] = cursor.epoch
    return start
