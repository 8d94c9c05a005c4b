"""What somebody who tried to break the store found: each ends in one clear line, and the store goes on."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import topics
from topics.testing.clock import ManualClock


def test_a_signal_handler_inside_a_call_is_refused_and_the_store_goes_on(tmp_path: Path) -> None:
    """A handler that puts and closes, hundreds of times in the middle of puts, and minds the refusal."""
    with topics.open(tmp_path) as store:
        topic = store.create("t", durable=True)
        refused: list[str] = []

        def handler(_number: int, _frame: object) -> None:
            for call in (lambda: topic.put("from the handler"), store.close):
                if store._local.is_inside:
                    with pytest.raises(topics.Rejected, match="inside another call"):
                        call()
                    refused.append("once")

        before = signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        try:
            put = 0
            while len(refused) < 50:
                topic.put(put)
                put += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

        assert topic.state().head_seq == put
        assert topic.put("last").first_seq == put + 1


def test_a_signal_handler_inside_a_read_is_refused_too(store: topics.Store) -> None:
    """A read holds the lock only while it plans; a handler may come just then."""
    topic = store.create("t")
    with store._local.lock:
        with pytest.raises(topics.Rejected, match="inside another call"):
            topic.put(1)
        with pytest.raises(topics.Rejected, match="inside another call"):
            store.close()

    assert topic.put(2).first_seq == 1


def test_an_interrupted_close_frees_the_directory(tmp_path: Path) -> None:
    store = topics.open(tmp_path)
    store.topic("t").put(1, sync=True)

    def interrupted() -> None:
        raise KeyboardInterrupt

    store._local.finish = interrupted  # type: ignore[method-assign]  # as if Ctrl-C came there
    with pytest.raises(KeyboardInterrupt):
        store.close()
    store.close()

    with topics.open(tmp_path) as again:
        assert again.topic("t").state().head_seq == 1


@pytest.mark.rule("T1.2")
def test_removing_lock_lets_nobody_in(tmp_path: Path) -> None:
    with topics.open(tmp_path):
        (tmp_path / "LOCK").unlink()
        script = "import sys, topics; topics.open(sys.argv[1])"
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert "CannotOpen" in done.stderr
    topics.open(tmp_path).close()


def test_an_endless_list_of_records_is_refused(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match="10000 records") as refused:
        store.topic("t").put_many({"data": i} for i in itertools.count())
    assert refused.value.code == "batch_too_large"
    with pytest.raises(topics.Rejected, match="64 nodes"):
        store.create("t").read(node=(str(i) for i in itertools.count()))


def test_a_list_that_changes_while_it_is_put(store: topics.Store) -> None:
    topic, stop = store.create("t"), threading.Event()
    records: list[object] = [{"data": 0}] * 50

    def change() -> None:
        while not stop.is_set():
            records.append({"data": 1})
            records.pop()

    changing = threading.Thread(target=change)
    changing.start()
    try:
        counts = {topic.put_many(records).count for _ in range(200)}
    finally:
        stop.set()
        changing.join()
    assert counts <= {50, 51}


@pytest.mark.parametrize("text", [b"1e999", b"[-1e999]", b"1" * 5000, b'{"a":' + b"9" * 6000 + b"}"])
def test_numbers_that_python_has_no_room_for_do_not_stop_a_reader(store: topics.Store, text: bytes) -> None:
    topic = store.topic("t")
    topic.put_many([topics.Raw(text), topics.Raw(b"2")])

    first, second = topic.read().records

    assert first.raw == text
    assert first.data is not None
    assert second.data == 2


@pytest.mark.parametrize("shards", [0, -1, 65, "2", 2.0, True])
def test_bad_options_are_refused_before_anything_is_touched(tmp_path: Path, shards: object) -> None:
    with pytest.raises(topics.Rejected, match="shards"):
        topics.open(tmp_path, options=topics.StoreOptions(shards=shards))  # type: ignore[arg-type]  # on purpose
    with pytest.raises(topics.Rejected, match="sync_interval_ms"):
        topics.StoreOptions(sync_interval_ms="x")  # type: ignore[arg-type]  # on purpose
    with pytest.raises(topics.Rejected, match="tag_bytes"):
        topics.Limits(tag_bytes=100_000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["node", "prefix"])
def test_other_wrong_types(store: topics.Store, call: str) -> None:
    topic = store.create("t")
    with pytest.raises(topics.Rejected, match=call):
        if call == "node":
            topic.read(node=5)  # type: ignore[arg-type]  # on purpose
        else:
            store.list(5)  # type: ignore[arg-type]  # on purpose


def test_a_generator_that_reads_the_store_while_it_is_put(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t")
    topic.put(0)

    def records() -> Iterator[dict[str, object]]:
        for record in topic.read().records:
            clock.advance(1)
            yield {"data": [record.data, os.getpid()]}

    assert topic.put_many(records()).count == 1
