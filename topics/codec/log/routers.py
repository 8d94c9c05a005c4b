"""ROUTER_CREATE and ROUTER_DELETE frames: what a router is, and that it ends (semantics 8).

Both are of the topic that it forwards from and lie in the log of shard 0, as that topic's creation does. A router that
is changed is created again, with its id. What it has forwarded is told by dest's own log (FORWARD).
"""

from __future__ import annotations

from typing import Final

import msgspec

from topics.codec.primitives import U64
from topics.kernel.errors import Corrupt
from topics.kernel.limits import U64_MAX

AT_LEAST_ONCE: Final = "at_least_once"
EXACTLY_ONCE: Final = "exactly_once"
GUARANTEES: Final = (AT_LEAST_ONCE, EXACTLY_ONCE)
ROUTER_META: Final = "_topics_router"  # the key in `meta` of what an `exactly_once` router copies


class RouterCreate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A router from one topic into another. `filter`: a match as it is written in full; None: every record.
    `from_seq`: the source's last seq when it was made; what comes behind that is forwarded.
    """

    id: int
    name: str
    source_id: int
    dest_id: int
    preserve_node: bool = True
    preserve_tag: bool = True
    filter: tuple[str, str, str] | None = None
    allow_cycle: bool = False
    guarantee: str = AT_LEAST_ONCE
    from_seq: int = 0

    def other_than(self, topic_id: int) -> int:
        """Of its two topics, the one that is not this."""
        return self.dest_id if topic_id == self.source_id else self.source_id


class RouterDelete(msgspec.Struct, frozen=True):
    """The router with this id ends."""

    id: int


def encode_router(router: RouterCreate) -> bytes:
    """The data region: JSON of every field."""
    return msgspec.json.encode(router)


def decode_router(data: bytes) -> RouterCreate:
    """The router of a data region.

    Raises:
        Corrupt: it is none that this version could have written.
    """
    try:
        router = msgspec.json.decode(data, type=RouterCreate)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Corrupt(f"the payload is malformed: {error}") from None
    if encode_router(router) != data:
        raise Corrupt("the payload is malformed: there is one way to write a router, and this is another")
    if (what := _contradiction(router)) is not None:
        raise Corrupt(f"the payload is malformed: {what}")
    return router


def encode_router_end(ended: RouterDelete) -> bytes:
    """The data region: the id, u64."""
    return U64.pack(ended.id)


def decode_router_end(data: bytes) -> RouterDelete:
    """Which router ends. Raises `Corrupt`."""
    if len(data) != U64.size:
        raise Corrupt(f"the payload is malformed: {len(data)} bytes where {U64.size} belong")
    ended = RouterDelete(U64.unpack(data)[0])
    if not ended.id:
        raise Corrupt("the payload is malformed: id 0")
    return ended


def _contradiction(router: RouterCreate) -> str | None:
    """What no router can say; None if it can be one."""
    if any(not 1 <= one <= U64_MAX for one in (router.id, router.source_id, router.dest_id)):
        return f"id {router.id}, source_id {router.source_id}, dest_id {router.dest_id}"
    if not router.name or router.source_id == router.dest_id or not 0 <= router.from_seq <= U64_MAX:
        return f"name {router.name!r:.40}, dest_id {router.dest_id}, from_seq {router.from_seq}"
    if router.guarantee not in GUARANTEES:
        return f"guarantee {router.guarantee!r:.40}"
    return None if router.filter is None or _is_match(*router.filter) else f"filter {router.filter!r:.80}"


def _is_match(field: str, operator: str, value: str) -> bool:
    """Whether it is a match written in full (semantics 5)."""
    globs = value.count("*") == 1 and value.endswith("*")
    return field == "tag" and ((operator == "Eq" and bool(value)) or (operator == "Glob" and globs))
