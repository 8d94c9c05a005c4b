"""A data directory with something of everything in it, the same bytes for the same arguments.

Segments that are sealed, growing, half deleted; a log of several files before and behind two snapshots; topics with
labels, caps, deletes, a deleted topic; a queue, of which all of the log is there; the journals of a database and of a
Weaver; and what a client was told. It is made by the engine and the host as a store makes it, on a disk in memory, and
is given as its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
import msgspec

from topics.codec.log.schedules import firing_id
from topics.codec.primitives import checksum
from topics.crypto.keys import KeyPair
from topics.engine.checkpoint import SegmentRules
from topics.engine.commands import (
    Ack as AckJobs,
)
from topics.engine.commands import (
    Append,
    Claim,
    Command,
    CommitConsumer,
    DeleteRecords,
    DeleteTopic,
    Extend,
    Nack,
    PutConsumer,
    PutRouter,
    PutTopic,
    Redrive,
    Sync,
)
from topics.engine.replies import Appended, JobsClaimed
from topics.host.checkpoint.steps import Blocking, Propose, Swap, WaitForBatch
from topics.host.directory.layout import Format
from topics.host.directory.owner import LOCK_NAME, RECORD_SIZE, OwnerRecord
from topics.host.system.memory import MemoryDisk
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig, parse_config
from topics.kernel.limits import Limits
from topics.kernel.ports import Disk
from topics.kv.database import Database
from topics.kv.entries.store import EMPTY
from topics.kv.journaled import DatabaseHeader, Journaled
from topics.kv.replica import Replica
from topics.log.reads.match import parse_match
from topics.store.inline import carry_out
from topics.store.moving import moving
from topics.store.opened import Opened, StoreOptions
from topics.store.opening import open_store
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.journal import MemoryJournal
from topics.testing.simdisk import SimDisk
from topics.weaver.state.ops import encode_ops
from topics.weaver.store.intention_store import open_store as open_weaver

ORDERS, CLICKS, CAPPED, FLEETING, GONE = "orders", "clicks", "capped", "fleeting", "gone"
SPARE: Final = "spare"  # a topic that nobody writes to, and a router joins to another
READER: Final = "reader"  # a consumer of orders
SCHEDULE_ID: Final = 9  # of one that fires into clicks
JOBS, FAILED = "jobs", "failed"  # a queue, and its dead letters
KV_TOPIC: Final = "$kv.name.settings"
STORE_ID: Final = b"a sample's store"
WEAVER_TOPIC: Final = f"$weaver.{STORE_ID.hex()}.log"
AUTHOR: Final = KeyPair.from_seed(bytes([7]) * 32)  # of the database and the Weaver
ROUNDS: Final = 5
WRITE_MAX: Final = 10_000  # records
GONE_IN: Final = 3  # the round in which a topic is deleted
CONFIG_BYTES: Final = 2400  # a log file has room for a config
Files = dict[str, bytes]


@attrs.frozen
class Ack:
    """A client was told that this record is stored. `digest`: XXH3-64 of its data."""

    topic: str
    seq: int
    digest: int


@attrs.frozen
class Sample:
    files: Files
    acks: Sequence[Ack]


def build(*, records: int = 12, seed: int = 0, segments: int = 1) -> Sample:
    """The sample. `records`: of each of the larger topics in each of its five rounds; segments grow with it, and take
    `segments` of them to a round.
    """
    assert records >= 8
    assert 1 <= segments <= records
    story = _Story(records, seed, segments)
    story.begin()
    for number in range(ROUNDS):
        story.round(number)
        if number:
            story.checkpoint()
    story.end()
    return Sample(files_of(story.disk), story.acks)


def files_of(disk: Disk) -> Files:
    """Every file below the directory's root, by its path."""
    files: Files = {}
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        for name in disk.names(directory):
            path = f"{directory}/{name}" if directory else name
            size = disk.size(path)
            if size is None:
                waiting.append(path)
            else:
                files[path] = disk.read(path, 0, size)
    return dict(sorted(files.items()))


def disk_of(files: Files) -> MemoryDisk:
    """A disk in memory that holds the files."""
    disk = MemoryDisk(1 << 40)
    for path, data in files.items():
        parent = path.rpartition("/")[0]
        if parent:
            disk.make_dir(parent)
        disk.create(path, 0)
        disk.write(path, 0, [data])
    return disk


def write_out(files: Files, root: Path) -> None:
    """Write the files below a directory."""
    for path, data in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(data)


class _Story:
    """A store and what happens to it."""

    def __init__(self, records: int, seed: int, segments: int) -> None:
        self.records = records
        self.disk = SimDisk(seed)
        self.clock = ManualClock()
        self.entropy = SeededEntropy(seed)
        self.acks: list[Ack] = []
        self.options = StoreOptions(
            shards=2,
            limits=Limits(
                wal_file_first=100 * records, wal_file_max=max(200 * records, CONFIG_BYTES), wal_reserve=256
            ),
            segments=SegmentRules(records_max=-(-records // segments)),
            min_free_bytes=4096,
        )
        self.journal = MemoryJournal()
        self.weaver_journal = MemoryJournal()
        self.opened = self._open()

    def begin(self) -> None:
        lasting = {"idempotency_window_ms": 2**40, "dedup_window_ms": 2**40}
        self._create(ORDERS, durability="fsync", **lasting)
        self._create(CLICKS, durability="disk", **lasting)
        self._create(CAPPED, durability="fsync", cap_records=self.records, **lasting)
        self._create(FLEETING, durability="ephemeral")
        self._create(GONE, durability="fsync")
        for topic in (KV_TOPIC, WEAVER_TOPIC):
            self._run(PutTopic(topic=topic, config=_JOURNAL))
        home = Replica(AUTHOR, clock=self.clock, entropy=self.entropy)
        header = DatabaseHeader("settings", AUTHOR.public, home.new_replica_id())
        cursor = Journaled(self.journal, home.limits, EMPTY, header)
        cursor.begin(header)
        home.adopt("settings", cursor)
        self.settings = Database.of(home, "settings", replica=header.replica)
        self.weaver = open_weaver(self.weaver_journal, store_id=STORE_ID, node=AUTHOR, clock=self.clock)

    def round(self, number: int) -> None:
        """A little of everything, 25 minutes after the round before."""
        count = self.records
        self._put(
            ORDERS, [b'{"n":%d,"of":"round %d"}' % (i, number) for i in range(count)],
            tag=[(b"red", b"blue", b"")[i % 3] for i in range(count)],
            node=[b"node-a" if i % 4 == 0 else b"" for i in range(count)],
            meta=[b'{"trace":"t%d"}' % i if i % 5 == 0 else b"" for i in range(count)],
            ttl_ms=[1000 if i == 3 else None for i in range(count)],
        )  # fmt: skip
        self._put(CLICKS, [b'"click %04d of round %d"' % (i, number) for i in range(count - 1)])
        self._put(CAPPED, [b"%d" % i for i in range(count // 2)])
        self._put(FLEETING, [b'"gone with a start"'])
        if number < GONE_IN:
            self._put(GONE, [b'"goes with its topic"'])
        if number:
            self._delete(ORDERS, match="blue", before_seq=number * count)
        if number == 2:
            self._delete(CLICKS, before_seq=count // 2 + 1)
        if number == GONE_IN:
            self._run(DeleteTopic(topic=GONE))
        self.settings.set(f"key {number}", number)
        self.settings.hset("hash", f"field {number}", "value")
        self.weaver.submit(AUTHOR, encode_ops({b"key %d" % number: b"value"}))
        for topic, journal in ((KV_TOPIC, self.journal), (WEAVER_TOPIC, self.weaver_journal)):
            items, journal.items = journal.items, []
            self._put(topic, items, content_type=[b"application/octet-stream"] * len(items))
        self.clock.advance(1_500_000)

    def checkpoint(self) -> None:
        self._sync()
        checkpointer = self.opened.checkpointer
        assert checkpointer is not None
        for step in checkpointer.round():
            match step:
                case Blocking(call) | Swap(call):
                    call()
                case Propose(command):
                    self._run(command)
                case WaitForBatch():
                    self._drain()
                case _:
                    pass

    def end(self) -> None:
        """Writes behind the last snapshot, then a clean end."""
        self._put(ORDERS, [b'{"last":%d}' % i for i in range(self.records)], tag=[b"red"] * self.records)
        self._put(CLICKS, [b'"last click %d"' % i for i in range(self.records)])
        self._delete(ORDERS, match="red", before_seq=3)
        self._read()
        self._work()
        self._put(CLICKS, [b'"tick"'] * 2, dedup_id=[firing_id(SCHEDULE_ID, at_ms) for at_ms in (1000, 2000)])
        self._run(PutRouter(router="spare", source=SPARE, dest=f"{SPARE}.copies"))
        self.opened.engine.log_exact_heads()
        self._drain()
        self._sync()
        for writer in self.opened.writers:
            writer.mark()

    def _read(self) -> None:
        """A consumer reads on in what came last."""
        head = (ROUNDS + 1) * self.records
        self._run(PutConsumer(topic=ORDERS, consumer=READER, from_seq=head - 6))
        for seq in (head - 4, head - 2, head):
            self._run(CommitConsumer(topic=ORDERS, consumer=READER, seq=seq))

    def _work(self) -> None:
        """Jobs that are acked, fail, run out, are moved and come back: two have the same key."""
        self._create(
            JOBS,
            type="queue",
            durability="fsync",
            max_in_flight_per_key=1,
            max_deliveries=2,
            dead_letter=FAILED,
        )
        keys = [b"", b"", b"k", b"k"] + [b""] * 8
        self._put(JOBS, [b'{"job":%d}' % i for i in range(12)], key=keys)
        self._claim(b"w1", 1, 2, 3, 5)
        self._run(AckJobs(topic=JOBS, node=b"w1", seqs=[1, 2]))
        self._fail(b"w1", 3, delay_ms=15)
        self._claim(b"w3", 6, lease_ms=1)  # 3 waits, and 4 behind it
        self._claim(b"w0", 3)
        self._fail(b"w0", 3)  # its second time
        self._claim(b"w2", 6, 4)
        self._run(Extend(topic=JOBS, node=b"w2", seqs=[6], lease_ms=50_000))
        self._run(AckJobs(topic=JOBS, node=b"w2", seqs=[6]))
        self._run(Redrive(topic=FAILED, queue=JOBS))
        self._move()
        self._claim(b"w4", 7)
        self._run(AckJobs(topic=JOBS, node=b"w2", seqs=[4]))

    def _claim(self, node: bytes, *seqs: int, lease_ms: int = 30_000) -> None:
        """These are the next ones."""
        self.clock.advance(10)
        claimed = self._run(Claim(topic=JOBS, node=node, count_max=len(seqs), lease_ms=lease_ms))
        assert isinstance(claimed, JobsClaimed)
        assert [job.seq for job in claimed.jobs] == list(seqs)

    def _fail(self, node: bytes, seq: int, delay_ms: int = 0) -> None:
        self._run(Nack(topic=JOBS, node=node, seqs=[seq], delay_ms=delay_ms, reason=b"no paper"))
        self._move()

    def _move(self) -> None:
        """What is to go elsewhere goes there."""
        engine = self.opened.engine
        for _ in range(4):  # each step is later than the one before
            self.clock.advance(1)
            engine.tick()
            self._drain()
            while (order := engine.moves.take()) is not None:
                carry_out(engine, moving(engine, self.opened.reader.read, order), self._drain)

    # How.

    def _open(self) -> Opened:
        self.disk.create(LOCK_NAME, RECORD_SIZE)

        def confirm(logs: Sequence[Format]) -> None:
            owner = OwnerRecord(pid=1, boot_id=self.disk.boot_id, device=1, inode=1)
            self.disk.write(LOCK_NAME, 0, [owner.begin(logs).encode()])

        return open_store(
            self.disk, self.clock, self.entropy, where="a sample", machine_restarted=True, confirm=confirm,
            options=self.options,
        )  # fmt: skip

    def _create(self, topic: str, **config: object) -> None:
        self._run(PutTopic(topic=topic, config=parse_config(config)))

    def _put(self, topic: str, data: list[bytes], **columns: list[bytes] | list[int | None]) -> None:
        for at in range(0, len(data), WRITE_MAX):
            part = {name: column[at : at + WRITE_MAX] for name, column in columns.items()}
            self._put_at_once(topic, data[at : at + WRITE_MAX], part)

    def _put_at_once(
        self, topic: str, data: list[bytes], columns: dict[str, list[bytes] | list[int | None]]
    ) -> None:
        records = msgspec.convert({"data": data, **columns}, _Columns).columns()
        reply = self._run(Append(topic=topic, records=records, create=False))
        assert isinstance(reply, Appended)
        if topic != FLEETING:
            self.acks += [Ack(topic, seq, checksum(text)) for seq, text in zip(reply.seqs, data, strict=True)]

    def _delete(self, topic: str, *, before_seq: int, match: str | None = None) -> None:
        parsed = None if match is None else parse_match(match, tag_bytes_max=256)
        self._run(DeleteRecords(topic=topic, before_seq=before_seq, match=parsed))

    def _sync(self) -> None:
        for writer in self.opened.writers:
            self._run(Sync(shard=writer.shard))

    def _run(self, command: Command) -> object:
        ticket = self.opened.engine.propose(command)
        self._drain()
        return ticket.result()

    def _drain(self) -> None:
        for _ in range(4):  # what shard 0 has written wakes what waits on another
            for writer in self.opened.writers:
                writer.drain()
                writer.keep_reserve()


class _Columns(msgspec.Struct, kw_only=True):
    """The columns that the story uses."""

    data: list[bytes]
    tag: list[bytes] | None = None
    node: list[bytes] | None = None
    meta: list[bytes] | None = None
    ttl_ms: list[int | None] | None = None
    content_type: list[bytes] | None = None
    key: list[bytes] | None = None
    dedup_id: list[bytes] | None = None

    def columns(self) -> RecordColumns:
        return RecordColumns(
            self.data, tag=self.tag, node=self.node, meta=self.meta, ttl_ms=self.ttl_ms,
            content_type=self.content_type, key=self.key, dedup_id=self.dedup_id,
        )  # fmt: skip


_JOURNAL: Final = TopicConfig(durability=parse_config({"durability": "fsync"}).durability, dedupe_node=False)
