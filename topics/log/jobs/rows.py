"""What is known of single jobs, in columns: a row for each that is not simply waiting since it came.

Columns, because a queue may have a million jobs on lease: a row takes 42 bytes, and no object.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import compress, repeat
from operator import or_
from typing import Final

from topics.kernel.config import RetryBackoff
from topics.kernel.grouped import Column, Group, clear, fill, grouped, scatter, values_at
from topics.kernel.limits import U32_MAX
from topics.log.jobs.backoff import backoff_ms
from topics.log.jobs.image import JobImage
from topics.log.jobs.transitions import JobState
from topics.log.tags import Labels

NONCE_SIZE: Final = 8
EXPIRED: Final = b"expired"
TOGETHER_MIN: Final = (
    32  # jobs of several workers; those of one are mostly side by side, those of more are not
)
_IS: Final = {
    state: bytes(value == state for value in range(256)) for state in JobState
}  # for `bytes.translate`


class Rows:
    """The columns. Row 0 is nobody's. `until`: of a lease its deadline, else the instant the job is ready from.

    `leased` is what the log says: a lease was given and no event has ended it. That its time has passed is in `state`.
    `owners`: who has it, or had it last; `counters`: the number of that lease.
    """

    __slots__ = (
        "_columns",
        "_free",
        "backoffs",
        "counters",
        "deliveries",
        "leased",
        "owner_names",
        "owners",
        "reasons",
        "seqs",
        "state",
        "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.seqs = array("Q", (0,))
        self.state = bytearray(1)
        self.leased = bytearray(1)
        self.deliveries = array("I", (0,))
        self.until = array("Q", (0,))
        self.backoffs = array("Q", (0,))  # the rest behind the deadline, fixed when the lease was given
        self.counters = array("Q", (0,))
        self.owners = array("I", (0,))
        self.reasons: dict[int, bytes] = {}  # by row: what the worker said who gave it back
        self.owner_names = Labels()
        self._free: list[int] = []
        self._columns: tuple[Column, ...] = (
            self.seqs, self.state, self.leased, self.deliveries, self.until, self.backoffs, self.counters, self.owners
        )  # fmt: skip

    @property
    def count(self) -> int:
        """How many jobs have one."""
        return len(self.seqs) - 1 - len(self._free)

    def add(self, seq: int) -> int:
        """A row for a job that has none, without a lease."""
        assert seq > 0
        if self._free:
            row = self._free.pop()
        else:
            row = len(self.seqs)
            for column in self._columns:
                column.append(0)
        self.seqs[row] = seq
        return row

    def new(self, seqs: Sequence[int]) -> Group:
        """As `add`, of each of these jobs."""
        assert seqs
        first = max(len(self._free) - len(seqs), 0)
        rows = self._free[first:]
        del self._free[first:]
        if more := len(seqs) - len(rows):
            rows += range(len(self.seqs), len(self.seqs) + more)
            for column in self._columns:
                column.extend(repeat(0, more))
        made = grouped(rows)
        scatter(self.seqs, made, array("Q", seqs))
        return made

    def free(self, rows: Group) -> None:
        """These jobs have gone, or have nothing that makes them other ones."""
        self.drop_owners(rows)
        clear(self._columns, rows)
        for row in rows if self.reasons else ():
            self.reasons.pop(row, None)
        self._free += rows

    def free_one(self, row: int) -> None:
        """As `free`, of one."""
        self.drop_owner(row)
        for column in self._columns:
            column[row] = 0
        self.reasons.pop(row, None)
        self._free.append(row)

    def lease(
        self, rows: Group, counters: array[int], backoff: RetryBackoff | None, deliveries_max: int
    ) -> None:
        """These have leases with these numbers; whose, and until when, is for `own` to say. `deliveries_max`: no rest
        is behind the last of so many; 0: it is as any other.
        """
        if 1 in (lapsed := values_at(self.leased, rows)):  # time has ended that lease, and no event
            self.reasons.update(zip(compress(rows, lapsed), repeat(EXPIRED)))
        fill(self.leased, rows, 1)
        scatter(self.counters, rows, counters)
        deliveries = array("I", [times + (times < U32_MAX) for times in values_at(self.deliveries, rows)])
        scatter(self.deliveries, rows, deliveries)
        if backoff is None:
            fill(self.backoffs, rows, 0)
        else:
            rests = [
                _rest(backoff, times, seq, deliveries_max)
                for times, seq in zip(deliveries, values_at(self.seqs, rows), strict=True)
            ]
            scatter(self.backoffs, rows, array("Q", rests))

    def lease_one(self, row: int, counter: int, backoff: RetryBackoff | None, deliveries_max: int) -> None:
        """As `lease`, of one."""
        if self.leased[row]:
            self.reasons[row] = EXPIRED
        self.leased[row], self.counters[row] = 1, counter
        self.deliveries[row] = times = min(self.deliveries[row] + 1, U32_MAX)
        self.backoffs[row] = _rest(backoff, times, self.seqs[row], deliveries_max)

    def own(self, rows: Group, nonce: bytes, node: bytes) -> None:
        """Whose these are now, by leases of that start."""
        fill(self.owners, rows, self.owner_names.hold(nonce + node, len(rows)))

    def own_one(self, row: int, nonce: bytes, node: bytes) -> None:
        """As `own`, of one."""
        self.owners[row] = self.owner_names.hold(nonce + node, 1)

    def owner(self, row: int) -> tuple[bytes, bytes]:
        """(the nonce of its lease, whose that is); both empty if it is nobody's."""
        return self.named(self.owners[row])

    def named(self, owner: int) -> tuple[bytes, bytes]:
        """As `owner`, by its number in `owners`."""
        name = self.owner_names.name(owner)
        return name[:NONCE_SIZE], name[NONCE_SIZE:]

    def drop_owners(self, rows: Group) -> None:
        """Nobody had these."""
        self.owner_names.release_all(values_at(self.owners, rows))
        fill(self.owners, rows, 0)

    def drop_owner(self, row: int) -> None:
        """As `drop_owners`, of one."""
        if self.owners[row]:
            self.owner_names.release(self.owners[row])
            self.owners[row] = 0

    def any_leased(self, now_ms: int) -> bool:
        """True if a job is leased at that instant."""
        return any(leased and self.until[row] >= now_ms for row, leased in enumerate(self.leased))

    def jobs_in(self, state: JobState) -> list[int]:
        """The jobs that have a row and are in this state, as of the last `Jobs.advance`, by seq."""
        return sorted(filter(None, compress(self.seqs, self.state.translate(_IS[state]))))

    def by_seq(self, wanted: bytes | bytearray) -> list[int]:
        """Rows by seq. `wanted`: a byte a row, 1 for those. There may be a million others: they are not sorted."""
        return sorted(compress(range(len(self.seqs)), wanted), key=self.seqs.__getitem__)

    def ready_at(self, row: int) -> int:
        """When a job that is not moving is ready, if nothing else happens to it."""
        return self.until[row] + max(self.backoffs[row], 1) if self.leased[row] else self.until[row]

    def ends(self) -> Iterator[tuple[int, int]]:
        """(its last ms, whose) of each lease and each rest."""
        for row, state in enumerate(self.state):
            if state == JobState.IN_FLIGHT:
                yield self.until[row], self.seqs[row]
            elif state == JobState.DELAYED:
                yield self.ready_at(row) - 1, self.seqs[row]

    def that_came(self, rows: Sequence[int], now_ms: int) -> list[int]:
        """Which of these only waited for the time at which they may be claimed, and that has come."""
        state, delayed = self.state, int(JobState.DELAYED)
        return [
            row
            for row in dict.fromkeys(rows)
            if state[row] == delayed and not self.deliveries[row] and self.until[row] <= now_ms
        ]

    def restore(self, row: int, kept: JobImage) -> None:
        """All of an image but the state."""
        self.leased[row], self.deliveries[row], self.until[row] = kept.leased, kept.deliveries, kept.until
        self.backoffs[row], self.counters[row] = kept.backoff, kept.counter
        self.own_one(row, kept.nonce, kept.node)
        if kept.reason:
            self.reasons[row] = kept.reason

    def images(self) -> list[JobImage]:
        """Of those of which the log tells more than that they came and when they may be claimed."""
        told = bytes(map(or_, map(bool, self.deliveries), self.state.translate(_IS[JobState.MOVING])))
        return [
            JobImage(
                seq=self.seqs[row], moving=self.state[row] == JobState.MOVING, leased=bool(self.leased[row]),
                deliveries=self.deliveries[row], until=self.until[row], backoff=self.backoffs[row],
                nonce=self.owner(row)[0], counter=self.counters[row], node=self.owner(row)[1],
                reason=self.reasons.get(row, b""),
            )
            for row in self.by_seq(told)
        ]  # fmt: skip


def _rest(backoff: RetryBackoff | None, deliveries: int, seq: int, deliveries_max: int) -> int:
    """The rest behind a lease that was the job's so manieth: none behind the last of `deliveries_max`."""
    if backoff is None or (deliveries_max and deliveries >= deliveries_max):
        return 0
    return backoff_ms(backoff, deliveries, seq)
