"""`Watch`: topics watched by a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self

from topics.calls.consumers import CommitCall
from topics.calls.watching.course import Course, Watching
from topics.calls.watching.cursors import Cursors, unless_deleted
from topics.calls.watching.rules import Start
from topics.calls.watching.values import WatchValue
from topics.kernel.errors import TopicsError


class Feed(Protocol):
    """Where a watch has its values from: `steps`, of a `RemoteWatch` or of `Rounds`, and how each is carried out."""

    @property
    def cursors(self) -> Cursors: ...

    @property
    def steps(self) -> Watching: ...

    def answer(self, step: Any) -> Any:
        """Carry out a step; it may block. Raises a `TopicsError`."""
        ...

    def cut(self) -> None:
        """Whoever is blocked is let go, and nobody is any more. From any thread, twice is fine."""
        ...

    def close(self) -> None:
        """It is over, and nobody is blocked."""
        ...


class Watch(Iterator[WatchValue]):
    """What happens to topics, as it happens; see `watch` of a store. For one thread at a time; any may close it.

    A block begins it and closes it; without one the first item begins it, and it is closed with its store.
    """

    def __init__(self, feed: Feed, do: Callable[[CommitCall], object]) -> None:
        self._feed = feed
        self._do = do
        self._course = Course(feed.steps)
        self._turn = threading.Lock()
        self._is_closed = False

    @property
    def positions(self) -> dict[str, Start]:
        """Where it is: behind what was given last. `store.watch(positions)` goes on there, in any process."""
        return self._feed.cursors.positions()

    def commit(self) -> None:
        """Have the consumers of its topics stand where it is: behind what was given last, which so is done. Of a topic
        that was deleted there is nothing to commit.

        Raises:
            Rejected: consumer_not_found, if it was deleted, or its topic was created again; invalid_request, if no
                topic was begun at a consumer; disk_low, storage_read_only.
            Fatal: the write or sync failed; where they stand is known after the next opening.
        """
        for commit in self._feed.cursors.commits():
            with unless_deleted():
                self._do(commit)

    def close(self) -> None:
        """End it, from any thread: whoever waits for the next item is told that there is none."""
        self._is_closed = True
        self._feed.cut()
        if self._turn.acquire(blocking=False):
            try:
                self._feed.close()
            finally:
                self._turn.release()

    def __next__(self) -> WatchValue:
        value = self._advance()
        if value is None:
            raise StopIteration
        return value

    def __enter__(self) -> Self:
        try:
            self._advance(only_begin=True)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:  # fmt: skip
        self.close()

    def _advance(self, *, only_begin: bool = False) -> WatchValue | None:
        """The next value; None if there is none, or it is begun."""
        if not self._turn.acquire(blocking=False):
            raise RuntimeError(
                "another thread waits for the next item of this watch: give each thread its own"
            )
        course = self._course
        try:
            while not self._is_closed:
                if only_begin and course.is_begun:
                    return None
                if (value := course.value()) is not None or course.is_over:
                    return value
                try:
                    given = self._feed.answer(course.step)
                except TopicsError as error:
                    if not self._is_closed:  # else it came of that
                        course.refused(error)
                else:
                    course.answered(given)
            return None
        finally:
            if self._is_closed or course.is_over:
                self._feed.close()
            self._turn.release()
