"""Semantics 1, 4, 5 and 6 where a reader sees them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import topics
from topics.codec.log.control import Control, EvictWatermark
from topics.codec.log.scan import scan
from topics.codec.log.walheader import HEADER_SIZE
from topics.host.directory.layout import find_wal_files, wal_path
from topics.kernel.limits import Limits
from topics.log.floors import Gap
from topics.testing.clock import ManualClock
from topics.testing.simdisk import SimDisk


def data(page: topics.Page) -> list[object]:
    return [record.data for record in page.records]


def watermarks(disk: SimDisk) -> list[Control]:
    content = b"".join(disk.content(wal_path(file)) for file in find_wal_files(disk, 0, 0)[:1])
    items = scan(content, HEADER_SIZE, len(content)).items
    return [item for item in items if isinstance(item, Control) and isinstance(item.payload, EvictWatermark)]


@pytest.mark.rule("S1.2", "S1.1")
@pytest.mark.parametrize(
    "value", [None, True, 0, -1.5, 10**30, "", "é\n\x00", [], {}, {"a": [1, {"b": None}]}, b"", b"\x00\xff"]
)
def test_any_value_comes_back_as_it_went_in_every_time(store: topics.Store, value: object) -> None:
    topic = store.topic("t")
    topic.put(value)
    assert data(topic.read()) == [value]
    assert data(topic.read()) == [value]


@pytest.mark.rule("S0.1", "S4.20", "S4.25")
def test_times_are_the_clocks_milliseconds_and_never_step_back(
    store: topics.Store, clock: ManualClock
) -> None:
    topic = store.create("t", ttl_ms=10_000)
    topic.put(1)
    clock.advance(50)
    topic.put(2)
    clock.advance(20_000)
    topic.put(3)
    floor = topic.state().evict_floor
    clock.set(1_600_000_000_000)
    topic.put(4)

    assert floor == 3
    assert topic.state().evict_floor == 3
    assert [r.ts for r in topic.read(from_seq=2).records] == [1_700_000_020_050, 1_700_000_020_050]


@pytest.mark.rule("S4.25")
def test_time_does_not_step_back_over_a_restart(
    store: topics.Store, clock: ManualClock, open_sim: Callable[..., topics.Store]
) -> None:
    store.topic("t").put(1)
    store.close()
    clock.set(1_000)
    with open_sim() as again:
        again.topic("t").put(2)
        assert [r.ts for r in again.topic("t").read().records] == [1_700_000_000_000] * 2


@pytest.mark.rule("S4.4", "S4.15")
def test_a_page_says_where_it_started_and_whether_there_is_more(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put_many([{"data": i, "tag": "x"} for i in range(3)])

    page = topic.read(from_seq=1, limit=1)
    assert (page.from_seq, page.next_from_seq, page.caught_up, page.lag, page.epoch) == (1, 2, False, 1, 1)
    nothing = topic.read(from_seq=1, match="other")
    assert (nothing.records, nothing.next_from_seq, nothing.caught_up) == ([], 3, True)


@pytest.mark.rule("S4.5")
def test_a_read_examines_a_hundred_thousand_seqs_and_says_there_is_more(store: topics.Store) -> None:
    topic = store.create("t", durability="ephemeral")
    for _ in range(11):
        topic.put_many([b""] * 10_000)
    topic.put(1, tag="last")

    page = topic.read(match="last", account=True)
    rest = topic.read(match="last", from_seq=page.next_from_seq)

    assert (page.next_from_seq, page.caught_up, page.records) == (100_000, False, [])
    assert page.account is not None
    assert page.account.filtered == 100_000
    assert [record.seq for record in rest.records] == [110_001]


@pytest.mark.rule("S4.16", "S4.17")
@pytest.mark.parametrize("asked", [{"from_seq": 2, "epoch": 7}, {"from_seq": 4}, {"from_seq": 99}])
def test_a_cursor_of_another_instance_starts_again_and_is_told(
    store: topics.Store, asked: dict[str, int]
) -> None:
    topic = store.create("t", cap_records=2)
    topic.put_many([{"data": i} for i in range(3)])

    page = topic.read(account=True, **asked)

    assert page.tombstone is not None
    assert (page.tombstone.reason.value, page.tombstone.gap_from, page.tombstone.gap_to) == (
        "recreated",
        1,
        3,
    )
    assert (page.from_seq, data(page)) == (0, [1, 2])
    assert page.account is not None
    assert (page.account.lost, page.account.delivered) == (1, 2)


@pytest.mark.rule("S4.12", "S1.7", "S4.23")
def test_what_a_power_cut_took_is_told_as_a_crash_range_and_moves_no_floor(
    store: topics.Store, disk: SimDisk, clock: ManualClock, open_sim: Callable[..., topics.Store]
) -> None:
    topic = store.create("t", durability="disk")
    topic.put("kept", sync=True)
    topic.put_many([{"data": "lost"}] * 10)
    seen = topic.state().head_seq
    disk.power_loss()
    clock.advance(60_000)

    with open_sim(machine_restarted=True) as again:
        topic = again.topic("t")
        topic.put("new")
        first, second = topic.read(account=True), topic.read(from_seq=1, account=True)

        assert data(first)[0] == "kept"
        gap = second.tombstone
        assert gap is not None
        assert (gap.reason.value, gap.gap_from) == ("crash", 2)
        assert gap.gap_to >= seen
        assert data(second) == ["new"]
        assert topic.state().evict_floor == 1
        by_time = topic.read(from_ts=1_700_000_060_000)
        assert by_time.tombstone is not None
        assert by_time.tombstone.gap_from == 2


@pytest.mark.rule("S4.24")
def test_a_time_later_than_every_record_starts_at_the_head(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put(1)
    page = topic.read(from_ts=9_999_999_999_999)
    assert (page.from_seq, page.caught_up) == (1, True)


@pytest.mark.rule("S4.23")
def test_a_time_at_or_below_the_last_lost_record_brings_the_tombstone(
    store: topics.Store, clock: ManualClock
) -> None:
    topic = store.create("t", cap_records=1)
    topic.put("lost")
    clock.advance(1000)
    topic.put("kept")

    assert topic.read(from_ts=1_700_000_000_000).tombstone is not None
    assert topic.read(from_ts=1_700_000_000_001).tombstone is None


@pytest.mark.rule("S4.26", "S4.27", "S6.7")
def test_a_floor_that_time_moves_is_logged_before_it_is_told_and_at_most_once_a_second(
    store: topics.Store, disk: SimDisk, clock: ManualClock
) -> None:
    topic = store.create("t", ttl_ms=100)
    topic.put(1)
    clock.advance(101)
    first = topic.read()
    assert (data(first), first.earliest_seq) == ([], 2)
    topic.put(2)

    clock.advance(999)
    stale = topic.read(from_seq=1)
    assert (data(stale), stale.earliest_seq) == ([2], 2)
    clock.advance(1)
    fresh = topic.read(from_seq=1)

    assert (data(fresh), fresh.earliest_seq) == ([], 3)
    assert [mark.ts for mark in watermarks(disk)] == [1_700_000_000_101, 1_700_000_001_101]


@pytest.mark.rule("S6.8")
def test_a_tick_logs_what_time_moved(store: topics.Store, disk: SimDisk, clock: ManualClock) -> None:
    store.create("t", ttl_ms=100).put(1)
    clock.advance(5000)

    with store._local.lock:
        store._keeper.keep_once()

    assert len(watermarks(disk)) == 1
    assert store.topic("t").state().evict_floor == 2


@pytest.mark.rule("S6.9")
@pytest.mark.parametrize("change", ["delete", "configure"])
def test_time_goes_first_so_that_a_delete_hides_no_loss(
    store: topics.Store, disk: SimDisk, clock: ManualClock, change: str
) -> None:
    topic = store.create("t", ttl_ms=100)
    topic.put(1)
    clock.advance(200)
    if change == "delete":
        topic.delete(before_seq=2)
    else:
        topic.configure(ttl_ms=0)

    assert len(watermarks(disk)) == 1
    page = topic.read()
    assert page.tombstone is not None
    assert page.tombstone.reason.value == "ttl"


@pytest.mark.rule("S6.4")
def test_apply_counts_time_by_the_frame_not_by_the_clock(
    store: topics.Store, clock: ManualClock, open_sim: Callable[..., topics.Store]
) -> None:
    store.create("t", ttl_ms=100).put(1)
    store.close()
    clock.advance(50)
    with open_sim() as again:
        assert again.topic("t").state().count == 1


@pytest.mark.rule("S5.1", "S5.4", "S5.3")
def test_a_delete_is_silent_at_once_and_stops_at_the_published_head(store: topics.Store) -> None:
    topic = store.create("t")
    topic.put_many([{"data": i} for i in range(5)])

    reply = topic.delete(before_seq=10**9)
    topic.put("later")
    page = topic.read(account=True)

    assert (reply.deleted, reply.earliest_seq, reply.head_seq, reply.count, reply.bytes) == (5, 6, 5, 0, 0)
    assert (page.tombstone, data(page)) == (None, ["later"])
    assert page.account is not None
    assert page.account.deleted == 5


@pytest.mark.rule("S5.5", "S5.6", "S5.8", "S5.10")
@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({"match": "a"}, [1, 2, 3, 4]),
        ({"match": ["tag", "Eq", "a"]}, [1, 2, 3, 4]),
        ({"match": ["tag", "Glob", "a*"]}, [2, 3, 4]),
        ({"match": ["tag", "Glob", "*"]}, [4]),
        ({"match": ["tag", "Glob", "a*"], "before_seq": 2}, [1, 2, 3, 4]),
        ({"before_seq": 3}, [2, 3, 4]),
        ({"match": "nobody"}, [0, 1, 2, 3, 4]),
    ],
)
def test_selectors(store: topics.Store, selector: dict[str, object], left: list[int]) -> None:
    topic = store.create("t")
    topic.put_many([{"data": i, "tag": tag} for i, tag in enumerate(["a", "ab", "b", "Ab"])] + [{"data": 4}])

    topic.delete(**selector)  # type: ignore[arg-type]  # given by the table

    assert data(topic.read()) == left


@pytest.mark.rule("S5.7", "S5.9")
@pytest.mark.parametrize(
    "selector",
    [
        {}, {"match": ["tag", "Glob", "a"]}, {"match": ["tag", "Glob", "*a"]}, {"match": ["tag", "Glob", "a**"]},
        {"match": ["tag", "Ne", "a"]}, {"match": ["node", "Eq", "a"]}, {"match": ["tag", "Eq"]}, {"match": 7},
        {"match": ["tag", "Eq", 1]}, {"match": ""}, {"before_seq": -1}, {"before_seq": "5"},
    ],
)  # fmt: skip
def test_bad_selectors_are_refused(store: topics.Store, selector: dict[str, object]) -> None:
    topic = store.create("t")
    topic.put(1, tag="a")
    with pytest.raises(topics.Rejected, match=r"match|before_seq") as refused:
        topic.delete(**selector)  # type: ignore[arg-type]  # given by the table
    assert refused.value.code == "invalid_request"
    assert topic.state().count == 1


@pytest.mark.rule("S4.16", "S1.9")
def test_who_iterates_is_told_when_the_topic_is_created_anew_between_two_pages(
    open_sim: Callable[..., topics.Store],
) -> None:
    with open_sim(limits=Limits(read_limit=2)) as store:
        topic = store.topic("t")
        topic.put_many([{"data": n} for n in range(4)])
        items = topic.records()
        old = [next(items), next(items)]
        store.delete("t")
        topic.put_many([{"data": n} for n in range(10, 14)])
        gap, *new = items

    assert [item.data for item in old if not isinstance(item, Gap)] == [0, 1]
    assert isinstance(gap, Gap)
    assert gap.reason.value == "recreated"
    assert [item.data for item in new if not isinstance(item, Gap)] == [10, 11, 12, 13]
