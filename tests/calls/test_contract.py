"""One script of calls over an embedded store, clients, and the places of the command line: the same of each.

The script has a row for every method there is: a call that is new, or that one of them lacks, makes it red.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.calls.shown import shown
from tests.support.awaited import Awaited, awaited
from topics.calls.awaiting import AsyncTopicStore
from topics.calls.blocking import TopicStore
from topics.calls.call import Call, OfTopic, Steps, drive, drive_async
from topics.calls.consumers import OfConsumer
from topics.cli.config.settings import load
from topics.cli.demo.private_server import PrivateServer
from topics.cli.target.place import DirectoryTarget, ServerTarget
from topics.embed.findings import Findings

Given = tuple[tuple[Any, ...], dict[str, Any]]


def given(*arguments: Any, **options: Any) -> Given:
    return arguments, options


RECORDS = [{"data": i, "tag": f"t{i % 2}", "node": f"n{i % 2}"} for i in range(5)]
OF_TOPIC: dict[str, list[Given]] = {
    "put": [
        given({"a": [1, 2.5, None]}, tag="t", node="n", key="k", meta={"m": "v"}), given(1, tag=""),
        given(1, expected_head=3), given(1, create=7), given({1, 2}), given(1, idempotency_key="k" * 300),
        given(1, priority=-1), given(1, require_same_body="no"),
    ],
    "put_many": [
        given(RECORDS), given(RECORDS, node="n", idempotency_key="k"), given(RECORDS, idempotency_key="k"),
        given([7], idempotency_key="k"), given([{"data": 1}], idempotency_key="k"), given([{"data": 1, "x": 1}]),
        given([]), given("text"), given([{"data": 1}], sync="yes"),
    ],
    "read": [
        given(), given(from_seq=2, limit=2, account=True), given(match="t1"), given(match="t*"), given(node=["n0"]),
        given(from_ts=0, limit=1), given(from_ts=1, from_seq=1), given(epoch=9), given(wait_ms=1, from_seq=10**6),
        given(limit=-1), given(account=1), given(wait_ms="1"), given(node=7),
    ],
    "pages": [given(), given(match=["tag", "Glob", "t*"], node=["n1"]), given(wait_ms=-1)],
    "records": [given(from_seq=1), given(follow="yes"), given(match="t*")],
    "follow": [given(from_seq=10**6, match="t*")],
    "delete": [given(), given(match="t1"), given(before_seq=2), given(match="*"), given(before_seq="x")],
    "configure": [
        given(ttl_ms=10**9), given(replace=True, cap_records=3), given(replace=1), given(zebra=1), given(topic=1),
    ],
    "state": [given(), given(touch=False), given(touch="no")],
    "consumers": [given()],
    "consumer": [given("c"), given("$c"), given(7), given("c" * 256)],
}  # fmt: skip
JOBS = [{"data": i, "tag": "t", "key": "k", "meta": {"m": "v"}, "priority": i} for i in range(4)]
OF_QUEUE: dict[str, list[Given]] = {
    "put": [given(1, priority=5, delay_ms=9), given(1, create=True)],
    "put_many": [given(JOBS), given([{"data": 1, "delay_ms": -1}])],
    "claim": [
        given(), given(2, lease_ms=10**12), given(0), given(9), given(9), given(wait_ms=1), given(-1), given("1"),
        given(lease_ms=True), given(wait_ms=1.5), given(max_bytes=-1), given(max_bytes=10**9),
    ],
    "get": [
        given(timeout=0), given(timeout=0.001, ack="on_get"), given(ack="x"), given(timeout="1"), given(timeout=-1),
    ],
    "get_many": [given(2), given(9, ack="on_get"), given(9, timeout=0), given(None)],
    "ack": [
        given([1]), given([1, 2, 2, 10**30]), given([]), given(range(1001)), given("12"), given(3), given([1, -2]),
        given([3], lease_ids=["lease_1"]), given([3], lease_ids=[]), given([3], lease_ids=[""]),
        given([4], lease_ids="x"),
    ],
    "nack": [
        given([4], reason="no"), given([3], delay_ms=10**9), given([2], reason="r" * 1025), given([2], delay_ms="1"),
        given([2], reason=7), given([1.0]),
    ],
    "extend": [given([1, 9], 5000), given([2], 1), given([2], -1), given([2], None), given(["1"], 5000)],
    "peek": [
        given(), given("ready", limit=1), given("in_flight"), given("delayed"), given("gone"), given(limit=-1),
        given(limit=10**9), given(seqs=[4, 1, 1, 99]), given(seqs=[]), given(seqs=range(1001)), given(seqs="1"),
    ],
    "retry_info": [given(1), given(99), given("1"), given(-1)],
    "pause": [given(), given()],
    "resume": [given(), given()],
    "purge": [given(), given()],
    "redrive": [
        given(), given([9], source="letters"), given(9, source="letters"),  # nothing moves here: that takes its time
        given([], source="letters"), given(source="nowhere"), given(source="$x"), given(source="queue-redrive"),
        given("3", source="letters"), given(source="letters", limit=-1), given(range(1001), source="letters"),
    ],
}  # fmt: skip
OF_CONSUMER: dict[str, list[Given]] = {
    "seek": [
        given(), given(seq=3), given(), given(seq=1), given(tail=True), given(ts=0), given(ts=10**15), given(seq=0),
        given(seq=6), given(seq=-1), given(seq="1"), given(ts=1.5), given(tail=1), given(seq=1, tail=True),
        given(seq=1, ts=1), given(seq=2, epoch=1), given(seq=1, epoch=2), given(epoch=-1),
    ],
    "position": [given()],
    "read": [
        given(), given(limit=2), given(limit=2, auto_commit=True), given(limit=2, auto_commit=True, account=True),
        given(match="t1"), given(node=["n0"], max_bytes=1), given(wait_ms=1, auto_commit=True),
        given(wait_ms=1, auto_commit=True), given(auto_commit=1), given(limit=-1), given(match="a*b*"),
    ],
    "records": [given(), given(match="t0"), given(node="n1"), given(follow="yes")],
    "commit": [
        given(2), given(1), given(2), given(5, epoch=1), given(5, epoch=2), given(6), given(-1), given("1"),
        given(None), given(4, epoch="x"),
    ],
    "delete": [given(), given()],
}  # fmt: skip
OF_STORE: dict[str, list[Given]] = {
    "topic": [given("x"), given("$x"), given(7)],
    "queue": [given("x", node="w"), given("$x"), given("x", node=""), given("x", node=7), given("x", node="n" * 129)],
    "create": [
        given("made", cap_records=3), given("made", cap_records=4), given("made", exist_ok=True, cap_records=4),
        given("a/b"), given("made", exist_ok=1), given("made", type="queue"), given("other", store=1),
    ],
    "config": [given("made"), given("absent"), given("a/b")],
    "list": [given(), given("ma"), given("zz"), given(7)],
    "checkpoint": [given()],
    "why": [
        given("topic-delete", 1), given("topic-delete", 3), given("queue-nack", 3), given("t", 1), given("t", 99),
        given("absent", 1), given("a/b", 1), given("t", 0), given("t", -1), given("t", "1"), given("t", 10**30),
    ],
    "why_range": [
        given("topic-delete"), given("topic-delete", 2, to_seq=3), given("topic-delete", 99), given("t", 0, 0),
        given("topic-read", 0, node="n0", match="t1"), given("topic-read", match=["tag", "Glob", "t*"]),
        given("absent"), given("a/b"), given("t", -1), given("t", "1"), given("t", 0, -1), given("t", to_seq=1.5),
        given("t", match="x*"), given("t", match=["tag", "Ne", "x"]), given("t", match=7), given("t", node="n" * 129),
        given("t", node=7),
    ],
    "put_schedule": [
        given("s", "t", {"a": [1, 2.5, None]}, cron="0  3 29 2 *", timezone="Europe/Berlin", catch_up="all",
              jitter_ms=10**12, tag="x", node="n", key="k", meta={"m": "v"}, ttl_ms=5),
        given("s", "t", {"a": [1, 2.5, None]}, every_ms=10**15), given("s", "made", 1, every_ms=10**15),
        given("s2", "t", 1, cron=" @yearly ", timezone="Asia/Tokyo"),
        given("u", "missing", 1, every_ms=1), given("a/b", "t", 1, every_ms=1), given("u", "a/b", 1, every_ms=1),
        given("u", "t", 1), given("u", "t", 1, cron="0 3 29 2 *", every_ms=1000), given("u", "t", 1, cron="0 3 * *"),
        given("u", "t", 1, cron="0 25 * * *"), given("u", "t", 1, cron="0 0 30 2 *"), given("u", "t", 1, cron=7),
        given("u", "t", 1, cron="@reboot"),
        given("u", "t", 1, cron="0 3 29 2 *", timezone="Mars/Base"), given("u", "t", 1, every_ms=1, timezone="x"),
        given("u", "t", 1, every_ms=True), given("u", "t", 1, every_ms=1, jitter_ms=-1),
        given("u", "t", 1, every_ms=1, catch_up="some"), given("u", "t", {1, 2}, every_ms=1),
        given("u", "t", 1, every_ms=1, tag=""), given("u", "t", 1, every_ms=1, priority=3),
        given("u", "t", 1, every_ms=1, meta={"$a": "b"}),
    ],
    "schedule": [
        given("s"), given("s", coming=2), given("absent"), given("a/b"), given("s", coming=-1), given("s", coming="1"),
    ],
    "schedules": [given(), given("s"), given("z"), given(7)],
    "delete_schedule": [given("s"), given("s"), given("a/b")],
    "put_router": [
        given("a->b", "t", "copies"), given("a->b", "t", "copies"),
        given("a->b", "t", "copies", filter=["tag", "Glob", "x*"], preserve_node=False, guarantee="exactly_once"),
        given("r", "new", "newer", filter="x", preserve_tag=False, allow_cycle=True),
        given("s", "t", "missing", create_dest=False), given("s", "made", "copies"), given("a->b", "t", "other"),
        given("s", "copies", "t"), given("a/b", "t", "copies"), given("s", "a/b", "t"), given("s", "t", "a/b"),
        given("s", "t", "t"), given("s", "t", "x", filter="x*"), given("s", "t", "x", filter=["tag", "Ne", "x"]),
        given("s", "t", "x", guarantee="some"), given("s", "t", "x", guarantee=7), given("s", "t", "x", preserve_tag=1),
        given("s", "t", 7), given(7, "t", "x"),
    ],
    "router": [given("a->b"), given("absent"), given("a/b")],
    "routers": [
        given(), given("a"), given("z"), given(7), given(source="t"), given(dest="newer"),
        given(source="t", dest="newer"), given(source="a/b"), given(dest=7),
    ],
    "delete_router": [given("a->b"), given("a->b"), given("a/b")],
    "delete": [given("made"), given("made"), given("a/b"), given("t", if_empty=True), given("t", if_empty=1)],
    "sync": [],  # by itself, below: no server has a route for it
    "producer": [],  # tests/calls/test_producer.py
    "worker": [],  # tests/calls/test_workers.py
    "supply": [],
    "watch": [],  # tests/calls/watching/test_watch.py
    "feed": [],
    "backup": [],
    "close": [],
    "do": [],
}  # fmt: skip
OF_A_WRITE = {"idempotency_key", "require_same_body", "expected_head", "create", "sync"}
OF_JOURNALS = {"append", "call", "read"}
OF_HANDLES = {"name", "store", "aclose", "node", "job_type", "dead_letters", "topic_name"}  # no calls
OF_CLIENTS = {
    "health",
    "ready",
    "pressure",
    "keys",
    "with_key",
}  # tests/client/test_asking.py


class Handing(TopicStore):
    """A store that hands each call on to another: all that a store must be is `do`."""

    def __init__(self, store: TopicStore) -> None:
        self.where, self.limits, self.store = store.where, store.limits, store
        self.seen: set[type] = set()

    def do(self, steps: Steps[Any]) -> Any:
        return drive(iter(steps), self._answer)

    def _answer(self, call: Call[Any]) -> Any:
        self.seen.add(type(call))
        return self.store.do(call)

    def feed(self, asked: Any) -> Any:
        return self.store.feed(asked)

    def backup(self, dest: Any, **options: Any) -> Any:
        return self.store.backup(dest, **options)

    def close(self) -> None:
        pass


class AsyncHanding(AsyncTopicStore):
    """The same of an async store."""

    def __init__(self, store: AsyncTopicStore) -> None:
        self.where, self.limits, self.store = store.where, store.limits, store
        self.seen: set[type] = set()

    async def do(self, steps: Steps[Any]) -> Any:
        return await drive_async(iter(steps), self._answer)

    async def _answer(self, call: Call[Any]) -> Any:
        self.seen.add(type(call))
        return await self.store.do(call)

    def feed(self, asked: Any) -> Any:
        return self.store.feed(asked)

    async def backup(self, dest: Any, **options: Any) -> Any:
        return await self.store.backup(dest, **options)

    async def aclose(self) -> None:
        pass


def outcome(call: Callable[[], Any]) -> Any:
    try:
        found = call()
        if isinstance(found, Iterator):
            found = list(found)
        found = plain(found)
    except topics.Rejected as refused:
        return refused.code.value, refused.message, {**refused.detail}
    return shown(found)


def plain(found: Any) -> Any:
    if isinstance(found, list):
        return [plain(one) for one in found]
    return found.there if isinstance(found, Awaited) else found


def script(store: Any) -> dict[str, Any]:
    """What comes of each row, each of a topic's on a topic of its own."""
    found: dict[str, Any] = {}
    for name, rows in OF_TOPIC.items():
        topic = store.create(f"topic-{name}", durability="fsync")
        topic.put_many(RECORDS)
        for i, (arguments, options) in enumerate(rows):
            found[f"topic.{name}[{i}]"] = outcome(lambda: getattr(topic, name)(*arguments, **options))  # noqa: B023 -- called at once
    found |= of_consumers(store)
    missing = store.topic("missing")
    for name in ("read", "pages", "records", "follow", "delete", "state", "configure", "consumers"):
        found[f"missing.{name}"] = outcome(getattr(missing, name))
    found |= of_queues(store)
    store.topic("t").put(1)
    for name, rows in OF_STORE.items():
        for i, (arguments, options) in enumerate(rows):
            found[f"store.{name}[{i}]"] = outcome(lambda: getattr(store, name)(*arguments, **options))  # noqa: B023 -- called at once
    return found


def of_consumers(store: Any) -> dict[str, Any]:
    """What comes of the calls on consumers: of a topic that is there, of one that is not, and before one is made."""
    found: dict[str, Any] = {}
    for name, rows in OF_CONSUMER.items():
        topic = store.create(f"consumers-{name}", durability="fsync")
        topic.put_many(RECORDS)
        consumer = topic.consumer("c")
        for place_, asked in (("missing", store.topic("missing").consumer("c")), ("new", consumer)):
            arguments, options = rows[0]
            found[f"{place_}.consumer.{name}"] = outcome(partial(getattr(asked, name), *arguments, **options))
        consumer.seek()
        for i, (arguments, options) in enumerate(rows):
            found[f"consumer.{name}[{i}]"] = outcome(partial(getattr(consumer, name), *arguments, **options))
    topic.consumer("b").seek(seq=3)
    topic.consumer("a").seek(seq=2)
    return found | {"consumers": outcome(topic.consumers)}


def of_queues(store: Any) -> dict[str, Any]:
    """What comes of the calls on jobs: each on a queue with jobs, most of them leased; on a log; on nothing."""
    found: dict[str, Any] = {}
    store.create("letters").put_many(RECORDS)
    for name, rows in OF_QUEUE.items():
        queue = store.queue(store.create(f"queue-{name}", type="queue").name, node="w")
        queue.put_many(JOBS)
        if name in ("ack", "nack", "extend", "peek", "purge"):
            queue.claim(3)
        for i, (arguments, options) in enumerate(rows):
            found[f"queue.{name}[{i}]"] = outcome(partial(getattr(queue, name), *arguments, **options))
        for place_ in ("missing", "topic-put"):
            arguments, options = rows[0]
            if place_ == "missing" or not name.startswith("put"):
                found[f"{place_}.{name}"] = outcome(
                    partial(getattr(store.queue(place_), name), *arguments, **options)
                )
    queue = store.queue("queue-pause", node="w")
    queue.resume()
    first, second, third = queue.claim(3)
    of_jobs = [
        partial(first.nack, reason="no"), first.ack, partial(second.extend, 5000), second.ack,
        partial(second.extend, 1), partial(third.nack, delay_ms="x"), queue.peek,
        partial(queue.ack, [first, second, third]),
        lambda: queue.state().queue, lambda: [plain(queue) is plain(first).queue, third],
    ]  # fmt: skip
    return found | {f"job[{i}]": outcome(call) for i, call in enumerate(of_jobs)}


@contextmanager
def place(kind: str, home: Path) -> Iterator[Any]:
    match kind:
        case "a directory of the command line":
            given: AbstractContextManager[TopicStore] = DirectoryTarget(
                load({"data": str(home / "cli")}, {})
            ).writing()
        case "store":
            given = topics.open(home / "store")
        case "store on trio":
            with awaited(topics.open_trio(home / "store"), "trio") as loop:
                yield Awaited(loop.portal, AsyncHanding(loop.there))
            return
        case _:
            with PrivateServer(home / "served", home) as server, at_a_server(kind, server.url) as handing:
                yield handing
            return
    with given as store:
        yield Handing(store)


@contextmanager
def at_a_server(kind: str, url: str) -> Iterator[Any]:
    match kind:
        case "client":
            given: AbstractContextManager[TopicStore] = topics.Client(url)
        case "a server of the command line":
            given = ServerTarget(load({}, {}), url).writing()
        case _:
            client = topics.AsyncClient(url)
            with awaited(client, kind.removeprefix("async client on ")) as loop:
                yield Awaited(loop.portal, AsyncHanding(client))
            return
    with given as store:
        yield Handing(store)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with topics.open(tmp_path_factory.mktemp("expected")) as store:
        return script(store)


@pytest.mark.rule("O5.3")
@pytest.mark.parametrize(
    "kind",
    [
        "store", "store on trio", "client", "async client on trio", "async client on asyncio",
        "a directory of the command line", "a server of the command line",
    ],
)  # fmt: skip
def test_a_script_of_every_call_gives_the_same(kind: str, tmp_path: Path, expected: dict[str, Any]) -> None:
    with place(kind, tmp_path) as handing:
        found = script(handing)
        written = handing.backup(tmp_path / "backup")

    assert {name: found[name] for name in found if found[name] != expected[name]} == {}
    assert found.keys() == expected.keys()
    of_clients = {topics_of(f"{name}Call") for name in ("Sync", "Health", "Ready", "Pressure", "Keys")}
    assert handing.seen == concrete(Call) - of_clients
    made = {f"topic-{name}" for name in OF_TOPIC} | {f"queue-{name}" for name in OF_QUEUE}
    made |= {f"consumers-{name}" for name in OF_CONSUMER}
    assert {entry.name for entry in written.manifest.topics} == {
        "t",
        "letters",
        "copies",
        "new",
        "newer",
        *made,
    }


@pytest.mark.rule("O5.2")
def test_the_script_has_a_row_for_every_call() -> None:
    assert public(topics.Topic) == OF_TOPIC.keys() | {"name", "store"}
    assert public(topics.Consumer) == OF_CONSUMER.keys() | {"name", "store", "topic_name"}
    assert public(topics.Queue) == public(topics.Topic) | OF_QUEUE.keys() | {
        "node",
        "job_type",
        "dead_letters",
    }
    assert public(TopicStore) == OF_STORE.keys()
    assert public(topics.Client) == OF_STORE.keys() | OF_CLIENTS
    assert public(topics.Store) >= OF_STORE.keys()
    for name in OF_STORE:
        assert (
            parameters(topics.Store, name) == parameters(topics.Client, name) == parameters(TopicStore, name)
        )
        assert inspect.getdoc(getattr(topics.Store, name)) == inspect.getdoc(getattr(topics.Client, name))
        assert inspect.getdoc(getattr(TopicStore, name))


@pytest.mark.rule("O5.3")
def test_what_is_awaited_has_the_names_parameters_and_docstrings_of_what_blocks() -> None:
    assert public(topics.AsyncTopic) == public(topics.Topic)
    assert public(topics.AsyncQueue) == public(topics.Queue)
    assert public(topics.AsyncJob) == public(topics.Job)
    assert public(topics.AsyncConsumer) == public(topics.Consumer)
    assert public(AsyncTopicStore) == OF_STORE.keys() - {"close"} | {"aclose"}
    assert public(topics.AsyncClient) == public(AsyncTopicStore) | OF_CLIENTS - {"with_key"}
    assert public(topics.AsyncStore) == public(topics.Store) - OF_JOURNALS - {"close"} | {"aclose"}
    pairs = (
        (topics.AsyncTopic, topics.Topic), (topics.AsyncQueue, topics.Queue),
        (topics.AsyncConsumer, topics.Consumer),
        (topics.AsyncClient, topics.Client), (topics.AsyncStore, topics.Store),
    )  # fmt: skip
    for to_await, blocking in pairs:
        for name in public(to_await) - public(Findings) - OF_HANDLES:
            assert parameters(to_await, name) == parameters(blocking, name)
            if name not in ("backup", "clock_moved", "compact", "do"):
                assert inspect.getdoc(getattr(to_await, name)) == inspect.getdoc(getattr(blocking, name))
            if name not in ("producer", "worker"):
                assert returned(to_await, name).replace("Async", "") == returned(blocking, name)


def test_a_producer_takes_a_record_as_put_does() -> None:
    of_put = [one for one in parameters(topics.Topic, "put") if one.split(":")[0] not in OF_A_WRITE]
    assert parameters(topics.Producer, "put") == parameters(topics.AsyncProducer, "put") == of_put
    assert public(topics.AsyncProducer) == public(topics.Producer) - {"close"} | {"running"}
    assert public(topics.AsyncReceipt) == public(topics.Receipt)


def test_a_worker_in_tasks_has_the_names_of_one_in_threads() -> None:
    assert public(topics.AsyncWorker) == public(topics.Worker) | {"running"}
    assert parameters(topics.AsyncWorker, "stop") == parameters(topics.Worker, "stop")


def test_a_watch_in_tasks_has_the_names_of_one_in_threads() -> None:
    assert public(topics.AsyncWatch) == public(topics.Watch) - {"close"} | {"aclose"}


def test_a_method_is_described_as_its_call(tmp_path: Path) -> None:
    put = topics.Topic.put
    assert (put.__name__, put.__qualname__) == ("put", "Topic.put")
    assert list(inspect.signature(put).parameters)[:2] == ["self", "data"]
    assert inspect.signature(put).return_annotation is topics.Appended
    shown_as = "(self, *, touch: bool = True) -> topics.engine.replies.TopicState"
    assert str(inspect.signature(topics.Topic.state)) == shown_as
    assert (put.__doc__ or "").startswith("Append one record")
    with topics.open(tmp_path) as store, pytest.raises(TypeError, match="tagg"):
        store.topic("t").put(1, tagg="x")  # type: ignore[call-arg]  # on purpose


def test_sync_is_for_a_store_in_this_process(tmp_path: Path) -> None:
    with topics.open(tmp_path) as store:
        assert store.sync() is None
    with topics.Client("http://127.0.0.1:9") as client, pytest.raises(topics.Rejected) as refused:
        client.sync()
    assert refused.value.code == "not_implemented"


def concrete(kind: type) -> set[type]:
    below = set(kind.__subclasses__())
    return {one for child in below for one in concrete(child) or {child}} - {OfTopic, OfConsumer}


def topics_of(name: str) -> type:
    from topics.calls import topics as calls

    return getattr(calls, name)


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def returned(kind: type, name: str) -> str:
    return str(inspect.signature(getattr(kind, name)).return_annotation)


def parameters(kind: type, name: str) -> list[str]:
    return [str(one) for one in inspect.signature(getattr(kind, name)).parameters.values()]
