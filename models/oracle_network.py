"""A network of topics and routers as lists and dicts, written from `semantics` §8.

A topic is a list, one entry a seq, kept for ever. What is written to it goes at once through the routers that are up to
date, as a whole or not at all. A router that is not takes what is still there, in order, as far as its dest takes it;
so does one into another shard. Nothing else is known of how they do it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

HOPS_MAX = 8


@dataclass
class Record:
    """One seq. `end`: None while it lives, else deleted, evicted, trimmed or crash. `origin`: (router, source seq)."""

    data: bytes = b""
    tag: bytes = b""
    ts: int = 0
    expires_at: int | None = None
    hops: int = 0
    origin: tuple[str, int] | None = None
    end: str | None = None


@dataclass
class Router:
    name: str
    source: str
    dest: str
    accepts: Callable[[bytes], bool]
    cursor: int
    total: int = 0


@dataclass
class TopicLog:
    """`floor`: what is below it was evicted. `rejects`: it is full rather than lose anything."""

    shard: int
    cap: int = 0
    rejects: bool = False
    log: list[Record] = field(default_factory=list)
    floor: int = 1

    def live(self, now: int) -> list[int]:
        return [
            seq
            for seq, one in enumerate(self.log, 1)
            if one.end is None and (one.expires_at is None or one.expires_at >= now)
        ]

    def room(self, now: int) -> int:
        return self.cap - len(self.live(now)) if self.rejects and self.cap else 1000

    def evict(self, now: int) -> None:
        live = self.live(now)
        for seq in live[: max(0, len(live) - self.cap)] if self.cap else []:
            self.log[seq - 1].end = "evicted"
            self.floor = seq + 1


class Network:
    def __init__(self) -> None:
        self.topics: dict[str, TopicLog] = {}
        self.routers: dict[str, Router] = {}

    def drop(self, topic: str) -> None:
        del self.topics[topic]
        self.routers = {n: one for n, one in self.routers.items() if topic not in (one.source, one.dest)}

    def write(self, topic: str, records: list[Record], now: int) -> None:
        """Records come, and go on to wherever they may at once; then what is too old goes."""
        come = [(topic, self._append(topic, records))]
        for name, seqs in come:
            for router in self._from(name):
                dest = self.topics[router.dest]
                if router.cursor == seqs.start - 1 and dest.shard == self.topics[name].shard:
                    copies = self._copies(router, seqs, now)
                    if len(copies) <= dest.room(now):
                        router.cursor = seqs.stop - 1
                        router.total += len(copies)
                        if copies:
                            come.append((router.dest, self._append(router.dest, copies)))
        for name, _ in come:
            self.topics[name].evict(now)

    def catch_up(self, now: int) -> None:
        """Until no router has anything that it can do."""
        while any([self._catch_up(router, now) for router in self.routers.values()]):  # noqa: C419 - each has a turn
            pass

    def _catch_up(self, router: Router, now: int) -> bool:
        source, dest, before = self.topics[router.source], self.topics[router.dest], router.cursor
        while router.cursor < len(source.log):
            seq = router.cursor + 1
            end = source.log[seq - 1].end
            if seq >= source.floor and end == "trimmed" and self._is_on_cycle(router):
                router.cursor = seq  # else it would go round for ever
                continue
            if seq < source.floor or end == "trimmed" or (end == "crash" and dest.shard != source.shard):
                dest.log.append(Record(end="trimmed"))
                router.cursor = seq
                continue
            stop = next((i for i, one in enumerate(source.log[seq:], seq + 1) if one.end in ENDS), None)
            stop = stop or len(source.log) + 1
            copies = self._copies(router, range(seq, stop), now)
            taken = copies[: dest.room(now)]
            left = copies[len(taken) :]
            router.cursor = (left[0].origin or ("", 0))[1] - 1 if left else stop - 1
            router.total += len(taken)
            for _, group in groupby(taken, lambda one: (one.ts, one.hops)):
                self.write(router.dest, list(group), now)
            if left:
                break
        return router.cursor > before

    def _append(self, topic: str, records: list[Record]) -> range:
        """None is before the last one that is there."""
        log = self.topics[topic].log
        last_ts = max((one.ts for one in log), default=0)
        for one in records:
            one.ts = max(one.ts, last_ts)
        log += records
        return range(len(log) - len(records) + 1, len(log) + 1)

    def _copies(self, router: Router, seqs: range, now: int) -> list[Record]:
        log, live, adds = (
            self.topics[router.source].log,
            self.topics[router.source].live(now),
            self._is_on_cycle(router),
        )
        return [
            Record(one.data, one.tag, one.ts, one.expires_at, one.hops + 1 if adds else 0, (router.name, seq))
            for seq in seqs
            if seq in live
            and router.accepts((one := log[seq - 1]).tag)
            and not (adds and one.hops >= HOPS_MAX)
        ]

    def _from(self, topic: str) -> list[Router]:
        return [one for one in self.routers.values() if one.source == topic]

    def _is_on_cycle(self, router: Router) -> bool:
        seen: set[str] = set()
        todo = [router.dest]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += [one.dest for one in self._from(at)]
        return router.source in seen

    def crash(self, kept: dict[str, int], heads: dict[str, int]) -> None:
        """Of each topic so many seqs are left, up to its head all are lost; routers stand where their copies end."""
        before = {name: its.log for name, its in self.topics.items()}
        for name, its in self.topics.items():
            its.log = its.log[: kept[name]] + [Record(end="crash") for _ in range(kept[name], heads[name])]
        for router in self.routers.values():
            dest = self.topics[router.dest]
            mine = [
                one.origin[1] for one in before[router.dest] if one.origin and one.origin[0] == router.name
            ]
            copies = [one.origin[1] for one in dest.log if one.origin and one.origin[0] == router.name]
            assert max(copies, default=0) <= kept[router.source]  # what it took there, it took here
            router.total -= len(mine) - len(copies)
            gone = mine[len(copies) :]
            router.cursor = min(router.cursor, kept[router.source], gone[0] - 1 if gone else router.cursor)


ENDS = ("trimmed", "crash")
