"""Semantics 3, field by field, through the store."""

from __future__ import annotations

from typing import Any

import pytest

import topics
from topics.kernel.config import parse_config
from topics.testing.clock import ManualClock

CENTURY_MS = 100 * 366 * 24 * 3600 * 1000
CLASSES = ("ephemeral", "memory", "disk", "fsync")

# field, default, (given, echoed) pairs within and beyond the range, values that are refused
FIELDS: list[Any] = [
    pytest.param("type", "log", [("log", "log")], ["stream", 1, None], marks=pytest.mark.rule("S3.5")),
    pytest.param(
        "ttl_ms", 0, [(5, 5), (2**70, CENTURY_MS)], [-1, 1.5, True, "1", None],
        marks=pytest.mark.rule("S3.6"),
    ),
    pytest.param(
        "cap_records", 0, [(7, 7), (2**70, 2**63 - 1)], [-1, 0.0, False, "7"],
        marks=pytest.mark.rule("S3.3", "S3.4"),
    ),
    pytest.param("cap_bytes", 0, [(7, 7)], [-1, 0.0, False, "7"], marks=pytest.mark.rule("S3.4")),
    pytest.param("discard", "old", [("reject", "reject")], ["new", 1], marks=pytest.mark.rule("S3.10")),
    pytest.param(
        "durability", "disk", [(c, c) for c in CLASSES], ["sync", 1],
        marks=pytest.mark.rule("S3.12"),
    ),
    pytest.param(
        "durable", False, [(True, True), (False, False)], [1, "true", None],
        marks=pytest.mark.rule("S3.15"),
    ),
    pytest.param(
        "priority", None, [(None, None), (-2000, -1000), (3000, 1000)], [1.5, "1"],
        marks=pytest.mark.rule("S3.16"),
    ),
    pytest.param("auto_priority", True, [(False, False)], [0, "no"], marks=pytest.mark.rule("S3.17")),
    pytest.param("auto_create", True, [(False, False)], [0, "no"], marks=pytest.mark.rule("S3.18")),
    pytest.param(
        "idempotency_window_ms", 120_000, [(0, 0), (5, 5)], [-1, 1.0],
        marks=pytest.mark.rule("S3.19"),
    ),
    pytest.param("dedup_window_ms", 120_000, [(0, 0), (5, 5)], [-1, 1.0], marks=pytest.mark.rule("S3.20")),
    pytest.param("dedup_max_entries", 100_000, [(5, 5)], [-1, True], marks=pytest.mark.rule("S3.21")),
    pytest.param("dedupe_node", True, [(False, False)], [0], marks=pytest.mark.rule("S3.22")),
    pytest.param(
        "compression", "none", [("gzip", "gzip"), ("zstd", "zstd")], ["lz4", 1],
        marks=pytest.mark.rule("S3.23"),
    ),
    pytest.param("compression_min_bytes", 1024, [(0, 0), (5, 5)], [-1, 1.0], marks=pytest.mark.rule("S3.23")),
    pytest.param(
        "max_record_bytes", 1 << 20, [(0, 1), (9, 9), (1 << 30, 1 << 20)], [-1],
        marks=pytest.mark.rule("S3.24"),
    ),
    pytest.param("replicated", False, [(False, False)], [True, 0], marks=pytest.mark.rule("S3.25")),
    pytest.param(
        "lease_ms", 30_000, [(1, 100), (10**12, 86_400_000)], [-1, "1"],
        marks=pytest.mark.rule("S3.26"),
    ),
    pytest.param("claim_jitter_ms", 0, [(9999, 5000)], [-1], marks=pytest.mark.rule("S3.26")),
    pytest.param("max_deliveries", 0, [(3, 3)], [-1], marks=pytest.mark.rule("S3.26")),
    pytest.param(
        "dead_letter", None, [("dlq", "dlq"), (None, None)], [1, "$x", ""],
        marks=pytest.mark.rule("S3.26"),
    ),
    pytest.param("leases_durable", False, [(True, True)], [1], marks=pytest.mark.rule("S3.26")),
    pytest.param("starvation_ms", 30_000, [(1, 1)], [-1], marks=pytest.mark.rule("S3.26")),
    pytest.param("starvation_share", 10, [(0, 1), (1, 1), (101, 100)], [-1, 10.0], marks=pytest.mark.rule("S3.26")),
    pytest.param("max_in_flight", 0, [(1, 1)], [-1], marks=pytest.mark.rule("S3.26")),
    pytest.param("max_in_flight_per_key", 0, [(1, 1)], [-1, True], marks=pytest.mark.rule("S3.26")),
    pytest.param(
        "rate_limit", None,
        [({"count": 5, "per_ms": 1000}, {"count": 5, "per_ms": 1000}), (None, None)],
        [5, {}, {"count": 5}, {"count": -1, "per_ms": 9}, {"count": 1.5, "per_ms": 9}, {"count": 5, "per_ms": True}],
        marks=pytest.mark.rule("S3.26"),
    ),
    pytest.param("require_lease_id", False, [(True, True)], [1], marks=pytest.mark.rule("S3.26")),
    pytest.param(
        "retry_backoff", None,
        [
            ({"base_ms": 1, "factor": 2, "max_ms": 3}, {"base_ms": 1, "factor": 2.0, "max_ms": 3}),
            ({"base_ms": 1, "factor": 0, "max_ms": 3}, {"base_ms": 1, "factor": 1.0, "max_ms": 3}),
        ],
        [1, {}, {"base_ms": -1, "factor": 2, "max_ms": 3}],
        marks=pytest.mark.rule("S3.26"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("field", "default", "accepted", "refused"), FIELDS)
def test_every_field_has_its_default_its_range_and_its_type(
    store: topics.Store,
    field: str,
    default: object,
    accepted: list[tuple[object, object]],
    refused: list[object],
) -> None:
    assert store.create("plain").state().config.echo()[field] == default
    for i, (given, echoed) in enumerate(accepted):
        assert store.create(f"t{i}", **{field: given}).state().config.echo()[field] == echoed
    for given in refused:
        with pytest.raises(topics.Rejected, match=rf"config\.{field}") as error:
            store.create("other", **{field: given})
        assert error.value.code == "invalid_request"


@pytest.mark.rule("S3.2")
def test_an_unknown_field_is_refused_by_name(store: topics.Store) -> None:
    with pytest.raises(topics.Rejected, match=r"config\.ttl: unknown field"):
        store.create("t", ttl=1)
    assert list(store.list()) == []


@pytest.mark.rule("S3.1")
def test_configuring_replaces_the_whole_config(store: topics.Store) -> None:
    topic = store.create("t", cap_records=5, ttl_ms=7)

    topic.configure(ttl_ms=8, replace=True)

    assert (topic.state().config.cap_records, topic.state().config.ttl_ms) == (0, 8)


@pytest.mark.rule("S3.12", "S3.15")
def test_an_explicit_class_wins_over_the_alias_and_the_alias_is_echoed() -> None:
    assert parse_config({"durability": "memory", "durable": True}).echo()["durability"] == "memory"
    assert parse_config({"durability": "memory", "durable": True}).echo()["durable"] is False
    assert parse_config({"durable": True}).echo()["durability"] == "fsync"
    assert parse_config({"durability": "fsync"}).echo()["durable"] is True


@pytest.mark.rule("S3.20")
def test_the_dedup_window_defaults_to_the_idempotency_window() -> None:
    assert parse_config({"idempotency_window_ms": 7}).dedup_window_ms == 7
    assert parse_config({"idempotency_window_ms": 7, "dedup_window_ms": 9}).dedup_window_ms == 9


@pytest.mark.rule("S3.14")
def test_a_topic_crosses_ephemeral_only_while_empty(store: topics.Store) -> None:
    topic = store.create("t", durability="disk")
    topic.put(1)
    with pytest.raises(topics.Rejected, match="ephemeral") as refused:
        topic.configure(durability="ephemeral")
    assert refused.value.code == "topic_not_empty"

    topic.delete(before_seq=2)
    assert topic.configure(durability="ephemeral").durability.value == "ephemeral"
    topic.put(2)
    with pytest.raises(topics.Rejected, match="ephemeral"):
        topic.configure(durability="fsync")
    topic.delete(before_seq=3)
    topic.configure(durability="fsync")
    assert topic.put(3).first_seq == 3


@pytest.mark.rule("S3.24")
def test_a_topic_may_lower_its_record_limit(store: topics.Store) -> None:
    topic = store.create("t", max_record_bytes=10)
    assert topic.put("12345678").first_seq == 1
    with pytest.raises(topics.Rejected, match="max_record_bytes 10") as refused:
        topic.put("123456789")
    assert refused.value.code == "record_too_large"


@pytest.mark.rule("S3.24")
@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_the_record_limit_counts_bytes_before_compression(store: topics.Store, kind: str) -> None:
    topic = store.create("t", max_record_bytes=5000, compression=kind)
    with pytest.raises(topics.Rejected, match="max_record_bytes 5000"):
        topic.put("x" * 5000)
    assert topic.state().head_seq == 0


@pytest.mark.rule("S3.27", "S3.29")
def test_names_are_checked_everywhere_and_compared_byte_by_byte(store: topics.Store) -> None:
    for name in ("a", "A.b_c:d-e", "0" + "x" * 254):
        assert store.create(name).name == name
    for name in ("$sys", ".a", "-a", "a/b", "a" * 256, "a\u0301"):
        for call in (store.create, store.topic, store.delete):
            with pytest.raises(topics.Rejected, match="topic"):
                call(name)
    store.create("case").put(1)
    assert store.create("Case").state().head_seq == 0


@pytest.mark.rule("S3.30", "S1.9")
def test_deleting_a_topic_forgets_everything_of_it(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put(1, idempotency_key="k", tag="x")
    topic.put_many([{"data": 2, "dedup_id": "d"}])
    first_epoch = topic.state().epoch
    store.delete("t")

    again = store.create("t")

    assert again.state().epoch == first_epoch + 1
    assert (again.state().head_seq, again.read().records) == (0, [])
    assert not again.put(1, idempotency_key="k").deduped
    assert again.put_many([{"data": 2, "dedup_id": "d"}]).duplicates == 0


@pytest.mark.rule("S3.22")
def test_a_reader_gets_its_own_records_only_if_the_filter_is_off(store: topics.Store) -> None:
    on, off = store.create("on"), store.create("off", dedupe_node=False)
    for topic in (on, off):
        topic.put(1, node="me")
        topic.put(2, node="you")

    assert [record.data for record in on.read(node="me").records] == [2]
    assert [record.data for record in off.read(node="me").records] == [1, 2]


@pytest.mark.rule("S3.18")
def test_auto_create_is_echoed_and_does_not_decide(store: topics.Store) -> None:
    store.create("t", auto_create=False)
    assert store.topic("new").put(1).created
    with pytest.raises(topics.Rejected, match="does not exist"):
        store.topic("other").put(1, create=False)


@pytest.mark.rule("S3.6")
def test_a_record_lives_through_its_last_millisecond(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", ttl_ms=100)
    topic.put(1)
    clock.advance(100)
    assert len(topic.read().records) == 1
    clock.advance(1)
    assert topic.read().records == []


@pytest.mark.rule("S3.10", "S3.11")
def test_a_full_topic_that_rejects_says_so_before_any_seq(store: topics.Store) -> None:
    topic = store.create("t", cap_records=3, discard="reject")
    topic.put_many([{"data": i} for i in range(2)])
    with pytest.raises(topics.Rejected, match="full") as full:
        topic.put_many([{"data": i} for i in range(2)])
    assert full.value.code == "topic_full"
    assert dict(full.value.detail) == {
        "topic": "t", "cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1,
    }  # fmt: skip
    with pytest.raises(topics.Rejected, match="whole cap") as too_large:
        topic.put_many([{"data": i} for i in range(4)])
    assert too_large.value.code == "record_too_large"
    topic.delete(before_seq=2)
    assert topic.put_many([{"data": i} for i in range(2)]).first_seq == 3


@pytest.mark.rule("S3.14")
def test_a_topic_whose_records_have_all_expired_is_empty(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", ttl_ms=100)
    topic.put(1)
    clock.advance(101)

    assert topic.configure(durability="ephemeral").durability.value == "ephemeral"
    store.create("u", ttl_ms=100).put(1)
    clock.advance(101)
    assert store.delete("u", if_empty=True)
