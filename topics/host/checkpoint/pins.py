"""What backups that are being read need of the data directory (storage 7).

A backup fixes at its cut which bytes of which files it is made of, and reads them afterwards, beside writes and
checkpoints. As long as its pin is held, nobody removes those files and nobody edits them in place. A pin holds nothing
that was not there at its cut, so it keeps no more disk space than the store had then.

Pins are added where no background work is under way, and released anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

import attrs

from topics.engine.image import Snapshot
from topics.engine.recovery.recover import ShardKey
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import U64_MAX
from topics.log.regions import SegmentId

PINS_MAX: Final = 4


@attrs.frozen(eq=False)
class Pin:
    """What one backup needs. `logs`: of each shard's log the first frame."""

    logs: Mapping[ShardKey, int]
    segments: frozenset[SegmentId]


class Pins:
    """Those of one store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: tuple[Pin, ...] = ()  # replaced, so that it is looked at without the lock

    def __len__(self) -> int:
        return len(self._held)

    def add(self, snapshot: Snapshot) -> Pin:
        """Hold whatever this snapshot needs.

        Raises:
            Rejected: too many are held.
        """
        pin = Pin(
            {(place.generation, place.shard): place.needed for place in snapshot.places},
            snapshot.state.segment_ids(),
        )
        with self._lock:
            if len(self._held) >= PINS_MAX:
                raise Rejected(
                    Code.THROTTLED,
                    f"{PINS_MAX} backups are being taken; retry when one is done",
                    limit=PINS_MAX,
                )
            self._held = (*self._held, pin)
        return pin

    def release(self, pin: Pin) -> None:
        """Twice is fine."""
        with self._lock:
            self._held = tuple(other for other in self._held if other is not pin)

    def first_frame(self, key: ShardKey) -> int:
        """A WAL file of this shard that begins with this frame or a later one is not to be removed."""
        return min((pin.logs.get(key, U64_MAX) for pin in self._held), default=U64_MAX)

    def holds(self, segment: SegmentId) -> bool:
        """True if no file of this segment may be removed, replaced or edited."""
        return any(segment in pin.segments for pin in self._held)
