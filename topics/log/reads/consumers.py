"""Where the durable consumers of a topic stand (http-api 7).

A position is the last seq that its consumer has read, so a read from there gives the next one. It is kept for whoever
reads, and decides nothing: what is evicted or deleted does not ask whether anybody has read it.
"""

from __future__ import annotations

from typing import NamedTuple

from topics.codec.log.consumers import ConsumerChange, ConsumerCommit


class CommittedPosition(NamedTuple):
    """A consumer has read up to `seq`; it came there at `ts`."""

    seq: int
    ts: int


class Consumers:
    """The consumers of one topic, by name."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[str, CommittedPosition] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def get(self, name: str) -> CommittedPosition | None:
        return self._positions.get(name)

    def sorted(self) -> list[tuple[str, CommittedPosition]]:
        """All of them, ascending by name."""
        return sorted(self._positions.items())

    def put(self, name: str, position: CommittedPosition) -> None:
        self._positions[name] = position

    def fold(self, commit: ConsumerCommit, ts: int) -> None:
        """A frame of the log. A commit moves forward only, and only what is there."""
        match commit.change:
            case ConsumerChange.SET:
                self._positions[commit.name] = CommittedPosition(commit.seq, ts)
            case ConsumerChange.COMMIT:
                at = self._positions.get(commit.name)
                if at is not None and commit.seq > at.seq:
                    self._positions[commit.name] = CommittedPosition(commit.seq, ts)
            case ConsumerChange.DELETE:
                self._positions.pop(commit.name, None)
