"""Following topics, at a server or in this process: one watch of all of them, in a thread; what it gives comes here.

A topic that is deleted is looked for once a second, by a thread of its own: created again it is another one, and what
comes of it begins with the tombstone that says so. The threads end with the process.
"""

from __future__ import annotations

import logging
import select
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from queue import Queue
from typing import TYPE_CHECKING, Any, Final

from topics.calls.watching.values import CaughtUp, Tombstone, TopicDeleted, WatchedRecord
from topics.cli.core.failure import say
from topics.kernel.errors import Code, Rejected
from topics.log.floors import Reason

if TYPE_CHECKING:
    from topics.calls.blocking import TopicStore
    from topics.calls.watching.rules import Start

LOOK_AGAIN_S: Final = 1.0
QUEUED_MAX: Final = 64

Followed = WatchedRecord | Tombstone


class Tail:
    """`starts`: where each topic is begun."""

    def __init__(self, store: TopicStore, starts: Mapping[str, Start], *, match: Any = None) -> None:
        self._store = store
        self._starts = starts
        self._match = match
        self._queue: Queue[Followed | Exception] = Queue(QUEUED_MAX)

    @property
    def is_behind(self) -> bool:
        """More has come already."""
        return not self._queue.empty()

    def __iter__(self) -> Iterator[Followed]:
        """In the order in which it comes, until nobody reads what is printed. Raises what a thread ran into."""
        logging.getLogger("topics.watch").addHandler(_Saying())
        self._begin(_until_nobody_reads)
        self._begin(self._watch, self._starts)
        while True:
            found = self._queue.get()
            if isinstance(found, Exception):
                raise found
            yield found

    def _begin(self, what: Any, *given: Any) -> None:
        threading.Thread(target=self._carefully, args=(what, *given), daemon=True).start()

    def _carefully(self, what: Any, *given: Any) -> None:
        try:
            what(*given)
        except Exception as error:  # noqa: BLE001 -- told by the thread that prints
            self._queue.put(error)

    def _watch(self, starts: Mapping[str, Start]) -> None:
        watch = self._store.watch(starts, match=self._match)
        for value in watch:
            match value:
                case TopicDeleted(topic=name):
                    say(f"topic {name!r} was deleted; waiting for it to be created again", "topics: ")
                    self._begin(self._look_again, name, watch.positions[name])
                    continue
                case CaughtUp():
                    continue
                case Tombstone(topic=name, reason=Reason.RECREATED):
                    epoch = watch.positions[name].get("epoch")
                    say(f"topic {name!r} was deleted and created again (epoch {epoch})", "topics: ")
            self._queue.put(value)

    def _look_again(self, name: str, start: Start) -> None:
        while True:
            try:
                if self._store.config(name) is not None:
                    self._watch({name: start})
                    return
            except Rejected as refused:
                if refused.code is not Code.TOPIC_NOT_FOUND:
                    raise
            time.sleep(LOOK_AGAIN_S)


def _until_nobody_reads() -> None:
    """Raises `BrokenPipeError` when who reads standard output has gone: there may be nothing to be written for long."""
    try:
        poller = select.poll()
        poller.register(sys.stdout.fileno(), 0)  # the end is told unasked
    except (OSError, ValueError):  # there is no such file, as in a test
        return
    poller.poll()
    raise BrokenPipeError


class _Saying(logging.Handler):
    """What a watch tells its log, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage(), "topics: ")
