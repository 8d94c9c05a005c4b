"""A watch at a server, as a generator of what is to be done: it blocks and awaits nothing (as `calls.retry`).

A session is begun from the cursors, and its stream is read. A stream that breaks is taken up again by `Last-Event-ID`;
if nothing with an id had come, or the session is gone, another one is begun from the cursors. Both ways it goes on
behind what was given last: a server counts what it has sent, which need not have arrived. Bytes are asked for when all
that had come is given, so whoever is slow holds up his connection and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final, TypeVar
from urllib.parse import quote

import attrs

from topics.calls.messages import MALFORMED
from topics.calls.patience import Absence, pause_s
from topics.calls.retry import Line, Request, Sleep
from topics.calls.trouble import Unreachable, error_of_answer, not_topics
from topics.calls.watching.course import Begun, Watching
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.events import EventParser
from topics.calls.watching.frames import Brought, Said, read_event, read_said, read_session
from topics.calls.watching.rules import Asked
from topics.calls.watching.values import CaughtUp, WatchValue
from topics.kernel.errors import Code, Rejected, TopicsError
from topics.kernel.limits import DECOMPRESSED_MAX

T = TypeVar("T")
R = TypeVar("R")

PATH: Final = "/v0/watch"
SILENT_S: Final = 35.0  # a server breaks its silence every 15 s
EVENT_BYTES_MAX: Final = DECOMPRESSED_MAX  # one holds a record at least, which is no larger
_ADVICE: Final = "throttled"
_SESSION_ENDS: Final = ("session_expired", "superseded")


@attrs.frozen
class Receive:
    """Give the next bytes of the stream; none if it has ended or is broken."""


class RemoteWatch:
    """`steps`: of the whole watch, over any number of sessions and streams."""

    def __init__(self, cursors: Cursors, asked: Asked, line: Line, *, silent_s: float = SILENT_S) -> None:
        self._cursors = cursors
        self._asked = asked
        self._line = line
        self._absence = Absence(line.url, "topics.watch")
        self._silent_s = silent_s
        self._wid: str | None = None
        self._last_id = ""
        self._failures = 0  # streams in a row that brought nothing

    def steps(self) -> Watching:
        yield from self._begin(lenient=False)
        yield Begun()
        while self._cursors.names:
            try:
                if self._wid is None:
                    yield from self._begin(lenient=True)
                else:
                    yield from self._stream(self._wid)
            except TopicsError as error:
                yield Sleep(self._absence.pause_s(error, is_remote=False))

    def _begin(self, *, lenient: bool) -> Watching:
        """Another session. `lenient`: a topic that is not there any more was deleted."""
        starts = self._cursors.starts()
        try:
            found = yield from self._line.ask(
                "POST", PATH, read_session, query={"lenient": "true"} if lenient else {},
                body=self._asked.body(starts), repeatable=True, failed=self._absence.failed if lenient else None,
            )  # fmt: skip
        except Rejected as refused:
            if not lenient or refused.code is not Code.TOPIC_NOT_FOUND:
                raise
            there = {}
        else:
            there = found.topics
            self._wid, self._last_id = quote(found.wid, safe=""), ""
        for name in starts:
            if name in there:
                self._cursors.begin(name, from_seq=there[name].from_seq, epoch=there[name].epoch)
            else:
                yield from self._cursors.deleted(name)

    def _stream(self, wid: str) -> Watching:
        """All that one stream brings; then a pause, if it is not over."""
        again = {"last-event-id": self._last_id} if self._last_id else {}
        request = Request(
            "GET", f"{PATH}/{wid}", headers={"accept": "text/event-stream", **again}, repeatable=True,
            silent_s=self._silent_s,
        )  # fmt: skip
        self._failures += 1
        end = Said("")
        try:
            yield from self._line.retry(request, self._absence.failed)
            self._absence.ended()
            end = yield from self._events()
        except Rejected as refused:
            if refused.code is not Code.NOT_FOUND:
                raise
            self._wid = None
        if end.reason in _SESSION_ENDS or not self._last_id:
            self._wid = None
        if self._cursors.names:
            pause = pause_s(max(self._failures, 1), self._line.pace.chance())
            yield Sleep(max(pause, end.retry_after_ms / 1000))

    def _events(self) -> Generator[Any, Any, Said]:
        """What it said before it ended."""
        parser, end = EventParser(EVENT_BYTES_MAX), Said("")
        while self._cursors.names and (data := (yield Receive())):
            for event in self._read(parser.feed, data):
                if event.name == "error":
                    end = self._ends(self._read(read_said, event.data)) or end
                brought = self._read(read_event, event)
                if brought is not None:
                    yield from self._commit(brought)
                    yield from self._values(brought)
                self._last_id = event.id
        return end

    def _commit(self, brought: Brought) -> Watching:
        """What is brought counts as read before it is given, if that is asked for."""
        if not self._asked.auto_commit:
            return
        try:
            for commit in self._cursors.commits_ahead(brought.topic, brought.up_to):
                yield from commit.exchange(self._line)
        except Rejected as refused:
            if refused.code is not Code.TOPIC_NOT_FOUND:
                raise
            yield from self._cursors.deleted(brought.topic)

    def _values(self, brought: Brought) -> Watching:
        try:
            for value in brought.values(self._cursors):
                self._brought(value)
                yield value
        except MALFORMED as error:
            raise self._malformed(error) from error

    def _read(self, read: Callable[[T], R], text: T) -> R:
        try:
            return read(text)
        except MALFORMED as error:
            raise self._malformed(error) from error

    def _malformed(self, error: Exception) -> Unreachable:
        return not_topics(self._line.url, f"an event is not of its form: {error}")

    def _ends(self, said: Said) -> Said | None:
        """What ends the stream, as one may hear. Raises what ends the watch."""
        if said.reason == _ADVICE:
            return None
        if said.topics:  # one of them is damaged, and nothing more comes of it
            raise error_of_answer(said.reason, said.error, said.detail, status=said.code)
        return said

    def _brought(self, value: WatchValue) -> None:
        if not isinstance(value, CaughtUp):
            self._failures = 0
