"""What simulated clients ask of routers: any between any topics, and some that stand for good.

A dest of those that stand holds in the end what a run without a single crash would have put there: what its source
holds, in that order, and each record once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Final

import msgspec

from topics.codec.log.frame import FrameView
from topics.engine.commands import Append, Command, DeleteRouter, PutRouter, WaitForCopies
from topics.engine.replies import BroughtOver
from topics.engine.tickets import Ticket
from topics.kernel.config import Durability, TopicConfig
from topics.kernel.limits import MOVE_RETRY_MAX_MS
from topics.log.reads.diff import DiffQuery
from topics.log.reads.match import Match, Operator
from topics.simulation.oracle import PromiseBroken
from topics.simulation.workload import NAMES, Workload
from topics.store.inline import bring_over_alone
from topics.store.opened import Opened
from topics.store.reading import read_page
from topics.testing.clock import ManualClock

ROUTERS: Final = ("r1", "r2", "r3", "r4", "r5", "r6")
_RED: Final = Match(Operator.EQ, b"red")
STANDING: Final = {  # source, dest, filter
    "all": ("orders", "orders.all", None),
    "red": ("orders", "orders.red", _RED),
    "again": ("orders.all", "orders.again", None),
}
_TRIES: Final = 8


class RouterWorkload(Workload):
    """Some of the wishes are for routers, of a few names, between any two topics, in cycles, too."""

    routers: tuple[str, ...] = ROUTERS

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.counts: Counter[str] = Counter()

    def command(self, heads: dict[str, int]) -> Command:
        rng = self._random
        if rng.random() < 0.85:
            return super().command(heads)
        name = rng.choice(ROUTERS)
        if rng.random() < 0.15:
            return DeleteRouter(router=name)
        source, dest = rng.sample(NAMES, 2)
        match = rng.choice((None, None, _RED))
        guarantee = rng.choice(("at_least_once", "at_least_once", "exactly_once"))
        return PutRouter(
            router=name, source=source, dest=dest, filter=match, guarantee=guarantee,
            allow_cycle=rng.random() < 0.5, preserve_node=rng.random() < 0.7,
        )  # fmt: skip

    def answered(self, ticket: Ticket) -> None:
        self.counts[type(ticket.command).__name__] += 1
        if isinstance(ticket.result(), BroughtOver):
            self.counts["late"] += 1


class StandingRouters(RouterWorkload):
    """Half of the wishes are for routers that stay, for records of their source, and of who reads and waits for copies.
    Nobody else writes to their topics, and nothing is deleted there.
    """

    names = (*NAMES, *dict.fromkeys(topic for ends in STANDING.values() for topic in ends[:2]))
    routers = (*ROUTERS, *STANDING)

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        durability = rng.choice((Durability.MEMORY, Durability.DISK, Durability.FSYNC))
        self._standing = TopicConfig(durability=durability)

    def command(self, heads: dict[str, int]) -> Command:
        rng = self._random
        if rng.random() < 0.5:
            return super().command(heads)
        kind = rng.choices(("put", "read", "append"), (30, 10, 60))[0]
        if kind == "read":
            return WaitForCopies(topic=rng.choice(self.names))
        if kind == "put":
            name = rng.choice(tuple(STANDING))
            source, dest, match = STANDING[name]
            return PutRouter(router=name, source=source, dest=dest, filter=match)
        records = self._records(rng.choice((1, 1, 2, 6, 40)))
        return Append(
            topic="orders", records=msgspec.structs.replace(records, ttl_ms=None), config=self._standing
        )

    def check_end(self, opened: Opened, clock: ManualClock) -> None:
        """Each dest is what its source says, behind where its router began."""
        engine = opened.engine
        for _ in range(_TRIES):  # a fault may have held one up as the store was opened
            clock.set(clock.now_ms() + MOVE_RETRY_MAX_MS)
            engine.tick()
            bring_over_alone(engine, opened.reader.read, opened.writers)
        for name, (source, dest, match) in STANDING.items():
            router = engine.catalog.routers.get(name)
            if router is None:
                continue
            self.counts[f"checked {name}"] += 1
            behind = (view for view in _views(opened, source) if view.seq > router.from_seq)
            expected = [view.data for view in behind if match is None or match.accepts(view.tag)]
            found = [view.data for view in _views(opened, dest)]
            self.counts["copies"] += len(found)
            if found != expected:
                raise PromiseBroken(
                    f"router {name!r}: {dest} has {len(found)} records, {source} {len(expected)} for it; the first that"
                    f" differs is number {_first_difference(found, expected)}"
                )


def _views(opened: Opened, topic: str) -> Iterator[FrameView]:
    """Every record that is there, also behind what is lost."""
    at, query = -1, DiffQuery(topic=topic)
    while query.from_seq > at:
        plan, views = read_page(query, opened.engine.plan_diff, opened.reader.read)
        yield from views
        at, query = query.from_seq, DiffQuery(topic=topic, from_seq=plan.next_from_seq)


def _first_difference(found: list[bytes], expected: list[bytes]) -> int:
    same = (one == other for one, other in zip(found, expected, strict=False))
    return next(
        (number for number, is_same in enumerate(same) if not is_same), min(len(found), len(expected))
    )
