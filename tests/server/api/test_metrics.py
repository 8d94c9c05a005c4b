"""Metrics: every family as Prometheus reads it and as JSON, true to what happened, bounded, and apart a server."""

import pytest
import trio

from tests.server.api.asking import ask, fields_of, of, scrape
from tests.server.wire.places import alone, begun, new_site, open_site
from topics.engine.checkpoint import SegmentRules
from topics.kernel.config import TopicConfig
from topics.kernel.limits import Limits
from topics.log.topic import Topic
from topics.server.runtime.figures import with_topics
from topics.server.runtime.metrics import Metrics
from topics.testing.clock import ManualClock

pytestmark = pytest.mark.trio


@pytest.mark.rule("H11.4", "H11.5", "O6.2")
async def test_what_was_done_is_counted():
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/a", {"cap_records": 2, "durability": "fsync"})
        for i in range(3):
            await ask(site, "POST", "/v0/topics/a", {"records": [{"data": i}]})
        await ask(site, "POST", "/v0/topics/a/diff", {})
        await ask(site, "POST", "/v0/topics/a/diff", b"{", {"content-type": "text/csv"})
        await ask(site, "GET", "/v0/topics/b")
        found = await scrape(site)

    assert found[of("topics_requests_total", route="write_records", status="200")] == 3
    assert found[of("topics_requests_total", route="put_topic", status="201")] == 1
    assert found[of("topics_requests_total", route="get_topic", status="404")] == 1
    assert found[of("topics_requests_total", route="(refused)", status="415")] == 1
    assert found[of("topics_topics")] == 1
    assert found[of("topics_records")] == 2
    assert found[of("topics_record_bytes")] == 2
    assert found[of("topics_topic_records", topic="a")] == 2
    assert found[of("topics_topic_bytes", topic="a")] == 2
    assert found[of("topics_topic_head_seq", topic="a")] == 3
    assert found[of("topics_topic_durable_seq", topic="a")] == 3
    assert found[of("topics_topic_earliest_seq", topic="a")] == 2
    assert found[of("topics_topic_evict_floor", topic="a")] == 2
    assert found[of("topics_tombstones_total", reason="cap")] == 1
    assert found[of("topics_ready")] == 1
    assert found[of("topics_replay_progress_ratio")] == 1
    assert found[of("topics_commands_in_flight")] == 0
    assert found[of("topics_request_bugs_total")] == 0
    assert found[of("topics_build_info", version="0.0.test", python=found_python(found))] == 1


def found_python(found):
    return next(dict(key[1:])["python"] for key in found if key[0] == "topics_build_info")


@pytest.mark.rule("H11.5")
async def test_the_log_is_counted_by_shard_and_each_sync_is_timed():
    site = new_site(limits=Limits())
    async with alone(), begun(site, shards=2) as runtime:
        for name in ("a", "b", "c", "d"):
            await ask(site, "PUT", f"/v0/topics/{name}", {"durability": "fsync"})
            await ask(site, "POST", f"/v0/topics/{name}", {"records": [{"data": 1}, {"data": 2}]})
        found = await scrape(site)
        for task in runtime.shards:
            shard = str(task.writer.shard)
            assert task.meter.syncs > 0
            assert found[of("topics_wal_frames_total", shard=shard)] == task.meter.frames
            assert found[of("topics_wal_written_bytes_total", shard=shard)] == task.meter.bytes
            assert found[of("topics_wal_batches_total", shard=shard)] == task.meter.batches
            assert found[of("topics_wal_syncs_total", shard=shard)] == task.meter.syncs
            assert found[of("topics_wal_shard_read_only", shard=shard)] == 0
            assert found[of("topics_wal_shard_disk_low", shard=shard)] == 0
            assert (
                found[of("topics_wal_shard_free_bytes", shard=shard)] > 0
            )  # of a moment ago: the disk is not ours alone
        assert found[of("topics_wal_size_bytes")] == runtime.compactor.log_bytes > 0


async def test_observed_times_fall_into_their_buckets():
    site = new_site()
    for seconds in (0.0002, 0.003, 0.003, 9.0):
        site.metrics.observe_sync(seconds)
    for seconds in (-1.0, 0.004):
        site.metrics.observe_delivery(seconds)
    found = await scrape(site)

    assert not any(key[0].endswith("_created") for key in found)
    assert found[of("topics_fsync_duration_seconds_count")] == 4
    assert found[of("topics_fsync_duration_seconds_sum")] == pytest.approx(9.0062)
    at_most = {
        le: found[of("topics_fsync_duration_seconds_bucket", le=le)]
        for le in ("0.00025", "0.005", "2.5", "+Inf")
    }
    assert at_most == {"0.00025": 1, "0.005": 3, "2.5": 3, "+Inf": 4}
    assert found[of("topics_delivery_latency_seconds_sum")] == pytest.approx(0.004)
    assert found[of("topics_delivery_latency_seconds_bucket", le="0.001")] == 1


@pytest.mark.rule("H11.15")
async def test_delivery_is_timed_from_the_write_to_the_answer_that_was_waited_for():
    clock = ManualClock()
    site = new_site()
    async with alone(), begun(site, clock=clock), trio.open_nursery() as nursery:
        await ask(site, "PUT", "/v0/topics/a")
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 0}]})
        await ask(site, "POST", "/v0/topics/a/diff", {"wait_ms": 1000})  # at hand, so not waited for
        await ask(site, "POST", "/v0/topics/a/diff", {"wait_ms": 1, "from_seq": 1})  # nothing came
        assert (await scrape(site))[of("topics_delivery_latency_seconds_count")] == 0

        nursery.start_soon(ask, site, "POST", "/v0/topics/a/diff", {"wait_ms": 30_000, "from_seq": 1})
        await trio.testing.wait_all_tasks_blocked()
        assert (await scrape(site))[of("topics_waiting_readers")] == 1
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        await trio.testing.wait_all_tasks_blocked()
        found = await scrape(site)

    assert found[of("topics_delivery_latency_seconds_count")] == 1
    assert found[of("topics_delivery_latency_seconds_sum")] == 0  # the clock stands still
    assert found[of("topics_waiting_readers")] == 0


@pytest.mark.rule("H11.4")
async def test_the_json_has_the_same_names_labels_and_values():
    async with open_site() as site:
        await ask(site, "POST", "/v0/topics/a", {"records": [{"data": 1}]})
        await scrape(site)
        answer = await ask(site, "GET", "/v0/metrics", headers={"accept": "application/json"})
        fields = fields_of(answer)
        found = await scrape(site)

    given = {
        (sample["name"], *sorted(sample["labels"].items())): sample["value"]
        for family in fields["metrics"]
        for sample in family["samples"]
    }
    # The last is of a disk on which others write between the two answers.
    moving = ("process_", "topics_uptime", "topics_request", "topics_wal_shard_free_bytes")
    assert {k: v for k, v in given.items() if not k[0].startswith(moving)} == {
        k: v for k, v in found.items() if not k[0].startswith(moving)
    }
    assert given.keys() <= found.keys()
    assert all(family["help"] and family["type"] for family in fields["metrics"])
    assert fields["performance"]["server_total_ms"] >= 0


@pytest.mark.rule("H11.5")
async def test_series_a_topic_are_bounded_and_the_totals_count_all():
    async with open_site(metric_topics_max=2) as site:
        for i in range(5):
            await ask(site, "POST", f"/v0/topics/t{4 - i}", {"records": [{"data": 1}] * (i + 1)})
        found = await scrape(site)
        page = (await ask(site, "GET", "/v0/metrics")).body

    shown = {dict(key[1:])["topic"] for key in found if key[0] == "topics_topic_records"}
    assert shown == {"t4", "t3"}  # the first that were created
    assert found[of("topics_topics")] == 5
    assert found[of("topics_records")] == 15
    assert b"series of their own have the 2 topics created first" in page


@pytest.mark.rule("H11.16")
async def test_queues_are_counted_as_they_stand_now():
    clock = ManualClock()
    site = new_site(metric_topics_max=2)
    async with alone(), begun(site, clock=clock):
        put_s = clock.now_ms() / 1000
        await ask(site, "PUT", "/v0/topics/log")
        await ask(site, "PUT", "/v0/topics/q", {"type": "queue"})
        await ask(site, "PUT", "/v0/topics/late", {"type": "queue"})
        empty = await scrape(site)
        records = [{"data": i} for i in range(4)] + [{"data": 4, "delay_ms": 60_000}]
        await ask(site, "POST", "/v0/topics/q", {"records": records})
        await ask(site, "POST", "/v0/topics/q/claim", {"node": "w", "max": 2, "lease_ms": 1000})
        await ask(site, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})
        await ask(site, "POST", "/v0/topics/q/pause")
        leased = await scrape(site)
        clock.advance(60_000)
        ended = await scrape(site)

    def queue(found):
        names = ("ready", "in_flight", "delayed", "dead_lettered", "paused")
        return [found[of(f"topics_queue_{name}", topic="q")] for name in names]

    oldest = of("topics_queue_oldest_job_timestamp_seconds", topic="q")
    assert (queue(empty), empty.get(oldest)) == ([0, 0, 0, 0, 0], None)
    assert (queue(leased), leased[oldest]) == ([2, 1, 1, 0, 1], put_s)
    assert queue(ended) == [4, 0, 0, 0, 1]  # nobody asked the queue for anything meanwhile
    shown = {dict(key[1:])["topic"] for key in ended if key[0] == "topics_queue_ready"}
    assert shown == {"q"}  # a log has none, and `late` is above the bound


async def test_the_lag_of_consumers_is_told_and_bounded():
    async with open_site(metric_topics_max=3) as site:
        for topic in ("a", "b"):
            await ask(site, "POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * 5})
            for number in range(2):
                await ask(site, "PUT", f"/v0/topics/{topic}/consumers/c{number}", {"from_seq": number})
        found = await scrape(site)

    lags = {(dict(key[1:])["topic"], dict(key[1:])["consumer"]): found[key] for key in found
            if key[0] == "topics_consumer_lag"}  # fmt: skip
    assert lags == {("a", "c0"): 5, ("a", "c1"): 4, ("b", "c0"): 5}


@pytest.mark.rule("H11.16")
async def test_what_workers_did_is_counted_by_queue():
    clock = ManualClock()
    site = new_site(metric_topics_max=2)
    async with alone(), begun(site, clock=clock):
        for name, more in (("log", {}), ("q", {"type": "queue"}), ("late", {"type": "queue"})):
            await ask(site, "PUT", f"/v0/topics/{name}", more)
        await ask(site, "POST", "/v0/topics/q", {"records": [{"data": i} for i in range(6)]})
        none = await scrape(site)
        await ask(site, "POST", "/v0/topics/q/claim", {"node": "w", "max": 4, "lease_ms": 1000})
        await ask(site, "POST", "/v0/topics/q/claim", {"node": "v", "max": 4, "lease_ms": 5000})
        await ask(site, "POST", "/v0/topics/q/claim", {"node": "u"})  # there are no more
        await ask(site, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1, 2, 1, 5, 99]})
        await ask(site, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})
        await ask(site, "POST", "/v0/topics/q/nack", {"node": "w", "seqs": [3, 5], "delay_ms": 60_000})
        await ask(site, "POST", "/v0/topics/q/extend", {"node": "v", "seqs": [5], "lease_ms": 60_000})
        clock.advance(1001)
        await ask(site, "POST", "/v0/topics/q/ack", {"node": "w", "seqs": [4]})  # too late
        early = await scrape(site)
        clock.advance(10_000)
        await ask(site, "POST", "/v0/topics/q/ack", {"node": "v", "seqs": [5]})
        late = await scrape(site)

    names = ("claims", "claimed_jobs", "acked_jobs", "nacked_jobs", "expired_leases")
    counted = [
        [found[of(f"topics_queue_{name}_total", topic="q")] for name in names]
        for found in (none, early, late)
    ]
    assert counted == [[0, 0, 0, 0, 0], [3, 6, 2, 1, 1], [3, 6, 3, 1, 2]]
    assert {dict(key[1:])["topic"] for key in late if key[0] == "topics_queue_claims_total"} == {"q"}


@pytest.mark.rule("T4.30")
async def test_before_the_log_is_recovered_there_are_the_figures_of_the_process():
    site = new_site()
    site.progress = 0.5
    found = await scrape(site)

    assert found[of("topics_ready")] == 0
    assert found[of("topics_replay_progress_ratio")] == 0.5
    assert found[of("topics_topics")] == 0
    assert not any(key[0].startswith("topics_wal") for key in found)


async def test_two_servers_in_a_process_count_apart():
    one, other = new_site(), new_site()
    one.metrics.observe_sync(1.0)
    await ask(one, "GET", "/v0/health")

    assert (await scrape(one))[of("topics_fsync_duration_seconds_count")] == 1
    assert (await scrape(other))[of("topics_fsync_duration_seconds_count")] == 0
    assert of("topics_requests_total", route="health", status="200") not in await scrape(other)


async def test_many_topics_are_taken_in_slices():
    """The loop goes on while the numbers are copied."""

    figures = [(Topic(number, f"t{number}", 1, TopicConfig()), 0, None) for number in range(1, 5001)]
    metrics, turns = Metrics(version=""), []

    async def elsewhere():
        while True:
            turns.append(1)
            await trio.lowlevel.checkpoint()

    async with open_site() as site:
        shown = await metrics.take(site.traffic(), site.runtime)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(elsewhere)
            taken = await with_topics(shown, iter(figures), 1000, bool)
            nursery.cancel_scope.cancel()

    assert (taken.topic_count, len(taken.topics)) == (5000, 1000)
    assert len(turns) >= 9


async def test_the_process_is_measured_where_the_system_tells():
    found = await scrape(new_site())

    if of("process_resident_memory_bytes") in found:  # Linux
        assert found[of("process_resident_memory_bytes")] > 1 << 20
        assert found[of("process_open_fds")] >= 3


async def test_what_rewrites_write_and_free_is_counted():
    site = new_site(limits=Limits())
    options = {"segments": SegmentRules(records_max=10, bytes_max=100_000, age_ms=0)}
    async with alone(), begun(site, **options) as runtime:
        records = [{"data": "x" * 50, "tag": "go" if i % 5 else "keep"} for i in range(20)]
        await ask(site, "POST", "/v0/topics/t", {"records": records, "config": {"durability": "fsync"}})
        await ask(site, "POST", "/v0/topics/t/delete", {"match": "go"})
        for _ in range(2):
            await ask(site, "POST", "/v0/admin/checkpoint")
        before = await scrape(site)
        assert await runtime.compactor.carry_out(runtime.opened.checkpointer.between)
        found = await scrape(site)
        page = fields_of(await ask(site, "POST", "/v0/topics/t/diff", {}))

    assert before[of("topics_segment_rewritten_bytes_total")] == 0
    assert (
        0
        < found[of("topics_segment_rewritten_bytes_total")] * 3
        < found[of("topics_segment_freed_bytes_total")]
    )
    assert len(page["records"]) == 4
