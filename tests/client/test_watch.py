"""`watch` of a client against a real server: each record once, whatever becomes of the connection and of the server."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx_sse
import pytest

import topics
from tests.client.cutting import CuttingRelay
from tests.server.process import CERTIFICATES, Process
from tests.support.embedded import wait_until
from topics.calls.watching.rules import WatchRules
from topics.cli.demo.private_server import PrivateServer
from topics.client.session_feed import SessionFeed

BACKENDS = ["trio", "asyncio"]
PATIENCE_S = 20


def told(values: list[Any]) -> list[Any]:
    """Records by their data, and what else was told."""
    found: list[Any] = []
    for value in values:
        match value:
            case topics.Record():
                found.append(value.data)
            case topics.Tombstone():
                found.append((value.gap_from, value.gap_to, value.reason.value))
            case topics.TopicDeleted():
                found.append("deleted")
    return found


def taken(watch: topics.Watch, count: int) -> list[Any]:
    """So many that are no `CaughtUp`."""
    found: list[Any] = []
    while len(found) < count:
        found += told([next(watch)])
    return found


async def awaited(watch: topics.AsyncWatch, count: int) -> list[Any]:
    found: list[Any] = []
    with anyio.fail_after(PATIENCE_S):
        while len(found) < count:
            found += told([await anext(watch)])
    return found


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Begun; what is returned joins it, and gives what it gave or raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 -- given to who asks
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def joined() -> Any:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        return found[0]

    return joined


@pytest.mark.rule("O5.5")
def test_several_topics_backlog_then_live(client: topics.Client, name: str) -> None:
    one, two = client.create(f"{name}-1"), client.create(f"{name}-2")
    one.put_many([{"data": n, "tag": "t", "key": "k", "meta": {"m": "v"}} for n in range(1000)])
    with client.watch([one.name, two.name]) as watch:
        values = [next(watch) for _ in range(1002)]
        assert sorted(told(values)) == list(range(1000))
        assert sum(isinstance(value, topics.CaughtUp) for value in values) == 2
        record = next(value for value in values if isinstance(value, topics.WatchedRecord))
        assert (record.topic, record.tag, record.key, record.meta) == (one.name, "t", "k", {"m": "v"})
        for n in range(10):
            two.put(n)
            assert taken(watch, 1) == [n]
        client.delete(one.name)
        client.delete(two.name)
        assert told(list(watch)) == ["deleted", "deleted"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_in_tasks_and_a_cancelled_item_is_lost_to_nobody(
    server: PrivateServer, name: str, backend: str
) -> None:
    async def main() -> None:
        async with topics.AsyncClient(server.url) as client:
            topic = await client.create(name)
            await topic.put_many([{"data": n} for n in range(300)])
            async with client.watch(name) as watch:
                assert await awaited(watch, 300) == list(range(300))
                for n in range(10):
                    with anyio.move_on_after(random.random() / 50):
                        while True:
                            assert isinstance(await anext(watch), topics.CaughtUp)
                    await topic.put(n)
                    assert await awaited(watch, 1) == [n]
                assert watch.positions == {name: {"from_seq": 310, "epoch": 1}}

    anyio.run(main, backend=backend)


@pytest.mark.rule("O5.4")
def test_each_once_wherever_the_stream_breaks(
    server: PrivateServer, client: topics.Client, name: str
) -> None:
    topic = client.create(name, cap_records=40)
    topic.put_many([{"data": n} for n in range(50)])
    expected = [(1, 10, "cap"), *range(10, 50)]
    chance = random.Random(7)
    for lengths in ([], *([chance.randrange(4000) for _ in range(4)] for _ in range(12))):
        with CuttingRelay(server.port, lengths) as relay, topics.Client(relay.url) as cut:
            with cut.watch(name) as watch:
                assert taken(watch, len(expected)) == expected
            assert relay.streams >= 1


def test_a_writer_and_a_way_that_breaks(server: PrivateServer, client: topics.Client, name: str) -> None:
    topic = client.create(name)
    chance = random.Random(11)
    cuts = [chance.randrange(300, 16_000) for _ in range(12)]
    with CuttingRelay(server.port, cuts) as relay, topics.Client(relay.url) as cut:
        writing = in_thread(lambda: [topic.put(n) for n in range(300)])
        with cut.watch(name) as watch:
            assert taken(watch, 300) == list(range(300))
        writing()
        assert relay.streams > 3


def test_many_topics_over_a_way_that_breaks(server: PrivateServer, client: topics.Client, name: str) -> None:
    """So many that an id does not say where each is."""
    names = [f"{name[:40]}-{i}" for i in range(100)]
    for one in names:
        client.create(one, durability="ephemeral").put_many([{"data": n} for n in range(20)])
    chance = random.Random(5)
    with CuttingRelay(server.port, [chance.randrange(2000, 40_000) for _ in range(12)]) as relay:
        with topics.Client(relay.url) as cut, cut.watch(names) as watch:
            found: dict[str, list[Any]] = {one: [] for one in names}
            while sum(map(len, found.values())) < 2000:
                value = next(watch)
                found[value.topic] += told([value])
        assert relay.streams > 3
    assert found == {one: list(range(20)) for one in names}


@pytest.mark.rule("O5.4")
def test_it_goes_on_when_the_server_was_killed_or_stopped(tmp_path: Path) -> None:
    with PrivateServer(tmp_path / "data", tmp_path) as server, topics.Client(server.url) as client:
        topic = client.create("t", durability="fsync")
        gone = client.create("gone")
        anew = client.create("anew")
        anew.put_many([{"data": "old"}, {"data": "older"}])
        with client.watch(["t", "gone", "anew"]) as watch:
            assert sorted(taken(watch, 2)) == ["old", "older"]
            for life in range(2):
                topic.put_many([{"data": [life, n]} for n in range(50)])
                (server.kill, server.stop)[life]()
                server.start()
                topic.put([life, "last"])
                assert taken(watch, 51) == [*([life, n] for n in range(50)), [life, "last"]]
            server.kill()
            server.start()
            client.delete("gone")
            client.delete("anew")
            anew.put_many([{"data": n} for n in range(3)])
            found = taken(watch, 5)
            assert sorted(map(str, found)) == sorted(map(str, ["deleted", (1, 3, "recreated"), 0, 1, 2]))
            assert watch.positions["anew"] == {"from_seq": 3, "epoch": 2}
        assert gone.name == "gone"


def test_a_server_that_is_silent_is_asked_again_and_nobody_is_told(
    server: PrivateServer, client: topics.Client, name: str
) -> None:
    topic = client.create(name)
    asked = WatchRules(name).asked(client.limits)
    with CuttingRelay(server.port, []) as relay, topics.Client(relay.url) as behind:
        # The server's own signs of life come every 15 s.
        watch = topics.Watch(SessionFeed(asked, behind._line, behind._transport, silent_s=0.2), behind.do)
        assert isinstance(next(watch), topics.CaughtUp)
        rest = in_thread(lambda: next(watch))
        assert wait_until(lambda: relay.streams > 2)
        topic.put("later")
        assert told([rest()]) == ["later"]


def test_another_process_goes_on_from_its_positions(
    server: PrivateServer, client: topics.Client, name: str
) -> None:
    topic = client.create(name)
    topic.put_many([{"data": n} for n in range(10)])
    with client.watch(name) as watch:
        assert taken(watch, 4) == [0, 1, 2, 3]
    program = (
        "import json, sys, topics\n"
        "with topics.Client(sys.argv[1]) as client, client.watch(json.loads(sys.argv[2])) as watch:\n"
        "    print([next(watch).data for _ in range(6)])\n"
    )
    arguments = [sys.executable, "-c", program, server.url, json.dumps(watch.positions)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout == "[4, 5, 6, 7, 8, 9]\n"


def test_who_is_slow_is_told_what_he_lost(client: topics.Client, name: str) -> None:
    topic = client.create(name, cap_records=100)
    with client.watch(name) as watch:
        for _ in range(40):
            topic.put_many([{"data": "x" * 4000} for _ in range(100)])
        passed = 0
        while passed < 4000:
            match next(watch):
                case topics.WatchedRecord(seq=seq):
                    assert seq == passed + 1
                    passed = seq
                case topics.Tombstone() as lost:
                    assert lost.gap_from == passed + 1
                    passed = lost.gap_to


def test_strong_gives_what_is_durable(client: topics.Client, name: str) -> None:
    topic = client.create(name, durability="disk")
    with client.watch(name, consistency="strong") as watch:
        topic.put_many([{"data": n} for n in range(20)])
        assert taken(watch, 20) == list(range(20))
        assert topic.state().durable_seq == 20


def test_it_ends_by_another_thread_and_with_its_client(server: PrivateServer, name: str) -> None:
    with topics.Client(server.url) as client:
        client.create(name)
        closed, shut = client.watch(name), client.watch(name)
        assert isinstance(next(closed), topics.CaughtUp)
        assert isinstance(next(shut), topics.CaughtUp)
        ending, failing = in_thread(lambda: list(closed)), in_thread(lambda: list(shut))
        closed.close()
        assert ending() == []
    failure = failing()
    assert isinstance(failure, topics.Rejected)
    assert failure.code == "shutting_down"


def test_a_client_that_is_closed_closes_watches_for_which_nobody_waits(
    server: PrivateServer, name: str
) -> None:
    with topics.Client(server.url) as client:
        client.create(name)
        watch = client.watch(name)
        assert isinstance(next(watch), topics.CaughtUp)
        own = watch._feed._stream._socket
    assert own.fileno() == -1


def test_it_ends_by_another_thread_over_tls(tmp_path: Path) -> None:
    tls = ("--certfile", CERTIFICATES / "one.pem", "--keyfile", CERTIFICATES / "one.key")
    with Process("--memory", "--port", 0, *tls, cwd=tmp_path).ready() as server:
        url = f"https://localhost:{server.port}"
        with topics.Client(url, cafile=CERTIFICATES / "one.pem") as client:
            client.create("t").put(1)
            watch = client.watch("t")
            assert taken(watch, 1) == [1]
            assert isinstance(next(watch), topics.CaughtUp)
            ending = in_thread(lambda: list(watch))
            watch.close()
            assert ending() == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_it_ends_by_another_task_and_with_its_client(server: PrivateServer, name: str, backend: str) -> None:
    async def run(watch: topics.AsyncWatch, ended: list[Any], begun: anyio.Event) -> None:
        begun.set()
        try:
            ended.append([value async for value in watch])
        except topics.Rejected as refused:
            ended.append(refused.code)

    async def main() -> None:
        ended: list[Any] = []
        client = topics.AsyncClient(server.url)
        await client.create(name)
        closed, shut = client.watch(name), client.watch(name)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                for watch in (closed, shut):
                    begun = anyio.Event()
                    assert isinstance(await anext(watch), topics.CaughtUp)
                    tasks.start_soon(run, watch, ended, begun)
                    await begun.wait()
                await closed.aclose()
                await client.aclose()
        assert ended == [[], "shutting_down"]

    anyio.run(main, backend=backend)


def test_what_does_not_pass_is_raised(client: topics.Client, name: str) -> None:
    with pytest.raises(topics.Rejected, match=f"topic '{name}' does not exist") as refused:
        next(client.watch(name))
    assert refused.value.code == "topic_not_found"
    with topics.Client("http://127.0.0.1:9") as nobody, pytest.raises(topics.Unreachable):
        next(nobody.watch(name))


def test_a_foreign_client_of_events_reads_the_same(
    server: PrivateServer, client: topics.Client, name: str
) -> None:
    client.create(name, cap_records=3).put_many([{"data": n} for n in range(5)])
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as http:
        session = http.post("/v0/watch", json={"topics": {name: {}}}).json()
        seen = []
        with httpx_sse.connect_sse(http, "GET", session["stream_url"]) as source:
            for event in source.iter_sse():
                seen.append((event.event, event.json() if event.data else {}, event.id))
                if event.event == "caught-up":
                    break
        client.topic(name).put("later")
        again = {"Last-Event-ID": seen[-1][2]}
        with httpx_sse.connect_sse(http, "GET", session["stream_url"], headers=again) as source:
            later = next(event for event in source.iter_sse() if event.event == "record")

    assert [kind for kind, fields, _ in seen if fields] == ["tombstone", "record", "caught-up"]
    records = next(fields for kind, fields, _ in seen if kind == "record")
    assert [record["data"] for record in records["records"]] == [2, 3, 4]
    assert [record["data"] for record in later.json()["records"]] == ["later"]
