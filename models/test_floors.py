"""Tombstones and floors: the engine against a topic of dict and list, whatever is still in flight.

Commands take effect in the order they were proposed, each with the ts of its own frame; so the oracle is told of each
when its ticket ends. Pages, accounts, floors, counts and answers are the oracle's at every moment, and every call
checks the numbered invariants in the engine itself.
"""

import itertools
from typing import NamedTuple

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from models.oracle_page import CLASSES, read
from models.oracle_topic import Entry, OracleTopic
from tests.engine.driving import Driver, config, records
from topics.engine.commands import Append, DeleteRecords, DeleteTopic, PutMode, PutTopic
from topics.engine.tickets import Stage
from topics.kernel.errors import Code, Rejected
from topics.log.reads.match import parse_match

pytestmark = [
    pytest.mark.invariant("I-01", "I-02", "I-03", "I-04", "I-05", "I-06"),
    pytest.mark.rule(
        "S1.3", "S1.5", "S1.6", "S1.8", "S1.10", "S2.1", "S2.2", "S2.3", "S2.4", "S2.18", "S2.19", "S3.7", "S3.8",
        "S3.9", "S4.1", "S4.2", "S4.3", "S4.7", "S4.8", "S4.9", "S4.10", "S4.11", "S4.18", "S4.21", "S4.22", "S5.2",
        "S3.32", "S3.33", "S6.1", "S6.3", "S6.5", "S6.6", "S6.10", "S6.11", "S7.11", "S7.12", "S9.1", "S9.2",
    ),
]  # fmt: skip

TAGS = [b"", b"a", b"ab", b"b"]
NODES = [b"", b"n", b"m"]
MATCHES = [None, "a", ["tag", "Glob", "a*"], ["tag", "Glob", "*"], ["tag", "Eq", "b"]]

one_record = st.fixed_dictionaries(
    {"size": st.integers(1, 9)},
    optional={
        "tag": st.sampled_from(TAGS),
        "node": st.sampled_from(NODES),
        "ttl_ms": st.sampled_from([None, 0, 4, 5, 6, 349, 399, 400, 401, 1199, 1201]),
        "dedup_id": st.sampled_from([b"", b"d1", b"d2", b"d3"]),
        "meta": st.sampled_from([b"", b'{"a":"b"}']),
    },
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.sampled_from([0, 5, 400, 1200, 5000]),
        "cap_records": st.sampled_from([0, 1, 3, 8]),
        "cap_bytes": st.sampled_from([0, 1, 9, 40]),
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "dedupe_node": st.booleans(),
        "idempotency_window_ms": st.sampled_from([0, 300, 100_000]),
    },
)


class Framed(NamedTuple):
    """When a command was checked and framed: what it says, and what it saw."""

    ts: int
    time_first: bool
    head: int
    in_flight: frozenset
    new: set


class Floors(RuleBasedStateMachine):
    """One topic under every command, its frames at every stage."""

    @initialize(given=configs)
    def create(self, given):
        self.driver = Driver()
        self.oracle = OracleTopic(1, config(**given))
        self.waiting = {}  # ticket -> what the oracle is told when it ends
        self.framed = {}  # ticket -> what was so when it was checked and framed
        self.written = 0
        self.last = []  # of the last write, to be sent again
        self.bodies = {}  # key -> the body of the write that it named first
        self.driver.put(**given)
        self.driver.engine.take_effects()

    # Commands.

    @rule(
        given=st.lists(one_record, min_size=1, max_size=4),
        key=st.none() | st.sampled_from([b"k1", b"k2"]),
        again=st.booleans(),
    )
    def append(self, given, key, again=False):
        """`again`: the body of the last write, perhaps under another key."""
        given, number = self.last if again and self.last else (given, self.written)
        self.last = given, number
        self.written += 1
        entries = []
        for i, each in enumerate(given):
            data = (b"%d.%d" % (number, i)).ljust(each["size"], b"x")
            entries.append(Entry(0, data, len(data) + len(each.get("meta", b"")), each.get("tag", b""),
                                 each.get("node", b""), each.get("dedup_id", b"")))  # fmt: skip
        ttls = [each.get("ttl_ms") for each in given]
        columns = records(
            *(entry.data for entry in entries),
            tag=[entry.tag for entry in entries],
            node=[entry.node for entry in entries],
            dedup_id=[entry.dedup_id for entry in entries],
            meta=[each.get("meta", b"") for each in given],
            ttl_ms=ttls,
        )

        def tell(ticket, ts):
            for entry, ttl_ms in zip(entries, ttls, strict=True):
                entry.ts, entry.expires_at = ts, None if ttl_ms is None else ts + ttl_ms
            seqs, duplicates, new = self.oracle.append(ts, entries, key, self.framed[ticket].in_flight)
            reply = ticket.result()

            assert seqs == list(reply.seqs)
            assert (duplicates, not new) == (reply.duplicates, reply.deduped)
            assert reply.count == len(seqs)
            if reply.same_body is None:
                self.bodies[key] = number
            assert reply.same_body in (None, self.bodies[key] == number)

        command = Append(topic="t", records=columns, idempotency_key=key)
        self.propose(command, tell)

    @rule(given=st.sampled_from(MATCHES), below=st.none() | st.integers(-12, 3))
    def delete(self, given, below):
        before_seq = None if below is None else max(0, self.oracle.head + below)
        match = None if given is None else parse_match(given, tag_bytes_max=256)
        if before_seq is None and match is None:
            return

        def tell(ticket, ts):
            if self.framed[ticket].time_first:
                self.oracle.pass_time(ts)
            accepts = None if match is None else match.accepts
            gone = self.oracle.delete(before_seq=before_seq, accepts=accepts, upto=self.framed[ticket].head)

            assert gone == ticket.result().deleted

        self.propose(DeleteRecords(topic="t", before_seq=before_seq, match=match), tell)

    @rule(given=configs, mode=st.sampled_from(PutMode))
    def configure(self, given, mode):
        asked = config(**given)

        def tell(ticket, ts):
            old = self.oracle.config
            new = (
                asked
                if mode is PutMode.REPLACE
                else attrs.evolve(old, **{n: getattr(asked, n) for n in given})
            )
            if ticket.error is not None:
                refused(ticket.error, old, new)
            elif mode is PutMode.CREATE:
                assert new == old == ticket.result().config
            elif new != old:  # else there is nothing to log
                assert ticket.result().config == new
                if self.framed[ticket].time_first:
                    self.oracle.pass_time(ts)
                self.oracle.configure(ts, new)

        def refused(error, old, new):
            if mode is PutMode.CREATE:
                differing = {name for name in given if getattr(new, name) != getattr(old, name)}
                assert error.code is Code.TOPIC_EXISTS_INCOMPATIBLE
                assert error.detail["differences"].keys() == differing
            else:
                assert error.code is Code.TOPIC_NOT_EMPTY
                assert self.oracle.live()

        try:
            self.propose(PutTopic(topic="t", config=asked, mode=mode, given=frozenset(given)), tell)
        except Rejected as error:  # a model may be refused or not
            old = self.oracle.config
            refused(error, old, attrs.evolve(old, **{n: getattr(asked, n) for n in given}))

    @rule()
    def delete_and_create_again(self):
        given = self.oracle.config

        def forget(ticket, ts):
            assert ticket.result().deleted

        def create(ticket, ts):
            self.oracle = OracleTopic(self.oracle.epoch + 1, given)

        self.drain()
        self.propose(DeleteTopic(topic="t"), forget)
        self.propose(PutTopic(topic="t", config=given), create)
        self.drain()

    # Time and stages.

    @rule(ms=st.sampled_from([0, 1, 4, 5, 6, 350, 999, 1000, 3000]))
    def let_time_pass(self, ms):
        self.driver.clock.advance(ms)
        self.driver.engine.read_due("t")  # the engine sees the clock

    @rule(which=st.integers(0, 9), by=st.integers(-1, 1))
    def append_where_a_time_ends(self, which, by):
        """At the millisecond up to which a record may stay, or beside it."""
        ttl_ms = self.oracle.config.ttl_ms
        live = [self.oracle.log[seq] for seq in self.oracle.live()]
        ends = {entry.expires_at for entry in live} | {entry.ts + ttl_ms for entry in live if ttl_ms}
        ends = sorted(end + by for end in ends - {None} if end + by >= self.now)
        if ends:
            self.driver.clock.set(ends[which % len(ends)])
            self.append([{"size": 1}], None)
            self.drain()

    @rule(ms=st.integers(1, 2000))
    def clock_steps_back(self, ms):
        self.driver.clock.set(self.driver.clock.now_ms() - ms)

    @rule()
    def tick(self):
        self.driver.engine.tick()
        self.learn()

    @rule()
    def stage(self):
        self.driver.step()
        self.learn()

    @rule()
    def drain(self):
        while self.driver.step():
            self.learn()
        self.learn()

        assert self.waiting == {}

    @rule(machine_restarted=st.booleans())
    def restart(self, machine_restarted):
        self.drain()
        self.driver.restart(machine_restarted=machine_restarted)
        self.driver.engine.take_effects()
        state, durability = self.driver.state(), self.oracle.config.durability.value

        if durability == "ephemeral":
            self.oracle.restart(state.head_seq, self.now)
        elif state.head_seq > self.oracle.head:
            assert machine_restarted
            assert durability in ("memory", "disk")
            self.oracle.crash(state.head_seq, self.now)

    # Reading.

    @rule(
        back=st.integers(-2, 80),
        at=st.none() | st.tuples(st.integers(1, 200), st.integers(-1, 1)),
        epoch=st.none() | st.integers(0, 3),
        limit=st.integers(1, 12) | st.just(1000),
        nodes=st.sets(st.sampled_from(NODES[1:])),
        match=st.sampled_from(MATCHES),
        current=st.booleans(),
        bytes_max=st.sampled_from([1, 60, 150, 400]),
    )
    def read(self, back, at, epoch, limit, nodes, match, current, bytes_max):
        if current:
            self.let_floors_be_reported()
        query = {
            "from_seq": max(0, self.oracle.head - back), "from_ts": None if at is None else self.ts_near(*at),
            "epoch": epoch, "limit": limit, "nodes": frozenset(nodes), "match": match,
        }  # fmt: skip
        whole = self.compare(**query)
        part = self.driver.plan(**query, bytes_max=bytes_max)
        room = itertools.takewhile(lambda size: size <= bytes_max, itertools.accumulate(whole.lengths))
        count = max(len(list(room)), min(1, len(whole.seqs)))  # one record is given, whatever its size

        assert part.seqs == whole.seqs[:count]
        assert part.next_from_seq == whole.next_from_seq or part.next_from_seq < whole.seqs[count]

    def ts_near(self, seq, by):
        """The ts of a seq, dead or alive, or the millisecond beside it."""
        entry = self.oracle.log.get(seq)
        return (self.now if entry is None else entry.ts) + by

    @rule()
    def read_all(self):
        """Page after page from nothing to the head: each loss is told once, and nothing comes twice."""
        self.let_floors_be_reported()
        cursor, seen = 0, []
        while cursor < self.oracle.head:
            plan = self.compare(
                from_seq=cursor, from_ts=None, epoch=None, limit=3, nodes=frozenset(), match=None
            )
            seen += plan.seqs.tolist()
            assert plan.next_from_seq > cursor
            cursor = plan.next_from_seq

        assert seen == sorted(set(seen))
        now = self.now
        live = [self.oracle.log[seq] for seq in self.oracle.live()]
        assert len(seen) == sum(entry.expires_at is None or entry.expires_at >= now for entry in live)

    def let_floors_be_reported(self):
        """What a reader does first (semantics 4): the floor that time alone has moved is logged."""
        due = self.driver.engine.read_due("t")
        if due is not None:
            self.propose(due, lambda ticket, ts: None)
            self.drain()

        assert not self.oracle.due(self.now) or self.now - self.driver.topic().watermark_ms < 1000

    def compare(self, *, from_seq, from_ts, epoch, limit, nodes, match):
        plan = self.driver.plan(
            from_seq=from_seq, from_ts=from_ts, epoch=epoch, limit=limit, nodes=nodes, match=match
        )
        given = None if match is None else parse_match(match, tag_bytes_max=256)
        start, seqs, stop, gap, account = read(
            self.oracle,
            now=self.now, from_seq=from_seq, from_ts=from_ts, epoch=epoch, limit=limit, nodes=nodes,
            accepts=given and given.accepts,
        )  # fmt: skip
        told = plan.gap and (plan.gap.gap_from, plan.gap.gap_to, plan.gap.reason.value)

        assert (start, seqs, stop) == (plan.from_seq, plan.seqs.tolist(), plan.next_from_seq)
        assert gap == told
        assert account == {name: getattr(plan.account, name) for name in CLASSES}
        assert plan.account.total == plan.next_from_seq - plan.from_seq
        assert (plan.head_seq, plan.epoch) == (self.oracle.head, self.oracle.epoch)
        assert plan.caught_up == (plan.next_from_seq == self.oracle.head)
        if plan.gap is not None:
            assert plan.gap.missed_estimate == plan.gap.gap_to - plan.gap.gap_from + 1
            assert (plan.gap.earliest_seq, plan.gap.head_seq) == (self.oracle.earliest, self.oracle.head)
        for record in self.driver.fetch(plan):
            entry = self.oracle.log[record.seq]
            assert (entry.data, entry.ts, entry.tag, entry.node) == (
                record.data, record.ts, record.tag, record.node,
            )  # fmt: skip
        return plan

    @precondition(lambda self: hasattr(self, "oracle"))
    @invariant()
    def floors_and_counts_agree(self):
        state = self.driver.state() if self.driver.topic() is not None else None
        if state is None:
            return
        assert state.head_seq == self.oracle.head
        assert state.earliest_seq == self.oracle.earliest
        assert state.evict_floor == self.oracle.evict_floor
        assert state.count == len(self.oracle.live())
        assert state.bytes == self.oracle.bytes
        assert state.epoch == self.oracle.epoch

    # Telling the oracle.

    @property
    def now(self):
        return max(self.driver.clock.now_ms(), self.driver.engine.state.time.high_ms)

    def propose(self, command, tell):
        ticket = self.driver.propose(command)
        self.waiting[ticket] = tell
        self.learn()
        return ticket

    def learn(self):
        """Tickets that ended take effect in the oracle, then those framed meanwhile are noted with their ts."""
        for ticket in self.driver.engine.take_effects().finished:
            if ticket in self.waiting:
                self.note_framed(ticket)
                self.waiting.pop(ticket)(ticket, self.framed[ticket].ts)
        parked = {
            ticket for lane in self.driver.engine.state.lanes.values() for ticket in lane.parked
        }  # not those who ride
        for ticket in self.waiting:
            if ticket.stage in (Stage.PENDING, Stage.WAITING) and ticket not in parked:
                self.note_framed(ticket)
        topic = self.driver.topic()
        if topic is not None:
            self.oracle.pass_time(topic.retired_ms)

    def note_framed(self, ticket):
        if ticket in self.framed:
            return
        on_their_way = [
            self.framed[t].new for t in self.waiting if t in self.framed and t.stage is Stage.PENDING
        ]
        in_flight = frozenset().union(*on_their_way)
        new = set()
        if isinstance(ticket.command, Append):
            ids = {
                i
                for i in ticket.command.records.dedup_id
                if i and self.oracle.ids.get(i, (0, 0))[0] < self.now
            }
            new = (ids | {ticket.command.idempotency_key}) - in_flight
        self.framed[ticket] = Framed(self.now, self.oracle.due(self.now), self.oracle.head, in_flight, new)


TestFloors = Floors.TestCase
TestFloors.settings = settings(max_examples=max(200, settings.default.max_examples), stateful_step_count=30)
