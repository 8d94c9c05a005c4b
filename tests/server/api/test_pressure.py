"""Pressure: what is told of it, which writes it refuses, and how long synced writes wait for each other."""

import pytest
import trio

from tests.server.api.asking import ask, code, fields_of, said
from tests.server.runtime.test_hub import Follows
from tests.server.wire.places import alone, begun, new_site, open_site
from topics.embed.aio.thread import Threads
from topics.engine.commands import Append
from topics.kernel.columns import RecordColumns
from topics.kernel.config import TopicConfig
from topics.kernel.limits import INGEST_WAITING_MAX
from topics.log.reads.waiting import News
from topics.sched.governor import SAMPLE_US, Governor
from topics.server.auth.keys import Keys
from topics.server.auth.lines import parse_keys

pytestmark = pytest.mark.trio

NONE = dict.fromkeys(("below_0", "0", "250", "500", "750"), 0)
WRITE = {"records": [{"data": 1}]}


def press(governor: Governor, ready=64) -> None:
    """Have it see nothing but trouble for two seconds."""
    for n in range(20):
        governor.waited(10**6)
        governor.sample(n * SAMPLE_US, ready=ready, late_us=0, busy=1.0)


async def wait_for_turn(site, **priorities):
    """Watched topics have news, which coalesces as long as the clock stands still."""
    hub = site.ready_runtime().hub
    for topic, priority in priorities.items():
        await ask(site, "PUT", f"/v0/topics/{topic}", {"priority": priority})
        hub.follow(Follows(topic))
        hub.tell({topic: News.RECORDS})


@pytest.mark.rule("H11.9")
async def test_at_rest_there_is_no_pressure_and_under_load_it_says_what_is_left_off(mock_clock):
    async with open_site() as site:
        hub = site.ready_runtime().hub
        status, fields = await said(site, "GET", "/v0/admin/pressure")
        assert (status, fields) == (
            200,
            {
                "pressure": 0.0, "step": "nothing", "bands": NONE, "held_topics": 0, "coalesce_ms": 0, "commit_ms": 0,
                "signals": {"ready_topics": 0, "scheduling_latency_ms": 0.0, "busy": 0.0},
            },
        )  # fmt: skip

        press(hub.governor, ready=32)  # 0.8 at most
        await wait_for_turn(site, a=600, b=-7)
        hub.ready.hold()
        _, fields = await said(site, "GET", "/v0/admin/pressure")
        assert fields["pressure"] == pytest.approx(0.8, abs=1e-3)
        assert (fields["step"], fields["bands"], fields["held_topics"]) == ("widen", {**NONE, "500": 1}, 1)
        assert (fields["coalesce_ms"], fields["commit_ms"]) == pytest.approx((15, 6.833), abs=0.01)
        assert fields["signals"]["ready_topics"] == 32
        assert fields["signals"]["busy"] == 1


@pytest.mark.rule("H11.6")
async def test_metrics_have_pressure_what_waits_by_band_and_how_long_it_waited(mock_clock):
    async with open_site() as site:
        hub = site.ready_runtime().hub
        press(hub.governor)
        await wait_for_turn(site, a=600)
        site.metrics.observe_turn(0.003)

        page = (await ask(site, "GET", "/v0/metrics")).body.decode().splitlines()

        assert "topics_pressure 1.0" in page
        assert 'topics_ready_topics{band="500"} 1.0' in page
        assert 'topics_ready_topics{band="below_0"} 0.0' in page
        assert "topics_held_topics 0.0" in page
        assert 'topics_scheduling_latency_seconds_bucket{le="0.005"} 1.0' in page


@pytest.mark.rule("S10.12", "H1.34", "S2.9")
async def test_at_full_pressure_a_write_is_refused_while_too_many_wait_and_nothing_was_assigned():
    async with open_site() as site:
        runtime = site.ready_runtime()
        await ask(site, "POST", "/v0/topics/t", WRITE)
        one = Append(topic="t", records=RecordColumns([b"2"]))
        for _ in range(INGEST_WAITING_MAX - 1):
            runtime.engine.propose(one)
        press(runtime.hub.governor)
        runtime.check_pressure("t")  # one short of it
        runtime.engine.propose(one)

        refused = await ask(site, "POST", "/v0/topics/t", WRITE)

        error = fields_of(refused)["error"]
        assert (refused.status, error["code"], error["detail"]) == (
            429,
            "throttled",
            {"retry_after_ms": 1000},
        )
        assert (b"retry-after", b"1") in refused.headers
        assert len(list(runtime.engine.waiting(0))) == INGEST_WAITING_MAX
        status, fields = await said(site, "POST", "/v0/topics/t", {**WRITE, "disable_backpressure": True})
        assert (status, fields["first_seq"]) == (200, INGEST_WAITING_MAX + 2)  # behind those that were taken
        assert (await said(site, "POST", "/v0/topics/t", WRITE))[0] == 200  # nobody waits any more


@pytest.mark.rule("S10.12")
async def test_many_who_wait_are_no_reason_without_pressure():
    async with open_site() as site:
        runtime = site.ready_runtime()
        await ask(site, "POST", "/v0/topics/t", WRITE)
        for _ in range(INGEST_WAITING_MAX):
            runtime.engine.propose(Append(topic="t", records=RecordColumns([b"2"])))

        assert (await said(site, "POST", "/v0/topics/t", WRITE))[0] == 200


@pytest.mark.rule("S10.12")
async def test_not_to_be_refused_takes_admin_whether_there_is_pressure_or_not():
    async with open_site(keys=Keys(parse_keys("writer:w,admin:w+a"))) as site:
        found = []
        for key, asked in (("writer", True), ("writer", False), ("admin", True)):
            headers = {"authorization": f"Bearer {key}"}
            body = {**WRITE, "disable_backpressure": asked}
            found.append(await said(site, "POST", "/v0/topics/t", body, headers=headers))

    assert code(found[0]) == (403, "forbidden")
    assert "disable_backpressure" in found[0][1]["error"]["message"]
    assert [status for status, _ in found[1:]] == [201, 200]


class AtOnce(Threads):
    """Jobs on the loop, which take no time of its clock."""

    def dedicated(self, name):
        return self

    async def run(self, job):
        await trio.lowlevel.checkpoint()
        return job()

    def close(self): ...


@pytest.mark.rule("S10.10")
@pytest.mark.parametrize(("pressed", "took_s"), [(False, 0.0), (True, 0.010)])
async def test_synced_writes_wait_for_each_other_if_there_are_several_and_pressure(
    autojump_clock, pressed, took_s
):
    async with alone(), begun(new_site(), threads=AtOnce()) as runtime:
        one = Append(topic="t", records=RecordColumns([b"1"]), config=TopicConfig(durability="fsync"))
        await runtime.append(one)
        await trio.sleep(5)
        took = []

        async def write():
            began = trio.current_time()
            await runtime.append(one)
            took.append(trio.current_time() - began)

        async def write_together(count):
            async with trio.open_nursery() as nursery:
                for _ in range(count):
                    nursery.start_soon(write)

        if pressed:
            press(runtime.hub.governor)
        await write()  # alone: it is synced at once
        await write_together(4)  # the last was alone, so these are, too
        assert took == [0.0] * 5
        syncs = runtime.shards[0].meter.syncs

        await write_together(4)

        assert took[5:] == pytest.approx([took_s] * 4)
        assert runtime.shards[0].meter.syncs == syncs + 1
        await write()
        assert took[-1] == 0.0
