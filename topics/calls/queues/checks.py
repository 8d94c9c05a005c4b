"""What a caller says of jobs, as the commands the engine takes (queues 4): one place for every way in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Final, TypeAlias

from topics.engine.commands import Ack, Claim, Extend, Nack, Redrive
from topics.kernel.checks import clamped, json_kind, seq_number, text_bytes, whole_number
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import Lease, check_topic_name, parse_leases
from topics.kernel.limits import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    MOVES_INTO_TOPIC_MAX,
    READ_LIMIT_DEFAULT,
    REASON_BYTES_MAX,
    TTL_MS_MAX,
    U64_MAX,
    WAIT_MS_MAX,
    Limits,
)
from topics.log.jobs.transitions import JobState

PEEKED: Final = {"ready": JobState.READY, "in_flight": JobState.IN_FLIGHT, "delayed": JobState.DELAYED}
_ONLY_NUMBERS: Final = {int}
Leases: TypeAlias = Sequence[Lease | None] | None


def claim_command(
    topic: str, node: object, limits: Limits, *, most: object = 1, lease_ms: object = None, wait_ms: object = 0,
    bytes_max: object = 0,
) -> Claim:  # fmt: skip
    """Raises `Rejected(invalid_request)`, naming the field as the wire does; numbers out of range are clamped."""
    wanted = whole_number("max_batch_bytes", bytes_max) or limits.page_bytes_default
    return Claim(
        topic=topic,
        node=text_bytes("node", node, bytes_max=limits.node_bytes),
        count_max=clamped("max", most, low=1, high=limits.claim_limit),
        bytes_max=min(wanted, limits.page_bytes),
        lease_ms=None if lease_ms is None else _lease_ms(lease_ms),
        wait_ms=clamped("wait_ms", wait_ms, low=0, high=WAIT_MS_MAX),
    )


def ack_command(
    topic: str, node: object, seqs: object, lease_ids: object, limits: Limits, *, known: Leases = None
) -> Ack:
    """`known`: the leases of the jobs, if there are no ids to be read. Raises `Rejected`: invalid_request,
    batch_too_large.
    """
    holder, numbers, leases = _held(node, seqs, lease_ids, limits, known)
    return Ack(topic=topic, node=holder, seqs=numbers, leases=leases)


def nack_command(
    topic: str, node: object, seqs: object, lease_ids: object, limits: Limits, *, delay_ms: object = None,
    reason: object = None, known: Leases = None,
) -> Nack:  # fmt: skip
    """As `ack_command`."""
    holder, numbers, leases = _held(node, seqs, lease_ids, limits, known)
    return Nack(
        topic=topic,
        node=holder,
        seqs=numbers,
        leases=leases,
        delay_ms=None if delay_ms is None else clamped("delay_ms", delay_ms, low=0, high=TTL_MS_MAX),
        reason=b"" if reason in (None, "") else text_bytes("reason", reason, bytes_max=REASON_BYTES_MAX),
    )


def extend_command(
    topic: str, node: object, seqs: object, lease_ids: object, limits: Limits, *, lease_ms: object,
    known: Leases = None,
) -> Extend:  # fmt: skip
    """As `ack_command`."""
    holder, numbers, leases = _held(node, seqs, lease_ids, limits, known)
    return Extend(topic=topic, node=holder, seqs=numbers, leases=leases, lease_ms=_lease_ms(lease_ms))


def redrive_command(topic: str, source: object, seqs: object, limit: object, limits: Limits) -> Redrive:
    """`seqs`: None for any. Raises `Rejected`: invalid_request, batch_too_large."""
    numbers = None if seqs is None else _numbers(seqs, limits.claim_limit)
    most = min(limits.claim_limit, MOVES_INTO_TOPIC_MAX)
    return Redrive(
        topic=check_topic_name(source, field="source"),
        queue=check_topic_name(topic),
        seqs=numbers,
        count_max=min(whole_number("limit", limit) or most, most),
    )


def peeked(
    state: object, limit: object, limits: Limits, *, seqs: object = None
) -> tuple[JobState | Sequence[int], int]:
    """Which jobs to show, by state or by seq, and how many. Raises `Rejected`: invalid_request, batch_too_large."""
    if seqs is not None:
        return _numbers(seqs, limits.claim_limit), limits.claim_limit
    if not isinstance(state, str) or state not in PEEKED:
        raise invalid("state", f"must be one of {', '.join(PEEKED)}, not {state!r:.40}")
    return PEEKED[state], min(whole_number("limit", limit) or READ_LIMIT_DEFAULT, limits.claim_limit)


def _lease_ms(value: object) -> int:
    return clamped("lease_ms", value, low=LEASE_MS_MIN, high=LEASE_MS_MAX)


def _held(
    node: object, seqs: object, lease_ids: object, limits: Limits, known: Leases
) -> tuple[bytes, Sequence[int], Leases]:
    """(whose they are, seqs, the lease that is meant of each)."""
    holder, most = text_bytes("node", node, bytes_max=limits.node_bytes), limits.claim_limit
    numbers = _numbers(seqs, most)
    if lease_ids is None:
        assert known is None or len(known) == len(numbers)
        return holder, numbers, known
    ids = _listed("lease_ids", lease_ids, most)
    if len(ids) != len(numbers):
        raise invalid(
            "lease_ids",
            f"must have one for each of the {len(numbers)} seqs, not {min(len(ids), most)}; "
            'give "" where any lease is meant',
        )
    return holder, numbers, parse_leases(ids, field="lease_ids")


def _numbers(seqs: object, most: int) -> Sequence[int]:
    numbers = _listed("seqs", seqs, most)
    if len(numbers) > most:
        given = f"{len(seqs)} jobs are more" if isinstance(seqs, Sized) else "more jobs"
        raise Rejected(
            Code.BATCH_TOO_LARGE, f"seqs: {given} than the limit of {most} a call; split them", limit=most
        )
    if not numbers:
        raise invalid("seqs", "must name at least one job")
    if set(map(type, numbers)) == _ONLY_NUMBERS and min(numbers) >= 0 and max(numbers) <= U64_MAX:
        return numbers
    return [seq_number(f"seqs[{i}]", seq) for i, seq in enumerate(numbers)]


def _listed(field: str, given: object, most: int) -> list[Any]:
    if type(given) is list:
        return given
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise invalid(field, f"must be a list, not {json_kind(given)}")
    return list(islice(given, most + 1))
