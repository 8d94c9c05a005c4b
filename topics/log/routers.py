"""Routers as the log leaves them: which there are, by name and by the topics they join, and how far each has come.

The definitions are shard 0's; how far a router has come is told by the log of its dest, where the copies are. A router
begins where its definition says, once, and one that has ended is heard of no more: ids are never used again, so the two
logs may be folded in either order (I-09).
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from topics.codec.log.routers import RouterCreate
from topics.kernel.limits import FILTERS_CACHED_MAX, U64_MAX
from topics.log.reads.match import Match, parse_match

Router = RouterCreate  # one that stands is what was last said of it


class Inbound(NamedTuple):
    """Of a router, in its dest: the last seq of its source that it has dealt with, and the copies made so far."""

    cursor: int
    total: int


class Routers(dict[str, Router]):
    """Those of a catalog, by name. `routes_from`: by the id of their source, `route_into`: by that of their dest."""

    __slots__ = ("route_into", "routes_from")

    def __init__(self) -> None:
        super().__init__()
        self.routes_from: dict[int, tuple[Router, ...]] = {}
        self.route_into: dict[int, tuple[Router, ...]] = {}

    def put(self, router: Router) -> None:
        """It stands, instead of what was known of it."""
        before = self.get(router.name)
        if before is not None:
            self.drop(before)
        self[router.name] = router
        for side, topic_id in ((self.routes_from, router.source_id), (self.route_into, router.dest_id)):
            side[topic_id] = (*side.get(topic_id, ()), router)

    def against(self, router: Router) -> list[Router]:
        """Those that cannot stand beside this one: of its name, of its id, or from another topic into its dest."""
        found = [one for one in self.route_into.get(router.dest_id, ()) if one.source_id != router.source_id]
        found += [
            one
            for one in (self.get(router.name), self.identified(router.source_id, router.id))
            if one is not None
        ]
        return [
            one
            for one in found
            if (one.id, one.name, one.dest_id) != (router.id, router.name, router.dest_id)
        ]

    def drop(self, router: Router) -> None:
        """It stands no more; nothing if it does not."""
        if self.get(router.name) is not router:
            return
        del self[router.name]
        for side, topic_id in ((self.routes_from, router.source_id), (self.route_into, router.dest_id)):
            rest = tuple(one for one in side[topic_id] if one is not router)
            if rest:
                side[topic_id] = rest
            else:
                del side[topic_id]

    def drop_touching(self, topic_id: int) -> tuple[Router, ...]:
        """Those from a topic and those into it stand no more. What others have is gone through once, however many."""
        gone = self.touching(topic_id)
        for router in gone:
            del self[router.name]
        for side, ends in (
            (self.routes_from, {one.source_id for one in gone}),
            (self.route_into, {one.dest_id for one in gone}),
        ):
            for end in ends:
                rest = tuple(one for one in side[end] if topic_id not in (one.source_id, one.dest_id))
                if rest:
                    side[end] = rest
                else:
                    del side[end]
        return gone

    def identified(self, source_id: int, router_id: int) -> Router | None:
        """The router with this id, from that topic."""
        return next((one for one in self.routes_from.get(source_id, ()) if one.id == router_id), None)

    def touching(self, topic_id: int) -> tuple[Router, ...]:
        """Those from a topic, and those into it."""
        return (*self.routes_from.get(topic_id, ()), *self.route_into.get(topic_id, ()))

    def path(self, start_id: int, goal_id: int) -> list[int] | None:
        """The ids of the topics that records pass from one to the other, both included, the fewest; None: they never
        get there.
        """
        came_from = {start_id: 0}
        frontier = [start_id]
        while frontier and goal_id not in came_from:
            found: list[int] = []
            for topic_id in frontier:
                for router in self.routes_from.get(topic_id, ()):
                    if router.dest_id not in came_from:
                        came_from[router.dest_id] = topic_id
                        found.append(router.dest_id)
            frontier = found
        if goal_id not in came_from:
            return None
        path = [goal_id]
        while path[-1] != start_id:
            path.append(came_from[path[-1]])
        return path[::-1]


@lru_cache(maxsize=FILTERS_CACHED_MAX)
def match_of(filter_: tuple[str, str, str]) -> Match:
    """What a filter accepts. One that a frame told of is always one."""
    return parse_match(filter_, tag_bytes_max=U64_MAX)
