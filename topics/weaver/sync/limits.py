"""Bounds of the exchange between nodes (replication 6), in one place. Those of a store are in `bounds`.

`ExchangeOptions` holds those a deployment may change; the constants above it belong to the protocol, and both sides
count on them.
"""

from __future__ import annotations

from typing import Final

import attrs

from topics.kernel.limits import KIB, MIB

# Reconciliation (replication 5.8).
LEAF_HASHES: Final = 32  # own and peer's together: then hashes travel, not fingerprints
LISTING_MAX: Final = 2048  # hashes of one range that anyone will list
PARTS_MAX: Final = 1024  # ranges in one payload
PAYLOAD_HASHES_MAX: Final = 64 * KIB  # hashes in one payload
BACKLOG_MAX: Final = 64 * PARTS_MAX  # ranges put off; an honest pair needs one payload's worth a halving

# Fetching (5.8, 5.9).
FETCH_MAX: Final = 50  # hashes of one Fetch
FETCHES_OPEN_MAX: Final = 4
REPLY_BYTES: Final = 1 * MIB  # a reply is cut behind the item that fills it
CHAIN_MAX: Final = 32  # intentions of one ChainReply
CHAIN_ROUNDS_MAX: Final = 32  # continued requests, then a full sync is cheaper
WALKS_MAX: Final = 4  # gaps closed at a time with one peer; more are for a sync
BOOTSTRAP_BATCH: Final = 100
BOOTSTRAP_LIMIT_MAX: Final = 10_000

# Messages.
ENVELOPE_MAX: Final = 2 * MIB  # bytes of one intention on the wire, whatever a store accepts
MESSAGE_MAX: Final = 16 * MIB
FRONTIER_MAX: Final = 64 * KIB  # authors of a frontier
REASON_MAX: Final = 256  # bytes of a refusal's text
SNAPSHOT_PART: Final = 256 * KIB  # bytes of a snapshot in one message
SNAPSHOT_MAX: Final = 256 * MIB  # bytes of a snapshot a node takes

DAY_MS: Final = 24 * 3600 * 1000


@attrs.frozen(kw_only=True)
class ExchangeOptions:
    """What a node may choose. Times in milliseconds."""

    idle_ms: int = 15_000
    total_ms: int = 30_000
    needs_max: int = 100_000  # hashes one session fetches; the rest is the next session's
    bootstrap_limit: int = 1000  # records of one request, at most BOOTSTRAP_LIMIT_MAX
    outbox_bytes: int = 32 * MIB  # that wait for one peer; four full fetches fit
    streams: int = 16  # sessions and clones one peer has open here; an honest one needs two
    anti_entropy_ms: int = 30_000  # a session with one peer, in turn
    ack_debounce_ms: int = 5_000
    attest_gap_ms: int = 300_000
    attest_heartbeat_ms: int = 900_000
    invite_ttl_ms: int = 7 * DAY_MS
    invites_open: int = 1024
    peers: int = 4096

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(ExchangeOptions):
            assert getattr(self, field.name) > 0, f"{field.name} is a positive number"
        assert self.bootstrap_limit <= BOOTSTRAP_LIMIT_MAX
        assert self.attest_gap_ms <= self.attest_heartbeat_ms
