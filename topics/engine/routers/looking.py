"""What there is to be told of routers: nothing here changes anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from topics.engine.replies import RouterState
from topics.engine.routers.catching_up import is_behind
from topics.engine.state import EngineState
from topics.kernel.errors import Code, Rejected
from topics.log.routers import Router


def router_state(state: EngineState, name: str) -> RouterState:
    """A router as published.

    Raises:
        Rejected: router_not_found.
    """
    router = state.catalog.routers.get(name)
    if router is None:
        raise Rejected(Code.ROUTER_NOT_FOUND, f"router {name!r} does not exist", router=name)
    return state_of(state, router)


def state_of(state: EngineState, router: Router) -> RouterState:
    """One that stands."""
    topics = state.catalog.topics
    source, dest = topics[router.source_id], topics[router.dest_id]
    cursor = state.routes[router.id].dealt_seq
    return RouterState(
        source=source.name, dest=dest.name, definition=router, cursor=cursor,
        lag=max(source.head_seq - cursor, 0), forwarded_total=dest.inbound[router.id].total,
    )  # fmt: skip


class RouterDesk:
    """The engine's side of routers for who asks: reads of what is published."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    def state(self, name: str) -> RouterState:
        """As `router_state`."""
        return router_state(self._state, name)

    def is_behind(self, topic: str) -> bool:
        """Whether who reads a topic waits: `WaitForCopies` is answered when he does so no more."""
        return is_behind(self._state, topic)

    def dests_behind(self, source: str) -> list[str]:
        """The dests of routers from a topic of which the same is true."""
        state, topic_id = self._state, self._state.catalog.topic_ids.get(source, 0)
        names = (route.dest.name for route in state.routes.leading_from(topic_id))
        return [name for name in names if is_behind(state, name)]

    def topics_of(self, name: str) -> tuple[str, str] | None:
        """The topics that a router joins, source and dest; None if there is no such router."""
        router = self._state.catalog.routers.get(name)
        return None if router is None else self._topics(router)

    def names(
        self, prefix: str = "", after: str = "", count_max: int | None = None, *,
        source: str | None = None, dest: str | None = None, sees: Callable[[str], bool] = bool,
    ) -> Sequence[str]:  # fmt: skip
        """The first so many names, ascending, that start with `prefix` and come after `after`, from this source and
        into this dest, of those whose name and topics it `sees`.
        """
        names = sorted(
            router.name
            for router in self._joining(source, dest)
            if router.name.startswith(prefix) and router.name > after and self._is_seen(router, sees)
        )
        return names if count_max is None else names[:count_max]

    def count(self, sees: Callable[[str], bool] = bool) -> int:
        """How many there are of which it `sees` name and topics."""
        return sum(self._is_seen(router, sees) for router in self._state.catalog.routers.values())

    def _joining(self, source: str | None, dest: str | None) -> Iterable[Router]:
        """Those from this topic, and into that one."""
        routers, topic_ids = self._state.catalog.routers, self._state.catalog.topic_ids
        source_id, dest_id = topic_ids.get(source or "", 0), topic_ids.get(dest or "", 0)
        if dest is not None:
            found = routers.route_into.get(dest_id, ())
            return found if source is None else [one for one in found if one.source_id == source_id]
        return routers.values() if source is None else routers.routes_from.get(source_id, ())

    def _is_seen(self, router: Router, sees: Callable[[str], bool]) -> bool:
        return sees(router.name) and all(map(sees, self._topics(router)))

    def _topics(self, router: Router) -> tuple[str, str]:
        topics = self._state.catalog.topics
        return topics[router.source_id].name, topics[router.dest_id].name
