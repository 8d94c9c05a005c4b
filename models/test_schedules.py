"""Model of schedules: whatever is refused, stopped or lost, each instant is one record, or told as passed over.

Three topics of other classes on three shards, one of them full now and then; a schedule or two in each. Between the
stages of writing time passes and jumps, the process dies, the machine loses what was not synced. When all has come to
rest, the last instant that has been is the last that was fired, and every one before it is accounted for.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from models.oracle_schedules import check_account, check_each_once, instants
from tests.engine.driving import Driver, config
from tests.engine.schedules.scheduling import definition, settle
from topics.engine.commands import DeleteSchedule, DeleteTopic, PutSchedule, PutTopic
from topics.engine.tickets import Stage
from topics.engine.verify import digest
from topics.kernel.errors import Rejected
from topics.kernel.limits import FIRING_LATE_MS

TOPICS = {"a": "fsync", "b": "disk", "c": "memory"}
NAMES = ("s", "t", "u")
topics, names = st.sampled_from(sorted(TOPICS)), st.sampled_from(NAMES)
plans = st.tuples(
    st.sampled_from([5000, 7000, 30_000, 100_000]), st.sampled_from(["last", "all", "none"]),
    st.sampled_from([0, 0, 900, 20_000]),
)  # fmt: skip
FULL = {"cap_records": 3, "discard": "reject"}


class SchedulesMachine(RuleBasedStateMachine):
    @initialize(plans=st.tuples(plans, plans, plans))
    def begin(self, plans):
        self.driver = Driver(shards=3)
        self.ended = set()  # ids of schedules whose deletion was answered
        self.asked = []
        for (topic, durability), name, plan in zip(TOPICS.items(), NAMES, plans, strict=True):
            self.driver.put(topic, durability=durability)
            self.put(topic=topic, name=name, plan=plan)
        self.change(room=False)
        self.driver.run()

    @rule(topic=topics, name=names, plan=plans)
    def put(self, topic, name, plan):
        every_ms, catch_up, jitter_ms = plan
        when = {"cron": f"*/{every_ms}"} if every_ms % 2000 else {"every_ms": every_ms}
        wanted = definition(name, catch_up=catch_up, jitter_ms=jitter_ms, **when)
        self.propose(PutSchedule(topic=topic, schedule=wanted))

    @rule(topic=topics, name=names)
    def delete(self, topic, name):
        standing = self.driver.topic(topic)
        named = None if standing is None else standing.schedules.named(name)
        self.propose(DeleteSchedule(topic=topic, schedule=name), ends=named and named.definition.id)

    @rule(topic=topics)
    def make_anew(self, topic):
        self.propose(DeleteTopic(topic=topic))
        self.propose(PutTopic(topic=topic, config=config(durability=TOPICS[topic])))

    @rule(room=st.booleans())
    def change(self, room):
        self.propose(PutTopic(topic="b", config=config(durability="disk", **({} if room else FULL))))

    @rule(topic=topics)
    def write(self, topic):
        self.propose(self.driver.appending(1, topic=topic))

    @rule(shard=st.integers(0, 2), stages=st.integers(1, 4))
    def work(self, shard, stages):
        for _ in range(stages):
            self.driver.step(shard)

    @rule()
    def come_to_rest(self):
        settle(self.driver)

    @rule(ms=st.sampled_from([1, 300, 1000, 5000, FIRING_LATE_MS + 1, 400_000]))
    def pass_time(self, ms):
        self.driver.clock.advance(ms)
        self.driver.engine.tick()

    @rule(ms=st.sampled_from([1, 2000, 90_000]))
    def set_back(self, ms):
        self.driver.clock.set(self.driver.clock.now_ms() - ms)
        self.driver.engine.tick()

    @rule(is_power=st.booleans(), away_ms=st.sampled_from([0, 1500, 200_000]))
    def crash(self, is_power, away_ms):
        """What was not handed to the disk is gone; if the power went, so is what it had not synced."""
        driver = self.driver
        self.note_answers()
        self.asked.clear()
        for shard, wal in enumerate(driver.wals):
            if is_power:
                del wal[driver.synced_to[shard] :]
            driver.synced_to[shard] = len(wal)
        driver.clock.advance(away_ms)
        driver.restart(machine_restarted=is_power)

    @invariant()
    def nothing_is_fired_twice(self):
        if hasattr(self, "driver"):
            self.note_answers()
            for topic in TOPICS:
                for metas in self.by_schedule(topic).values():
                    check_each_once(metas)

    def teardown(self):
        if not hasattr(self, "driver"):
            return
        driver = self.driver
        driver.run()
        self.note_answers()
        self.change(room=True)
        settle(driver)
        for _ in range(8):  # a clock that was set back catches up; what was refused is tried again
            driver.clock.advance(50_000)
            settle(driver)
        for topic in filter(driver.topic, TOPICS):
            by_schedule = self.by_schedule(topic)
            for schedule_id, standing in driver.topic(topic).schedules.items():
                assert schedule_id not in self.ended
                self.check(standing, by_schedule.get(schedule_id, []))
        assert digest(driver.replay()) == digest(driver.engine.catalog)

    def check(self, standing, metas):
        every_ms = standing.definition.every_ms or int(standing.definition.cron.removeprefix("*/"))
        expected = instants(every_ms, standing.ts, standing.fired_ms)
        now_ms = self.driver.engine.now_ms()
        assert now_ms - standing.base_ms < every_ms + standing.definition.jitter_ms + 1
        check_account([meta for meta in metas if int(meta["$schedule_instant"]) > standing.ts], expected)

    # Inside.

    def propose(self, command, *, ends=None):
        with suppress(Rejected):
            self.asked.append((self.driver.propose(command), ends))

    def note_answers(self):
        for ticket, ends in self.asked:
            if ends and ticket.stage is Stage.DONE and ticket.error is None and ticket.reply.deleted:
                self.ended.add(ends)

    def by_schedule(self, topic):
        """The metas of what was fired into a topic, by the id of the schedule."""
        found: dict[int, list[dict[str, str]]] = {}
        if self.driver.topic(topic) is None:
            return found
        from_seq = 0
        while True:
            plan, records = self.driver.read(topic, from_seq=from_seq)
            for record in records:
                if record.dedup_id:
                    _, schedule_id, _ = record.dedup_id.split(b":")
                    found.setdefault(int(schedule_id), []).append(msgspec.json.decode(record.meta))
            if plan.next_from_seq == plan.head_seq:
                return found
            from_seq = plan.next_from_seq


TestSchedules = SchedulesMachine.TestCase
TestSchedules.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
