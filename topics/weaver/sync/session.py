"""A sync session: two nodes exchange what the other lacks, over a stream, until both say so (replication 5.8).

Theory. The initiator opens with its frontier and the fingerprint of everything behind it. If the frontiers differ, both
send theirs and compare what lies behind both (5.10); a node that never saw what the other has pruned needs a snapshot,
and that ends the session. Then payloads of ranges go to and fro, in turns. A side with no answer outstanding fetches
what it lacks, in the other's witness order. Lacking nothing and waiting for nothing it says SyncDone; the session is
finished when that was said and heard, and taken back if the other then asks on.

The machine does no I/O: `receive` turns a message into answers. What a peer does wrong ends the session with one
Refusal and an outcome; it never raises. Deadlines are compared with the injected clock, and whatever was fetched before
one passed is kept, so the next session has less to do.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from topics.crypto.hashing import blake3
from topics.kernel.errors import Rejected, invalid
from topics.kernel.ports import Clock
from topics.weaver.model.envelope import Envelope
from topics.weaver.model.frontier import Frontier
from topics.weaver.store.report import Outcome
from topics.weaver.sync.counts import SessionCounts
from topics.weaver.sync.inventory import Inventory
from topics.weaver.sync.limits import FETCH_MAX, FETCHES_OPEN_MAX, REPLY_BYTES, ExchangeOptions
from topics.weaver.sync.messages import (
    Fetch,
    FetchReply,
    FrontierTips,
    Hello,
    Message,
    NeedsSnapshot,
    RangeDone,
    Ranges,
    Refusal,
    SyncDone,
)
from topics.weaver.sync.ranges import Scheme
from topics.weaver.sync.reconcile import HashView, Reconciliation


class SessionPhase(Enum):
    """Where a session stands, or how it ended."""

    OPENING = "opening"
    SYNCING = "syncing"
    FINISHED = "finished"
    CLOSED = "closed"  # the stream ended before both were done
    TIMED_OUT = "timed_out"
    REFUSED = "refused"  # one side broke the protocol, or they do not fit together
    NEEDS_SNAPSHOT = "needs_snapshot"  # this node is behind the other's frontier
    PEER_NEEDS_SNAPSHOT = "peer_needs_snapshot"


ENDS: Final = frozenset(SessionPhase) - {SessionPhase.OPENING, SessionPhase.SYNCING}
TRANSITIONS: Final[dict[SessionPhase, frozenset[SessionPhase]]] = {
    SessionPhase.OPENING: ENDS - {SessionPhase.FINISHED} | {SessionPhase.SYNCING},
    SessionPhase.SYNCING: ENDS,
} | dict.fromkeys(ENDS, frozenset())


class SyncSession:
    """One side of one session. Not started until `open` (initiator) or the first message (the other side)."""

    __slots__ = (
        "_clock", "_fetching", "_heard_ms", "_initiator", "_inventory", "_my_turn", "_needs", "_opened_ms",
        "_options", "_peer_done", "_ranges", "_said_done", "_scheme", "_waits_for_tips", "active_fetches",
        "left", "pending_ranges", "phase", "reason", "tally",
    )  # fmt: skip

    def __init__(
        self, inventory: Inventory, clock: Clock, *, initiator: bool, scheme: Scheme, options: ExchangeOptions
    ) -> None:
        assert options.idle_ms <= options.total_ms
        self._inventory = inventory
        self._clock = clock
        self._options = options
        self._initiator: Final = initiator
        self._scheme = scheme
        self._opened_ms = self._heard_ms = clock.now_ms()
        self._ranges: Reconciliation | None = None
        self._my_turn = initiator
        self._waits_for_tips = False
        self._needs: deque[bytes] = deque()  # bounded by needs_max
        self._fetching: deque[dict[bytes, None]] = deque()
        self._said_done = self._peer_done = False
        self.pending_ranges = 0
        self.active_fetches = 0
        self.phase = SessionPhase.OPENING
        self.reason = ""
        self.tally = SessionCounts()
        self.left = False  # the other has more than one session fetches

    @property
    def is_over(self) -> bool:
        return self.phase in ENDS

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self.is_over:
            return None
        return min(self._heard_ms + self._options.idle_ms, self._opened_ms + self._options.total_ms)

    def open(self) -> list[Message]:
        """The initiator's first words."""
        assert self._initiator
        assert self.phase is SessionPhase.OPENING
        hello = Hello(self._inventory.store_id, self._scheme, self._inventory.frontier.id)
        view = self._inventory.behind(self._inventory.frontier)
        assert view is not None, "a node knows its own frontier"
        self._begin(view)
        return [hello, self._send_ranges(self._reconciliation.open())]

    def receive(self, message: Message) -> list[Message]:
        """The answers, in order. Nothing is answered once it is over."""
        self.tick()
        if self.is_over:
            return []
        self._heard_ms = self._clock.now_ms()
        try:
            answers = self._answers(message)
        except Rejected as error:
            return self.refuse(error.message)
        return answers + self._settle()

    def refuse(self, reason: str) -> list[Message]:
        """The peer did what it must not, or sent bytes that are no message."""
        self._end(SessionPhase.REFUSED, reason)
        return [Refusal(reason)]

    def tick(self) -> None:
        """Time has passed."""
        deadline_ms = self.deadline_ms
        now_ms = self._clock.now_ms()
        if deadline_ms is not None and now_ms >= deadline_ms:
            idle = now_ms >= self._heard_ms + self._options.idle_ms
            bound = f"silent for {self._options.idle_ms}" if idle else f"not done in {self._options.total_ms}"
            self._end(SessionPhase.TIMED_OUT, f"{bound} ms")

    def closed(self) -> None:
        """The stream is gone. Before both were done, that is an error."""
        if not self.is_over:
            self._end(SessionPhase.CLOSED, "the stream ended before both sides were done")

    # What messages do.

    def _answers(self, message: Message) -> list[Message]:
        if isinstance(message, Refusal):
            self._end(SessionPhase.REFUSED, f"the peer refused: {message.reason}")
            return []
        if isinstance(message, NeedsSnapshot):
            self._end(SessionPhase.PEER_NEEDS_SNAPSHOT, "the peer is behind this node's frontier")
            return []
        if isinstance(message, Hello):
            return self._greeted(message)
        if isinstance(message, FrontierTips):
            return self._compare_frontiers(message)
        if isinstance(message, Ranges):
            return self._on_ranges(message)
        if self.phase is not SessionPhase.SYNCING:
            raise _unexpected(message)
        if isinstance(message, Fetch):
            return self._serve(message)
        if isinstance(message, FetchReply):
            return self._on_items(message)
        if isinstance(message, SyncDone):
            self._peer_done = True
            return []
        raise _unexpected(message)

    def _greeted(self, hello: Hello) -> list[Message]:
        if self._initiator or self.phase is not SessionPhase.OPENING or self._waits_for_tips:
            raise _unexpected(hello)
        if hello.store_id != self._inventory.store_id:
            raise invalid("store_id", f"{hello.store_id.hex()} is not the store of this node")
        if hello.scheme < self._scheme:
            raise invalid("scheme", f"{hello.scheme.name} is too weak here: use {self._scheme.name}")
        self._scheme = hello.scheme
        own = self._inventory.frontier
        if hello.frontier != own.id:
            self._waits_for_tips = True
            return [FrontierTips(own.tips)]
        view = self._inventory.behind(own)
        assert view is not None, "a node knows its own frontier"
        self._begin(view)
        return []

    def _compare_frontiers(self, theirs: FrontierTips) -> list[Message]:
        """The initiator hears that the frontiers differ, sends its own and opens anew; the other side follows."""
        if self._initiator == self._waits_for_tips or self.tally.rounds:
            raise _unexpected(theirs)
        self._waits_for_tips = self._initiator  # of the initiator: no second time
        view = self._inventory.behind(Frontier(theirs.tips))
        if view is None:
            self._end(SessionPhase.NEEDS_SNAPSHOT, "this node is behind the peer's frontier")
            return [NeedsSnapshot()]
        self._begin(view)
        if not self._initiator:
            return []
        self.pending_ranges, self._my_turn = 0, True
        return [FrontierTips(self._inventory.frontier.tips), self._send_ranges(self._reconciliation.open())]

    def _on_ranges(self, payload: Ranges) -> list[Message]:
        if self._waits_for_tips and not self._initiator:
            return []  # sent before the initiator could know that the frontiers differ
        if self.phase is not SessionPhase.SYNCING or self._my_turn:
            raise _unexpected(payload)
        self.tally.rounds += 1
        self.pending_ranges = max(self.pending_ranges - 1, 0)
        assert self.pending_ranges == 0, "sides take turns, so one answer is outstanding at most"
        self._my_turn = True
        # Said before this side's last payload was heard, so it no longer holds.
        self._peer_done = False
        answer = self._reconciliation.answer(payload)
        return [] if answer is None else [self._send_ranges(answer)]

    def _serve(self, asked: Fetch) -> list[Message]:
        """The intentions asked for, in replies of bounded size; unknown ones are silently absent."""
        self._peer_done = False
        replies: list[Message] = []
        batch: list[Envelope] = []
        size = 0
        for envelope in self._inventory.envelopes(asked.hashes):
            if batch and size + len(envelope.body) > REPLY_BYTES:
                replies.append(FetchReply(tuple(batch), done=False))
                batch, size = [], 0
            batch.append(envelope)
            size += len(envelope.body)
            self.tally.given += 1
        assert len(batch) <= FETCH_MAX
        return [*replies, FetchReply(tuple(batch), done=True)]

    def _on_items(self, reply: FetchReply) -> list[Message]:
        if not self._fetching:
            raise _unexpected(reply)
        wanted = self._fetching[0]
        welcome = []
        for envelope in reply.items:
            name = blake3(envelope.body)
            if name in wanted:
                del wanted[name]
                welcome.append(envelope)
            else:
                self.tally.skipped += 1
        for result in self._inventory.ingest(welcome).results if welcome else ():
            if result.outcome is Outcome.REFUSED:
                self.tally.skipped += 1
            elif result.outcome is not Outcome.KNOWN:
                self.tally.taken += 1
        assert self.active_fetches == len(self._fetching) <= FETCHES_OPEN_MAX
        if reply.done:
            self.tally.absent += len(self._fetching.popleft())
            self.active_fetches -= 1
        return []

    # What follows from where it stands.

    @property
    def _reconciliation(self) -> Reconciliation:
        assert self._ranges is not None
        return self._ranges

    def _begin(self, view: HashView) -> None:
        assert self.tally.rounds == 0, "nothing was compared yet"
        self._ranges = Reconciliation(view, self._scheme, needs_max=self._options.needs_max)
        if self.phase is SessionPhase.OPENING:
            self._move(SessionPhase.SYNCING)

    def _send_ranges(self, payload: Ranges) -> Ranges:
        assert self._my_turn
        self._my_turn = False
        if any(not isinstance(part, RangeDone) for part in payload.parts):
            self.pending_ranges += 1
            self._said_done = False
        return payload

    def _settle(self) -> list[Message]:
        """Fetch while no answer is outstanding; then be done."""
        if self.phase is not SessionPhase.SYNCING or self.pending_ranges or not self.tally.rounds:
            return []
        messages: list[Message] = []
        if self._my_turn and self._reconciliation.backlog:
            # The other side had nothing to answer, so it is up to this one to go on.
            answer = self._reconciliation.answer(Ranges(()))
            assert answer is not None
            return [self._send_ranges(answer)]
        room = self._options.needs_max - len(self._needs)
        self.left = self.left or len(self._reconciliation.needs) > room
        self._needs += self._reconciliation.take_needs()[:room]
        while self._needs and self.active_fetches < FETCHES_OPEN_MAX:
            messages += self._fetch()
        if self.active_fetches or self._needs:
            return messages
        if not self._said_done:
            self._said_done = True
            messages.append(SyncDone())
        assert not self._fetching
        if self._peer_done:
            assert not self._reconciliation.backlog
            self._move(SessionPhase.FINISHED)
        return messages

    def _fetch(self) -> list[Message]:
        names: dict[bytes, None] = {}
        while self._needs and len(names) < FETCH_MAX:
            name = self._needs.popleft()
            if not self._inventory.knows(name):
                names[name] = None
        if not names:
            return []
        assert len(names) <= FETCH_MAX
        self._fetching.append(names)
        self.active_fetches += 1
        self.tally.asked += len(names)
        self._said_done = False
        return [Fetch(tuple(names))]

    def _end(self, phase: SessionPhase, reason: str) -> None:
        if not self.is_over:
            self._move(phase)
            self.reason = reason
            self._fetching.clear()
            self._needs.clear()

    def _move(self, phase: SessionPhase) -> None:
        assert phase in TRANSITIONS[self.phase], (self.phase, phase)
        self.phase = phase


def _unexpected(message: Message) -> Rejected:
    return invalid("message", f"{type(message).__name__} has no place here")
