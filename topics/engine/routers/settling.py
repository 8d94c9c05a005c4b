"""What a router has on its way is there before the router is another one, or ends (semantics 8).

Definitions lie in shard 0's log and copies in dest's. So else a copy could come behind an answered deletion, and a
crash could leave a changed router that decides anew what was decided by what it had been. Where dest is in shard 0 the
one log keeps the order.

The source waits meanwhile, as for any change of it: nothing is written to it, and nothing brought over from it
(`late`).
"""

from __future__ import annotations

from collections.abc import Iterable

from topics.engine.batch import Entry
from topics.engine.lane import Lane
from topics.engine.routers.following import Copies
from topics.engine.routers.route import RunningRouter
from topics.engine.state import EngineState


def publish_first(state: EngineState, source: Lane, routes: Iterable[RunningRouter]) -> bool:
    """Have what these routers from it bring over published. False: not yet; who parks at the source is woken then."""
    assert not source.in_flight
    on_its_way = [
        route
        for route in routes
        if route.dest.shard != 0 and route.cursor > route.dest_topic.inbound[route.router.id].cursor
    ]
    for route in on_its_way:
        _wait_for(state, source, route)
    return not on_its_way


def sync_first(state: EngineState, source: Lane, route: RunningRouter, now_ms: int) -> bool:
    """Have all that the router has dealt with, also what it passed over, synced in dest's log. False: as above.

    Raises:
        Rejected: dest is read-only, or its log has no room to tell how far the router is.
    """
    assert not source.in_flight
    dest = route.dest
    if dest.shard == 0 or route.durable == route.sent:
        return True
    state.check_writable(dest.shard, dest)
    if route.cursor < route.sent:
        copies = Copies(state, now_ms)
        copies.tell(route, route.sent)
        state.check_space(dest.shard, copies.size, keep_reserve=False)
        copies.begin(staged=False, behind=False)
    _wait_for(state, source, route)
    return False


def _wait_for(state: EngineState, source: Lane, route: RunningRouter) -> None:
    state.enqueue(
        route.dest.shard,
        _SettledEntry(
            lane=source, route=route, sent=route.sent,
            items=(), chunks=(), size=0, frames=0, staged=True, must_sync=True,
        ),
    )  # fmt: skip


class _SettledEntry(Entry, eq=False, kw_only=True):
    """A place in the log of a dest up to which all is synced. It is of the source, which waits for it."""

    lane: Lane
    route: RunningRouter
    sent: int

    def settle(self) -> None:
        self.route.durable = self.sent
