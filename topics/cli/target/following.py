"""Following topics: one thread each waits for more, at a server or in this process, and tells what comes here.

A topic that is deleted is looked for once a second: created again it is another one, and its first page begins with the
tombstone that says so. The threads end with the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from queue import Queue
from typing import TYPE_CHECKING, Any, Final

import attrs

from topics.cli.core.failure import say
from topics.kernel.errors import Code, Rejected

if TYPE_CHECKING:
    from topics.calls.blocking import Topic
    from topics.calls.page import Page

WAIT_MS: Final = 20_000
LOOK_AGAIN_S: Final = 1.0
PAGES_QUEUED_MAX: Final = 16


@attrs.frozen(kw_only=True)
class Mark:
    """Where a reader of a topic is."""

    topic: Topic
    from_seq: int
    epoch: int


def follow(marks: Mapping[str, Mark], *, match: Any = None) -> Iterator[tuple[str, Page]]:
    """(topic, page) for ever, in the order in which they come. Raises what one of the readers ran into."""
    pages: Queue[tuple[str, Page | Exception]] = Queue(PAGES_QUEUED_MAX)
    for name, mark in marks.items():
        threading.Thread(target=_read, args=(name, mark, match, pages), daemon=True).start()
    while True:
        name, page = pages.get()
        if isinstance(page, Exception):
            raise page
        yield name, page


def _read(name: str, mark: Mark, match: Any, pages: Queue[tuple[str, Page | Exception]]) -> None:
    is_gone = False
    while True:
        try:
            for page in mark.topic.pages(
                from_seq=mark.from_seq, epoch=mark.epoch, match=match, wait_ms=WAIT_MS
            ):
                if page.epoch != mark.epoch:
                    say(f"topic {name!r} was deleted and created again (epoch {page.epoch})", "topics: ")
                is_gone = False
                mark = attrs.evolve(mark, from_seq=page.next_from_seq, epoch=page.epoch)
                pages.put((name, page))
        except Exception as error:  # noqa: BLE001 -- told by the thread that prints
            if not isinstance(error, Rejected) or error.code is not Code.TOPIC_NOT_FOUND:
                pages.put((name, error))
                return
            if not is_gone:
                say(f"topic {name!r} was deleted; waiting for it to be created again", "topics: ")
            is_gone = True
            time.sleep(LOOK_AGAIN_S)
