"""The embedded store tells its story: create, append, read back with account and tombstones, delete, reopen."""

from __future__ import annotations

import pytest

import topics
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


def values(page: topics.Page) -> list[object]:
    return [record.data for record in page.records]


@pytest.mark.rule("O5.1", "O5.2")
def test_a_record_comes_back_as_it_was_put(store: topics.Store) -> None:
    topic = store.create("quakes", durable=True)

    reply = topic.put({"mag": 4.2}, tag="us", node="n1", key="k", meta={"a": "b"}, dedup_id="d")
    record = topic.read().records[0]

    assert (reply.first_seq, reply.last_seq, list(reply.seqs), reply.head_seq) == (1, 1, [1], 1)
    assert (record.data, record.tag, record.node, record.key) == ({"mag": 4.2}, "us", "n1", "k")
    assert (record.meta, record.content_type, record.seq) == ({"a": "b"}, None, 1)


def test_json_text_is_stored_byte_for_byte(store: topics.Store) -> None:
    text = b'{"b": 1.0,  "a":[1e2, "\\u00e9"]}'

    store.topic("t").put_many([topics.Raw(text)])

    assert store.topic("t").read().records[0].raw == text


@pytest.mark.rule("Q7.1")
def test_bytes_come_back_as_bytes_with_their_content_type(store: topics.Store) -> None:
    topic = store.topic("blobs")

    topic.put(b"\x00\xff", content_type="image/png")
    topic.put_many([b"plain", {"data": b"named", "tag": "x"}])

    found = [(record.data, record.content_type) for record in topic.read().records]
    assert found == [
        (b"\x00\xff", "image/png"),
        (b"plain", "application/octet-stream"),
        (b"named", "application/octet-stream"),
    ]


def test_a_write_is_all_or_nothing(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put(1)

    with pytest.raises(topics.Rejected, match=r"records\[1\]\.tag"):
        topic.put_many([{"data": 2}, {"data": 3, "tag": 7}])

    assert topic.state().head_seq == 1


def test_pages_go_on_to_the_head_and_the_account_adds_up(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put_many(
        [{"data": i, "tag": "even" if i % 2 == 0 else "odd", "node": f"n{i % 3}"} for i in range(100)]
    )
    topic.delete(before_seq=11)

    seen, from_seq = [], 0
    while True:
        page = topic.read(from_seq=from_seq, limit=7, match="even", node=["n0"], account=True)
        assert page.account is not None
        assert page.account.total == page.next_from_seq - page.from_seq
        seen += values(page)
        from_seq = page.next_from_seq
        if page.caught_up:
            break

    assert seen == [i for i in range(10, 100) if i % 2 == 0 and i % 3]


def test_a_page_is_cut_at_its_budget_but_never_empty(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put_many([{"data": "x" * 1000} for _ in range(10)])

    assert len(topic.read(max_bytes=3500).records) == 3
    assert len(topic.read(max_bytes=1).records) == 1


def test_compressed_payloads_stay_within_the_page_budget_as_read(store: topics.Store) -> None:
    topic = store.create("t", compression="gzip")
    topic.put_many([{"data": "x" * 500_000} for _ in range(10)])

    page = topic.read(limit=10, account=True)

    assert len(page.records) == 2
    assert page.next_from_seq == 2
    assert page.account is not None
    assert page.account.total == 2


@pytest.mark.rule("S9.8")
@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_compression_is_transparent_and_counts_what_is_stored(store: topics.Store, kind: str) -> None:
    topic = store.create(kind, compression=kind)
    topic.put({"text": "abc" * 2000})
    topic.put("short")

    assert values(topic.read()) == [{"text": "abc" * 2000}, "short"]
    assert topic.state().bytes < 1000


def test_a_retry_of_a_compressed_write_is_the_same_body_even_if_compression_changed(
    store: topics.Store,
) -> None:
    topic = store.create("t", compression="gzip")
    topic.put("abc" * 2000, idempotency_key="k")
    topic.configure(compression="none")

    again = topic.put("abc" * 2000, idempotency_key="k")
    other = topic.put("abd" * 2000, idempotency_key="k", require_same_body=False)

    assert (again.deduped, again.same_body, again.first_seq) == (True, True, 1)
    assert (other.deduped, other.same_body, other.first_seq) == (True, False, 1)


def test_records_yields_gaps_where_records_were_lost(store: topics.Store) -> None:
    topic = store.create("t", cap_records=3)
    topic.put_many([{"data": i} for i in range(10)])

    gap, *rest = list(topic.records())

    assert isinstance(gap, topics.Gap)
    assert (gap.gap_from, gap.gap_to, gap.reason.value, gap.missed_estimate) == (1, 7, "cap", 7)
    assert [item.data for item in rest if isinstance(item, topics.Record)] == [7, 8, 9]


def test_time_moves_the_floor_before_a_read_reports_it(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t", ttl_ms=1000)
    topic.put("old")
    clock.advance(5000)

    page = topic.read()

    assert page.tombstone is not None
    assert (page.tombstone.reason.value, page.tombstone.gap_to, page.earliest_seq) == ("ttl", 1, 2)
    assert topic.state().evict_floor == 2


def test_reading_by_time(store: topics.Store, clock: ManualClock) -> None:
    topic = store.create("t")
    for i in range(5):
        topic.put(i)
        clock.advance(1000)

    assert values(topic.read(from_ts=1_700_000_002_000)) == [2, 3, 4]
    assert values(topic.read(from_ts=1_700_000_001_001)) == [2, 3, 4]
    assert values(topic.read(from_ts=0)) == [0, 1, 2, 3, 4]
    assert values(topic.read(from_ts=1_800_000_000_000)) == []


def test_configure_with_replace_keeps_the_type(store: topics.Store) -> None:
    topic = store.create("jobs", cap_records=5)

    config = topic.configure(ttl_ms=10, replace=True)

    assert (config.type.value, config.cap_records, config.ttl_ms) == ("log", 0, 10)


def test_deleting_and_creating_again_is_another_epoch(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put(1)
    first = topic.read()

    assert store.delete("t")
    assert not store.delete("t")
    topic.put(2)
    page = topic.read(from_seq=first.next_from_seq, epoch=first.epoch)

    assert page.tombstone is not None
    assert (page.tombstone.reason.value, page.epoch, values(page)) == ("recreated", 2, [2])


def test_listing_is_by_name_and_prefix(store: topics.Store) -> None:
    for name in ("b", "a.1", "a.2"):
        store.create(name)

    assert [state.topic for state in store.list()] == ["a.1", "a.2", "b"]
    assert [state.topic for state in store.list("a.")] == ["a.1", "a.2"]


def test_everything_is_there_after_reopening(store: topics.Store, open_sim: object) -> None:
    topic = store.create("t", durability="disk")
    topic.put_many([{"data": i, "tag": str(i % 3)} for i in range(50)], idempotency_key="k")
    topic.delete(match="1")
    before = topic.state()
    store.close()

    with open_sim() as again:  # type: ignore[operator]  # the fixture's function
        state = again.topic("t").state()
        assert (state.head_seq, state.count, state.bytes) == (before.head_seq, before.count, before.bytes)
        assert again.topic("t").put_many([{"data": 0}], idempotency_key="k", require_same_body=False).deduped


def test_sync_makes_every_class_durable(store: topics.Store, disk: SimDisk) -> None:
    topic = store.create("t", durability="memory")
    topic.put(1)

    store.sync()

    assert topic.state().durable_seq == 1
    assert topic.put(2, sync=True).durable_seq == 2


def test_a_closed_store_refuses_and_says_so(open_sim: object) -> None:
    store = open_sim()  # type: ignore[operator]  # the fixture's function
    store.close()
    store.close()

    with pytest.raises(topics.Rejected, match="closed"):
        store.topic("t").put(1)
