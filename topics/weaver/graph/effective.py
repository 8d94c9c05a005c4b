"""The effective HLC: the stamp that decides, when a signed one is too far ahead (replication 5.4).

A stamp more than the drift ahead of T counts as the one after its greatest parent's; any other counts as it is. The
signed stamp cannot be changed, and frozen at its receipt the effective one would differ for ever between a node that
got it early and one that got it late (8.8). So `eff(I, T)` is a pure function of what `I` descends from and of T. When
time reaches a stamp it counts as signed; whoever compared it before compares again. Two nodes with the same intentions
and T on the same side of every stamp agree; in the end all do. It is never hashed and never signed.

A node judges its own stamps as it judges others': if its clock was ahead and is corrected, T goes back with it, and
what was stamped meanwhile is from the future here as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from topics.lattice.values.stamps import is_unset
from topics.weaver.graph.intention_graph import Node
from topics.weaver.model.hlc import HLC, ZERO


def eff(node: Node, now_ms: int, drift_ms: int, known: dict[bytes, HLC] | None = None) -> HLC:
    """The effective HLC at time `now_ms`. `known`: a memo for this time, which is filled.

    Only stamps from the future make it look at parents, and those are visited once each.
    """
    known = {} if known is None else known
    path = [node]
    while path:
        here = path[-1]
        if here.hash in known:
            path.pop()
            continue
        if not here.hlc.is_future(now_ms, drift_ms):
            known[here.hash] = here.hlc
            path.pop()
            continue
        unknown = [parent for parent in here.parents if parent.hash not in known]
        if unknown:
            path += unknown
            continue
        parent = max((known[parent.hash] for parent in here.parents), default=ZERO)
        known[here.hash] = here.hlc.clamp_future(parent, now_ms, drift_ms)
        path.pop()
    return known[node.hash]


def reference_after(seen_ms: int, now_ms: int, drift_ms: int) -> int:
    """T when the clock says `now_ms` and T was `seen_ms`: the newest time seen, so that a clock which steps back a
    little or was never set makes nobody's stamp one from the future. But a clock that stands more than the drift behind
    it was corrected: then what was seen was wrong.
    """
    corrected = now_ms + drift_ms < seen_ms and not is_unset(now_ms, seen_ms)
    return now_ms if corrected else max(seen_ms, now_ms)


class EffectiveClock:
    """T, and which stamps it has not reached."""

    __slots__ = ("_ahead", "_clamped", "_known", "drift_ms", "epoch", "now_ms", "setbacks")

    def __init__(self, drift_ms: int) -> None:
        self.now_ms = 0
        self.epoch = 0  # rises when other stamps count as signed than before
        self.setbacks = 0  # how often T went back
        self.drift_ms = drift_ms
        assert drift_ms >= 1
        self._ahead: list[tuple[int, bytes]] = []  # heap by wall: the list of what is evaluated again
        self._clamped: dict[bytes, None] = {}
        self._known: dict[bytes, HLC] = {}

    def __len__(self) -> int:
        return len(self._clamped)

    def watch(self, node: Node) -> None:
        """A new node: if it is from the future, it is evaluated again when its time has come."""
        assert node.hash not in self._clamped
        if node.hlc.is_future(self.now_ms, self.drift_ms):
            heappush(self._ahead, (node.hlc.wall, node.hash))
            self._clamped[node.hash] = None

    def advance(self, now_ms: int) -> bool:
        """Time went on. True if a stamp was reached, so that clamped ones may count differently now."""
        if now_ms <= self.now_ms:
            return False
        self.now_ms = now_ms
        reached = False
        while self._ahead and self._ahead[0][0] <= now_ms + self.drift_ms:
            del self._clamped[heappop(self._ahead)[1]]
            reached = True
        assert len(self._ahead) == len(self._clamped)
        if reached:
            self._known = {}
            self.epoch += 1
        return reached

    def observe(self, now_ms: int, seen_ms: int, nodes: Iterable[Node]) -> bool:
        """The clock says `now_ms`, and the newest time on record is `seen_ms`. Time goes on, or back if the clock was
        corrected: then of all the `nodes` there are those ahead are clamped. True if others are clamped than before.
        """
        now_ms = reference_after(max(self.now_ms, seen_ms), now_ms, self.drift_ms)
        if now_ms >= self.now_ms:
            return self.advance(now_ms)
        self.now_ms = now_ms
        ahead = [node for node in nodes if node.hlc.is_future(now_ms, self.drift_ms)]
        self._clamped = {node.hash: None for node in ahead}
        self._ahead = [(node.hlc.wall, node.hash) for node in ahead]
        heapify(self._ahead)
        self._known = {}
        self.epoch += 1
        self.setbacks += 1
        return True

    def is_clamped(self, node: Node) -> bool:
        return node.hash in self._clamped

    def of(self, node: Node) -> HLC:
        """The effective HLC now."""
        if node.hash not in self._clamped:
            return node.hlc
        return eff(node, self.now_ms, self.drift_ms, self._known)
