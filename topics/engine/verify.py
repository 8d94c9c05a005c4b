"""The numbered invariants as assertions, and the canonical digest of the state (reliability 1, storage 4).

`check_state` runs at the end of every engine call under test. `digest` is what "byte-identical state" means: the
state as one canonical encoding, so that two recoveries of one log compare equal. File ids, offsets and whatever else a
rewrite of a segment changes are no state.
"""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import compress, pairwise

import msgspec
import xxhash

from topics.engine.apply import CatalogView
from topics.engine.deadlines.timers import SERVE, WAITED
from topics.engine.image import image_of
from topics.engine.lane import Lane
from topics.engine.state import EngineState
from topics.engine.tickets import Stage
from topics.kernel.config import Durability
from topics.log.facts import OF_RECORDS, STANDING, digest_facts
from topics.log.index import IS_LIVE, LIVE, NODED, TAGGED, TIMED, Index
from topics.log.kinds import kind_of
from topics.log.past import LOST, Gone, joined
from topics.log.regions import SegmentId, WalFileId
from topics.log.tags import Labels
from topics.log.topic import Topic


def check_state(state: EngineState) -> None:
    """Assert what must hold between any two calls."""
    for topic in state.catalog.topics.values():
        check_topic(topic)
    for lane in state.lanes.values():
        check_lane(lane)
    check_moves(state)
    check_schedules(state)
    check_routers(state)
    check_routes(state)
    check_readings(state)
    check_queues(state)
    on_their_way = [
        entry
        for shard in state.shards
        for entry in (*shard.pending, *(shard.in_flight.entries if shard.in_flight is not None else ()))
    ]
    waiting = {id(entry.lane) for entry in on_their_way}  # a topic's deletion goes by shard 0
    for shard in state.shards:
        assert shard.pending_bytes == sum(entry.size for entry in shard.pending)
        if shard.quiet:
            for lane in state.lanes.values():
                if lane.shard == shard.number and lane.topic is not None and id(lane) not in waiting:
                    _check_nothing_reserved(lane)


def check_moves(state: EngineState) -> None:
    """Whatever is on its way to another topic will be ordered, unless nothing is written any more."""
    for topic in state.catalog.topics.values():
        if topic.moves and state.shards[state.lanes[topic.topic_id].shard].read_only is None:
            for move in topic.moving().values():
                assert topic.topic_id in state.moves[move.dest].sources
    for into in state.moves.values():
        assert into.reserved >= 0
        assert into.order is not None or not (into.is_appended or into.is_ending)


def check_schedules(state: EngineState) -> None:
    """Each has a name and an id of its own, and whatever waits for its time is there."""
    catalog = state.catalog
    found = {
        standing.definition.name: (topic.topic_id, schedule_id)
        for topic in catalog.topics.values()
        for schedule_id, standing in topic.schedules.items()
    }
    assert catalog.schedules == found
    assert len({schedule_id for _, schedule_id in found.values()}) == len(found)
    assert all(schedule_id < catalog.next_topic_id for _, schedule_id in found.values())
    for schedule_id, alarm in state.alarms.items():
        assert schedule_id in catalog.topics[alarm.topic_id].schedules


def check_routers(state: EngineState) -> None:
    """Each has a name and an id of its own and joins two topics that are there; a dest has one source, and knows how
    far each router into it has come.
    """
    catalog = state.catalog
    routers = list(catalog.routers.values())
    assert [router.name for router in routers] == list(catalog.routers)
    assert len({router.id for router in routers}) == len(routers)
    assert all(router.id < catalog.next_topic_id for router in routers)
    for side, end in ((catalog.routers.routes_from, "source_id"), (catalog.routers.route_into, "dest_id")):
        assert sorted(one.id for ones in side.values() for one in ones) == sorted(one.id for one in routers)
        assert all(getattr(one, end) == topic_id and ones for topic_id, ones in side.items() for one in ones)
    for topic_id, ones in catalog.routers.route_into.items():
        assert len({one.source_id for one in ones}) == 1
        assert ones[0].source_id in catalog.topics
        assert catalog.topics[topic_id].inbound.keys() == {one.id for one in ones}
    assert not any(
        topic.inbound
        for topic_id, topic in catalog.topics.items()
        if topic_id not in catalog.routers.route_into
    )


def check_routes(state: EngineState) -> None:
    """What a router's dest says of how far it has come is what is published; who is late is going to be brought on."""
    routers = state.catalog.routers
    assert {route.router for route in state.routes.values()} == set(routers.values())
    for router_id, route in state.routes.items():
        source, dest = route.source, route.dest
        cursor = route.dest_topic.inbound[router_id].cursor
        # A definition is synced, and what it begins behind need not be: a restart is about to tell that it is lost.
        untold = route.source_topic.ceiling if source.in_flight else 0
        assert cursor <= route.cursor <= route.sent <= max(source.next_seq - 1, untold)
        assert cursor <= max(route.source_topic.head_seq, untold)
        assert cursor == route.cursor or dest.in_flight
        if state.shards[source.shard].read_only is None and route.sent < route.source_topic.head_seq:
            waits_for_sync = dest.shard != source.shard and source.durable_seq <= route.sent
            assert route.order is not None or route.due_ms is not None or waits_for_sync


def check_readings(state: EngineState) -> None:
    """Who waits for copies waits for a dest, and those who came first are done first."""
    for topic_id, readings in state.readings.items():
        assert state.catalog.topics[topic_id].inbound
        assert readings[0].ticket.stage is Stage.WAITING
        heads = [one.head_seq for one in readings]
        assert heads == sorted(heads)


def check_queues(state: EngineState) -> None:
    """No lease that runs out, rest or wait is forgotten: each queue is looked at when time alone changes it."""
    for lane in state.lanes.values():
        queue = lane.queue
        if queue is None or lane.topic is None or lane.barrier is not None:
            continue
        for timers, kind, due_ms in (
            (state.by_time, SERVE, queue.jobs.next_due_ms()),
            (state.by_timer, WAITED, queue.first_end_ms()),
        ):
            at_ms = timers.at_ms(kind, lane.topic_id)
            assert due_ms is None or (at_ms is not None and at_ms <= due_ms)


def check_topic(topic: Topic) -> None:
    """I-01 … I-05 for one topic."""
    index, floors = topic.index, topic.floors
    assert 1 <= floors.evict_floor <= index.base_seq <= index.head_seq + 1  # I-01
    slots = index.stop - index.start
    _check_slotless(topic)
    assert slots == index.head_seq + 1 - index.base_seq - index.slotless.count_below(
        index.head_seq + 1
    )  # I-02
    for column in (index.ts, index.offsets, index.lengths, index.sizes):
        assert len(column) == index.stop  # I-02
    for optional in (index.tag_ids, index.node_ids, index.expires, index.jobs, index.key_ids):
        assert optional is None or len(optional) == index.stop  # I-02
    live = [at for at in range(index.start, index.stop) if index.flags[at] & LIVE]
    assert not slots or index.flags[index.start] & LIVE  # dead slots at the front are popped
    assert index.live_count == len(live)  # I-03
    assert index.live_bytes == sum(index.sizes[at] for at in live)  # I-03
    _check_names(topic, live)
    _check_places(topic)
    kind_of(topic).check(topic)
    assert all(at.seq <= index.head_seq for _, at in topic.consumers.sorted())  # nobody has read more
    for lost in index.lost:
        # I-05: a range the floor has passed is folded into the reasons
        assert lost.last >= floors.evict_floor
    assert all(last_seq < max(floors.evict_floor, 2) for last_seq in floors.reasons.values())  # I-05
    assert (floors.evict_floor == 1) == (not floors.reasons)  # I-05


def check_lane(lane: Lane) -> None:
    """The allocator against the topic."""
    topic = lane.topic
    if topic is None:
        return
    # I-08: assigned = published + reserved
    assert lane.next_seq == topic.head_seq + 1 + lane.reserved_records
    assert lane.durable_seq <= lane.written_seq <= topic.head_seq
    if topic.config.durability != Durability.FSYNC:
        assert lane.ceiling <= lane.ceiling_asked  # I-08
    if topic.config.durability is Durability.EPHEMERAL:
        assert lane.durable_seq == 0
    else:  # I-08: what a power cut now would take back was never published
        assert topic.head_seq <= max(lane.ceiling, lane.durable_seq)


def digest(catalog: CatalogView) -> str:
    """XXH3-128 of the canonical encoding, in hex."""
    return xxhash.xxh3_128_hexdigest(canonical(catalog))


def canonical(catalog: CatalogView) -> bytes:
    """The state as bytes: equal states give equal bytes, and the reverse."""
    topics = [_topic(topic) for _, topic in sorted(catalog.topics.items())]
    return msgspec.msgpack.encode(
        {
            "next_topic_id": catalog.next_topic_id,
            "epochs": sorted(catalog.epochs.items()),
            "names": sorted(catalog.topic_ids.items()),
            "topics": topics,
            **({"routers": image_of(catalog.routers.values())} if catalog.routers else {}),
        }
    )


def _topic(topic: Topic) -> dict[str, object]:
    index = topic.index
    return {
        "id": topic.topic_id,
        **digest_facts(topic, STANDING),
        "live": (index.live_count, index.live_bytes),
        "ended": index.ended(index.start, index.stop),  # with a slot or without: which, is no state
        "ts": _of_live(index, index.ts).tobytes(),
        "lengths": _of_live(index, index.lengths).tobytes(),
        "sizes": _of_live(index, index.sizes).tobytes(),
        "flags": bytes(_of_live(index, index.flags)),
        "tags": [(name, index.tags.seqs(number).tolist()) for name, number in index.tags.labels.items()],
        "nodes": _named(index, index.node_ids, index.nodes),
        "expires": [] if index.expires is None else _sparse(_of_live(index, index.expires)),
        **_jobs(index),
        **digest_facts(topic, (*OF_RECORDS, *kind_of(topic).facts)),
    }


def _of_live(index: Index, column: array[int] | bytearray) -> array[int]:
    """A column of what is live: of the dead there is an end and no more."""
    live = index.flags[index.start :].translate(IS_LIVE)
    typecode = "B" if isinstance(column, bytearray) else column.typecode
    return array(typecode, compress(column[index.start :], live))


def _jobs(index: Index) -> dict[str, object]:
    """What only a queue knows of its records, where it knows something."""
    columns = {
        "job_columns": [] if index.jobs is None else _sparse(_of_live(index, index.jobs)),
        "key_columns": _named(index, index.key_ids, index.keys),
    }
    return {name: column for name, column in columns.items() if column}


def _named(index: Index, ids: array[int] | None, labels: Labels) -> list[tuple[int, bytes]]:
    """The live slots that have such a name, and the name."""
    if ids is None:
        return []
    numbers = _of_live(index, ids)
    return [(at, labels.name(number)) for at, number in enumerate(numbers) if number]


def _sparse(values: array[int]) -> list[tuple[int, int]]:
    return [(i, value) for i, value in enumerate(values) if value]


def _check_names(topic: Topic, live: list[int]) -> None:
    index = topic.index
    by_tag: dict[int, list[int]] = {}
    nodes, keys = Counter[int](), Counter[int]()
    for at in live:
        flags = index.flags[at]
        if flags & TAGGED:
            assert index.tag_ids is not None
            by_tag.setdefault(index.tag_ids[at], []).append(index.seq_at(at))
        if flags & NODED:
            assert index.node_ids is not None
            nodes[index.node_ids[at]] += 1
        if index.key_ids is not None and index.key_ids[at]:
            keys[index.key_ids[at]] += 1
        assert not flags & TIMED or (index.expires is not None and index.expires[at])
    held = {number: index.tags.seqs(number).tolist() for _, number in index.tags.labels.items()}
    assert held == by_tag  # I-04
    for labels, holders in ((index.nodes, nodes), (index.keys, keys)):
        assert {number: labels.holders(number) for _, number in labels.items()} == holders  # I-03, for names
    assert index.of_queue or (index.jobs is None and index.key_ids is None)


def _check_places(topic: Topic) -> None:
    """Up to `stored_seq` every slot is in a segment, above it in none (I-19)."""
    stored = topic.segments.stored_seq
    assert stored <= topic.head_seq
    base, head = topic.index.base_seq, topic.head_seq
    for seq, stop, source in topic.regions.spans(head + 1):
        if stop <= base:
            continue
        if isinstance(source, SegmentId):
            segment = topic.segments.holds(max(seq, base))
            assert segment is not None
            assert source == SegmentId(topic.topic_id, segment.first)
            assert segment.last >= min(stop, head + 1) - 1 or topic.index.lost.at(segment.last + 1)
        elif isinstance(source, WalFileId):
            assert stop > stored + 1 or topic.index.position(seq) == topic.index.position(stop)


def _check_slotless(topic: Topic) -> None:
    """What has no slot is lost, or died where nobody needs its place; it is between slots, or behind them (I-02)."""
    index = topic.index
    runs = list(index.slotless)
    lost = joined(Gone(lost.first, lost.last, LOST) for lost in index.lost if lost.first > index.base_seq)
    assert lost == [run for run in runs if run.end == LOST]
    assert not runs or index.base_seq < runs[0].first <= runs[-1].last <= index.head_seq
    assert all(a.last < b.first for a, b in pairwise(runs))
    if topic.config.durability is not Durability.EPHEMERAL:
        assert all(run.last <= topic.segments.stored_seq for run in runs if run.end != LOST)


def _check_nothing_reserved(lane: Lane) -> None:
    reserved = lane.reservations()
    assert not any(reserved.values()), (lane.name, reserved)
    assert lane.in_flight == 0
