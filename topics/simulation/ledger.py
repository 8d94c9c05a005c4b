"""Everything the checkers of one World know: what went to each shard's log, what a sync has covered, what clients hold.

The World tells it of each batch placed and written, each answer, each page, each crash and each recovery; it raises
`PromiseBroken` when a promise is broken. It looks at the engine only where a client could: at states, pages and replies
(and, for the digests of I-09 and I-10, at the catalog).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from topics.codec.log.frame import FrameView, Run
from topics.engine.apply import Catalog
from topics.engine.batch import WalBatch, WalPosition
from topics.engine.commands import (
    Append,
    BringOver,
    Checkpointed,
    Claim,
    Command,
    DeleteRecords,
    DeleteRouter,
    DeleteSchedule,
    DeleteTopic,
    Extend,
    Nack,
    Purge,
    PutRouter,
    PutSchedule,
    PutTopic,
    Redrive,
    Release,
    Settle,
    Sync,
    WaitForCopies,
)
from topics.engine.engine import Engine
from topics.engine.replies import (
    Appended,
    JobsClaimed,
    JobsSettled,
    RecordsDeleted,
    RouterDeleted,
    RouterPut,
    ScheduleDeleted,
    SchedulePut,
    TopicDeleted,
    TopicPut,
    TopicState,
)
from topics.engine.tickets import Ticket
from topics.kernel.columns import RecordColumns
from topics.kernel.config import Durability
from topics.log.reads.diff import DiffPlan, DiffQuery
from topics.simulation.claims import PerhapsGone, TopicClaims
from topics.simulation.machine import peek, restarted
from topics.simulation.oracle import (
    Facts,
    PromiseBroken,
    ShardWrites,
    check_losses,
    differing_fields,
    facts,
    find_prefixes,
)
from topics.simulation.queues.job_claims import DURABLE, Place
from topics.simulation.synced_bytes import SyncWatch
from topics.testing.faults import DiskCall
from topics.testing.simdisk import SimDisk

# What they promise beside being synced is told by what a crash leaves.
_TOLD_BY_CRASHES = (
    BringOver, WaitForCopies, Checkpointed, DeleteRouter, DeleteSchedule, DeleteTopic, PutRouter, PutSchedule, PutTopic,
    Redrive, Sync,
)  # fmt: skip
_GOES_CORRUPT = b'"$dead_letter_reason":"corrupt"'
_DAMAGED_READS = 2  # one that fails is made again
_SYNCED = (RouterDeleted, RouterPut, ScheduleDeleted, SchedulePut, TopicDeleted, TopicPut)


class Ledger:
    """The checkers of one run. `base`: the state behind the last recovery; `logs`: what was written since."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.watch = SyncWatch()
        disk.monitor = self.watch.observe
        self.base = Catalog()
        self.logs: list[ShardWrites] = []
        self.claims: dict[int, TopicClaims] = {}
        self.refused: set[bytes] = set()
        self._deletes: dict[str, PerhapsGone] = {}
        self._places: dict[int, Place] = {}
        self._deleting: dict[int, tuple[DeleteRecords, TopicClaims | None]] = {}
        self._runs: dict[int, list[tuple[int, Place]]] = {}
        self._whole = True
        self._opening = False
        self._losses = False
        self._found: Facts = facts(self.base)
        self._leased: Facts = {}  # jobs of queues, before the last recovery ended their leases

    # Writing.

    def placed(self, batch: WalBatch, at: WalPosition) -> None:
        """A batch goes to the disk; from now on a crash may leave any prefix of its writes."""
        for entry, count in zip(batch.entries, self.logs[batch.shard].place(batch, at), strict=True):
            place = (batch.shard, count)
            if entry.ticket is not None:
                self._places[id(entry.ticket)] = place
            for item in entry.items:
                if isinstance(item, Run) and entry.memory is None:
                    self._runs.setdefault(item.topic_id, []).append((item.seq_start, place))

    def written(self, shard: int) -> None:
        log = self.logs[shard]
        log.written = len(log.units)

    # Answers.

    def asking(self, engine: Engine, command: DeleteRecords) -> list[int]:
        """A delete is asked for: from now on what it selects may be gone. Returns the seqs acknowledged before."""
        self._deletes.setdefault(command.topic, {})[id(command)] = (command, None)
        topic = engine.catalog.find(command.topic)
        claims = None if topic is None else self.claims.get(topic.topic_id)
        self._deleting[id(command)] = command, claims
        return [] if claims is None else list(claims.acked)

    def asking_of_jobs(self, engine: Engine, command: Command) -> None:
        """Workers ask for the end of leases, somebody for that of all jobs that nobody has, or jobs go elsewhere."""
        if isinstance(command, Append):
            if command.moved:
                self._moving(command.records, engine.now_ms())
            return
        topic = engine.catalog.find(getattr(command, "topic", ""))
        if topic is None:
            return
        if isinstance(command, Settle | Release | Redrive):
            self._claims(engine, topic.topic_id).jobs.asking(command)
        elif isinstance(command, Purge):
            self._claims(engine, topic.topic_id).jobs.purging(command)

    def _moving(self, records: RecordColumns, now_ms: int) -> None:
        """Records come to a topic out of another one, as they were there; their ids say which (queues 3)."""
        metas = records.meta or [b""] * len(records.data)
        for move_id, data, meta in zip(records.dedup_id or (), records.data, metas, strict=True):
            topic_id, _, seq = map(int, move_id.split(b":")[1:])
            claims = self.claims.get(topic_id)
            if claims is None:
                continue
            claims.jobs.moving(seq, now_ms)
            told = claims.acked.get(seq)
            if told is not None and told.data != data and not self._was_unreadable(data, meta):
                raise PromiseBroken(f"seq {seq} was put as {told.data!r}, and goes elsewhere as {data!r}")

    def _was_unreadable(self, data: bytes, meta: bytes) -> bool:
        """A record that the disk refused to give twice goes without its data, and says so."""
        return data == b"null" and _GOES_CORRUPT in meta and self.disk.failed["read"] >= _DAMAGED_READS

    def answered(self, engine: Engine, ticket: Ticket, acked_before: Iterable[int], *, asked_ms: int) -> None:
        """A ticket ended well: what its class promises holds now, and what it says agrees with what was said."""
        command, reply = ticket.command, ticket.result()
        place = self._places.pop(id(ticket), DURABLE)
        is_synced = isinstance(reply, _SYNCED)
        if isinstance(command, Sync) or (is_synced and place != DURABLE):
            self._check_durable(place, ticket)
        if isinstance(command, _TOLD_BY_CRASHES):
            return
        topic = engine.catalog.find(command.topic)
        if topic is None:
            return
        claims, config = self._claims(engine, topic.topic_id), topic.config
        if isinstance(reply, Appended):
            assert isinstance(command, Append)
            if config.durability is not Durability.EPHEMERAL:
                place = max([place, *self._places_of(topic.topic_id, reply.seqs)], key=lambda p: p[1])
            claims.appended(command, reply, config, asked_ms=asked_ms, now_ms=engine.now_ms(), place=place)
            self.check_durable_seq(topic.topic_id, reply.durable_seq)
        elif isinstance(reply, RecordsDeleted):
            assert isinstance(command, DeleteRecords)
            same = self._deleting.pop(id(command))[1] is claims  # the name may be another topic by now
            claims.deleted(command, reply.head_seq, acked_before if same else (), place)
        elif isinstance(reply, JobsClaimed):
            assert isinstance(command, Claim)
            claims.jobs.claimed(command, reply, config, place)
        elif isinstance(reply, JobsSettled):
            assert isinstance(command, Settle | Release)
            claims.jobs.settled(command, reply, asked_ms, place)
        elif isinstance(command, Purge):
            claims.jobs.purged(command, topic.head_seq)
        must_sync = config.durability is Durability.FSYNC or (ticket.sync and not claims.ephemeral)
        if isinstance(command, Claim | Nack | Extend | Release):  # not in the class of records
            must_sync = config.durability is Durability.FSYNC and config.leases_durable
        if must_sync:
            self._check_durable(place, ticket)
        elif self.logs[place[0]].written < place[1]:
            raise PromiseBroken(f"answered before it was written: {command!r:.200}")

    def ended_badly(self, ticket: Ticket) -> None:
        """A ticket ended with an error: forget where it went, for another may get its id."""
        self._places.pop(id(ticket), None)
        self._deleting.pop(id(ticket.command), None)

    def _check_durable(self, place: Place, ticket: Ticket) -> None:
        """I-17: no ack before the sync that covers it, by the disk's calls and by the disk itself."""
        shard, count = place
        log = self.logs[shard]
        if log.durable(self.watch) < count:
            raise PromiseBroken(f"answered before the sync that covers it (I-17): {ticket.command!r:.200}")
        if count:
            unit = log.units[count - 1]
            if self.disk.inode(unit.path) is None:
                return  # of a retry: a checkpoint has taken the file, and a crash shows whether it could
            if not self.disk.synced_bytes(unit.path)[: unit.stop].endswith(unit.data):
                raise PromiseBroken(
                    f"answered, and a power cut now would take it (I-17): {ticket.command!r:.200}"
                )

    def check_durable_seq(self, topic_id: int, durable_seq: int) -> None:
        """What a power cut now would leave of a topic is not less than `durable_seq`."""
        place = max(
            (p for first, p in self._runs.get(topic_id, ()) if first <= durable_seq),
            key=lambda p: p[1],
            default=DURABLE,
        )
        if self.logs[place[0]].durable(self.watch) < place[1]:
            raise PromiseBroken(f"durable_seq {durable_seq} of topic id {topic_id} is not durable (I-17)")

    def _places_of(self, topic_id: int, seqs: Sequence[int]) -> list[Place]:
        """Where the writes that brought these seqs lie, of those since the last recovery."""
        runs = self._runs.get(topic_id, [])
        places = []
        for seq in {min(seqs), max(seqs)}:
            places += [place for first, place in runs if first <= seq][-1:]
        return places

    # Reading.

    def read(
        self,
        engine: Engine,
        query: DiffQuery,
        plan: DiffPlan,
        records: Sequence[FrameView],
        state: TopicState,
    ) -> None:
        claims = self._claims(engine, plan.topic_id)
        for record in records:
            if record.data in self.refused:
                raise PromiseBroken(
                    f"seq {record.seq} is of a write that was refused: {record.data!r} (S2.16)"
                )
        claims.page(query, plan, records, state)
        claims.state(state)
        self.check_durable_seq(plan.topic_id, state.durable_seq)

    def looked(self, engine: Engine) -> None:
        """Topics come and go, and their configs change: claims follow."""
        topics = engine.catalog.topics
        for topic_id in [gone for gone in self.claims if gone not in topics]:
            del self.claims[topic_id]
        for topic_id, topic in topics.items():
            claims = self._claims(engine, topic_id)
            claims.note_config(topic.config)
            claims.was_dest = claims.was_dest or bool(topic.inbound)
            if (
                claims.was_dest
            ):  # what a source had lost, dest tells of while it runs; its router may end at once
                claims.lost = [(first, last, reason) for first, last, reason, _ in topic.index.lost]

    def _claims(self, engine: Engine, topic_id: int) -> TopicClaims:
        if topic_id not in self.claims:
            topic = engine.catalog.topics[topic_id]
            self.claims[topic_id] = TopicClaims(topic.config, self._deletes.setdefault(topic.name, {}))
        return self.claims[topic_id]

    # Ends and beginnings.

    def crashing(self, *, power: bool) -> list[int]:
        """Just before the end: how many writes of each shard must be found."""
        if power:
            return [log.durable(self.watch) for log in self.logs]
        return [log.written for log in self.logs]

    def crashed(self, at_least: Sequence[int], *, power: bool) -> None:
        """Just after it: what the disk holds is one of the states the oracle allows."""
        if power:
            self.watch = SyncWatch()  # what survived has reached the platter
            self.disk.monitor = self.watch.observe
        recovered = peek(self.disk)
        if recovered.damages:
            raise PromiseBroken(f"a crash was taken for damage: {recovered.damages[0]}")
        self._losses = self._losses or restarted(self.disk)
        found = facts(recovered.catalog)
        kept = find_prefixes(
            self.base,
            self.logs,
            found,
            at_least=at_least,
            losses=self._opening,
            machine_restarted=self._losses,
            leased=self._leased,
            longest=not (power or self._opening),
        )
        for shard, (log, count) in enumerate(zip(self.logs, kept, strict=True)):
            self._whole = self._whole and count == len(log.units)
            if not power:  # the call that crashed told nobody what it wrote
                for unit in log.units[log.written : count]:
                    self.watch.observe(DiskCall("write", unit.path, unit.stop - len(unit.data)))
            del log.units[count:]
            log.written = count
            for claims in self.claims.values():
                claims.void(shard, count)
        self._found = found

    def opening(self) -> bool:
        """A recovery begins. Returns whether it is one after a restart of the machine."""
        self._opening = True
        self._losses = self._losses or restarted(self.disk)
        return restarted(self.disk)

    def opened(self, engine: Engine, *, machine_restarted: bool) -> None:
        """A recovery is complete: it has changed nothing but what a restart must log, and all but the end of leases is
        durable.
        """
        recovered = peek(self.disk)
        now = facts(recovered.catalog)
        self.compare(now, facts(engine.catalog), "the log folded again is not the state that opened (I-09)")
        if self._found["topics"].keys() != now["topics"].keys() or self._found["names"] != now["names"]:
            raise PromiseBroken("recovery changed which topics there are")
        for topic_id, topic in now["topics"].items():
            before = self._found["topics"][topic_id]
            if wrong := check_losses(before, topic, machine_restarted=machine_restarted):
                raise PromiseBroken(f"topic {topic['name']!r} after recovery: {wrong}")
        self._leased = {
            topic_id: topic["jobs"] for topic_id, topic in self._found["topics"].items() if "jobs" in topic
        }
        self.base = recovered.catalog
        self.logs = [ShardWrites() for _ in range(engine.shards)]
        self._places.clear()
        self._runs.clear()
        for topic_id in [gone for gone in self.claims if gone not in now["topics"]]:
            del self.claims[topic_id]
        for topic_id, topic in now["topics"].items():
            self._claims(engine, topic_id).restarted(topic, whole=self._whole)
        self._whole, self._opening, self._losses = True, False, False
        self._found = now

    def quiet(self, engine: Engine) -> None:
        """Nothing is in flight: folding the log from empty gives the live state (I-09), ephemeral contents aside."""
        live, folded = facts(engine.catalog), facts(peek(self.disk).catalog)
        for state in (live, folded):
            for topic in state["topics"].values():
                if topic["config"]["durability"] == "ephemeral":
                    kept = {name: topic[name] for name in ("id", "name", "epoch", "config", "ceiling")}
                    topic.clear()
                    topic.update(kept)
        self.compare(folded, live, "folding the log from empty is not the live state (I-09)")

    def compare(self, one: Facts, other: Facts, what: str) -> None:
        """Two states are one, or it is told where they part."""
        if one == other:
            return
        for topic_id, topic in one["topics"].items():
            if topic != other["topics"].get(topic_id):
                raise PromiseBroken(
                    f"{what}: {differing_fields(topic, other['topics'].get(topic_id, topic))}"
                )
        raise PromiseBroken(f"{what}: {one!r:.300} != {other!r:.300}")
