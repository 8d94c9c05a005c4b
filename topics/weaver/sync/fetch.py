"""Fetching a stretch of one author's chain: what closes the gap behind a new intention (replication 5.9).

Gossip brings an intention whose `store_prev` is unknown here. The gap is asked for from its newer end: each reply walks
back from a target towards `since`, the author's tip known here, at most 32 at a time, and the next request goes on from
the oldest. What comes floats until the gap is closed. A walk ends well when it reaches `since`; if it reaches the
author's first intention before, or something that the peer has not, or goes on for too long, only a full sync helps.

Each item must be the one that its successor names, so a valid signature on the newest stands for all of them (5.7);
whether the store relies on that, or verifies each, is its own choice.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from topics.crypto.hashing import blake3
from topics.kernel.errors import Corrupt
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.intention import ZERO_HASH, decode
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import CHAIN_MAX, CHAIN_ROUNDS_MAX, REPLY_BYTES
from topics.weaver.sync.messages import ChainReply, ChainRequest, Ending, Message


def serve_chain(inventory: Inventory, request: ChainRequest) -> ChainReply:
    """Walk back from the target, included, to `since`, excluded."""
    items: list[Envelope] = []
    here, size = request.target, 0
    while here not in (request.since, ZERO_HASH):
        if len(items) == CHAIN_MAX or (items and size > REPLY_BYTES):
            return ChainReply(tuple(items), Ending.MORE)
        found = inventory.envelopes([here])
        if not found:
            return ChainReply(tuple(items), Ending.UNKNOWN)
        items += found
        size += len(found[0].body)
        here = decode(found[0].body).store_prev
    assert len(items) <= CHAIN_MAX
    return ChainReply(tuple(items), Ending.REACHED if here == request.since else Ending.GENESIS)


class WalkStage(Enum):
    """How a walk stands."""

    GOING = "going"
    CLOSED = "closed"  # the gap is closed
    FAILED = "failed"  # a full sync is needed


class ChainWalk:
    """One gap being closed. `author` wrote the target, and so everything on the way."""

    __slots__ = ("_author", "_here", "_inventory", "_rounds", "_since", "reason", "taken", "target", "walk")

    def __init__(self, inventory: Inventory, *, target: bytes, since: bytes, author: bytes) -> None:
        self._inventory = inventory
        self.target: Final = target
        self._here = target
        self._since = since
        self._author = author
        self._rounds = 0
        self.taken = 0
        self.reason = ""
        self.walk = WalkStage.GOING
        if since == ZERO_HASH:
            # Nothing of the author is here: its whole history is the gap, and a sync is made for that.
            self._fail("nothing of the author is here yet")

    def request(self) -> ChainRequest:
        assert self.walk is WalkStage.GOING
        return ChainRequest(self._here, self._since)

    def receive(self, reply: Message) -> ChainRequest | None:
        """Take the items in; the next request, if the walk goes on."""
        assert self.walk is WalkStage.GOING
        if not isinstance(reply, ChainReply):
            self._fail("the peer did not answer with a chain")
            return None
        self._rounds += 1
        linked = self._linked(reply.items)
        if linked:
            self.taken += len(linked)
            refused = self._inventory.ingest_chain(linked)
            if refused is not None:
                self._fail(refused)
                return None
        if len(linked) < len(reply.items):
            self._fail("an item is not the one its successor names")
            return None
        if reply.ending is Ending.REACHED and self._here == self._since:
            self.walk = WalkStage.CLOSED
            return None
        if reply.ending is not Ending.MORE or not linked or self._here == ZERO_HASH:
            self._fail(f"the walk ended: {reply.ending.name.lower()}")
            return None
        if self._rounds == CHAIN_ROUNDS_MAX:
            self._fail(f"the gap is longer than {CHAIN_ROUNDS_MAX} replies")
            return None
        return self.request()

    def _linked(self, items: tuple[Envelope, ...]) -> list[Envelope]:
        """The items from the front of the reply that are what their successors name."""
        linked = []
        for envelope in items:
            if self._here in (self._since, ZERO_HASH) or blake3(envelope.body) != self._here:
                break
            try:
                intention = decode(envelope.body)
            except Corrupt:
                break
            if intention.author != self._author:
                break
            linked.append(envelope)
            self._here = intention.store_prev
        assert len(linked) <= len(items)
        return linked

    def _fail(self, reason: str) -> None:
        assert self.walk is WalkStage.GOING
        self.walk = WalkStage.FAILED
        self.reason = reason
