"""A driver of the engine without a disk: each shard's log is one growing buffer in memory.

Stages are separate calls, so that a test decides what is written, what is synced and what is still in flight; `run`
carries everything to its end. Reads fetch from the same buffer (or from an ephemeral topic's memory).
"""

from __future__ import annotations

from topics.codec.log.scan import Stop, scan
from topics.engine.apply import Catalog, apply
from topics.engine.batch import WalBatch, WalPosition
from topics.engine.commands import Append, DeleteRecords, DeleteTopic, PutTopic
from topics.engine.engine import Engine
from topics.engine.tickets import Stage, Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.kernel.errors import Fatal
from topics.kernel.limits import Limits
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.log.reads.frames import assemble
from topics.log.reads.match import parse_match
from topics.log.regions import WalFileId
from topics.testing.calendar import RepeatingCalendar
from topics.testing.clock import ManualClock

T0 = 1_700_000_000_000
PLENTY = 1 << 50


def records(*datas, **columns) -> RecordColumns:
    """Columns of one write; a column given as one value is that value for every record."""
    payloads = [data if isinstance(data, bytes) else b"%d" % data for data in datas]
    spread = {
        name: column if isinstance(column, list) else [column] * len(datas)
        for name, column in columns.items()
    }
    return RecordColumns(payloads, **spread)


def config(**fields):
    return parse_config(fields)


class Driver:
    """An engine, its clock, and one buffer a shard."""

    def __init__(
        self, *, shards: int = 1, limits: Limits | None = None, now_ms: int = T0, sync_interval_ms: int = 1000
    ) -> None:
        self.clock = ManualClock(now_ms)
        self.limits = limits
        self.sync_interval_ms = sync_interval_ms
        self.wals = [bytearray() for _ in range(shards)]
        self.synced_to = [0] * shards
        self.starts = 0
        self.begin(Catalog())

    def begin(self, catalog: Catalog) -> None:
        self.starts += 1
        self.engine = Engine(
            self.clock,
            shards=len(self.wals),
            catalog=catalog,
            limits=self.limits,
            sync_interval_ms=self.sync_interval_ms,
            checking=True,
            lease_nonce=self.starts,
            calendar=RepeatingCalendar(),
        )
        self.in_flight: list[tuple[WalBatch, WalPosition] | None] = [None] * len(self.wals)
        self.batches = [0] * len(self.wals)
        self.syncs = [0] * len(self.wals)
        for shard in range(len(self.wals)):
            self.engine.space(shard, PLENTY)

    # Stages.

    def take(self, shard: int = 0) -> WalBatch | None:
        """Take the next batch; its bytes go to the buffer when it is written."""
        batch = self.engine.take_batch(shard)
        if batch is not None:
            at = WalPosition(WalFileId(0, shard, 1), len(self.wals[shard]))
            self.in_flight[shard] = (batch, at)
            self.batches[shard] += 1
        return batch

    def write(self, shard: int = 0) -> None:
        batch, at = self.in_flight[shard]
        for chunk in batch.chunks:
            self.wals[shard] += chunk
        if not batch.sync:
            self.in_flight[shard] = None
        self.engine.written(batch, at)

    def sync(self, shard: int = 0) -> None:
        batch, at = self.in_flight[shard]
        self.in_flight[shard] = None
        self.syncs[shard] += 1
        self.synced_to[shard] = len(self.wals[shard])
        self.engine.synced(batch, at)

    def fail(self, shard: int = 0) -> Fatal:
        """The write or the sync in flight fails."""
        batch, _ = self.in_flight[shard]
        self.in_flight[shard] = None
        error = Fatal("the disk said no")
        self.engine.failed(batch, error)
        return error

    def step(self, shard: int = 0) -> bool:
        """One stage of one shard. False if there is nothing to do."""
        current = self.in_flight[shard]
        if current is None:
            return self.take(shard) is not None
        if self.engine.state.shards[shard].written:
            self.sync(shard)
        else:
            self.write(shard)
        return True

    def run(self) -> None:
        """Everything proposed goes all its way."""
        while any([self.step(shard) for shard in range(len(self.wals))]):  # noqa: C419 - each shard takes its step
            pass

    # Commands.

    def propose(self, command, *, sync: bool = False) -> Ticket:
        return self.engine.propose(command, sync=sync)

    def do(self, command, *, sync: bool = False):
        """The command's reply, once everything has gone all its way."""
        ticket = self.propose(command, sync=sync)
        self.run()
        assert ticket.stage is Stage.DONE
        return ticket.result()

    def put(self, topic: str = "t", **fields):
        return self.do(PutTopic(topic=topic, config=config(**fields)))

    def append(self, *datas, topic: str = "t", sync: bool = False, **fields):
        return self.do(self.appending(*datas, topic=topic, **fields), sync=sync)

    def appending(self, *datas, topic: str = "t", **fields) -> Append:
        own = {name: fields.pop(name) for name in _OF_WRITE if name in fields}
        return Append(topic=topic, records=records(*datas, **fields), **own)

    def delete(self, topic: str = "t", *, before_seq: int | None = None, match=None):
        given = None if match is None else parse_match(match, tag_bytes_max=256)
        return self.do(DeleteRecords(topic=topic, before_seq=before_seq, match=given))

    def drop(self, topic: str = "t"):
        return self.do(DeleteTopic(topic=topic))

    # Reading.

    def plan(self, topic: str = "t", **query) -> DiffPlan:
        """A plan by the floors as they stand."""
        query.setdefault("bytes_max", 1 << 40)
        query.setdefault("limit", 1 << 40)
        if (given := query.get("match")) is not None:
            query["match"] = parse_match(given, tag_bytes_max=256)
        return self.engine.plan_diff(DiffQuery(topic=topic, **query))

    def read(self, topic: str = "t", **query):
        """(plan, records) as a reader gets them: what time alone has moved is logged first (semantics 4)."""
        due = self.engine.read_due(topic)
        if due is not None:
            self.do(due)
        plan = self.plan(topic, **query)
        return plan, self.fetch(plan)

    def fetch(self, plan: DiffPlan):
        buffers = []
        for extent in plan.extents:
            buffer = extent.source if isinstance(extent.source, bytes) else self.wals[extent.source.shard]
            buffers.append(bytes(buffer[extent.offset : extent.offset + extent.size]))
        return assemble(plan, buffers)

    def datas(self, topic: str = "t", **query) -> list[bytes]:
        return [record.data for record in self.read(topic, **query)[1]]

    def state(self, topic: str = "t"):
        return self.engine.topic_state(topic)

    def topic(self, topic: str = "t"):
        """The core's own view; None if there is none."""
        return self.engine.state.catalog.find(topic)

    # The log.

    def items(self, shard: int = 0):
        """What a scan of the shard's log finds, each with the file it lies in."""
        buffer = bytes(self.wals[shard])
        seen = scan(buffer, 0, len(buffer))
        assert seen.stop is Stop.END, seen
        assert seen.incomplete_from is None
        return seen.items

    def replay(self, catalog: Catalog | None = None) -> Catalog:
        """The state that the bytes alone give."""
        catalog = catalog or Catalog()
        for shard in range(len(self.wals)):
            for item in self.items(shard):
                apply(catalog, item, WalFileId(0, shard, 1))
        return catalog

    def restart(self, *, machine_restarted: bool) -> None:
        """A new process reads the log; every byte written has survived."""
        self.begin(self.replay())
        self.engine.resume(machine_restarted=machine_restarted)
        self.run()


_OF_WRITE = ("idempotency_key", "expected_head", "create", "config")
