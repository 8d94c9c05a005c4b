"""LEASE frames: what happened to the jobs of a topic, one frame a claim pass or settlement (queues 2).

A data region is `event u8` and the event's fields, in order: numbers of 64 bits, texts with a length of 16 bits, and
lists of 64-bit numbers with a count of 32 bits. Seqs need not ascend; each is there once.

`DeadLettered` and `Moved` are the two halves of a move; a log whose records are redriven has them, too (queues 3, 4).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from topics.codec.primitives import U16, U32, U64
from topics.kernel.errors import Corrupt

Numbers = array  # of 64 bits, unsigned
T = TypeVar("T")


class LeaseEvent(msgspec.Struct, frozen=True):
    """An event of a leases log: compared by value."""


class Grant(NamedTuple):
    """What one claimer of a pass got: the next `jobs` of its seqs, until `deadline` (ms, included)."""

    node: bytes
    deadline: int
    jobs: int


class Claimed(LeaseEvent, frozen=True):
    """Jobs were leased. The lease of the i-th is (`nonce`, `first_lease` + i); grants share the seqs out in order."""

    nonce: int
    first_lease: int
    grants: tuple[Grant, ...]
    seqs: Numbers[int]


class Extended(LeaseEvent, frozen=True):
    """These leases last until `deadline`."""

    node: bytes
    deadline: int
    seqs: Numbers[int]
    leases: Numbers[int]


class Released(LeaseEvent, frozen=True):
    """These leases ended without an ack; job i is ready at `ready_at[i]` (ms). `reason`: as the worker gave it. An
    empty `node`: nobody was ever given these jobs, so that was no delivery.
    """

    node: bytes
    reason: bytes
    seqs: Numbers[int]
    leases: Numbers[int]
    ready_at: Numbers[int]


class ReleasedAll(LeaseEvent, frozen=True):
    """Every lease ended: `restart`."""

    reason: bytes


class Acked(LeaseEvent, frozen=True):
    """These jobs are done, and deleted with this frame."""

    node: bytes
    seqs: Numbers[int]
    leases: Numbers[int]


class DeadLettered(LeaseEvent, frozen=True):
    """These records are going to `dest`, by name, and are nobody's until they are there. `reason`: why."""

    dest: bytes
    reason: bytes
    seqs: Numbers[int]


class Moved(LeaseEvent, frozen=True):
    """They are there, synced: deleted here with this frame."""

    seqs: Numbers[int]


class Paused(LeaseEvent, frozen=True):
    """Nothing is leased from here on."""


class Resumed(LeaseEvent, frozen=True):
    """Jobs are leased again."""


class Purged(LeaseEvent, frozen=True):
    """Every ready and delayed job up to `upto` is deleted."""

    upto: int


NOBODY: Final = b""  # the node of a `Released` that takes its deliveries back; a worker has a name
_EVENTS: Final[dict[type[LeaseEvent], int]] = {
    Claimed: 1, Extended: 2, Released: 3, ReleasedAll: 4, Acked: 5, DeadLettered: 6, Moved: 7, Paused: 8, Resumed: 9,
    Purged: 10,
}  # fmt: skip
LEASE_EVENTS: Final = tuple(_EVENTS)
_OF_NUMBER: Final = {number: event for event, number in _EVENTS.items()}


def encode_lease(event: LeaseEvent) -> bytes:
    """The data region of a LEASE frame."""
    number, packs = _PACKS[type(event)]
    return number + b"".join([pack(value) for pack, value in zip(packs, astuple(event), strict=True)])


def decode_lease(data: bytes) -> LeaseEvent:
    """The event of a data region.

    Raises:
        Corrupt: it is none that this version knows, or not whole.
    """
    event, size = _decode(data)
    if size != len(data):
        raise _malformed(f"{len(data) - size} bytes are left over")
    _check(event)
    return event


def known_part(data: bytes) -> bytes:
    """A data region without what nobody here knows; of an event that nobody knows, another one's.

    Raises:
        Corrupt: it is not whole.
    """
    if data and data[0] > max(_OF_NUMBER):
        return encode_lease(Paused())
    return data[: _decode(data)[1]]


def _decode(data: bytes) -> tuple[LeaseEvent, int]:
    """The event that a data region begins with, and how long that is."""
    kind = _OF_NUMBER.get(data[0]) if data else None
    if kind is None:
        raise _malformed("no event of this version")
    values, at = list[Any](), 1
    for _, (_, take) in _FIELDS[kind]:
        value, at = take(data, at)
        values.append(value)
    return kind(*values), at


def _check(event: LeaseEvent) -> None:
    """What every writer of such a frame keeps to."""
    lists = [value for name in event.__struct_fields__ if isinstance(value := getattr(event, name), array)]
    if lists and (len({len(numbers) for numbers in lists}) != 1 or not lists[0]):
        raise _malformed("it names no job, or its lists have different lengths")
    seqs = getattr(event, "seqs", ())  # two rows would be made for it
    if len(set(seqs)) != len(seqs):
        raise _malformed("it names a job twice")
    if isinstance(event, DeadLettered) and not _is_name(event.dest):
        raise _malformed("it names no topic to go to")
    if isinstance(event, Claimed) and (
        not event.grants
        or sum(grant.jobs for grant in event.grants) != len(event.seqs)
        or not all(grant.jobs and grant.node for grant in event.grants)
    ):
        raise _malformed("its grants are not those of its jobs")


def _is_name(text: bytes) -> bool:
    try:
        return bool(text.decode())
    except UnicodeDecodeError:
        return False


def _take_number(data: bytes, at: int) -> tuple[int, int]:
    return _unpacked(U64, data, at), at + U64.size


def _pack_text(text: bytes) -> bytes:
    return U16.pack(len(text)) + text


def _take_text(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + U16.size
    stop = start + _unpacked(U16, data, at)
    return _slice(data, start, stop), stop


def _pack_numbers(numbers: Numbers[int]) -> bytes:
    return U32.pack(len(numbers)) + numbers.tobytes()


def _take_numbers(data: bytes, at: int) -> tuple[Numbers[int], int]:
    start = at + U32.size
    stop = start + U64.size * _unpacked(U32, data, at)
    numbers = array("Q")
    numbers.frombytes(_slice(data, start, stop))
    return numbers, stop


def _pack_grants(grants: tuple[Grant, ...]) -> bytes:
    parts = [U16.pack(len(grants))]
    for node, deadline, jobs in grants:
        parts += (_pack_text(node), U64.pack(deadline), U32.pack(jobs))
    return b"".join(parts)


def _take_grants(data: bytes, at: int) -> tuple[tuple[Grant, ...], int]:
    grants = []
    left, at = _unpacked(U16, data, at), at + U16.size
    for _ in range(left):
        node, at = _take_text(data, at)
        grants.append(Grant(node, _unpacked(U64, data, at), _unpacked(U32, data, at + U64.size)))
        at += U64.size + U32.size
    return tuple(grants), at


def _unpacked(number: Any, data: bytes, at: int) -> int:
    if len(data) - at < number.size:
        raise _malformed("it ends too early")
    return int(number.unpack_from(data, at)[0])


def _slice(data: bytes, start: int, stop: int) -> bytes:
    if stop > len(data):
        raise _malformed("it ends too early")
    return data[start:stop]


def _malformed(why: str) -> Corrupt:
    return Corrupt(f"the payload is malformed: {why}")


_Field = tuple[Callable[[Any], bytes], Callable[[bytes, int], tuple[Any, int]]]
_NUMBER: Final[_Field] = (U64.pack, _take_number)
_TEXT: Final[_Field] = (_pack_text, _take_text)
_NUMBERS: Final[_Field] = (_pack_numbers, _take_numbers)
_GRANTS: Final[_Field] = (_pack_grants, _take_grants)
_KIND_OF: Final[dict[str, _Field]] = {
    "nonce": _NUMBER, "first_lease": _NUMBER, "deadline": _NUMBER, "upto": _NUMBER, "node": _TEXT, "reason": _TEXT,
    "dest": _TEXT, "seqs": _NUMBERS, "leases": _NUMBERS, "ready_at": _NUMBERS, "grants": _GRANTS,
}  # fmt: skip
_FIELDS: Final = {
    event: tuple((name, _KIND_OF[name]) for name in event.__struct_fields__) for event in LEASE_EVENTS
}
_PACKS: Final = {
    event: (bytes((number,)), tuple(pack for _, (pack, _) in _FIELDS[event]))
    for event, number in _EVENTS.items()
}
