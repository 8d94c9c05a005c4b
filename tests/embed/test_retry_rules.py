"""Semantics 7 and 9: a retry appends nothing, and what a record carries beside its payload."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import topics
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


@pytest.mark.rule("S7.1", "S7.8", "S9.9")
def test_keys_and_ids_have_their_limits(store: topics.Store) -> None:
    topic = store.create("t")
    assert topic.put(1, idempotency_key="é" * 256).first_seq == 1
    assert topic.put(1, dedup_id="x" * 256).first_seq == 2
    for bad in (
        {"idempotency_key": "x" * 257}, {"idempotency_key": ""}, {"dedup_id": "é" * 129},
        {"dedup_id": "dl:1"}, {"dedup_id": "rd:1"}, {"dedup_id": "sched:1"},
    ):  # fmt: skip
        with pytest.raises(topics.Rejected, match=r"idempotency_key|dedup_id") as refused:
            topic.put(1, **bad)
        assert refused.value.code == "invalid_request"


@pytest.mark.rule("S7.3", "S7.7")
def test_the_same_key_answers_with_the_first_result(store: topics.Store) -> None:
    topic = store.topic("t")
    first = topic.put_many([{"data": 1}, {"data": 2}], idempotency_key="k")
    topic.put("between")

    again = topic.put_many([{"data": 1}, {"data": 2}], idempotency_key="k")
    other = topic.put_many([{"data": 1}, {"data": 3}], idempotency_key="k", require_same_body=False)

    assert (first.created, first.deduped, first.same_body) == (True, False, None)
    for reply, same in ((again, True), (other, False)):
        assert (list(reply.seqs), reply.head_seq, reply.count) == ([1, 2], 3, 2)
        assert (reply.created, reply.deduped, reply.same_body) == (False, True, same)
    assert topic.state().head_seq == 3


@pytest.mark.rule("S7.7")
def test_a_key_that_was_used_for_other_records_is_refused_unless_told_otherwise(store: topics.Store) -> None:
    topic = store.topic("t")
    topic.put("before")
    first = topic.put_many([{"data": 1}, {"data": 2}], idempotency_key="k")

    with pytest.raises(
        topics.Rejected, match=r"key 'k' was used for other records \(seqs 2 to 3\)"
    ) as refused:
        topic.put(9, idempotency_key="k")
    assert (refused.value.code, refused.value.detail) == (
        "idempotency_key_reused",
        {"topic": "t", "idempotency_key": "k", "first_seq": 2, "last_seq": 3},
    )
    assert topic.put(9, idempotency_key="k", require_same_body=False).first_seq == first.first_seq
    assert topic.state().head_seq == 3
    assert topic.put_many([{"data": 1}, {"data": 2}], idempotency_key="k").same_body is True
    with pytest.raises(topics.Rejected, match="require_same_body: must be true or false"):
        topic.put(9, idempotency_key="k", require_same_body=None)  # type: ignore[arg-type]  # refused at run time


def test_a_key_whose_write_appended_nothing_is_refused_for_other_records_too(store: topics.Store) -> None:
    topic = store.topic("t")
    topic.put(1, dedup_id="d")
    assert topic.put(1, dedup_id="d", idempotency_key="k").first_seq is None

    with pytest.raises(topics.Rejected, match=r"used for other records \(all of them there before\)"):
        topic.put(2, idempotency_key="k")


@pytest.mark.rule("S3.19")
def test_a_key_is_new_again_after_its_window(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", idempotency_window_ms=1000)
    topic.put(1, idempotency_key="k")
    clock.advance(1000)
    assert topic.put(1, idempotency_key="k").deduped
    clock.advance(1)
    assert topic.put(1, idempotency_key="k").first_seq == 2


@pytest.mark.rule("S3.20")
def test_an_id_is_new_again_after_its_window(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", dedup_window_ms=1000)
    topic.put(1, dedup_id="d")
    clock.advance(1000)
    assert topic.put(1, dedup_id="d").deduped
    clock.advance(1)
    assert topic.put(1, dedup_id="d").first_seq == 2


@pytest.mark.rule("S3.21")
def test_the_dedup_table_is_bounded_and_the_first_to_expire_goes_first(
    store: topics.Store, clock: ManualClock
) -> None:
    topic = store.create("t", dedup_max_entries=2)
    for name in ("a", "b", "c"):
        topic.put(name, dedup_id=name)
        clock.advance(10)

    assert [topic.put(name, dedup_id=name).deduped for name in ("c", "b")] == [True, True]
    assert not topic.put("a", dedup_id="a").deduped


@pytest.mark.rule("S7.10", "S7.13")
def test_duplicates_report_the_first_seq_also_inside_one_write(store: topics.Store) -> None:
    topic = store.topic("t")
    topic.put("a", dedup_id="a")

    mixed = topic.put_many(
        [{"data": "x"}] + [{"data": d, "dedup_id": d} for d in ("a", "b", "b")] + [{"data": "y"}]
    )
    nothing = topic.put_many([{"data": 0, "dedup_id": "a"}, {"data": 0, "dedup_id": "b"}])

    assert (list(mixed.seqs), mixed.first_seq, mixed.last_seq) == ([2, 1, 3, 3, 4], 2, 4)
    assert (mixed.count, mixed.duplicates, mixed.deduped) == (5, 2, False)
    assert (list(nothing.seqs), nothing.first_seq, nothing.last_seq) == ([1, 3], None, None)
    assert (nothing.count, nothing.duplicates, nothing.deduped) == (2, 2, True)
    assert topic.state().head_seq == 4


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    "checkpointed",
    [
        pytest.param(False, marks=pytest.mark.rule("S7.14"), id="by_the_log"),
        pytest.param(True, marks=pytest.mark.rule("S7.15"), id="by_the_snapshot"),
    ],
)
def test_keys_and_ids_live_through_a_restart(
    store: topics.Store,
    disk: SimDisk,
    open_sim: Callable[..., topics.Store],
    *,
    checkpointed: bool,
    restarted: bool,
) -> None:
    topic = store.create("t", durable=True)
    topic.put_many([{"data": 1, "dedup_id": "d"}, {"data": 2}], idempotency_key="k")
    topic.put_many([{"data": 1, "dedup_id": "d"}, {"data": 3, "dedup_id": "e"}], idempotency_key="k2")
    topic.put_many([{"data": 1, "dedup_id": "d"}], idempotency_key="k3")
    if checkpointed:
        store.checkpoint()  # no frame before it is applied again
    if restarted:
        disk.power_loss()
    else:
        disk.process_death()

    with open_sim(machine_restarted=restarted) as again:
        topic = again.topic("t")
        replies = [
            topic.put_many([{"data": 1, "dedup_id": "d"}, {"data": 2}], idempotency_key="k"),
            topic.put_many(
                [{"data": 1, "dedup_id": "d"}, {"data": 3, "dedup_id": "e"}], idempotency_key="k2"
            ),
            topic.put_many([{"data": 1, "dedup_id": "d"}], idempotency_key="k3"),
        ]
        assert [list(reply.seqs) for reply in replies] == [[1, 2], [1, 3], [1]]
        assert [reply.same_body for reply in replies] == [True, True, True]
        assert list(topic.put(0, dedup_id="e").seqs) == [3]
        assert topic.state().head_seq == 3


@pytest.mark.rule("S7.16")
def test_a_retry_on_a_full_topic_succeeds_and_its_key_is_looked_at_first(store: topics.Store) -> None:
    topic = store.create("t", cap_records=2, discard="reject")
    topic.put_many([{"data": 1}, {"data": 2, "dedup_id": "d"}], idempotency_key="k")

    by_key = topic.put_many(
        [{"data": 1}, {"data": 2, "dedup_id": "d"}], idempotency_key="k", expected_head=77
    )
    by_id = topic.put_many([{"data": 2, "dedup_id": "d"}])

    assert (by_key.deduped, by_id.deduped) == (True, True)
    with pytest.raises(topics.Rejected) as mismatch:
        topic.put_many([{"data": 2, "dedup_id": "d"}], expected_head=77)
    assert mismatch.value.code == "seq_mismatch"
    with pytest.raises(topics.Rejected) as full:
        topic.put(3)
    assert full.value.code == "topic_full"


@pytest.mark.rule("S7.17", "S7.18")
def test_expected_head_is_the_last_assigned_seq_and_zero_permits_creation(store: topics.Store) -> None:
    topic = store.topic("t")
    assert topic.put(1, expected_head=0).created
    with pytest.raises(topics.Rejected, match="1, not 0") as refused:
        topic.put(2, expected_head=0)
    assert (refused.value.code, refused.value.detail["head_seq"]) == ("seq_mismatch", 1)
    assert topic.put(2, expected_head=1).first_seq == 2


@pytest.mark.rule("S9.12", "S9.13", "S9.14", "S9.15")
@pytest.mark.parametrize(("kind", "magic"), [("gzip", b"\x1f\x8b"), ("zstd", b"\x28\xb5\x2f\xfd")])
def test_only_data_is_compressed_and_caps_count_what_is_stored(
    store: topics.Store, disk: SimDisk, kind: str, magic: bytes
) -> None:
    topic = store.create("t", compression=kind, cap_bytes=4000)
    meta = {"note": "m" * 1500}
    topic.put("x" * 3000, meta=meta)
    topic.put("y" * 3000, meta=meta)

    stored = disk.content("wal/gen-0/shard-00/wal-00000000000000000001.log")
    assert magic in stored
    assert b"m" * 1500 in stored
    assert b"x" * 100 not in stored
    assert [(record.data, record.meta) for record in topic.read().records] == [
        ("x" * 3000, meta),
        ("y" * 3000, meta),
    ]
    assert 3000 < topic.state().bytes < 4000
