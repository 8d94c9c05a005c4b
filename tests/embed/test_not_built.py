"""Replicated topics are not built yet: refused by name where they are asked for, read where they stand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import topics
from tests.embed.conftest import OpenSim
from tests.embed.golden_store import options
from tests.embed.inert_store import GOLDEN, inert_disk
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk

NOT_BUILT = [
    ({"replicated": True}, r"config\.replicated: replicated topics are not built yet"),
    ({"type": "queue", "dead_letter": "t"}, r"config\.dead_letter: must name another topic"),
    ({"dead_letter": ""}, r"config\.dead_letter: '' is no topic name"),
]


@pytest.mark.parametrize(("config", "message"), NOT_BUILT)
def test_what_is_not_built_is_refused_by_name(
    store: topics.Store, config: dict[str, object], message: str
) -> None:
    with pytest.raises(topics.Rejected, match=message) as refused:
        store.create("t", **config)
    assert refused.value.code == "invalid_request"
    assert list(store.list()) == []

    topic = store.create("t")
    with pytest.raises(topics.Rejected, match=message):
        topic.configure(**config)
    assert topic.state().config == topics.TopicConfig()


class TestWhatStands:
    """A directory of the build that took both and did nothing of either."""

    @pytest.fixture
    def disk(self) -> SimDisk:
        return inert_disk()

    def test_it_is_opened_read_and_written(self, store: topics.Store) -> None:
        assert [record.data for record in store.topic("jobs").read().records] == [1, 2]
        assert store.topic("jobs").put(3, priority=1).first_seq == 3
        assert store.topic("copied").put("more").first_seq == 2

    @pytest.mark.rule("S3.5")
    def test_the_type_is_kept_and_never_changes(self, open_sim: OpenSim) -> None:
        with open_sim() as store:
            topic = store.topic("jobs")
            config = topic.configure(ttl_ms=10)
            assert (config.type.value, config.ttl_ms) == ("queue", 10)
            with pytest.raises(topics.Rejected, match="never changes") as refused:
                topic.configure(type="log")
            assert refused.value.code == "topic_exists_incompatible"
            assert refused.value.detail["existing_type"] == "queue"
        with open_sim() as store:
            assert store.topic("jobs").state().config == config

    @pytest.mark.rule("S9.4", "S9.6")
    def test_only_a_queue_takes_priority_and_delay(self, store: topics.Store) -> None:
        log, queue = store.topic("plain"), store.topic("jobs")
        for field in ("priority", "delay_ms"):
            with pytest.raises(topics.Rejected, match=field) as refused:
                log.put(1, **{field: 1})
            assert refused.value.code == "invalid_request"
            queue.put(1, **{field: 1})
        assert queue.state().head_seq == 4

    def test_a_real_directory_is_opened_too(self, tmp_path: Path) -> None:
        copy = shutil.copytree(GOLDEN, tmp_path / "store")
        with topics.open(copy, clock=ManualClock(), options=options()) as store:
            assert [state.type for state in store.list()] == ["log", "queue", "log"]
            assert not store.damages


def test_a_delete_without_a_selector_is_refused_before_the_topic_is_looked_for(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match="give before_seq, match or both") as refused:
        store.topic("absent").delete()
    assert refused.value.code == "invalid_request"
