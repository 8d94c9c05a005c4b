"""The events of http-api 9 as values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from topics.calls.messages import SentRecord, view_of
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.events import Event
from topics.calls.watching.values import WatchValue
from topics.log.floors import Gap, Reason

TOO_OLD: Final = "from_seq_too_old"  # of a stream that begins; `cause` is why


class _Records(msgspec.Struct):
    topic: str
    records: list[SentRecord]
    to_seq: int
    head_seq: int


class _Tombstone(msgspec.Struct):
    topic: str
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int
    cause: str | None = None
    epoch: int | None = None

    def gap(self) -> Gap:
        reason = self.cause if self.reason == TOO_OLD and self.cause is not None else self.reason
        return Gap(
            gap_from=self.gap_from, gap_to=self.gap_to, reason=Reason(reason), earliest_seq=self.earliest_seq,
            head_seq=self.head_seq,
        )  # fmt: skip


class _CaughtUp(msgspec.Struct):
    topic: str
    head_seq: int
    durable_seq: int


class _Deleted(msgspec.Struct):
    topic: str
    head_seq: int


class Said(msgspec.Struct):
    """An `error`: why the stream ends, or is slow (`throttled`); of `topics`, why nothing more comes of them."""

    reason: str
    error: str = ""
    code: int = 500
    detail: dict[str, Any] = {}
    topics: list[str] = []
    retry_after_ms: int = 0


class _Begun(msgspec.Struct):
    from_seq: int
    epoch: int | None = None


class SessionBegun(msgspec.Struct):
    """The answer to `POST /v0/watch`."""

    wid: str
    topics: dict[str, _Begun]


_records: Final = msgspec.json.Decoder(_Records).decode
_tombstone: Final = msgspec.json.Decoder(_Tombstone).decode
_caught_up: Final = msgspec.json.Decoder(_CaughtUp).decode
_deleted: Final = msgspec.json.Decoder(_Deleted).decode
read_said: Final = msgspec.json.Decoder(Said).decode
read_session: Final = msgspec.json.Decoder(SessionBegun).decode


def values_of(event: Event, cursors: Cursors) -> Iterator[WatchValue]:
    """What it brings, as the cursors move over it. Nothing if it is of a kind that nobody here knows.

    Raises:
        one of `MALFORMED`: it is not of its form.
    """
    match event.name:
        case "record":
            found = _records(event.data)
            views = map(view_of, found.records)
            yield from cursors.records(found.topic, views, to_seq=found.to_seq, head_seq=found.head_seq)
        case "tombstone":
            lost = _tombstone(event.data)
            yield from cursors.tombstone(lost.topic, lost.gap(), lost.epoch)
        case "caught-up":
            here = _caught_up(event.data)
            yield from cursors.caught_up(here.topic, head_seq=here.head_seq, durable_seq=here.durable_seq)
        case "topic-deleted":
            gone = _deleted(event.data)
            yield from cursors.deleted(gone.topic, gone.head_seq)
