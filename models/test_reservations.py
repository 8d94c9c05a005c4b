"""Reservations: what propose promises is given back by apply or failure, whatever overlaps, waits, rides, fails or is
withdrawn.

No clock of its own and no oracle: the model counts. Each ticket ends once, one that was withdrawn never; a race of
writers that expect one head has one winner; a topic that rejects never holds more than its cap, never drops what it
took, and loses no room either.
"""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.engine.driving import Driver, config, records
from topics.engine.commands import Append, DeleteRecords, DeleteTopic, PutMode, PutTopic, Sync
from topics.engine.replies import Appended
from topics.engine.tickets import TRANSITIONS, Stage
from topics.kernel.config import Discard
from topics.kernel.errors import Code, Fatal, Rejected

pytestmark = pytest.mark.rule("S2.1", "S2.9", "S2.16", "S3.10", "S7.4", "S7.17", "T3.24", "T3.25")

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
configs = st.fixed_dictionaries(
    {
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "cap_records": st.sampled_from([0, 2, 4, 9]),
        "discard": st.sampled_from(["old", "reject"]),
    }
)
REFUSALS = {
    Code.SEQ_MISMATCH, Code.TOPIC_FULL, Code.RECORD_TOO_LARGE, Code.TOPIC_NOT_FOUND, Code.TOPIC_NOT_EMPTY,
    Code.STORAGE_READ_ONLY, Code.DISK_LOW, Code.TOPIC_EXISTS_INCOMPATIBLE,
}  # fmt: skip


class Reservations(RuleBasedStateMachine):
    @initialize(shards=st.integers(1, 2), first=configs, second=configs)
    def begin(self, shards, first, second):
        self.driver = Driver(shards=shards)
        self.tickets = []
        self.withdrawn = []
        self.endings = Counter()
        self.failed = False
        self.floors = {}
        self.raced = 0
        for name, given in zip(NAMES, (first, second), strict=False):
            self.driver.put(name, **given)
        self.driver.engine.take_effects()

    @rule(
        topic=names, count=st.integers(1, 5), key=st.none() | st.sampled_from([b"1", b"2"]),
        ids=st.none() | st.lists(st.sampled_from([b"", b"x", b"y", b"z"]), min_size=5, max_size=5),
        ahead=st.none() | st.integers(-1, 1), sync=st.booleans(), create=st.booleans(), given=configs,
    )  # fmt: skip
    def append(self, topic, count, key, ids, ahead, sync, create, given):
        extra = {} if ids is None else {"dedup_id": ids[:count]}
        expected = None if ahead is None else max(0, self.last_assigned(topic) + ahead)
        self.propose(
            Append(
                topic=topic, records=records(*range(count), **extra), idempotency_key=key,
                expected_head=expected, create=create, config=config(**given),
            ),
            sync=sync,
        )  # fmt: skip

    @rule(topic=names, writers=st.integers(2, 4), key=st.booleans())
    def race(self, topic, writers, key):
        """Writers that expect one head, all at once: whoever is refused is refused for that, and one is not."""
        lane = self.driver.engine.state.lanes_by_name.get(topic)
        if lane is None or lane.blocked:
            return
        if (
            lane.topic.config.discard is Discard.REJECT
            or self.driver.engine.state.shards[lane.shard].read_only
        ):
            return
        self.driver.engine.space(lane.shard, 1 << 50)
        head = self.last_assigned(topic)
        accepted = 0
        for i in range(writers):
            self.raced += 1
            own = b"race %d" % self.raced if key else None
            ticket = self.propose(
                Append(topic=topic, records=records(i), expected_head=head, idempotency_key=own)
            )
            accepted += ticket is not None

        assert accepted == 1

    @rule(topic=names, counts=st.lists(st.integers(1, 3), min_size=2, max_size=4))
    def append_side_by_side(self, topic, counts):
        """Several writes in flight at once: together they fit, or the later ones are refused."""
        for count in counts:
            self.propose(Append(topic=topic, records=records(*range(count))))

    @rule(topic=names, key=st.booleans(), goes=st.booleans(), given=configs)
    def try_again_and_change(self, topic, key, goes, given):
        """A retry that asks for a sync rides its first, and the topic goes, or changes, behind both."""
        self.raced += 1
        own = b"again %d" % self.raced
        columns, named = ({}, {"idempotency_key": own}) if key else ({"dedup_id": [own]}, {})
        for sync in (False, True):
            self.propose(Append(topic=topic, records=records(0, **columns), **named), sync=sync)
        self.propose(
            DeleteTopic(topic=topic)
            if goes
            else PutTopic(topic=topic, config=config(**given), mode=PutMode.REPLACE)
        )

    @rule(topic=names, given=configs, mode=st.sampled_from(PutMode))
    def put(self, topic, given, mode):
        self.propose(PutTopic(topic=topic, config=config(**given), mode=mode, given=frozenset(given)))

    @rule(topic=names, if_empty=st.booleans())
    def drop(self, topic, if_empty):
        self.propose(DeleteTopic(topic=topic, if_empty=if_empty))

    @rule(topic=names, before_seq=st.integers(0, 20))
    def delete(self, topic, before_seq):
        self.propose(DeleteRecords(topic=topic, before_seq=before_seq))

    @rule(shard=st.integers(0, 1))
    def ask_for_a_sync(self, shard):
        self.propose(Sync(shard=shard % len(self.driver.wals)))

    @rule(shard=st.integers(0, 1))
    def stage(self, shard):
        self.driver.step(shard % len(self.driver.wals))
        self.hear()

    @rule(data=st.data())
    def withdraw(self, data):
        """Whoever proposed it has gone. Only what waits can be taken back, and it leaves nothing."""
        if not self.tickets:
            return
        ticket, trail = data.draw(st.sampled_from(self.tickets))
        before, reserved = ticket.stage, self.reserved()
        withdrawn = self.driver.engine.withdraw(ticket)
        self.hear()

        assert withdrawn == (before is Stage.WAITING and not ticket.created)
        assert (ticket.stage is Stage.WITHDRAWN) or (ticket.stage is before and reserved == self.reserved())
        if withdrawn:
            self.tickets.remove((ticket, trail))
            self.withdrawn.append(ticket)

    @rule(ms=st.sampled_from([1, 1000]))
    def let_time_pass(self, ms):
        self.driver.clock.advance(ms)
        self.driver.engine.tick()
        self.hear()

    @rule(shard=st.integers(0, 1), bytes_left=st.sampled_from([0, 1 << 20, 1 << 50]))
    def space(self, shard, bytes_left):
        self.driver.engine.space(shard % len(self.driver.wals), bytes_left)

    @rule(shard=st.integers(0, 1))
    def fail(self, shard):
        """The batch in flight fails, at its write or at its sync; a restart follows some time later."""
        shard %= len(self.driver.wals)
        if self.driver.in_flight[shard] is not None:
            self.failed = True
            self.driver.fail(shard)
            self.hear()

    @rule()
    def restart(self):
        self.drain()
        self.driver.restart(machine_restarted=False)
        self.driver.engine.take_effects()
        self.tickets, self.withdrawn, self.failed = [], [], False

    @rule()
    def drain(self):
        self.driver.run()
        self.hear()

        for ticket, trail in self.tickets:
            assert ticket.done
            assert self.endings[ticket] == 1
            assert Stage.DONE is trail[-1]
        for ticket in self.withdrawn:
            assert Stage.WITHDRAWN is ticket.stage
            assert not self.endings[ticket]
        for lane in self.driver.engine.state.lanes.values():
            assert not any(lane.reservations().values())
            assert lane.in_flight == 0
            assert lane.next_seq == lane.topic.head_seq + 1
        for shard in self.driver.engine.state.shards:
            assert shard.quiet
            assert shard.pending_bytes == 0

    @invariant()
    def nobody_holds_more_than_the_cap(self):
        if not hasattr(self, "driver"):
            return
        for lane in self.driver.engine.state.lanes.values():
            topic = lane.topic
            if topic is None or topic.config.discard is not Discard.REJECT or not topic.config.cap_records:
                self.floors.pop(lane.topic_id, None)
                continue
            assert topic.index.live_count + lane.reserved_records <= topic.config.cap_records
            if lane.barrier is None and topic.config.durability != "ephemeral":
                config_then, floor = self.floors.setdefault(lane.topic_id, (topic.config, topic.evict_floor))
                assert (
                    config_then is not topic.config or floor == topic.evict_floor
                )  # nothing taken was dropped
                self.floors[lane.topic_id] = (topic.config, topic.evict_floor)

    def propose(self, command, *, sync=False):
        before = self.reserved()
        try:
            ticket = self.driver.propose(command, sync=sync)
        except Rejected as refused:
            assert refused.code in REFUSALS  # noqa: PT017 - a model may be refused or not
            assert before == self.reserved()  # refused: nothing was assigned
            return None
        self.tickets.append((ticket, [ticket.stage]))
        self.hear()
        return ticket

    def hear(self):
        finished = self.driver.engine.take_effects().finished
        self.endings.update(finished)
        for ticket in finished:
            if isinstance(ticket.error, Fatal):
                assert self.failed
            elif ticket.error is not None:
                assert ticket.error.code in REFUSALS
            elif isinstance(ticket.reply, Appended):
                assert ticket.reply.count == len(ticket.reply.seqs)
                assert ticket.reply.same_body is False or ticket.reply.count == len(ticket.command.records)
        for ticket, trail in self.tickets:
            if ticket.stage is not trail[-1]:
                assert ticket.stage in reachable(trail[-1])
                trail.append(ticket.stage)

    def last_assigned(self, topic):
        lane = self.driver.engine.state.lanes_by_name.get(topic)
        return 0 if lane is None else lane.next_seq - 1

    def reserved(self):
        return {
            (lane.topic_id, lane.next_seq): lane.reservations()
            for lane in self.driver.engine.state.lanes.values()
        }


def reachable(stage):
    """The stages a ticket may be seen in next; it passes NEW unseen when it is proposed again."""
    after = TRANSITIONS[stage]
    return after | (TRANSITIONS[Stage.NEW] if Stage.NEW in after else set())


TestReservations = Reservations.TestCase
TestReservations.settings = settings(
    max_examples=max(200, settings.default.max_examples), stateful_step_count=40
)
