"""Model of routers: whatever is written, deleted, evicted, changed and struck, each dest is what its source says.

A store on a simulated disk and a network of lists: a chain, a cycle, a filter, two routers between two topics, a queue,
and a topic that is full now and then. After each step, once nothing is on its way, every topic has the oracle's records
at the oracle's seqs, with their ts. Before that, who reads a topic right behind a write has what came there of it.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from models.oracle_network import Network, Record, Router, TopicLog
from tests.support.scene import SMALL, Scene, append
from topics.engine.commands import Ack, Claim, DeleteRouter, PutRouter, WaitForCopies
from topics.engine.verify import canonical
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import MOVE_RETRY_MAX_MS
from topics.log.reads.match import parse_match
from topics.store.forwarding import forwarding
from topics.store.inline import bring_over_alone, carry_out
from topics.testing.survival import Shape

ROUTERS = {
    "a>b": ("a", "b", None),
    "b>c": ("b", "c", None),
    "c>a": ("c", "a", None),
    "red": ("a", "d", "red"),
    "blue": ("a", "d", ["tag", "Glob", "bl*"]),
    "a>full": ("a", "full", None),
    "d>q": ("d", "q", None),
}
TOPICS = ("a", "b", "c", "d", "full", "q")
TAGS = st.sampled_from([b"", b"red", b"blue", b"black"])
topics = st.sampled_from(TOPICS)


class Routers(RuleBasedStateMachine):
    @initialize(
        seed=st.integers(0, 1000), shards=st.sampled_from([1, 1, 3]), small=st.booleans(),
        classes=st.tuples(*[st.sampled_from(["memory", "disk", "fsync"])] * len(TOPICS)),
    )  # fmt: skip
    def begin(self, seed, shards, small, classes):
        self.scene = Scene(seed, shards=shards, limits=SMALL if small else None)
        self.scene.open()
        self.network = Network()
        self.classes = dict(zip(TOPICS, classes, strict=True))
        # With more shards it is anybody's guess who is first there.
        self.caps = {"a": 6, "full": 4} if shards == 1 else {"full": 4}
        self.routers = {name: one for name, one in ROUTERS.items() if shards == 1 or name != "red"}
        self.number = 0
        self.is_open_to_loss = True  # nothing but records has been written since all was synced
        for name in TOPICS:
            self._make(name)
        for name in self.routers:
            self._route(name)

    # What is done.

    @rule(
        topic=topics,
        tags=st.lists(TAGS, min_size=1, max_size=5),
        ttl_ms=st.sampled_from([None, None, 5, 10**8]),
        reader=topics,
    )
    def write(self, topic, tags, ttl_ms, reader):
        datas = [b"%d" % n for n in range(self.number, self.number + len(tags))]
        self.number += len(tags)
        times = {} if ttl_ms is None else {"ttl_ms": [ttl_ms] * len(tags)}
        now = self._tick()
        command = append(topic, *datas, tag=tags, create=False, **times)
        if len(tags) > self.network.topics[topic].room(now):
            with pytest.raises(Rejected, match=r"full|above its whole cap"):
                self._run(command)
            return
        self._run(command)
        expires_at = None if ttl_ms is None else now + ttl_ms
        records = [Record(data, tag, now, expires_at) for data, tag in zip(datas, tags, strict=True)]
        self.network.write(topic, records, now)
        self._read_at_once(reader, set(datas))
        self._settle()

    @rule(topic=topics, before=st.integers(1, 20))
    def delete_below(self, topic, before):
        self._tick()
        self.scene.delete(topic, before_seq=before)
        self._delete(topic, lambda seq, _: seq < before)

    @rule(topic=topics, tag=TAGS.filter(bool))
    def delete_tag(self, topic, tag):
        self._tick()
        self.scene.delete(topic, match=tag.decode())
        self._delete(topic, lambda _, one: one.tag == tag)

    @rule(count=st.integers(1, 4))
    def work(self, count):
        self._tick()
        reply = self.scene.run(Claim(topic="q", node=b"w", count_max=count))
        seqs = [job.seq for job in reply.jobs]
        if seqs:
            self.scene.run(Ack(topic="q", node=b"w", seqs=seqs))
        self._delete("q", lambda seq, _: seq in seqs)

    @rule(ms=st.sampled_from([1, 50, 2000]))
    def wait(self, ms):
        self.scene.clock.advance(ms)
        self.scene.engine.tick()
        self._settle()

    @rule(room=st.integers(1, 8), rejects=st.booleans())
    def change(self, room, rejects):
        now = self._tick()
        self.caps["full"] = room
        self.scene.create("full", durability=self.classes["full"], **self._caps("full", rejects=rejects))
        its = self.network.topics["full"]
        its.cap, its.rejects = room, rejects
        its.evict(now)
        self.is_open_to_loss = False
        self._settle()

    @rule(name=st.sampled_from(sorted(ROUTERS)))
    def route(self, name):
        if name not in self.routers:
            return
        self._tick()
        self._route(name)
        self._settle()

    @rule(name=st.sampled_from(sorted(ROUTERS)))
    def unroute(self, name):
        self._tick()
        self.scene.run(DeleteRouter(router=name))
        self.network.routers.pop(name, None)
        self._settle()

    @rule(name=topics)
    def drop(self, name):
        self._tick()
        self.scene.drop(name)
        self.network.drop(name)
        self._make(name)
        self._settle()

    @rule()
    def checkpoint(self):
        before = canonical(self.scene.engine.catalog)
        self.scene.checkpoint()
        self.scene.process_death().open()
        assert len(before) > 0
        self._settle()

    @rule()
    def sync(self):
        self.scene.sync()
        self.is_open_to_loss = True

    @rule()
    def die(self):
        self.scene.process_death().open()
        self._settle()

    @precondition(lambda self: self.is_open_to_loss)
    @rule(shape=st.sampled_from(list(Shape)), seed=st.integers(0, 1000))
    def lose_power(self, shape, seed):
        """What is kept is looked up where nothing was brought over yet; from there on all is told."""
        self.scene.power_loss(shape, seed)
        catalog = self.scene.peek().catalog
        kept = {name: catalog.topics[catalog.topic_ids[name]].head_seq for name in TOPICS}
        self.scene.open()
        heads = {}
        for name in TOPICS:
            found = [
                last
                for first, last, reason in self.scene.lost(name)
                if reason == "crash" and first <= kept[name] + 1 <= last
            ]
            heads[name] = max([kept[name], *found])
        self.network.crash(kept, heads)
        self.is_open_to_loss = True
        self._settle()

    def _run(self, command):
        """As drivers do: with a larger next file, if it needs one."""
        try:
            return self.scene.run(command)
        except Rejected as refused:
            if refused.code is not Code.DISK_LOW:
                raise
            self.scene.opened.writers[refused.detail["shard"]].keep_reserve(refused.detail["needed_bytes"])
            return self.scene.run(command)

    # How it ends.

    def _read_at_once(self, name, datas):
        """Who reads when these are written has those of them that ever come there, wherever they have to come from."""
        engine, reader = self.scene.engine, self.scene.opened.reader
        self.network.catch_up(self.scene.clock.now_ms())
        ticket = engine.propose(WaitForCopies(topic=name))
        self.scene.drain()
        while not ticket.done and (order := engine.forwards.take()) is not None:
            carry_out(engine, forwarding(engine, reader.read, order), self.scene.drain)
            self.scene.drain()
        if ticket.done and name != "full":  # else a router waits for the next millisecond, or for room
            its = self.network.topics[name]
            expected = {its.log[seq - 1].data for seq in its.live(engine.now_ms())} & datas
            assert expected <= {view.data for view in self._views(name)}, name
        assert ticket.done or any(route.due_ms for route in engine.state.routes.values())
        engine.withdraw(ticket)

    def _settle(self):
        """Nothing is on its way: who is late has tried again, and both sides are the same."""
        scene = self.scene
        self.network.catch_up(scene.clock.now_ms())
        self._bring_over()
        routers = scene.engine.routers
        if any(routers.state(name).lag for name in routers.names()):
            for _ in range(8):
                scene.clock.advance(MOVE_RETRY_MAX_MS)
                scene.engine.tick()
                self._bring_over()
                self.network.catch_up(scene.clock.now_ms())
                self._bring_over()
        now = scene.clock.now_ms()
        for name, its in self.network.topics.items():
            found = {view.seq: (view.data, view.ts) for view in self._views(name)}
            expected = {seq: (its.log[seq - 1].data, its.log[seq - 1].ts) for seq in its.live(now)}
            assert expected == found, (name, sorted(expected.items() ^ found.items()))
            assert scene.state(name).head_seq == len(its.log), name
            trimmed = {seq for seq, one in enumerate(its.log, 1) if one.end == "trimmed" and seq >= its.floor}
            lost = {
                s for a, b, reason in scene.lost(name) if reason == "source_trim" for s in range(a, b + 1)
            }
            assert trimmed == lost, name
        for name, router in self.network.routers.items():
            told = scene.engine.routers.state(name)
            assert told.forwarded_total == router.total, name
            if self.network.topics[router.dest].room(now):
                assert told.cursor == router.cursor, name
            else:  # what has died before its turn is looked at when there is room again
                assert told.cursor <= router.cursor, name

    def _bring_over(self):
        self.scene.drain()
        bring_over_alone(self.scene.engine, self.scene.opened.reader.read, self.scene.opened.writers)
        self.scene.drain()

    def _views(self, name):
        found, from_seq = [], 0
        while True:
            plan, views = self.scene.page(name, from_seq)
            found += views
            if plan.next_from_seq == from_seq:
                return found
            from_seq = plan.next_from_seq

    def _tick(self):
        self.scene.clock.advance(1)
        return self.scene.engine.now_ms()

    def _delete(self, topic, is_meant):
        its = self.network.topics[topic]
        for seq, one in enumerate(its.log, 1):
            if one.end is None and is_meant(seq, one):
                one.end = "deleted"
        self.is_open_to_loss = False
        self._settle()

    def _make(self, name):
        fields = {"type": "queue"} if name == "q" else {}
        self.scene.create(
            name, durability=self.classes[name], **fields, **self._caps(name, rejects=name == "full")
        )
        lane = self.scene.engine.state.lanes_by_name[name]
        self.network.topics[name] = TopicLog(lane.shard, self.caps.get(name, 0), name == "full")

    def _caps(self, name, *, rejects):
        if name not in self.caps:
            return {}
        return {"cap_records": self.caps[name], "discard": "reject" if rejects else "old"}

    def _route(self, name):
        source, dest, given = ROUTERS[name]
        match = None if given is None else parse_match(given, tag_bytes_max=256)
        self.scene.run(PutRouter(router=name, source=source, dest=dest, filter=match, allow_cycle=True))
        if name not in self.network.routers:
            accepts = (lambda _: True) if match is None else match.accepts
            cursor = len(self.network.topics[source].log)
            self.network.routers[name] = Router(name, source, dest, accepts, cursor)


@pytest.mark.rule("S8.9", "S8.10", "S8.26")
@pytest.mark.invariant("I-21")
class TestRouters(Routers.TestCase):
    settings = settings(max_examples=15, stateful_step_count=20, deadline=None)
