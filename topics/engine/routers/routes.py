"""The routers that stand, as routes between lanes: kept with what the log says, one change after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from topics.engine.lane import Lane
from topics.engine.routers.route import RunningRouter
from topics.log.routers import Router, Routers

_NONE: Final[tuple[RunningRouter, ...]] = ()


class Routes(dict[int, RunningRouter]):
    """By the id of the router. `routers`: the catalog's."""

    def __init__(self, routers: Routers) -> None:
        super().__init__()
        self._routers = routers
        self._sources: dict[int, tuple[RunningRouter, ...]] = {}
        self._cyclic: dict[int, bool] = {}  # by the id of a router, of those of which somebody has asked

    def leading_from(self, topic_id: int) -> tuple[RunningRouter, ...]:
        """Those from a topic."""
        return self._sources.get(topic_id, _NONE)

    def put(self, router: Router, source: Lane, dest: Lane) -> None:
        """It stands; or it is another one from now on, and goes on where it was. An order that is out was for it as it
        was, and comes to nothing.
        """
        known = self.get(router.id)
        if known is not None:
            known.router, known.order = router, None
            known.cursor = known.sent = max(known.cursor, router.from_seq)
        else:
            self[router.id] = route = RunningRouter(router, source, dest)
            self._sources[source.topic_id] = (*self.leading_from(source.topic_id), route)
        self._cyclic.clear()

    def drop(self, router_id: int) -> None:
        """It has ended. An order that is out comes to nothing."""
        route = self.pop(router_id, None)
        if route is None:
            return
        topic_id = route.source.topic_id
        self._sources[topic_id] = tuple(one for one in self._sources[topic_id] if one is not route)
        if not self._sources[topic_id]:
            del self._sources[topic_id]
        self._cyclic.clear()

    def drop_touching(self, lane: Lane) -> None:
        """A topic has gone, and with it those from it and into it."""
        gone = [number for number, one in self.items() if lane in (one.source, one.dest)]
        sources = {self.pop(number).source.topic_id for number in gone}
        for topic_id in sources:
            rest = tuple(one for one in self._sources.pop(topic_id) if one.router.id in self)
            if rest:
                self._sources[topic_id] = rest
        self._cyclic.clear()

    def fall_back(self, shard: int) -> Iterator[Lane]:
        """What was on its way into topics of this shard has failed; the sources of it."""
        for router_id, route in self.items():
            if route.dest.shard == shard:
                route.cursor = route.sent = route.dest_topic.inbound[router_id].cursor
                yield route.source

    def is_cyclic(self, route: RunningRouter) -> bool:
        """Whether what it brings over may come by it again."""
        router = route.router
        found = self._cyclic.get(router.id)
        if found is None:
            found = self._routers.path(router.dest_id, router.source_id) is not None
            self._cyclic[router.id] = found
        return found
