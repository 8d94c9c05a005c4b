"""Hashes without a store behind them: what reconciliation needs to know of one."""

from __future__ import annotations

from topics.weaver.sync.ranges import HashSet


class Hashes(HashSet):
    """A set whose witness order is the order of the hashes."""

    __slots__ = ()

    def seq_of(self, name: bytes) -> int:
        return int.from_bytes(name[:7]) + 1
