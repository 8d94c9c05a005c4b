"""`why` of an embedded store: what `topics why` reads beside it, with what only its engine knows."""

from __future__ import annotations

import errno
import pathlib
import time

import msgspec
import pytest

import topics
from topics.audit.why.asking import why as why_by_files
from topics.audit.why.asking import why_range as range_by_files
from topics.codec.why import Why
from topics.embed.store import Store
from topics.host.directory.restored import RESTORED_FILE, RestoreNote, write_restored
from topics.host.system.readonly import ReadOnlyDisk
from topics.kernel.errors import Code, Corrupt
from topics.simulation.machine import open_simulated
from topics.store.opened import StoreOptions
from topics.testing.clock import ManualClock
from topics.testing.entropy import SeededEntropy
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.rule("O2.30")


def fill(store: topics.Store) -> None:
    orders = store.create("orders", cap_records=3)
    for n in range(5):
        orders.put({"order": n}, node="till-1" if n % 2 else "till-2")
    orders.delete(before_seq=4)
    mails = store.create(
        "mails", type="queue", retry_backoff={"base_ms": 60_000, "factor": 2, "max_ms": 60_000}
    )
    mails.put("hello")
    (job,) = store.queue("mails", node="w").get_many(1)
    job.nack(reason="no such host")


def without_syncs(found: Why) -> Why:
    """One may come between two looks, when its second is over."""
    return msgspec.structs.replace(found, events=[one for one in found.events if one.event != "synced"])


def test_it_tells_what_the_files_tell(tmp_path: pathlib.Path) -> None:
    with topics.open(tmp_path / "data") as store:
        fill(store)
        for _ in range(2):
            disk = ReadOnlyDisk(tmp_path / "data")
            now_ms = time.time_ns() // 1_000_000
            for topic, seq in (("orders", 1), ("orders", 3), ("orders", 5), ("orders", 6), ("mails", 1)):
                by_files = why_by_files(disk, "", topic, seq, now_ms=now_ms)
                assert without_syncs(store.why(topic, seq)) == without_syncs(by_files)
            found = store.why_range("orders", 0)
            assert found == range_by_files(disk, "", "orders", 0, now_ms=now_ms)
            assert [(part.first, part.last, part.as_) for part in found.parts] == [
                (1, 2, "lost"),
                (3, 3, "lost"),  # in the tombstone that a reader from 0 begins with
                (4, 5, "delivered"),
            ]
            store.checkpoint()
        job = store.why("mails", 1)

    assert (job.now.state, job.now.reason) == ("delayed", "no such host")
    assert [event.event for event in job.events][:3] == ["put", "claimed", "released"]


def test_a_store_that_is_looked_at_tells_it_too_and_one_that_is_closed_does_not(
    tmp_path: pathlib.Path,
) -> None:
    with topics.open(tmp_path / "data") as store:
        fill(store)
    with topics.open(tmp_path / "data", read_only=True) as store:
        assert store.why("orders", 1).now.state == "lost"
    with pytest.raises(topics.Rejected) as refused:
        store.why("orders", 1)
    assert refused.value.code is Code.SHUTTING_DOWN


def test_of_an_ephemeral_topic_the_engine_tells(tmp_path: pathlib.Path) -> None:
    with topics.open(tmp_path / "data") as store:
        store.create("rates", durability="ephemeral").put(1)
        assert store.why("rates", 1).now.state == "live"
        with pytest.raises(topics.Rejected, match="is ephemeral"):
            store.why_range("rates")


class BadDisk:
    """A disk whose log, and whose note of a restore, can be read no more, once it is `bad`."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.bad = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._disk, name)

    def read(self, path: str, offset: int, size: int) -> bytes:
        if self.bad and path.startswith(("wal/", RESTORED_FILE)):
            raise OSError(errno.EIO, "Input/output error", path)
        return self._disk.read(path, offset, size)


def test_a_log_that_cannot_be_read_is_named() -> None:
    disk = SimDisk(1)
    port = BadDisk(disk)
    opened = open_simulated(disk, ManualClock(), SeededEntropy(1), StoreOptions(min_free_bytes=0), port=port)
    with Store(opened, port, housekeeping=False) as store:  # type: ignore[arg-type]  # a disk by its methods
        store.topic("t").put(1)
        port.bad = True
        with pytest.raises(Corrupt, match=r"wal-0+1\.log.*topics fsck says what is damaged") as told:
            store.why("t", 1)
        port.bad = False

    assert told.value.detail["files"] == ["wal/gen-0/shard-00/wal-00000000000000000001.log"]


def test_that_a_topic_is_not_there_is_told_without_what_cannot_be_read() -> None:
    disk = SimDisk(1)
    port = BadDisk(disk)
    opened = open_simulated(disk, ManualClock(), SeededEntropy(1), StoreOptions(min_free_bytes=0), port=port)
    with Store(opened, port, housekeeping=False) as store:  # type: ignore[arg-type]  # a disk by its methods
        write_restored(disk, RestoreNote.of(ts=2, as_of=1, heads={}))
        for port.bad, said in (
            (False, "so a topic that was created in between is gone$"),
            (True, "^there is no topic 't'$"),
        ):
            with pytest.raises(topics.Rejected, match=said):
                store.why("t", 1)
