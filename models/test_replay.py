"""Replay equivalence (I-09): the bytes of the log, folded from empty, give the state that live commands gave.

Several topics of all classes, on one shard or two, with commands overlapping in flight. Each run and control frame is
caught as `apply` gets it live and compared with what a scan of the bytes finds.
"""

from contextlib import suppress

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.engine.driving import Driver, config, records
from topics.codec.log.frame import Run
from topics.engine import verify
from topics.engine.apply import Catalog, apply
from topics.engine.commands import (
    Append,
    CommitConsumer,
    DeleteConsumer,
    DeleteRecords,
    DeleteRouter,
    DeleteTopic,
    PutConsumer,
    PutMode,
    PutRouter,
    PutTopic,
    Sync,
)
from topics.kernel.config import Durability
from topics.kernel.errors import Rejected
from topics.log.reads.match import parse_match
from topics.log.regions import WalFileId

pytestmark = [pytest.mark.invariant("I-09"), pytest.mark.rule("S2.7", "S6.4", "S6.7")]

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
columns = st.fixed_dictionaries(
    {},
    optional={
        "tag": st.sampled_from([b"x", b"xy", b"z"]),
        "node": st.sampled_from([b"n", b"m"]),
        "key": st.just(b"k"),
        "meta": st.just(b'{"a":"b"}'),
        "content_type": st.just(b"text/plain"),
        "ttl_ms": st.integers(0, 3000),
        "compressed": st.just(True),
    },
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.sampled_from([0, 10, 1500]),
        "cap_records": st.sampled_from([0, 2, 5]),
        "cap_bytes": st.sampled_from([0, 30]),
        "discard": st.sampled_from(["old", "reject"]),
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "dedup_window_ms": st.sampled_from([0, 2000]),
        "dedup_max_entries": st.sampled_from([0, 1, 3]),
        "idempotency_window_ms": st.sampled_from([0, 2000, 100_000]),
    },
)
dedup_ids = st.lists(st.sampled_from([b"", b"1", b"2", b"3", b"4"]), min_size=4, max_size=4)


class Replay(RuleBasedStateMachine):
    """Commands at random; whenever nothing is in flight, the log is read again."""

    @initialize(shards=st.integers(1, 2))
    def begin(self, shards):
        self.driver = Driver(shards=shards)
        self.written = 0

    @rule(
        topic=names, count=st.integers(1, 4), given=columns, ids=dedup_ids | st.none(),
        key=st.none() | st.sampled_from([b"k1", b"k2"]), sync=st.booleans(), create=st.booleans(),
        new=configs,
    )  # fmt: skip
    def append(self, topic, count, given, ids, key, sync, create, new):
        self.written += 1
        extra = {} if ids is None else {"dedup_id": ids[:count]}
        columns = records(*range(self.written, self.written + count), **given, **extra)
        command = Append(
            topic=topic, records=columns, idempotency_key=key, create=create, config=config(**new)
        )
        self.propose(command, sync=sync)

    @rule(
        topic=names,
        back=st.none() | st.integers(0, 6),
        match=st.sampled_from([None, "x", ["tag", "Glob", "x*"]]),
    )
    def delete(self, topic, back, match):
        lane = self.driver.engine.state.lanes_by_name.get(topic)
        before_seq = None if back is None or lane is None else max(0, lane.next_seq - back)
        given = None if match is None else parse_match(match, tag_bytes_max=256)
        self.propose(DeleteRecords(topic=topic, before_seq=before_seq, match=given))

    @rule(topic=names, given=configs, mode=st.sampled_from(PutMode))
    def put(self, topic, given, mode):
        self.propose(PutTopic(topic=topic, config=config(**given), mode=mode, given=frozenset(given)))

    @rule(topic=names)
    def empty_and_change_class(self, topic):
        """To or from ephemeral: allowed while empty, and the log has to be told what it never heard."""
        self.drain()
        if self.driver.topic(topic) is None:
            return
        self.driver.delete(topic, before_seq=2**40)
        old = self.driver.topic(topic).config.durability
        new = "disk" if old is Durability.EPHEMERAL else "ephemeral"
        self.propose(PutTopic(topic=topic, config=config(durability=new)))

    @rule(
        router=st.sampled_from("rs"), source=names, dest=names, match=st.sampled_from([None, "x"]),
        allow_cycle=st.booleans(),
    )  # fmt: skip
    def put_router(self, router, source, dest, match, allow_cycle):
        accepted = None if match is None else parse_match(match, tag_bytes_max=256)
        self.propose(
            PutRouter(router=router, source=source, dest=dest, filter=accepted, allow_cycle=allow_cycle)
        )

    @rule(router=st.sampled_from("rs"))
    def delete_router(self, router):
        self.propose(DeleteRouter(router=router))

    @rule(topic=names, consumer=st.sampled_from("cd"), back=st.none() | st.integers(0, 4), tail=st.booleans())
    def put_consumer(self, topic, consumer, back, tail):
        found = self.driver.topic(topic)
        from_seq = None if back is None or found is None else max(0, found.head_seq - back)
        self.propose(
            PutConsumer(topic=topic, consumer=consumer, from_seq=from_seq, tail=tail and from_seq is None)
        )

    @rule(topic=names, consumer=st.sampled_from("cd"), back=st.integers(-1, 4), sync=st.booleans())
    def commit(self, topic, consumer, back, sync):
        found = self.driver.topic(topic)
        if found is not None:
            seq = max(0, found.head_seq - back)
            self.propose(CommitConsumer(topic=topic, consumer=consumer, seq=seq), sync=sync)

    @rule(topic=names, consumer=st.sampled_from("cd"))
    def delete_consumer(self, topic, consumer):
        self.propose(DeleteConsumer(topic=topic, consumer=consumer))

    @rule(topic=names)
    def drop(self, topic):
        self.propose(DeleteTopic(topic=topic))

    @rule(topic=names)
    def read(self, topic):
        if self.driver.topic(topic) is not None:
            due = self.driver.engine.read_due(topic)
            if due is not None:
                self.propose(due)

    @rule()
    def ask_for_a_sync(self):
        self.propose(Sync(shard=0))

    def propose(self, command, *, sync=False):
        with suppress(Rejected):
            self.driver.propose(command, sync=sync)

    @rule(ms=st.sampled_from([1, 9, 500, 1001, 2500]))
    def let_time_pass(self, ms):
        self.driver.clock.advance(ms)
        self.driver.engine.tick()

    @rule(shard=st.integers(0, 1))
    def stage(self, shard):
        self.driver.step(shard % len(self.driver.wals))

    @rule(machine_restarted=st.booleans())
    def restart(self, machine_restarted):
        self.drain()
        self.driver.restart(machine_restarted=machine_restarted)
        self.drain()

    @rule()
    def drain(self):
        self.driver.run()
        live = self.driver.engine.state.catalog
        again = self.driver.replay()

        assert views(live) == views(again)
        assert again.next_topic_id == live.next_topic_id
        assert all(again.epochs[name] == epoch for name, epoch in live.epochs.items())

    @precondition(lambda self: self.written)
    @rule()
    def replay_in_two_halves(self):
        """A fold of a prefix and then of the rest is the fold of the whole, and of the same bytes once more."""
        self.drain()
        once, halves = self.driver.replay(), Catalog()
        for shard in range(len(self.driver.wals)):
            items = self.driver.items(shard)
            for item in items[: len(items) // 2]:
                apply(halves, item, WalFileId(0, shard, 1))
            for item in items[len(items) // 2 :]:
                apply(halves, item, WalFileId(0, shard, 1))

        assert verify.digest(once) == verify.digest(self.driver.replay()) == verify.digest(halves)


def views(catalog):
    """The canonical state by topic, but for the ephemeral ones, whose records never touch the log."""
    state = msgspec.msgpack.decode(verify.canonical(catalog), strict=False)
    kept = {}
    for topic in state["topics"]:
        ephemeral = topic["config"]["durability"] == "ephemeral"
        of_definition = ("id", "name", "epoch", "config", "ceiling")
        kept[topic["id"]] = {name: topic[name] for name in of_definition} if ephemeral else topic
    return kept


class Equal(RuleBasedStateMachine):
    """What `apply` is handed live is what recovery hands it: the same runs, the same control values."""

    @initialize()
    def begin(self):
        self.driver = Driver()
        self.driver.put()
        self.live = []
        self.catch(self.driver.items())

    def catch(self, before):
        self.before = len(before)

    @rule(
        count=st.integers(1, 4),
        given=columns,
        ids=dedup_ids | st.none(),
        key=st.none() | st.binary(min_size=1),
    )
    def append(self, count, given, ids, key):
        extra = {} if ids is None else {"dedup_id": ids[:count]}
        command = self.driver.appending(*range(count), **given, **extra)
        self.driver.clock.advance(1)  # neighbours of one ts are one run to a scan
        ticket = self.driver.propose(Append(topic="t", records=command.records, idempotency_key=key))
        batch = self.driver.take()
        entries = [] if batch is None else batch.entries
        self.live += [item for entry in entries for item in entry.items]
        self.driver.run()

        assert ticket.done
        found = self.driver.items()[self.before :]
        assert [item for item in self.live if isinstance(item, Run)] == [
            i for i in found if isinstance(i, Run)
        ]
        assert [told(item) for item in self.live] == [told(item) for item in found]


def told(item):
    if isinstance(item, Run):
        return (item.topic_id, item.ts, "run")
    return (item.topic_id, item.ts, item.payload)


TestReplay = Replay.TestCase
TestReplay.settings = settings(max_examples=max(200, settings.default.max_examples), stateful_step_count=30)
TestEqual = Equal.TestCase
TestEqual.settings = settings(stateful_step_count=12, max_examples=40)
