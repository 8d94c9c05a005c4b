"""One seed, one run: engine, shard writers, clients, disk, clock and chance on one thread (reliability 3).

Everything interleaves at the stages of a batch (place, write, told, sync, told), so clients propose, time jumps and the
disk fails between any two of them. A round ends in a crash, a kill or a clean shutdown; then what the disk holds is
held against the oracle, opened by the same `open_store` as everywhere, and held against it again. Clients' claims go
on across rounds.

The trace is every step and every disk call; one seed gives the same trace, byte for byte.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

import attrs
import xxhash

from topics.engine.commands import Append, Command, DeleteRecords, Sync
from topics.engine.engine import Engine
from topics.engine.tickets import Ticket
from topics.kernel.errors import Fatal, Rejected
from topics.kernel.ports import Disk
from topics.log.reads.diff import DiffQuery
from topics.simulation.background.checkpoint import Works
from topics.simulation.drawn_options import FAULTS, draw_end, draw_options, draw_step, draw_time
from topics.simulation.ledger import Ledger
from topics.simulation.machine import RunEnd, cold_folder, end_as, may_lose_pages, open_simulated
from topics.simulation.oracle import PromiseBroken, check_losses, facts
from topics.simulation.queues.queue_history import check_queue_history
from topics.simulation.shard_stepper import BatchStage, ShardStepper, WatchedWriter
from topics.simulation.workload import Workload
from topics.store.opened import Opened
from topics.store.reading import read_page
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.faults import DiskCall, Landed, SimCrash
from topics.testing.simdisk import CAPACITY, SimDisk
from topics.testing.survival import Shape

_TRACE_KEPT = 400
_OPENS_MAX = 40
_CLIENTS_IN_FLIGHT = 12
_HASTE = 0.05
_HASTE_STEPS = 150


@attrs.frozen(kw_only=True)
class WorldReport:
    """What one run did. `trace` is the hash of its every step."""

    seed: int
    trace: str
    counts: dict[str, int]


class World:
    """One run. `port`: what the store sees in place of the disk (for planting faults the checkers must find)."""

    def __init__(
        self, seed: int, *, rounds: int = 6, steps: int = 220, port: Callable[[SimDisk], Disk] | None = None,
        asking: type[Workload] = Workload,
    ) -> None:  # fmt: skip
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.entropy = SeededEntropy(seed)
        self.disk = SimDisk(seed)
        self.port: Disk = port(self.disk) if port is not None else self.disk
        self.ledger = Ledger(self.disk)
        self.counts: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=_TRACE_KEPT)
        self._trace = xxhash.xxh3_128()
        self._rounds, self._steps = rounds, steps
        self._options = draw_options(self.random, keeps_logs=asking.keeps_logs)
        self.workload = asking(self.random)
        self.opened: Opened | None = None
        self.pens: list[ShardStepper] = []
        self.asked: dict[int, tuple[Ticket, int, list[int]]] = {}
        self.works = Works(self._proposed, self.random, self._note, self.counts)

    def run(self) -> WorldReport:
        """All rounds. Raises Violation (or the assertion that broke), with the end of the trace in a note."""
        try:
            for number in range(self._rounds):
                self._note(f"round {number}")
                self._open()
                self._round()
            self._open()
            self._read_everything()
            check_queue_history(self.disk)
        except Exception as error:
            tail = "\n".join(list(self.lines)[-60:])
            error.add_note(f"World(seed={self.seed}, rounds={self._rounds}, steps={self._steps})\n{tail}")
            raise
        return WorldReport(
            seed=self.seed,
            trace=self._trace.hexdigest(),
            counts=dict(self.counts + self.works.backups.counts),
        )

    @property
    def engine(self) -> Engine:
        assert self.opened is not None
        return self.opened.engine

    # A round.

    def _open(self) -> None:
        """Recover, however often it takes: recovery itself crashes and fails too."""
        for _ in range(_OPENS_MAX):
            self._watch_calls()
            faults = self.counts["faults"]
            if self.random.random() < 0.3:
                self.disk.crash_at(self.random.randrange(60), self.random.choice(list(Landed)))
            elif self.random.random() < 0.15:
                self._inject()
            if self.random.random() < 0.15:
                self._options = attrs.evolve(self._options, shards=self.random.choice((1, 2, 3)))
            machine_restarted = self.ledger.opening()
            try:
                cold = cold_folder(self.port)
                opened = open_simulated(
                    self.disk, self.clock, self.entropy, self._options, port=self.port, cold=cold
                )
            except SimCrash:
                self._crash()
                continue
            except (OSError, Fatal) as error:
                self._note(f"open failed: {error}")
                self.disk.heal()
                if self.random.random() < 0.5:
                    self._crash()
                continue
            self.disk.heal()
            self.disk.drop_caches()
            if opened.damages:
                raise PromiseBroken(f"a crash was taken for damage: {opened.damages[0]}")
            self.opened = opened
            self.ledger.opened(opened.engine, machine_restarted=machine_restarted)
            self._open_again(exact=self.counts["faults"] == faults)
            self.pens = [ShardStepper(WatchedWriter(writer, self.ledger)) for writer in opened.writers]
            self.workload.shards = len(self.pens)
            self.counts["opened"] += 1
            return
        raise PromiseBroken("the store does not open any more")

    def _open_again(self, *, exact: bool) -> None:
        """I-10: a second recovery right behind the first gives the same state, even behind another power cut; where a
        fault left the first no space, it may begin moves that the first could not.
        """
        twin = SimDisk(self.seed)
        twin.restore(self.disk.snapshot())
        power = self.random.random() < 0.5
        if power:
            twin.power_loss(self.random.choice(list(Shape)))
        else:
            twin.process_death()
        clock = ManualClock(self.clock.now_ms())
        again = open_simulated(twin, clock, SeededEntropy(0), self._options, cold=cold_folder(twin))
        one, other = facts(self.engine.catalog), facts(again.engine.catalog)
        if exact and not power:
            self.ledger.compare(one, other, "recovery run twice gives another state (I-10)")
        for topic_id, topic in one["topics"].items():
            if wrong := check_losses(topic, other["topics"][topic_id], machine_restarted=power):
                raise PromiseBroken(f"recovery behind a recovery: {wrong}")

    def _round(self) -> None:
        armed = self.random.random() < 0.6
        if armed:
            self.disk.crash_at(self.random.randrange(120), self.random.choice(list(Landed)))
        try:
            for _ in range(self._steps):
                self._step()
                if self.random.random() < 0.05 and all(pen.writer.failed is not None for pen in self.pens):
                    break
            if not armed and self.random.random() < 0.4:
                self._shut_down()
        except SimCrash:
            self.counts["crashed in a call"] += 1
        self.disk.heal()
        self.disk.free = CAPACITY
        self._crash()

    def _crash(self) -> None:
        """The process ends, and perhaps more than that; what is left is held against the oracle."""
        end = draw_end(self.random, may_lose_pages=may_lose_pages(self.opened))
        shape = self.random.choice(list(Shape))
        at_least = self.ledger.crashing(power=end is not RunEnd.PROCESS)
        self._note(f"end: {end.value} {shape.value}")
        end_as(self.disk, end, shape)
        self.ledger.crashed(at_least, power=end in (RunEnd.POWER, RunEnd.MOUNT))
        self.counts[end.value] += 1
        self.works.end(self.opened)
        self.opened, self.pens = None, []
        self.asked.clear()

    def _shut_down(self) -> None:
        """A clean end: exact heads, everything synced, closing marks (storage 4)."""
        self.counts["clean ends"] += 1
        for _ in range(4 * _CLIENTS_IN_FLIGHT):
            for pen in self.pens:
                self._drain(pen)
        self.engine.log_exact_heads()
        for pen in self.pens:
            if pen.writer.failed is None:
                self.engine.propose(Sync(shard=pen.writer.shard))
                self._drain(pen)
                pen.writer.mark()
        if all(pen.writer.failed is None for pen in self.pens):
            self.ledger.quiet(self.engine)

    def _drain(self, pen: ShardStepper) -> None:
        self._advance(pen)
        while pen.stage is not BatchStage.IDLE:
            self._advance(pen)

    # A step.

    def _step(self) -> None:
        kind = draw_step(self.random)
        match kind:
            case "propose":
                self._propose()
            case "write":
                self._advance(self.random.choice(self.pens))
            case "read":
                self._read(self.random.choice(self.workload.names))
            case "time":
                self._pass_time()
            case "tick":
                self._note("tick")
                self.engine.tick()
                self._after_call()
            case "mark" | "reserve":
                self._keep_house(self.random.choice(self.pens), kind)
            case "fault":
                self._inject()
            case "space":
                self.disk.free = self.random.choice((0, CAPACITY, CAPACITY))
            case "checkpoint":
                self._checkpoint()
            case "quiet":
                if all(pen.stage is BatchStage.IDLE and pen.writer.failed is None for pen in self.pens):
                    if all(self.engine.rested(pen.writer.shard, 0) for pen in self.pens):
                        self.ledger.quiet(self.engine)
                        self.counts["folds from empty"] += 1

    def _checkpoint(self) -> None:
        """A step of what the store does beside its writes, or much of it while shards write on."""
        haste = self.random.random() < _HASTE
        for _ in range(_HASTE_STEPS if haste else 1):
            assert self.opened is not None
            self.works.advance(self.opened)
            self._after_call()
            if haste:
                self._advance(self.random.choice(self.pens))

    def _propose(self) -> None:
        if len(self.asked) >= _CLIENTS_IN_FLIGHT:
            return
        heads = {name: self.engine.topic_state(name).head_seq for name in self.engine.names()}
        self._ask(self.workload.command(heads), sync=self.random.random() < 0.15)

    def _ask(self, command: Command, *, sync: bool = False) -> Ticket | None:
        with suppress(Rejected):
            return self._proposed(command, sync=sync)
        return None

    def _proposed(self, command: Command, *, sync: bool = False) -> Ticket:
        self._note(f"propose {type(command).__name__} {getattr(command, 'topic', '')} sync={sync}")
        acked: list[int] = []
        if isinstance(command, DeleteRecords):
            acked = self.ledger.asking(self.engine, command)
        self.ledger.asking_of_jobs(self.engine, command)
        asked_ms = self.engine.now_ms()
        try:
            ticket = self.engine.propose(command, sync=sync)
        except Rejected as refused:
            self._refused(command, refused)
            self._after_call()
            raise
        self.asked[id(ticket)] = (ticket, asked_ms, acked)
        self._after_call()
        return ticket

    def _refused(self, command: Command, refused: Rejected) -> None:
        """Nothing of a refused write may ever be read."""
        self.counts[f"refused {refused.code}"] += 1
        self._note(f"refused {refused.code}")
        if isinstance(command, Append) and command.idempotency_key is None and not command.moved:
            self.ledger.refused.update(command.records.data)

    def _advance(self, pen: ShardStepper) -> None:
        """The next stage of a shard's batch."""
        before = pen.stage
        error = pen.advance(self.engine)
        if error is not None:
            self._note(f"shard {pen.writer.shard} failed: {error}")
            self.counts["shards failed"] += 1
        elif pen.stage is not before:
            self._note(f"shard {pen.writer.shard} {pen.stage.value}")
        self._after_call()

    def _keep_house(self, pen: ShardStepper, kind: str) -> None:
        """The housekeeper never works on a shard whose batch is under way."""
        if pen.stage is not BatchStage.IDLE or pen.writer.failed is not None:
            return
        self._note(f"shard {pen.writer.shard} {kind}")
        if kind == "mark":
            pen.writer.mark()
        else:
            try:
                pen.writer.keep_reserve()
            except OSError as error:
                self._note(f"reserve: {error}")
        self._after_call()

    def _pass_time(self) -> None:
        ahead = draw_time(self.random)
        self.clock.set(self.clock.now_ms() + ahead)
        self._note(f"clock {ahead}")

    def _inject(self) -> None:
        op, kind = self.random.choice(FAULTS)
        self._note(f"fault {op} {kind.value}")
        self.disk.inject(op, kind)
        self.counts["faults"] += 1

    # Reading.

    def _read(self, name: str) -> None:
        try:
            state = self.engine.topic_state(name)
            due = self.engine.read_due(name)
        except Rejected:
            return
        if due is not None:
            self._ask(due)
            state = self.engine.topic_state(name)
        self._read_page(self.workload.query(name, state.head_seq, state.epoch))

    def _read_page(self, query: DiffQuery) -> int:
        """One page, checked. Returns where the next one starts."""
        assert self.opened is not None
        state = self.engine.topic_state(query.topic)
        try:
            plan, records = read_page(query, self.engine.plan_diff, self.opened.reader.read)
        except (OSError, Rejected) as error:  # the cold tier's failures are refusals
            self._note(f"read: {error}")
            return state.head_seq
        self._note(f"page of {query.topic} from {query.from_seq}: {len(records)} records, {plan.gap!r}")
        self.ledger.read(self.engine, query, plan, records, state)
        self.counts["pages"] += 1
        return plan.next_from_seq

    def _read_everything(self) -> None:
        for name in self.engine.names():
            from_seq, head_seq = 0, self.engine.topic_state(name).head_seq
            while from_seq < head_seq:
                after = self._read_page(DiffQuery(topic=name, from_seq=from_seq, limit=50))
                assert after > from_seq
                from_seq = after

    # After every call of the engine.

    def _after_call(self) -> None:
        assert self.opened is not None
        self.works.take_orders(self.opened)
        self.ledger.looked(self.engine)
        for ticket in self.engine.take_effects().finished:
            asked = self.asked.pop(id(ticket), None)
            if ticket.error is not None:
                self.ledger.ended_badly(ticket)
                if isinstance(ticket.error, Rejected):
                    self._refused(ticket.command, ticket.error)
                continue
            _, asked_ms, acked = asked if asked is not None else (ticket, 0, [])
            self._note(f"answered {ticket.result()!r:.160}")
            self.counts["answers"] += 1
            self.workload.answered(ticket)
            self.ledger.answered(self.engine, ticket, acked, asked_ms=asked_ms)

    def _watch_calls(self) -> None:
        """Every disk call goes into the trace, and to the watch."""
        watch = self.ledger.watch

        def monitor(call: DiskCall) -> None:
            watch.observe(call)
            self._note(f"  {call.op} {call.path} {call.offset} {call.size} {call.target}")

        self.disk.monitor = monitor

    def _note(self, line: str) -> None:
        self.lines.append(line)
        self._trace.update(line.encode())
        self._trace.update(b"\n")
