"""What nodes say to each other, as values (replication 5.8-5.10). Their bytes are `wire`'s business.

An intention and a witness record travel as they lie in a store, as body and signature; nothing here looks inside.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

import attrs

from topics.weaver.model.envelope import Envelope
from topics.weaver.store.witness import Witness
from topics.weaver.sync.ranges import HashRange, Scheme


class ListedHash(NamedTuple):
    """A hash, and its place in the sender's witness log. Fetching in that order lets few things float."""

    hash: bytes
    seq: int


# --- parts of a Ranges payload


@attrs.frozen
class RangeDone:
    """The range is settled."""

    over: HashRange


@attrs.frozen
class RangeFingerprint:
    """What the sender's hashes of the range add up to."""

    over: HashRange
    fingerprint: bytes
    count: int


@attrs.frozen
class RangeItemsRequest:
    """All of the sender's hashes of the range, ascending; asks for the other's."""

    over: HashRange
    items: tuple[ListedHash, ...]


@attrs.frozen
class RangeItemsReply:
    """The answer to it."""

    over: HashRange
    items: tuple[ListedHash, ...]


Part: TypeAlias = RangeDone | RangeFingerprint | RangeItemsRequest | RangeItemsReply


# --- messages


class Ending(IntEnum):
    """Why a ChainReply has no more."""

    MORE = 0  # it is full: ask on from its oldest
    REACHED = 1  # the next older one is `since`
    GENESIS = 2  # the author's first intention came before `since` did
    UNKNOWN = 3  # the target, or an ancestor of it, is not here (any more)


@attrs.frozen
class Hello:
    """Opens a sync session. `frontier`: id of what the sender has pruned, zero for nothing."""

    store_id: bytes
    scheme: Scheme
    frontier: bytes


@attrs.frozen
class FrontierTips:
    """What a frontier id stands for: (author, tip) ascending. Sent when the ids differ."""

    tips: tuple[tuple[bytes, bytes], ...]


@attrs.frozen
class Ranges:
    """All answers to one payload."""

    parts: tuple[Part, ...]


@attrs.frozen
class Fetch:
    """Asks for intentions by hash."""

    hashes: tuple[bytes, ...]


@attrs.frozen
class FetchReply:
    """Some of them; those that are unknown here are silently absent."""

    items: tuple[Envelope, ...]
    done: bool


@attrs.frozen
class SyncDone:
    """The sender lacks nothing and waits for nothing."""


@attrs.frozen
class NeedsSnapshot:
    """The other side has pruned what the sender never saw: only a snapshot can help it."""


@attrs.frozen
class ChainRequest:
    """Asks for `target` and its author's earlier intentions, back to but without `since`."""

    target: bytes
    since: bytes


@attrs.frozen
class ChainReply:
    """Newest first, at most `CHAIN_MAX`."""

    items: tuple[Envelope, ...]
    ending: Ending


@attrs.frozen
class BootstrapRequest:
    """Asks for witness records from `start_seq` on, which is included; 0 means 1."""

    start_seq: int
    limit: int


@attrs.frozen
class BootstrapBatch:
    """Witness records in order, and the intentions they are about. `last_seq`: of the last record, 0 if there is none;
    `done`: nothing is behind it.
    """

    records: tuple[Witness, ...]
    items: tuple[Envelope, ...]
    last_seq: int
    done: bool


@attrs.frozen
class Gossip:
    """A new intention of the sender."""

    item: Envelope


@attrs.frozen
class Join:
    """The bearer of an invite names its key and proves that it has it; `proof` signs secret and store."""

    store_id: bytes
    secret: bytes
    node: bytes
    proof: bytes


@attrs.frozen
class Welcome:
    """The peer is active: it may clone."""

    store_id: bytes


@attrs.frozen
class Refusal:
    """The sender ends the stream, and says why in a line."""

    reason: str


@attrs.frozen
class SnapshotRequest:
    """Asks a node that has pruned for its signed snapshot, from byte `offset` on."""

    offset: int


@attrs.frozen
class SnapshotPart:
    """Bytes of it. `size` is that of the whole; 0 if there is none."""

    size: int
    data: bytes


Message: TypeAlias = (
    Hello | FrontierTips | Ranges | Fetch | FetchReply | SyncDone | NeedsSnapshot | ChainRequest | ChainReply
    | BootstrapRequest | BootstrapBatch | Gossip | Join | Welcome | Refusal | SnapshotRequest | SnapshotPart
)  # fmt: skip
