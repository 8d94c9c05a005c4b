"""The events of http-api 9 as values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, Protocol

import msgspec

from topics.calls.messages import SentRecord, view_of
from topics.calls.watching.cursors import Cursors
from topics.calls.watching.events import ServerSentEvent
from topics.calls.watching.values import WatchValue
from topics.log.floors import Gap, Reason

TOO_OLD: Final = "from_seq_too_old"  # of a stream that begins; `cause` is why


class _RecordsEvent(msgspec.Struct):
    topic: str
    records: list[SentRecord]
    to_seq: int
    head_seq: int

    @property
    def up_to(self) -> int:
        return self.to_seq

    def values(self, cursors: Cursors) -> Iterator[WatchValue]:
        views = map(view_of, self.records)
        return cursors.records(self.topic, views, to_seq=self.to_seq, head_seq=self.head_seq)


class _TombstoneEvent(msgspec.Struct):
    topic: str
    reason: str
    gap_from: int
    gap_to: int
    earliest_seq: int
    head_seq: int
    cause: str | None = None
    epoch: int | None = None

    @property
    def up_to(self) -> int:
        return self.gap_to

    def values(self, cursors: Cursors) -> Iterator[WatchValue]:
        return cursors.tombstone(self.topic, self._gap(), self.epoch)

    def _gap(self) -> Gap:
        reason = self.cause if self.reason == TOO_OLD and self.cause is not None else self.reason
        return Gap(
            gap_from=self.gap_from, gap_to=self.gap_to, reason=Reason(reason), earliest_seq=self.earliest_seq,
            head_seq=self.head_seq,
        )  # fmt: skip


class _CaughtUpEvent(msgspec.Struct):
    topic: str
    head_seq: int
    durable_seq: int
    up_to: ClassVar[int] = 0

    def values(self, cursors: Cursors) -> Iterator[WatchValue]:
        return cursors.caught_up(self.topic, head_seq=self.head_seq, durable_seq=self.durable_seq)


class _DeletedEvent(msgspec.Struct):
    topic: str
    head_seq: int
    up_to: ClassVar[int] = 0

    def values(self, cursors: Cursors) -> Iterator[WatchValue]:
        return cursors.deleted(self.topic, self.head_seq)


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


class Brought(Protocol):
    """What an event says of its topic. `up_to`: behind its values, all up to there is passed."""

    topic: str

    @property
    def up_to(self) -> int: ...

    def values(self, cursors: Cursors) -> Iterator[WatchValue]:
        """As the cursors move over it. What was given before is left out."""
        ...


_DECODERS: Final[Mapping[str, Callable[[bytes], Brought]]] = {
    "record": msgspec.json.Decoder(_RecordsEvent).decode,
    "tombstone": msgspec.json.Decoder(_TombstoneEvent).decode,
    "caught-up": msgspec.json.Decoder(_CaughtUpEvent).decode,
    "topic-deleted": msgspec.json.Decoder(_DeletedEvent).decode,
}
read_said: Final = msgspec.json.Decoder(Said).decode
read_session: Final = msgspec.json.Decoder(SessionBegun).decode


def read_event(event: ServerSentEvent) -> Brought | None:
    """None if it is of a kind that nobody here knows.

    Raises:
        one of `MALFORMED`: it is not of its form.
    """
    decode = _DECODERS.get(event.name)
    return None if decode is None else decode(event.data)
