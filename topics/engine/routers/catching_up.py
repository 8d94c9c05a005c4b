"""Who reads a dest finds there what its source held when he came: he waits until routers have brought it over
(semantics 8).

Copies in the shard of their source are published with it, so nobody waits for those. Into another shard they come
behind a sync and a read, and whatever is late comes by orders (`late`). That goes on by itself, once for all who wait.
A dest has one source, so a chain of topics leads to it; each of them is waited for, the farthest first.

Nobody waits for what does not come: a router that was refused and rests before it tries again, or one whose topics are
read-only. Who reads is then given what is there, and the router's own state says how far behind that is.
"""

from __future__ import annotations

from collections import deque

from topics.engine.commands import WaitForCopies
from topics.engine.lane import Lane
from topics.engine.replies import CopiesArrived
from topics.engine.routers.reading import Reading
from topics.engine.routers.route import RunningRouter
from topics.engine.state import EngineState
from topics.engine.tickets import Stage, Ticket


def is_behind(state: EngineState, topic: str) -> bool:
    """Whether who reads this topic now has something to wait for."""
    lane = state.lanes_by_name.get(topic)
    if lane is None or lane.topic is None or not lane.topic.inbound:
        return False
    return not all(_has(state, dest, _source_head(state, dest)) for dest in _chain(state, lane))


def propose_catch_up(state: EngineState, ticket: Ticket, _now_ms: int) -> None:
    """Answer when the topic has what its source holds now. Raises `Rejected`: topic_not_found."""
    command = ticket.command
    assert isinstance(command, WaitForCopies)
    lane, _ = state.topic(command.topic)
    _go_on(state, Reading(ticket, _chain(state, lane)))


def answer_caught_up(state: EngineState) -> None:
    """Those who wait for nothing any more, at the end of a call."""
    for topic_id, readings in list(state.readings.items()):
        dest = state.lanes.get(topic_id)
        while readings:
            first = readings[0]
            if first.ticket.stage is Stage.WAITING:
                if dest is not None and not _has(state, dest, first.head_seq):
                    break
                first.chain.pop()
                _go_on(state, first)
            readings.popleft()
        if not readings:
            del state.readings[topic_id]


def _go_on(state: EngineState, reading: Reading) -> None:
    """It waits for the next topic of its chain that is not up to date; or for none, and is answered.

    What its source holds is asked when it is the turn of that topic: by then that is up to date itself.
    """
    ticket, chain = reading.ticket, reading.chain
    while chain:
        reading.head_seq = _source_head(state, chain[-1])
        if not _has(state, chain[-1], reading.head_seq):
            if ticket.stage is Stage.NEW:
                ticket.move(Stage.WAITING)
            # Heads only grow, so whoever came first is done first.
            state.readings.setdefault(chain[-1].topic_id, deque()).append(reading)
            return
        chain.pop()
    state.finish(ticket, CopiesArrived())


def _chain(state: EngineState, dest: Lane) -> list[Lane]:
    """The dests that lead to this one, which is the first of them."""
    into, lane = state.catalog.routers.route_into, dest
    chain: dict[Lane, None] = {}
    while lane not in chain and (routers := into.get(lane.topic_id)):
        chain[lane] = None
        lane = state.lanes[routers[0].source_id]
    return list(chain)


def _source_head(state: EngineState, dest: Lane) -> int:
    routers = state.catalog.routers.route_into.get(dest.topic_id)
    return state.catalog.topics[routers[0].source_id].head_seq if routers else 0


def _has(state: EngineState, dest: Lane, head_seq: int) -> bool:
    """Whether all routers into it have dealt with their source up to there, or do not before something else happens."""
    routers = state.catalog.routers.route_into.get(dest.topic_id, ())
    routes = [state.routes[router.id] for router in routers]
    return all(route.dealt_seq >= head_seq or _is_held(state, route) for route in routes)


def _is_held(state: EngineState, route: RunningRouter) -> bool:
    source, dest = route.source, route.dest
    if route.failures or dest.read_only is not None or state.shards[dest.shard].read_only is not None:
        return True
    # Into another shard goes what is durable, and nothing more of this one will be.
    return state.shards[source.shard].read_only is not None and route.sent >= source.durable_seq
