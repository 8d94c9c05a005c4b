"""`watch` of a store in this process, in threads: what comes, what is lost, how it ends and where it goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import topics
from tests.support.embedded import wait_until

PATIENCE_S = 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[topics.Store]:
    with topics.open(tmp_path) as opened:
        yield opened


class Watching:
    """A thread that watches, until it is closed or as many values have come."""

    def __init__(self, watch: topics.Watch, count: int = 10**9) -> None:
        self.values: list[Any] = []
        self.failure: Exception | None = None
        self.watch = watch
        self._count = count
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while len(self.values) < self._count:
                self.values.append(next(self.watch))
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 -- looked at by the test
            self.failure = error

    def end(self) -> list[Any]:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.values


def shown(values: list[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        match value:
            case topics.Record(topic=topic, data=data):
                found.append((topic, data))
            case topics.Tombstone():
                found.append((value.topic, value.gap_from, value.gap_to, value.reason.value))
            case topics.CaughtUp():
                found.append((value.topic, "caught up", value.head_seq))
            case topics.TopicDeleted():
                found.append((value.topic, "deleted"))
    return found


def is_waiting(store: topics.Store, *names: str) -> bool:
    return all(name in store._local.readers.waiting for name in names)


def test_several_topics_backlog_then_live(store: topics.Store) -> None:
    for name in ("a", "b"):
        store.create(name, durability="fsync")
    store.topic("a").put_many([{"data": n} for n in range(600)])
    with store.watch(["a", "b"]) as watch:
        watching = Watching(watch, 604)
        assert wait_until(lambda: is_waiting(store, "a", "b"))
        store.topic("b").put("new")
        store.topic("a").put("newer")
        values = shown(watching.end())

    assert [data for topic, data, *_ in values if topic == "a"] == [*range(600), "caught up", "newer"]
    assert [data for topic, data, *_ in values if topic == "b"] == ["caught up", "new"]
    assert store._local.readers.waiting == {}
    with pytest.raises(StopIteration):
        next(watch)


def test_where_it_begins_is_where_the_block_begins(store: topics.Store) -> None:
    store.create("a")
    store.topic("a").put("old")
    with store.watch("a", tail=True) as watch, store.watch({"a": {"tail": True}}) as other:
        assert watch.positions == {"a": {"from_seq": 1, "epoch": 1}}
        store.topic("a").put("new")
        assert shown([next(watch), next(watch)]) == [("a", "new"), ("a", "caught up", 2)]
        assert next(other).data == "new"
    assert next(store.watch("a", from_seq=1)).data == "new"


def test_filters_and_what_is_left_out(store: topics.Store) -> None:
    topic = store.create("a")
    topic.put_many([
        {"data": 1, "tag": "x", "node": "me"}, {"data": 2, "tag": "y"},
        {"data": 3, "tag": "x", "meta": {"m": "1"}, "key": "k"},
    ])  # fmt: skip
    topic.put(b"raw", tag="x", key="k")
    with store.watch("a", match="x", node="me", include_data=False, include_meta=False) as watch:
        first, second = next(watch), next(watch)
        assert isinstance(first, topics.WatchedRecord)
        assert isinstance(second, topics.WatchedRecord)
    assert [(one.seq, one.data, one.meta, one.key, one.content_type) for one in (first, second)] == [
        (3, None, {}, "k", None), (4, None, {}, "k", None),
    ]  # fmt: skip


def test_losses_are_told_and_positions_are_of_one_epoch(store: topics.Store) -> None:
    topic = store.create("a", cap_records=2)
    topic.put_many([{"data": n} for n in range(5)])
    with store.watch("a") as watch:
        values = [next(watch) for _ in range(4)]
        assert shown(values) == [("a", 1, 3, "cap"), ("a", 3), ("a", 4), ("a", "caught up", 5)]
        positions = watch.positions
    store.delete("a")
    store.topic("a").put_many([{"data": n} for n in range(9)])
    with store.watch(positions) as watch:
        assert shown([next(watch), next(watch)]) == [("a", 1, 9, "recreated"), ("a", 0)]
        assert watch.positions == {"a": {"from_seq": 1, "epoch": 2}}


def test_it_ends_when_all_its_topics_are_deleted(store: topics.Store) -> None:
    for name in ("a", "b"):
        store.create(name)
    watching = Watching(store.watch(["a", "b"]))
    assert wait_until(lambda: is_waiting(store, "a", "b"))
    store.delete("a")
    assert wait_until(lambda: len(watching.values) == 3 and is_waiting(store, "b"))
    store.topic("b").put(1)
    store.delete("b")

    values = shown(watching.end())
    assert values[:3] == [("a", "caught up", 0), ("b", "caught up", 0), ("a", "deleted")]
    assert values[-1] == ("b", "deleted")


def test_another_thread_ends_it(store: topics.Store) -> None:
    store.create("a")
    watching = Watching(store.watch("a"))
    assert wait_until(lambda: is_waiting(store, "a"))
    with pytest.raises(RuntimeError, match="another thread waits"):
        next(watching.watch)
    watching.watch.close()
    watching.watch.close()
    watching.end()
    assert watching.failure is None
    assert store._local.readers.waiting == {}


def test_a_store_that_is_closed_ends_it_with_an_error(store: topics.Store) -> None:
    store.create("a")
    watching = Watching(store.watch("a"))
    assert wait_until(lambda: is_waiting(store, "a"))
    store.close()
    watching.end()
    assert isinstance(watching.failure, topics.Rejected)
    assert watching.failure.code == "shutting_down"


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        ((["a", "missing"],), {}, "topic 'missing' does not exist"),
        (([],), {}, "topics: must name one at least"),
        ((7,), {}, "topics: must be a name, or several, not a number"),
        ((["a/b"],), {}, "is no topic name"),
        (([f"t{n}" for n in range(257)],), {}, "topics: more than the limit of 256 topics"),
        (
            ({"a": {"from": 1}},),
            {},
            "topics['a']: must be a mapping of consumer, epoch, from_seq, tail, not {'from': 1}",
        ),
        (({"a": 7},), {}, "topics['a']: must be a mapping of consumer, epoch, from_seq, tail, not 7"),
        (({"a": {"from_seq": 1, "tail": True}},), {}, "topics['a']: give from_seq or tail, not both"),
        (({"a": {"epoch": -1}},), {}, "epoch: must not be negative, not -1"),
        (("a",), {"from_seq": -1}, "from_seq: must not be negative, not -1"),
        (("a",), {"from_seq": 1, "tail": True}, "give from_seq or tail, not both"),
        (("a",), {"tail": 1}, "tail: must be true or false, not a number"),
        (("a",), {"match": "x*"}, '["tag", "Glob", "x*"] for every tag'),
        (("a",), {"match": ["tag", "In", "x"]}, "match"),
        (("a",), {"node": 7}, "node: must be a name or a list of names, not a number"),
        (("a",), {"consistency": "weak"}, 'consistency: must be "eventual" or "strong", not \'weak\''),
        (("a",), {"include_data": 0}, "include_data: must be true or false, not a number"),
    ],
)
def test_what_is_refused(
    store: topics.Store, arguments: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    store.create("a")
    with pytest.raises(topics.Rejected) as refused, store.watch(*arguments, **options):
        raise AssertionError
    assert said in refused.value.message


def test_strong_gives_what_is_durable(store: topics.Store) -> None:
    topic = store.create("a", durability="disk")
    store.create("e", durability="ephemeral").put_many([{"data": n} for n in range(300)])
    with store.watch("a", consistency="strong") as watch, store.watch("e", consistency="strong") as other:
        topic.put_many([{"data": n} for n in range(300)])
        for n in range(300):
            value = next(watch)
            assert isinstance(value, topics.WatchedRecord)
            assert (value.data, topic.state().durable_seq) == (n, 300)
        assert shown([next(watch)]) == [("a", "caught up", 300)]
        watching = Watching(watch, 1)
        assert wait_until(lambda: "a" in store._local.readers.strict)
        topic.put("later")
        store.sync()
        assert shown(watching.end()) == [("a", "later")]
        assert [one for _, one, *_ in shown([next(other) for _ in range(301)])] == [*range(300), "caught up"]
