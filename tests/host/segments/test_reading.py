"""Records of sealed segments are read from the page cache: without a wait, and nothing is kept of them."""

from __future__ import annotations

import os

import pytest

import topics
from topics.engine.checkpoint import SegmentRules
from topics.log.reads.frames import extents_of
from topics.log.regions import SegmentId
from topics.store.opened import StoreOptions

RULES = StoreOptions(segments=SegmentRules(records_max=100), min_free_bytes=0, tail_cache_bytes=4096)


@pytest.fixture
def tmp_path(on_disk):
    """A file system in memory may have no page cache to ask."""
    return on_disk


@pytest.mark.rule("T5.21")
@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system cannot read without waiting")
def test_what_sealed_segments_hold_is_read_without_waiting_while_the_page_cache_has_it(tmp_path):
    with topics.open(tmp_path, options=RULES) as store:
        store.topic("t").put_many([{"data": "x" * 200} for _ in range(1000)])
        store.sync()
        store.checkpoint()
        topic = store._opened.engine.state.catalog.topics[1]
        assert all(segment.sealed for segment in topic.segments)
        extents = list(extents_of(topic, topic.index.start, topic.index.stop))
        reader = store._opened.reader
        read = [reader.read(extent) for extent in extents]
        first = next(iter(tmp_path.glob("topics/*/*.data")))
        with first.open("rb") as file:
            try:
                os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except OSError:
                pytest.skip("this file system cannot read without waiting")

        assert all(isinstance(extent.source, SegmentId) for extent in extents)
        assert len(extents) >= 10
        assert [reader.nowait(extent) for extent in extents] == read
        assert all(writer.tail.size <= RULES.tail_cache_bytes for writer in store._opened.writers)
