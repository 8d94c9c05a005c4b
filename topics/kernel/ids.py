"""Identities: topic names, numeric topic ids, the shard a topic lives on (storage 3), leases (queues 2, 4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, cast

import xxhash

from topics.kernel.checks import json_kind
from topics.kernel.errors import invalid
from topics.kernel.limits import WAL_SHARDS_MAX

INTERNAL: Final = "$"
Lease = tuple[int, int]  # the nonce of the start that gave it, and its number since
LEASE_ID: Final = b"lease_%016x%x"  # of a `Lease`
_OF_LEASE: Final = r"(?:lease_[0-9a-f]{16}[1-9a-f][0-9a-f]{0,15})?"
_LEASE: Final = re.compile(_OF_LEASE)
_LEASES: Final = re.compile(rf"{_OF_LEASE}(?:\n{_OF_LEASE})*")
_NONCE_AT: Final = len("lease_")
_COUNTER_AT: Final = _NONCE_AT + 16
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}", re.ASCII)
ROUTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:>-]{0,254}", re.ASCII)


def check_topic_name(name: object, *, field: str = "topic") -> str:
    """The name, byte-exact. Raises `Rejected(invalid_request)`; names starting with `$` are internal (semantics 3)."""
    return _checked(name, field, "no topic name")


def check_consumer_name(name: object) -> str:
    """The name of a durable consumer: as a topic's, byte-exact. Raises `Rejected(invalid_request)`."""
    return _checked(name, "consumer", "no consumer's name")


def check_schedule_name(name: object) -> str:
    """The name of a schedule: as a topic's, byte-exact. Raises `Rejected(invalid_request)`."""
    return _checked(name, "schedule", "no schedule's name")


def check_router_name(name: object) -> str:
    """The name of a router: as a topic's, and `>` may be in it. Raises `Rejected(invalid_request)`."""
    return _checked(name, "router", "no router's name", ROUTER_NAME)


def _checked(name: object, field: str, none: str, pattern: re.Pattern[str] = TOPIC_NAME) -> str:
    if not isinstance(name, str):
        raise invalid(field, f"a name is a string, not {json_kind(name)}")
    if pattern.fullmatch(name) is None:
        more = " >" if pattern is ROUTER_NAME else ""
        raise invalid(
            field,
            f"{name[:64]!r} is {none}: 1 to 255 of A-Z a-z 0-9 . _ : -{more} and the first a letter or digit",
        )
    return name


def is_internal(name: str) -> bool:
    """Whether the topic is the product's own: no public call reaches it (semantics 3)."""
    return name.startswith(INTERNAL)


def check_any_topic_name(name: object) -> str:
    """The name of a topic, public or internal: `$` and a public name. For the engine; edges take public names only."""
    if isinstance(name, str) and is_internal(name):
        return INTERNAL + check_topic_name(name.removeprefix(INTERNAL))
    return check_topic_name(name)


def shard_of(topic_id: int, shards: int) -> int:
    """`xxh3(topic_id) % n` over the id's eight little-endian bytes."""
    assert topic_id > 0
    assert 1 <= shards <= WAL_SHARDS_MAX
    return xxhash.xxh3_64_intdigest(topic_id.to_bytes(8, "little")) % shards


def lease_id(nonce: int, counter: int) -> str:
    """A lease as its holder knows it: `lease_`, the nonce in 16 hex digits, the counter in as many as it takes."""
    return (LEASE_ID % (nonce, counter)).decode()


def lease_of(text: str) -> Lease:
    """The lease of an id. Raises `ValueError` for what no server gives out."""
    if not text or not _LEASE.fullmatch(text):
        raise ValueError(f"{text!r:.64} is no lease id")
    return int(text[_NONCE_AT:_COUNTER_AT], 16), int(text[_COUNTER_AT:], 16)


def parse_leases(ids: Sequence[object], *, field: str) -> list[Lease | None]:
    """The lease of each id, None for an empty one. Raises `Rejected(invalid_request)` for what no server gave out."""
    if len(ids) == 1 and isinstance(text := ids[0], str) and text and _LEASE.fullmatch(text):
        return [lease_of(text)]
    try:
        listed = "\n".join(ids)  # type: ignore[arg-type]  # if it is no text it is said below
    except TypeError:
        listed = ""
    if listed.count("\n") != len(ids) - 1 or not _LEASES.fullmatch(listed):
        i, text = next(
            one for one in enumerate(ids) if not isinstance(one[1], str) or not _LEASE.fullmatch(one[1])
        )
        raise invalid(
            f"{field}[{i}]",
            f"{text!r:.64} is no lease id: give it as the claim did, or an empty string for any lease",
        )
    texts = cast("Sequence[str]", ids)
    starts = {start: int(start[_NONCE_AT:], 16) for start in {text[:_COUNTER_AT] for text in texts if text}}
    return [(starts[text[:_COUNTER_AT]], int(text[_COUNTER_AT:], 16)) if text else None for text in texts]
