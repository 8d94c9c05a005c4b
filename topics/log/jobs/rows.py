"""What is known of single jobs, in columns: a row for each that is not simply waiting since it came.

Columns, because a queue may have a million jobs on lease: a row takes 46 bytes, and no object.
"""

from __future__ import annotations

from array import array
from enum import IntEnum

from topics.log.tags import Labels


class JobState(IntEnum):
    """Where a job stands, as of the last `Jobs.advance` (queues 2)."""

    READY = 0
    DELAYED = 1
    IN_FLIGHT = 2
    MOVING = 3


class Rows:
    """The columns. Row 0 is nobody's. `until`: of a lease its deadline, else the instant the job is ready from.

    `leased` is what the log says: a lease was given and no event has ended it. That its time has passed is in `state`.
    """

    __slots__ = (
        "_free",
        "backoffs",
        "counters",
        "deliveries",
        "leased",
        "nodes",
        "nonce_names",
        "nonces",
        "reasons",
        "seqs",
        "state",
        "until",
        "worker_names",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seqs = array("Q", (0,))
        self.state = bytearray(1)
        self.leased = bytearray(1)
        self.deliveries = array("I", (0,))
        self.until = array("Q", (0,))
        self.backoffs = array("Q", (0,))  # the rest behind the deadline, fixed when the lease was given
        self.counters = array("Q", (0,))
        self.nonces = array("I", (0,))
        self.nodes = array("I", (0,))
        self.reasons: dict[int, bytes] = {}  # by row: what the worker said who gave it back
        self.worker_names = Labels()
        self.nonce_names = Labels()
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self.seqs) - 1 - len(self._free)

    def new(self, seq: int) -> int:
        """A row for a job that has none, without a lease."""
        if self._free:
            row = self._free.pop()
            self.seqs[row] = seq
            return row
        row = len(self.seqs)
        self.seqs.append(seq)
        self.state.append(0)
        self.leased.append(0)
        for column in (self.deliveries, self.until, self.backoffs, self.counters, self.nonces, self.nodes):
            column.append(0)
        return row

    def free(self, row: int) -> None:
        """The job has gone, or has nothing that makes it another one."""
        self.drop_owner(row)
        self.seqs[row] = self.deliveries[row] = self.until[row] = self.backoffs[row] = self.counters[row] = 0
        self.state[row] = self.leased[row] = 0
        self.reasons.pop(row, None)
        self._free.append(row)

    def drop_owner(self, row: int) -> None:
        """Nobody had it."""
        if self.nonces[row]:
            self.worker_names.release(self.nodes[row])
            self.nonce_names.release(self.nonces[row])
            self.nodes[row] = self.nonces[row] = 0

    def held(self) -> list[int]:
        """The rows that are somebody's, by seq."""
        return sorted((row for row in range(1, len(self.seqs)) if self.seqs[row]), key=self.seqs.__getitem__)
