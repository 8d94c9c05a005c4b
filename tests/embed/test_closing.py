"""Closing a store while its housekeeping thread is at work."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import attrs
import pytest

import topics
from tests.support.embedded import PATIENCE_S, wait_until
from topics.host.system.clock import SystemClock
from topics.host.system.disk import OsDisk
from topics.host.system.entropy import SystemEntropy
from topics.host.system.systemcalls import SystemCalls
from topics.store.opening import open_store


def test_closing_during_a_closing_mark_comes_to_its_end(tmp_path: Path) -> None:
    """The thread that writes the mark tells whoever waits for it when it is done."""
    is_marking, go_on, hold = threading.Event(), threading.Event(), threading.Event()

    def sync(fd: int) -> None:
        if hold.is_set() and threading.current_thread().name == "topics-housekeeping":
            is_marking.set()
            go_on.wait(PATIENCE_S)
        os.fsync(fd)

    disk = OsDisk(tmp_path, calls=SystemCalls(sync_data=sync))
    opened = open_store(
        disk, SystemClock(), SystemEntropy(), where="here", machine_restarted=False, confirm=lambda _: None
    )
    store = topics.Store(opened, disk)
    store.create("t", durability="fsync").put(1)
    hold.set()
    assert is_marking.wait(PATIENCE_S)  # 50 ms after the last sync
    closing = threading.Thread(target=store.close, daemon=True)
    closing.start()
    is_waiting = wait_until(lambda: store._local.closing)
    go_on.set()
    closing.join(PATIENCE_S)

    assert is_waiting
    assert not closing.is_alive()
    disk.close()


@pytest.mark.parametrize("kind", ["read", "records"])
def test_a_read_under_way_when_the_store_closes_is_told_so(tmp_path, kind):
    """Its file is closed between plan and fetch: that is no damage."""
    store = topics.open(tmp_path, options=topics.StoreOptions(tail_cache_bytes=0))
    store.create("t").put_many([{"data": n} for n in range(10)])
    reader = store._opened.reader

    class Closing:
        def read(self, extent):
            store.close()
            return reader.read(extent)

    store._opened = attrs.evolve(store._opened, reader=Closing())
    topic = store.topic("t")
    with pytest.raises(topics.Rejected) as refused:
        topic.read() if kind == "read" else list(topic.records())

    assert refused.value.code == "shutting_down"
