"""`create` changes nothing that is there, `configure` changes what it is given, `replace` all of it (semantics 3)."""

from __future__ import annotations

import pytest

import topics

pytestmark = pytest.mark.rule("S3.1", "S3.32", "S3.33")


def test_configure_keeps_what_it_is_not_given(store: topics.Store) -> None:
    topic = store.create("t", cap_records=9)
    topic.configure(durability="fsync")
    config = topic.configure(ttl_ms=60_000)

    assert (config.durability.value, config.cap_records, config.ttl_ms) == ("fsync", 9, 60_000)
    assert config == topic.state().config


def test_configure_with_replace_sets_the_rest_back(store: topics.Store) -> None:
    topic = store.create("t", cap_records=9, durability="fsync")

    config = topic.configure(ttl_ms=60_000, replace=True)

    assert (config.durability.value, config.cap_records, config.ttl_ms) == ("disk", 0, 60_000)


def test_configure_of_an_absent_topic_makes_none(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected) as refused:
        store.topic("t").configure(ttl_ms=5)

    assert refused.value.code == "topic_not_found"
    assert store.config("t") is None


def test_create_of_another_module_evicts_nothing(store: topics.Store) -> None:
    orders = store.create("orders", durability="fsync")
    orders.put_many([{"data": n} for n in range(100)])

    with pytest.raises(topics.Rejected, match="cap_records: 0 there, 3 asked") as refused:
        store.create("orders", cap_records=3, ttl_ms=0, durability="fsync")

    assert refused.value.code == "topic_exists_incompatible"
    assert refused.value.detail["differences"] == {"cap_records": {"there": 0, "asked": 3}}
    assert orders.state().count == 100


def test_create_of_what_is_there_returns_it(store: topics.Store) -> None:
    store.create("t", cap_records=9, durable=True).put("x")

    for asked in ({}, {"cap_records": 9}, {"durable": True}, {"durability": "fsync", "cap_records": 9}):
        assert store.create("t", **asked).state().count == 1
    assert store.config("t") == store.create("t", cap_records=1, exist_ok=True).state().config


def test_a_config_that_is_wrong_is_refused_though_the_topic_is_there(store: topics.Store) -> None:
    store.create("t")
    for wrong in ({"cap_records": "many"}, {"zebra": 1}):
        with pytest.raises(topics.Rejected) as refused:
            store.create("t", exist_ok=True, **wrong)
        assert refused.value.code == "invalid_request"


def test_a_log_is_no_queue_whatever_is_ok(store: topics.Store) -> None:
    store.topic("t").put("x")
    with pytest.raises(topics.Rejected) as refused:
        store.create("t", type="queue", exist_ok=True)

    assert refused.value.code in ("topic_exists_incompatible", "invalid_request")
