"""Readers of an embedded store that wait: what wakes them, what ends them, and that they cost nothing meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import topics
from tests.embed.conftest import OpenSim
from tests.support.embedded import wait_until
from topics.embed.readers import Readers, wait_for_news
from topics.log.reads.diff import DiffQuery
from topics.log.reads.waiting import News, news_since
from topics.testing.clock import ManualClock

PATIENCE_S = 20
LONG_MS = 30_000

pytestmark = pytest.mark.rule("O5.8")


class Waiting:
    """A call in a thread that waits for news of a topic."""

    def __init__(self, store: topics.Store, call: Callable[[], Any]) -> None:
        self.result: Any = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert wait_until(lambda: bool(store._local.readers.waiting) or not self._thread.is_alive())
        assert self._thread.is_alive(), self.result

    def _run(self) -> None:
        try:
            self.result = self._call()
        except topics.TopicsError as error:
            self.result = error

    def end(self) -> Any:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.result


def test_only_what_a_reader_at_the_head_can_see_wakes_him() -> None:
    readers = Readers()
    event, of_durable = threading.Event(), threading.Event()
    readers.add(DiffQuery(topic="t"), event)
    readers.add(DiffQuery(topic="t", durable_only=True), of_durable)
    readers.tell({"t": News.FLOORS, "u": News.RECORDS | News.DURABLE})
    assert not of_durable.is_set()
    readers.tell({"t": News.DURABLE})
    assert of_durable.is_set()
    assert not event.is_set()
    readers.tell({"t": News.RECORDS})
    assert event.is_set()


@pytest.mark.parametrize("durability", ["fsync", "disk", "memory", "ephemeral"])
def test_a_write_wakes_who_waits_for_it(store: topics.Store, durability: str) -> None:
    topic = store.create("t", durability=durability)
    topic.put("before", tag="a")
    waiting = Waiting(store, lambda: topic.read(from_seq=1, account=True, wait_ms=LONG_MS))
    store.topic("u").put("elsewhere")
    topic.put("now")
    page = waiting.end()

    assert [record.data for record in page.records] == ["now"]
    assert (page.from_seq, page.next_from_seq, page.account.delivered) == (1, 2, 1)
    assert store._local.readers.waiting == {}


def test_what_is_filtered_out_is_passed_and_waited_behind(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put("x", tag="b")
    waiting = Waiting(store, lambda: topic.read(match="a", account=True, wait_ms=LONG_MS))
    topic.put("y", tag="b")
    topic.put("z", tag="a")
    page = waiting.end()

    assert [record.data for record in page.records] == ["z"]
    assert (page.from_seq, page.next_from_seq) == (0, 3)
    assert (page.account.filtered, page.account.delivered, page.account.lost) == (2, 1, 0)


def test_what_was_lost_meanwhile_is_told(store: topics.Store) -> None:
    topic = store.create("t", cap_records=1)
    waiting = Waiting(store, lambda: topic.read(account=True, wait_ms=LONG_MS))
    topic.put_many([{"data": n} for n in range(3)])
    page = waiting.end()

    assert (page.tombstone.gap_from, page.tombstone.gap_to, page.tombstone.reason.value) == (1, 2, "cap")
    assert [record.data for record in page.records] == [2]
    assert (page.account.lost, page.account.delivered) == (2, 1)


def test_the_topics_end_ends_the_wait(store: topics.Store) -> None:
    topic = store.create("t")
    waiting = Waiting(store, lambda: topic.read(wait_ms=LONG_MS))
    store.delete("t")

    assert waiting.end().code == "topic_not_found"


def test_a_topic_created_anew_says_so(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put("old")
    page = topic.read()
    store.delete("t")
    store.create("t")
    again = topic.read(from_seq=page.next_from_seq, epoch=page.epoch, wait_ms=LONG_MS)

    assert again.tombstone.reason.value == "recreated"


def test_the_stores_end_ends_the_wait(open_sim: OpenSim) -> None:
    store = open_sim()
    topic = store.create("t")
    waiting = Waiting(store, lambda: topic.read(wait_ms=LONG_MS))
    store.close()

    assert waiting.end().code == "shutting_down"


def test_a_store_that_breaks_off_ends_the_wait(open_sim: OpenSim) -> None:
    store = open_sim()
    topic = store.create("t")
    waiting = Waiting(store, lambda: topic.read(wait_ms=LONG_MS))
    with store._local.lock:
        store._local.break_off(KeyboardInterrupt())

    assert waiting.end().code == "shutting_down"


def test_a_wait_ends_at_its_deadline_and_takes_no_time_of_the_processor(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put("x", tag="b")
    taken: list[float] = []

    def wait() -> topics.Page:
        before = time.thread_time()
        page = topic.read(match="a", account=True, wait_ms=400)
        taken.append(time.thread_time() - before)
        return page

    began = time.monotonic()
    page = Waiting(store, wait).end()

    assert time.monotonic() - began >= 0.4
    assert (page.records, page.from_seq, page.next_from_seq, page.caught_up) == ([], 0, 1, True)
    assert (page.account.filtered, page.account.delivered) == (1, 0)
    assert taken[0] < 0.1


def test_what_comes_between_the_read_and_the_wait_is_news(store: topics.Store) -> None:
    topic = store.create("t")
    plan = store._opened.engine.plan_diff(DiffQuery(topic="t"))
    topic.put("in between")

    assert wait_for_news(store._local, [news_since(plan)], time.monotonic() + PATIENCE_S)


def test_many_wait_for_one(store: topics.Store) -> None:
    topic = store.create("t")
    readers = [Waiting(store, lambda: topic.read(wait_ms=LONG_MS)) for _ in range(5)]
    assert wait_until(lambda: len(store._local.readers.waiting["t"]) == 5)
    topic.put("for all")

    assert [[record.data for record in reader.end().records] for reader in readers] == [["for all"]] * 5


@pytest.mark.parametrize("how", ["follow", "records"])
def test_a_follower_gets_each_record_as_it_is_written(store: topics.Store, how: str) -> None:
    topic = store.create("t", cap_records=2)
    topic.put_many([{"data": n} for n in range(3)])
    items: Iterator[topics.Record | topics.Gap] = (
        topic.follow() if how == "follow" else topic.records(follow=True)
    )
    lost, *first = [next(items) for _ in range(3)]
    assert isinstance(lost, topics.Gap)
    assert [record.data for record in first if isinstance(record, topics.Record)] == [1, 2]

    for n in range(3, 6):
        waiting = Waiting(store, lambda: next(items))
        topic.put(n)
        assert waiting.end().data == n


def test_a_wait_from_a_time_begins_at_its_first_record(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t")
    topic.put("before")
    since = clock.now_ms() + 5
    waiting = Waiting(store, lambda: topic.read(from_ts=since, wait_ms=LONG_MS))
    topic.put("too early")
    clock.advance(5)
    topic.put("in time")
    page = waiting.end()

    assert [record.data for record in page.records] == ["in time"]
    assert page.from_seq == 2


def test_a_wait_from_within_a_call_is_refused(store: topics.Store) -> None:
    """A signal handler or finalizer: nobody could publish what it waits for."""
    topic = store.create("t")
    with store._local.lock, pytest.raises(topics.Rejected, match="from inside another call"):
        topic.read(wait_ms=LONG_MS)


def test_wait_ms_is_checked_and_clamped(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put("x")
    assert len(topic.read(wait_ms=10**12).records) == 1
    refused: list[Any] = [-1, 1.5, True, "1"]
    for wrong in refused:
        with pytest.raises(topics.Rejected, match="wait_ms"):
            topic.read(wait_ms=wrong)
