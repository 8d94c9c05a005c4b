"""What can be made to go wrong on a simulated disk, and when.

Theory. A fault names an operation and the index of the call it strikes; it is a value, matched against counters, so a
schedule of faults is plain data and a run repeats. `times=None` means for ever, until `heal`. A crash trap is apart: it
ends the process (`SimCrash`), and the disk refuses everything until it is restarted.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import attrs


class SimCrash(BaseException):
    """The machine or the process died in a disk call. No handler may catch it, as none could catch the real thing."""


class DiskCall(NamedTuple):
    """One disk call. For create, extend and truncate `size` is the file's size after it."""

    op: str
    path: str
    offset: int = 0
    size: int = 0
    target: str = ""


MUTATING = frozenset(
    "write sync_data sync_dir create extend truncate rename unlink make_dir remove_dir".split()
)
SIZED = frozenset(("write", "create", "extend"))  # a part of such a call can be done
OPERATIONS = MUTATING | {"read", "names", "size", "links", "free_bytes"}


class Landed(Enum):
    """How much of the call that crashes took effect."""

    NONE = "none"
    PART = "part"
    ALL = "all"


class FaultKind(Enum):
    EIO = "EIO"  # nothing done; a failed sync leaves the pages dirty
    ENOSPC = "ENOSPC"  # nothing done
    EMFILE = "EMFILE"  # nothing done
    SHORT = "short write"  # a part is done, then EIO
    DROPS_PAGES = "drops the pages"  # EIO; what was dirty of the file is clean now, but was never written
    MISDIRECTED = "misdirected"  # the call works, at another offset


@attrs.frozen
class Fault:
    """Strikes calls [at, at + times) of `op`, or of all operations together if `op` is None."""

    op: str | None
    kind: FaultKind
    at: int
    times: int | None
    shift: int

    def __attrs_post_init__(self) -> None:
        assert self.op is None or self.op in OPERATIONS, self.op
        assert self.at >= 0, self.at
        assert self.times is None or self.times >= 1, self.times
        assert self.kind is not FaultKind.DROPS_PAGES or self.op in ("sync_data", "write")
        assert self.kind is not FaultKind.MISDIRECTED or self.op in ("read", "write")
        assert self.kind is not FaultKind.SHORT or self.op in SIZED

    def strikes(self, op: str, *, op_index: int, index: int) -> bool:
        """`op_index` counts calls of this operation from 0, `index` those of all."""
        if self.op not in (None, op):
            return False
        at = index if self.op is None else op_index
        return self.at <= at and (self.times is None or at < self.at + self.times)
