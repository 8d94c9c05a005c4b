"""Putting a router and deleting it: frames on shard 0, synced, one change at a time (semantics 8, storage 3).

One at a time, so that no two puts close a cycle between them, or give a dest two sources. The source has nothing in
flight meanwhile: what a new router begins behind is known. What one that stands has on its way is there before
(`settling`): behind an answered deletion nothing is forwarded. Topics that are missing are created right before it on
the same shard, so there is no moment at which it could be refused with one of them made.
"""

from __future__ import annotations

import msgspec

from topics.codec.log.routers import GUARANTEES, RouterCreate, RouterDelete
from topics.engine.commands import DEFAULT_CONFIG, DeleteRouter, PutRouter
from topics.engine.lane import Lane
from topics.engine.replies import RouterDeleted, RouterPut, RouterState
from topics.engine.routers.looking import router_state, state_of
from topics.engine.routers.settling import publish_first, sync_first
from topics.engine.state import EngineState, no_topic
from topics.engine.tickets import Ticket
from topics.engine.writing.change import Barrier
from topics.engine.writing.creating import begin_topics, creations
from topics.kernel.config import Durability, TopicConfig
from topics.kernel.errors import Code, Rejected, invalid
from topics.kernel.ids import check_router_name, check_topic_name
from topics.log.routers import Router


def propose_put_router(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Put a router, once nothing of its source is in flight and no other definition is on its way."""
    command = ticket.command
    assert isinstance(command, PutRouter)
    check_definition(command)
    if state.routing is not None:
        state.ride(ticket, [state.routing])
        return
    source, dest = state.lanes_by_name.get(command.source), state.lanes_by_name.get(command.dest)
    for lane in (source, dest):
        if lane is not None and lane.blocked:
            state.park(lane, ticket)
            return
    if dest is None and not command.create_dest:
        raise no_topic(command.dest)
    standing = state.catalog.routers.get(command.router)
    _check_fan_in(state, command, source, dest)
    if standing is not None:
        _check_repoint(state, command, standing)
        if standing == _definition(command, standing):
            state.finish(ticket, RouterPut(created=False, router=router_state(state, command.router)))
            return
    if not command.allow_cycle and (standing is None or standing.allow_cycle):
        _check_cycle(state, command, source, dest)
    for lane in (source, dest):
        _check_kept(lane)
    limit = state.limits.routers
    if standing is None and limit and len(state.catalog.routers) >= limit:
        raise Rejected(Code.THROTTLED, f"the store has its {limit} routers", limit="routers", max=limit)
    if source is not None and source.in_flight:
        state.park(source, ticket)
        return
    if source is not None and standing is not None:
        state.check_writable(0, source)
        if not sync_first(state, source, state.routes[standing.id], now_ms):
            state.park(source, ticket)
            return
    _put(state, ticket, source, dest, standing, now_ms)


def _put(
    state: EngineState, ticket: Ticket, source: Lane | None, dest: Lane | None, standing: Router | None, now_ms: int
) -> None:  # fmt: skip
    """Nothing is against it: the topics that are missing, and behind them the router."""
    command = ticket.command
    assert isinstance(command, PutRouter)
    of_source = TopicConfig()
    if source is not None:
        assert source.topic is not None
        of_source = TopicConfig(durability=source.topic.config.durability)
    missing = [(command.source, DEFAULT_CONFIG)] if source is None else []
    missing += [(command.dest, of_source)] if dest is None else []
    made = creations(state, [(name, config, None) for name, config in missing], now_ms)
    lanes = {entry.lane.name: entry.lane for entry in made}
    source, dest = source or lanes[command.source], dest or lanes[command.dest]
    state.check_writable(0, source)
    first = standing or RouterCreate(
        state.next_topic_id + len(made), command.router, source.topic_id, dest.topic_id,
        from_seq=source.next_seq - 1,
    )  # fmt: skip
    if standing is not None and dest.shard == 0:  # what it has passed over was by what it is now
        first = msgspec.structs.replace(standing, from_seq=state.routes[standing.id].sent)
    definition = _definition(command, first)
    now_ms = _later(state, source, dest, now_ms)
    entry = _PutRouterEntry.of(source, [definition], now_ms, staged=True, must_sync=True, ticket=ticket)
    state.check_space(0, entry.size + sum(one.size for one in made), keep_reserve=True)
    begin_topics(state, made)
    state.next_topic_id = max(state.next_topic_id, definition.id + 1)
    entry.state, entry.definition, entry.created = state, definition, standing is None
    _begin(state, entry)


def propose_delete_router(state: EngineState, ticket: Ticket, now_ms: int) -> None:
    """Delete a router, once nothing of its source is in flight and no other definition is on its way."""
    command = ticket.command
    assert isinstance(command, DeleteRouter)
    check_router_name(command.router)
    if state.routing is not None:
        state.ride(ticket, [state.routing])
        return
    standing = state.catalog.routers.get(command.router)
    if standing is None:
        state.finish(ticket, RouterDeleted(router=command.router, deleted=False))
        return
    source = state.lanes[standing.source_id]
    if source.blocked or source.in_flight:
        state.park(source, ticket)
        return
    state.check_writable(0, source)
    if not publish_first(state, source, [state.routes[standing.id]]):
        state.park(source, ticket)
        return
    ended = RouterDelete(standing.id)
    now_ms = _later(state, source, state.lanes[standing.dest_id], now_ms)
    entry = _DeleteRouterEntry.of(source, [ended], now_ms, staged=True, must_sync=True, ticket=ticket)
    state.check_space(0, entry.size, keep_reserve=False)
    entry.state, entry.definition = state, standing
    _begin(state, entry)


class _RouterEntry(Barrier, eq=False, kw_only=True):
    """A router that is another one behind it."""

    state: EngineState | None = None
    definition: Router | None = None

    def parts(self) -> tuple[EngineState, Router]:
        assert self.state is not None
        assert self.definition is not None
        return self.state, self.definition

    def release(self) -> None:
        super().release()
        state, _ = self.parts()
        assert state.routing is self.ticket
        state.routing = None


class _PutRouterEntry(_RouterEntry, eq=False, kw_only=True):
    """A router that comes to stand, or changes. `told`: as it then is; its dest may go in the same batch."""

    created: bool = False
    told: RouterState | None = None

    def settle(self) -> None:
        state, definition = self.parts()
        state.routes.put(definition, self.lane, state.lanes[definition.dest_id])
        self.told = state_of(state, definition)

    def reply(self) -> RouterPut:
        assert self.told is not None
        return RouterPut(created=self.created, router=self.told)


class _DeleteRouterEntry(_RouterEntry, eq=False, kw_only=True):
    """A router that goes."""

    def settle(self) -> None:
        state, definition = self.parts()
        state.routes.drop(definition.id)

    def reply(self) -> RouterDeleted:
        _, definition = self.parts()
        return RouterDeleted(router=definition.name, deleted=True)


def _begin(state: EngineState, entry: _RouterEntry) -> None:
    """The change is on its way, its source waits for it, and so does every other definition."""
    assert entry.lane.barrier is None
    assert state.routing is None
    state.routing = entry.lane.barrier = entry.ticket
    state.enqueue(0, entry)


def _later(state: EngineState, source: Lane, dest: Lane, now_ms: int) -> int:
    """When a definition is made: in another log than the records of its topics, later than any of them."""
    return state.time.push(now_ms) if source.shard or dest.shard else now_ms


def _definition(command: PutRouter, standing: Router) -> Router:
    """What was asked for, of the router that stands or is to."""
    wire = None if command.filter is None else command.filter.wire()
    return msgspec.structs.replace(
        standing, preserve_node=command.preserve_node, preserve_tag=command.preserve_tag,
        filter=None if wire is None else (wire[0], wire[1], wire[2]), allow_cycle=command.allow_cycle,
        guarantee=command.guarantee,
    )  # fmt: skip


def check_definition(command: PutRouter) -> None:
    """What no router can be, whatever is there. Raises `Rejected(invalid_request)`, naming the field."""
    check_router_name(command.router)
    check_topic_name(command.source, field="source")
    check_topic_name(command.dest, field="dest")
    if command.source == command.dest:
        raise invalid("dest", f"must be another topic than the source, {command.source!r}")
    if command.guarantee not in GUARANTEES:
        raise invalid("guarantee", f"must be one of {', '.join(GUARANTEES)}, not {command.guarantee!r:.40}")


def _check_fan_in(state: EngineState, command: PutRouter, source: Lane | None, dest: Lane | None) -> None:
    """A dest has one source."""
    routers = () if dest is None else state.catalog.routers.route_into.get(dest.topic_id, ())
    source_id = 0 if source is None else source.topic_id
    for other in routers:
        if other.source_id != source_id and other.name != command.router:
            there = state.catalog.topics[other.source_id].name
            raise Rejected(
                Code.TOPIC_EXISTS_INCOMPATIBLE,
                f"router {other.name!r} forwards into topic {command.dest!r} from {there!r}, and a dest has one source",
                topic=command.dest,
                router=other.name,
                source=there,
                reason="router_dest_fan_in",
            )


def _check_repoint(state: EngineState, command: PutRouter, standing: Router) -> None:
    """A router keeps its topics."""
    topics = state.catalog.topics
    source, dest = topics[standing.source_id].name, topics[standing.dest_id].name
    if (source, dest) != (command.source, command.dest):
        raise Rejected(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"router {standing.name!r} forwards from {source!r} into {dest!r}, and keeps its topics: delete it first",
            router=standing.name,
            source=source,
            dest=dest,
            reason="router_repoint",
        )


def _check_cycle(state: EngineState, command: PutRouter, source: Lane | None, dest: Lane | None) -> None:
    """No record comes back to where it was, unless that was asked for."""
    if source is None or dest is None:
        return
    path = state.catalog.routers.path(dest.topic_id, source.topic_id)
    if path is not None:
        cycle = [command.source, *(state.catalog.topics[topic_id].name for topic_id in path)]
        raise Rejected(
            Code.ROUTER_CYCLE,
            f"router {command.router!r} would forward in a cycle, {' > '.join(cycle):.300}:"
            " leave one router out, or give allow_cycle, and a record ends after 8 of them",
            router=command.router,
            cycle=cycle,
        )


def _check_kept(lane: Lane | None) -> None:
    """Neither end is forgotten by a restart while the other is not."""
    topic = None if lane is None else lane.topic
    if topic is not None and topic.config.durability is Durability.EPHEMERAL:
        raise Rejected(
            Code.TOPIC_EXISTS_INCOMPATIBLE,
            f"topic {topic.name!r} is ephemeral, and a router's topics are kept: make it memory, disk or fsync first",
            topic=topic.name,
            reason="router_ephemeral",
        )
