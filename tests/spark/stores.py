"""Directories for the tests: what can be in one, made by the embedded store."""

from __future__ import annotations

from pathlib import Path

import topics
from topics.codec.log.control import CommitMark, TopicDelete
from topics.codec.log.run import Run
from topics.engine.checkpoint import SegmentRules
from topics.engine.recovery.judge import examine_log_file
from topics.host.cold.segment_stores import HotRules
from topics.host.directory.owner import LOCK_NAME, OwnerRecord
from topics.host.system.boot import machine_boot_id
from topics.log.regions import WalFileId
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock

START_MS = 1_700_000_000_000


def opened(path, clock=None, *, segment_records=40, **options):
    rules = SegmentRules(records_max=segment_records)
    return topics.open(path, clock=clock, options=StoreOptions(segments=rules, **options))


def fill(path):
    """Two topics over segments and log, with everything that can have become of a record. The clock it was made by."""
    clock = ManualClock(START_MS)
    with opened(path, clock) as store:
        quakes, ticks = (
            store.create("quakes"),
            store.create("ticks", compression="zstd", compression_min_bytes=10),
        )
        for i in range(100):
            quakes.put(
                {"i": i}, tag=("us", None, "nc")[i % 3], node=("n1", None)[i % 2], key=f"k{i % 4}" if i % 4 else None,
                meta={"unit": "km", "n": str(i)} if i % 5 == 0 else None,
            )  # fmt: skip
            ticks.put({"tick": i, "pad": "x" * 50})
            clock.advance(1000)
            if i in (30, 70):
                store.sync()  # time passes by hand here, so no timed sync comes
                store.checkpoint()
        quakes.delete(match="nc")
        quakes.put({"late": 1}, ttl_ms=5000)
        quakes.put(b"PK\x00", content_type="application/zip")
        quakes.put({"late": 2})
        clock.advance(10_000)
        store.create("capped", cap_records=10).put_many([{"data": i} for i in range(25)])
        store.create("empty")
    return clock


def fill_cold(data, cold):
    """A topic `a` of 40 records, the first four of its segments in the cold tier."""
    rules = {"hot": HotRules(retain_segments=1), "cold_dir": str(cold), "min_free_bytes": 0}
    with opened(data, segment_records=8, **rules) as store:
        store.topic("a").put_many([{"data": n} for n in range(40)])
        for _ in range(2):
            store.sync()
            store.checkpoint()
        while store._compactor.carry_out(store._opened.checkpointer.between):
            pass
        assert store._opened.cold.segments() == 4


def is_delete(item):
    return isinstance(item.payload, TopicDelete)


def unmark(path):
    """Zero what the log has behind its last records or deletion of a topic: the marks that tell of their sync."""
    log = max(Path(path, "wal").rglob("wal-*.log"))
    content = bytearray(log.read_bytes())
    items = examine_log_file(WalFileId(0, 0, 1), bytes(content)).items
    at = max(i for i, item in enumerate(items) if isinstance(item, Run) or is_delete(item)) + 1
    assert isinstance(items[at].payload, CommitMark)
    content[items[at].offset :] = bytes(len(content) - items[at].offset)
    log.write_bytes(content)


def own(path, *, pid, boot_id=None):
    """Write into LOCK that this process owns the directory, under this boot."""
    lock = Path(path, LOCK_NAME)
    found = lock.stat()
    boot_id = machine_boot_id() if boot_id is None else boot_id
    record = OwnerRecord(pid=pid, boot_id=boot_id, device=found.st_dev, inode=found.st_ino)
    lock.write_bytes(record.encode())


def records(path, name):
    """What a reader of the embedded store gets, a tuple a record."""
    with opened(path) as store:
        found = []
        for item in store.topic(name).records():
            assert isinstance(item, topics.Record)
            found.append((item.seq, item.ts, item.raw, item.key, item.node, item.tag))
    return found


def rows(frame):
    """The same of a frame."""
    return [
        (
            row.offset, int(row.timestamp.timestamp() * 1000), bytes(row.value),
            None if row.key is None else bytes(row.key).decode(), row.node, row.tag,
        )
        for row in frame.collect()
    ]  # fmt: skip
