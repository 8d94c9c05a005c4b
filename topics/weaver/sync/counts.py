"""What sessions and nodes moved: numbers for tests, status and metrics. Nothing depends on them."""

from __future__ import annotations

import attrs


@attrs.define
class SessionCounts:
    """What a session moved. Intentions, unless it says otherwise."""

    rounds: int = 0  # payloads of ranges received
    asked: int = 0
    taken: int = 0  # new here
    given: int = 0
    skipped: int = 0  # invalid, or never asked for
    absent: int = 0  # asked for, and not there


@attrs.define
class NodeCounts:
    """What happened, since the node was made."""

    sessions: int = 0
    finished: int = 0
    failed: int = 0
    rounds: int = 0  # of reconciliation
    fetched: int = 0  # intentions that sessions brought
    walks: int = 0
    gossip_sent: int = 0
    gossip_taken: int = 0
    gossip_refused: int = 0
    gossip_dropped: int = 0
    acks: int = 0
    refused: int = 0  # streams whose peer broke the protocol
    messages: int = 0
    bytes: int = 0
    snapshots: int = 0  # taken from peers
