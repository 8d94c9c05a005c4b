"""What may become of a job: the table of its states (queues 2). `Jobs` changes a state by it and in no other way; the
page of formats is drawn from it.

A state is as of the last look at the time. So where the log goes on before anybody has looked, as in a replay, a job is
claimed that still counts as delayed or as leased: the engine that logged it had looked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Final


class JobState(IntEnum):
    """Where a job stands, as of the last `Jobs.advance` (queues 2). `GONE`: it has left the log."""

    READY = 0
    DELAYED = 1
    IN_FLIGHT = 2
    MOVING = 3
    GONE = 4


class Change(Enum):
    """What happens to a job, and what says so."""

    CLAIMED = "`claimed`"
    EXTENDED = "`extended`, if the lease is the last one and no event has ended it"
    RESTED = "a put with `delay_ms`; `released` or a lease that runs out, with a rest behind it"
    RETURNED = "`released` or a lease that runs out, without a rest; the end of a rest; `released_all`"
    LEFT = "`dead_lettered`: to the dead letters, or back from them"
    GONE = "`acked`, `purged`, `moved`; a delete, a cap, a TTL"

    __hash__ = object.__hash__  # a member is itself only; Enum's own goes by its name, in Python


REFUSED: Final = 255
_R, _D, _F, _M, _G = JobState
TRANSITIONS: Final[Mapping[Change, Mapping[JobState, JobState]]] = {
    Change.CLAIMED: {_R: _F, _D: _F, _F: _F},
    Change.EXTENDED: {_R: _F, _D: _F, _F: _F},
    Change.RESTED: {_R: _D, _D: _D, _F: _D},
    Change.RETURNED: {_R: _R, _D: _R, _F: _R},
    Change.LEFT: {_R: _M, _D: _M, _F: _M},
    Change.GONE: {_R: _G, _D: _G, _F: _G, _M: _G},
}
NEXT: Final = {  # for `bytes.translate`
    change: bytes(int(to.get(state, REFUSED)) for state in JobState).ljust(256, bytes((REFUSED,)))
    for change, to in TRANSITIONS.items()
}
