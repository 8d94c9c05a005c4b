"""Every row of docs/ledgerq.md: a test by the name that the call has in ledgerq, in this process, in tasks of Trio, and
at a server (queues 7).
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import trio

import topics
from tests.support.awaited import Awaited, awaited
from tests.support.embedded import wait_until
from topics.cli.demo.private_server import PrivateServer
from topics.engine.checkpoint import SegmentRules
from topics.testing.clock import ManualClock

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "ledgerq.md"
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    home = tmp_path_factory.mktemp("server")
    with PrivateServer(home / "data", home) as running:
        yield running


@pytest.fixture(params=["embedded", "trio", "server"])
def store(request: pytest.FixtureRequest, tmp_path: pathlib.Path, server: PrivateServer) -> Iterator[Any]:
    """A store wherever it is, with the methods of one that blocks."""
    if request.param == "embedded":
        with topics.open(tmp_path / "data") as opened:
            yield opened
    elif request.param == "trio":
        with awaited(topics.open_trio(tmp_path / "data"), "trio") as opened:
            yield opened
    else:
        with topics.Client(server.url) as client:
            yield client
            for row in client.list():
                client.delete(row.topic)


@pytest.fixture
def queue(store: Any) -> Any:
    """With a dead-letter topic."""
    store.create("mail", type="queue", max_deliveries=2, dead_letter="mail-failed")
    return handle(store, "mail")


def handle(store: Any, name: str) -> Any:
    return store.queue(name, node="w")


def dead_letters(store: Any, queue: Any) -> Any:
    """`queue.dead_letters`, which is awaited in tasks."""
    if not isinstance(store, Awaited):
        return queue.dead_letters

    async def found() -> Any:
        return await queue.there.dead_letters

    return Awaited(store.portal, store.portal.call(found))


def data(found: Any) -> list[Any]:
    return [one.data for one in found]


def test_the_page_has_a_row_for_every_call_and_option_of_ledgerq() -> None:
    """As its public package declares them."""
    text = PAGE.read_text()
    calls = (
        "Open Close Enqueue EnqueueBatch EnqueueWithTTL EnqueueWithHeaders EnqueueWithPriority EnqueueWithCompression "
        "EnqueueWithDedup EnqueueWithOptions EnqueueBatchWithOptions Dequeue DequeueBatch Ack Nack GetRetryInfo GetDLQ "
        "RequeueFromDLQ Stream Stats Compact Sync SeekToMessageID SeekToTimestamp"
    )
    options = (
        "AutoSync SyncInterval CompactionInterval MaxSegmentSize MaxSegmentMessages RotationPolicy MaxAge MaxSize "
        "MaxSegments MinSegments EnablePriorities PriorityStarvationWindow DLQPath MaxRetries MaxMessageSize "
        "MinFreeDiskSpace DLQMaxAge DLQMaxSize DefaultCompression CompressionLevel MinCompressionSize "
        "DefaultDeduplicationWindow MaxDeduplicationEntries Logger MetricsCollector"
    )
    named = set(re.findall(r"[`.…]([A-Z]\w+)", text))

    assert set(f"{calls} {options}".split()) - named == set()


# Calls.


def test_open_and_close(tmp_path: pathlib.Path) -> None:
    """A second opener is told whose it is; behind a close the directory is free."""
    with topics.open(tmp_path / "data"), pytest.raises(topics.CannotOpen, match="process"):
        topics.open(tmp_path / "data")
    topics.open(tmp_path / "data").close()


@pytest.mark.rule("Q7.4")
def test_enqueue(queue: Any) -> None:
    """Bytes come back as bytes."""
    queue.put(b"\x00\xff")

    assert queue.get().data == b"\x00\xff"


@pytest.mark.rule("Q7.4")
def test_enqueue_batch(queue: Any) -> None:
    """In order, bytes and JSON beside each other."""
    queue.put_many([b"1", {"data": b"2", "content_type": "text/plain"}, {"data": [3]}])

    assert data(queue.get_many(9)) == [b"1", b"2", [3]]


def test_enqueue_with_ttl(store: Any, queue: Any) -> None:
    """It expires, and is not handed out then. (Time is a clock's elsewhere: see the embedded test below.)"""
    queue.put(b"late", ttl_ms=1)
    queue.put(b"kept", ttl_ms=HOUR_MS)

    assert wait_until(lambda: data(queue.peek()) == [b"kept"])


def test_enqueue_with_headers(queue: Any) -> None:
    """They are `meta`."""
    queue.put(b"x", meta={"trace": "ü"})

    assert queue.get().meta == {"trace": "ü"}


def test_enqueue_with_priority(queue: Any) -> None:
    """Higher first, then as put."""
    queue.put_many(
        [{"data": name, "priority": rank} for name, rank in (("low", 0), ("high", 9), ("medium", 5))]
    )

    assert data(queue.get_many(3)) == ["high", "medium", "low"]


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_enqueue_with_compression(store: Any, compression: str) -> None:
    """Smaller in the store, whole to who gets it."""
    store.create("packed", type="queue", compression=compression, compression_min_bytes=100)
    packed = handle(store, "packed")
    packed.put(b"z" * 10_000)

    assert packed.state().bytes < 1000
    assert packed.get().data == b"z" * 10_000


def test_enqueue_with_dedup(queue: Any) -> None:
    """The second is not stored, and its answer has the first one's seq."""
    first = queue.put(b"x", dedup_id="order-1")
    second = queue.put(b"y", dedup_id="order-1")

    assert (second.duplicates, list(second.seqs)) == (1, list(first.seqs))
    assert data(queue.get_many(9)) == [b"x"]


@pytest.mark.rule("Q7.4")
def test_enqueue_with_all_options(queue: Any) -> None:
    """Together."""
    queue.put(b"x", ttl_ms=HOUR_MS, meta={"a": "b"}, priority=9, dedup_id="d", key="k", delay_ms=0)
    job = queue.get()

    assert (job.data, job.meta, job.priority, job.key) == (b"x", {"a": "b"}, 9, "k")


@pytest.mark.rule("Q7.5")
def test_dequeue(queue: Any) -> None:
    """It is leased, so nobody else gets it until then; an empty queue gives None when the time is over."""
    queue.put(b"x")
    job = queue.get(timeout=0)

    assert (job.seq, queue.get(timeout=0)) == (1, None)


@pytest.mark.rule("Q7.5")
def test_dequeue_for_good(queue: Any) -> None:
    """At most once: it is gone when it is given."""
    queue.put(b"x")

    assert queue.get(ack="on_get").data == b"x"
    assert queue.state().count == 0


@pytest.mark.rule("Q7.5")
def test_dequeue_batch(queue: Any) -> None:
    """As many as there are, up to n."""
    queue.put_many([b"1", b"2", b"3"])

    assert data(queue.get_many(2)) == [b"1", b"2"]
    assert data(queue.get_many(9, ack="on_get")) == [b"3"]
    assert queue.get_many(9, timeout=0) == []


@pytest.mark.rule("Q7.6")
def test_ack(queue: Any) -> None:
    """It is done, once."""
    queue.put(b"x")
    job = queue.get()

    assert [job.ack(), job.ack(), queue.state().count] == [True, False, 0]


@pytest.mark.rule("Q7.6")
def test_nack(queue: Any) -> None:
    """It is handed out again, and says that it was before."""
    queue.put(b"x")
    queue.get().nack("no disk", delay_ms=0)

    assert queue.get(timeout=1).deliveries == 2


@pytest.mark.rule("Q7.6")
def test_get_retry_info(queue: Any) -> None:
    """How often, why, and when it is ready again; None of a job that is not there."""
    queue.put(b"x")
    queue.get().nack(reason="no disk", delay_ms=HOUR_MS)
    found = queue.retry_info(1)

    assert (found.deliveries, found.reason, found.state) == (1, "no disk", "delayed")
    assert found.ready_at - found.ts >= HOUR_MS
    assert queue.retry_info(2) is None


@pytest.mark.rule("Q7.7")
def test_get_dlq(store: Any, queue: Any) -> None:
    """What had its deliveries is there, with where it came from and why."""
    queue.put(b"x")
    for _ in range(2):
        queue.get(timeout=1).nack("no disk", delay_ms=0)
    letters = dead_letters(store, queue)
    (letter,) = letters.read(wait_ms=5000).records

    assert letter.data == b"x"
    assert letter.meta["$dead_letter_reason"] == "no disk"
    assert letter.meta["$dead_letter_deliveries"] == "2"


def test_a_queue_without_a_dlq_says_so(store: Any) -> None:
    """Where ledgerq gives nil."""
    store.create("plain", type="queue")
    with pytest.raises(topics.Rejected, match="has no dead_letter"):
        dead_letters(store, handle(store, "plain"))


@pytest.mark.rule("Q7.7")
def test_requeue_from_dlq(store: Any, queue: Any) -> None:
    """By its seq there; it is a fresh job."""
    queue.put_many([b"x", b"y"])
    for _ in range(4):
        queue.get(timeout=1).nack("no disk", delay_ms=0)
    letters = dead_letters(store, queue)
    assert wait_until(lambda: letters.state().head_seq == 2)
    queue.redrive(2)
    job = queue.get(timeout=5)

    assert (job.data, job.deliveries) == (b"y", 1)


@pytest.mark.rule("Q7.8")
def test_stream(tmp_path: pathlib.Path) -> None:
    """One job after another."""
    with topics.open(tmp_path / "data") as store:
        store.create("mail", type="queue")
        queue = store.queue("mail")
        queue.put_many([b"1", b"2", b"3"])

        assert data(islice(queue, 3)) == [b"1", b"2", b"3"]


@pytest.mark.rule("Q7.8")
def test_stream_in_tasks(tmp_path: pathlib.Path) -> None:
    """The same, awaited."""

    async def main() -> list[Any]:
        async with topics.open_trio(tmp_path / "data") as store:
            await store.create("mail", type="queue")
            queue = store.queue("mail")
            await queue.put_many([b"1", b"2"])
            found = []
            async for job in queue:
                found.append(job.data)
                await job.ack()
                if len(found) == 2:
                    break
            return found

    assert trio.run(main) == [b"1", b"2"]


def test_stats_of_a_queue(queue: Any) -> None:
    """Pending, next id, what is leased and what is dead."""
    queue.put_many([b"1", {"data": b"2", "delay_ms": HOUR_MS}, b"3"])
    queue.get()
    state = queue.state()

    assert (state.count, state.next_seq) == (3, 4)
    assert (state.queue.ready, state.queue.in_flight, state.queue.delayed, state.queue.dead_lettered) == (
        1,
        1,
        1,
        0,
    )


@pytest.mark.rule("Q7.11")
@pytest.mark.parametrize("kind", ["embedded", "trio"])
def test_stats_of_a_store(tmp_path: pathlib.Path, kind: str) -> None:
    """Of all topics together."""
    clock = ManualClock()
    with opened(kind, tmp_path / "data", clock=clock) as store:
        store.create("mail", type="queue")
        store.topic("log").put(b"12")
        store.queue("mail").put_many([b"1", {"data": b"2", "delay_ms": HOUR_MS}, b"3"])
        store.queue("mail").get()
        before = store.stats()
        store.sync()
        store.checkpoint()
        after = store.stats()

    assert before == topics.StoreStats(
        topics=2, records=4, bytes=5, ready=1, in_flight=1, delayed=1, dead_lettered=0, segments=0, segment_bytes=0,
        time_ms=clock.now_ms(),
    )  # fmt: skip
    assert (after.segments, after.segment_bytes > 0) == (2, True)


def opened(kind: str, path: pathlib.Path, **options: Any) -> Any:
    return (
        topics.open(path, **options)
        if kind == "embedded"
        else awaited(topics.open_trio(path, **options), "trio")
    )


@pytest.mark.parametrize("kind", ["embedded", "trio"])
def test_compact(tmp_path: pathlib.Path, kind: str) -> None:
    """What was consumed is given back."""
    rules = SegmentRules(records_max=10)
    with opened(kind, tmp_path / "data", segments=rules) as store:
        store.create("mail", type="queue")
        store.queue("mail").put_many([bytes(1000)] * 40)
        store.sync()
        store.checkpoint()
        store.queue("mail").get_many(40, ack="on_get")
        result = store.compact()

    assert result.segments_removed == 4
    assert result.bytes_freed > 40_000


@pytest.mark.parametrize("kind", ["embedded", "trio"])
def test_sync(tmp_path: pathlib.Path, kind: str) -> None:
    """Everything is on the disk then."""
    with opened(kind, tmp_path / "data") as store:
        store.topic("log").put(b"1")
        before = store.topic("log").state().durable_seq
        store.sync()

        assert (before, store.topic("log").state().durable_seq) == (0, 1)


def test_seek_to_message_id_and_to_timestamp(store: Any) -> None:
    """Of a log, any reader, as often as he likes."""
    log = store.create("log")
    log.put_many([b"1", b"2"])
    ts = log.read().records[0].ts

    assert data(log.read(from_seq=1).records) == [b"2"]
    assert data(log.read(from_ts=ts).records) == [b"1", b"2"]


# Options of a store.


@pytest.mark.parametrize("kind", ["embedded", "trio"])
def test_auto_sync(tmp_path: pathlib.Path, kind: str) -> None:
    """All that is made without a class of its own is synced at each write; what says one has it."""
    with opened(kind, tmp_path / "data", sync="fsync") as store:
        store.create("queue", type="queue")
        store.create("cache", durability="memory")
        store.topic("written").put(1)
        store.topic("cache").configure(cap_records=9)
        classes = [store.config(name).durability for name in ("queue", "cache", "written")]

    assert classes == ["fsync", "memory", "fsync"]


def test_sync_interval(tmp_path: pathlib.Path) -> None:
    """What is not synced at once is by then."""
    with topics.open(tmp_path / "data", sync_interval_ms=1) as store:
        store.topic("log").put(b"1")

        assert wait_until(lambda: store.topic("log").state().durable_seq == 1)


def test_compaction_interval(tmp_path: pathlib.Path) -> None:
    """A round of it happens by itself."""
    with topics.open(tmp_path / "data", checkpoint_interval_ms=1) as store:
        store.topic("log").put(b"1")

        assert wait_until(lambda: store.stats().segments == 1)


@pytest.mark.parametrize("rules", [{"bytes_max": 3000}, {"records_max": 3}])
def test_max_segment_size_and_messages(tmp_path: pathlib.Path, rules: dict[str, int]) -> None:
    """A segment is full by either."""
    with topics.open(tmp_path / "data", segments=SegmentRules(**rules)) as store:
        store.topic("log").put_many([bytes(1000)] * 9)
        store.sync()
        store.checkpoint()

        assert store.stats().segments >= 3


def test_min_free_disk_space(tmp_path: pathlib.Path) -> None:
    """Below it nothing is written."""
    with topics.open(tmp_path / "data") as store:
        store.topic("log").put(b"1")
    full = topics.open(tmp_path / "data", min_free_bytes=2**60)
    with full as store, pytest.raises(topics.Rejected, match="min_free_bytes"):
        store.topic("log").put(b"2")


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"sync": "never"}, "must be one of disk, fsync"), ({"auto_sync": True}, "is no option")],
)
@pytest.mark.parametrize("kind", ["embedded", "trio"])
def test_an_option_that_is_wrong_is_named(
    tmp_path: pathlib.Path, kind: str, fields: dict[str, Any], why: str
) -> None:
    """And no directory is made."""
    with pytest.raises(topics.Rejected, match=why), opened(kind, tmp_path / "data", **fields):
        raise AssertionError

    assert not (tmp_path / "data").exists()


# Options of a queue.


@pytest.mark.parametrize(
    ("config", "kept"),
    [({"ttl_ms": 1000}, [5]), ({"cap_bytes": 3}, [3, 4, 5]), ({"cap_records": 2}, [4, 5])],
    ids=["max_age", "max_size", "max_segments"],
)
def test_retention_policy(tmp_path: pathlib.Path, config: dict[str, int], kept: list[int]) -> None:
    """By age, by size, by count."""
    clock = ManualClock()
    with topics.open(tmp_path / "data", clock=clock) as store:
        log = store.create("log", **config)
        log.put_many([b"1", b"2", b"3", b"4"])
        clock.advance(1001)
        log.put(b"5")

        assert [record.seq for record in log.read().records] == kept


def test_priority_starvation_window(tmp_path: pathlib.Path) -> None:
    """Behind it the one that waited longest comes first."""
    clock = ManualClock()
    with topics.open(tmp_path / "data", clock=clock) as store:
        store.create("mail", type="queue", starvation_ms=1000, starvation_share=100)
        queue = store.queue("mail")
        queue.put(b"low")
        clock.advance(1001)
        queue.put_many([{"data": b"high", "priority": 9}] * 2)

        assert data(queue.get_many(2)) == [b"low", b"high"]


def test_max_message_size(store: Any) -> None:
    """A larger one is refused."""
    store.create("small", type="queue", max_record_bytes=10)
    with pytest.raises(topics.Rejected, match="max_record_bytes 10"):
        handle(store, "small").put(b"z" * 11)


def test_dlq_max_age_and_size(tmp_path: pathlib.Path) -> None:
    """Its limits are those of the topic."""
    clock = ManualClock()
    with topics.open(tmp_path / "data", clock=clock) as store:
        letters = store.create("failed", ttl_ms=HOUR_MS, cap_records=2)
        store.create("mail", type="queue", max_deliveries=1, dead_letter="failed")
        queue = store.queue("mail")
        queue.put_many([b"1", b"2", b"3"])
        for job in queue.get_many(3):
            job.nack(delay_ms=0)
        assert wait_until(lambda: clock.advance(1) > 0 and letters.state().head_seq == 3)
        by_size = data(letters.read().records)
        clock.advance(HOUR_MS + 1)

        assert (by_size, data(letters.read().records)) == ([b"2", b"3"], [])


def test_default_deduplication_window(tmp_path: pathlib.Path) -> None:
    """Behind it an id is new."""
    clock = ManualClock()
    with topics.open(tmp_path / "data", clock=clock) as store:
        store.create("mail", type="queue", dedup_window_ms=1000)
        queue = store.queue("mail")
        found = []
        for _ in range(3):
            found.append(queue.put(b"x", dedup_id="d").duplicates)
            clock.advance(600)

        assert found == [0, 1, 0]


def test_max_deduplication_entries(store: Any) -> None:
    """The oldest id is forgotten first."""
    store.create("mail", type="queue", dedup_max_entries=2)
    queue = handle(store, "mail")
    found = [queue.put(b"x", dedup_id=name).duplicates for name in "abcca"]

    assert found == [0, 0, 0, 1, 0]
