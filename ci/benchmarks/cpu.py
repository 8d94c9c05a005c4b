"""CPU a record of each part alone, by `thread_time`: the sturdiest figure a noisy machine gives. Of routers, CPU a
copy, and what reading copies takes beside reading what they are of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import topics
from ci.benchmarks.figure import Figure, Setting, cpu_of
from ci.benchmarks.payload import BATCH, raws, texts
from topics.codec.log.frame import encode_run
from topics.engine.batch import WalPosition
from topics.engine.commands import Append, PutTopic
from topics.engine.engine import Engine
from topics.engine.recovery.judge import examine_log_file, judge
from topics.engine.recovery.recover import recover
from topics.host.system.clock import SystemClock
from topics.kernel.columns import RecordColumns
from topics.kernel.config import parse_config
from topics.log.index import Index
from topics.log.regions import WalFileId
from topics.store.opened import StoreOptions

ROOM = 1 << 50
READ_LIMIT = 1000
MIB = 1 << 20


def figures(setting: Setting) -> Iterator[Figure]:
    """Append, index, put, read, recovery."""
    for batch in (BATCH, 1):
        yield _append(setting, batch)
    yield _index(setting)
    for batch in (BATCH, 1):
        yield _put(setting, batch)
    yield _read(setting)
    yield _copies(setting)
    yield _read_copies(setting)
    yield _recovery(setting)


def _append(setting: Setting, batch: int) -> Figure:
    """Propose, batch and apply, the frames going nowhere: engine, codec, log."""
    engine = Engine(SystemClock(), shards=1)
    engine.space(0, ROOM)
    file = WalFileId(0, 0, 1)
    engine.propose(PutTopic(topic="bench", config=parse_config({})))
    _carry(engine, file)
    payloads = [text.encode() for text in texts(1)[0][:batch]]
    writes = setting.count(20_000, 200) // batch

    def work() -> None:
        for _ in range(writes):
            engine.propose(Append(topic="bench", records=RecordColumns(payloads)))
            _carry(engine, file)

    return _a_record(
        f"cpu: append, batch {batch}", setting, work, writes * batch, "engine and codec, no disk"
    )


def _carry(engine: Engine, file: WalFileId) -> None:
    """Where the frames lie is nobody's business here."""
    batch = engine.take_batch(0)
    assert batch is not None
    at = WalPosition(file, 0)
    engine.written(batch, at)
    if batch.sync:
        engine.synced(batch, at)
    engine.take_effects()


def _index(setting: Setting) -> Figure:
    columns = RecordColumns([text.encode() for text in texts(1)[0]])
    _, run = encode_run(1, 1, 1, columns, durable=False, keyed=None, write_frames=BATCH)
    index, runs = Index(), setting.count(1000, 10)

    def work() -> None:
        for _ in range(runs):
            run.seq_start = index.head_seq + 1
            index.extend(run)

    return _a_record("cpu: index extend", setting, work, runs * BATCH, f"runs of {BATCH}")


def _put(setting: Setting, batch: int) -> Figure:
    given: Sequence[Sequence[topics.Raw]] = [write[:batch] for write in raws(texts(20))]
    rounds = max(setting.count(10_000, 200) // batch // len(given), 1)
    with setting.directory() as path, topics.open(path, options=StoreOptions(min_free_bytes=MIB)) as store:
        topic = store.create("bench", durability="disk")

        def work() -> None:
            for _ in range(rounds):
                for write in given:
                    topic.put_many(write)

        work()
        return _a_record(
            f"cpu: embedded put, batch {batch}",
            setting,
            work,
            rounds * len(given) * batch,
            "Raw, disk, 1 thread",
        )


def _read(setting: Setting) -> Figure:
    writes = setting.count(1000, 20)
    with setting.directory() as path, topics.open(path) as store:
        topic = store.create("bench", durability="disk")
        for write in raws(texts(20)) * (writes // 20):
            topic.put_many(write)

        def work() -> None:
            from_seq, read = 0, 0
            while read < writes * BATCH:
                page = topic.read(from_seq=from_seq, limit=READ_LIMIT)
                from_seq, read = page.next_from_seq, read + len(page.records)

        return _a_record(
            "cpu: read", setting, work, writes * BATCH, f"limit {READ_LIMIT}, from file cache, verified"
        )


def _copies(setting: Setting) -> Figure:
    """Writes of 100 records to a store, until what routers bring over of them is there."""
    dests, writes = setting.count(1000, 10), setting.count(5, 2)
    with setting.directory() as path, topics.open(path) as store:
        source, given = store.create("bench", durability="disk"), raws(texts(20))
        for number in range(dests):
            store.put_router(f"to-{number}", source="bench", dest=f"dest-{number}")
        copies = [store.topic(f"dest-{number}") for number in range(dests)]

        def work() -> None:
            for number in range(writes):
                source.put_many(given[number % len(given)])
            assert {dest.state().head_seq for dest in copies} == {source.state().head_seq}

        work()
        value = cpu_of(work, turns=setting.runs) / (writes * BATCH * dests) * 1e6
    beside = f"200 B; {dests} routers from one topic, batch {BATCH}, disk; with a look at each dest"
    return Figure("cpu: copy by a router", value, "µs", 2.0, 1.0, less=True, beside=beside, cpu=True)


def _read_copies(setting: Setting) -> Figure:
    writes = setting.count(1000, 20)
    with setting.directory() as path, topics.open(path) as store:
        source = store.create("bench", durability="disk")
        store.put_router("copies", source="bench", dest="dest")
        for write in raws(texts(20)) * (writes // 20):
            source.put_many(write)
        dest = store.topic("dest")

        def read(topic: topics.Topic) -> None:
            from_seq, found = 0, 0
            while found < writes * BATCH:
                page = topic.read(from_seq=from_seq, limit=READ_LIMIT)
                from_seq, found = page.next_from_seq, found + len(page.records)

        read(source)
        read(dest)
        of_dest, of_source = (cpu_of(partial(read, one), turns=setting.runs) for one in (dest, source))
    beside = f"limit {READ_LIMIT}, from file cache"
    return Figure(
        "cpu: read copies / their source", of_dest / of_source, "×", 1.3, 1.1, less=True, beside=beside
    )


def _recovery(setting: Setting) -> Figure:
    writes = setting.count(1000, 20)
    with setting.directory() as path:
        with topics.open(path) as store:
            topic = store.create("bench", durability="disk")
            for write in raws(texts(20)) * (writes // 20):
                topic.put_many(write)
        logs = sorted(path.glob("wal/gen-0/shard-00/wal-*.log"))
        files = [(WalFileId(0, 0, int(log.stem[4:])), log.read_bytes()) for log in logs]

        def work() -> None:
            verdict = judge([examine_log_file(file, buffer) for file, buffer in files], same_boot=True)
            catalog = recover({(0, 0): verdict}).catalog
            assert catalog.topics[1].head_seq == writes * BATCH

        return _a_record(
            "cpu: recovery", setting, work, writes * BATCH, "scan, judge, apply; buffers in memory"
        )


def _a_record(name: str, setting: Setting, work: object, records: int, beside: str) -> Figure:
    assert callable(work)
    work()
    return Figure(name, cpu_of(work, turns=setting.runs) / records * 1e6, "µs", beside=f"200 B; {beside}")
