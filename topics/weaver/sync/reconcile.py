"""Set reconciliation: two nodes find out what each lacks by comparing folds of ever smaller ranges (replication 5.8).

Theory. Whoever hears a fingerprint compares it with its own. Equal: the range is done. Few hashes on both sides
together: they travel. Else both halves' fingerprints go back. Each round halves what is unsettled, so the ranges end,
and both sides then know exactly what they lack.

All answers to one payload are one payload, and the two sides take turns. A payload holds `PARTS_MAX` ranges; more are
put off, newest first, and go out when there is room, each with a fresh fold. A Done tells the other side nothing it has
to act on, so it is the first to give way: a payload of nothing but Done means that nothing was put off. A range that
cannot be halved holds two hashes at most and is listed, whatever count a peer claims.
"""

from __future__ import annotations

from typing import Final, Protocol

from topics.kernel.errors import invalid
from topics.weaver.sync.limits import BACKLOG_MAX, LEAF_HASHES, LISTING_MAX, PARTS_MAX, PAYLOAD_HASHES_MAX
from topics.weaver.sync.messages import (
    ListedHash,
    Part,
    RangeDone,
    RangeFingerprint,
    RangeItemsReply,
    RangeItemsRequest,
    Ranges,
)
from topics.weaver.sync.ranges import FULL, Fold, HashRange, Scheme


class HashView(Protocol):
    """The hashes that two nodes compare: those witnessed and not behind a frontier."""

    def __contains__(self, name: bytes) -> bool: ...

    def fold(self, over: HashRange = FULL) -> Fold:
        """What the hashes of the range add up to."""
        ...

    def listing(self, over: HashRange, limit: int) -> list[bytes]:
        """The hashes of the range, ascending; `Rejected` if there are more than `limit`."""
        ...

    def seq_of(self, name: bytes) -> int:
        """The place of one of them in the witness log."""
        ...


class Reconciliation:
    """One side. `needs`: what the other has and this side lacks, with its place in the other's witness log."""

    __slots__ = ("_backlog", "_needs_max", "_scheme", "_view", "needs")

    def __init__(self, view: HashView, scheme: Scheme, *, needs_max: int) -> None:
        assert needs_max > 0
        self._view = view
        self._scheme: Final = scheme
        self._needs_max = needs_max
        self._backlog: list[HashRange] = []
        self.needs: dict[bytes, int] = {}

    @property
    def backlog(self) -> int:
        """Ranges put off."""
        return len(self._backlog)

    def open(self) -> Ranges:
        """The first payload: all there is."""
        return Ranges((self._fingerprint(FULL),))

    def answer(self, payload: Ranges) -> Ranges | None:
        """The one answer to a payload, or None if it asks for none. Raises `Rejected` for what no honest peer asks."""
        assert len(payload.parts) <= PARTS_MAX
        answers: list[Part] = []
        settled: list[Part] = []
        listed = 0
        for part in payload.parts:
            answer = self._answer(part)
            if isinstance(answer, RangeDone):
                settled.append(answer)
            elif answer is not None:
                answers.append(answer)
                listed += 0 if isinstance(answer, RangeFingerprint) else len(answer.items)
            if listed > PAYLOAD_HASHES_MAX:
                # Here and not behind the loop, or a few bytes a part would make us list millions first.
                raise invalid("ranges", f"more than {PAYLOAD_HASHES_MAX} hashes were asked for at once")
        while self._backlog and len(answers) < PARTS_MAX:
            answers.append(self._fingerprint(self._backlog.pop()))
        answers += settled[: PARTS_MAX - len(answers)]
        assert len(answers) <= PARTS_MAX
        assert not self._backlog or len(answers) == PARTS_MAX, "room is used"
        return Ranges(tuple(answers)) if answers else None

    def take_needs(self) -> list[bytes]:
        """What is lacked and not here by now, in the order in which the other witnessed it."""
        ordered = sorted(self.needs.items(), key=lambda need: (need[1], need[0]))
        self.needs = {}
        assert len(ordered) <= 2 * self._needs_max
        return [name for name, _ in ordered[: self._needs_max] if name not in self._view]

    def _answer(self, part: Part) -> Part | None:
        if isinstance(part, RangeFingerprint):
            return self._compare(part)
        if isinstance(part, RangeItemsRequest):
            self._need(part.items)
            return RangeItemsReply(part.over, self._listed(part.over))
        if isinstance(part, RangeItemsReply):
            self._need(part.items)
            return RangeDone(part.over)
        assert isinstance(part, RangeDone)
        return None

    def _compare(self, theirs: RangeFingerprint) -> Part | None:
        over, own = theirs.over, self._view.fold(theirs.over)
        if own.size == theirs.count and own.fingerprint(self._scheme) == theirs.fingerprint:
            return RangeDone(over)
        halves = over.halves()
        if halves is None or own.size + theirs.count <= LEAF_HASHES:
            return RangeItemsRequest(over, self._listed(over))
        self._backlog += reversed(halves)
        if len(self._backlog) > BACKLOG_MAX:
            raise invalid("ranges", f"more than {BACKLOG_MAX} are open")
        return None

    def _fingerprint(self, over: HashRange) -> RangeFingerprint:
        assert not over.is_empty
        own = self._view.fold(over)
        return RangeFingerprint(over, own.fingerprint(self._scheme), own.size)

    def _listed(self, over: HashRange) -> tuple[ListedHash, ...]:
        return tuple(
            [ListedHash(name, self._view.seq_of(name)) for name in self._view.listing(over, LISTING_MAX)]
        )

    def _need(self, theirs: tuple[ListedHash, ...]) -> None:
        self.needs.update((name, seq) for name, seq in theirs if name not in self._view)
        if len(self.needs) > 2 * self._needs_max:
            # The earliest are kept: with them present, the next session's can be witnessed.
            first = sorted(self.needs.items(), key=lambda need: (need[1], need[0]))[: self._needs_max]
            self.needs = dict(first)
            assert len(self.needs) == self._needs_max
