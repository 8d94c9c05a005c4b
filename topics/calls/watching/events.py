"""Server-Sent Events: bytes, however they are cut, become events (html, "9.2.6 Interpreting an event stream").

Payloads stay bytes. `retry` is left out: browsers wait so long, a watch goes by its patience (decision 70).
"""

from __future__ import annotations

from typing import Final

import attrs

BOM: Final = b"\xef\xbb\xbf"


class TooLong(ValueError):
    """An event is longer than the limit."""


@attrs.frozen
class ServerSentEvent:
    """`id`: the last one that was told up to here, "" if none was."""

    name: str
    data: bytes
    id: str


class EventParser:
    """Of one connection. `bytes_max`: of one event, all its lines together."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._size = 0  # of the event that is begun
        self._line: list[bytes] = []  # pieces of the line that is begun
        self._is_first = True
        self._after_cr = False
        self._name = ""
        self._data: list[bytes] = []
        self._id = ""

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """What these bytes complete. What is not complete when the connection ends has not happened.

        Raises:
            TooLong: an event, or what is no event at all.
        """
        if not data:
            return []
        text = data[1:] if self._after_cr and data[:1] == b"\n" else data
        self._after_cr = data.endswith(b"\r")
        first, *rest = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._add(first)
        events: list[ServerSentEvent] = []
        for piece in rest:
            line = b"".join(self._line)
            self._line.clear()
            self._end_line(line, events)
            self._add(piece)
        return events

    def _add(self, piece: bytes) -> None:
        if piece:
            self._line.append(piece)
            self._size += len(piece)
            if self._size > self._bytes_max:
                raise TooLong(f"an event is longer than {self._bytes_max} bytes")

    def _end_line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if self._is_first:
            line, self._is_first = line.removeprefix(BOM), False
        if not line:
            self._end_event(events)
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif not field:  # a comment, which may come for ever without an event
            self._size -= len(line)

    def _end_event(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            events.append(ServerSentEvent(self._name or "message", b"\n".join(self._data), self._id))
        self._name, self._size = "", 0
        self._data.clear()
