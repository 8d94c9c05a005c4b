"""What a worker knows of its leases, without waiting for anything: when they are extended, and when they are lost.

All instants are `time.monotonic()` of this process. A lease is taken to count from the moment at which the claim, or
the extension, was sent, which is before the engine counts from: it is lost here no later than there. Whoever drives
this asks `next_s` when, and carries out.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from topics.calls.queues.values import LeasedRecord
from topics.kernel.checks import flag, whole_number
from topics.kernel.errors import invalid
from topics.kernel.limits import LEASE_MS_MAX, LEASE_MS_MIN, REASON_BYTES_MAX, Limits

J = TypeVar("J", bound=LeasedRecord)

STOPPED: Final = "the worker stopped"
LEFT: Final = "its loop was left before it was done"

_ASK_AGAIN_MS: Final = 1000  # who waits for jobs hears in that time that the worker is to stop
_RETRY_FIRST_MS: Final = 1000
_RETRY_MAX_MS: Final = 60_000


class _Queue(msgspec.Struct, frozen=True, eq=False):
    queue: str


class WorkerRules(_Queue, frozen=True, eq=False, kw_only=True):
    """Who does the jobs of a queue: open it by `with`, and hand `run` a function, or iterate.

    `node`: who claims them, at most 128 bytes; without it a name of its own. `concurrency`: how many jobs `run` does at
    once. `lease_ms`: for how long a job is leased at a time, if not as the queue says; leases are extended while jobs
    are being done. `handle_signals`: `stop` at SIGTERM, in the main thread, unless the program handles that signal
    itself; a second one ends the process as ever.
    `until_empty`: end when no job is ready, and none is being done here.

    Raises:
        Rejected: invalid_request; topic_not_found.
    """

    node: str | None = None
    concurrency: int = 1
    lease_ms: int | None = None
    handle_signals: bool = True
    until_empty: bool = False

    def __post_init__(self) -> None:
        most = Limits().claim_limit
        if not 1 <= whole_number("concurrency", self.concurrency) <= most:
            raise invalid("concurrency", f"must be 1 to {most}, not {self.concurrency}", limit=most)
        if self.lease_ms is not None:
            asked = whole_number("lease_ms", self.lease_ms)
            if not LEASE_MS_MIN <= asked <= LEASE_MS_MAX:
                raise invalid("lease_ms", f"must be {LEASE_MS_MIN} to {LEASE_MS_MAX}, not {asked}")
        flag("handle_signals", self.handle_signals)
        flag("until_empty", self.until_empty)


class Leases(Generic[J]):
    """The jobs that are here: leased, and neither settled nor given back; by the id of the lease."""

    def __init__(self, lease_ms: int) -> None:
        self.lease_ms = lease_ms
        self.wait_ms = min(
            _ASK_AGAIN_MS, lease_ms // 6
        )  # of a claim; a lease is due when a third of it is over
        self._left_s = lease_ms / 1000 * 2 / 3  # of a lease that is due
        self._held: dict[str, J] = {}

    def take(self, jobs: Iterable[J], asked_s: float) -> None:
        """Their leases count from `asked_s` on, or from later."""
        for job in jobs:
            job.until_s = asked_s + self.lease_ms / 1000
            self._held[job.lease_id] = job

    def drop(self, job: J) -> None:
        """It has ended here. Twice is fine."""
        self._held.pop(job.lease_id, None)

    def lose(self) -> None:
        """All have ended, as those do that a connection was pushed when it ends."""
        for job in self._held.values():
            job.until_s = -math.inf

    def held(self) -> list[J]:
        return list(self._held.values())

    def due(self, now_s: float) -> list[J]:
        """Whose leases are to be extended now."""
        return [job for job in self._live(now_s) if job.until_s - self._left_s <= now_s]

    def extended(self, jobs: Iterable[J], seqs: Collection[int], asked_s: float) -> None:
        """What came of it: `seqs` counted, and the others have ended. What has ended meanwhile is not extended."""
        for job in jobs:
            if not job.is_settled and job.until_s > -math.inf:
                job.until_s = asked_s + self.lease_ms / 1000 if job.seq in seqs else -math.inf

    def lost(self, now_s: float) -> list[J]:
        """Whose leases have ended, while somebody does the job still."""
        return [job for job in self._held.values() if not job.is_settled and job.until_s <= now_s]

    def next_s(self, now_s: float) -> float | None:
        """When the next lease is due, or lost if it is due already. None as long as nothing is taken."""
        instants = [
            due_s if (due_s := job.until_s - self._left_s) > now_s else job.until_s
            for job in self._live(now_s)
        ]
        return min(instants, default=None)

    def _live(self, now_s: float) -> list[J]:
        return [job for job in self._held.values() if not job.is_settled and job.until_s > now_s]


def retry_ms(deliveries: int) -> int:
    """How long a job rests that has failed so often, where its queue says nothing: one that always fails must not keep
    everybody busy.
    """
    return min(_RETRY_FIRST_MS << min(deliveries - 1, 10), _RETRY_MAX_MS)


def nack_reason(error: BaseException) -> str:
    """Why a job failed, as a nack says it."""
    try:
        said = f": {error}"
    except Exception:  # noqa: BLE001 -- the user's exception cannot say what it is; its job has failed all the same
        said = ""
    text = f"{type(error).__name__}{said}".encode(errors="replace")
    return text[:REASON_BYTES_MAX].decode(errors="ignore")
