"""The jobs of a queue over the API: every field of their bodies and answers, and what ends a claim that waits."""

from __future__ import annotations

import re

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.server.api.asking import ask, code, said
from tests.server.wire.places import SMALL, alone, begun, new_site, open_site
from topics.calls.queues.checks import claim_command
from topics.engine.commands import Claim
from topics.kernel.errors import Code, Rejected
from topics.kernel.limits import Limits
from topics.log.jobs.transitions import JobState
from topics.server.api.memory import MemoryAccount, Share
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk

pytestmark = pytest.mark.trio

Q = "/v0/topics/q"
ODD = (
    b'{"records":[{"data":{"b": 1.0e+2,  "a":[1 ,2]},"tag":"t\\u00e4","node":"p","key":"k","meta":{"m":"v"},'
    b'"priority":5}]}'
)


async def queue_of(site, *datas, **config):
    assert (await ask(site, "PUT", Q, {"type": "queue", **config})).status == 201
    if datas:
        assert (await ask(site, "POST", Q, {"records": [{"data": data} for data in datas]})).status == 200


async def claim(site, **fields):
    status, answer = await said(site, "POST", f"{Q}/claim", {"node": "w", **fields})
    assert status == 200, answer
    return answer


async def settled(runtime):
    """Nothing is being written. A move that waits for the clock, which stands still, wakes its task all the time."""
    await wait_all_tasks_blocked()
    while not runtime.engine.rested(0, 0):
        await wait_all_tasks_blocked()


async def state(site):
    return (await said(site, "GET", Q))[1]["queue"]


async def test_a_deadline_tells_how_long_a_lease_really_is():
    clock, site = ManualClock(), new_site()
    async with alone(), begun(site, clock=clock):
        await queue_of(site, 1, 2)
        (short,) = (await claim(site, lease_ms=5, max=0))["claimed"]
        (long,) = (await claim(site, lease_ms=10**12))["claimed"]
        assert (short["deadline"], long["deadline"]) == (clock.now_ms() + 100, clock.now_ms() + 86_400_000)

        extended = await said(site, "POST", f"{Q}/extend", {"node": "w", "seqs": [2], "lease_ms": 5})
        assert extended[1]["deadlines"] == {"2": clock.now_ms() + 100}


@pytest.mark.rule("Q4.5")
@pytest.mark.rule("Q4.1", "Q4.3", "Q4.4", "Q4.6", "H1.15")
async def test_a_claim_gives_records_with_their_leases_byte_for_byte():
    clock, site = ManualClock(), new_site()
    async with alone(), begun(site, clock=clock):
        await queue_of(site)
        await ask(site, "POST", Q, ODD)
        await ask(site, "POST", Q, {"records": [{"data": 2}]})
        answer = await ask(site, "POST", f"{Q}/claim", {"node": "w", "max": 5})
        assert b'"data":{"b": 1.0e+2,  "a":[1 ,2]}' in answer.body

        clock.advance(30_001)
        found = await claim(site, max=5)
        first, second = found.pop("claimed")
        assert found == {"topic": "q", "count": 2, "ready": 0}
        assert re.fullmatch("lease_[0-9a-f]{16}3", first.pop("lease_id"))
        at = {"deadline": clock.now_ms() + 30_000, "$ts": clock.now_ms() - 30_001, "deliveries": 2}
        assert first == {
            "$seq": 1, "$node": "p", "$tag": "tä", "$key": "k", "data": {"b": 100.0, "a": [1, 2]}, "meta": {"m": "v"},
            "priority": 5, **at,
        }  # fmt: skip
        assert second == {"$seq": 2, "data": 2, "lease_id": second["lease_id"], **at}

        lease = {"seqs": [1, 2], "lease_ids": ["", second["lease_id"]], "node": "w"}
        assert (await said(site, "POST", f"{Q}/extend", {**lease, "lease_ms": 1000}))[1] == {
            "topic": "q", "extended": [1, 2], "skipped": [], "ready": 0, "in_flight": 2,
            "deadlines": {"1": clock.now_ms() + 1000, "2": clock.now_ms() + 1000},
        }  # fmt: skip
        assert (
            await said(
                site, "POST", f"{Q}/nack", {"node": "w", "seqs": [2, 9], "reason": "no", "delay_ms": 50}
            )
        )[1] == {"topic": "q", "nacked": [2], "skipped": [9], "ready": 0, "in_flight": 1}
        told = {"topic": "q", "acked": [1], "skipped": [2], "ready": 0, "in_flight": 0}
        assert (await said(site, "POST", f"{Q}/ack", lease))[1] == told
        (shown,) = (await said(site, "POST", f"{Q}/peek", {"state": "delayed"}))[1]["jobs"]
        assert shown == {
            "$seq": 2, "$ts": at["$ts"], "data": 2, "state": "delayed", "deliveries": 2, "reason": "no",
            "ready_at": clock.now_ms() + 50,
        }  # fmt: skip


@pytest.mark.rule("H3.3", "Q4.15", "Q4.16")
async def test_the_state_of_a_queue_and_what_changes_it():
    async with open_site() as site:
        await queue_of(site, 1, 2, 3)
        await claim(site)
        assert await state(site) == {
            "ready": 2,
            "in_flight": 1,
            "delayed": 0,
            "dead_lettered": 0,
            "paused": False,
        }
        assert (await said(site, "POST", f"{Q}/pause"))[1] == {"topic": "q", "paused": True}
        assert (await claim(site))["claimed"] == []
        assert (await said(site, "POST", f"{Q}/purge"))[1] == {"topic": "q", "purged": 2}
        assert (await said(site, "POST", f"{Q}/resume"))[1] == {"topic": "q", "paused": False}
        assert await state(site) == {
            "ready": 0,
            "in_flight": 1,
            "delayed": 0,
            "dead_lettered": 0,
            "paused": False,
        }


async def test_a_log_has_no_counts_of_jobs():
    async with open_site() as site:
        await ask(site, "PUT", "/v0/topics/log", {})
        assert "queue" not in (await said(site, "GET", "/v0/topics/log"))[1]


@pytest.mark.parametrize("compression", ["none", "gzip"])
async def test_jobs_come_in_claim_order_whatever_they_are_stored_as(compression):
    async with open_site() as site:
        await queue_of(site, compression=compression, compression_min_bytes=1)
        records = [{"data": "x" * 99 + str(i), "priority": i % 3} for i in range(9)]
        await ask(site, "POST", Q, {"records": records})
        found = [job["data"][-1] for job in (await claim(site, max=9))["claimed"]]
    assert found == ["2", "5", "8", "1", "4", "7", "0", "3", "6"]


async def test_jobs_that_unfold_to_more_than_an_answer_holds_are_ready_again():
    async with open_site(limits=Limits(page_bytes=4096, wal_file_first=1 << 20)) as site:
        await queue_of(site, *["x" * 1500] * 5, compression="gzip", compression_min_bytes=1)
        assert [job["$seq"] for job in (await claim(site, max=5))["claimed"]] == [1, 2]
        await wait_all_tasks_blocked()
        assert (await state(site))["ready"] == 3
        assert [job["$seq"] for job in (await claim(site, max=5))["claimed"]] == [3, 4]


@pytest.mark.rule("Q4.2")
@pytest.mark.parametrize("are_at_hand", [True, False])
async def test_jobs_that_there_is_no_memory_for_are_ready_again(are_at_hand):
    site, account = new_site(), MemoryAccount("unsent", "answers", 1)
    async with alone(), begun(site) as runtime:
        await queue_of(site, 1, 2)
        account.hold(1)
        command, ended = claim_command("q", "w", site.options.limits, most=2), []
        runtime.jobs.begin(command, ended.append)
        await settled(runtime)
        (reply,) = [ticket.result() for ticket in ended]
        with pytest.raises(Rejected) as refused:
            if are_at_hand:
                runtime.jobs.at_hand(reply, Share(account))
            else:
                await runtime.jobs.fetch(reply, Share(account), bytes_max=9999)
        assert refused.value.code is Code.THROTTLED
        await settled(runtime)
        assert (await state(site))["ready"] == 2
        jobs = (await claim(site, max=2))["claimed"]
        assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(1, 1), (2, 1)]


@pytest.mark.rule("Q3.5")
@pytest.mark.parametrize(
    ("config", "becomes"), [({}, JobState.IN_FLIGHT), ({"dead_letter": "letters"}, JobState.MOVING)]
)
async def test_a_job_whose_bytes_are_damaged_is_given_up_and_does_not_fail_the_rest(config, becomes):
    disk, site = SimDisk(1), new_site()
    async with alone(), begun(site, disk=disk) as runtime:
        await queue_of(site, "aaaa", "bbbb", "cccc", **config)
        index = runtime.engine.catalog.find("q").index
        disk.flip("wal/gen-0/shard-00/wal-00000000000000000001.log", (index.offsets[1] + 45) * 8)
        assert [job["$seq"] for job in (await claim(site, max=3))["claimed"]] == [1, 3]
        await settled(runtime)
        states = {job.seq: job.state for job in runtime.engine.peek("q", JobState.IN_FLIGHT, 9)}
        assert states == {1: JobState.IN_FLIGHT, 2: becomes, 3: JobState.IN_FLIGHT}


# Waiting.


async def waiting(site, nursery, **fields):
    """A claim that waits; its answer goes into the list."""
    answers = []

    async def wait():
        answers.append(await said(site, "POST", f"{Q}/claim", {"node": "w", "wait_ms": 30_000, **fields}))

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    assert not answers
    return answers


@pytest.mark.parametrize("durability", ["fsync", "disk", "ephemeral"])
async def test_who_waits_has_the_job_that_comes(durability):
    async with open_site() as site, trio.open_nursery() as nursery:
        await queue_of(site, durability=durability)
        answers = await waiting(site, nursery)
        await ask(site, "POST", Q, {"records": [{"data": "x"}]})
        await wait_all_tasks_blocked()
        ((status, answer),) = answers
        assert (status, [job["data"] for job in answer["claimed"]], answer["ready"]) == (200, ["x"], 0)


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("deletion", (404, "topic_not_found")),
        ("drain", (200, {"topic": "q", "claimed": [], "count": 0, "ready": 0})),
        ("time", (200, {"topic": "q", "claimed": [], "count": 0, "ready": 0})),
    ],
)
async def test_what_else_ends_a_claim_that_waits(end, expected):
    clock, site = ManualClock(), new_site()
    async with alone(), begun(site, clock=clock) as runtime, trio.open_nursery() as nursery:
        await queue_of(site)
        answers = await waiting(site, nursery, wait_ms=50 if end == "time" else 30_000)
        if end == "deletion":
            await ask(site, "DELETE", Q)
        elif end == "drain":
            runtime.end_waits()
        else:
            clock.advance(50)
            runtime._alarms.look()
        await wait_all_tasks_blocked(0.02)
        (answered,) = answers
        assert (code(answered) if answered[0] >= 400 else answered) == expected
        assert runtime.in_flight == 0


async def test_a_claim_that_is_cancelled_has_leased_nothing():
    async with open_site() as site:
        await queue_of(site)
        async with trio.open_nursery() as nursery:
            await waiting(site, nursery)
            nursery.cancel_scope.cancel()
        await ask(site, "POST", Q, {"records": [{"data": "x"}]})
        assert (await state(site))["ready"] == 1


@pytest.mark.rule("H1.54", "Q4.9")
async def test_many_jobs_are_taken_in_one_claim_and_one_ack():
    limits = Limits(wal_file_first=SMALL.wal_file_first, wal_reserve=SMALL.wal_reserve)
    async with open_site(limits=limits) as site:
        await queue_of(site, *range(1000))
        await ask(site, "POST", Q, {"records": [{"data": "one more"}]})
        jobs = (await claim(site, max=10**9))["claimed"]
        seqs, ids = [job["$seq"] for job in jobs], [job["lease_id"] for job in jobs]
        told = (await said(site, "POST", f"{Q}/ack", {"node": "w", "seqs": seqs, "lease_ids": ids}))[1]
        assert (len(told["acked"]), told["in_flight"]) == (1000, 0)
        assert code(await said(site, "POST", f"{Q}/ack", {"node": "w", "seqs": [*seqs, 1]})) == (
            400, "batch_too_large",
        )  # fmt: skip


def deliveries(runtime, limit=9):
    return {view.seq: view.deliveries for view in runtime.engine.peek("q", JobState.READY, limit)}


@pytest.mark.rule("Q2.2")
async def test_jobs_for_whose_answer_there_is_no_memory_were_delivered_to_nobody():
    clock, site = ManualClock(), new_site(unsent_bytes_max=200)
    async with alone(), begun(site, clock=clock) as runtime:
        await queue_of(site, *["x" * 300] * 3, max_deliveries=2, dead_letter="dlq")
        other = Share(site.answers)
        other.reserve(150)
        for _ in range(4):
            with pytest.raises(Rejected) as refused:
                await runtime.jobs.claim(Claim(topic="q", node=b"w", count_max=3), Share(site.answers))
            assert refused.value.code is Code.THROTTLED
            await settled(runtime)
        other.release()
        assert (await state(site))["ready"] == 3
        assert deliveries(runtime) == {1: 0, 2: 0, 3: 0}


@pytest.mark.rule("Q4.1")
async def test_an_answer_is_bounded_by_what_its_jobs_are_unfolded():
    clock, site = ManualClock(), new_site()
    async with alone(), begun(site, clock=clock) as runtime:
        await queue_of(site, compression="gzip", max_deliveries=1, dead_letter="dlq")
        for priority in (0, 0, 0, 9):
            job = {"data": "0" * 4000, "priority": priority}
            await ask(site, "POST", Q, {"records": [job]})
        given = []
        for bytes_max in (9000, 1, 4500):
            given.append(
                [job["$seq"] for job in (await claim(site, max=9, max_batch_bytes=bytes_max))["claimed"]]
            )
            await settled(runtime)
        assert given == [[4, 1], [2], [3]]  # what comes first, not what is lowest
        assert (await state(site))["dead_lettered"] == 0
