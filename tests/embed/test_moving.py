"""Moves in an embedded store: a thread carries orders out, whatever else goes on."""

from __future__ import annotations

import pytest

import topics
from topics.engine.moving.moves import begin_move


def begin(store, source, seqs, dest):
    local = store._local
    with local.lock:
        state = local.engine.state
        begun = begin_move(state, state.lanes_by_name[source], seqs, dest, b"why", local.engine.now_ms())
        local.tell()
        local.appoint()
    return list(begun)


def arrived(store, dest, count):
    topic, seen = store.topic(dest), 0
    while seen < count:
        page = topic.read(from_seq=seen, wait_ms=10_000)
        assert page.records
        seen = page.next_from_seq
    return [record.data for record in topic.read().records]


def left(store, source):
    """Reads wait until the last order has ended."""
    while store._opened.engine.state.moves:
        store.sync()
    return [record.data for record in store.topic(source).read().records]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_thread_moves_what_is_to_be_moved(tmp_path, durability):
    with topics.open(tmp_path / "data") as store:
        source = store.create("t", durability=durability)
        store.create("dlq", durability=durability)
        source.put_many([{"data": i} for i in range(50)])
        assert begin(store, "t", range(1, 41), "dlq") == list(range(1, 41))
        assert arrived(store, "dlq", 40) == list(range(40))
        assert left(store, "t") == list(range(40, 50))


def test_what_is_left_at_the_end_goes_on_when_the_store_is_opened_again(tmp_path):
    with topics.open(tmp_path / "data") as store:
        store.create("t").put_many([{"data": i} for i in range(5)])
        begin(store, "t", [2, 4], "dlq")
    with topics.open(tmp_path / "data") as store:
        store.create("dlq", exist_ok=True)
        assert arrived(store, "dlq", 2) == [1, 3]
        assert left(store, "t") == [0, 2, 4]
