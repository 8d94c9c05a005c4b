"""A watch of a store in this process, as a generator of reads and waits: round after round over its topics.

Each topic has a page a round, so none keeps another one waiting; where no topic has more, the next news of any of them
begins the next round.
"""

from __future__ import annotations

import attrs
import msgspec

from topics.calls.consumers import ConsumerOf, PositionCall
from topics.calls.messages import NO_DATA
from topics.calls.page import Page, Record
from topics.calls.records import ReadCall
from topics.calls.topics import StateCall
from topics.calls.watching.course import Begun, Watching
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.rules import Asked
from topics.codec.log.frame import FrameView
from topics.codec.log.layout import Ext
from topics.kernel.errors import Code, Rejected


@attrs.frozen
class WaitForNews:
    """Until one of these would give something, or its topic is gone."""

    reads: tuple[ReadCall, ...]


class Rounds:
    """`steps`: of the whole watch."""

    def __init__(self, cursors: Cursors, asked: Asked) -> None:
        self._cursors = cursors
        self._asked = asked

    def steps(self) -> Watching:
        cursors = self._cursors
        for name in cursors.names:
            consumer = cursors[name].consumer
            if consumer is None:
                state = yield StateCall(name, touch=False)
                cursors.begin(name, from_seq=state.head_seq, epoch=state.epoch)
            else:
                at = yield PositionCall(ConsumerOf(topic_name=name, name=consumer))
                cursors.begin(name, from_seq=at.from_seq, epoch=at.epoch)
        yield Begun()
        while cursors.names:
            has_more = False
            for name in cursors.names:
                try:
                    page: Page = yield self._read(name)
                    if self._asked.auto_commit:
                        yield from cursors.commits_ahead(name, page.next_from_seq)
                except Rejected as refused:
                    if refused.code is not Code.TOPIC_NOT_FOUND:
                        raise
                    yield from cursors.deleted(name)
                else:
                    is_last = self._is_last(page)
                    yield from cursors.page(page, map(self._view, page.records), is_last=is_last)
                    has_more = has_more or not is_last
            if not has_more and cursors.names:
                try:
                    yield WaitForNews(tuple(map(self._read, cursors.names)))
                except Rejected as refused:  # that one is gone the next round tells
                    if refused.code is not Code.TOPIC_NOT_FOUND:
                        raise

    def _read(self, name: str) -> ReadCall:
        cursor, asked = self._cursors[name], self._asked
        assert cursor.seq is not None
        return ReadCall(name, from_seq=cursor.seq, epoch=cursor.epoch, match=asked.match, node=asked.nodes)

    def _is_last(self, page: Page) -> bool:
        """Nothing more of it is there yet: at the head, or at what is durable if that is what is asked for."""
        is_all = page.caught_up or (page.next_from_seq == page.from_seq and page.tombstone is None)
        return is_all or (self._asked.is_strong and 0 < page.durable_seq <= page.next_from_seq)

    def _view(self, record: Record) -> FrameView:
        """The record, without what is to be left out, as a server sends it."""
        view = record._view  # noqa: SLF001 -- a record is its view
        if not self._asked.include_meta:
            view = msgspec.structs.replace(view, meta=b"")
        if not self._asked.include_data:
            exts = {kind: value for kind, value in view.exts.items() if kind != Ext.CONTENT_TYPE}
            view = msgspec.structs.replace(view, data=NO_DATA, exts=exts)
        return view
