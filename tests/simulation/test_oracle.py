"""What a crash may leave, by the oracle: of each shard as many writes as the state that is found needs."""

from __future__ import annotations

import copy

from tests.support.frames import TS
from topics.codec.log.control import EvictWatermark, TopicCreate, TopicDelete, encode_control
from topics.codec.log.routers import RouterCreate, RouterDelete
from topics.engine.apply import Catalog
from topics.kernel.config import TopicConfig
from topics.kernel.ids import shard_of
from topics.simulation.oracle import ShardWrites, Unit, facts, find_prefixes, fold

SOURCE, DEST, ROUTER = 1, next(n for n in range(2, 20) if shard_of(n, 2) == 1), 30


def test_the_end_of_a_router_into_another_shard_is_looked_for_in_the_log_that_tells_it():
    base = Catalog()
    for name, topic_id in (("source", SOURCE), ("dest", DEST)):
        create = TopicCreate(name=name, epoch=1, config=TopicConfig().echo(), ceiling=0)
        fold(base, encode_control(create, topic_id=topic_id, ts=TS))
    router = RouterCreate(id=ROUTER, name="r", source_id=SOURCE, dest_id=DEST)
    fold(base, encode_control(router, topic_id=SOURCE, ts=TS))
    logs = [ShardWrites(), ShardWrites()]
    end = encode_control(RouterDelete(id=ROUTER), topic_id=SOURCE, ts=TS)
    logs[0].units.append(Unit(end, "", len(end)))

    ended = copy.deepcopy(base)
    fold(ended, end)
    for left, kept in ((base, [0, 0]), (ended, [1, 0])):
        found = find_prefixes(base, logs, facts(left), at_least=[0, 0], losses=False, machine_restarted=True)

        assert kept == found


def test_a_write_to_a_topic_whose_delete_lies_in_another_log_may_have_survived_though_nothing_shows_it():
    base = Catalog()
    create = TopicCreate(name="dest", epoch=1, config=TopicConfig().echo(), ceiling=0)
    fold(base, encode_control(create, topic_id=DEST, ts=TS))
    logs = [ShardWrites(), ShardWrites()]
    for log, payload in zip(logs, (TopicDelete(), EvictWatermark()), strict=True):
        data = encode_control(payload, topic_id=DEST, ts=TS)
        log.units.append(Unit(data, "", len(data)))
    left = copy.deepcopy(base)
    fold(left, logs[0].units[0].data)

    for longest, kept in ((False, [1, 0]), (True, [1, 1])):
        found = find_prefixes(
            base, logs, facts(left), at_least=[0, 0], losses=False, machine_restarted=False, longest=longest
        )

        assert found == kept
