"""Leases: the core of a queue against one of dict and list, whatever is in flight, waits, is taken back, or crashes.

The oracle says who gets which job in each pass, what each settlement counts, and when time brings something; frames,
answers and waiting claims are held against that after every call. Frames are told to it when they are applied, and
again in the log's order behind a crash. The bytes of the log and an image give the state that lives (I-09, I-20).
"""

from array import array
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from models.oracle_leases import OracleQueue
from tests.engine.driving import Driver, config
from topics.codec.log.control import EvictWatermark, LossRange
from topics.codec.log.leases import (
    Acked,
    Claimed,
    Extended,
    Grant,
    Paused,
    Purged,
    Released,
    ReleasedAll,
    Resumed,
)
from topics.codec.log.scan import scan
from topics.engine.apply import Catalog, apply
from topics.engine.commands import (
    Ack,
    Append,
    Claim,
    DeleteRecords,
    Extend,
    Nack,
    Pause,
    Purge,
    PutMode,
    PutTopic,
    Release,
    Retire,
)  # fmt: skip
from topics.engine.queue import ready
from topics.engine.queue.control import peek
from topics.engine.tickets import Stage
from topics.engine.verify import digest
from topics.kernel.config import Durability
from topics.log.image import TopicImage, take_image, topic_of
from topics.log.jobs.backoff import backoff_ms
from topics.log.jobs.transitions import JobState
from topics.log.regions import WalFileId

pytestmark = [
    pytest.mark.invariant("I-09", "I-11", "I-12", "I-20"),
    pytest.mark.rule(
        "Q1.1", "Q1.2", "Q1.5", "Q1.6", "Q1.7", "Q1.8", "Q1.9", "Q1.10", "Q1.11", "Q1.12", "Q2.3", "Q2.4", "Q2.5",
        "Q2.6", "Q2.8", "Q3.1", "Q3.2", "Q3.3", "Q3.4", "Q4.2", "Q4.7", "Q4.11", "Q4.13", "Q4.15", "Q4.16", "Q5.1",
        "Q5.2",
    ),
]  # fmt: skip

NODES = [b"a", b"b", b"c"]


@pytest.fixture(autouse=True, scope="module")
def few_jobs_are_many():
    """What is done for many jobs at once is done for two."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ready, "_MANY", 2)
        yield


nodes = st.sampled_from(NODES)
KEYS = [b"", b"k", b"k", b"l"]
INSTANTS = [0, 1, 49, 50, 51, 99, 100, 101, 500, 1001]
_ALL = 1 << 10
stages = st.sampled_from([0, 1, 2, 3, _ALL, _ALL, _ALL])
one_job = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([0, 1, 5, 9]),
        "delay_ms": st.sampled_from([0, 1, 100, 1500]),
        "ttl_ms": st.sampled_from([None, None, None, 0, 50, 400]),
        "key": st.sampled_from(KEYS),
    },
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "lease_ms": st.sampled_from([100, 1000]),
        "claim_jitter_ms": st.sampled_from([0, 50]),
        "retry_backoff": st.sampled_from([None, {"base_ms": 100, "factor": 2, "max_ms": 300}]),
        "leases_durable": st.booleans(),
        "starvation_ms": st.sampled_from([0, 50, 1000]),
        "starvation_share": st.sampled_from([1, 34, 50, 100]),
        "max_in_flight": st.sampled_from([0, 0, 1, 3]),
        "max_in_flight_per_key": st.sampled_from([0, 1, 1, 2]),
        "rate_limit": st.sampled_from([None, None, {"count": 3, "per_ms": 100}, {"count": 1, "per_ms": 7}]),
        "require_lease_id": st.booleans(),
        "durability": st.sampled_from(["ephemeral", "memory", "disk", "fsync"]),
        "ttl_ms": st.sampled_from([0, 0, 0, 400]),
        "cap_records": st.sampled_from([0, 0, 0, 6]),
    },
)


def _steps(**kinds):
    """(what, with what, how many stages of the disk behind it)."""
    return st.one_of(
        *(st.tuples(st.just(does), st.fixed_dictionaries(fields), stages) for does, fields in kinds.items())
    )


works = _steps(
    append={"given": st.lists(one_job, min_size=1, max_size=5), "size": st.integers(1, 9)},
    claim={
        "node": nodes, "count_max": st.integers(1, 4), "wait_ms": st.sampled_from([0, 0, 100, None]),
        "lease_ms": st.sampled_from([None, 50, 500]), "bytes_max": st.sampled_from([1, 12, _ALL, _ALL]),
    },
    settle={
        "kind": st.sampled_from([Ack, Nack, Nack, Extend]), "picks": st.lists(st.integers(0, 9), max_size=4),
        "node": st.none() | nodes, "fenced": st.sampled_from(["no", "right", "some"]),
        "delay_ms": st.sampled_from([None, 0, 100]), "lease_ms": st.sampled_from([50, 500]),
    },
    disconnect={"picks": st.lists(st.integers(0, 5), min_size=1, max_size=3), "was_sent": st.booleans()},
    withdraw={"which": st.integers(0, 3)},
    let_time_pass={"ms": st.sampled_from(INSTANTS), "ticks": st.booleans()},
    sleep_until_due={},
    look={},
)  # fmt: skip
disturbances = _steps(
    pause={"paused": st.booleans()}, purge={}, delete={"above": st.integers(0, 3)}, configure={"given": configs},
    let_time_pass={"ms": st.sampled_from([-1, -700]), "ticks": st.booleans()},
    crash={"keeps": st.sampled_from(["written", "synced", "some"]), "cut": st.integers(0, 9)},
    keep_and_restore={"goes_on": st.booleans()},
)  # fmt: skip


@dataclass(eq=False)
class Event:
    """What the log says, as a call of the oracle. `end`: where it ends in the log, if it is there. `busy`: seqs that
    are nobody else's until it is applied; `claiming`: how many of them are promised. `time_first`: a frame before it
    says so. `took`: how many jobs.
    """

    ts: int
    does: str
    args: tuple = ()
    busy: tuple = ()
    claiming: int = 0
    time_first: bool = False
    applied: bool = False
    end: int | None = None
    took: int = 0


class Leases(RuleBasedStateMachine):
    """One queue and its workers; frames at every stage."""

    @initialize(given=configs, first=st.lists(one_job, max_size=6))
    def begin(self, given, first):
        self.driver = Driver()
        self.events = []
        given = _without_ttl_of_keys(given)
        self.base = config(type="queue", **given)
        self.tokens = []  # (seq, lease) of each that was ever given
        self.driver.put("q", type="queue", **given)
        self.start()
        if first:
            self.append(given=first, size=5)
            self.stage(_ALL)

    def start(self):
        """What one process knows."""
        self.driver.engine.take_effects()
        self.claimers = {}  # ticket -> until when, of `timer_ms`
        self.window = None
        self.parked = []
        self.of_entry = {}  # what is on its way
        self.promised = {}  # ticket -> (event, jobs) of a claim that has been served
        self.settled = {}  # ticket -> (kept, skipped, deadline)
        self.lease = 1
        self.folded, self.folded_to = Catalog(), 0  # the bytes, folded as they come
        self.fold_again()

    def fold_again(self):
        self.oracle = OracleQueue(self.base)
        for event in self.events:
            if event.applied:
                self.fold(event)

    # What is.

    @property
    def engine(self):
        return self.driver.engine

    @property
    def time(self):
        return self.engine.state.time

    @property
    def now(self):
        return self.time.high_ms

    @property
    def lane(self):
        return self.engine.state.lanes_by_name["q"]

    @property
    def busy(self):
        return {seq for event in self.events if not event.applied for seq in event.busy}

    @property
    def ending(self):
        """Whose lease something on its way ends, or is only about to give: what is said of it then counts no more."""
        return {
            seq
            for event in self.events
            if not event.applied and event.does != "extended"
            for seq in event.busy
        }

    @property
    def barrier(self):
        """While the queue changes, nothing is dealt out."""
        return any(event.does in ("purged", "configure") for event in self.events if not event.applied)

    @property
    def claiming(self):
        return sum(event.claiming for event in self.events if not event.applied)

    def entries(self):
        """What is on its way, in the order of the log."""
        shard = self.engine.state.shards[0]
        return [*(shard.in_flight.entries if shard.in_flight is not None else ()), *shard.pending]

    # What happens.

    @rule(
        steps=st.lists(works, min_size=3, max_size=9),
        disturbance=st.one_of(st.none(), st.none(), st.none(), disturbances),
    )
    def work(self, steps, disturbance):
        """Workers and producers, time, and the disk; and now and then what ends much."""
        for does, fields, then in [*steps, disturbance] if disturbance is not None else steps:
            getattr(self, does)(**fields)
            self.agrees()
            self.stage(then)
            self.agrees()

    def append(self, given, size):
        given = [{**each, "ttl_ms": None} if each.get("key") else each for each in given]
        names = {name for each in given for name in each}
        columns = {name: [each.get(name, _ABSENT[name]) for each in given] for name in names}
        self.propose(self.driver.appending(*[b"x" * size] * len(given), topic="q", **columns))

    def claim(self, **fields):
        self.propose(Claim(topic="q", **fields))

    def settle(self, kind, picks, node, fenced, delay_ms, lease_ms):
        """Of leases that are given, were given, or never. `node`: None for the holder of the first."""
        held = {job.seq: job.lease for job in self.oracle.jobs.values() if job.lease is not None}
        chosen = [(seq, lease[0]) for seq, lease in held.items()][-8:] + self.tokens[-2:] + [(1, (9, 9))]
        chosen = [chosen[i % len(chosen)] for i in picks]
        if node is None:
            node = next((held[seq][1] for seq, _ in chosen if seq in held), b"a")
        tokens = [token if fenced == "right" or i % 2 else None for i, (_, token) in enumerate(chosen)]
        own = {Ack: {}, Nack: {"delay_ms": delay_ms, "reason": node}, Extend: {"lease_ms": lease_ms}}[kind]
        leases = None if fenced == "no" else tokens
        self.propose(kind(topic="q", node=node, seqs=[seq for seq, _ in chosen], leases=leases, **own))

    def disconnect(self, picks, was_sent):
        if self.tokens:
            given = [self.tokens[-1 - i % len(self.tokens)] for i in picks]
            seqs, leases = [seq for seq, _ in given], [token for _, token in given]
            self.propose(Release(topic="q", seqs=seqs, leases=leases, was_sent=was_sent))

    def pause(self, paused):
        self.propose(Pause(topic="q", paused=paused))

    def purge(self):
        self.propose(Purge(topic="q"))

    def delete(self, above):
        self.propose(DeleteRecords(topic="q", before_seq=max(0, min(self.oracle.jobs, default=0) + above)))

    def configure(self, given):
        given = _without_ttl_of_keys(given)
        ephemeral = self.lane.topic.config.durability is Durability.EPHEMERAL
        if ephemeral != (given.get("durability") == "ephemeral") and self.oracle.jobs:
            given = {**given, "durability": self.lane.topic.config.durability.value}
        self.propose(PutTopic(topic="q", config=config(type="queue", **given), mode=PutMode.REPLACE))

    def withdraw(self, which):
        """Whoever waits goes, and gets nothing; what is on its way to him goes on."""
        waiting = [*self.claimers, *(ticket for ticket in self.promised if not ticket.done)]
        if waiting:
            ticket = waiting[which % len(waiting)]
            assert self.engine.withdraw(ticket) == (ticket in self.claimers)
            self.claimers.pop(ticket, None)
            self.learn(())

    def let_time_pass(self, ms, ticks):
        self.driver.clock.set(self.driver.clock.now_ms() + ms)
        if ticks:
            self.engine.tick()
            self.learn((), served=True)

    def sleep_until_due(self):
        """As a driver does: up to the instant that the engine names, and not past it."""
        due_ms = self.engine.next_deadline_ms()
        if due_ms is not None:
            self.driver.clock.set(max(self.driver.clock.now_ms() + due_ms - self.now, 0))
            self.engine.tick()
            self.learn((), served=True)

    def stage(self, steps):
        """Batches are taken, written, synced."""
        for _ in range(steps):
            if not self.entries():
                return
            in_flight = self.driver.in_flight[0]
            if in_flight is None:
                self.driver.take()
            elif not self.engine.state.shards[0].written:
                end = len(self.driver.wals[0])
                for entry in in_flight[0].entries:
                    end += entry.size
                    if entry in self.of_entry and entry.size:
                        self.of_entry[entry].end = end
                done = [entry for entry in in_flight[0].entries if not entry.staged]
                self.driver.write()
                self.learn(done)
            else:
                done = [entry for entry in in_flight[0].entries if entry.staged]
                self.driver.sync()
                self.learn(done)

    # Ends.

    def crash(self, keeps, cut):
        """A process dies, or a machine and with it a tail that was not synced; what is left is folded, and goes on."""
        ends = [event.end for event in self.events if event.end is not None]
        synced = self.driver.synced_to[0]
        ends = sorted({synced, len(self.driver.wals[0]), *(end for end in ends if end > synced)})
        end = {"written": ends[-1], "synced": synced}.get(keeps) or ends[cut % len(ends)]
        del self.driver.wals[0][end:]
        self.keep([event for event in self.events if event.end is not None and event.end <= end])
        self.resume(self.driver.replay(), machine_restarted=keeps != "written")

    def keep(self, events):
        """These are in the log, in this order."""
        self.events = sorted(events, key=lambda event: event.end)
        for event in self.events:
            event.applied = True

    def resume(self, catalog, *, machine_restarted):
        self.driver.begin(catalog)
        self.start()
        self.engine.resume(machine_restarted=machine_restarted)
        oracle = self.oracle
        ends = not oracle.config.leases_durable and oracle.in_state("in_flight", self.now)
        found = [item.payload for e in self.entries() for item in e.items]
        assert [p for p in found if isinstance(p, ReleasedAll)] == [ReleasedAll(b"restart")] * bool(ends)
        self.learn(())
        self.stage(_ALL)

    def keep_and_restore(self, goes_on):
        """I-20: an image says what the log says."""
        self.stage(_ALL)
        catalog = self.driver.replay()
        body = msgspec.msgpack.encode(take_image(self.lane.topic))
        topic = topic_of(msgspec.msgpack.decode(body, type=TopicImage), [])
        before = catalog.topics[topic.topic_id]
        catalog.remove(before)
        catalog.add(topic)
        if topic.config.durability is not Durability.EPHEMERAL:
            assert digest(catalog) == digest(self.driver.replay())
        assert topic.jobs.paused == self.oracle.paused
        if goes_on:
            self.keep([event for event in self.events if event.end is not None])
            self.driver.synced_to[0] = len(self.driver.wals[0])
            self.resume(catalog, machine_restarted=False)

    # What the oracle is told.

    def propose(self, command):
        ticket = self.driver.propose(command)
        self.begin_command(ticket)
        self.learn((), served=isinstance(command, Claim))

    def begin_command(self, ticket):
        """It has just been checked, and framed if it needs a frame."""
        command, oracle, now = ticket.command, self.oracle, self.now
        if ticket in self.lane.parked:
            if ticket not in self.parked:
                self.parked.append(ticket)
            return
        match command:
            case Claim():
                until = None if command.wait_ms is None else self.time.timer_ms + command.wait_ms
                if not self.claimers:
                    self.window = None
                self.claimers[ticket] = until
                if oracle.config.claim_jitter_ms and self.window is None:
                    self.window = now + oracle.config.claim_jitter_ms
            case Ack() | Nack() | Extend() | Release():
                self.settle_by_oracle(ticket, command)
            case Pause():
                event = Event(now, "set_paused", (command.paused,))
                self.frame(ticket, event, Paused() if command.paused else Resumed())
            case Purge():
                self.frame(ticket, Event(now, "purged", (oracle.head,)), Purged(oracle.head))
            case Append():
                columns = command.records
                jobs = [
                    (
                        len(data),
                        *(_of(columns, name, i) for name in ("key", "priority", "delay_ms", "ttl_ms")),
                    )
                    for i, data in enumerate(columns.data)
                ]
                self.frame(ticket, Event(now, "append", (jobs,)))
            case DeleteRecords():
                self.frame(ticket, Event(now, "deleted", (command.before_seq, oracle.head)))
            case PutTopic() if not ticket.done:  # else it changes nothing, or is refused
                self.frame(ticket, Event(now, "configure", (command.config, oracle.head)))

    def settle_by_oracle(self, ticket, command):
        oracle, now, kept, tokens, skipped = self.oracle, self.now, [], [], []
        for i, seq in enumerate(command.seqs):
            job = oracle.jobs.get(seq)
            token = None if command.leases is None else command.leases[i]
            mine = (
                job is not None
                and job.lease is not None
                and now <= job.lease[2]
                and (isinstance(command, Release) or job.lease[1] == command.node)
                and (token == job.lease[0] if token is not None else not oracle.config.require_lease_id)
                and seq not in self.ending
                and seq not in kept
            )
            if mine:
                kept.append(seq)
                tokens.append(job.lease[0])
            else:
                skipped.append(seq)
        deadline = now + command.lease_ms if isinstance(command, Extend) else None
        self.settled[ticket] = (kept, skipped, deadline if kept else None)
        if not kept:
            self.answered(ticket, None)
            return
        numbers = [counter for _, counter in tokens]
        ready_at = [now] * len(kept)
        if isinstance(command, Nack):
            backoff, rests = oracle.config.retry_backoff, command.delay_ms
            for i, seq in enumerate(kept):
                ready_at[i] += (
                    backoff_ms(backoff, oracle.jobs[seq].deliveries, seq) if rests is None else rests
                )
        node, busy = oracle.jobs[kept[0]].lease[1], tuple(kept)
        match command:
            case Ack():
                event = Event(now, "acked", (kept,), busy)
                payload = Acked(node, _q(kept), _q(numbers))
            case Extend():
                event = Event(now, "extended", (deadline, kept, tokens), busy)
                payload = Extended(node, deadline, _q(kept), _q(numbers))
            case Release(was_sent=False):
                event = Event(now, "taken_back", (kept, tokens, ready_at), busy)
                payload = Released(b"", b"", _q(kept), _q(numbers), _q(ready_at))
            case _:
                reason = command.reason if isinstance(command, Nack) else b"disconnect"
                event = Event(now, "released", (kept, tokens, ready_at, reason), busy)
                payload = Released(node, reason, _q(kept), _q(numbers), _q(ready_at))
        self.frame(ticket, event, payload)

    def frame(self, ticket, event, payload=None):
        """It is on its way, or with an ephemeral queue has got there. `payload`: what its one frame must say."""
        entry = next((entry for entry in self.entries() if entry.ticket is ticket), None)
        self.events.append(event)
        if entry is None:
            event.time_first = event.does == "deleted"
            self.apply(event)
            self.answered(ticket, event)
            return
        event.time_first = isinstance(getattr(entry.items[0], "payload", None), EvictWatermark)
        self.of_entry[entry] = event
        assert all(item.ts == event.ts for item in entry.items)
        if payload is not None:
            assert [item.payload for item in entry.items] == [payload]

    def notice(self):
        """Frames that nobody has asked for: time passes, and what a restart took."""
        for entry in self.entries():
            if entry in self.of_entry or (
                entry.ticket is not None and not isinstance(entry.ticket.command, Retire)
            ):
                continue
            for item in entry.items:
                match item.payload:
                    case EvictWatermark():
                        event = Event(item.ts, "retire")
                    case LossRange(last=last):
                        event = Event(item.ts, "lost", (last,))
                    case ReleasedAll(reason=reason):
                        event = Event(item.ts, "released_all", (reason,))
                    case _:
                        continue
                self.events.append(event)
                self.of_entry[entry] = event

    def fold(self, event):
        if event.time_first:
            self.oracle.retire(event.ts)
        before = len(self.oracle.jobs)
        getattr(self.oracle, event.does)(event.ts, *event.args)
        event.took = before - len(self.oracle.jobs)

    def apply(self, event):
        event.applied = True
        self.fold(event)

    def learn(self, done, *, served=False):
        """`done`: entries that were applied in this call. `served`: it is one that deals out what is ready."""
        self.notice()
        events = {}
        for entry in done:
            if entry in self.of_entry:
                events[entry] = self.of_entry.pop(entry)
                self.apply(events[entry])
        for entry in done:  # all is applied first, and then answered
            if entry.ticket is not None:
                self.answered(entry.ticket, events.get(entry))
        self.oracle.retire(self.lane.topic.retired_ms)
        self.serve(must=served or any(entry.lane is self.lane for entry in done))
        while woken := [ticket for ticket in self.parked if ticket not in self.lane.parked]:
            self.parked = [ticket for ticket in self.parked if ticket not in woken]
            for ticket in woken:
                self.begin_command(ticket)
            self.oracle.retire(self.lane.topic.retired_ms)
            self.serve(must=True)
        assert all(ticket.stage is Stage.WAITING for ticket in self.claimers)
        self.engine.take_effects()

    # Passes.

    def serve(self, *, must):
        """Deal out what is ready, and end waits that are over, if the engine has to look, or has looked."""
        looked = any(ticket.stage is not Stage.WAITING for ticket in self.claimers)
        if self.barrier or not (must or looked):
            return
        paused = self.oracle.paused
        gathers = self.oracle.config.claim_jitter_ms and self.window is not None and self.window > self.now
        if self.claimers and not paused and not gathers:
            self.window = None
            self.deal()
        if self.window is None or paused:
            for ticket, until in list(self.claimers.items()):
                if until is not None and until <= self.time.timer_ms:
                    del self.claimers[ticket]
                    assert ticket.result().jobs == ()

    def deal(self):
        together, ended = bool(self.oracle.config.claim_jitter_ms), False
        while self.claimers and not ended:
            group = list(self.claimers)
            if together:
                turn = self.oracle.turn % len(group)
                group = group[turn:] + group[:turn]
            else:  # each by itself, those for whom there may be something in one frame
                group = group[: max(self.oracle.counts(self.now)[0], 1)]
            found = zip(group, self.hands(group, together=together), strict=True)
            hands = {ticket: hand for ticket, hand in found if hand}
            if not hands:
                return
            self.oracle.turn += together
            ended = together
            now, config = self.now, self.oracle.config
            grants = [
                (t.command.node, now + (t.command.lease_ms or config.lease_ms), hand)
                for t, hand in hands.items()
            ]
            seqs = [seq for hand in hands.values() for seq in hand]
            nonce, first = self.driver.starts, self.lease
            self.lease += len(seqs)
            event = Event(now, "claimed", (grants, nonce, first), tuple(seqs), claiming=len(seqs))
            at = 0
            for ticket, hand in hands.items():
                del self.claimers[ticket]
                self.promised[ticket] = [(seq, (nonce, first + at + i)) for i, seq in enumerate(hand)]
                self.tokens += self.promised[ticket]
                at += len(hand)
            payload = Claimed(nonce, first, tuple(Grant(n, d, len(h)) for n, d, h in grants), _q(seqs))
            self.frame(next(iter(hands)), event, payload)
            if event.applied:
                for ticket in list(hands)[1:]:
                    self.answered(ticket, event)

    def room(self):
        """How many jobs may go."""
        oracle, room = self.oracle, 1 << 20
        if cap := oracle.config.max_in_flight:
            room = cap - oracle.counts(self.now)[1] - self.claiming
        if oracle.config.rate_limit is not None:
            room = min(room, int(oracle.tokens_at(self.now) // 1) - self.claiming)
        return max(room, 0)

    def hands(self, group, *, together):
        """What each gets: all of them together, or one after the other."""
        busy, room = self.busy, self.room()
        if together:
            return self.shared_out(group, busy, room)
        hands = []
        for one in group:
            hands += self.shared_out([one], busy, room - sum(map(len, hands)))
        return hands

    def shared_out(self, group, busy, room):
        """One job a round to each, until it has its number or its bytes, or no more may go. They are busy then."""
        oracle = self.oracle
        hands, open_ones, held = [[] for _ in group], list(range(len(group))), None
        left = [ticket.command.bytes_max for ticket in group]
        while open_ones and room:
            for i in list(open_ones):
                if held is None:
                    credit = oracle.credit
                    held = oracle.take(self.now, busy) if room else None
                    if held is None:
                        return hands
                size = oracle.jobs[held].size
                if hands[i] and size > left[i]:
                    open_ones.remove(i)
                    continue
                hands[i].append(held)
                busy.add(held)
                left[i], room, held = left[i] - size, room - 1, None
                if len(hands[i]) == group[i].command.count_max:
                    open_ones.remove(i)
        if held is not None:
            oracle.credit = credit  # nobody had room for it
        return hands

    # Answers.

    def answered(self, ticket, event):
        """Counts in answers are of that moment."""
        command, reply = ticket.command, ticket.result() if ticket.error is None else None
        ready, in_flight, _ = self.oracle.counts(self.now)
        match command:
            case Claim() if ticket in self.promised:
                told = []
                for seq, token in self.promised.pop(ticket):
                    if job := self.oracle.leased(seq, token):
                        told.append((seq, *token, job.lease[2], job.deliveries, job.priority))
                assert told == [tuple(job) for job in reply.jobs]
                assert reply.ready == ready
            case Ack() | Nack() | Extend() | Release():
                kept, skipped, deadline = self.settled.pop(ticket)
                assert (kept, skipped) == (list(reply.seqs), list(reply.skipped))
                assert (reply.ready, reply.in_flight, reply.deadline) == (ready, in_flight, deadline)
            case Pause():
                assert reply.paused == command.paused
            case Purge():
                assert reply.purged == event.took
            case DeleteRecords():
                assert reply.count == len(self.oracle.jobs)

    # What must hold.

    def look(self):
        """Counts as of now, and each job where it stands."""
        oracle, queue = self.oracle, self.driver.state("q").queue
        assert (queue.ready, queue.in_flight, queue.delayed) == oracle.counts(self.now)  # I-12
        assert queue.paused == oracle.paused
        lane = self.lane
        shown = peek(lane, JobState.READY, 99, self.now)
        assert [view.seq for view in shown] == oracle.shown(self.now, self.busy)
        for view in shown:
            job = oracle.jobs[view.seq]
            assert (view.deliveries, view.priority) == (job.deliveries, job.priority)
            assert view.reason == (b"expired" if job.lease else job.reason)
        for state in (JobState.IN_FLIGHT, JobState.DELAYED):
            views = peek(lane, state, 99, self.now)
            assert [view.seq for view in views] == oracle.in_state(state.name.lower(), self.now)
            for view in views:
                job = oracle.jobs[view.seq]
                leased = job.lease if state is JobState.IN_FLIGHT else None
                assert (view.deliveries, view.priority) == (job.deliveries, job.priority)
                assert (view.node, view.deadline) == ((leased[1], leased[2]) if leased else (b"", 0))
                assert view.ready_at == (0 if leased else oracle.since(job))
                assert leased or view.reason == (b"expired" if job.lease else job.reason)

    def agrees(self):
        self.the_projection_is_the_oracles()
        if self.driver.in_flight[0] is None and self.oracle.config.durability != "ephemeral":
            self.the_bytes_give_the_same()
        if not self.barrier:
            self.the_engine_wakes_in_time()

    def the_projection_is_the_oracles(self):
        topic, told = self.lane.topic, {}
        for job in self.oracle.jobs.values():
            if job.deliveries:
                (nonce, counter), node, until, rest = job.lease or ((None, 0), b"", job.ready_at, 0)
                name = b"" if nonce is None else nonce.to_bytes(8, "big")
                told[job.seq] = (
                    job.deliveries,
                    name,
                    counter,
                    node,
                    until,
                    rest,
                    job.reason,
                    job.lease is not None,
                )
        rows = topic.jobs.image().rows
        assert told == {
            row.seq: (row.deliveries, row.nonce, row.counter, row.node, row.until, row.backoff, row.reason, row.leased)
            for row in rows
        }  # fmt: skip
        index = topic.index
        assert sorted(self.oracle.jobs) == [seq for seq in range(1, index.head_seq + 1) if index.is_live(seq)]

    def the_bytes_give_the_same(self):
        """I-09, at every moment at which nothing is being written, whatever the fold has seen of time."""
        wal = bytes(self.driver.wals[0])
        for item in scan(wal, self.folded_to, len(wal)).items:
            apply(self.folded, item, WalFileId(0, 0, 1))
        self.folded_to = len(wal)
        assert digest(self.folded) == digest(self.engine.catalog)
        jobs = self.folded.topics[self.lane.topic_id].jobs
        jobs.advance(self.now)
        _, in_flight, delayed = self.oracle.counts(self.now)
        assert (jobs.counts[JobState.IN_FLIGHT], jobs.counts[JobState.DELAYED]) == (in_flight, delayed)

    def the_engine_wakes_in_time(self):
        """Whatever time alone brings: the instant it names is not later."""
        named, now, oracle = self.engine.next_deadline_ms(), self.now, self.oracle
        instants = [
            oracle.since(job) for seq, job in oracle.jobs.items() if oracle.state(seq, now) == "delayed"
        ]
        instants += [oracle.jobs[seq].lease[2] + 1 for seq in oracle.in_state("in_flight", now)]
        if self.claimers and self.window is not None and not oracle.paused:
            instants.append(max(self.window, now))
        limit = oracle.config.rate_limit
        if limit and self.claimers and not oracle.paused and self.window is None and not self.room():
            if oracle.best(now, self.busy) is not None and self.below_cap() and not self.claiming:
                short = 1 - oracle.tokens_at(now)
                instants.append(now + max(-(-short * limit.per_ms // limit.count), 0))
        due = [instant + self.time.behind_ms for instant in instants]
        if self.window is None or oracle.paused:
            waits = [until for until in self.claimers.values() if until is not None]
            due += [now + max(until - self.time.timer_ms, 0) for until in waits]
        assert not due or (named is not None and named <= max(min(due), now))

    def below_cap(self):
        cap = self.oracle.config.max_in_flight
        return not cap or self.oracle.counts(self.now)[1] + self.claiming < cap


def _without_ttl_of_keys(given):
    """A keyed job whose time has passed may hide the next of its key until a frame says so, within a second."""
    return {**given, "ttl_ms": 0} if given.get("max_in_flight_per_key") else given


def _of(columns, name, i):
    column = getattr(columns, name)
    value = _ABSENT[name] if column is None else column[i]
    return 0 if value is None and name != "ttl_ms" else value


_ABSENT = {"priority": None, "delay_ms": None, "ttl_ms": None, "key": b""}


def _q(numbers):
    return array("Q", numbers)


TestLeases = Leases.TestCase
TestLeases.settings = settings(stateful_step_count=10)
