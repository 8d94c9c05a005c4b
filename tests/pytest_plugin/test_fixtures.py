"""A server, a client, a store and a clock for a test, as somebody who has installed topics gets them."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator

import httpx
import pytest
import trio

import topics
from topics.pytest_plugin.clock import Clock
from topics.pytest_plugin.server import Server

pytest_plugins = ["pytester"]
HOUR_MS = 3_600_000
ONE_QUEUE = {"type": "queue", "lease_ms": HOUR_MS}


@pytest.fixture(params=["client", "store"])
def place(request: pytest.FixtureRequest) -> Iterator[topics.Client | topics.Store]:
    return request.getfixturevalue(f"topics_{request.param}")


@pytest.mark.rule("O5.7")
def test_a_server_is_a_real_one_with_a_port_and_a_directory_of_its_own(topics_server: Server) -> None:
    with topics.Client(topics_server.url) as client:
        client.topic("quakes").put({"mag": 4.2})

        assert client.topic("quakes").read().records[0].data == {"mag": 4.2}
    assert topics_server.data.is_dir()
    assert httpx.get(f"http://127.0.0.1:{topics_server.port}/v0/health").is_success


def test_a_delayed_job_is_there_when_the_clock_has_come_to_it(
    place: topics.Store, topics_clock: Clock
) -> None:
    place.create("jobs", **ONE_QUEUE)
    jobs = place.queue("jobs")
    jobs.put("later", delay_ms=HOUR_MS)
    topics_clock.advance(HOUR_MS - 60_000)
    assert jobs.claim() == []

    topics_clock.advance(60_000)

    assert [job.data for job in jobs.claim()] == ["later"]


def test_a_lease_ends_and_another_worker_has_the_job(place: topics.Store, topics_clock: Clock) -> None:
    place.create("jobs", **ONE_QUEUE)
    place.queue("jobs").put("once")
    (first,) = place.queue("jobs", node="dies").claim()
    assert place.queue("jobs").claim() == []

    topics_clock.advance(HOUR_MS + 1)  # it is its worker's until the end of that millisecond

    (again,) = place.queue("jobs", node="lives").claim()
    assert (again.seq, again.deliveries) == (first.seq, 2)
    assert (again.ack(), first.ack()) == (True, False)


def test_what_has_had_its_time_is_gone(place: topics.Store, topics_clock: Clock) -> None:
    topic = place.create("short", ttl_ms=HOUR_MS)
    topic.put("old")
    topics_clock.advance(HOUR_MS + 1000)
    topic.put("new")

    assert [record.data for record in topic.read().records] == ["new"]


def test_a_retry_comes_when_its_backoff_is_over_and_then_the_dead_letters(
    place: topics.Store, topics_clock: Clock
) -> None:
    dead = place.create("dead", type="queue")
    backoff = {"base_ms": HOUR_MS, "factor": 1, "max_ms": HOUR_MS}
    place.create("jobs", **ONE_QUEUE, retry_backoff=backoff, max_deliveries=2, dead_letter="dead")
    jobs = place.queue("jobs")
    jobs.put("fails")
    jobs.claim()[0].nack("no")
    assert jobs.claim() == []
    topics_clock.advance(2 * HOUR_MS)
    jobs.claim()  # and never heard of again

    topics_clock.advance(HOUR_MS)

    assert [record.data for record in dead.read(wait_ms=20_000).records] == ["fails"]


def test_who_waits_is_answered_at_once(place: topics.Client | topics.Store, topics_clock: Clock) -> None:
    place.create("jobs", **ONE_QUEUE)
    place.queue("jobs").put("later", delay_ms=HOUR_MS)
    got: list[object] = []
    waits = threading.Thread(target=lambda: got.extend(place.queue("jobs").claim(wait_ms=30_000)))
    waits.start()
    while not is_waiting(place):
        pass

    topics_clock.advance(HOUR_MS)

    assert not isinstance(place, topics.Store) or is_nothing_due(
        place
    )  # and not when somebody looks at the clock
    waits.join(10)
    assert len(got) == 1


def is_waiting(place: topics.Client | topics.Store) -> bool:
    if isinstance(place, topics.Store):
        return bool(place._local._waiting)
    return "topics_commands_in_flight 1.0" in httpx.get(f"{place.where}/v0/metrics").text


def is_nothing_due(store: topics.Store | topics.AsyncStore) -> bool:
    engine = store._opened.engine
    due_ms = engine.next_deadline_ms()
    return due_ms is None or due_ms > engine.now_ms()


def test_a_store_of_tasks_goes_by_the_same_clock(topics_clock: Clock, tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        async with topics.open_trio(tmp_path / "aio", clock=topics_clock) as store:
            jobs = await store.create("jobs", type="queue")
            await jobs.put("later", delay_ms=HOUR_MS)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_it, store)
                while not store._runtime.in_flight:
                    await trio.lowlevel.checkpoint()
                topics_clock.advance(HOUR_MS)
                assert not is_nothing_due(store)
                await store.clock_moved()
                assert is_nothing_due(store)

    async def wait_for_it(store: topics.AsyncStore) -> None:
        with trio.fail_after(10):
            assert len(await store.queue("jobs").claim(wait_ms=30_000)) == 1

    trio.run(main)


def test_a_server_of_ones_own_may_be_killed_and_goes_on_by_the_moved_clock(
    topics_own_server: Server, topics_clock: Clock
) -> None:
    with topics.Client(topics_own_server.url) as client:
        client.create("jobs", type="queue", lease_ms=HOUR_MS)
        client.queue("jobs").put("kept")
        client.queue("jobs").claim()
        port = topics_own_server.port
        topics_own_server.kill()
        topics_clock.advance(HOUR_MS)

        topics_own_server.start()

        assert topics_own_server.port == port
        (again,) = client.queue("jobs").claim()
        assert (again.data, again.deliveries) == ("kept", 2)


def test_a_clock_goes_forward_only() -> None:
    with pytest.raises(ValueError, match="forward only"):
        Clock().advance(-1)


# As others see it: in a folder of their own.


def test_a_client_finds_nothing_of_the_test_before_and_the_right_time(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import time
        import pytest

        urls = set()

        @pytest.mark.parametrize("turn", [1, 2])
        def test_one(turn, topics_client, topics_server, topics_clock):
            urls.add(topics_server.url)
            assert topics_client.list() == []
            topics_client.topic("mine").put(turn)
            (record,) = topics_client.topic("mine").read().records
            assert abs(record.ts - time.time() * 1000) < 60_000
            topics_clock.advance(3_600_000)

        def test_one_server_and_what_was_moved_is_put_back(topics_server):
            assert urls == {topics_server.url}
            assert topics_server.ahead_ms == 0

        @pytest.mark.parametrize("turn", [1, 2])
        def test_a_store(turn, topics_store):
            assert topics_store.list() == []
            topics_store.topic("mine").put(turn)
        """
    )
    pytester.runpytest_inprocess("-p", "no:randomly").assert_outcomes(passed=5)


def test_a_server_runs_by_the_settings_that_are_asked_for(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        import topics

        @pytest.fixture(scope="session")
        def topics_server_settings():
            return {"auto_create": "false"}

        def test_it(topics_client):
            with pytest.raises(topics.Rejected, match="does not exist"):
                topics_client.topic("unheard-of").put(1)
        """
    )
    pytester.runpytest_inprocess().assert_outcomes(passed=1)


def test_a_server_that_cannot_start_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def topics_server_settings():
            return {"max_tag_bytes": "many"}

        def test_it(topics_server):
            pass
        """
    )
    result = pytester.runpytest_inprocess()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*TOPICS_MAX_TAG_BYTES*"])


def test_settings_that_come_too_late_are_an_error_that_says_where_they_belong(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pytest makes a fixture of a session once, with what the first test of it overrides."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        test_first="def test_it(topics_client): pass",
        test_second="""
        import pytest

        @pytest.fixture(scope="session")
        def topics_server_settings():
            return {"max_record_bytes": "1000"}

        def test_it(topics_client): pass
        def test_own(topics_own_server): pass
        """,
    )

    result = pytester.runpytest_subprocess("-p", "topics.pytest_plugin")

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*define topics_server_settings in the conftest.py of all tests*"])
